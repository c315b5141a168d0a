//! Reading and writing what is not a regular file: objects that let their callers wait.
//!
//! An object says what it can do at once ([`Payload`](crate::Payload)); how a caller waits until it can do more is the same
//! for all of them, and is here.

use super::FileMode;
use super::iov::{Sink, Source};
use crate::abi::O_NONBLOCK;
use crate::poll::{Events, PollTable};
use crate::raw::handle::FileHandle;
use crate::raw::opened::Opened;
use core::time::Duration;
use quietline_platform::clock;
use quietline_sync::{Wait, WaitError};
use rustix::io::Errno;

/// What a call knows of the open file.
#[derive(Debug, Clone, Copy)]
pub struct Io {
    /// Its status flags.
    pub flags: i32,
    /// What it was opened for.
    pub mode: FileMode,
}

impl Io {
    /// Whether the call may wait.
    #[inline(always)]
    pub fn may_wait(self) -> bool {
        self.flags & O_NONBLOCK == 0
    }
}

/// What a caller waits to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Read.
    Read,
    /// Write.
    Write,
}

impl Direction {
    /// What a caller waits for.
    #[inline]
    pub fn events(self) -> Events {
        match self {
            Self::Read => Events::TO_READ,
            Self::Write => Events::TO_WRITE,
        }
    }
}

/// A question that `ioctl` asks of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ioctl {
    /// How many bytes can be read (`FIONREAD`).
    Readable,
    /// How many bytes were written that nobody has read (`SIOCOUTQ`).
    Unread,
    /// Whether it stands at urgent data (`SIOCATMARK`).
    AtMark,
}

/// Reads from an object, and waits until there is something, if the file is one that waits.
///
/// # Errors
/// `EBADF` for a file that is not open for reading; `EAGAIN`; `EINTR`; the object's own.
pub fn read_object(file: &FileHandle<'_>, to: &mut Sink<'_, '_>) -> Result<usize, Errno> {
    let opened = file.opened();
    match opened.try_read(to) {
        Err(Errno::AGAIN) if opened.io().may_wait() => {}
        done => return done,
    }
    to.set_again();
    let done =
        wait(opened, Direction::Read, opened.timeout(Direction::Read), || opened.try_read(to));
    pass_on(opened, Direction::Read);
    done
}

/// Writes to an object until all is written, if the file is one that waits: how many bytes, also if it was told to stop.
///
/// # Errors
/// As [`read_object`]; then nothing was written.
pub fn write_object(file: &FileHandle<'_>, from: &mut Source<'_, '_>) -> Result<usize, Errno> {
    let opened = file.opened();
    let mut done = 0;
    loop {
        match opened.try_write(from) {
            Ok(n) => {
                done += n;
                from.set_again();
            }
            Err(Errno::AGAIN) if opened.io().may_wait() => return write_rest(opened, from, done),
            Err(errno) => return failed(opened, errno, from, done),
        }
        if from.left() == 0 {
            return Ok(done);
        }
    }
}

/// Waits until what is left can be written, too; `done` bytes have been.
#[cold]
fn write_rest(
    opened: Opened<'_>,
    from: &mut Source<'_, '_>,
    mut done: usize,
) -> Result<usize, Errno> {
    from.set_again();
    let timeout = opened.timeout(Direction::Write);
    let deadline = timeout.and_then(|timeout| clock::monotonic().checked_add(timeout));
    let result = loop {
        let left = deadline.map(|deadline| deadline.saturating_sub(clock::monotonic()));
        match wait(opened, Direction::Write, left, || opened.try_write(from)) {
            Ok(n) => done += n,
            Err(errno) => {
                if errno == Errno::INTR
                    && let Some(pipe) = opened.pipe()
                {
                    pipe.gave_up();
                }
                break failed(opened, errno, from, done);
            }
        }
        if from.left() == 0 {
            break Ok(done);
        }
    };
    pass_on(opened, Direction::Write);
    result
}

/// What a write says that has failed after `done` bytes.
#[cold]
fn failed(
    opened: Opened<'_>,
    errno: Errno,
    from: &mut Source<'_, '_>,
    done: usize,
) -> Result<usize, Errno> {
    if done == 0 {
        return Err(errno);
    }
    opened.untold(errno, from);
    Ok(done)
}

/// A wake-up for one is used up by the caller who has slept: if there is more than he has taken, the next one is woken. Not
/// where all have been: it would be an event to those who wait for edges.
fn pass_on(opened: Opened<'_>, what: Direction) {
    if opened.in_turn(what)
        && let Some(queue) = opened.waiters(what)
        && queue.is_waited_on()
    {
        let most = match what {
            Direction::Read => Events::IN | Events::RDNORM,
            Direction::Write => Events::OUT | Events::WRNORM,
        };
        let left = opened.poll(&mut PollTable::look()) & most;
        if !left.is_empty() {
            queue.wake(left.bits(), 1);
        }
    }
}

/// Tries again until there is something else to say than `EAGAIN`.
#[cold]
fn wait(
    opened: Opened<'_>,
    what: Direction,
    timeout: Option<Duration>,
    mut again: impl FnMut() -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let Some(queue) = opened.waiters(what) else { return Err(Errno::AGAIN) };
    let wait = Wait {
        key: what.events().bits(),
        exclusive: opened.in_turn(what),
        timeout,
        interruptible: true,
        ..Wait::default()
    };
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
