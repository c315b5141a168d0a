//! Which of the sockets that nobody can reach are ended (`unix_scc_dead` in `net/unix/garbage.c`).
//!
//! It takes time in proportion to what is in flight, or a little more, and allocates nothing.

use super::flight::{Mark, Table};
use quietline_platform::atomic::Ordering;

impl Table {
    /// Of what cannot be reached, marks what is to be emptied. Linux empties no others, which shows: who is connected to one that
    /// is closed with messages in its queue is told that they were lost.
    pub(super) fn find_lost(&mut self) {
        // Each loop that nobody else holds has one that is first, but not each first one is of such a loop: one that comes
        // later may hold it.
        for at in 0..self.entries.len() {
            if self.entries[at].mark == Mark::Unknown {
                self.flood(at, &[Mark::Unknown], Mark::Held);
                self.entries[at].mark = Mark::First;
            }
        }
        for at in (0..self.entries.len()).rev() {
            if self.entries[at].mark == Mark::First {
                self.flood(at, &[Mark::First, Mark::Held], Mark::Below);
                self.entries[at].mark = Mark::Lost;
            }
        }
        // Who holds one of such a loop is of it.
        let mut again = true;
        while core::mem::take(&mut again) {
            for at in 0..self.entries.len() {
                if self.entries[at].mark == Mark::Below {
                    let mut holds = false;
                    self.each_held(at, |held, _| holds |= held.mark == Mark::Lost);
                    if holds {
                        self.entries[at].mark = Mark::Lost;
                        again = true;
                    }
                }
            }
        }
    }

    /// Marks an entry `to`, and those marked so that it holds, or that one of them does.
    fn flood(&mut self, at: usize, so: &[Mark], to: Mark) {
        self.entries[at].mark = to;
        self.entries[at].next = 0;
        let mut first = at as u32 + 1;
        while let Some(at) = first.checked_sub(1) {
            first = self.entries[at as usize].next;
            self.each_held(at as usize, |held, _| {
                if so.contains(&held.mark) {
                    held.mark = to;
                    held.next = core::mem::replace(&mut first, held.sock.flight.load(Ordering::Relaxed));
                }
            });
        }
    }
}
