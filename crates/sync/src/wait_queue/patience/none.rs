//! In the models nobody looks around before a sleep: what is proved is what sleeps, and a look is one more interleaving of the
//! same steps.

use super::Interrupt;
use super::waiter::{Until, Waiter};

/// Where a waiter's waker ran: nobody asks.
pub(super) struct Origin;

impl Origin {
    pub(super) fn new() -> Self {
        Self
    }

    /// # Safety
    /// None is needed.
    pub(super) unsafe fn tell(&self) {}

    /// # Safety
    /// None is needed.
    pub(super) unsafe fn keep(&self) {}
}

/// Not woken.
pub(super) fn look_again(_waiter: &Waiter, _until: &Until, _interrupt: Option<&Interrupt>) -> bool {
    false
}
