//! `epoll_ctl`.

use super::flags::*;
use super::{EpollEvent, EventPoll};
use crate::raw::eventpoll::Wanted;
use crate::raw::handle::FileHandle;
use crate::raw::opened::Opened;
use rustix::io::Errno;

/// Begins to watch a file.
pub const EPOLL_CTL_ADD: i32 = 1;
/// Ends watching it.
pub const EPOLL_CTL_DEL: i32 = 2;
/// Changes what is wanted of it.
pub const EPOLL_CTL_MOD: i32 = 3;

/// What may be asked for together with `EPOLLEXCLUSIVE`.
const WITH_EXCLUSIVE: u32 =
    EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;

/// What `epoll_ctl` says of its two files before it looks for the one among the other's, in Linux's order: the epoll.
///
/// # Errors
/// `EPERM` for a file that cannot be watched; `EINVAL` for an epoll that is none, or is to watch itself, and for what does not go
/// together with `EPOLLEXCLUSIVE`.
#[inline]
pub fn check_control<'g>(
    epoll: Opened<'g>,
    op: i32,
    file: Opened<'_>,
    event: &EpollEvent,
) -> Result<&'g EventPoll, Errno> {
    if !file.polls() {
        return Err(Errno::PERM);
    }
    let found =
        epoll.payload::<EventPoll>().filter(|_| !epoll.is_same(file)).ok_or(Errno::INVAL)?;
    if event.events & EPOLLEXCLUSIVE != 0 {
        let nested = || file.payload::<EventPoll>().is_some();
        let refused = match op {
            EPOLL_CTL_MOD => true,
            EPOLL_CTL_ADD => event.events & !WITH_EXCLUSIVE != 0 || nested(),
            _ => false,
        };
        if refused {
            return Err(Errno::INVAL);
        }
    }
    Ok(found)
}

fn wanted(fd: i32, event: &EpollEvent) -> Wanted {
    Wanted { fd, events: event.events | EPOLLERR | EPOLLHUP, data: event.data }
}

/// `EPOLL_CTL_ADD`, after [`check_control`].
///
/// # Errors
/// `EEXIST`; `ELOOP` for a circle, or a chain of more than five; `EINVAL` for too many paths to a file; `ENOSPC`,
/// `ENOMEM`.
pub fn control_add(
    epoll: &EventPoll,
    fd: i32,
    file: &FileHandle<'_>,
    event: &EpollEvent,
) -> Result<(), Errno> {
    epoll.inside.add(file, wanted(fd, event))
}

impl EventPoll {
    /// `EPOLL_CTL_MOD` and `EPOLL_CTL_DEL`, after [`check_control`]. Needs no reference to the file: one that is closed is
    /// found no more.
    ///
    /// # Errors
    /// `ENOENT`; `EINVAL` for an operation that is unknown, and for a change of what was added with `EPOLLEXCLUSIVE`.
    #[inline]
    pub fn control(
        &self,
        op: i32,
        fd: i32,
        file: Opened<'_>,
        event: &EpollEvent,
    ) -> Result<(), Errno> {
        let not_exclusive =
            |was: u32| if was & EPOLLEXCLUSIVE != 0 { Err(Errno::INVAL) } else { Ok(()) };
        match op {
            EPOLL_CTL_MOD => self.inside.modify(file, wanted(fd, event), not_exclusive),
            EPOLL_CTL_DEL => self.inside.delete(file, fd),
            _ => Err(Errno::INVAL),
        }
    }
}
