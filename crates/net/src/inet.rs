//! The internet families, on a machine that has a loopback device and nothing else.
//!
//! # Our way
//!
//! There are no packets, no device and no routes. A connection is two queues of bytes, a datagram goes from the sender's
//! buffer to the receiver's queue, and the only tables are those of ports, which are asked when a socket is bound or connected
//! and when a datagram is sent.
//!
//! ```text
//!   Inet ── port tables ── buckets, each with a lock
//!               ├─ listeners and datagram sockets, by address and port
//!               └─ connections that were made from there, by the addresses and ports of both ends
//!   Socket ── InetEnd ── tcp::End or udp::End, made by the first call that needs it
//! ```
//!
//! # Limits
//!
//! Addresses are 127.0.0.0/8, ::1 and the wildcards; every other one is somebody else's, and there is no way to there. Raw sockets
//! can be made, and nothing else. Sockets with partial checksums are datagram sockets with ports of their own.

mod address;
mod control;
mod groups;
mod names;
mod ports;
mod settings;
mod stream;
mod tcp;
mod udp;

use crate::abi::{
    AF_INET6, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL,
};
use crate::address::SockAddr;
use crate::message::{Incoming, Outgoing};
use crate::proto::{self, On, Proto, deadline, left};
use crate::raw::{NetRef, Object, Objects};
use crate::socket::{Protocol, Socket};
use core::time::Duration;
use ports::{Ports, Taken};
use quietline_platform::AllocError;
#[cfg(not(loom))]
use quietline_slab::LazyCache;
use quietline_sync::Once;
use quietline_sync::WaitQueue;
use quietline_vfs::abi::O_NONBLOCK;
use quietline_vfs::{Direction, Events, Io, Ioctl, PollTable, Sink, Source};
use rustix::io::Errno;
use tcp::How;

/// What a kernel's internet sockets have in common.
#[derive(Debug)]
pub(crate) struct Inet {
    tcp: Ports<Object<tcp::End>>,
    ticks: tcp::Ticks,
    udp: Ports<Object<udp::End>>,
    udplite: Ports<Object<udp::End>>,
    /// After the tables, which keep some of them.
    streams: Objects<tcp::End>,
    datagrams: Objects<udp::End>,
}

impl Inet {
    pub(crate) fn new() -> Result<Self, Errno> {
        let streams = Objects::new().map_err(|_| Errno::NOMEM)?;
        let datagrams = Objects::new().map_err(|_| Errno::NOMEM)?;
        let make = || -> Result<Self, AllocError> {
            Ok(Self {
                tcp: Ports::new(Taken::ByAny)?,
                ticks: tcp::Ticks::new()?,
                udp: Ports::new(Taken::ByLatest)?,
                udplite: Ports::new(Taken::ByLatest)?,
                streams,
                datagrams,
            })
        };
        make().map_err(|AllocError| Errno::NOMEM)
    }

    /// Ends the thread of deferred connections. No call is being made.
    pub(crate) fn end(&self) {
        self.ticks.end();
    }

    #[cfg(not(loom))]
    pub(crate) fn caches(&self) -> [&LazyCache; 2] {
        [self.streams.cache(), self.datagrams.cache()]
    }
}

/// The state of a socket of these families, once it has one.
#[derive(Debug)]
pub(crate) struct InetEnd {
    tcp: Once<Object<tcp::End>>,
    udp: Once<Object<udp::End>>,
}

impl Drop for InetEnd {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(end) = self.udp.get() {
            end.close_late();
        }
    }
}

/// A socket's state, by its protocol.
enum Which<'a> {
    Tcp(&'a tcp::End),
    Udp(&'a udp::End),
}

impl InetEnd {
    /// None yet.
    #[inline(always)]
    pub(crate) fn empty() -> Self {
        Self { tcp: Once::empty(), udp: Once::empty() }
    }

    /// Whether there is one.
    #[inline(always)]
    pub(crate) fn is_used(&self) -> bool {
        self.tcp.get().is_some() || self.udp.get().is_some()
    }

    /// Returns 0 if there is nothing to close and nothing to drop; for the owner of the last
    /// reference.
    #[inline(always)]
    pub(crate) fn bits(&self) -> usize {
        self.tcp.bits() | self.udp.bits()
    }

    /// The state, made if there is none.
    #[inline]
    fn of(&self, socket: &Socket) -> Result<Which<'_>, Errno> {
        match (self.tcp.get(), self.udp.get()) {
            (Some(end), _) => Ok(Which::Tcp(end)),
            (_, Some(end)) => Ok(Which::Udp(end)),
            _ => self.make(socket),
        }
    }

    #[cold]
    fn make(&self, socket: &Socket) -> Result<Which<'_>, Errno> {
        let v6 = socket.family() == AF_INET6;
        let net = NetRef::of(socket.net());
        let no_memory = |AllocError| Errno::NOMEM;
        match socket.protocol() {
            Protocol::Tcp => {
                // If somebody was quicker, this one is dropped.
                let _ = self.tcp.set(tcp::End::new(net, v6).map_err(no_memory)?);
                self.tcp.get().map(Which::Tcp).ok_or(Errno::NOMEM)
            }
            Protocol::Udp | Protocol::UdpLite => {
                let lite = socket.protocol() == Protocol::UdpLite;
                let _ = self.udp.set(udp::End::new(net, v6, lite).map_err(no_memory)?);
                self.udp.get().map(Which::Udp).ok_or(Errno::NOMEM)
            }
            Protocol::Unix | Protocol::Raw(_) => Err(Errno::OPNOTSUPP),
        }
    }

    /// A stream's state.
    fn stream(&self, socket: &Socket) -> Result<Object<tcp::End>, Errno> {
        match self.of(socket)? {
            Which::Tcp(_) => self.tcp.share().ok_or(Errno::OPNOTSUPP),
            Which::Udp(_) => Err(Errno::OPNOTSUPP),
        }
    }

    /// A datagram socket's.
    fn datagrams(&self) -> Result<Object<udp::End>, Errno> {
        self.udp.share().ok_or(Errno::OPNOTSUPP)
    }
}

/// Sends all, as far as the call waits.
fn send_stream(
    end: &tcp::End,
    on: &On<'_>,
    message: &mut Outgoing<'_, '_, '_>,
) -> Result<usize, Errno> {
    if message.flags & MSG_OOB != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if !message.control.is_empty() {
        on.net().memory().check_control(message.control)?;
        // What is wrong with the socket comes first.
        if end.is_open() {
            control::check(message.control)?;
        }
    }
    let waits = on.waits(message.flags);
    if message.data.left() > stream::SMALL && !on.may_sleep && may_wait(on, message.flags) {
        // It may have to wait in the middle, and to tell an error that it meets then.
        return Err(Errno::AGAIN);
    }
    let deadline = if waits { deadline(end.options().send_timeout()) } else { None };
    let mut done = 0;
    loop {
        let sent = match end.send(message.data) {
            Err(Errno::AGAIN) if waits => {
                proto::wait(end.writers(), Events::TO_WRITE, false, left(deadline), || {
                    end.send(message.data)
                })
            }
            sent => sent,
        };
        match sent {
            Ok(n) => done += n,
            Err(errno) if done > 0 => {
                end.keep_error(errno);
                return Ok(done);
            }
            Err(errno) => {
                if errno == Errno::PIPE && message.flags & MSG_NOSIGNAL == 0 {
                    message.data.set_broken();
                }
                return Err(errno);
            }
        }
        if message.data.left() == 0 {
            return Ok(done);
        }
    }
}

/// Receives what there is, or as much as the call waits for.
fn receive_stream(
    end: &tcp::End,
    on: &On<'_>,
    message: &mut Incoming<'_, '_, '_>,
) -> Result<usize, Errno> {
    if message.flags & MSG_OOB != 0 {
        return Err(Errno::INVAL);
    }
    if message.flags & MSG_ERRQUEUE != 0 {
        return Err(Errno::AGAIN);
    }
    let flags = message.flags;
    let (mut room, waits) = (message.data.left(), on.waits(flags));
    let target = end.options().target(flags & MSG_WAITALL != 0, room);
    if target > 1 && !on.may_sleep && may_wait(on, flags) {
        // It may have to wait in the middle.
        return Err(Errno::AGAIN);
    }
    if room == 0 {
        return receive_nothing(end, on, message);
    }
    let deadline = if waits { deadline(end.options().receive_timeout()) } else { None };
    let mut got = 0;
    loop {
        let how = match (flags & MSG_PEEK != 0, flags & MSG_TRUNC != 0) {
            (true, true) => How::Count { skip: got, most: room },
            (true, false) => How::Peek(got),
            (false, true) => How::Discard(room),
            (false, false) => How::Read,
        };
        let received = match end.receive(message.data, how) {
            Err(Errno::AGAIN) if waits && got < target => {
                let key = Events::TO_READ;
                proto::wait(end.readers(), key, false, left(deadline), || {
                    end.receive(message.data, how)
                })
            }
            received => received,
        };
        match received {
            Ok(0) => return Ok(got),
            Ok(n) => {
                got += n;
                room -= n;
            }
            Err(Errno::AGAIN) if got > 0 => return Ok(got),
            Err(errno) if got > 0 => {
                end.keep_error(errno);
                return Ok(got);
            }
            Err(errno) => return Err(errno),
        }
        if got >= target || room == 0 {
            return Ok(got);
        }
    }
}

/// Who wants no bytes waits, as on Linux, until something comes or the time is up, and is told that he got them, whatever it was: an
/// error stays where it is, and nobody is told that a wait was in vain, or interrupted.
#[cold]
fn receive_nothing(
    end: &tcp::End,
    on: &On<'_>,
    message: &mut Incoming<'_, '_, '_>,
) -> Result<usize, Errno> {
    match end.receive(message.data, How::Read) {
        Err(Errno::AGAIN) if on.waits(message.flags) => {}
        done => return done,
    }
    let (key, timeout) = (Events::TO_READ, end.options().receive_timeout());
    let connecting = end.connects();
    let look = || if end.is_eventful(connecting) { Ok(()) } else { Err(Errno::AGAIN) };
    // However it ends.
    let _ = proto::wait(end.readers(), key, false, timeout, look);
    Ok(0)
}

/// Whether the call waits, if not here.
fn may_wait(on: &On<'_>, flags: i32) -> bool {
    flags & MSG_DONTWAIT == 0 && on.flags & O_NONBLOCK == 0
}

impl Proto for InetEnd {
    fn bind(&self, on: &On<'_>, address: &SockAddr) -> Result<(), Errno> {
        match self.of(on.socket)? {
            Which::Tcp(end) => end.bind(on, address),
            Which::Udp(_) => udp::End::bind(&self.datagrams()?, on, address),
        }
    }

    fn listen(&self, on: &On<'_>, backlog: u32) -> Result<(), Errno> {
        tcp::End::listen(&self.stream(on.socket)?, on, backlog)
    }

    fn connect(&self, on: &On<'_>, address: &SockAddr) -> Result<(), Errno> {
        match self.of(on.socket)? {
            Which::Tcp(_) => tcp::End::connect(&self.stream(on.socket)?, on, address),
            Which::Udp(_) => udp::End::connect(&self.datagrams()?, on, address),
        }
    }

    fn accept(&self, on: &On<'_>, new: &Socket) -> Result<SockAddr, Errno> {
        let Which::Tcp(end) = self.of(on.socket)? else { return Err(Errno::OPNOTSUPP) };
        let (child, address) = end.accept(on)?;
        // Nobody else knows the new socket.
        new.inet.tcp.give(child);
        Ok(address)
    }

    fn name(&self, on: &On<'_>, peer: bool) -> Result<SockAddr, Errno> {
        match self.of(on.socket)? {
            Which::Tcp(end) => end.name(peer),
            Which::Udp(end) => end.name(peer),
        }
    }

    fn shutdown(&self, on: &On<'_>, how: i32) -> Result<(), Errno> {
        match self.of(on.socket)? {
            Which::Tcp(end) => end.shutdown(how),
            Which::Udp(end) => end.shutdown(how),
        }
    }

    fn send(&self, on: &On<'_>, message: &mut Outgoing<'_, '_, '_>) -> Result<usize, Errno> {
        match self.of(on.socket)? {
            Which::Tcp(end) => send_stream(end, on, message),
            Which::Udp(end) => {
                if !end.is_bound() {
                    udp::End::autobind(&self.datagrams()?, on)?;
                }
                end.send(message)
            }
        }
    }

    fn receive(&self, on: &On<'_>, message: &mut Incoming<'_, '_, '_>) -> Result<usize, Errno> {
        match self.of(on.socket)? {
            Which::Tcp(end) => receive_stream(end, on, message),
            // There is no queue of errors.
            Which::Udp(_) if message.flags & MSG_ERRQUEUE != 0 => Err(Errno::AGAIN),
            Which::Udp(end) => end.receive(on, message),
        }
    }

    fn set_option(&self, on: &On<'_>, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        match self.of(on.socket)? {
            Which::Tcp(end) => end.set_option(on, level, name, value),
            Which::Udp(end) => end.set_option(on, level, name, value),
        }
    }

    fn option(&self, on: &On<'_>, level: i32, name: i32, to: &mut [u8]) -> Result<usize, Errno> {
        match self.of(on.socket)? {
            Which::Tcp(end) => end.option(level, name, to),
            Which::Udp(end) => end.option(level, name, to),
        }
    }

    #[inline]
    fn try_read(&self, socket: &Socket, io: Io, to: &mut Sink<'_, '_>) -> Result<usize, Errno> {
        match self.of(socket)? {
            // `recv` asks all the same; `read` does not.
            _ if to.left() == 0 => Ok(0),
            Which::Tcp(end) => end.read(to, io.may_wait()),
            Which::Udp(end) => end.read(to, io),
        }
    }

    #[inline]
    fn try_write(
        &self,
        socket: &Socket,
        _io: Io,
        from: &mut Source<'_, '_>,
    ) -> Result<usize, Errno> {
        match self.of(socket)? {
            Which::Tcp(end) => {
                let sent = end.send(from);
                if sent == Err(Errno::PIPE) {
                    from.set_broken();
                }
                sent
            }
            Which::Udp(end) => end.write(from),
        }
    }

    fn least(&self, _socket: &Socket, len: usize) -> usize {
        self.tcp.get().map_or(1, |end| end.options().target(false, len))
    }

    fn keep_error(&self, socket: &Socket, errno: Errno) {
        match self.of(socket) {
            Ok(Which::Tcp(end)) => end.fail(errno),
            Ok(Which::Udp(end)) => end.fail(errno),
            Err(_) => {}
        }
    }

    fn untold(&self, socket: &Socket, errno: Errno) {
        if let Ok(Which::Tcp(end)) = self.of(socket) {
            end.keep_error(errno);
        }
    }

    fn poll(&self, socket: &Socket, table: &mut PollTable<'_>) -> Events {
        match self.of(socket) {
            Ok(Which::Tcp(end)) => end.poll(table),
            Ok(Which::Udp(end)) => end.poll(table),
            // There is nothing to wait for.
            Err(_) => Events::ERR,
        }
    }

    fn waiters(&self, socket: &Socket, what: Direction) -> Option<&WaitQueue> {
        Some(match (self.of(socket).ok()?, what) {
            (Which::Tcp(end), Direction::Read) => end.readers(),
            (Which::Tcp(end), Direction::Write) => end.writers(),
            (Which::Udp(end), Direction::Read) => end.readers(),
            (Which::Udp(end), Direction::Write) => end.writers(),
        })
    }

    /// Of a stream's readers one may want more than is there (`SO_RCVLOWAT`), and another not (`sk_wait_data`).
    fn reads_in_turn(&self, socket: &Socket) -> bool {
        !matches!(self.of(socket), Ok(Which::Tcp(_)))
    }

    fn timeout(&self, socket: &Socket, what: Direction) -> Option<Duration> {
        let options = match self.of(socket).ok()? {
            Which::Tcp(end) => end.options(),
            Which::Udp(end) => end.options(),
        };
        match what {
            Direction::Read => options.receive_timeout(),
            Direction::Write => options.send_timeout(),
        }
    }

    fn ioctl(&self, socket: &Socket, request: Ioctl) -> Result<i32, Errno> {
        match (self.of(socket)?, request) {
            (Which::Tcp(end), Ioctl::Readable) => end.readable(),
            // What is sent has arrived.
            (Which::Tcp(end), Ioctl::Unread) => {
                if end.listens() {
                    Err(Errno::INVAL)
                } else {
                    Ok(0)
                }
            }
            // There is no urgent data.
            (Which::Tcp(_), Ioctl::AtMark) => Ok(0),
            (Which::Udp(end), Ioctl::Readable) => Ok(end.readable()),
            (Which::Udp(_), Ioctl::Unread) => Ok(0),
            _ => Err(Errno::NOTTY),
        }
    }

    fn closed(&self, _socket: &Socket) {
        if let Some(end) = self.tcp.get() {
            end.close();
        }
        if let Some(end) = self.udp.get() {
            end.close();
        }
    }
}
