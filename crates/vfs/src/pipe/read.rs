//! Reading from a pipe.

use super::core::PipeCore;
use super::now::WRITABLE;
use crate::file::{Io, Sink};
use crate::poll::Events;
use rustix::io::Errno;

impl PipeCore {
    /// Reads what is there.
    ///
    /// Writes the pipe's first line; if there are pages, the second.
    #[inline]
    pub(crate) fn try_read(&self, _io: Io, to: &mut Sink<'_, '_>) -> Result<usize, Errno> {
        if to.left() == 0 {
            return Ok(0);
        }
        let mut state = self.state.lock();
        let now = self.now();
        if let Some(done) = self.take_few(&state, now, to) {
            return Ok(done);
        }
        if !now.is_readable() {
            return if now.events().contains(Events::HUP) { Ok(0) } else { Err(Errno::AGAIN) };
        }
        if state.is_one_out {
            state.splice_waits = true;
            return Err(Errno::AGAIN);
        }
        let (mut done, mut was_full) = (0, false);
        while let Some(buffer) = state.ring.front() {
            done += buffer.drain(to);
            let packet = buffer.is_packet();
            if packet || buffer.len() == 0 {
                was_full |= state.pop_read(self.pages);
            }
            if packet || to.left() == 0 {
                break;
            }
        }
        let ended = state.writers == 0;
        self.release(state);
        if was_full {
            self.writers.wake_ordered(WRITABLE.bits(), 1);
        }
        if done == 0 && !ended { Err(Errno::AGAIN) } else { Ok(done) }
    }
}
