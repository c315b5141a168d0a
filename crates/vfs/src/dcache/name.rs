//! A name to look for: its bytes, its hash and its first words.
//!
//! # The problem
//!
//! A lookup hashes a name and compares it with others. Byte by byte, both cost more than all the rest of a lookup; and whoever
//! knows the hash can make a directory in which every name collides.
//!
//! # Our way
//!
//! Words of eight bytes, zero padded. The hash multiplies them in pairs with keys that the kernel drew when it booted, so
//! nobody outside can aim at it. Two names are equal if 56 bits of hash, the length and all words are.

use quietline_platform::random;
use rustix::io::Errno;

/// The longest name, in bytes (`NAME_MAX`).
pub const NAME_MAX: usize = 255;

/// Words of a name that lie in the dentry itself.
pub(crate) const INLINE_WORDS: usize = 3;
/// Bytes of a name that lie in the dentry itself.
pub(crate) const INLINE: usize = 8 * INLINE_WORDS;

/// A name, ready to be looked up.
#[derive(Debug, Clone, Copy)]
pub struct Name<'a> {
    bytes: &'a [u8],
    /// The hash above, the length in the lowest eight bits.
    pub(crate) hash_len: u64,
    /// The first words, zero padded; all of a name that is not longer.
    pub(crate) words: [u64; INLINE_WORDS],
}

/// What a kernel's hash is keyed with.
#[derive(Debug, Clone, Copy)]
pub struct Keys([u64; 4]);

impl Keys {
    /// Keys that nobody can foresee, others each time; on a simulated machine always the same.
    ///
    /// # Errors
    /// What `getrandom` says; `ENOSYS` if it says nothing that has a number.
    pub fn draw() -> Result<Self, Errno> {
        let keys =
            random::keys().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOSYS))?;
        Ok(Self::new(keys))
    }

    /// The hash of a name of any length, for tables of other names than dentries'. Spread over all bits.
    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        fold(self.mix_all(bytes, first_words(bytes)), self.0[3])
    }

    pub(crate) const fn new([a, b, c, d]: [u64; 4]) -> Self {
        // The last factor of all is odd: the lower half of its product with a word still tells the word.
        Self([a, b, c, d | 1])
    }

    /// What becomes of a name's first words.
    #[inline(always)]
    fn mix(&self, words: [u64; INLINE_WORDS], len: usize) -> u64 {
        let [a, b, c, d] = self.0;
        let hash = fold(words[0] ^ a, words[1] ^ b ^ len as u64);
        if len > 16 { hash ^ fold(words[2] ^ c, hash ^ d) } else { hash }
    }

    /// What becomes of all words of a name, of which these are the first.
    #[inline(always)]
    fn mix_all(&self, bytes: &[u8], words: [u64; INLINE_WORDS]) -> u64 {
        let hash = self.mix(words, bytes.len());
        if bytes.len() > INLINE { self.mix_long(&bytes[INLINE..], hash) } else { hash }
    }

    fn mix_long(&self, rest: &[u8], mut hash: u64) -> u64 {
        let [a, b, _, d] = self.0;
        for pair in rest.chunks(16) {
            let first = tail_word(pair);
            let second = pair.get(8..).map_or(0, tail_word);
            hash = fold(first ^ a ^ hash, second ^ b ^ hash.rotate_left(32)) ^ d;
        }
        hash
    }

    /// The hash and the length. One product alone maps names that count up onto few places, for keys that are not lucky.
    #[inline(always)]
    fn finish(&self, mixed: u64, len: usize) -> u64 {
        fold(mixed, self.0[3]) << 8 | len as u64
    }

    /// What [`Name::hash_len`] is for a name of at most [`INLINE`] bytes, which are in `words`.
    #[inline(always)]
    pub(crate) fn hash_len(&self, words: [u64; INLINE_WORDS], len: usize) -> u64 {
        debug_assert!(len <= INLINE);
        self.finish(self.mix(words, len), len)
    }
}

/// The two halves of a product, folded.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

/// Up to eight bytes as a word, zero padded.
#[inline(always)]
pub(crate) fn tail_word(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    match n {
        0 => 0,
        8.. => u64::from_le_bytes([
            bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
        ]),
        4..8 => {
            // Two words of four bytes, which overlap.
            let low = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let high = u32::from_le_bytes([bytes[n - 4], bytes[n - 3], bytes[n - 2], bytes[n - 1]]);
            u64::from(low) | u64::from(high) << (8 * (n - 4))
        }
        _ => {
            // First, middle and last byte, which may be the same.
            u64::from(bytes[0])
                | u64::from(bytes[n / 2]) << (8 * (n / 2))
                | u64::from(bytes[n - 1]) << (8 * (n - 1))
        }
    }
}

/// The first words of a name, zero padded.
#[inline(always)]
fn first_words(bytes: &[u8]) -> [u64; INLINE_WORDS] {
    let word = |i: usize| if bytes.len() > 8 * i { tail_word(&bytes[8 * i..]) } else { 0 };
    [word(0), word(1), word(2)]
}

impl<'a> Name<'a> {
    /// A name for lookups in a kernel whose keys these are.
    ///
    /// # Errors
    /// `ENAMETOOLONG` above [`NAME_MAX`] bytes.
    #[inline(always)]
    pub(crate) fn new(bytes: &'a [u8], keys: &Keys) -> Result<Self, Errno> {
        let n = bytes.len();
        if n > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let words = first_words(bytes);
        Ok(Self { bytes, hash_len: keys.finish(keys.mix_all(bytes, words), n), words })
    }

    /// A name of less than eight bytes, which are in `word`, zero padded.
    #[inline(always)]
    pub(crate) fn short(bytes: &'a [u8], word: u64, keys: &Keys) -> Self {
        debug_assert!(bytes.len() < 8 && word == tail_word(bytes));
        let words = [word, 0, 0];
        Self { bytes, hash_len: keys.hash_len(words, bytes.len()), words }
    }

    /// The bytes.
    #[inline(always)]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The 56 bits of hash.
    #[inline(always)]
    pub(crate) fn hash(&self) -> u64 {
        self.hash_len >> 8
    }

    /// Words in the whole name.
    pub(crate) fn nr_words(&self) -> usize {
        self.bytes.len().div_ceil(8)
    }

    /// The `i`th word of the whole name, zero padded.
    #[inline(always)]
    pub(crate) fn word(&self, i: usize) -> u64 {
        tail_word(self.bytes.get(8 * i..).unwrap_or(&[]))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
