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
mod range;

use super::address::Local;
use core::net::{IpAddr, SocketAddr};
use few::Few;
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

impl Claim {
    /// Whether both may not have the same port. `taken` is on the table already; with `listens` it takes connections.
    fn conflicts(&self, taken: &Self, listens: bool) -> bool {
        let share = self.reuse && taken.reuse && !listens;
        let balance = self.reuseport && taken.reuseport && self.uid == taken.uid;
        self.local.overlaps(taken.local) && !share && !balance
    }
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

/// On lines of its own, as are ports: the lists of two of them lie side by side.
#[repr(align(64))]
struct Owner<T> {
    id: usize,
    claim: Claim,
    /// The only sender that it takes anything from.
    from: Option<SocketAddr>,
    /// What is found.
    open: Option<T>,
}

struct Group {
    claim: Claim,
    /// Connected from a port that nobody asked for: it may be shared with another connection to somewhere else.
    auto: bool,
    count: u32,
}

#[repr(align(64))]
struct Port<T> {
    number: u16,
    owners: Vec<Owner<T>>,
    groups: Few<Group>,
    /// The connections that were made from here.
    connections: Few<Tuple>,
}

/// On a line of its own.
#[repr(align(64))]
struct Bucket<T>(SpinLock<Vec<Port<T>>>);

/// The ports of one protocol.
pub(super) struct Ports<T> {
    /// Made when the first port is bound.
    buckets: OnceLock<Box<[Bucket<T>]>>,
    numbers: IdAllocator,
    /// Whether sockets that listen do not share a port with others by `SO_REUSEADDR`.
    listeners_alone: bool,
}

/// Makes room for one more, or says that there is none.
fn make_room<V>(list: &mut Vec<V>) -> Result<(), Errno> {
    if list.len() == list.capacity() {
        fault::check().map_err(|_| Errno::NOMEM)?;
        list.try_reserve(1).map_err(|_| Errno::NOMEM)?;
    }
    Ok(())
}

impl<T> Port<T> {
    fn takes(&self, claim: &Claim, id: usize, listeners_alone: bool) -> bool {
        let clash = |owner: &Owner<T>| {
            owner.id != id && claim.conflicts(&owner.claim, listeners_alone && owner.open.is_some())
        };
        !self.owners.iter().any(clash)
            && !self.groups.iter().any(|group| claim.conflicts(&group.claim, false))
    }

    fn is_unused(&self) -> bool {
        self.owners.is_empty() && self.groups.is_empty() && self.connections.is_empty()
    }
}

impl<T: Clone> Ports<T> {
    pub(super) fn new(listeners_alone: bool) -> Result<Self, AllocError> {
        Ok(Self { buckets: OnceLock::new(), numbers: IdAllocator::new()?, listeners_alone })
    }

    fn bucket(&self, port: u16) -> Result<&SpinLock<Vec<Port<T>>>, Errno> {
        let buckets = match self.buckets.get() {
            Some(buckets) => buckets,
            None => {
                let fresh = heap::try_boxed_slice(range::BUCKETS, |_| Bucket(SpinLock::new(Vec::new())));
                // If somebody was quicker, this one is dropped.
                let _ = self.buckets.set(fresh.map_err(|_| Errno::NOMEM)?);
                self.buckets.get().ok_or(Errno::NOMEM)?
            }
        };
        Ok(&buckets[range::bucket(port)].0)
    }

    /// Calls `f` with the port's place, which is made for it and removed if it is unused afterwards.
    fn with<R>(&self, port: u16, f: impl FnOnce(&mut Port<T>) -> Result<R, Errno>) -> Result<R, Errno> {
        let mut bucket = self.bucket(port)?.lock();
        let at = match bucket.iter().position(|place| place.number == port) {
            Some(at) => at,
            None => {
                make_room(&mut bucket)?;
                let (groups, connections) = (Few::new(), Few::new());
                bucket.push(Port { number: port, owners: Vec::new(), groups, connections });
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
                if !(share && place.takes(&claim, id, self.listeners_alone) || place.is_unused()) {
                    return Err(Errno::ADDRINUSE);
                }
                make_room(&mut place.owners)?;
                place.owners.push(Owner { id, claim, from: None, open: open.cloned() });
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
    pub(super) fn bind_auto(&self, claim: Claim, from: IpAddr, to: SocketAddr) -> Result<Holding, Errno> {
        for port in range::to_connect(self.numbers.next()) {
            let held = self.with(port, |place| {
                let shared = place.owners.is_empty() && place.groups.iter().all(|group| group.auto);
                if !shared {
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
            if check && !place.takes(&claim, id, self.listeners_alone) {
                return Err(Errno::ADDRINUSE);
            }
            let Some(owner) = place.owners.iter_mut().find(|owner| owner.id == id) else { return Ok(None) };
            (owner.claim, owner.from) = (claim, from);
            Ok(core::mem::replace(&mut owner.open, open.cloned()))
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

    /// Who takes what `from` sends to `to`: the one that is bound closest, of several equal ones the latest, and of several that
    /// share the port by `SO_REUSEPORT` one by the sender's address.
    pub(super) fn find(&self, to: SocketAddr, from: SocketAddr) -> Option<T> {
        let bucket = self.buckets.get()?[range::bucket(to.port())].0.lock();
        let place = bucket.iter().find(|place| place.number == to.port())?;
        let score = |owner: &Owner<T>| match owner.from {
            _ if owner.open.is_none() => 0,
            Some(only) if only != from => 0,
            only => match owner.claim.local.meets(to.ip()) {
                0 => 0,
                met => (2 * met + u8::from(!owner.claim.v6)) * (1 + 4 * u8::from(only.is_some())),
            },
        };
        let (best, first) = match &place.owners[..] {
            [only] => (score(only), only),
            owners => {
                let best = owners.iter().map(score).max()?;
                (best, owners.iter().rev().find(|owner| score(owner) == best)?)
            }
        };
        if best == 0 {
            return None;
        }
        let chosen = if first.claim.reuseport && place.owners.len() > 1 {
            let members =
                || place.owners.iter().filter(|owner| owner.claim.reuseport && score(owner) == best);
            let n = members().count() as u64;
            members().nth(((hash(from) as u64 * n) >> 32) as usize).unwrap_or(first)
        } else {
            first
        };
        chosen.open.clone()
    }

    /// Ports in use, and places held in them: for tests.
    #[cfg(all(test, not(loom)))]
    pub(super) fn held(&self) -> (usize, usize) {
        let buckets = self.buckets.get().map_or(&[][..], |buckets| buckets);
        buckets.iter().fold((0, 0), |(ports, places), bucket| {
            let bucket = bucket.0.lock();
            let held = |place: &Port<T>| {
                place.owners.len() + place.groups.iter().map(|group| group.count as usize).sum::<usize>()
            };
            (ports + bucket.len(), places + bucket.iter().map(held).sum::<usize>())
        })
    }
}

impl<T> Port<T> {
    fn count(&mut self, claim: Claim, auto: bool) -> Result<(), Errno> {
        match self.groups.find_mut(|group| group.claim == claim && group.auto == auto) {
            Some(group) => {
                group.count += 1;
                Ok(())
            }
            None => self.groups.push(Group { claim, auto, count: 1 }),
        }
    }

    fn uncount(&mut self, claim: Claim, auto: bool) {
        let is = |group: &Group| group.claim == claim && group.auto == auto;
        if let Some(group) = self.groups.find_mut(is) {
            group.count -= 1;
            if group.count == 0 {
                self.groups.take(is);
            }
        }
    }

    fn enter(&mut self, tuple: Tuple) -> Result<bool, Errno> {
        if self.connections.iter().any(|other| *other == tuple) {
            return Ok(false);
        }
        self.connections.push(tuple)?;
        Ok(true)
    }

    fn leave(&mut self, tuple: Tuple) {
        self.connections.take(|other| *other == tuple);
    }
}

/// A number that spreads senders evenly.
pub(super) fn hash(from: SocketAddr) -> u32 {
    let ip = match from.ip() {
        IpAddr::V4(ip) => u32::from(ip),
        IpAddr::V6(ip) => ip.segments().iter().fold(0u32, |sum, &part| sum.rotate_left(5) ^ u32::from(part)),
    };
    let mixed = (u64::from(ip) << 16 | u64::from(from.port())).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

impl<T> core::fmt::Debug for Ports<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ports").field("in_use", &self.buckets.get().is_some()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
