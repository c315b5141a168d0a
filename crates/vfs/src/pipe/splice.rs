//! Bytes from pipe to pipe, and between pipes and files (`splice`, `tee`, `vmsplice`).

use super::core::{PipeCore, State};
use crate::poll::Events;
use crate::raw::pipe_ring::Ring;
use quietline_platform::pages::PAGE_SIZE;
use quietline_sync::{SpinLockGuard, Wait, WaitQueue};
use rustix::io::Errno;

/// What a transfer is told.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    /// Bytes at most.
    pub len: usize,
    /// Whether it may wait for the pipes.
    pub waits: bool,
}

/// A transfer to a pipe that nobody reads: `EPIPE`, and the process is to be told by a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Nobody reads the pipe that is written to.
    Broken,
    /// An error, and nothing has gone through.
    Failed(Errno),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

/// Both pipes' locks, the one with the lower address taken first.
fn lock_both<'a>(
    one: &'a PipeCore,
    other: &'a PipeCore,
) -> (SpinLockGuard<'a, State>, SpinLockGuard<'a, State>) {
    if core::ptr::from_ref(one) < core::ptr::from_ref(other) {
        let first = one.state.lock();
        (first, other.state.lock())
    } else {
        let first = other.state.lock();
        (one.state.lock(), first)
    }
}

/// Waits in a pipe's queue.
fn sleep(queue: &WaitQueue, events: Events, ready: impl Fn() -> bool) -> Result<(), Errno> {
    let wait = Wait { key: events.bits(), interruptible: true, ..Wait::default() };
    queue.wait_until(&wait, || ready().then_some(())).map_err(|_| Errno::INTR)
}

impl PipeCore {
    /// Waits until there is something to read, or nobody who will write; and until nothing is out that may come back.
    pub(super) fn until_readable(&self, waits: bool) -> Result<(), Errno> {
        let ready = || {
            let mut state = self.state.lock();
            state.splice_waits |= state.is_one_out;
            !state.is_one_out && (self.now().is_readable() || state.writers == 0)
        };
        if ready() {
            return Ok(());
        }
        if waits { sleep(&self.readers, Events::TO_READ, ready) } else { Err(Errno::AGAIN) }
    }

    /// Waits until there is room, or nobody who will read.
    pub(super) fn until_writable(&self, waits: bool) -> Result<(), Stop> {
        let ready = || {
            let mut state = self.state.lock();
            state.refused |= state.ring.is_full() && state.ring.has_places();
            !state.ring.is_full() || state.readers == 0
        };
        if !ready() {
            // A fresh pipe is full until it is counted.
            let mut state = self.state.lock();
            self.settle(&mut state)?;
            self.release(state);
            if !ready() {
                if !waits {
                    return Err(Errno::AGAIN.into());
                }
                sleep(&self.writers, Events::TO_WRITE, ready)?;
            }
        }
        if self.state.lock().readers == 0 { Err(Stop::Broken) } else { Ok(()) }
    }

    /// Tells those of it who wait for bytes.
    pub(super) fn tell_readers(&self) {
        self.readers.wake_ordered(WaitQueue::ANY, 1);
    }

    /// Tells those of it who wait for room.
    pub(super) fn tell_writers(&self) {
        self.writers.wake_ordered(WaitQueue::ANY, 1);
    }
}

/// Moves buffers from one pipe to another: how many bytes; 0 if nobody will write any. Copies none but the
/// few that lie beside a pipe's lock.
///
/// # Errors
/// `EAGAIN`, `EINTR`, `ENOMEM`; a pipe that nobody reads.
pub fn move_between(from: &PipeCore, to: &PipeCore, how: Transfer) -> Result<usize, Stop> {
    between(from, to, how, |source, target| {
        let (mut done, mut freed) = (0, false);
        while done < how.len && !target.is_full() {
            let Some(first) = source.front() else { break };
            if first.len() > how.len - done {
                let part = first.share(how.len - done);
                first.skip(part.len());
                done += part.len();
                target.push(part);
            } else {
                let Some(whole) = source.pop() else { break };
                freed = true;
                done += whole.len();
                target.push(whole);
            }
        }
        (done, freed)
    })
}

/// Puts what is first in one pipe into another, too: how many bytes; 0 if nobody will write any. Copies none but
/// the few that lie beside a pipe's lock.
///
/// # Errors
/// As [`move_between`].
pub fn share_between(from: &PipeCore, to: &PipeCore, how: Transfer) -> Result<usize, Stop> {
    between(from, to, how, |source, target| {
        let (mut done, mut at) = (0, 0);
        while done < how.len && !target.is_full() {
            let Some(buffer) = source.get(at) else { break };
            let part = buffer.share(how.len - done);
            done += part.len();
            target.push(part);
            at += 1;
        }
        (done, false)
    })
}

/// Waits for bytes in one pipe and for room in the other one, until `transfer` finds both: how many bytes it says, or 0 if nobody will
/// write any. It also says whether it has made room; both pipes' locks are held.
fn between(
    from: &PipeCore,
    to: &PipeCore,
    how: Transfer,
    mut transfer: impl FnMut(&mut Ring, &mut Ring) -> (usize, bool),
) -> Result<usize, Stop> {
    loop {
        from.until_readable(how.waits)?;
        to.until_writable(how.waits)?;
        let (mut source, mut target) = lock_both(from, to);
        if source.is_one_out {
            continue;
        }
        from.unfold(&mut source).and_then(|()| to.unfold(&mut target))?;
        let broken = target.readers == 0;
        let (done, freed) =
            if broken { (0, false) } else { transfer(&mut source.ring, &mut target.ring) };
        let ended = source.ring.is_empty() && source.writers == 0;
        from.release(source);
        to.release(target);
        if done != 0 {
            to.tell_readers();
        }
        if freed {
            from.tell_writers();
        }
        if broken {
            return Err(Stop::Broken);
        }
        if done != 0 || ended {
            return Ok(done);
        }
        if !how.waits {
            return Err(Errno::AGAIN.into());
        }
        // Somebody was faster.
    }
}

/// Whoever takes buffers out that may come back: one at a time.
struct Splicing<'a>(&'a PipeCore);

impl<'a> Splicing<'a> {
    fn begin(pipe: &'a PipeCore, waits: bool) -> Result<Self, Errno> {
        let claim = || {
            let mut state = pipe.state.lock();
            let mine = !core::mem::replace(&mut state.splicing, true);
            state.splice_waits |= !mine;
            pipe.release(state);
            mine
        };
        if claim() {
            return Ok(Self(pipe));
        }
        if !waits {
            return Err(Errno::AGAIN);
        }
        sleep(&pipe.readers, Events::all(), claim)?;
        Ok(Self(pipe))
    }
}

impl Drop for Splicing<'_> {
    fn drop(&mut self) {
        let waited_for = {
            let mut state = self.0.state.lock();
            (state.splicing, state.is_one_out) = (false, false);
            let waited_for = core::mem::take(&mut state.splice_waits);
            self.0.release(state);
            waited_for
        };
        if waited_for {
            self.0.readers.wake_ordered(WaitQueue::ANY, WaitQueue::ALL);
        }
    }
}

/// Gives what is in a pipe to `write`, piece by piece, until it takes less than a piece or there is no more: how many bytes; 0
/// if nobody will write any. What it does not take stays. `write` is called without a lock, and may wait.
///
/// # Errors
/// `EAGAIN`, `EINTR`, `ENOMEM`; what `write` says to the first piece.
pub fn splice_from(
    pipe: &PipeCore,
    how: Transfer,
    mut write: impl FnMut(&[u8]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    pipe.until_readable(how.waits)?;
    let splicing = Splicing::begin(pipe, how.waits)?;
    let (mut done, mut freed) = (0, false);
    let mut result = Ok(());
    while done < how.len {
        if done == 0 {
            pipe.until_readable(how.waits)?;
        }
        let mut state = pipe.state.lock();
        pipe.unfold(&mut state)?;
        let was_full = state.ring.is_full();
        let Some(mut piece) = state.ring.pop() else {
            if done == 0 && state.writers != 0 {
                // Somebody was faster, and it is not the end.
                continue;
            }
            break;
        };
        state.is_one_out = true;
        pipe.release(state);
        let most = piece.len().min(how.len - done);
        let written = write(&piece.bytes()[..most]);
        let n = written.map_or(0, |n| n.min(most));
        let all = n == most;
        done += n;
        piece.skip(n);
        if piece.len() != 0 {
            let mut state = pipe.state.lock();
            state.ring.put_back(piece);
            state.is_one_out = false;
            pipe.release(state);
        } else {
            pipe.pages.put(piece);
            freed = true;
            if was_full {
                // The next piece may take its time.
                pipe.tell_writers();
            }
        }
        if !all {
            result = written.map(drop);
            break;
        }
    }
    drop(splicing);
    if freed {
        pipe.tell_writers();
    }
    if done == 0 { result.map(|()| 0) } else { Ok(done) }
}

/// Fills a pipe with what `read` gives, a page at a time, until it gives less than was asked for: how many bytes. It is asked
/// for no more than there is room for; `room_in_page` says how much of a page is to be filled after so many bytes. Called
/// without a lock, and may wait.
///
/// # Errors
/// `EAGAIN`, `EINTR`, `ENOMEM`; a pipe that nobody reads; what `read` says at first.
pub fn splice_to(
    pipe: &PipeCore,
    how: Transfer,
    room_in_page: impl Fn(usize) -> usize,
    mut read: impl FnMut(&mut [u8], usize) -> Result<usize, Errno>,
) -> Result<usize, Stop> {
    let pages = loop {
        pipe.until_writable(how.waits)?;
        let mut state = pipe.state.lock();
        pipe.unfold(&mut state)?;
        let pages = state.ring.room();
        if pages != 0 {
            state.ring.reserve(pages);
            pipe.release(state);
            break pages;
        }
    };
    let (mut done, mut left, mut failed) = (0, pages, None);
    while left != 0 && done < how.len {
        let Ok(mut buffer) = pipe.pages.get() else {
            failed = Some(Errno::NOMEM);
            break;
        };
        let most = room_in_page(done).min(PAGE_SIZE).min(how.len - done);
        let n = buffer.fill_by(most, |to| match read(to, done) {
            Ok(n) => n,
            Err(errno) => {
                failed = Some(errno);
                0
            }
        });
        if n == 0 {
            pipe.pages.put(buffer);
            break;
        }
        // What comes from elsewhere is not added to.
        buffer.close();
        done += n;
        left -= 1;
        let mut state = pipe.state.lock();
        state.ring.push_reserved(buffer);
        pipe.release(state);
        if n < most {
            break;
        }
    }
    let mut state = pipe.state.lock();
    state.ring.unreserve(left);
    let refused = !state.ring.is_full() && core::mem::take(&mut state.refused);
    pipe.release(state);
    if done != 0 {
        pipe.tell_readers();
    }
    if refused {
        pipe.tell_writers();
    }
    match failed {
        Some(errno) if done == 0 => Err(errno.into()),
        _ => Ok(done),
    }
}
