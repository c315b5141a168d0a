//! The listener of a program, and how it changes while packets end.
//!
//! A trait object is two words and changes as one: what changes is the number of a place that a listener has for good.

use super::reason::DropReason;
use quietline_platform::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;

/// The end of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It was used: not an error.
    Consumed,
    /// It was dropped.
    Dropped(DropReason),
}

impl Event {
    /// As a number: 0 for the first kind.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Consumed => 0,
            Self::Dropped(reason) => reason.number() as u8 + 1,
        }
    }

    /// What a [`code`](Self::code) stands for.
    pub(super) fn of_code(code: u8) -> Self {
        let reason =
            usize::from(code).checked_sub(1).and_then(|number| DropReason::ALL.get(number));
        reason.map_or(Self::Consumed, |reason| Self::Dropped(*reason))
    }
}

const _: () = assert!(DropReason::ALL.len() < u8::MAX as usize);

/// What is told of every packet's end: the packet's address, which is what tells packets apart, and how it ended.
///
/// Called on the thread that ends the packet, before anything of it is given back. Must not end packets itself.
pub trait Listener: Sync {
    /// A packet has ended.
    fn ended(&self, packet: usize, event: Event);
}

/// Different listeners that there may ever be.
const MOST: usize = 8;

/// Who listens, and who ever did: few, and never forgotten.
pub(super) struct Listeners {
    /// The place of who listens, plus one; 0 for none.
    current: AtomicUsize,
    places: [OnceLock<&'static dyn Listener>; MOST],
}

impl Listeners {
    /// Nobody.
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self { current: AtomicUsize::new(0), places: [const { OnceLock::new() }; MOST] }
    }

    /// Nobody.
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self { current: AtomicUsize::new(0), places: [const { OnceLock::new() }; MOST] }
    }

    /// Sets who listens, or that nobody does; gives the listener back when there is no place left.
    pub(super) fn listen(
        &self,
        listener: Option<&'static dyn Listener>,
    ) -> Result<(), &'static dyn Listener> {
        let number = match listener {
            None => 0,
            Some(listener) => {
                let same = |place: &OnceLock<&'static dyn Listener>| {
                    core::ptr::addr_eq(*place.get_or_init(|| listener), listener)
                };
                1 + self.places.iter().position(same).ok_or(listener)?
            }
        };
        // ORDERING: Release pairs with the acquire in `tell`: a listener that is told sees what was written before it was set,
        // also if it is not set for the first time.
        self.current.store(number, Ordering::Release);
        Ok(())
    }

    /// Tells who listens. With nobody there: a load of a line that is seldom written.
    #[inline(always)]
    pub(super) fn tell(&self, packet: usize, event: Event) {
        // ORDERING: Acquire pairs with the release in `listen`.
        let current = self.current.load(Ordering::Acquire);
        if current != 0 {
            self.tell_slow(current, packet, event);
        }
    }

    #[cold]
    fn tell_slow(&self, current: usize, packet: usize, event: Event) {
        if let Some(listener) = self.places[current - 1].get() {
            listener.ended(packet, event);
        }
    }
}
