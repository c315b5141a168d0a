//! Datagrams.
//!
//! # Our way
//!
//! ```text
//!   sender ──> port table: who takes it? ──> receiver's queue
//!              one bucket's lock             its lock
//! ```
//!
//! A short datagram lies in the queue itself; for a longer one memory is allocated, and filled before the queue is locked.
//!
//! # Guarantees
//!
//! A datagram arrives as a whole and once, or not at all: then its receiver had no room, as the sender is not told, or there was
//! none, as a connected sender is told by `ECONNREFUSED` with a later call.
//!
//! # Limits
//!
//! How much memory a datagram counts for is close to Linux's figure, not equal. Nothing is delivered to groups or to
//! everybody: joining a group is refused (`ENODEV`) and sending to one is `ENETUNREACH`. No queue of errors: `IP_RECVERR` is
//! `ENOPROTOOPT`. No corking: `MSG_MORE` is ignored. A socket of version 6 that is connected to an address of one version and then
//! to one of the other may hear more than on Linux.
//!
//! # Lock order
//!
//! `control`, then a bucket of the port table. The queue's lock is a leaf. Wait queues are woken outside all of them.

mod connect;
mod control;
mod options;
mod queue;

use super::address::{Class, class, route_from, source};
use super::names;
use super::ports::Ports;
use super::settings::Settings;
use crate::abi::{MSG_OOB, MSG_PEEK, MSG_TRUNC, SO_BROADCAST};
use crate::address::SockAddr;
use crate::message::{Incoming, Outgoing};
use crate::options::{BUFFER, Options};
use crate::proto::{self, On};
use crate::raw::{Named, NetRef, Object};
use connect::Control;
use control::Said;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use queue::{Datagram, Marks, Queue};
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_sync::{SpinLock, WaitQueue};
use quietline_vfs::{Events, Io, PollTable, Sink, Source};
use rustix::io::Errno;

const SHUT_RD: u32 = 1 << 0;
const SHUT_WR: u32 = 1 << 1;
const CLOSED: u32 = 1 << 2;
/// It has a port.
const BOUND: u32 = 1 << 3;

const READABLE: Events = Events::IN.union(Events::RDNORM);
const WRITABLE: Events = Events::OUT.union(Events::WRNORM).union(Events::WRBAND);

/// A socket for datagrams (`struct udp_sock`).
pub(crate) struct End {
    net: NetRef,
    v6: bool,
    /// With partial checksums: its ports are others.
    lite: bool,
    flags: AtomicU32,
    /// What went wrong; 0 is nothing.
    error: AtomicU32,
    options: Options,
    settings: Settings,
    readers: WaitQueue,
    writers: WaitQueue,
    control: SpinLock<Control>,
    received: Received,
}

/// On lines of its own: the senders write them.
#[repr(align(64))]
struct Received(SpinLock<Queue>);

impl Named for End {
    const CACHE: &'static str = "udp_sock";
}

impl End {
    pub(super) fn new(net: NetRef, v6: bool, lite: bool) -> Result<Object<Self>, AllocError> {
        let end = Self {
            net,
            v6,
            lite,
            flags: AtomicU32::new(0),
            error: AtomicU32::new(0),
            options: Options::with_buffers(BUFFER, BUFFER),
            settings: Settings::new(),
            readers: WaitQueue::new(),
            writers: WaitQueue::new(),
            control: SpinLock::new(Control::new()),
            received: Received(SpinLock::new(Queue::new())),
        };
        let [end] = net.get().inet.datagrams.make(end)?;
        Ok(end)
    }

    fn ports(&self) -> &Ports<Object<Self>> {
        let inet = &self.net.get().inet;
        if self.lite { &inet.udplite } else { &inet.udp }
    }

    fn flags(&self) -> u32 {
        // ORDERING: Acquire pairs with the exchange that sets them.
        self.flags.load(Ordering::Acquire)
    }

    fn take_error(&self) -> Option<Errno> {
        // Relaxed: a look, and a number that is all there is.
        if self.error.load(Ordering::Relaxed) == 0 {
            return None;
        }
        match self.error.swap(0, Ordering::Relaxed) {
            0 => None,
            errno => Some(Errno::from_raw_os_error(errno as i32)),
        }
    }

    /// Notes what went wrong.
    pub(super) fn fail(&self, errno: Errno) {
        // ORDERING: SeqCst: an exchange, as `wake_exchanged` wants it.
        self.error.swap(errno.raw_os_error() as u32, Ordering::SeqCst);
    }

    /// A datagram of this socket met no receiver.
    #[cold]
    fn refuse(&self) {
        self.fail(Errno::CONNREFUSED);
        // One receiver takes it.
        self.readers.wake_exchanged((READABLE | Events::ERR).bits(), 1);
        self.writers.wake_exchanged((WRITABLE | Events::ERR).bits(), WaitQueue::ALL);
    }

    /// `sendmsg` of a socket that has a port. Never waits: what has no room is lost.
    ///
    /// # Errors
    /// `EMSGSIZE`, `EOPNOTSUPP`, `EINVAL`, `EAFNOSUPPORT`, `EDESTADDRREQ`, `ENETUNREACH`, `EACCES`, `EPIPE`,
    /// `EAGAIN` without a free port; `ECONNREFUSED` of a former one; `ENOMEM`.
    pub(super) fn send(&self, message: &mut Outgoing<'_, '_, '_>) -> Result<usize, Errno> {
        if message.flags & MSG_OOB != 0 && message.data.left() <= 0xffff {
            return Err(Errno::OPNOTSUPP);
        }
        self.send_to(message.name, message.control, message.data)
    }

    /// `write`: to whom it is connected.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(super) fn write(&self, from: &mut Source<'_, '_>) -> Result<usize, Errno> {
        self.send_to(&SockAddr::NONE, &[], from)
    }

    /// Sends. Writes the lines of the own control, the receiver's bucket, count and queue.
    fn send_to(
        &self,
        name: &SockAddr,
        control: &[u8],
        data: &mut Source<'_, '_>,
    ) -> Result<usize, Errno> {
        let len = data.left();
        if len > 0xffff {
            return Err(Errno::MSGSIZE);
        }
        let known = name.is_empty() && control.is_empty();
        let path = if known { self.control.with(|control| control.path) } else { None };
        let (from, to, said) = match path {
            Some((from, to)) if to.port() != 0 => (from, to, Said::default()),
            _ => self.path(name, control)?,
        };
        let most = if to.is_ipv4() { 65_507 } else { 65_527 };
        if len > most {
            return Err(Errno::MSGSIZE);
        }
        if let Some(errno) = self.take_error() {
            return Err(errno);
        }
        if self.flags() & SHUT_WR != 0 {
            return Err(Errno::PIPE);
        }
        match self.ports().find(to, from) {
            Some(receiver) => {
                let (ttl, tos) = self.settings.marks();
                let marks = Marks { ttl: said.ttl.unwrap_or(ttl), tos: said.tos.unwrap_or(tos) };
                let datagram =
                    Datagram::new(from, to.ip(), marks, data).map_err(|_| Errno::NOMEM)?;
                receiver.deliver(datagram);
            }
            None => {
                data.advance(len);
                // Whoever the answer would be for is told, if he is connected to there.
                if let Some(end) = self.ports().find(from, to)
                    && end.control.with(|control| control.remote) == Some(to)
                {
                    end.refuse();
                }
            }
        }
        Ok(len)
    }

    /// From where and to where what is sent to `name` goes, and what else its control messages say.
    fn path(
        &self,
        name: &SockAddr,
        control: &[u8],
    ) -> Result<(SocketAddr, SocketAddr, Said), Errno> {
        let to = names::to_send(name, self.v6)?;
        let (local, bound, remote) =
            self.control.with(|control| (control.local, control.bound, control.remote));
        let Some(to) = to.or(remote) else { return Err(Errno::DESTADDRREQ) };
        // Port 0 is wrong as a name; a connection to it sends there.
        if to.port() == 0 && !name.is_empty() {
            return Err(Errno::INVAL);
        }
        let Some(local) = local else { return Err(Errno::AGAIN) };
        let (there, way) = self.way(Some(local.ip()), to)?;
        let said = match control {
            [] => Said::default(),
            control => {
                self.net.get().memory().check_control(control)?;
                Said::of(control, there.is_ipv4(), self.v6)?
            }
        };
        let source = match said.source {
            Some(ip) if ip.is_unspecified() => way,
            Some(ip) => ip,
            None => from_where(bound, local.ip(), there, way)?,
        };
        Ok((SocketAddr::new(source, local.port()), SocketAddr::new(there, to.port()), said))
    }

    /// The way to an address: the address there, and the one from here.
    fn way(&self, own: Option<IpAddr>, to: SocketAddr) -> Result<(IpAddr, IpAddr), Errno> {
        if self.settings.is_v6only() && to.ip().to_canonical().is_ipv4() {
            return Err(Errno::NETUNREACH);
        }
        if class(to.ip()) == Class::Broadcast && !self.options.is_on(SO_BROADCAST) {
            return Err(Errno::ACCESS);
        }
        route_from(own, to.ip())
    }

    /// Takes a datagram, or loses it.
    fn deliver(&self, datagram: Datagram) {
        let lost = {
            let mut queue = self.received.0.lock();
            if self.flags() & CLOSED != 0 {
                Some(datagram)
            } else {
                queue.push(datagram, self.options.rcvbuf())
            }
        };
        match lost {
            // One for one: each that waits gets another datagram.
            None => {
                self.readers.wake_ordered(READABLE.bits(), 1);
            }
            // Its memory goes back outside the lock.
            Some(lost) => drop(lost),
        }
    }

    /// `recvmsg`.
    ///
    /// # Errors
    /// `EAGAIN`, `EINTR`, `EOPNOTSUPP`; `ECONNREFUSED`.
    pub(super) fn receive(
        &self,
        on: &On<'_>,
        message: &mut Incoming<'_, '_, '_>,
    ) -> Result<usize, Errno> {
        if message.flags & MSG_OOB != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        match self.try_receive(message) {
            Err(Errno::AGAIN) if on.waits(message.flags) => {
                let timeout = self.options.receive_timeout();
                proto::wait(&self.readers, Events::TO_READ, true, timeout, || {
                    match self.try_receive(message) {
                        Err(Errno::AGAIN) if self.flags() & SHUT_RD != 0 => Ok(0),
                        done => done,
                    }
                })
            }
            done => done,
        }
    }

    fn try_receive(&self, message: &mut Incoming<'_, '_, '_>) -> Result<usize, Errno> {
        let peek = message.flags & MSG_PEEK != 0;
        let Next { from, to, marks, len, put } = self.next(message.data, peek)?;
        *message.name = names::shown(from, self.v6);
        self.tell(to, marks, message);
        if put < len {
            message.found |= MSG_TRUNC;
            if message.flags & MSG_TRUNC != 0 {
                return Ok(len);
            }
        }
        Ok(put)
    }

    /// `read`.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub(super) fn read(&self, to: &mut Sink<'_, '_>, io: Io) -> Result<usize, Errno> {
        match self.next(to, false) {
            Ok(Next { put, .. }) => Ok(put),
            // Who does not wait for what will not come is not told so.
            Err(Errno::AGAIN) if io.may_wait() && self.flags() & SHUT_RD != 0 => Ok(0),
            Err(errno) => Err(errno),
        }
    }

    /// The next datagram.
    fn next(&self, to: &mut Sink<'_, '_>, peek: bool) -> Result<Next, Errno> {
        let mut queue = self.received.0.lock();
        // Under the lock, so that who waits does not miss either.
        if let Some(errno) = self.take_error() {
            return Err(errno);
        }
        let found = queue.first().ok_or(Errno::AGAIN)?;
        if peek || found.is_short() {
            let done = Next::of(found, to);
            if !peek {
                queue.pop();
            }
            return Ok(done);
        }
        let Some(found) = queue.pop() else { return Err(Errno::AGAIN) };
        drop(queue);
        Ok(Next::of(&found, to))
    }

    /// What can be done (`udp_poll`).
    pub(super) fn poll(&self, table: &mut PollTable<'_>) -> Events {
        table.wait_on(&self.readers);
        table.wait_on(&self.writers);
        let mut events = WRITABLE;
        let (is_empty, flags) = {
            let mut queue = self.received.0.lock();
            (queue.first().is_none(), self.flags())
        };
        if !is_empty {
            events |= READABLE;
        }
        if flags & SHUT_RD != 0 {
            events |= READABLE | Events::RDHUP;
        }
        if flags & (SHUT_RD | SHUT_WR) == SHUT_RD | SHUT_WR {
            events |= Events::HUP;
        }
        // ORDERING: Acquire: set by an exchange before those who wait are woken.
        if self.error.load(Ordering::Acquire) != 0 {
            events |= Events::ERR;
        }
        events
    }

    pub(super) fn readers(&self) -> &WaitQueue {
        &self.readers
    }

    pub(super) fn writers(&self) -> &WaitQueue {
        &self.writers
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// How long the next datagram is (`FIONREAD`).
    pub(super) fn readable(&self) -> i32 {
        self.received.0.with(|queue| queue.first().map_or(0, |first| first.bytes().len() as i32))
    }
}

/// What is known of a datagram that was received.
struct Next {
    from: SocketAddr,
    to: IpAddr,
    marks: Marks,
    len: usize,
    /// How much of it was put.
    put: usize,
}

impl Next {
    /// Puts as much of a datagram as there is room for.
    fn of(found: &Datagram, into: &mut Sink<'_, '_>) -> Self {
        let put = into.put(found.bytes());
        Self { from: found.from, to: found.to, marks: found.marks, len: found.bytes().len(), put }
    }
}

/// The address to send from. What only a connection has made of the socket's address binds less than what it was bound to.
fn from_where(
    bound: Option<IpAddr>,
    local: IpAddr,
    there: IpAddr,
    way: IpAddr,
) -> Result<IpAddr, Errno> {
    if bound.is_none() && there.is_ipv4() && local.to_canonical().is_ipv6() {
        return Ok(way);
    }
    source(local, there, way)
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End")
            .field("flags", &self.flags())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
