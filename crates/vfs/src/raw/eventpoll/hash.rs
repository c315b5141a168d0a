//! Where in a table a file and a descriptor are.

use core::hash::BuildHasher;

/// Multiplies what it is given into 64 bits. Addresses and descriptors are not a caller's free choice, and a table is one
/// program's own: no defence against collisions is needed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hasher;

#[derive(Debug)]
pub(super) struct State(u64);

impl BuildHasher for Hasher {
    type Hasher = State;

    fn build_hasher(&self) -> State {
        State(0)
    }
}

impl State {
    fn add(&mut self, n: u64) {
        // 2^64 divided by the golden ratio, odd; the table uses the highest and the lowest bits.
        self.0 = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

impl core::hash::Hasher for State {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_ne_bytes(word));
        }
    }

    fn write_usize(&mut self, n: usize) {
        self.add(n as u64);
    }

    fn write_i32(&mut self, n: i32) {
        self.add(n as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
