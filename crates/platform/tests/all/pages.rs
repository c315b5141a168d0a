//! Aligned blocks of pages: where they lie, that they do not overlap, and that they go back.
#![cfg(not(loom))]

use quietline_platform::{fault, pages};
use quietline_testing::anonymous_memory;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Mutex;

const SIZES: [usize; 9] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];

fn free(block: NonNull<u8>, size: usize) {
    // SAFETY: the tests give each block back once, with its size, and do not use it afterwards.
    unsafe { pages::free(block, size) };
}

/// Writes a value of the block's own over all of it.
fn fill(block: NonNull<u8>, size: usize) {
    let word = block.as_ptr() as u64 ^ 0x5a5a;
    for i in (0..size).step_by(512) {
        // SAFETY: inside the block, which is ours.
        unsafe { block.add(i).cast::<u64>().write(word + i as u64) };
    }
}

/// Whether it still has that value everywhere.
fn is_filled(block: NonNull<u8>, size: usize) -> bool {
    let word = block.as_ptr() as u64 ^ 0x5a5a;
    // SAFETY: inside the block, which is ours.
    (0..size).step_by(512).all(|i| unsafe { block.add(i).cast::<u64>().read() } == word + i as u64)
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }
}

#[test]
fn blocks_are_aligned_and_apart() {
    quietline_testing::isolated!();
    let before = pages::usage();
    let mut blocks = BTreeMap::new();
    for size in SIZES {
        for _ in 0..if size <= 64 << 10 { 600 } else { 20 } {
            let block = pages::alloc(size).unwrap();
            assert_eq!(block.as_ptr() as usize % size, 0, "aligned to its own size");
            fill(block, size);
            assert!(blocks.insert(block.as_ptr() as usize, size).is_none());
        }
    }
    let carved: usize = blocks.values().filter(|s| **s <= 64 << 10).sum();
    let usage = pages::usage();
    assert_eq!(usage.used - before.used, carved);
    assert!(usage.mapped >= usage.used);
    let mut end = 0;
    for (&start, &size) in &blocks {
        assert!(start >= end, "two blocks overlap at {start:#x}");
        end = start + size;
        assert!(
            is_filled(NonNull::new(start as *mut u8).unwrap(), size),
            "somebody wrote into {start:#x}"
        );
    }
    for (start, size) in blocks {
        free(NonNull::new(start as *mut u8).unwrap(), size);
    }
    assert_eq!(pages::usage().used, before.used);
}

#[test]
fn freed_blocks_are_used_again() {
    quietline_testing::isolated!();
    for size in SIZES.into_iter().filter(|s| *s <= 64 << 10) {
        // The first fills what was open; then the size has a region of its own to come back to.
        let keep = pages::alloc(size).unwrap();
        let first = pages::alloc(size).unwrap();
        let mapped = pages::usage().mapped;
        free(first, size);
        for _ in 0..10_000 {
            let block = pages::alloc(size).unwrap();
            fill(block, size.min(4096));
            free(block, size);
        }
        assert!(pages::usage().mapped <= mapped, "no address space is lost");
        free(keep, size);
    }
}

#[test]
fn memory_goes_back() {
    quietline_testing::isolated!();
    const TOTAL: usize = 64 << 20;
    for size in SIZES {
        let before = anonymous_memory();
        let blocks: Vec<_> = (0..TOTAL / size).map(|_| pages::alloc(size).unwrap()).collect();
        // SAFETY: the block is ours, of that size.
        blocks.iter().for_each(|b| unsafe { b.write_bytes(1, size) });
        let full = anonymous_memory();
        assert!(full >= before + TOTAL - (1 << 20), "{size}: {before} to {full}");
        blocks.into_iter().for_each(|b| free(b, size));
        let after = anonymous_memory();
        assert!(after <= before + (4 << 20), "{size}: {before} to {full} to {after}");
    }
    let usage = pages::usage();
    assert!(usage.mapped <= 5 * (2 << 20), "one region for each size stays at most: {usage:?}");
}

#[test]
fn any_order_will_do() {
    quietline_testing::isolated!();
    let before = pages::usage();
    let mut random = Random(7);
    let mut blocks = Vec::new();
    for step in 0..60_000 {
        // Grow and shrink in waves, over several regions.
        if random.below(100) < if step / 10_000 % 2 == 0 { 55 } else { 45 } || blocks.is_empty() {
            let size = SIZES[random.below(5)];
            let block = pages::alloc(size).unwrap();
            fill(block, 512);
            blocks.push((block, size));
        } else {
            let (block, size) = blocks.swap_remove(random.below(blocks.len()));
            assert!(is_filled(block, 512));
            free(block, size);
        }
    }
    blocks.into_iter().for_each(|(block, size)| free(block, size));
    assert_eq!(pages::usage().used, before.used);
}

#[test]
fn threads_share() {
    quietline_testing::isolated!();
    let before = pages::usage();
    // Blocks go from thread to thread: most are given back by another one.
    let exchange = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for seed in 1..=8 {
            let exchange = &exchange;
            s.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..4000 {
                    let size = SIZES[random.below(6)];
                    let block = pages::alloc(size).unwrap();
                    fill(block, 1024);
                    let other = {
                        let mut exchange = exchange.lock().unwrap();
                        exchange.push((block.as_ptr() as usize, size));
                        (exchange.len() > 100).then(|| {
                            let i = random.below(exchange.len());
                            exchange.swap_remove(i)
                        })
                    };
                    if let Some((start, size)) = other {
                        let block = NonNull::new(start as *mut u8).unwrap();
                        assert!(is_filled(block, 1024));
                        free(block, size);
                    }
                }
            });
        }
    });
    for (start, size) in exchange.into_inner().unwrap() {
        free(NonNull::new(start as *mut u8).unwrap(), size);
    }
    assert_eq!(pages::usage().used, before.used);
}

#[test]
fn the_nth_allocation_fails() {
    quietline_testing::isolated!();
    for nth in 1..=5 {
        fault::fail_nth(nth);
        let results: Vec<_> = (0..5).map(|_| pages::alloc(8192)).collect();
        for (i, result) in results.into_iter().enumerate() {
            assert_eq!(result.is_err(), i as u64 + 1 == nth);
            result.into_iter().for_each(|block| free(block, 8192));
        }
        assert!(!fault::armed());
    }
}

#[test]
fn refusal_by_the_system_is_an_error() {
    quietline_testing::isolated!();
    // More than any address space has.
    assert!(pages::alloc(1 << 62).is_err());
    assert!(pages::alloc(1 << 47).is_err());
    free(pages::alloc(1 << 20).unwrap(), 1 << 20);
}

#[test]
fn odd_sizes_are_a_mistake() {
    quietline_testing::isolated!();
    for size in [0, 1, 2048, 4097, 12288] {
        assert!(std::panic::catch_unwind(|| pages::alloc(size)).is_err(), "{size}");
    }
}
