//! Writing to a pipe.

use super::core::{PipeCore, State};
use super::now::READABLE;
use crate::abi::O_DIRECT;
use crate::file::{Io, Source};
use quietline_platform::pages::PAGE_SIZE;
use quietline_sync::SpinLockGuard;
use rustix::io::Errno;

impl PipeCore {
    /// Writes as much as fits. What is at most a page is written as a whole, and stays together.
    ///
    /// Bytes that do not fill a page are added to the last one, if they fit there as a whole, when a call begins; not when it
    /// goes on after it has waited.
    ///
    /// Writes the pipe's first line; if it has pages or gets one, the second.
    #[inline]
    pub(crate) fn try_write(&self, io: Io, from: &mut Source<'_, '_>) -> Result<usize, Errno> {
        if from.left() == 0 {
            return Ok(0);
        }
        let mut state = self.state.lock();
        let all = from.left();
        if io.flags & O_DIRECT == 0
            && let Some(before) = self.put_few(&mut state, from)
        {
            drop(state);
            if !before.is_readable() || before.is_polled() {
                self.readers.wake_ordered(READABLE.bits(), 1);
            }
            return Ok(all);
        }
        self.write_pages(state, io, from)
    }

    /// As [`try_write`](Self::try_write), but for what fits beside the lock.
    fn write_pages(
        &self,
        mut state: SpinLockGuard<'_, State>,
        io: Io,
        from: &mut Source<'_, '_>,
    ) -> Result<usize, Errno> {
        if state.readers == 0 {
            from.set_broken();
            self.wrote(state, false, true);
            return Err(Errno::PIPE);
        }
        if let Err(errno) = self.unfold(&mut state) {
            self.wrote(state, false, true);
            return Err(errno);
        }
        let was_empty = state.ring.is_empty();
        let mut done = 0;
        let rest = from.left() % PAGE_SIZE;
        if rest != 0
            && !from.is_again()
            && let Some(last) = state.ring.back()
            && last.room() >= rest
        {
            done = last.fill_by(rest, |to| from.take(to));
        }
        let packet = io.flags & O_DIRECT != 0;
        let mut failed = Errno::AGAIN;
        loop {
            while from.left() != 0 && !state.ring.is_full() {
                let mut buffer = match state.spare.take() {
                    Some(spare) => spare,
                    None => match self.pages.get() {
                        Ok(fresh) => fresh,
                        Err(_) => {
                            failed = Errno::NOMEM;
                            break;
                        }
                    },
                };
                buffer.seal(packet);
                done += buffer.fill(from);
                state.ring.push(buffer);
            }
            if from.left() == 0 || !state.ring.has_places() {
                break;
            }
            if !state.ring.is_fresh() {
                state.refused = true;
                break;
            }
            if let Err(errno) = self.settle(&mut state) {
                failed = errno;
                break;
            }
        }
        // A caller that goes on to wait tells of its write when it is over.
        let over = from.left() == 0 || !io.may_wait() || failed == Errno::NOMEM;
        self.wrote(state, was_empty && done != 0, over);
        if done == 0 { Err(failed) } else { Ok(done) }
    }

    /// A call that waited was told to stop: as the end of any other, that is told to those who wait for edges.
    pub(crate) fn gave_up(&self) {
        self.wrote(self.state.lock(), false, true);
    }

    /// Lets the lock go and wakes a reader: if there was nothing before, or if somebody waits for edges and the call is over.
    #[inline(always)]
    pub(super) fn wrote(&self, state: SpinLockGuard<'_, State>, first: bool, over: bool) {
        let wakes = first || over && state.polled;
        self.release(state);
        if wakes {
            self.readers.wake_ordered(READABLE.bits(), 1);
        }
    }
}
