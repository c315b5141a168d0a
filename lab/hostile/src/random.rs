//! Random numbers from a seed.

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A generator of random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator whose numbers follow from all of `seeds`.
    pub fn new(seeds: &[u64]) -> Self {
        Self(seeds.iter().fold(0, |state, seed| mix(state.wrapping_add(GOLDEN) ^ mix(*seed))))
    }

    /// Returns the next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }

    /// Returns one of the elements.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(GOLDEN);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}
