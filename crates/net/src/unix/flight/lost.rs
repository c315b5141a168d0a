//! Which of the sockets that nobody can reach are ended (`unix_scc_dead` in `net/unix/garbage.c`).
//!
//! It takes time in proportion to what is in flight, but for what holds one of a loop in a long row, and allocates nothing.

use super::{Flights, UNKNOWN};
use crate::raw::Object;
use crate::unix::sock::Sock;

/// No other one that was looked at before holds it.
const FIRST: u32 = 3;
/// One that was looked at holds it, or one that is held does.
const HELD: u32 = 4;
/// The same, where the one that was looked at is [`LOST`].
const BELOW: u32 = 5;
/// To be emptied.
pub(super) const LOST: u32 = 6;

impl Flights {
    /// Of what cannot be reached, marks what is to be emptied. Linux empties no others, which shows: who is connected to one that
    /// is closed with messages in its queue is told that they were lost.
    pub(super) fn find_lost(&self) {
        // Each loop that nobody else holds has one that is first, but not each first one is of such a loop: one that comes
        // later may hold it.
        self.each(|sock| {
            if sock.flight.mark() == UNKNOWN {
                flood(sock, &[UNKNOWN], HELD);
                sock.flight.set_mark(FIRST);
            }
        });
        // Backwards. One that is closed meanwhile may move another out of its turn: then that one is ended a search too early or
        // too late.
        self.each_reversed(|sock| {
            if sock.flight.mark() == FIRST {
                flood(sock, &[FIRST, HELD], BELOW);
                sock.flight.set_mark(LOST);
            }
        });
        // Who holds one of such a loop is of it.
        let mut again = true;
        while core::mem::take(&mut again) {
            self.each(|sock| {
                if sock.flight.mark() == BELOW {
                    let mut holds = false;
                    sock.each_held(|held, _, _| holds |= held.flight.mark() == LOST);
                    if holds {
                        sock.flight.set_mark(LOST);
                        again = true;
                    }
                }
            });
        }
    }

    /// As [`each`](Self::each), from the end.
    fn each_reversed(&self, mut f: impl FnMut(&Object<Sock>)) {
        for part in self.parts().rev() {
            part.lock().socks.iter().rev().for_each(&mut f);
        }
    }
}

/// Marks a socket `to`, and those marked so that it holds, or that one of them does.
pub(super) fn flood(sock: &Object<Sock>, so: &[u32], to: u32) {
    sock.flight.set_mark(to);
    let mut first = Some(sock.clone());
    while let Some(sock) = first {
        first = sock.flight.next.lock().take();
        sock.each_held(|held, end, _| {
            if so.contains(&held.flight.mark())
                && let Some(share) = end.share()
            {
                held.flight.set_mark(to);
                *held.flight.next.lock() = first.replace(share);
            }
        });
    }
}
