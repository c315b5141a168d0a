//! Seeded noise: real machines are never in step, and what depends on being in step is no result.

use crate::topology::Ps;

/// A source of numbers that looks random and is the same for the same seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct Jitter {
    state: u64,
    /// The largest deviation, in thousandths.
    permille: u64,
}

impl Jitter {
    /// Noise of up to `percent` in either direction.
    pub fn new(seed: u64, percent: f64) -> Self {
        Self { state: seed, permille: (percent * 10.0).round().clamp(0.0, 1000.0) as u64 }
    }

    /// The next number.
    fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// A time near `time`.
    pub fn around(&mut self, time: Ps) -> Ps {
        if self.permille == 0 {
            return time;
        }
        let deviation = self.below(2 * self.permille + 1);
        time * (1000 - self.permille + deviation) / 1000
    }
}
