//! The search for what only messages keep open: see [`flight`](super) for how, and why it is right.

use super::lost::{LOST, flood};
use super::{DONE, Flights, REACHED, UNKNOWN};
use crate::raw::Object;
use crate::unix::UnixEnd;
use crate::unix::parcel::sock_of;
use crate::unix::segment::Segment;
use crate::unix::sock::{DEAD, Sock, State};
use quietline_platform::atomic::Ordering;
use std::collections::VecDeque;

/// Searches in a row, at most: loops that are held by loops.
const SEARCHES: u32 = 100;

impl Flights {
    #[cold]
    pub(super) fn collect_slow(&self) {
        // What those held that were ended may be in a loop itself. Others may lose more meanwhile, which is for them.
        for _ in 0..SEARCHES {
            if !self.end_lost() {
                return;
            }
            self.drop_lost();
        }
    }

    /// The kernel ends, and nobody else closes anything: ends all that cannot be reached.
    pub(in super::super) fn end(&self) {
        while self.end_lost() {
            self.drop_lost();
        }
    }

    /// Empties the queues of what is lost: whether anything was.
    fn end_lost(&self) -> bool {
        let _search = self.search.lock();
        // ORDERING: Acquire pairs with the release in `suspect`. What is said from here on is left for the next search.
        self.suspicious.swap(false, Ordering::Acquire);
        self.find();
        self.find_lost();
        let any = self.purge_lost();
        self.thaw();
        any
    }

    /// Calls `f` with each socket in the register, under its part's lock.
    pub(super) fn each(&self, mut f: impl FnMut(&Object<Sock>)) {
        for part in self.parts() {
            part.lock().socks.iter().for_each(&mut f);
        }
    }

    /// The same with those that are frozen and that nothing is known of.
    fn each_unknown(&self, mut f: impl FnMut(&Object<Sock>)) {
        self.each(|sock| {
            if sock.flight.mark() == UNKNOWN {
                f(sock);
            }
        });
    }

    /// Freezes all, and marks what can be reached.
    fn find(&self) {
        self.each(|sock| {
            let flight = &sock.flight;
            let mut state = sock.lock();
            // One that was closed is about to leave the register, and would never thaw.
            if sock.shutdown() & DEAD == 0 {
                state.traffic.frozen = true;
                flight.found.store(0, Ordering::Relaxed);
                flight.references.store(u64::MAX, Ordering::Relaxed);
                flight.set_mark(UNKNOWN);
            }
        });
        // What is not frozen is not counted: it may be taken at any time.
        self.each_unknown(|sock| {
            sock.each_held(|held, _, _| {
                held.flight
                    .found
                    .store(held.flight.found.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            });
        });
        // When all are counted: whoever has a reference now has one more than was counted.
        self.each_unknown(|sock| {
            sock.each_held(|held, _, references| {
                held.flight.references.store(references, Ordering::Relaxed)
            });
        });
        self.each_unknown(|sock| {
            let flight = &sock.flight;
            let found = u64::from(flight.found.load(Ordering::Relaxed));
            if flight.references.load(Ordering::Relaxed) > found {
                flight.set_mark(REACHED);
            }
        });
        self.each(|sock| {
            if sock.flight.mark() == REACHED {
                flood(sock, &[UNKNOWN, REACHED], DONE);
            }
        });
    }

    /// Empties the queues of what is [lost](Self::find_lost): whether anything is.
    fn purge_lost(&self) -> bool {
        let mut any = false;
        for part in self.parts() {
            let mut at = 0;
            // One that is closed meanwhile may bring one of these to an earlier place: that is for the next search.
            while let Some(sock) = {
                let part = part.lock();
                let found = part.socks.iter().skip(at).position(|sock| sock.flight.mark() == LOST);
                found.map(|found| {
                    at += found + 1;
                    part.socks[at - 1].clone()
                })
            } {
                sock.flight.set_mark(DONE);
                // All messages, also those without files: who is connected to it is told of an end, and not that something was
                // lost.
                let mut nth = 0;
                while let Some(queue) = sock.take_queue(nth) {
                    self.purge(queue);
                    nth += 1;
                }
                any = true;
            }
        }
        any
    }

    /// All may be received from again; what is in no message leaves the register.
    fn thaw(&self) {
        let mut suspicious = false;
        for part in self.parts() {
            let mut part = part.lock();
            let mut at = 0;
            while let Some(sock) = part.socks.get(at).cloned() {
                sock.flight.set_mark(DONE);
                let mut state = sock.lock();
                state.traffic.frozen = false;
                // The socket's lock is held until it is out: who sends it next may enter it elsewhere.
                state.traffic.entered = state.traffic.held != 0;
                let gone = (!state.traffic.entered).then(|| part.remove(at));
                drop(state);
                if gone.is_none() {
                    sock.each_state(|state| suspicious |= state.has_sockets());
                    at += 1;
                }
            }
        }
        if suspicious {
            // Relaxed: said by who knows, who is the next to search at the earliest when this lock is free.
            self.suspicious.store(true, Ordering::Relaxed);
        }
    }
}

impl State {
    /// Whether there are sockets in its messages.
    fn has_sockets(&self) -> bool {
        self.queue
            .iter()
            .any(|segment| segment.parcel.as_ref().is_some_and(|parcel| parcel.has_sockets()))
    }
}

impl Sock {
    /// Calls `f` with the state of the socket, and with those of the connections that it has not accepted.
    fn each_state(&self, mut f: impl FnMut(&mut State)) {
        let mut state = self.lock();
        f(&mut state);
        if let Some(listener) = &state.listener {
            for embryo in &listener.queue {
                f(&mut embryo.sock.lock());
            }
        }
    }

    /// The messages in its queue, which is empty then: in that of its `nth` connection that was not accepted, counted from 1.
    fn take_queue(&self, nth: usize) -> Option<VecDeque<Segment>> {
        let mut state = self.lock();
        let take = |state: &mut State| {
            state.charged = 0;
            core::mem::take(&mut state.queue)
        };
        match nth.checked_sub(1) {
            None => Some(take(&mut state)),
            Some(at) => {
                state.listener.as_ref()?.queue.get(at).map(|embryo| take(&mut embryo.sock.lock()))
            }
        }
    }

    /// Calls `f` for each socket that a message holds in its queue, or in that of a connection that it has not accepted: with that
    /// socket, what has a share of it, and the references to its file.
    pub(super) fn each_held(&self, mut f: impl FnMut(&Sock, &UnixEnd, u64)) {
        self.each_state(|state| {
            let parcels = state.queue.iter().filter_map(|segment| segment.parcel.as_ref());
            for file in
                parcels.filter(|parcel| parcel.has_sockets()).flat_map(|parcel| parcel.files())
            {
                if let Some(socket) = sock_of(file)
                    && let Some(held) = socket.unix.get()
                {
                    f(held, &socket.unix, file.references());
                }
            }
        });
    }
}
