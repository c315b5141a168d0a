//! Few bytes at a time: on the line of the pipe's lock, without a page.
//!
//! # The problem
//!
//! Most messages through a pipe are a byte that says "look", or a number. A page for it, and the place that says where the
//! page is, are two more lines that go from the writer to the reader.
//!
//! # Our way
//!
//! A pipe with nothing in it takes the first bytes beside its lock, and more of them behind as long as they fit. They are a
//! buffer like others, with the room of a page. Whatever else is done with the pipe moves them to a page first, and finds the
//! pipe as if they had always been there.
//!
//! # Limits
//!
//! Packets (`O_DIRECT`), pipes of one page, and those that are spliced have pages.

use super::core::{PipeCore, State};
use super::now::{FEW, Now};
use crate::file::{Sink, Source};
use quietline_sync::SpinLockGuard;
use rustix::io::Errno;

impl PipeCore {
    /// Puts all that is left among the few, if it fits: how the pipe was before. Then it can be unlocked.
    #[inline(always)]
    pub(super) fn put_few(&self, state: &mut State, from: &mut Source<'_, '_>) -> Option<Now> {
        let (now, n) = (self.now(), from.left());
        if n > FEW || from.is_again() && now.few_len() != 0 {
            return None;
        }
        let then = now.more(n)?;
        let (_, end) = now.few();
        from.take(&mut state.few[end..end + n]);
        self.set_now(then);
        Some(now)
    }

    /// Reads from the few: how many; none if there are none. Then it can be unlocked.
    #[inline(always)]
    pub(super) fn take_few(&self, state: &State, now: Now, to: &mut Sink<'_, '_>) -> Option<usize> {
        let (start, end) = now.few();
        if start == end {
            return None;
        }
        let n = to.put(&state.few[start..end]);
        self.set_now(now.less(n));
        Some(n)
    }

    /// Moves the few to a page, for whoever uses pages.
    ///
    /// # Errors
    /// `ENOMEM`, also beyond the user's hard limit.
    #[inline]
    pub(super) fn unfold(&self, state: &mut SpinLockGuard<'_, State>) -> Result<(), Errno> {
        if self.now().few_len() == 0 { Ok(()) } else { self.unfold_some(state) }
    }

    #[cold]
    fn unfold_some(&self, state: &mut State) -> Result<(), Errno> {
        self.settle(state)?;
        let (start, end) = self.now().few();
        let mut page = match state.spare.take() {
            Some(spare) => spare,
            None => self.pages.get().map_err(|_| Errno::NOMEM)?,
        };
        page.fill_by(end, |to| {
            to.copy_from_slice(&state.few[..end]);
            end
        });
        page.skip(start);
        state.ring.push(page);
        self.set_now(state.now(self.now().without_few()));
        Ok(())
    }
}
