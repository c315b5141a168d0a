//! What a function is made of.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "instructions that only assembly can place")]

use quietline_count::{Kind, locked_instructions, walk};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering, fence};

static WORD: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
fn plain(n: u64) -> u64 {
    let mut sum = 0u64;
    for i in 0..black_box(n) {
        sum = sum.wrapping_mul(31).wrapping_add(i);
    }
    WORD.store(WORD.load(Ordering::Acquire) + 1, Ordering::Release);
    sum
}

#[inline(never)]
fn locked_behind_a_branch(n: u64) -> u64 {
    if black_box(n) == 12345 {
        return WORD.fetch_add(n, Ordering::Relaxed);
    }
    n
}

#[inline(never)]
fn exchanges(n: u64) -> u64 {
    WORD.swap(n, Ordering::Relaxed)
}

#[inline(never)]
fn fences() {
    // The fence that a compiler chooses may be a locked instruction.
    fence(Ordering::SeqCst);
    // SAFETY: orders stores, touches nothing.
    unsafe { std::arch::asm!("sfence") };
}

/// Calls, perhaps as its last act, a function with a locked instruction: its own code has none.
#[inline(never)]
fn calls(n: u64) -> u64 {
    locked_behind_a_branch(n)
}

#[test]
fn plain_code_has_no_locked_instruction() {
    let shape = walk(plain as *const ());
    assert_eq!(shape.noted, []);
    assert_eq!(shape.unknown_jumps, 0);
    assert!(shape.instructions > 5, "{shape:?}");
    assert_eq!(plain(3), 31 + 2);
}

#[test]
fn branches_not_taken_are_seen() {
    let locked = locked_instructions(locked_behind_a_branch as *const ());
    assert_eq!(locked.len(), 1, "{locked:?}");
    assert!(locked[0].starts_with("lock "), "{locked:?}");
}

#[test]
fn an_exchange_with_memory_locks() {
    let locked = locked_instructions(exchanges as *const ());
    assert_eq!(locked.len(), 1, "{locked:?}");
    assert!(locked[0].starts_with("xchg "), "{locked:?}");
}

#[test]
fn fences_are_seen() {
    let shape = walk(fences as *const ());
    assert!(shape.of(Kind::Fence).contains(&"sfence"), "{shape:?}");
    assert_eq!(shape.noted.len(), 2, "{shape:?}");
}

#[test]
fn calls_are_listed_not_followed() {
    let shape = walk(calls as *const ());
    assert_eq!(shape.noted, []);
    assert!(shape.calls.iter().any(|c| c.contains("locked_behind_a_branch")), "{shape:?}");
    assert_eq!(calls(1), 1);
}
