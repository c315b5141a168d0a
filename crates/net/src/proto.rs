//! What a family does for its sockets: the switch that every call goes through (`proto_ops`).

use crate::address::SockAddr;
use crate::caller::Caller;
use crate::message::{Incoming, Outgoing};
use crate::net::Net;
use crate::socket::Socket;
use core::time::Duration;
#[cfg(not(loom))]
use quietline_platform::clock;
use quietline_sync::{Wait, WaitError, WaitQueue};
use quietline_vfs::abi::O_NONBLOCK;
use quietline_vfs::{Direction, Events, Io, Ioctl, PollTable, Sink, Source};
use rustix::io::Errno;

/// A call on a socket.
#[derive(Clone, Copy)]
pub struct On<'a> {
    /// The socket.
    pub socket: &'a Socket,
    /// Who calls.
    pub who: &'a dyn Caller,
    /// The open file's status flags.
    pub flags: i32,
    /// Whether the caller holds the file, and no section: only then the call may sleep.
    pub may_sleep: bool,
}

impl On<'_> {
    /// What the kernel's sockets have in common.
    pub(crate) fn net(&self) -> &Net {
        self.socket.net()
    }

    /// Whether the call waits, with these flags of its message.
    #[inline(always)]
    pub(crate) fn waits(&self, flags: i32) -> bool {
        self.may_sleep && self.flags & O_NONBLOCK == 0 && flags & crate::abi::MSG_DONTWAIT == 0
    }
}

impl On<'_> {
    /// Whether a call that finds too little is to be made again by a caller who may sleep: it must leave things as they are,
    /// and say `EAGAIN`.
    #[inline(always)]
    pub(crate) fn is_trial(&self, flags: i32) -> bool {
        !self.may_sleep && self.flags & O_NONBLOCK == 0 && flags & crate::abi::MSG_DONTWAIT == 0
    }
}

impl core::fmt::Debug for On<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("On")
            .field("socket", self.socket)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

/// When a call that waits for so long, in several waits, is to end.
#[cfg(not(loom))]
pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Duration> {
    timeout.and_then(|timeout| clock::monotonic().checked_add(timeout))
}

/// How much of that is left for the next of them.
#[cfg(not(loom))]
pub(crate) fn left(deadline: Option<Duration>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_sub(clock::monotonic()))
}

/// The model has no time: what is set is what is left.
#[cfg(loom)]
pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Duration> {
    timeout
}

#[cfg(loom)]
pub(crate) fn left(deadline: Option<Duration>) -> Option<Duration> {
    deadline
}

/// Tries until there is something else to say than `EAGAIN`, or the time is up.
///
/// # Errors
/// What `again` says; `EAGAIN` when the time is up; `EINTR`.
#[cold]
pub(crate) fn wait<R>(
    queue: &WaitQueue,
    key: Events,
    exclusive: bool,
    timeout: Option<Duration>,
    mut again: impl FnMut() -> Result<R, Errno>,
) -> Result<R, Errno> {
    let wait = Wait { key: key.bits(), exclusive, timeout, interruptible: true, ..Wait::default() };
    let done = queue.wait_until(&wait, || match again() {
        Err(Errno::AGAIN) => None,
        done => Some(done),
    });
    match done {
        Ok(done) => done,
        Err(WaitError::TimedOut) => Err(Errno::AGAIN),
        Err(WaitError::Interrupted) => Err(Errno::INTR),
    }
}

/// What a family does. Each method is a call on a socket that has no state before the first that needs one.
///
/// Calls wait, where they may ([`On::waits`]), on their own; `try_read` and `try_write` never do.
pub(crate) trait Proto {
    /// `bind`.
    fn bind(&self, _on: &On<'_>, _address: &SockAddr) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// `listen`; the backlog is 0 to `SOMAXCONN`.
    fn listen(&self, _on: &On<'_>, _backlog: u32) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// `connect`.
    fn connect(&self, _on: &On<'_>, _address: &SockAddr) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// `accept`: makes `new`, a socket without state, the next connection; the address of its other end.
    fn accept(&self, _on: &On<'_>, _new: &Socket) -> Result<SockAddr, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// `getsockname`; with `peer`, `getpeername`.
    fn name(&self, _on: &On<'_>, _peer: bool) -> Result<SockAddr, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// `shutdown`; `how` is one of the three.
    fn shutdown(&self, _on: &On<'_>, _how: i32) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// `sendmsg`: how many bytes. If the process is to get `SIGPIPE`, says so in `message.data`.
    fn send(&self, _on: &On<'_>, _message: &mut Outgoing<'_, '_, '_>) -> Result<usize, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// `recvmsg`: what the call returns.
    fn receive(&self, _on: &On<'_>, _message: &mut Incoming<'_, '_, '_>) -> Result<usize, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// `setsockopt`, `SOL_SOCKET` included.
    fn set_option(
        &self,
        _on: &On<'_>,
        _level: i32,
        _name: i32,
        _value: &[u8],
    ) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// `getsockopt`: how many bytes; `SO_TYPE`, `SO_PROTOCOL` and `SO_DOMAIN` are answered already.
    fn option(
        &self,
        _on: &On<'_>,
        _level: i32,
        _name: i32,
        _to: &mut [u8],
    ) -> Result<usize, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// As [`Payload::try_read`](quietline_vfs::Payload::try_read), so the next five.
    fn try_read(&self, _socket: &Socket, _io: Io, _to: &mut Sink<'_, '_>) -> Result<usize, Errno> {
        Err(Errno::INVAL)
    }

    /// For `write`.
    fn try_write(
        &self,
        _socket: &Socket,
        _io: Io,
        _from: &mut Source<'_, '_>,
    ) -> Result<usize, Errno> {
        Err(Errno::INVAL)
    }

    /// How many bytes a read of `len` waits for (`SO_RCVLOWAT`).
    fn least(&self, _socket: &Socket, _len: usize) -> usize {
        1
    }

    /// A call has failed after it had done something: the next one is told (`sk_err`).
    fn keep_error(&self, _socket: &Socket, _errno: Errno) {}

    /// A write of which something came has failed after that, and says only how much came.
    fn untold(&self, _socket: &Socket, _errno: Errno) {}

    /// For `poll` and its like. Makes the state, if there is none.
    fn poll(&self, _socket: &Socket, _table: &mut PollTable<'_>) -> Events {
        Events::ALWAYS
    }

    /// Where `read` and `write` wait.
    fn waiters(&self, _socket: &Socket, _what: Direction) -> Option<&WaitQueue> {
        None
    }

    /// Whether those in `read` are woken one by one, each of whom wakes the next if anything is left. Not where one may go back to sleep
    /// over what would do for another.
    fn reads_in_turn(&self, _socket: &Socket) -> bool {
        true
    }

    /// How long they do.
    fn timeout(&self, _socket: &Socket, _what: Direction) -> Option<Duration> {
        None
    }

    /// For `ioctl`.
    fn ioctl(&self, _socket: &Socket, _request: Ioctl) -> Result<i32, Errno> {
        Err(Errno::NOTTY)
    }

    /// The last open file of the socket has ended.
    fn closed(&self, _socket: &Socket) {}
}
