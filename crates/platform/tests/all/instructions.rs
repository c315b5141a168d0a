//! What the per-CPU operations are made of, and what they execute: no locked instruction, no fence, no system call.
#![cfg(all(target_arch = "x86_64", not(any(loom, quietline_sim))))]

use quietline_count::{Counts, Error, count, walk};
use quietline_platform::percpu::{Body, OwnedSheaf, Sheaf, Words, active};
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The operations as a caller's compiler sees them: inlined, with arguments that it does not know.
mod shim {
    use super::*;

    /// Words for the shims. 0: counter, 3: sheaf, 4: ids and a list, 5: selected, 6: selected
    pub(super) type W = Words<7>;

    #[inline(never)]
    pub(super) fn add(w: &W, v: u64) {
        w.add(0, v)
    }
    #[inline(never)]
    pub(super) fn add_within(w: &W, v: i64, bound: i64) -> bool {
        w.add_within(0, v, bound)
    }
    #[inline(never)]
    pub(super) fn increment_unless(w: &W, mask: u64) -> Option<u64> {
        w.increment_unless(4, mask)
    }
    #[inline(never)]
    pub(super) fn swap(w: &W, new: u64) -> u64 {
        w.swap(4, new)
    }
    #[inline(never)]
    pub(super) fn swap_unless(w: &W, guard: &AtomicU64, new: u64) -> Option<u64> {
        w.swap_unless(4, guard, new)
    }
    #[inline(never)]
    pub(super) fn increment_selected(w: &W, selector: &AtomicU64) -> usize {
        // SAFETY: the tests' selectors hold 5 or 6.
        unsafe { w.increment_selected(selector) }
    }
    #[inline(never)]
    pub(super) fn list_push_selected(w: &W, selector: &AtomicU64, node: NonNull<AtomicU64>) {
        // SAFETY: the tests' nodes are their own to give; the selector holds 4.
        unsafe { w.list_push_selected(selector, node) }
    }
    #[inline(never)]
    pub(super) fn sheaf_pop(w: &W) -> usize {
        // SAFETY: the tests' words point to sheaves that outlive them; so below.
        unsafe { w.sheaf_pop(3) }
    }
    #[inline(never)]
    pub(super) fn sheaf_push(w: &W, value: usize) -> bool {
        // SAFETY: as in `sheaf_pop`.
        unsafe { w.sheaf_push(3, value) }
    }
    #[inline(never)]
    pub(super) fn sheaf_pop_many(w: &W, dst: &mut [usize]) -> usize {
        // SAFETY: as in `sheaf_pop`; the slice has room for its length.
        unsafe { w.sheaf_pop_many(3, dst.as_mut_ptr(), dst.len()) }
    }
    #[inline(never)]
    pub(super) fn sheaf_push_many(w: &W, src: &[usize]) -> Option<usize> {
        // SAFETY: as in `sheaf_pop`; the slice holds its length.
        unsafe { w.sheaf_push_many(3, src.as_ptr(), src.len()) }
    }
    #[inline(never)]
    pub(super) fn sheaf_replace(
        w: &W,
        guard: &AtomicU64,
        new: NonNull<Sheaf>,
        full: bool,
    ) -> Option<NonNull<Sheaf>> {
        // SAFETY: as in `sheaf_pop`.
        unsafe { w.sheaf_replace(3, guard, new, full) }
    }
}

#[test]
fn the_operations_are_made_of_plain_instructions() {
    let shims = [
        ("add", shim::add as *const ()),
        ("add_within", shim::add_within as *const ()),
        ("increment_unless", shim::increment_unless as *const ()),
        ("swap", shim::swap as *const ()),
        ("swap_unless", shim::swap_unless as *const ()),
        ("increment_selected", shim::increment_selected as *const ()),
        ("list_push_selected", shim::list_push_selected as *const ()),
        ("sheaf_pop", shim::sheaf_pop as *const ()),
        ("sheaf_push", shim::sheaf_push as *const ()),
        ("sheaf_pop_many", shim::sheaf_pop_many as *const ()),
        ("sheaf_push_many", shim::sheaf_push_many as *const ()),
        ("sheaf_replace", shim::sheaf_replace as *const ()),
    ];
    for (name, shim) in shims {
        let shape = walk(shim);
        assert_eq!(shape.noted, [], "{name}: {shape:?}");
        assert_eq!(shape.unknown_jumps, 0, "{name}: {shape:?}");
        // One call, out of line: threads that the C library did not register.
        assert!(
            shape.calls.iter().all(|c| c.contains("on_own_area_slow")) && shape.calls.len() == 1,
            "{name}: {shape:?}"
        );
        assert!((8..200).contains(&shape.instructions), "{name}: {shape:?}");
    }
}

#[test]
fn the_fallback_is_where_the_locked_instructions_are() {
    quietline_testing::isolated!();
    let words = shim::W::new().unwrap();
    if active() != Body::Fallback {
        eprintln!("not checked: per-CPU operations do not use the fallback");
        return;
    }
    if let Some(counts) = counted("add, fallback", || shim::add(&words, 1)) {
        assert_eq!((counts.locked, counts.fences), (1, 0), "{counts}");
    }
}

/// The counts, or none, said aloud, on a system that does not let us trace; a failure there, where
/// `QUIETLINE_REQUIRE_COUNTS` is 1.
fn counted(name: &str, f: impl FnMut()) -> Option<Counts> {
    match count(f) {
        Ok(counts) => {
            println!("{name}: {counts}");
            Some(counts)
        }
        Err(Error::Refused(e)) => {
            let required = std::env::var_os("QUIETLINE_REQUIRE_COUNTS").is_some_and(|v| v == "1");
            assert!(!required, "counting is required here, but this system refuses to trace: {e}");
            eprintln!("not checked: this system refuses to trace: {e}");
            None
        }
        Err(e) => panic!("{name}: {e}"),
    }
}

#[test]
fn a_hit_executes_no_locked_instruction() {
    quietline_testing::isolated!();
    let words = shim::W::with_initial([0, 0, 0, 0, 1, 0, 0]).unwrap();
    if active() != Body::Rseq {
        eprintln!("not checked: per-CPU operations use the fallback");
        return;
    }
    let sheaves: Vec<_> =
        (0..words.cpus()).map(|_| OwnedSheaf::new(64).unwrap().into_raw()).collect();
    for (cpu, sheaf) in sheaves.iter().enumerate() {
        words.word(cpu, 3).store(sheaf.as_ptr() as u64, std::sync::atomic::Ordering::Relaxed);
    }
    let (words, selector, node) = (&words, AtomicU64::new(5), AtomicU64::new(0));
    let guard = AtomicU64::new(0);
    let (node, list) = (NonNull::from(&node), AtomicU64::new(4));
    type Operation<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let operations: [Operation; 10] = [
        ("nothing", Box::new(|| {})),
        ("add", Box::new(|| shim::add(words, 1))),
        ("add_within", Box::new(|| assert!(shim::add_within(words, 1, 10)))),
        ("increment_unless", Box::new(|| assert!(shim::increment_unless(words, 1023).is_some()))),
        (
            "increment_selected",
            Box::new(|| assert_eq!(shim::increment_selected(words, &selector), 5)),
        ),
        (
            "list_push_selected, swap",
            Box::new(|| {
                shim::list_push_selected(words, &list, node);
                assert_eq!(shim::swap(words, 1), node.as_ptr() as u64);
            }),
        ),
        (
            "sheaf_push, sheaf_pop",
            Box::new(|| {
                assert!(shim::sheaf_push(words, 77));
                assert_eq!(shim::sheaf_pop(words), 77);
            }),
        ),
        ("sheaf_pop of none", Box::new(|| assert_eq!(shim::sheaf_pop(words), 0))),
        (
            "sheaf_push_many, sheaf_pop_many of 32",
            Box::new(|| {
                let mut values = [7usize; 32];
                assert_eq!(shim::sheaf_push_many(words, black_box(&values)), Some(32));
                assert_eq!(shim::sheaf_pop_many(words, &mut values), 32);
            }),
        ),
        (
            "sheaf_replace refused",
            Box::new(|| assert_eq!(shim::sheaf_replace(words, &guard, Sheaf::stub(), true), None)),
        ),
    ];
    for (name, operation) in &operations {
        let Some(counts) = counted(name, operation) else { return };
        assert_eq!((counts.locked, counts.fences, counts.syscalls), (0, 0, 0), "{name}: {counts}");
        assert!(counts.instructions < 400, "{name}: {counts}");
    }
    drop(operations);
    // SAFETY: the words are not used any more; each sheaf is behind one word and in the vector once.
    sheaves.into_iter().for_each(|s| drop(unsafe { OwnedSheaf::from_raw(s) }));
}
