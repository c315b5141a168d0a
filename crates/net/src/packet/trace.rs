//! Who is told of packets that end.
//!
//! Two ways: tracepoints in the program's image, `quietline:consume_skb` and `quietline:kfree_skb`, which tracers of the system
//! find (USDT: a `nop` while nobody traces); and one listener in the program itself, for tests and for programs that count drops.

use super::listeners::Event;
#[cfg(not(loom))]
use super::listeners::{Listener, Listeners};

/// The program's. (Models have no statics; that of listeners makes its own.)
#[cfg(not(loom))]
static LISTENERS: Listeners = Listeners::new();

/// Sets who listens, from now on, or that nobody does. A listener that is set again takes no new place.
///
/// A packet that is just ending may still be told to who listened before.
///
/// # Errors
/// Gives the listener back when there have been 8 different ones before.
#[cfg(not(loom))]
pub fn listen(listener: Option<&'static dyn Listener>) -> Result<(), &'static dyn Listener> {
    LISTENERS.listen(listener)
}

/// Tells tracers, and who listens. With nobody there: a load of a line that is seldom written, and a `nop`.
#[inline(always)]
pub(super) fn ended(packet: usize, event: Event) {
    // Miri executes no assembly, not even a `nop`.
    #[cfg(not(miri))]
    match event {
        Event::Consumed => probe::probe!(quietline, consume_skb, packet),
        Event::Dropped(reason) => probe::probe!(quietline, kfree_skb, packet, reason.number()),
    }
    #[cfg(not(loom))]
    LISTENERS.tell(packet, event);
}
