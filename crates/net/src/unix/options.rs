//! Options of local sockets.

use super::UnixEnd;
use super::control::ucred;
use super::sock::LISTEN;
use crate::abi::*;
use crate::options::{give, give_int, int};
use crate::proto::On;
use quietline_sync::WaitQueue;
use rustix::io::Errno;

/// `setsockopt`.
pub(super) fn set(
    end: &UnixEnd,
    on: &On<'_>,
    level: i32,
    name: i32,
    value: &[u8],
) -> Result<(), Errno> {
    if level != SOL_SOCKET {
        return Err(Errno::OPNOTSUPP);
    }
    if name == SO_REUSEPORT && int(value)? != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    end.sock(on.socket)?.options.set(on, name, value)?;
    if name == SO_SNDBUF || name == SO_SNDBUFFORCE {
        // There may be more room. With a fence: senders look at it without a lock.
        end.sock(on.socket)?.waiters.wake(super::sock::WRITABLE.bits(), WaitQueue::ALL);
    }
    Ok(())
}

/// `getsockopt`.
pub(super) fn get(
    end: &UnixEnd,
    on: &On<'_>,
    level: i32,
    name: i32,
    to: &mut [u8],
) -> Result<usize, Errno> {
    if level != SOL_SOCKET {
        return Err(Errno::OPNOTSUPP);
    }
    let sock = end.sock(on.socket)?;
    Ok(match name {
        SO_ERROR => {
            give_int(to, sock.take_error().map_or_else(|errno| errno.raw_os_error(), |()| 0))
        }
        SO_ACCEPTCONN => give_int(to, i32::from(sock.phase() == LISTEN)),
        SO_PEERCRED => {
            // Who listens is told his own name, as on Linux.
            let state = sock.lock();
            give(to, &ucred(if sock.phase() == LISTEN { state.ids } else { state.peer_ids }))
        }
        _ => return sock.options.get(name, to),
    })
}
