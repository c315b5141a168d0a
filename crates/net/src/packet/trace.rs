//! Who is told of packets that end.
//!
//! Two ways: tracepoints in the program's image, `quietline:consume_skb` and `quietline:kfree_skb`, which tracers of the system
//! find (USDT: a `nop` while nobody traces); and one listener in the program itself, for tests and for programs that count drops.

use super::reason::DropReason;
use quietline_platform::atomic::{AtomicUsize, Ordering};

/// The end of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It was used: not an error.
    Consumed,
    /// It was dropped.
    Dropped(DropReason),
}

/// What is told of every packet's end: the packet's address, which is what tells packets apart, and how it ended.
///
/// Called on the thread that ends the packet, before anything of it is given back. Must not end packets itself.
pub trait Listener: Sync {
    /// A packet has ended.
    fn ended(&self, packet: usize, event: Event);
}

/// The number of the listener in the table, plus one; 0 for none. (A trait object is two words, and changes as one.)
static CURRENT: AtomicUsize = AtomicUsize::new(0);

/// Listeners that there ever were: few, and never forgotten.
static LISTENERS: [std::sync::OnceLock<&'static dyn Listener>; MOST] =
    [const { std::sync::OnceLock::new() }; MOST];
const MOST: usize = 8;

/// Sets who listens, from now on, or that nobody does. A listener that is set again takes no new place.
///
/// # Errors
/// Gives the listener back when there have been 8 different ones before.
pub fn listen(listener: Option<&'static dyn Listener>) -> Result<(), &'static dyn Listener> {
    let number = match listener {
        None => 0,
        Some(listener) => {
            let same = |place: &std::sync::OnceLock<&'static dyn Listener>| {
                core::ptr::addr_eq(*place.get_or_init(|| listener), listener)
            };
            1 + LISTENERS.iter().position(same).ok_or(listener)?
        }
    };
    // ORDERING: Release pairs with the acquire in `ended`, though what is found there synchronises by itself.
    CURRENT.store(number, Ordering::Release);
    Ok(())
}

/// Tells who listens. With nobody there: two loads of lines that are seldom written, and a `nop`.
#[inline(always)]
pub(super) fn ended(packet: usize, event: Event) {
    match event {
        Event::Consumed => probe::probe!(quietline, consume_skb, packet),
        Event::Dropped(reason) => probe::probe!(quietline, kfree_skb, packet, reason.number()),
    }
    // ORDERING: Acquire pairs with the release in `listen`.
    let current = CURRENT.load(Ordering::Acquire);
    if current != 0 {
        tell(current, packet, event);
    }
}

#[cold]
fn tell(current: usize, packet: usize, event: Event) {
    if let Some(listener) = LISTENERS[current - 1].get() {
        listener.ended(packet, event);
    }
}
