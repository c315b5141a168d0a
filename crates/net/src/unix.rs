//! Local sockets: streams, datagrams and messages in order (`AF_UNIX`).
//!
//! # The problem
//!
//! Two ends in one machine. What one end writes is in the other's queue when the call returns; the rest is about what happens
//! when an end is not there yet, has gone, is full, or is itself in a message.
//!
//! # The contended way
//!
//! A lock on each end, taken by the other, a count of bytes that both change, a table of names with one lock (until 2022), and a
//! lock for all files in flight.
//!
//! # Our way
//!
//! ```text
//!   file ── Socket ── UnixEnd ─┬─ sock ──> Sock  queue, waiters          Sock <── sock ─┬─ UnixEnd ── Socket ── file
//!                              └─ peer ──────────────────────────────────> │            │
//!                                                       │ <─────────────── peer ────────┘
//! ```
//!
//! A sender takes the lock of the receiver's queue, puts a segment in, and wakes whoever waits; a receiver takes its own lock.
//! Nothing else is written: how much of a stream lies unread is counted under that lock, too. An end refers to both states, and
//! no state to another (but for a connected datagram socket's, until it is closed), so nothing has to be untied.
//!
//! # Guarantees
//!
//! Results, errors, poll masks, and when a buffer is full, are those of Linux 6.18.
//!
//! # Limits
//!
//! * `MSG_OOB` is refused, as by a Linux without `CONFIG_AF_UNIX_OOB`.
//! * A `write` of a sender whose receiver wants to know who has sent it says who made the socket's connection; `send` and its
//!   like say who calls.
//! * A path that a socket is bound to does not keep its filesystem mounted.
//!
//! # Lock order
//!
//! The search for what is lost; a part of the register of what is in flight; a listener's state; another state; a bucket of names. The
//! queues of waiters come last.

mod connect;
mod control;
mod flight;
mod names;
mod options;
mod packet;
mod parcel;
mod poll;
mod segment;
mod sock;
mod stream;

pub(crate) use parcel::Parcel;

use crate::abi::{SOCK_DGRAM, SOCK_STREAM};
use crate::address::SockAddr;
use crate::caller::{Caller, Nobody};
use crate::message::{Control, Incoming, Outgoing};
use crate::proto::{On, Proto};
use crate::raw::{Object, Objects};
use crate::socket::Socket;
use core::time::Duration;
use flight::Flights;
use names::Names;
#[cfg(not(loom))]
use quietline_slab::LazyCache;
use quietline_sync::Once;
use quietline_sync::WaitQueue;
use quietline_vfs::{Direction, Events, Io, Ioctl, PollTable, Sink, Source};
use rustix::io::Errno;
use sock::Sock;

/// What a kernel's local sockets have in common.
#[derive(Debug)]
pub(crate) struct Unix {
    names: Names,
    flights: Flights,
    /// After those who keep some of them.
    socks: Objects<Sock>,
}

impl Unix {
    pub(crate) fn new() -> Result<Self, Errno> {
        let socks = Objects::new().map_err(|_| Errno::NOMEM)?;
        Ok(Self { names: Names::new()?, flights: Flights::new()?, socks })
    }

    #[cfg(not(loom))]
    pub(crate) fn cache(&self) -> &LazyCache {
        self.socks.cache()
    }

    /// Closes what only messages keep open.
    pub(crate) fn end(&self) {
        self.flights.end();
    }
}

/// A local socket's states: its own, made when it is first needed, and, for the ends of a connection, the other end's.
#[derive(Debug)]
pub(crate) struct UnixEnd {
    sock: Once<Object<Sock>>,
    peer: Once<Object<Sock>>,
}

impl UnixEnd {
    #[inline(always)]
    pub(crate) fn empty() -> Self {
        Self { sock: Once::empty(), peer: Once::empty() }
    }

    /// Makes two sockets without state each other's.
    pub(crate) fn pair(one: &mut Socket, two: &mut Socket, who: &dyn Caller) -> Result<(), Errno> {
        connect::pair(one, two, who)
    }

    /// Takes that back, of sockets that have no files: then they end with what refers to them.
    #[cold]
    pub(crate) fn unpair(&self) {
        connect::unpair(self);
    }

    /// Whether it has a state.
    #[inline(always)]
    pub(crate) fn is_used(&self) -> bool {
        self.sock.get().is_some()
    }

    /// Returns 0 if there is nothing to close and nothing to drop; for the owner of the last
    /// reference.
    #[inline(always)]
    pub(crate) fn bits(&self) -> usize {
        self.sock.bits() | self.peer.bits()
    }

    #[inline(always)]
    fn get(&self) -> Option<&Sock> {
        self.sock.get()
    }

    /// Its state, made if need be.
    #[inline(always)]
    fn sock(&self, socket: &Socket) -> Result<&Sock, Errno> {
        match self.sock.get() {
            Some(sock) => Ok(sock),
            None => self.make(socket),
        }
    }

    #[cold]
    fn make(&self, socket: &Socket) -> Result<&Sock, Errno> {
        let [new] = Sock::new(&socket.net().unix.socks, socket.ty())?;
        match self.sock.set(new) {
            Ok(sock) => Ok(sock),
            // Somebody was quicker.
            Err(_) => self.sock.get().ok_or(Errno::NOMEM),
        }
    }

    /// A share of its state, made if need be.
    fn sock_share(&self, socket: &Socket) -> Result<Object<Sock>, Errno> {
        self.sock(socket)?;
        self.sock.share().ok_or(Errno::NOMEM)
    }

    fn share(&self) -> Option<Object<Sock>> {
        self.sock.share()
    }
}

impl Proto for UnixEnd {
    fn bind(&self, on: &On<'_>, address: &SockAddr) -> Result<(), Errno> {
        connect::bind(self, on, address)
    }

    fn listen(&self, on: &On<'_>, backlog: u32) -> Result<(), Errno> {
        connect::listen(self, on, backlog)
    }

    fn connect(&self, on: &On<'_>, address: &SockAddr) -> Result<(), Errno> {
        if on.socket.ty() == SOCK_DGRAM {
            packet::connect(self, on, address)
        } else {
            connect::connect(self, on, address)
        }
    }

    fn accept(&self, on: &On<'_>, new: &Socket) -> Result<SockAddr, Errno> {
        connect::accept(self, on, &new.unix)
    }

    fn name(&self, on: &On<'_>, peer: bool) -> Result<SockAddr, Errno> {
        connect::name(self, on.socket.ty(), peer)
    }

    fn shutdown(&self, on: &On<'_>, how: i32) -> Result<(), Errno> {
        connect::shutdown(self, on.socket, how)
    }

    #[inline]
    fn send(&self, on: &On<'_>, message: &mut Outgoing<'_, '_, '_>) -> Result<usize, Errno> {
        if on.socket.ty() == SOCK_STREAM {
            stream::send(self, on, message)
        } else {
            packet::send(self, on, message)
        }
    }

    #[inline]
    fn receive(&self, on: &On<'_>, message: &mut Incoming<'_, '_, '_>) -> Result<usize, Errno> {
        if on.socket.ty() == SOCK_STREAM {
            stream::receive(self, on, message)
        } else {
            packet::receive(self, on, message)
        }
    }

    fn set_option(&self, on: &On<'_>, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        options::set(self, on, level, name, value)
    }

    fn option(&self, on: &On<'_>, level: i32, name: i32, to: &mut [u8]) -> Result<usize, Errno> {
        options::get(self, on, level, name, to)
    }

    #[inline]
    fn try_read(&self, socket: &Socket, io: Io, to: &mut Sink<'_, '_>) -> Result<usize, Errno> {
        if socket.ty() == SOCK_STREAM {
            return stream::try_read(self, socket, io, to);
        }
        if to.left() == 0 {
            return Ok(0);
        }
        let (mut name, mut control) = (SockAddr::NONE, Control::new(&mut []));
        let mut message =
            Incoming { name: &mut name, data: to, control: &mut control, flags: 0, found: 0 };
        packet::receive(self, &on(socket, io), &mut message)
    }

    #[inline]
    fn try_write(
        &self,
        socket: &Socket,
        io: Io,
        from: &mut Source<'_, '_>,
    ) -> Result<usize, Errno> {
        if socket.ty() == SOCK_STREAM {
            return stream::try_write(self, socket, from);
        }
        let mut message = Outgoing { name: &SockAddr::NONE, data: from, control: &[], flags: 0 };
        packet::send(self, &on(socket, io), &mut message)
    }

    fn least(&self, socket: &Socket, len: usize) -> usize {
        let stream = if socket.ty() == SOCK_STREAM { self.get() } else { None };
        stream.map_or(1, |sock| sock.options.target(false, len))
    }

    fn keep_error(&self, _socket: &Socket, errno: Errno) {
        if let Some(sock) = self.get() {
            sock.set_error(errno);
        }
    }

    fn poll(&self, socket: &Socket, table: &mut PollTable<'_>) -> Events {
        poll::poll(self, socket, table)
    }

    fn waiters(&self, _socket: &Socket, _what: Direction) -> Option<&WaitQueue> {
        self.get().map(|sock| &sock.waiters)
    }

    fn timeout(&self, _socket: &Socket, what: Direction) -> Option<Duration> {
        let options = &self.get()?.options;
        match what {
            Direction::Read => options.receive_timeout(),
            Direction::Write => options.send_timeout(),
        }
    }

    fn ioctl(&self, socket: &Socket, request: Ioctl) -> Result<i32, Errno> {
        poll::ioctl(self, socket, request)
    }

    fn closed(&self, socket: &Socket) {
        connect::closed(self, socket);
    }
}

/// A call by `read` or `write`, which does not say who calls.
fn on(socket: &Socket, io: Io) -> On<'_> {
    On { socket, who: &Nobody, flags: io.flags, may_sleep: false }
}
