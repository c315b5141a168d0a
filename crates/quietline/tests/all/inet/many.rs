//! Calls with several buffers and several messages, and epolls: on the host and on the library.

use crate::inet::host::Host;
use crate::inet::ours::Ours;
use quietline::{EpollEvent, Errno, RecvMsg, SendMsg};
use std::io;
use std::mem::zeroed;

/// A message that came: how many bytes, those, from where, and `msg_flags`.
pub(crate) type Came = (i32, Vec<u8>, Vec<u8>, i32);

/// Flags of a message that are compared.
const FLAGS: i32 = libc::MSG_TRUNC | libc::MSG_CTRUNC | libc::MSG_EOR;

pub(crate) trait Many {
    /// `sendmsg`.
    fn send_parts(&mut self, fd: i32, parts: &[Vec<u8>], flags: i32, to: &[u8])
    -> Result<i32, i32>;
    /// `recvmsg`, with buffers of these lengths.
    fn receive_parts(&mut self, fd: i32, lens: &[usize], flags: i32) -> Result<Came, i32>;
    /// `sendmmsg`: how many bytes of each that was sent.
    fn send_many(
        &mut self,
        fd: i32,
        messages: &[Vec<Vec<u8>>],
        flags: i32,
        to: &[u8],
    ) -> Result<Vec<i32>, i32>;
    /// `recvmmsg`.
    fn receive_many(
        &mut self,
        fd: i32,
        messages: &[Vec<usize>],
        flags: i32,
    ) -> Result<Vec<Came>, i32>;
    fn epoll(&mut self) -> i32;
    fn watch(&mut self, ep: i32, fd: i32, events: u32, data: u64);
    fn events(&mut self, ep: i32) -> Vec<(u32, u64)>;
}

fn buffers(lens: &[usize]) -> Vec<Vec<u8>> {
    lens.iter().map(|len| vec![0; *len]).collect()
}

/// The bytes that came, of those that there is room for; none that a stream has thrown away.
fn cut(parts: Vec<Vec<u8>>, n: i32, from: &[u8], flags: i32) -> Vec<u8> {
    let mut data = parts.concat();
    data.truncate(n as usize);
    if flags & libc::MSG_TRUNC != 0 && from.is_empty() {
        data.clear();
    }
    data
}

fn vectors(parts: &mut [Vec<u8>]) -> Vec<libc::iovec> {
    let vector = |part: &mut Vec<u8>| libc::iovec {
        iov_base: part.as_mut_ptr().cast(),
        iov_len: part.len(),
    };
    parts.iter_mut().map(vector).collect()
}

fn done(result: isize) -> Result<i32, i32> {
    if result < 0 {
        return Err(io::Error::last_os_error().raw_os_error().expect("an errno"));
    }
    Ok(result as i32)
}

/// A header of a message with these buffers, and a name.
fn header(vectors: &mut [libc::iovec], name: &mut [u8]) -> libc::mmsghdr {
    // SAFETY: all of it may be zero.
    let mut message: libc::mmsghdr = unsafe { zeroed() };
    if !name.is_empty() {
        message.msg_hdr.msg_name = name.as_mut_ptr().cast();
        message.msg_hdr.msg_namelen = name.len() as u32;
    }
    (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) =
        (vectors.as_mut_ptr(), vectors.len() as _);
    message
}

// SAFETY, of all calls below: headers point to buffers of the lengths that they say, which live during the call.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Many for Host {
    fn send_parts(
        &mut self,
        fd: i32,
        parts: &[Vec<u8>],
        flags: i32,
        to: &[u8],
    ) -> Result<i32, i32> {
        let (mut parts, mut to) = (parts.to_vec(), to.to_vec());
        let mut vectors = vectors(&mut parts);
        let message = header(&mut vectors, &mut to);
        let sent = done(unsafe { libc::sendmsg(fd, &message.msg_hdr, flags) });
        self.rest();
        sent
    }

    fn receive_parts(&mut self, fd: i32, lens: &[usize], flags: i32) -> Result<Came, i32> {
        let (mut parts, mut from) = (buffers(lens), vec![0; 128]);
        let mut vectors = vectors(&mut parts);
        let mut message = header(&mut vectors, &mut from);
        let n = done(unsafe { libc::recvmsg(fd, &mut message.msg_hdr, flags) });
        self.rest();
        let n = n?;
        from.truncate(message.msg_hdr.msg_namelen as usize);
        Ok((n, cut(parts, n, &from, flags), from, message.msg_hdr.msg_flags & FLAGS))
    }

    fn send_many(
        &mut self,
        fd: i32,
        messages: &[Vec<Vec<u8>>],
        flags: i32,
        to: &[u8],
    ) -> Result<Vec<i32>, i32> {
        let (mut parts, mut to) = (messages.to_vec(), to.to_vec());
        let mut vectors: Vec<_> = parts.iter_mut().map(|parts| vectors(parts)).collect();
        let mut headers: Vec<_> =
            vectors.iter_mut().map(|vectors| header(vectors, &mut to)).collect();
        let (first, count) = (headers.as_mut_ptr(), headers.len() as u32);
        let sent = done(unsafe { libc::sendmmsg(fd, first, count, flags) } as isize);
        self.rest();
        Ok(headers[..sent? as usize].iter().map(|header| header.msg_len as i32).collect())
    }

    fn receive_many(
        &mut self,
        fd: i32,
        messages: &[Vec<usize>],
        flags: i32,
    ) -> Result<Vec<Came>, i32> {
        let mut parts: Vec<_> = messages.iter().map(|lens| buffers(lens)).collect();
        let mut names = vec![vec![0u8; 128]; messages.len()];
        let mut vectors: Vec<_> = parts.iter_mut().map(|parts| vectors(parts)).collect();
        let mut headers: Vec<_> = vectors
            .iter_mut()
            .zip(&mut names)
            .map(|(vectors, name)| header(vectors, name))
            .collect();
        let (first, count) = (headers.as_mut_ptr(), headers.len() as u32);
        let n =
            done(unsafe { libc::recvmmsg(fd, first, count, flags, std::ptr::null_mut()) } as isize);
        self.rest();
        let came = headers.iter().zip(parts).zip(names).take(n? as usize).map(
            |((header, parts), mut from)| {
                from.truncate(header.msg_hdr.msg_namelen as usize);
                let n = header.msg_len as i32;
                (n, cut(parts, n, &from, flags), from, header.msg_hdr.msg_flags & FLAGS)
            },
        );
        Ok(came.collect())
    }

    fn epoll(&mut self) -> i32 {
        done(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } as isize).expect("an epoll")
    }

    fn watch(&mut self, ep: i32, fd: i32, events: u32, data: u64) {
        let mut event = libc::epoll_event { events, u64: data };
        done(unsafe { libc::epoll_ctl(ep, libc::EPOLL_CTL_ADD, fd, &mut event) } as isize)
            .expect("added");
    }

    fn events(&mut self, ep: i32) -> Vec<(u32, u64)> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
        let n = done(unsafe { libc::epoll_wait(ep, events.as_mut_ptr(), 16, 0) } as isize)
            .expect("events");
        events[..n as usize].iter().map(|event| (event.events, event.u64)).collect()
    }
}

fn number<T>(result: Result<T, Errno>) -> Result<T, i32> {
    result.map_err(Errno::raw_os_error)
}

impl Many for Ours {
    fn send_parts(
        &mut self,
        fd: i32,
        parts: &[Vec<u8>],
        flags: i32,
        to: &[u8],
    ) -> Result<i32, i32> {
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        let message = SendMsg { name: to, buffers: &parts, ..SendMsg::default() };
        number(self.process.sendmsg(fd, &message, flags)).map(|n| n as i32)
    }

    fn receive_parts(&mut self, fd: i32, lens: &[usize], flags: i32) -> Result<Came, i32> {
        let mut parts = buffers(lens);
        let mut rooms: Vec<&mut [u8]> = parts.iter_mut().map(|part| &mut part[..]).collect();
        let mut message = RecvMsg { buffers: &mut rooms, ..RecvMsg::default() };
        let n = number(self.process.recvmsg(fd, &mut message, flags))? as i32;
        let (from, found) = (message.name.bytes().to_vec(), message.flags & FLAGS);
        Ok((n, cut(parts, n, &from, flags), from, found))
    }

    fn send_many(
        &mut self,
        fd: i32,
        messages: &[Vec<Vec<u8>>],
        flags: i32,
        to: &[u8],
    ) -> Result<Vec<i32>, i32> {
        let parts: Vec<Vec<&[u8]>> =
            messages.iter().map(|parts| parts.iter().map(|part| &part[..]).collect()).collect();
        let message = |parts| SendMsg { name: to, buffers: parts, ..SendMsg::default() };
        let mut messages: Vec<_> = parts.iter().map(|parts| message(&parts[..])).collect();
        let sent = number(self.process.sendmmsg(fd, &mut messages, flags))?;
        Ok(messages[..sent].iter().map(|message| message.sent as i32).collect())
    }

    fn receive_many(
        &mut self,
        fd: i32,
        messages: &[Vec<usize>],
        flags: i32,
    ) -> Result<Vec<Came>, i32> {
        let mut parts: Vec<_> = messages.iter().map(|lens| buffers(lens)).collect();
        let mut rooms: Vec<Vec<&mut [u8]>> = parts
            .iter_mut()
            .map(|parts| parts.iter_mut().map(|part| &mut part[..]).collect())
            .collect();
        let mut messages: Vec<_> = rooms
            .iter_mut()
            .map(|rooms| RecvMsg { buffers: rooms, ..RecvMsg::default() })
            .collect();
        let n = number(self.process.recvmmsg(fd, &mut messages, flags, None))?;
        let heads: Vec<_> = messages[..n]
            .iter()
            .map(|message| {
                (message.received as i32, message.name.bytes().to_vec(), message.flags & FLAGS)
            })
            .collect();
        let came = heads.into_iter().zip(parts);
        Ok(came
            .map(|((n, from, found), parts)| (n, cut(parts, n, &from, flags), from, found))
            .collect())
    }

    fn epoll(&mut self) -> i32 {
        self.process.epoll_create1(0).expect("an epoll")
    }

    fn watch(&mut self, ep: i32, fd: i32, events: u32, data: u64) {
        let event = EpollEvent { events, data };
        self.process.epoll_ctl(ep, libc::EPOLL_CTL_ADD, fd, &event).expect("added");
    }

    fn events(&mut self, ep: i32) -> Vec<(u32, u64)> {
        let mut events = [EpollEvent::default(); 16];
        let n = self.process.epoll_wait(ep, &mut events, 0).expect("events");
        events[..n].iter().map(|event| (event.events, event.data)).collect()
    }
}
