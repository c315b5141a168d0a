//! A few items in one word: their numbers, in the order in which they came.
//!
//! ```text
//!   byte   7    6    5    4    3    2    1    0
//!          0    0    0    0    9   12    5    1      items 5, 12 and 9 of the poller are ready, first come first
//! ```
//!
//! The lowest bit tells such a word from a pointer, which is even, and from null, which is nobody. An item has one byte at most:
//! a second wake-up finds it there.

use super::ready::Link;
use core::num::NonZeroU8;
use core::ptr;

/// What every such word has.
const FEW: usize = 1;
/// A one in each byte.
const ONES: usize = usize::MAX / 0xff;
/// The highest bit of each byte.
const TOPS: usize = ONES << 7;
/// Numbers that fit; in the model fewer, so that it meets those that do not.
const MOST: u32 = if cfg!(loom) { 1 } else { (usize::BITS / 8) - 1 };

/// Whether the word is null or has numbers; else it is a pointer.
#[inline(always)]
pub(super) fn is_few(word: *mut Link) -> bool {
    word.is_null() || word.addr() & FEW != 0
}

/// The word of one number.
#[inline(always)]
pub(super) fn one(number: NonZeroU8) -> *mut Link {
    ptr::without_provenance_mut(FEW | usize::from(number.get()) << 8)
}

/// Whether the number is in a word that is not a pointer.
#[inline(always)]
pub(super) fn has(word: *mut Link, number: NonZeroU8) -> bool {
    // A byte of this is zero where the number is; the highest is none's.
    let same = (word.addr() >> 8) ^ (ONES * usize::from(number.get()));
    same.wrapping_sub(ONES) & !same & TOPS != 0
}

/// The word with this number behind the others, or as it is if the number is there; none if there is no room, or if the
/// word is a pointer.
#[inline(always)]
pub(super) fn with(word: *mut Link, number: NonZeroU8) -> Option<*mut Link> {
    if !is_few(word) {
        return None;
    }
    if has(word, number) {
        return Some(word);
    }
    let few = word.addr() | FEW;
    let bytes = (usize::BITS - few.leading_zeros()).div_ceil(8);
    (bytes <= MOST)
        .then(|| ptr::without_provenance_mut(few | usize::from(number.get()) << (8 * bytes)))
}

/// Calls `each` with the numbers of a word that is not a pointer, first come first.
#[inline(always)]
pub(super) fn each(word: *mut Link, mut each: impl FnMut(NonZeroU8)) {
    let mut rest = word.addr() >> 8;
    while let Some(number) = NonZeroU8::new(rest as u8) {
        each(number);
        rest >>= 8;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn numbers(word: *mut Link) -> Vec<u8> {
        let mut numbers = Vec::new();
        each(word, |number| numbers.push(number.get()));
        numbers
    }

    fn put(word: *mut Link, number: u8) -> Option<*mut Link> {
        with(word, NonZeroU8::new(number).unwrap())
    }

    /// Every number, beside every other one: each is kept once, in the order of the first time.
    #[test]
    fn keeps_numbers_in_order() {
        for first in 1..=u8::MAX {
            for second in 1..=u8::MAX {
                let word = put(put(ptr::null_mut(), first).unwrap(), second).unwrap();
                let both = if first == second { vec![first] } else { vec![first, second] };
                assert_eq!(numbers(word), both);
                assert_eq!(put(word, first), Some(word));
                assert_eq!(put(word, second), Some(word));
                assert!(is_few(word));
                assert_eq!(put(ptr::null_mut(), first), Some(one(NonZeroU8::new(first).unwrap())));
            }
        }
    }

    #[test]
    fn takes_as_many_as_fit() {
        let most = MOST as u8;
        let full = (1..=most).fold(ptr::null_mut(), |word, number| put(word, number).unwrap());
        assert_eq!(numbers(full), (1..=most).collect::<Vec<_>>());
        assert_eq!(put(full, most + 1), None);
        assert_eq!(put(full, u8::MAX), None);
        for number in 1..=most {
            assert_eq!(put(full, number), Some(full), "it is there already");
        }
    }

    #[test]
    fn tells_pointers() {
        let link = Link::new();
        let pointer = ptr::from_ref(&link).cast_mut();
        assert!(!is_few(pointer));
        assert_eq!(put(pointer, 1), None);
        assert!(is_few(ptr::null_mut()));
        assert!(numbers(ptr::null_mut()).is_empty());
    }
}
