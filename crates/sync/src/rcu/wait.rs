//! How those wait who wait for a grace period.

use super::Domain;
use crate::backoff::Backoff;
#[cfg(not(loom))]
use std::time::Duration;

/// A waiter's patience: turning, then giving way, then short sleeps, in which it looks for a stall.
pub(super) struct Wait {
    backoff: Backoff,
    #[cfg(not(loom))]
    turns: u32,
}

/// Turns before a waiter looks at the clock: by then it sleeps.
#[cfg(not(loom))]
const TURNS: u32 = 450;

impl Wait {
    pub(super) fn new() -> Self {
        Self {
            backoff: Backoff::alone(),
            #[cfg(not(loom))]
            turns: 0,
        }
    }

    #[cfg(loom)]
    pub(super) fn pause(&mut self, _domain: &Domain) {
        self.backoff.wait();
    }

    #[cfg(not(loom))]
    pub(super) fn pause(&mut self, domain: &Domain) {
        self.backoff.wait();
        if self.turns < TURNS {
            self.turns += 1;
        } else {
            domain.look_for_stall();
        }
    }
}

/// A bound on how long a thread waits where it runs its share.
pub(super) struct Bound {
    #[cfg(not(loom))]
    until: Duration,
    #[cfg(loom)]
    turns: u32,
}

#[cfg(not(loom))]
impl Bound {
    pub(super) fn new() -> Self {
        Self { until: quietline_platform::clock::monotonic() + Duration::from_millis(10) }
    }

    pub(super) fn passed(&mut self) -> bool {
        quietline_platform::clock::monotonic() >= self.until
    }
}

#[cfg(loom)]
impl Bound {
    pub(super) fn new() -> Self {
        Self { turns: 0 }
    }

    pub(super) fn passed(&mut self) -> bool {
        self.turns += 1;
        self.turns > 2
    }
}
