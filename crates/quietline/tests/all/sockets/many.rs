//! Several messages with one call, and epolls that watch all sockets: on the host and here.

use crate::sockets::call::SLOTS;
use crate::sockets::drive::{Received, Sys};
use crate::sockets::host::Host;
use crate::sockets::ours::Ours;
use quietline::{EpollEvent, Errno, RecvMsg, SendMsg};
use std::collections::{HashMap, HashSet};
use std::io::Error;

pub(crate) trait Many {
    /// `sendmmsg`: how many bytes of each that was sent.
    fn send_many(&mut self, fd: i32, messages: &[Vec<u8>], flags: i32) -> Result<Vec<usize>, i32>;
    /// `recvmmsg` with room for so many messages of a length, and for their names.
    fn recv_many(
        &mut self,
        fd: i32,
        count: usize,
        len: usize,
        flags: i32,
    ) -> Result<Vec<Received>, i32>;
    fn epoll(&mut self) -> i32;
    /// Begins to watch for events, or ends it.
    fn watch(&mut self, ep: i32, fd: i32, events: Option<u32>, data: u64);
    fn events(&mut self, ep: i32) -> Vec<(u64, u32)>;
}

/// Events of sockets, by the order in which those were made.
pub(crate) type Events = Vec<(u64, u32)>;

/// A level- and an edge-triggered epoll, and what was last seen of the sockets that they watch.
pub(crate) struct Watch {
    epolls: [i32; 2],
    made: u64,
    watched: HashMap<i32, (u64, u32)>,
}

/// All that poll may say.
const ALL: u32 = 0x27df;

impl Watch {
    pub(crate) fn new(sys: &mut dyn Sys) -> Self {
        Self { epolls: [sys.epoll(), sys.epoll()], made: 0, watched: HashMap::new() }
    }

    /// Has both watch a new descriptor.
    pub(crate) fn begin(&mut self, sys: &mut dyn Sys, fd: i32) {
        self.made += 1;
        self.watched.insert(fd, (self.made, 0));
        for (ep, edges) in self.epolls.into_iter().zip([0, libc::EPOLLET as u32]) {
            sys.watch(ep, fd, Some(ALL | edges), self.made);
        }
    }

    /// Ends that, before it is closed: the file may be on its way to somebody.
    pub(crate) fn end(&mut self, sys: &mut dyn Sys, fd: i32) {
        if self.watched.remove(&fd).is_some() {
            self.epolls.into_iter().for_each(|ep| sys.watch(ep, fd, None, 0));
        }
    }

    pub(crate) fn close(&mut self, sys: &mut dyn Sys) {
        self.epolls.into_iter().for_each(|ep| sys.close(ep).unwrap());
    }

    /// What they tell; `polls` is what `poll` says of the sockets. Of edges those where it says more than it did: Linux tells
    /// others too, whenever something was taken out of a queue, or a thread was woken for it.
    pub(crate) fn told(
        &mut self,
        sys: &mut dyn Sys,
        fds: &[Option<i32>; SLOTS],
        polls: &[u32; SLOTS],
    ) -> [Events; 2] {
        let mut new = HashSet::new();
        for (fd, now) in fds.iter().zip(polls) {
            let Some((id, before)) = fd.and_then(|fd| self.watched.get_mut(&fd)) else { continue };
            if now & !*before != 0 {
                new.insert(*id);
            }
            *before = *now;
        }
        let [levels, edges] = self.epolls.map(|ep| {
            let mut events = sys.events(ep);
            events.sort_unstable();
            events
        });
        [levels, edges.into_iter().filter(|(id, _)| new.contains(id)).collect()]
    }
}

fn done(result: i64) -> Result<usize, i32> {
    usize::try_from(result).map_err(|_| Error::last_os_error().raw_os_error().expect("an errno"))
}

// SAFETY, of all blocks here: the pointers are to buffers that live during the call, with their lengths.
#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
impl Many for Host {
    fn send_many(&mut self, fd: i32, messages: &[Vec<u8>], flags: i32) -> Result<Vec<usize>, i32> {
        let vector = |data: &Vec<u8>| libc::iovec {
            iov_base: data.as_ptr().cast_mut().cast(),
            iov_len: data.len(),
        };
        let mut vectors: Vec<_> = messages.iter().map(vector).collect();
        let mut headers = headers(&mut vectors);
        let sent = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), headers.len() as u32, flags) };
        Ok(headers[..done(sent.into())?].iter().map(|header| header.msg_len as usize).collect())
    }

    fn recv_many(
        &mut self,
        fd: i32,
        count: usize,
        len: usize,
        flags: i32,
    ) -> Result<Vec<Received>, i32> {
        let (mut data, mut names) = (vec![vec![0u8; len]; count], vec![[0u8; 128]; count]);
        let vector =
            |data: &mut Vec<u8>| libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: len };
        let mut vectors: Vec<_> = data.iter_mut().map(vector).collect();
        let mut headers = headers(&mut vectors);
        for (header, name) in headers.iter_mut().zip(&mut names) {
            header.msg_hdr.msg_name = name.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = 128;
        }
        let (first, none) = (headers.as_mut_ptr(), std::ptr::null_mut());
        let n = done(unsafe { libc::recvmmsg(fd, first, count as u32, flags, none) }.into())?;
        let came =
            headers.into_iter().zip(data).zip(names).take(n).map(|((header, mut bytes), name)| {
                let len = header.msg_len as usize;
                bytes.truncate(len);
                let name = name[..header.msg_hdr.msg_namelen as usize].to_vec();
                Received { len, bytes, name, control: Vec::new(), flags: header.msg_hdr.msg_flags }
            });
        Ok(came.collect())
    }

    fn epoll(&mut self) -> i32 {
        done(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }.into()).expect("an epoll") as i32
    }

    fn watch(&mut self, ep: i32, fd: i32, events: Option<u32>, data: u64) {
        let op = if events.is_some() { libc::EPOLL_CTL_ADD } else { libc::EPOLL_CTL_DEL };
        let mut event = libc::epoll_event { events: events.unwrap_or(0), u64: data };
        done(unsafe { libc::epoll_ctl(ep, op, fd, &mut event) }.into()).expect("watched, or not");
    }

    fn events(&mut self, ep: i32) -> Vec<(u64, u32)> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let n = done(unsafe { libc::epoll_wait(ep, events.as_mut_ptr(), 64, 0) }.into())
            .expect("events");
        events[..n].iter().map(|event| (event.u64, event.events)).collect()
    }
}

#[allow(unsafe_code)]
fn headers(vectors: &mut [libc::iovec]) -> Vec<libc::mmsghdr> {
    let header = |vector: &mut libc::iovec| {
        // SAFETY: all of it may be zero.
        let mut header: libc::mmsghdr = unsafe { core::mem::zeroed() };
        (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (vector, 1);
        header
    };
    vectors.iter_mut().map(header).collect()
}

impl Many for Ours {
    fn send_many(&mut self, fd: i32, messages: &[Vec<u8>], flags: i32) -> Result<Vec<usize>, i32> {
        let parts: Vec<[&[u8]; 1]> = messages.iter().map(|data| [&data[..]]).collect();
        let mut messages: Vec<_> =
            parts.iter().map(|parts| SendMsg { buffers: parts, ..SendMsg::default() }).collect();
        let sent = self.process.sendmmsg(fd, &mut messages, flags).map_err(Errno::raw_os_error)?;
        Ok(messages[..sent].iter().map(|message| message.sent).collect())
    }

    fn recv_many(
        &mut self,
        fd: i32,
        count: usize,
        len: usize,
        flags: i32,
    ) -> Result<Vec<Received>, i32> {
        let mut data = vec![vec![0; len]; count];
        let mut rooms: Vec<[&mut [u8]; 1]> = data.iter_mut().map(|data| [&mut data[..]]).collect();
        let mut messages: Vec<_> =
            rooms.iter_mut().map(|room| RecvMsg { buffers: room, ..RecvMsg::default() }).collect();
        let n =
            self.process.recvmmsg(fd, &mut messages, flags, None).map_err(Errno::raw_os_error)?;
        let received = |message: &RecvMsg<'_, '_>| Received {
            len: message.received,
            bytes: Vec::new(),
            name: message.name.bytes().to_vec(),
            control: Vec::new(),
            flags: message.flags,
        };
        let mut came: Vec<_> = messages[..n].iter().map(received).collect();
        for (came, mut data) in came.iter_mut().zip(data) {
            data.truncate(came.len);
            came.bytes = data;
        }
        Ok(came)
    }

    fn epoll(&mut self) -> i32 {
        self.process.epoll_create1(0).unwrap()
    }

    fn watch(&mut self, ep: i32, fd: i32, events: Option<u32>, data: u64) {
        let op = if events.is_some() { libc::EPOLL_CTL_ADD } else { libc::EPOLL_CTL_DEL };
        let event = EpollEvent { events: events.unwrap_or(0), data };
        self.process.epoll_ctl(ep, op, fd, &event).unwrap();
    }

    fn events(&mut self, ep: i32) -> Vec<(u64, u32)> {
        let mut events = [EpollEvent::default(); 64];
        let n = self.process.epoll_wait(ep, &mut events, 0).unwrap();
        events[..n].iter().map(|event| (event.data, event.events)).collect()
    }
}
