//! A bulk operation inside code for wide registers leaves them as they are.
#![cfg(all(not(loom), target_arch = "x86_64"))]

use quietline_slab::{Entry, Options, RawCache};
use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_set1_epi64x, _mm256_storeu_si256,
};
use std::hint::black_box;

const REGISTERS: usize = 12;
const LANES: usize = 4 * REGISTERS;

/// Adds one to each lane, and keeps them all in registers across the operations.
#[target_feature(enable = "avx2")]
#[inline(never)]
unsafe fn add_one(cache: &RawCache, objects: &mut [Entry], lanes: &[i64; LANES]) -> [i64; LANES] {
    let source = lanes.as_ptr().cast::<__m256i>();
    let mut sums = [_mm256_set1_epi64x(1); REGISTERS];
    for (i, sum) in sums.iter_mut().enumerate() {
        // SAFETY: inside the array.
        *sum = _mm256_add_epi64(*sum, unsafe { _mm256_loadu_si256(source.add(i)) });
    }
    cache.alloc_bulk(objects).unwrap();
    // SAFETY: allocated above, each once.
    unsafe { cache.free_bulk(objects) };
    let mut out = [0i64; LANES];
    for (i, sum) in sums.iter().enumerate() {
        // SAFETY: inside the array.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast::<__m256i>().add(i), *sum) };
    }
    out
}

#[test]
fn live_registers_survive() {
    if !std::arch::is_x86_feature_detected!("avx2") {
        eprintln!("not checked: no wide registers here");
        return;
    }
    let cache = RawCache::new(Options::new("wide", 64, 8)).unwrap();
    // So that the bulk below is served by a sheaf.
    let mut warm = [None; 300];
    cache.alloc_bulk(&mut warm).unwrap();
    // SAFETY: allocated above, each once.
    unsafe { cache.free_bulk(&mut warm) };
    let lanes: [i64; LANES] = core::array::from_fn(|i| 100 + i as i64);
    let mut objects = [None; 32];
    // SAFETY: the feature is there.
    let out = unsafe { add_one(&cache, black_box(&mut objects), black_box(&lanes)) };
    assert_eq!(out, lanes.map(|lane| lane + 1));
}
