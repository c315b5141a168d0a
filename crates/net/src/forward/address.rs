//! Addresses as keys of tables.

use core::fmt::{Debug, Display};
use core::hash::Hash;
use core::net::{Ipv4Addr, Ipv6Addr};

/// An address of one of the two families. Not to be implemented elsewhere.
pub trait Address: Sealed {}

impl Address for Ipv4Addr {}
impl Address for Ipv6Addr {}

/// What tables need of an address: its bits, the first one on the left.
pub trait Sealed: Copy + Eq + Ord + Hash + Debug + Display + Send + Sync + 'static {
    /// Bits of an address.
    const WIDTH: u32;
    /// Bits that a step of the routes' table looks at after the first.
    const STRIDE: u32;
    /// The address of which no bit is set.
    const ZERO: Self;

    /// `n` bits from bit `at` on, which is one of an address.
    fn bits_at(self, at: u32, n: u32) -> usize;
    /// With `n` bits from `at` on, which are zero, set to a value.
    fn with_bits(self, at: u32, n: u32, bits: usize) -> Self;
    /// The first `len` bits, the others zero.
    fn prefix(self, len: u32) -> Self;
    /// Whether the first `len` bits, of which there is one at least, are the same.
    fn begins_with(self, prefix: Self, len: u32) -> bool;
    /// As words, the first four bytes in the first.
    fn to_words(self) -> [u32; 4];
    /// From [such](Self::to_words): `word` gives one; those that an address of the family has not are not asked for.
    fn from_words(word: impl Fn(usize) -> u32) -> Self;
}

macro_rules! address {
    ($address:ty, $bits:ty, $wide:ty, $stride:literal, $zero:expr, $to:expr) => {
        impl Sealed for $address {
            const WIDTH: u32 = <$bits>::BITS;
            const STRIDE: u32 = $stride;
            const ZERO: Self = $zero;

            #[inline(always)]
            fn bits_at(self, at: u32, n: u32) -> usize {
                (self.to_bits().wrapping_shl(at) >> (Self::WIDTH - n)) as usize
            }

            fn with_bits(self, at: u32, n: u32, bits: usize) -> Self {
                Self::from_bits(self.to_bits() | (bits as $bits) << (Self::WIDTH - at - n))
            }

            #[inline(always)]
            fn prefix(self, len: u32) -> Self {
                // (A shift by the whole width is not one.)
                let kept = (<$bits>::MAX).checked_shl(Self::WIDTH - len).unwrap_or(0);
                Self::from_bits(self.to_bits() & kept)
            }

            #[inline(always)]
            fn begins_with(self, prefix: Self, len: u32) -> bool {
                let differ = <$wide>::from(self.to_bits() ^ prefix.to_bits());
                differ.wrapping_shr(Self::WIDTH.wrapping_sub(len)) == 0
            }

            #[inline(always)]
            fn to_words(self) -> [u32; 4] {
                $to(self.to_bits())
            }

            #[inline(always)]
            fn from_words(word: impl Fn(usize) -> u32) -> Self {
                let words = 0..size_of::<Self>() / size_of::<u32>();
                Self::from_bits(
                    words.fold(0, |bits, i| {
                        <$bits>::unbounded_shl(bits, 32) | <$bits>::from(word(i))
                    }),
                )
            }
        }
    };
}

address!(Ipv4Addr, u32, u64, 8, Self::UNSPECIFIED, |bits| [bits, 0, 0, 0]);
address!(Ipv6Addr, u128, u128, 4, Self::UNSPECIFIED, |bits: u128| [96, 64, 32, 0]
    .map(|low| (bits >> low) as u32));
