//! Neighbours: the link addresses of those on the same link, and packets that wait for them.
//!
//! # The problem
//!
//! Each packet needs the link address of the next station. It is asked for on the link; until the answer comes, packets
//! wait, and who sends many must not fill the memory with them.
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
//! Those that are known are in a hash table that readers walk in a read section: no lock, nothing written. Those that are being asked
//! for, with up to [`WAITING`] packets each, are under the lock of the table, which only packets to the unknown take.
//!
//! Who asks for the same neighbour again and again, as a route does for its gateway, remembers the number of his entry and looks there first.
//! The entry says whose it is, and until when; one that is taken out says so. Nobody has to be told, and none is found that has gone.
//!
//! # Guarantees
//!
//! * What waits is bounded: [`WAITING`] packets for each of [`ASKED`] neighbours. The oldest makes room for the newest; more
//!   neighbours are refused. Each of these drops is counted as [`NeighbourFailed`](crate::packet::DropReason::NeighbourFailed).
//! * A station is entered only after it was asked for, or has asked for us.
//! * Of IPv6, an answer makes a neighbour reachable whether it says the link address or not, which who was asked himself may leave out (RFC
//!   4861, section 7.2.4). What nobody asked for makes nobody reachable; an address that contradicts the one that is known, and is not said to
//!   replace it, makes that one stale. Nor does a question make reachable who asks it (section 7.2.3): one that is new or has moved is
//!   entered stale, and of one that is known where he says nothing changes.
//!
//! # Limits
//!
//! As many as the table was made for; more are not entered, and packets to them are dropped when they have waited in vain.

mod table;

pub(super) use table::Known;

use super::address::Sealed;
use super::header::Link;
use super::pool::Pool;
use crate::packet::Skb;
use core::time::Duration;
use quietline_platform::atomic::{AtomicU32, AtomicU64, Ordering};
use quietline_platform::{AllocError, heap};
use quietline_sync::SpinLock;
use quietline_sync::rcu::Domain;
use table::Table;

/// Packets that wait for one neighbour (`unres_qlen`, in packets, as it was once).
pub const WAITING: usize = 3;
/// Neighbours that are asked for at a time.
pub const ASKED: usize = 256;
/// How often one is asked for before it is given up.
pub const TRIES: u32 = 3;
/// Seconds for which an answer is good.
pub const REACHABLE: u32 = 30;
/// Seconds after which one that nobody has used is forgotten.
const FORGOTTEN: u32 = 60;
/// As the time to look next: whenever somebody comes.
const AT_ONCE: u64 = 0;
/// Between two questions, and two looks at what waits.
const SECOND: Duration = Duration::from_secs(1);

/// Neighbours of one family, on all interfaces.
pub(super) struct Neighbours<'n, A> {
    table: Table<A>,
    /// When to [look](Self::due) next, in nanoseconds.
    look_at: AtomicU64,
    slow: SpinLock<Slow<'n, A>>,
}

struct Slow<'n, A> {
    pool: Pool,
    asked: Vec<Asked<'n, A>>,
    /// When old ones were last looked for, in seconds.
    swept: u32,
}

/// A neighbour that is being asked for.
struct Asked<'n, A> {
    interface: u32,
    address: A,
    tries: u32,
    next_try: Duration,
    waiting: Waiting<'n>,
}

impl<'n, A: Sealed> Slow<'n, A> {
    /// Asks for a neighbour no more: what has waited for it, if it was asked for.
    fn take_asked(&mut self, interface: u32, address: A) -> Option<Waiting<'n>> {
        let same = |asked: &Asked<'n, A>| asked.interface == interface && asked.address == address;
        let at = self.asked.iter().position(same)?;
        Some(self.asked.swap_remove(at).waiting)
    }
}

/// Packets that wait, oldest first.
pub(super) type Waiting<'n> = [Option<Skb<'n>>; WAITING];

/// What became of a packet to a neighbour that was not in the table.
pub(super) enum Waits<'n> {
    /// It waits.
    Queued {
        /// Whether the caller is to ask for the neighbour.
        ask: bool,
        /// A packet that has waited longer, for which there is no room any more.
        pushed_out: Option<Skb<'n>>,
    },
    /// The neighbour has become known.
    Known(Known, Skb<'n>),
    /// There is no room, or no memory, to wait.
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
    pub(super) fn new(domain: &'static Domain, most: u32) -> Result<Self, AllocError> {
        let (table, pool) = Table::new(domain, most)?;
        let mut asked = Vec::new();
        heap::try_reserve(&mut asked, ASKED)?;
        let slow = Slow { pool, asked, swept: 0 };
        Ok(Self { table, look_at: AtomicU64::new(AT_ONCE), slow: SpinLock::new(slow) })
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
        self.slow.lock().pool.used()
    }

    /// Packets that wait. Takes the lock.
    pub(super) fn waiting(&self) -> usize {
        self.slow.lock().asked.iter().map(|asked| asked.waiting.iter().flatten().count()).sum()
    }

    /// Gives all packets that wait to `end`.
    pub(super) fn end(&self, end: impl FnMut(Skb<'n>)) {
        // (Not in the loop's head: that would keep the lock.)
        let asked = core::mem::take(&mut self.slow.lock().asked);
        asked.into_iter().flat_map(|asked| asked.waiting).flatten().for_each(end);
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
        let mut slow = self.slow.lock();
        if let Some(known) = self.table.get(interface, address) {
            return Waits::Known(known, skb);
        }
        let same =
            |asked: &&mut Asked<'n, A>| asked.interface == interface && asked.address == address;
        if let Some(asked) = slow.asked.iter_mut().find(same) {
            let pushed_out = match asked.waiting.iter_mut().find(|place| place.is_none()) {
                Some(place) => place.replace(skb),
                None => {
                    asked.waiting.rotate_left(1);
                    asked.waiting[WAITING - 1].replace(skb)
                }
            };
            return Waits::Queued { ask: false, pushed_out };
        }
        if slow.asked.len() == ASKED {
            return Waits::Refused(skb);
        }
        let mut waiting = [const { None }; WAITING];
        waiting[0] = Some(skb);
        // There is room for as many as are asked for at a time.
        slow.asked.push(Asked { interface, address, tries: 1, next_try: now + SECOND, waiting });
        Waits::Queued { ask: true, pushed_out: None }
    }

    /// Whether to ask a neighbour that is stale whether it is still there: once a second. After some tries it is forgotten.
    #[cold]
    pub(super) fn is_to_be_asked(&self, interface: u32, address: A, now: Duration) -> bool {
        let mut slow = self.slow.lock();
        let (now, known) = (seconds(now), self.table.get(interface, address));
        let Some(entry) = self.table.entry(interface, address) else { return false };
        // Another packet was quicker.
        if known.is_none_or(|known| known.until > now) {
            return false;
        }
        let tries = slow.pool.uses(entry);
        *tries += 1;
        if *tries > TRIES {
            self.table.remove(&mut slow.pool, interface, address);
            return false;
        }
        self.table.set_until(entry, now + 1);
        true
    }

    /// A neighbour has said where it is; what has waited for it. One that was neither asked for nor is known is
    /// entered only if `create`.
    ///
    /// If there is no memory to enter it, what has waited is given nevertheless.
    pub(super) fn learn(
        &self,
        interface: u32,
        address: A,
        link: Link,
        create: bool,
        now: Duration,
    ) -> Waiting<'n> {
        let mut slow = self.slow.lock();
        let known = self.table.get(interface, address);
        // Nobody on the link changes what was entered for good. What waits for it is due at once.
        if known.is_some_and(|known| known.until == FOR_GOOD) {
            return [const { None }; WAITING];
        }
        let waiting = slow.take_asked(interface, address);
        let entry = self.table.entry(interface, address);
        let until = seconds(now) + REACHABLE;
        match (entry, known) {
            (Some(entry), Some(known)) if known.link == link => {
                *slow.pool.uses(entry) = 0;
                self.table.set_until(entry, until);
            }
            (None, _) if waiting.is_none() && !create => {}
            // What waits is sent, whether there is memory to remember the answer or not.
            _ => drop(self.table.set(&mut slow.pool, (interface, address), Known { link, until })),
        }
        waiting.unwrap_or([const { None }; WAITING])
    }

    /// A neighbour of IPv6 has asked for an address of ours and said where it is (RFC 4861, section 7.2.3); what has waited for it. Whether it
    /// hears us that does not say: one that is new or has moved is asked when it is used next.
    ///
    /// If there is no memory to enter it, what has waited is given nevertheless.
    pub(super) fn solicited(
        &self,
        interface: u32,
        address: A,
        link: Link,
        now: Duration,
    ) -> Waiting<'n> {
        let mut slow = self.slow.lock();
        let known = self.table.get(interface, address);
        // As in `learn`, for good. Nor is one that is known there any newer for it.
        if known.is_some_and(|known| known.until == FOR_GOOD || known.link == link) {
            return [const { None }; WAITING];
        }
        let waiting = slow.take_asked(interface, address);
        let stale = Known { link, until: seconds(now) };
        let _ = self.table.set(&mut slow.pool, (interface, address), stale);
        waiting.unwrap_or([const { None }; WAITING])
    }

    /// A neighbour of IPv6 has said where it is, or that it is there (RFC 4861, section 7.2.5): where to send what has waited for it, and
    /// that. One that was neither asked for nor is known is not entered.
    ///
    /// If there is no memory to enter it, what has waited is given nevertheless.
    pub(super) fn advertised(
        &self,
        interface: u32,
        address: A,
        says: Advertised,
        now: Duration,
    ) -> Option<(Link, Waiting<'n>)> {
        let mut slow = self.slow.lock();
        let now = seconds(now);
        // One that nobody has asked is asked when it is used next.
        let until = if says.solicited { now + REACHABLE } else { now };
        let known = self.table.get(interface, address);
        let (Some(entry), Some(known)) = (self.table.entry(interface, address), known) else {
            // Who is being asked for, and does not say where he is, is asked again.
            let link = says.link?;
            let waiting = slow.take_asked(interface, address)?;
            let _ = self.table.set(&mut slow.pool, (interface, address), Known { link, until });
            return Some((link, waiting));
        };
        match says.link.filter(|link| *link != known.link) {
            // Nobody on the link changes what was entered for good.
            _ if known.until == FOR_GOOD => {}
            Some(link) if says.replaces => {
                let _ = self.table.set(&mut slow.pool, (interface, address), Known { link, until });
            }
            // Somebody else says that he is it: it is asked, but not sooner than it is already.
            Some(_) if known.until > now && *slow.pool.uses(entry) == 0 => {
                self.table.set_until(entry, now)
            }
            Some(_) => {}
            None if says.solicited => {
                *slow.pool.uses(entry) = 0;
                self.table.set_until(entry, until);
            }
            None => {}
        }
        None
    }

    /// Enters a neighbour for good. What has waited for it is [due](Self::due) at once.
    pub(super) fn set(&self, interface: u32, address: A, link: Link) -> Result<(), AllocError> {
        let mut slow = self.slow.lock();
        self.table.set(&mut slow.pool, (interface, address), Known { link, until: FOR_GOOD })?;
        let same =
            |asked: &&mut Asked<'n, A>| asked.interface == interface && asked.address == address;
        if let Some(asked) = slow.asked.iter_mut().find(same) {
            asked.next_try = Duration::ZERO;
            // Relaxed: who sees it takes the lock.
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

    /// The next thing that is due, until there is none. And every [`FORGOTTEN`] seconds, who was not used is forgotten.
    pub(super) fn due(&self, now: Duration) -> Option<Due<'n, A>> {
        let mut slow = self.slow.lock();
        let slow = &mut *slow;
        if seconds(now) >= slow.swept + FORGOTTEN {
            slow.swept = seconds(now);
            self.table.remove_old(&mut slow.pool, seconds(now).saturating_sub(FORGOTTEN));
        }
        let at = slow.asked.iter().position(|asked| asked.next_try <= now)?;
        let asked = &mut slow.asked[at];
        if let Some(known) = self.table.get(asked.interface, asked.address) {
            let Asked { interface, waiting, .. } = slow.asked.swap_remove(at);
            return Some(Due::Known(interface, known.link, waiting));
        }
        if asked.tries == TRIES {
            return Some(Due::Failed(slow.asked.swap_remove(at).waiting));
        }
        asked.tries += 1;
        asked.next_try = now + SECOND;
        Some(Due::Ask(asked.interface, asked.address))
    }
}
