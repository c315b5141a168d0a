//! Streams: bytes from end to end.
//!
//! What one call sends is one segment, or several if it is long, and stays so: a receiver that learns who has sent what it
//! reads, or gets files with it, is never given bytes of two senders, or of two messages with files, in one call.

use super::UnixEnd;
use super::control::{Inward, Outward, tells_sender};
use super::flight::Flights;
use super::segment::{Segment, Sender, stream_piece};
use super::sock::{DEAD, ESTABLISHED, RCV, READABLE, SEND, Sock, State, WRITABLE};
use crate::abi::{MSG_OOB, MSG_PEEK, MSG_WAITALL, SO_PASSCRED};
use crate::caller::{Caller, Nobody};
use crate::message::{Incoming, Outgoing};
use crate::proto::{On, wait};
use crate::socket::Socket;
use quietline_sync::SpinLockGuard;
use quietline_vfs::{Io, Sink, Source};
use rustix::io::Errno;

/// Both ends of a stream to be written to: this one and the other.
fn other(end: &UnixEnd) -> Result<(&Sock, &Sock), Errno> {
    match (end.get(), end.peer.get()) {
        (Some(own), Some(peer)) => Ok((own, peer)),
        _ => Err(Errno::NOTCONN),
    }
}

/// Puts as much of `data` into the other end's queue as there is room for: how many bytes.
///
/// Writes the lines of the other end's lock, queue and segment.
///
/// # Errors
/// `EPIPE`; `EAGAIN` when there is no room; `ECONNRESET`; `ENOMEM`.
#[inline]
fn push(
    own: &Sock,
    peer: &Sock,
    who: &dyn Caller,
    data: &mut Source<'_, '_>,
    outward: &mut Outward<'_>,
) -> Result<usize, Errno> {
    let mut done = 0;
    while data.left() > 0 {
        match push_one(own, peer, who, data, outward) {
            Ok(n) => done += n,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

#[inline]
fn push_one(
    own: &Sock,
    peer: &Sock,
    who: &dyn Caller,
    data: &mut Source<'_, '_>,
    outward: &mut Outward<'_>,
) -> Result<usize, Errno> {
    // Before the shutdown, which callers look at when they begin: who has waited is told of the error that came with it.
    own.take_error()?;
    if own.shutdown() & SEND != 0 {
        return Err(Errno::PIPE);
    }
    let sndbuf = own.options.sndbuf();
    let (len, charge) = stream_piece(data.left(), sndbuf);
    // Long ones are copied before the lock is taken, if there is room at all; short ones under it.
    let mut start = *data;
    let mut early = None;
    if len > SHORT {
        if peer.lock().charged >= sndbuf {
            return Err(Errno::AGAIN);
        }
        early = Some(Segment::new(&mut start, len, charge)?);
    }
    let mut state = peer.lock();
    if state.charged >= sndbuf {
        return Err(Errno::AGAIN);
    }
    let mut segment = match early {
        Some(segment) => segment,
        None => Segment::new(&mut start, len, charge)?,
    };
    if peer.shutdown() & (RCV | DEAD) != 0 {
        return Err(Errno::PIPE);
    }
    if let Some(sender) = outward.sender {
        segment.sender = sender;
    } else if tells_sender(own, peer) {
        segment.sender = match who.ids() {
            Some(ids) => Sender::of(ids),
            // The state is the other end's, which knows who this one is.
            None => state.peer_ids.map_or(Sender::UNKNOWN, Sender::of),
        };
    }
    state.reserve()?;
    segment.parcel = outward.take();
    let has_sockets = segment.parcel.as_ref().is_some_and(|parcel| parcel.has_sockets());
    state.queue.push_back(segment);
    state.charged += charge;
    let suspicious = has_sockets && peer.may_close_loop(&state);
    drop(state);
    if suspicious {
        outward.suspect();
    }
    *data = start;
    peer.wake(READABLE);
    Ok(len)
}

/// Bytes that are copied under the lock by who writes.
const SHORT: usize = 256;

/// `write`.
#[inline]
pub(super) fn try_write(
    end: &UnixEnd,
    socket: &Socket,
    data: &mut Source<'_, '_>,
) -> Result<usize, Errno> {
    let (own, peer) = other(end)?;
    // Also where there is nothing to be written.
    let sent = if own.shutdown() & SEND != 0 && !data.is_again() {
        Err(Errno::PIPE)
    } else {
        push(own, peer, &Nobody, data, &mut Outward::none(&socket.net().unix.flights))
    };
    if sent == Err(Errno::PIPE) {
        data.set_broken();
    }
    sent
}

/// `sendmsg`.
pub(super) fn send(
    end: &UnixEnd,
    on: &On<'_>,
    message: &mut Outgoing<'_, '_, '_>,
) -> Result<usize, Errno> {
    let flights = &on.net().unix.flights;
    let mut outward = match message.control {
        [] => Outward::none(flights),
        control => {
            on.net().memory().check_control(control)?;
            Outward::new(flights, on.who, control)?
        }
    };
    if message.flags & MSG_OOB != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if !message.name.is_empty() {
        let connected = end.get().is_some_and(|sock| sock.phase() == ESTABLISHED);
        return Err(if connected { Errno::ISCONN } else { Errno::OPNOTSUPP });
    }
    let (own, peer) = other(end)?;
    if own.shutdown() & SEND != 0 {
        message.data.set_broken();
        return Err(Errno::PIPE);
    }
    let mut done = 0;
    let waits = on.waits(message.flags);
    let failed = loop {
        if message.data.left() == 0 {
            return Ok(done);
        }
        let mut again = || push(own, peer, on.who, message.data, &mut outward);
        let sent = match again() {
            Err(Errno::AGAIN) if waits => {
                // Not exclusive: one wake-up may be all that comes, and there may be room for several.
                wait(&own.waiters, WRITABLE, false, own.options.send_timeout(), again)
            }
            sent => sent,
        };
        match sent {
            Ok(n) => done += n,
            Err(errno) => break errno,
        }
        if !waits && message.data.left() > 0 {
            return Ok(done);
        }
    };
    if done > 0 {
        return Ok(done);
    }
    if failed == Errno::PIPE {
        message.data.set_broken();
    }
    Err(failed)
}

/// The bytes of a segment, of which the last are to go there.
type Owed<'a> = (Box<[u8]>, &'a mut [u8]);

/// Long segments that were taken out of the queue, to be copied when its lock is free, and where to.
struct Later<'a, const N: usize> {
    segments: [Option<Owed<'a>>; N],
    count: usize,
}

/// As many as that, which 64 KiB are at most. If there are more, the others are copied under the lock.
const LATER: usize = 16;
/// Bytes that are copied under the lock by who reads: one thread at both ends takes longer for a page that it copies afterwards.
const PAGE: usize = if cfg!(loom) { SHORT } else { 4096 };

impl<'a, const N: usize> Later<'a, N> {
    #[inline(always)]
    const fn none() -> Self {
        Self { segments: [const { None }; N], count: 0 }
    }

    /// A place for one more, and where its `len` bytes go; none if it is to be copied at once.
    #[inline(always)]
    fn place(
        &mut self,
        data: &mut Sink<'a, '_>,
        len: usize,
    ) -> Option<(&mut Option<Owed<'a>>, &'a mut [u8])> {
        let place = self.segments.get_mut(self.count)?;
        let to = data.set_apart(len)?;
        self.count += 1;
        Some((place, to))
    }

    /// Copies and frees them.
    #[inline(always)]
    fn copy(self) {
        for (bytes, to) in self.segments.into_iter().take(self.count).flatten() {
            to.copy_from_slice(&bytes[bytes.len() - to.len()..]);
        }
    }
}

/// How far a receive has come.
struct Reading<'a, 'b, 's> {
    data: &'s mut Sink<'a, 'b>,
    copied: usize,
    /// Whether there was anything, also if nothing was wanted of it.
    seen: bool,
    target: usize,
    peek: bool,
    /// The caller wants to know who has sent what he reads.
    passcred: bool,
    inward: Inward,
}

impl<'a> Reading<'a, '_, '_> {
    /// Copies what is there: whether the call is over, and what became room again.
    fn pull(&mut self, sock: &Sock, socket: &Socket) -> Result<(), Errno> {
        let state = socket.net().unix.flights.lock_thawed(sock);
        self.pull_with(state, Later::<0>::none(), [0; 2], sock, socket)
    }

    /// The same from the first long segment on: those that are read whole are taken out, and copied when the lock is free.
    ///
    /// All in one hold of the lock, so that no other reader gets what lies between them.
    #[inline(never)]
    fn pull_long(
        &mut self,
        state: SpinLockGuard<'_, State>,
        done: [u32; 2],
        sock: &Sock,
        socket: &Socket,
    ) -> Result<(), Errno> {
        self.pull_with(state, Later::<LATER>::none(), done, sock, socket)
    }

    #[inline(always)]
    fn pull_with<const N: usize>(
        &mut self,
        mut state: SpinLockGuard<'_, State>,
        mut later: Later<'a, N>,
        [mut freed, mut moved]: [u32; 2],
        sock: &Sock,
        socket: &Socket,
    ) -> Result<(), Errno> {
        let flights: &Flights = &socket.net().unix.flights;
        let mut at = 0;
        let mut skip = match sock.options.peek_off() {
            Some(offset) => offset as usize,
            None => 0,
        };
        let ended = loop {
            let Some(segment) = state.queue.get_mut(at) else {
                break if self.copied >= self.target || self.peek && self.seen {
                    Ok(())
                } else {
                    starved(sock)
                };
            };
            if N == 0 && !self.peek && segment.rest().len() > PAGE {
                return self.pull_long(state, [freed, moved], sock, socket);
            }
            if self.peek && skip >= segment.rest().len() && !segment.rest().is_empty() {
                skip -= segment.rest().len();
                at += 1;
                continue;
            }
            if !self.peek {
                skip = 0;
            }
            if self.passcred {
                match self.inward.sender {
                    Some(sender) if sender != segment.sender => break Ok(()),
                    _ => self.inward.sender = Some(segment.sender),
                }
            }
            let had_files = segment.parcel.is_some();
            self.seen = true;
            // Before the bytes: who gets an error has got nothing.
            if had_files && let Err(errno) = self.inward.take(&mut segment.parcel, self.peek) {
                break Err(errno);
            }
            let (whole, charge) = (segment.rest().len(), segment.charge);
            if N > 0
                && whole > PAGE
                && let Some((place, to)) = later.place(self.data, whole)
            {
                *place = state.queue.pop_front().map(|segment| (segment.into_long(), to));
                self.copied += whole;
                moved += whole as u32;
                freed += charge;
            } else {
                let n = self.data.put(&segment.rest()[skip..]);
                self.copied += n;
                moved += n as u32;
                if self.peek {
                    skip = 0;
                    at += 1;
                } else {
                    segment.at += n as u32;
                    if !segment.rest().is_empty() {
                        break Ok(());
                    }
                    freed += charge;
                    drop(state.queue.pop_front());
                }
            }
            // Who only looks is told of files that come after all he has room for, as on Linux.
            if had_files || self.data.left() == 0 && !self.peek {
                break Ok(());
            }
        };
        state.charged -= freed;
        let charged = state.charged;
        self.move_peek(sock, moved);
        drop(state);
        self.inward.arrive(flights);
        if freed > 0 {
            tell_of_room(socket, charged);
        }
        later.copy();
        match ended {
            // What has been copied is not lost for what went wrong after it.
            Err(errno) if self.copied == 0 || errno == Errno::AGAIN => Err(errno),
            _ => Ok(()),
        }
    }

    /// `SO_PEEK_OFF` follows what is read.
    fn move_peek(&self, sock: &Sock, moved: u32) {
        if let Some(offset) = sock.options.peek_off() {
            sock.options.set_peek_off(if self.peek {
                offset.saturating_add(moved)
            } else {
                offset.saturating_sub(moved)
            });
        }
    }
}

/// What a receiver is told who finds nothing.
fn starved(sock: &Sock) -> Result<(), Errno> {
    sock.take_error()?;
    if sock.shutdown() & RCV != 0 { Ok(()) } else { Err(Errno::AGAIN) }
}

/// The state of a stream to be read from.
#[inline(always)]
fn connected(end: &UnixEnd) -> Result<&Sock, Errno> {
    end.get().filter(|sock| sock.phase() == ESTABLISHED).ok_or(Errno::INVAL)
}

/// `read`.
#[inline]
pub(super) fn try_read(
    end: &UnixEnd,
    socket: &Socket,
    io: Io,
    to: &mut Sink<'_, '_>,
) -> Result<usize, Errno> {
    if to.left() == 0 {
        return Ok(0);
    }
    let sock = connected(end)?;
    if let Some(n) = read_one(sock, socket, to) {
        return Ok(n);
    }
    // Who waits has found that a byte is enough, and nobody else is woken for it: whatever the option says by now.
    let target = if to.is_again() { 1 } else { sock.options.target(false, to.left()) };
    if target > 1 && io.may_wait() && !has(sock, target) {
        return Err(Errno::AGAIN);
    }
    let passcred = sock.options.is_on(SO_PASSCRED);
    let mut reading = Reading {
        data: to,
        copied: 0,
        seen: false,
        target,
        peek: false,
        passcred,
        inward: Inward::default(),
    };
    let done = reading.pull(sock, socket);
    finish(reading, done)
}

/// Whether there is as much as this to be read, or nothing more will come.
#[cold]
fn has(sock: &Sock, target: usize) -> bool {
    let state = sock.lock();
    let bytes: usize = state.queue.iter().map(|segment| segment.rest().len()).sum();
    bytes >= target || sock.has_error() || sock.shutdown() & RCV != 0
}

/// The most frequent: one segment that fits, and nothing beside it.
#[inline]
fn read_one(sock: &Sock, socket: &Socket, to: &mut Sink<'_, '_>) -> Option<usize> {
    let mut state = sock.lock();
    let segment = state.queue.front()?;
    let alone = segment.at == 0 && segment.parcel.is_none() && segment.bytes().len() <= to.left();
    if !alone || state.queue.len() > 1 || sock.options.peek_off().is_some() {
        return None;
    }
    if segment.bytes().len() < to.left()
        && sock.options.target(false, to.left()) > segment.bytes().len()
    {
        return None;
    }
    if segment.bytes().len() > PAGE {
        return read_long(state, socket, to);
    }
    let n = to.put(segment.bytes());
    state.charged -= segment.charge;
    let charged = state.charged;
    let segment = state.queue.pop_front();
    drop(state);
    drop(segment);
    tell_of_room(socket, charged);
    Some(n)
}

/// The same of a long one: it is copied when the lock is free.
#[inline(never)]
fn read_long(
    mut state: SpinLockGuard<'_, State>,
    socket: &Socket,
    to: &mut Sink<'_, '_>,
) -> Option<usize> {
    let segment = state.queue.pop_front()?;
    state.charged -= segment.charge;
    let (bytes, charged) = (segment.into_long(), state.charged);
    drop(state);
    tell_of_room(socket, charged);
    Some(to.put(&bytes))
}

/// Something was read, which leaves so much: the other end may have room again.
#[inline(always)]
fn tell_of_room(socket: &Socket, charged: u32) {
    if let Some(peer) = socket.unix.peer.get()
        && peer.is_writable(charged)
    {
        peer.wake(WRITABLE);
    }
}

/// What a receive returns.
fn finish(reading: Reading<'_, '_, '_>, done: Result<(), Errno>) -> Result<usize, Errno> {
    match done {
        Err(errno) if reading.copied == 0 => Err(errno),
        _ => Ok(reading.copied),
    }
}

/// `recvmsg`.
pub(super) fn receive(
    end: &UnixEnd,
    on: &On<'_>,
    message: &mut Incoming<'_, '_, '_>,
) -> Result<usize, Errno> {
    let sock = connected(end)?;
    if message.flags & MSG_OOB != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let target = sock.options.target(message.flags & MSG_WAITALL != 0, message.data.left());
    if target > 1 && on.is_trial(message.flags) {
        return Err(Errno::AGAIN);
    }
    let (peek, passcred) = (message.flags & MSG_PEEK != 0, sock.options.is_on(SO_PASSCRED));
    let mut reading = Reading {
        data: message.data,
        copied: 0,
        seen: false,
        target,
        peek,
        passcred,
        inward: Inward::default(),
    };
    let done = match reading.pull(sock, on.socket) {
        Err(Errno::AGAIN) if on.waits(message.flags) => {
            // Not exclusive: who wants more than one segment may leave others asleep that would do with one.
            let timeout = sock.options.receive_timeout();
            wait(&sock.waiters, READABLE, false, timeout, || reading.pull(sock, on.socket))
        }
        done => done,
    };
    let (inward, seen) = (core::mem::take(&mut reading.inward), reading.seen);
    let n = finish(reading, done)?;
    // The bytes are the other end's, which says nothing of itself unless it has a name.
    let name = end.peer.get().and_then(|peer| peer.name.get()).filter(|_| seen);
    message.name.set(name.map(|name| &name.address));
    message.found |= inward.deliver(end, on.who, message.control, message.flags);
    Ok(n)
}
