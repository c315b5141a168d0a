//! Port tables: who is bound to which port, and who takes what is sent there.
//!
//! # The contended way
//!
//! One table under one lock, and a search for a free port from where the last one ended: a word that every connection
//! writes.
//!
//! # Our way
//!
//! Buckets with a lock and a line each; each CPU connects from ports in buckets of its own, and who binds gets one from anywhere
//! ([`range`]). Data on connections never comes here.
//!
//! Explicit binders are listed one by one, because they can be listened on and looked up. Ends of connections that hold a port
//! only because they were connected from it, or accepted on it, are counted by kind: a port with ten thousand connections has a
//! list of one for its owners. The connections that were made from a port are listed there: no two are to have the same addresses and ports on
//! both sides.
//!
//! # What is shared
//!
//! A listener's bucket, by all who connect to it or have been accepted there; the bucket of a port that was asked for, by
//! those 256 ports away, and in the range that is given out unasked by those of the same parity of the same 128. A bound socket gets its port from
//! anywhere, so two of them have a bucket in common now and then.

mod few;
mod lookup;
mod place;
mod range;

use super::address::Local;
use core::net::{IpAddr, SocketAddr};
use place::Port;
pub(super) use place::Taken;
use quietline_platform::{AllocError, fault, heap};
use quietline_sync::{IdAllocator, SpinLock};
use rustix::io::Errno;
use std::sync::OnceLock;

/// The addresses of a connection, seen from where it was made.
pub(super) type Tuple = (SocketAddr, SocketAddr);

/// What a socket wants of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) local: Local,
    /// Whether the socket is of version 6: of two that are bound alike the other one is preferred.
    pub(super) v6: bool,
    /// `SO_REUSEADDR`.
    pub(super) reuse: bool,
    /// `SO_REUSEPORT`.
    pub(super) reuseport: bool,
    pub(super) uid: u32,
}

/// A port that is bound, and as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holding {
    /// By its owner's number.
    Own(u16, usize),
    /// As one of a kind.
    Counted(u16, Claim, bool),
}

impl Holding {
    pub(super) fn port(&self) -> u16 {
        match *self {
            Self::Own(port, _) | Self::Counted(port, ..) => port,
        }
    }
}

/// On a line of its own.
#[repr(align(64))]
struct Bucket<T>(SpinLock<Vec<Port<T>>>);

/// The ports of one protocol.
pub(super) struct Ports<T> {
    /// Made when the first port is bound.
    buckets: OnceLock<Box<[Bucket<T>]>>,
    numbers: IdAllocator,
    taken: Taken,
}

/// Makes room for one more, or says that there is none.
fn make_room<V>(list: &mut Vec<V>) -> Result<(), Errno> {
    if list.len() == list.capacity() {
        fault::check().map_err(|_| Errno::NOMEM)?;
        list.try_reserve(1).map_err(|_| Errno::NOMEM)?;
    }
    Ok(())
}

impl<T: Clone> Ports<T> {
    pub(super) fn new(taken: Taken) -> Result<Self, AllocError> {
        Ok(Self { buckets: OnceLock::new(), numbers: IdAllocator::new()?, taken })
    }

    fn bucket(&self, port: u16) -> Result<&SpinLock<Vec<Port<T>>>, Errno> {
        let buckets = match self.buckets.get() {
            Some(buckets) => buckets,
            None => {
                let fresh =
                    heap::try_boxed_slice(range::BUCKETS, |_| Bucket(SpinLock::new(Vec::new())));
                // If somebody was quicker, this one is dropped.
                let _ = self.buckets.set(fresh.map_err(|_| Errno::NOMEM)?);
                self.buckets.get().ok_or(Errno::NOMEM)?
            }
        };
        Ok(&buckets[range::bucket(port)].0)
    }

    /// Calls `f` with the port's place, which is made for it and removed if it is unused afterwards.
    fn with<R>(
        &self,
        port: u16,
        f: impl FnOnce(&mut Port<T>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let mut bucket = self.bucket(port)?.lock();
        let at = match bucket.iter().position(|place| place.number == port) {
            Some(at) => at,
            None => {
                make_room(&mut bucket)?;
                bucket.push(Port::new(port));
                bucket.len() - 1
            }
        };
        let result = f(&mut bucket[at]);
        if bucket[at].is_unused() {
            bucket.swap_remove(at);
        }
        result
    }

    /// Binds; port 0 is any free one of the ephemeral range. `open` is found by [`find`](Self::find) at once.
    ///
    /// # Errors
    /// `EADDRINUSE`; `ENOMEM`.
    pub(super) fn bind(
        &self,
        port: u16,
        claim: Claim,
        id: usize,
        open: Option<&T>,
    ) -> Result<Holding, Errno> {
        let take = |port: u16, claim: Claim, share: bool| {
            self.with(port, |place| {
                if !(share && place.takes(&claim, id, self.taken) || place.is_unused()) {
                    return Err(Errno::ADDRINUSE);
                }
                place.own(id, claim, open.cloned())?;
                Ok(Holding::Own(port, id))
            })
        };
        if port != 0 {
            return take(port, claim, true);
        }
        for port in range::to_bind(self.numbers.next()) {
            match take(port, claim, false) {
                Err(Errno::ADDRINUSE) => {}
                done => return done,
            }
        }
        // None is unused: one where nothing overlaps will do.
        for port in range::to_bind(self.numbers.next()) {
            match take(port, Claim { reuse: false, ..claim }, true) {
                Err(Errno::ADDRINUSE) => {}
                done => return done,
            }
        }
        Err(Errno::ADDRINUSE)
    }

    /// Takes a port for a connection from an end that is not bound, and enters the connection. Writes no line that another CPU
    /// does while one of the next few of the CPU's own ports is free. O(connections from the port) where sockets share one.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` when there is none; `ENOMEM`.
    pub(super) fn bind_auto(
        &self,
        claim: Claim,
        from: IpAddr,
        to: SocketAddr,
    ) -> Result<Holding, Errno> {
        for port in range::to_connect(self.numbers.next()) {
            let held = self.with(port, |place| {
                if !place.is_auto() {
                    return Ok(None);
                }
                place.count(claim, true)?;
                match place.enter((SocketAddr::new(from, port), to)) {
                    Ok(true) => Ok(Some(Holding::Counted(port, claim, true))),
                    other => {
                        place.uncount(claim, true);
                        other.map(|_| None)
                    }
                }
            })?;
            if let Some(held) = held {
                return Ok(held);
            }
        }
        Err(Errno::ADDRNOTAVAIL)
    }

    /// Enters a connection from a port that is held already; false if there is one like it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn enter(&self, tuple: Tuple) -> Result<bool, Errno> {
        self.with(tuple.0.port(), |place| place.enter(tuple))
    }

    /// Whether a connection is entered.
    pub(super) fn has(&self, tuple: Tuple) -> bool {
        let Some(buckets) = self.buckets.get() else { return false };
        let bucket = buckets[range::bucket(tuple.0.port())].0.lock();
        let place = bucket.iter().find(|place| place.number == tuple.0.port());
        place.is_some_and(|place| place.connections.iter().any(|other| *other == tuple))
    }

    /// A connection has ended, which was made from a port that is held on.
    pub(super) fn leave(&self, tuple: Tuple) {
        let done = self.with(tuple.0.port(), |place| {
            place.leave(tuple);
            Ok(())
        });
        debug_assert!(done.is_ok(), "the place is there");
    }

    /// One more end on a listener's port.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn join(&self, port: u16, claim: Claim) -> Result<Holding, Errno> {
        self.with(port, |place| place.count(claim, false))?;
        Ok(Holding::Counted(port, claim, false))
    }

    /// Lets go, and ends the connection that was made from there, if one was.
    pub(super) fn release(&self, holding: Holding, connection: Option<Tuple>) {
        let done = self.with(holding.port(), |place| {
            if let Some(tuple) = connection {
                place.leave(tuple);
            }
            Ok(match holding {
                Holding::Own(_, id) => {
                    let at = place.owners.iter().position(|owner| owner.id == id);
                    at.map(|at| place.owners.remove(at))
                }
                Holding::Counted(_, claim, auto) => {
                    place.uncount(claim, auto);
                    None
                }
            })
        });
        // What was found there ends outside the lock. There is no error: the place is there.
        drop(done);
    }

    /// Changes an explicit binder: what it claims, whom it hears, and what is found there. With `check` the new state must not clash
    /// with anybody's.
    ///
    /// # Errors
    /// `EADDRINUSE`.
    pub(super) fn change(
        &self,
        holding: Holding,
        claim: Claim,
        from: Option<SocketAddr>,
        open: Option<&T>,
        check: bool,
    ) -> Result<(), Errno> {
        let Holding::Own(port, id) = holding else { return Ok(()) };
        let old = self.with(port, |place| {
            if check && !place.takes(&claim, id, self.taken) {
                return Err(Errno::ADDRINUSE);
            }
            Ok(place.change(id, claim, from, open.cloned()))
        })?;
        drop(old);
        Ok(())
    }

    /// Changes what an explicit binder claims, and nothing else; nobody is asked.
    pub(super) fn reclaim(&self, holding: Holding, claim: Claim) {
        let Holding::Own(port, id) = holding else { return };
        let done = self.with(port, |place| {
            if let Some(owner) = place.owners.iter_mut().find(|owner| owner.id == id) {
                owner.claim = claim;
            }
            Ok(())
        });
        debug_assert!(done.is_ok(), "the place is there");
    }

    /// Who takes what `from` sends to `to` ([`lookup`]).
    pub(super) fn find(&self, to: SocketAddr, from: SocketAddr) -> Option<T> {
        let bucket = self.buckets.get()?[range::bucket(to.port())].0.lock();
        let place = bucket.iter().find(|place| place.number == to.port())?;
        place.receiver(to.ip(), from)?.open.clone()
    }

    /// Ports in use, and places held in them: for tests.
    #[cfg(all(test, not(loom)))]
    pub(super) fn held(&self) -> (usize, usize) {
        let buckets = self.buckets.get().map_or(&[][..], |buckets| buckets);
        buckets.iter().fold((0, 0), |(ports, places), bucket| {
            let bucket = bucket.0.lock();
            let held = |place: &Port<T>| {
                place.owners.len()
                    + place.groups.iter().map(|group| group.count as usize).sum::<usize>()
            };
            (ports + bucket.len(), places + bucket.iter().map(held).sum::<usize>())
        })
    }
}

impl<T> core::fmt::Debug for Ports<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ports")
            .field("in_use", &self.buckets.get().is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
