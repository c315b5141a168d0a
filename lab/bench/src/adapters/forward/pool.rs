//! Packets that outlive those who use them: a few, used again and again by one arena after the other.

use std::sync::{Mutex, PoisonError};

use quietline_net::packet::Packets;

use crate::harness::Fault;

/// Packets that nobody uses. There are never more than arenas at a time.
static FREE: Mutex<Vec<&'static Packets>> = Mutex::new(Vec::new());

/// Packets of one arena, empty and without cached memory when it begins.
pub(super) struct Borrowed(pub(super) &'static Packets);

impl Borrowed {
    pub(super) fn new() -> Result<Self, Fault> {
        if let Some(packets) = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(Self(packets));
        }
        let packets = Packets::new().map_err(|e| Fault::new(format!("cannot make caches: {e}")))?;
        Ok(Self(Box::leak(Box::new(packets))))
    }

    /// Packets that are out.
    pub(super) fn active(&self) -> usize {
        self.0.head_stats().active
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.0.shrink();
        // Packets that a failed run has left behind stay with it.
        if self.active() == 0 {
            FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
        }
    }
}
