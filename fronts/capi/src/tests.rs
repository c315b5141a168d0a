//! What C tests cannot reach.

use crate::inline::{QL_INLINE_CAPACITY, QL_INLINE_CPU_SHIFT, QL_INLINE_SLOTS};
use quietline_platform::percpu::{OwnedSheaf, Words};

#[test]
fn sheaves_lie_as_the_inline_header_says() {
    let mut sheaf = OwnedSheaf::new(5).unwrap();
    for value in [0x1111, 0x2222, 0x3333] {
        assert!(sheaf.push(value));
    }
    let raw = sheaf.into_raw();
    let word = |offset: usize| {
        // SAFETY: inside the sheaf, which nobody else has.
        unsafe { raw.as_ptr().cast::<u8>().add(offset).cast::<usize>().read() }
    };
    assert_eq!((word(0), word(QL_INLINE_CAPACITY)), (3, 5));
    assert_eq!([0, 8, 16].map(|i| word(QL_INLINE_SLOTS + i)), [0x1111, 0x2222, 0x3333]);
    // SAFETY: given up above.
    drop(unsafe { OwnedSheaf::from_raw(raw) });
}

#[test]
fn words_lie_as_the_inline_header_says() {
    let words = Words::<2>::new().unwrap();
    for cpu in 0..words.cpus() {
        let expected = words.base().as_ptr() as usize + (cpu << QL_INLINE_CPU_SHIFT);
        assert_eq!(words.word(cpu, 0) as *const _ as usize, expected);
    }
}
