//! Every length and alignment, against slices.

use super::words;

type Copy = unsafe fn(*const u8, *mut u8, usize);
type Zero = unsafe fn(*mut u8, usize);

#[repr(align(64))]
struct Bytes([u8; 1024]);

fn pattern(seed: usize) -> Bytes {
    Bytes(core::array::from_fn(|i| (i * 7 + seed * 31 + i / 256) as u8))
}

/// Copies of `n` bytes leave exactly those changed.
fn check(copy: Copy, n: usize, from: usize, to: usize) {
    let source = pattern(1);
    let (mut got, mut expect) = (pattern(2), pattern(2));
    expect.0[to..to + n].copy_from_slice(&source.0[from..from + n]);
    // SAFETY: both lie inside their arrays, with a word on each side.
    unsafe { copy(source.0.as_ptr().add(from), got.0.as_mut_ptr().add(to), n) };
    assert!(got.0 == expect.0, "{n} bytes from {from} to {to}");
}

#[test]
fn copies_are_exact() {
    let mut ways: Vec<Copy> = vec![super::copy_out, super::copy_in, super::copy_over];
    ways.extend([words::copy_out as Copy, words::copy_in, words::copy_over]);
    #[cfg(all(target_arch = "x86_64", not(any(quietline_sim, miri))))]
    ways.push(super::moves::tests::narrow);
    for copy in ways {
        for n in (0..=300).chain([383, 384, 385, 511, 512, 513, 600]) {
            for (from, to) in [(64, 64), (65, 64), (64, 67), (71, 69), (72, 80), (79, 127)] {
                check(copy, n, from, to);
            }
        }
    }
}

#[test]
fn zeroes_are_exact() {
    for zero in [super::zero as Zero, words::zero] {
        for n in 0..=300 {
            for to in [64, 65, 71, 72, 127] {
                let (mut got, mut expect) = (pattern(2), pattern(2));
                expect.0[to..to + n].fill(0);
                // SAFETY: inside the array, with a word on each side.
                unsafe { zero(got.0.as_mut_ptr().add(to), n) };
                assert!(got.0 == expect.0, "{n} bytes at {to}");
            }
        }
    }
}
