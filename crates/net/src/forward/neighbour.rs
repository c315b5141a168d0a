//! Neighbours: the link addresses of stations on the same link, and packets that wait for them.
//!
//! # The problem
//!
//! Each packet needs the link address of the next station. The router asks for it on the link.
//! Packets wait until the answer comes, and a flood of them must not fill the memory.
//!
//! # Our way
//!
//! ```text
//!   unknown ── a packet ──> incomplete ── an answer ──> reachable ── 30 s ──> stale ── used ──> asked, three times at most
//!                 │ asked each second, three times         ^                    │ an answer            │
//!                 v                                        └────────────────────┴──────                v
//!               failed: what waits is dropped                                          forgotten ── a packet ──> incomplete
//! ```
//!
//! Known neighbours are in a hash table that readers walk in an RCU read-side critical section,
//! without a lock and without a write. Neighbours that are being asked for, with up to [`WAITING`]
//! packets each, are in a table of their link. Only packets to unknown neighbours take the lock of
//! that table.
//!
//! A route remembers the number of its gateway's entry and looks there first. The entry has the
//! neighbour's address and the end of its time, and a removed entry has no time left. So a removed
//! neighbour is not found, although no route is told of the removal.
//!
//! ```text
//!   packet to an unknown neighbour ──> table of the link: hash, lock
//!       full: evicts the neighbour asked for most often and for the longest time
//!   answer ──> table of all links: keyed hash, RCU
//!       full: evicts strangers first, then the neighbour heard of least recently
//! ```
//!
//! # Guarantees
//!
//! * What waits is bounded: [`WAITING`] packets for each of [`ASKED`] neighbours of a link. The
//!   newest packet of a neighbour displaces the oldest. A new neighbour displaces one that was
//!   asked for in vain. Each dropped packet is counted as
//!   [`NeighbourFailed`](crate::packet::DropReason::NeighbourFailed).
//! * A link carries [`QUESTIONS`] first questions a second on average, and [`QUESTION_BURST`] at
//!   once after a pause. A packet above that limit is dropped and displaces nothing. Below the
//!   limit a neighbour is found if it answers before [`ASKED`] others are asked for.
//! * Each link has its own bounds, so no flood on one link takes room from another. On one link,
//!   stations that only ask displace no station that has answered. No flood of questions keeps a
//!   station that answers out of the table.
//! * A station is entered only after it was asked for, or has asked for us.
//! * Of IPv6, an answer makes a neighbour reachable whether it says the link address or not, which who was asked himself may leave out (RFC
//!   4861, section 7.2.4). What nobody asked for makes nobody reachable; an address that contradicts the one that is known, and is not said to
//!   replace it, makes that one stale. Nor does a question make reachable who asks it (section 7.2.3): one that is new or has moved is
//!   entered stale, and of one that is known where he says nothing changes.
//!
//! # Lock order
//!
//! The lock of a link, then the lock of the table's writers.

mod eviction;
mod pending;
mod queue;
mod table;

pub(super) use table::{HashKeys, Known};

use super::address::Sealed;
use super::header::Link;
use crate::packet::Skb;
use core::time::Duration;
use eviction::Origin;
use pending::{DuePending, Pending};
use quietline_platform::atomic::{AtomicU32, AtomicU64, Ordering};
use quietline_platform::{AllocError, heap};
use quietline_sync::SpinLock;
use quietline_sync::rcu::Domain;
use rustix::io::Errno;
use table::{Table, Writer};

/// Packets that wait for one neighbour (`unres_qlen`, in packets, as it was once).
pub const WAITING: usize = 3;
/// Neighbours of one link that are asked for at a time.
pub const ASKED: usize = 1024;
/// First questions for neighbours of one link in a second, on average.
pub const QUESTIONS: u32 = 10_000;
/// First questions for neighbours of one link at once, after a pause.
pub const QUESTION_BURST: u32 = 16_384;
/// How often one is asked for before it is given up.
pub const TRIES: u32 = 3;
/// Seconds for which an answer is good.
pub const REACHABLE: u32 = 30;
/// Seconds after which an unused neighbour that is no longer reachable is forgotten.
const FORGOTTEN: u32 = 60;
/// As the time to look next: whenever somebody comes.
const AT_ONCE: u64 = 0;
/// Between two questions, and two looks at what waits.
const SECOND: Duration = Duration::from_secs(1);
/// Neighbours that are forgotten under one hold of the lock.
const SWEPT: usize = 64;

/// Neighbours of one family, on all interfaces.
pub(super) struct Neighbours<'n, A> {
    table: Table<A>,
    /// When to [look](Self::due) next, in nanoseconds.
    look_at: AtomicU64,
    links: Box<[SpinLock<Pending<'n, A>>]>,
    writer: SpinLock<Writer>,
}

/// Packets that wait, oldest first.
pub(super) type Waiting<'n> = [Option<Skb<'n>>; WAITING];

/// No packets.
const NOTHING: Waiting<'_> = [const { None }; WAITING];

/// What became of a packet to a neighbour that was not in the table.
pub(super) enum Waits<'n> {
    /// It waits.
    Queued {
        /// Whether the caller is to ask for the neighbour.
        ask: bool,
        /// Packets that have waited longer, for which there is no room any more.
        pushed_out: Waiting<'n>,
    },
    /// The neighbour has become known.
    Known(Known, Skb<'n>),
    /// There is no memory to wait, or the limit of first questions is reached.
    Refused(Skb<'n>),
}

/// What an advertisement says of a neighbour of IPv6.
#[derive(Debug, Clone, Copy)]
pub(super) struct Advertised {
    /// Its link address, if it is said: who was asked himself may leave it out.
    pub(super) link: Option<Link>,
    /// Whether it answers a question: then packets to it arrive.
    pub(super) solicited: bool,
    /// Whether the link address is to replace one that is known.
    pub(super) replaces: bool,
}

/// What a second has brought.
pub(super) enum Due<'n, A> {
    /// Ask for this one again.
    Ask(u32, A),
    /// This one did not answer; these have waited for it.
    Failed(Waiting<'n>),
    /// This one was entered by hand, on an interface; these have waited for it.
    Known(u32, Link, Waiting<'n>),
}

/// When an entry that was made by hand becomes stale.
const FOR_GOOD: u32 = u32::MAX;

/// Seconds, as the table has them.
pub(super) fn seconds(now: Duration) -> u32 {
    now.as_secs().min(u64::from(u32::MAX / 2)) as u32
}

impl<'n, A: Sealed> Neighbours<'n, A> {
    /// Up to `most` neighbours of each of so many interfaces.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(super) fn new(
        domain: &'static Domain,
        keys: HashKeys,
        interfaces: usize,
        most: u32,
    ) -> Result<Self, AllocError> {
        let (table, writer) = Table::new(domain, keys, interfaces, most)?;
        let links = heap::try_boxed_slice(interfaces, |_| SpinLock::new(Pending::new()))?;
        let writer = SpinLock::new(writer);
        Ok(Self { table, look_at: AtomicU64::new(AT_ONCE), links, writer })
    }

    /// A neighbour that is known; for the reader, in a read section. Takes no lock, writes nothing.
    #[inline(always)]
    pub(super) fn get(&self, interface: u32, address: A) -> Option<Known> {
        self.table.get(interface, address)
    }

    /// The same, for a packet of this second: the link address in a word, the first byte lowest. None also of one that is stale.
    #[inline(always)]
    pub(super) fn way(&self, interface: u32, address: A, second: u32) -> Option<u64> {
        let (link, until) = self.table.get_word(interface, address)?;
        (second < until).then_some(link)
    }

    /// The same, for one who is asked for again and again: `remembered` is a word for what it takes to find it without looking for it,
    /// 0 in the beginning, and of this table and neighbour alone. Written only when that has changed.
    #[inline(always)]
    pub(super) fn way_again(
        &self,
        remembered: &AtomicU32,
        interface: u32,
        address: A,
        second: u32,
    ) -> Option<u64> {
        // Relaxed: a number that may be any; the entry says whether it is still what it was.
        match self.table.get_again(remembered.load(Ordering::Relaxed), interface, address) {
            Some((link, until)) if second < until => Some(link),
            _ => self.remember(remembered, interface, address, second),
        }
    }

    #[cold]
    fn remember(
        &self,
        remembered: &AtomicU32,
        interface: u32,
        address: A,
        second: u32,
    ) -> Option<u64> {
        let found = self.table.number(interface, address);
        // Relaxed: as in `way_again`.
        if found != remembered.load(Ordering::Relaxed) {
            remembered.store(found, Ordering::Relaxed);
        }
        self.way(interface, address, second)
    }

    /// Neighbours that are known. Takes the lock.
    pub(super) fn len(&self) -> usize {
        self.writer.lock().len()
    }

    /// Packets that wait. Takes the locks of all links.
    pub(super) fn waiting(&self) -> usize {
        self.links.iter().map(|link| link.lock().waiting()).sum()
    }

    /// Gives all packets that wait to `end`.
    pub(super) fn end(&self, mut end: impl FnMut(Skb<'n>)) {
        for link in &self.links {
            // (Not in the loop's head: that would keep the lock.)
            let packets = link.lock().take_all();
            packets.for_each(&mut end);
        }
    }

    /// Makes a packet wait for a neighbour that was not found.
    #[cold]
    pub(super) fn wait(
        &self,
        interface: u32,
        address: A,
        skb: Skb<'n>,
        now: Duration,
    ) -> Waits<'n> {
        let Some(link) = self.links.get(interface as usize) else { return Waits::Refused(skb) };
        let mut pending = link.lock();
        if let Some(known) = self.table.get(interface, address) {
            return Waits::Known(known, skb);
        }
        match pending.append(address, skb) {
            Ok(pushed_out) => Waits::Queued { ask: false, pushed_out: [pushed_out, None, None] },
            Err(skb) => match pending.ask(address, skb, now) {
                Ok(pushed_out) => Waits::Queued { ask: true, pushed_out },
                Err(skb) => Waits::Refused(skb),
            },
        }
    }

    /// Whether to ask a neighbour that is stale whether it is still there: once a second. After some tries it is forgotten.
    #[cold]
    pub(super) fn is_to_be_asked(&self, interface: u32, address: A, now: Duration) -> bool {
        let mut writer = self.writer.lock();
        let (now, known) = (seconds(now), self.table.get(interface, address));
        let Some(entry) = self.table.entry(interface, address) else { return false };
        // Another packet was quicker.
        if known.is_none_or(|known| known.until > now) {
            return false;
        }
        let tries = writer.tries(entry);
        *tries += 1;
        if *tries > TRIES {
            self.table.remove(&mut writer, entry);
            return false;
        }
        writer.renew(entry, Origin::Stranger, now);
        self.table.set_until(entry, now + 1);
        true
    }

    /// Learns a neighbour's link address from the neighbour. Returns the packets that have waited
    /// for it. A neighbour that is neither known nor being asked for is entered only if `create`.
    ///
    /// If there is no memory to enter it, the packets are returned nevertheless.
    pub(super) fn learn(
        &self,
        interface: u32,
        address: A,
        link: Link,
        create: bool,
        now: Duration,
    ) -> Waiting<'n> {
        let Some(pending) = self.links.get(interface as usize) else { return NOTHING };
        let mut pending = pending.lock();
        let mut writer = self.writer.lock();
        let known = self.table.get(interface, address);
        // Nobody on the link changes what was entered for good. What waits for it is due at once.
        if known.is_some_and(|known| known.until == FOR_GOOD) {
            return NOTHING;
        }
        let waiting = pending.take(address);
        let entry = self.table.entry(interface, address);
        let now = seconds(now);
        let until = now + REACHABLE;
        let is_asked = waiting.is_some() || entry.is_some_and(|entry| *writer.tries(entry) > 0);
        let origin = if is_asked { Origin::Answer } else { Origin::Stranger };
        match (entry, known) {
            (Some(entry), Some(known)) if known.link == link => {
                *writer.tries(entry) = 0;
                writer.renew(entry, origin, now);
                self.table.set_until(entry, until);
            }
            (None, _) if waiting.is_none() && !create => {}
            // What waits is sent, whether there is memory to remember the answer or not.
            _ => self.enter(&mut writer, (interface, address), Known { link, until }, origin, now),
        }
        waiting.unwrap_or(NOTHING)
    }

    /// Enters a neighbour, if there is memory for it.
    fn enter(
        &self,
        writer: &mut Writer,
        neighbour: (u32, A),
        known: Known,
        origin: Origin,
        now: u32,
    ) {
        let _ = self.table.set(writer, neighbour, known, (origin, now));
    }

    /// A neighbour of IPv6 has asked for an address of ours and said where it is (RFC 4861, section
    /// 7.2.3). Returns the packets that have waited for it.
    /// Whether it hears us that does not say: one that is new or has moved is asked when it is used
    /// next.
    ///
    /// If there is no memory to enter it, the packets are returned nevertheless.
    pub(super) fn solicited(
        &self,
        interface: u32,
        address: A,
        link: Link,
        now: Duration,
    ) -> Waiting<'n> {
        let Some(pending) = self.links.get(interface as usize) else { return NOTHING };
        let mut pending = pending.lock();
        let mut writer = self.writer.lock();
        let known = self.table.get(interface, address);
        // As in `learn`, for good. Nor is one that is known there any newer for it.
        if known.is_some_and(|known| known.until == FOR_GOOD || known.link == link) {
            return NOTHING;
        }
        let waiting = pending.take(address);
        let now = seconds(now);
        let stale = Known { link, until: now };
        self.enter(&mut writer, (interface, address), stale, Origin::Stranger, now);
        waiting.unwrap_or(NOTHING)
    }

    /// Learns from an advertisement of a neighbour of IPv6 (RFC 4861, section 7.2.5). Returns the
    /// packets that have waited for it, and their link address. A neighbour that is neither known
    /// nor being asked for is not entered.
    ///
    /// If there is no memory to enter it, the packets are returned nevertheless.
    pub(super) fn advertised(
        &self,
        interface: u32,
        address: A,
        says: Advertised,
        now: Duration,
    ) -> Option<(Link, Waiting<'n>)> {
        let mut pending = self.links.get(interface as usize)?.lock();
        let mut writer = self.writer.lock();
        let now = seconds(now);
        // One that nobody has asked is asked when it is used next.
        let until = if says.solicited { now + REACHABLE } else { now };
        let known = self.table.get(interface, address);
        let (Some(entry), Some(known)) = (self.table.entry(interface, address), known) else {
            // A neighbour that is being asked for, and does not say where it is, is asked again.
            let link = says.link?;
            let waiting = pending.take(address)?;
            let known = Known { link, until };
            self.enter(&mut writer, (interface, address), known, Origin::Answer, now);
            return Some((link, waiting));
        };
        let is_answer = says.solicited && *writer.tries(entry) > 0;
        let origin = if is_answer { Origin::Answer } else { Origin::Stranger };
        match says.link.filter(|link| *link != known.link) {
            // Nobody on the link changes what was entered for good.
            _ if known.until == FOR_GOOD => {}
            Some(link) if says.replaces => {
                let known = Known { link, until };
                self.enter(&mut writer, (interface, address), known, origin, now);
            }
            // Another station claims the address: the known one is asked, but not sooner than it is
            // already.
            Some(_) if known.until > now && *writer.tries(entry) == 0 => {
                self.table.set_until(entry, now)
            }
            Some(_) => {}
            None if says.solicited => {
                *writer.tries(entry) = 0;
                writer.renew(entry, origin, now);
                self.table.set_until(entry, until);
            }
            None => {}
        }
        None
    }

    /// Enters a neighbour for good. What has waited for it is [due](Self::due) at once.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface; `ENOMEM`, also if as many were entered for good as
    /// may be.
    pub(super) fn set(&self, interface: u32, address: A, link: Link) -> Result<(), Errno> {
        let mut pending = self.links.get(interface as usize).ok_or(Errno::NODEV)?.lock();
        let known = Known { link, until: FOR_GOOD };
        let by_hand = (Origin::Hand, 0);
        self.table
            .set(&mut self.writer.lock(), (interface, address), known, by_hand)
            .map_err(|AllocError| Errno::NOMEM)?;
        if pending.enter_by_hand(address) {
            // Relaxed: a thread that sees it takes the lock.
            self.look_at.store(AT_ONCE, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether something is due at once. Reads one word.
    #[inline]
    pub(super) fn is_urgent(&self) -> bool {
        // Relaxed: as in `is_time`.
        self.look_at.load(Ordering::Relaxed) == AT_ONCE
    }

    /// Whether it is time to look for what is [due](Self::due): true for one caller a second. Reads one word.
    #[inline]
    pub(super) fn is_time(&self, now: Duration) -> bool {
        let now = now.as_nanos() as u64;
        // Relaxed, so below: a time; what it is for is under the lock.
        let at = self.look_at.load(Ordering::Relaxed);
        let next = now + SECOND.as_nanos() as u64;
        now >= at
            && self.look_at.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The next thing that is due on a link, until there is none.
    pub(super) fn due(&self, interface: u32, now: Duration) -> Option<Due<'n, A>> {
        let mut pending = self.links.get(interface as usize)?.lock();
        Some(match pending.due(now)? {
            DuePending::Ask(address) => Due::Ask(interface, address),
            DuePending::Failed(waiting) => Due::Failed(waiting),
            DuePending::ByHand(address, waiting) => match self.table.get(interface, address) {
                Some(known) => Due::Known(interface, known.link, waiting),
                None => Due::Failed(waiting),
            },
        })
    }

    /// Forgets neighbours of a link that were not heard of for long.
    pub(super) fn forget(&self, interface: u32, now: Duration) {
        let now = seconds(now);
        while !self.table.remove_old(&mut self.writer.lock(), interface, now, SWEPT) {}
    }
}
