//! Hashes of numbers.

/// Numbers as their own hashes, spread: the maps are on the path of every access.
#[derive(Default, Clone, Copy)]
pub(super) struct NumberHash;

pub(super) struct NumberHasher(u64);

impl core::hash::BuildHasher for NumberHash {
    type Hasher = NumberHasher;
    fn build_hasher(&self) -> NumberHasher {
        NumberHasher(0)
    }
}

impl core::hash::Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}
