//! Packets that outlive those who use them: a few, used again and again by one arena after the other.

use std::sync::{Mutex, PoisonError};

use quietline_net::packet::Packets;
use quietline_slab::Tunables;

use crate::harness::Fault;

/// Packets that nobody uses, and the tunables that their heads were made with. There are never more than arenas at a time.
static FREE: Mutex<Vec<(&'static Packets, Tunables)>> = Mutex::new(Vec::new());

/// Packets of one arena, empty, without cached memory and untuned when it begins.
pub(super) struct Borrowed(pub(super) &'static Packets, Tunables);

impl Borrowed {
    pub(super) fn new() -> Result<Self, Fault> {
        if let Some((packets, tunables)) = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop()
        {
            let now = packets.head_cache().tunables();
            Fault::unless(now == tunables, || format!("heads are still tuned: {now:?}"))?;
            return Ok(Self(packets, tunables));
        }
        let packets = Packets::new().map_err(|e| Fault::new(format!("cannot make caches: {e}")))?;
        let packets = Box::leak(Box::new(packets));
        Ok(Self(packets, packets.head_cache().tunables()))
    }

    /// Packets that are out.
    pub(super) fn active(&self) -> usize {
        self.0.head_stats().active
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let as_before = self.0.head_cache().set_tunables(self.1).is_ok();
        self.0.shrink();
        // Packets that a failed run has left behind stay with it.
        if as_before && self.active() == 0 {
            FREE.lock().unwrap_or_else(PoisonError::into_inner).push((self.0, self.1));
        }
    }
}
