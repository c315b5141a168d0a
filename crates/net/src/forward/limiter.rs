//! The rate limit of ICMP errors, for each CPU.
//!
//! Messages of path MTU discovery are not limited, as on Linux. A sender that does not learn of a
//! narrow link sends into it for ever, and a flood of packets with other faults would use up the
//! limit. Such messages amplify nothing: each answers one packet that is longer than the link's
//! MTU, and is shorter than that packet.

use super::forwarder::Pass;
use core::time::Duration;
use quietline_platform::AllocError;
use quietline_platform::percpu::Words;

/// Messages that a CPU may send at once.
pub const BURST: u64 = 50;
/// Microseconds after which it may send one more: a thousand a second.
pub const INTERVAL: u64 = 1000;

/// A bucket of tokens for each CPU, in one word: the time, in microseconds, at which it will be full. A message moves that by one
/// interval; it may not be further off than a burst takes.
pub(super) struct Limiter {
    full_at: Words<1>,
}

impl Limiter {
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self { full_at: Words::new()? })
    }

    /// Takes a token, if the CPU has one. Writes the CPU's own line.
    ///
    /// A CPU never gives more than its tokens. A thread that moves to another CPU between the look
    /// and the addition may use up more than one.
    pub(super) fn take(&self, now: Duration) -> bool {
        let now = now.as_micros() as i64;
        let latest = now + (BURST * INTERVAL) as i64;
        loop {
            let was = self.full_at.load(quietline_platform::cpu::current(), 0) as i64;
            let more = (now - was).max(0) + INTERVAL as i64;
            if was + more > latest {
                return false;
            }
            if self.full_at.add_within(0, more, latest + 1) {
                return true;
            }
        }
    }
}

impl Pass<'_, '_> {
    /// Whether an error may be told now.
    pub(super) fn may_tell(&self, is_too_big: bool) -> bool {
        is_too_big || self.of.limiter.take(self.now)
    }
}
