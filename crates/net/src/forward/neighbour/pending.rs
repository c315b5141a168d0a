//! Neighbours of one link that are being asked for, with the packets that wait for them.
//!
//! All operations take constant time. A map with a keyed hash finds an address. Queues find the
//! neighbour whose next question is due, and the neighbour that is evicted.

use super::queue::{Queue, QueueLinks};
use super::{ASKED, NOTHING, QUESTION_BURST, QUESTIONS, SECOND, TRIES, WAITING, Waiting};
use crate::forward::address::Sealed;
use crate::packet::Skb;
use core::time::Duration;
use quietline_platform::{AllocError, fault, heap};
use std::collections::HashMap;

/// The neighbours of a link that are being asked for.
pub(super) struct Pending<'n, A> {
    /// The slot of each address.
    numbers: HashMap<A, u32>,
    slots: Vec<Slot<'n, A>>,
    links: QueueLinks,
    free: Queue,
    /// Neighbours entered by hand meanwhile, then neighbours asked once, twice and so on. The
    /// interval between two questions is constant, so the first of each queue is due next.
    by_tries: [Queue; TRIES as usize + 1],
    /// The token bucket of first questions: the time at which it is full again.
    full_at: Duration,
}

/// A neighbour that is being asked for.
struct Slot<'n, A> {
    address: A,
    /// Questions so far: the number of the queue that it is in.
    tries: u32,
    next_try: Duration,
    waiting: Waiting<'n>,
}

/// The queue of neighbours that were entered by hand.
const BY_HAND: u32 = 0;

/// A neighbour whose time has come.
pub(super) enum DuePending<'n, A> {
    /// It was entered by hand.
    ByHand(A, Waiting<'n>),
    /// It is to be asked again.
    Ask(A),
    /// It has not answered.
    Failed(Waiting<'n>),
}

impl<'n, A: Sealed> Pending<'n, A> {
    pub(super) fn new() -> Self {
        Self {
            numbers: HashMap::new(),
            slots: Vec::new(),
            links: QueueLinks::new(),
            free: Queue::EMPTY,
            by_tries: [Queue::EMPTY; TRIES as usize + 1],
            full_at: Duration::ZERO,
        }
    }

    /// Takes a token for a first question. Returns `false` if the bucket is empty.
    fn take_token(&mut self, now: Duration) -> bool {
        const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / QUESTIONS as u64);
        let full_at = self.full_at.max(now) + INTERVAL;
        let has_token = full_at <= now + INTERVAL * QUESTION_BURST;
        if has_token {
            self.full_at = full_at;
        }
        has_token
    }

    /// Appends a packet to those that wait for a neighbour that is being asked for. Returns the
    /// packet that it displaces.
    ///
    /// # Errors
    /// Returns the packet if the neighbour is not being asked for.
    pub(super) fn append(&mut self, address: A, skb: Skb<'n>) -> Result<Option<Skb<'n>>, Skb<'n>> {
        let Some(&number) = self.numbers.get(&address) else { return Err(skb) };
        let waiting = &mut self.slots[number as usize].waiting;
        Ok(match waiting.iter_mut().find(|waiting| waiting.is_none()) {
            Some(free) => free.replace(skb),
            None => {
                waiting.rotate_left(1);
                waiting[WAITING - 1].replace(skb)
            }
        })
    }

    /// Begins to ask for a neighbour. Returns the packets that have waited for the neighbour that
    /// it displaces: of those asked most often, the one asked for the longest time.
    ///
    /// # Errors
    /// Returns the packet if the limit of first questions is reached, or without memory.
    pub(super) fn ask(
        &mut self,
        address: A,
        skb: Skb<'n>,
        now: Duration,
    ) -> Result<Waiting<'n>, Skb<'n>> {
        if self.reserve(address).is_err() || !self.take_token(now) {
            return Err(skb);
        }
        let mut pushed_out = NOTHING;
        if self.free.first().is_none()
            && let Some(oldest) = self.by_tries.iter().rev().find_map(Queue::first)
        {
            pushed_out = self.remove(oldest);
        }
        let Some(number) = self.free.first() else { return Err(skb) };
        self.links.remove(&mut self.free, number);
        let mut waiting = NOTHING;
        waiting[0] = Some(skb);
        self.slots[number as usize] = Slot { address, tries: 1, next_try: now + SECOND, waiting };
        self.links.push(&mut self.by_tries[1], number);
        self.numbers.insert(address, number);
        Ok(pushed_out)
    }

    /// Allocates memory in the map for one more, and a slot if none is free and the bound allows one.
    fn reserve(&mut self, address: A) -> Result<(), AllocError> {
        if self.numbers.len() == self.numbers.capacity() {
            fault::check()?;
            self.numbers.try_reserve(1).map_err(|_| AllocError)?;
        }
        if self.free.first().is_none() && self.slots.len() < ASKED {
            heap::try_reserve(&mut self.slots, 1)?;
            let number = self.slots.len() as u32;
            self.links.grow(number + 1)?;
            let next_try = Duration::ZERO;
            self.slots.push(Slot { address, tries: 0, next_try, waiting: NOTHING });
            self.links.push(&mut self.free, number);
        }
        Ok(())
    }

    /// Asks for a neighbour no more. Returns the packets that have waited for it, if it was being
    /// asked for.
    pub(super) fn take(&mut self, address: A) -> Option<Waiting<'n>> {
        let number = *self.numbers.get(&address)?;
        Some(self.remove(number))
    }

    fn remove(&mut self, number: u32) -> Waiting<'n> {
        let Slot { address, tries, waiting, .. } = &mut self.slots[number as usize];
        self.numbers.remove(address);
        self.links.remove(&mut self.by_tries[*tries as usize], number);
        self.links.push(&mut self.free, number);
        core::mem::replace(waiting, NOTHING)
    }

    /// Moves a neighbour to another queue.
    fn requeue(&mut self, number: u32, tries: u32, next_try: Duration) {
        let slot = &mut self.slots[number as usize];
        self.links.remove(&mut self.by_tries[slot.tries as usize], number);
        self.links.push(&mut self.by_tries[tries as usize], number);
        (slot.tries, slot.next_try) = (tries, next_try);
    }

    /// Notes that a neighbour was entered by hand: it is [due](Self::due) at once. Returns `false`
    /// if it is not being asked for.
    pub(super) fn enter_by_hand(&mut self, address: A) -> bool {
        let number = self.numbers.get(&address).copied();
        number.inspect(|number| self.requeue(*number, BY_HAND, Duration::ZERO)).is_some()
    }

    /// The next neighbour whose time has come.
    pub(super) fn due(&mut self, now: Duration) -> Option<DuePending<'n, A>> {
        let is_due = |number: &u32| self.slots[*number as usize].next_try <= now;
        let number = self.by_tries.iter().filter_map(Queue::first).find(is_due)?;
        let (address, tries) = {
            let slot = &self.slots[number as usize];
            (slot.address, slot.tries)
        };
        Some(match tries {
            BY_HAND => DuePending::ByHand(address, self.remove(number)),
            TRIES => DuePending::Failed(self.remove(number)),
            _ => {
                self.requeue(number, tries + 1, now + SECOND);
                DuePending::Ask(address)
            }
        })
    }

    /// Packets that wait.
    pub(super) fn waiting(&self) -> usize {
        self.slots.iter().map(|slot| slot.waiting.iter().flatten().count()).sum()
    }

    /// Takes all packets that wait. No neighbour is being asked for afterwards.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Skb<'n>> + use<'n, A> {
        let slots = core::mem::replace(self, Self::new()).slots;
        slots.into_iter().flat_map(|slot| slot.waiting).flatten()
    }
}
