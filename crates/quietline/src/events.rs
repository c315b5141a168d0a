//! System calls that wait for several files: epoll, poll, select.
//!
//! Each looks first, inside a read section and without references; only a call that is to sleep takes references, and is
//! [interruptible](crate::Interrupt). Masks of signals, which `ppoll`, `pselect6` and `epoll_pwait` take, have no place here: no
//! thread has one.

mod epoll;
mod poll;
mod select;
mod signals;
mod timer;

pub use poll::PollFd;
pub use select::FdSet;
pub use signals::SigPipe;

use crate::Errno;
use core::time::Duration;

/// A timeout in milliseconds: negative is none.
fn milliseconds(timeout: i32) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// Whether a timeout is not to be waited for at all.
fn is_over(timeout: Option<Duration>) -> bool {
    timeout == Some(Duration::ZERO)
}

/// A number of descriptors as the kernel takes it.
fn within(n: usize, limit: usize) -> Result<(), Errno> {
    if n > limit { Err(Errno::INVAL) } else { Ok(()) }
}
