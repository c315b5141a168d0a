//! What a run executes.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "instructions that only assembly can place")]

use quietline_count::{Counts, Error, count};
use std::arch::asm;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

static WORD: AtomicU64 = AtomicU64::new(0);

/// The counts, or none, said aloud, on a system that does not let us trace.
fn counted(f: impl FnMut()) -> Option<Counts> {
    match count(f) {
        Ok(counts) => Some(counts),
        Err(Error::Refused(e)) => {
            eprintln!("not checked: this system refuses to trace: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_pair_of_locked_additions_is_two() {
    let Some(counts) = counted(|| {
        WORD.fetch_add(1, Ordering::Relaxed);
        WORD.fetch_sub(1, Ordering::Relaxed);
    }) else {
        return;
    };
    assert_eq!((counts.locked, counts.fences, counts.syscalls), (2, 0, 0), "{counts}");
    assert_eq!(counts.locked_at.iter().map(|s| s.times).sum::<u64>(), 2);
    let here = |s: &quietline_count::Site| {
        s.frames
            .iter()
            .any(|f| f.line.as_ref().is_some_and(|(file, _)| file.ends_with("tests/count.rs")))
    };
    assert!(counts.locked_at.iter().all(here), "each site knows its place: {counts}");
}

#[test]
fn plain_code_is_none() {
    let Some(counts) = counted(|| WORD.store(black_box(7), Ordering::Release)) else { return };
    assert_eq!((counts.locked, counts.fences, counts.syscalls), (0, 0, 0), "{counts}");
    assert_eq!(WORD.load(Ordering::Relaxed) & 7, 0, "what the child stored stays in the child");
}

#[test]
fn loops_calls_and_the_c_library_are_followed() {
    let Some(counts) = counted(|| {
        for _ in 0..10 {
            WORD.fetch_add(1, Ordering::Relaxed);
            black_box(std::process::id());
        }
    }) else {
        return;
    };
    assert_eq!((counts.locked, counts.syscalls), (10, 10), "{counts}");
    assert_eq!(counts.syscalls_at[0].times, 10);
    assert_eq!(counts.syscalls_at[0].text, "syscall 39", "getpid");
}

#[test]
fn fences_and_exchanges() {
    let Some(counts) = counted(|| {
        // SAFETY: fences touch nothing; the exchange is with a word of our own.
        unsafe {
            asm!("mfence", "lfence", "sfence", "xchg [{}], {}", in(reg) &mut 0u64, inout(reg) 1u64 => _)
        };
    }) else {
        return;
    };
    assert_eq!((counts.fences, counts.locked), (3, 1), "{counts}");
}

#[test]
fn instructions_are_counted_one_by_one() {
    let Some(empty) = counted(|| {}) else { return };
    assert!(empty.instructions < 12, "calling a closure and coming back: {empty}");
    // SAFETY: does nothing; so below.
    let one = counted(|| unsafe { asm!(".rept 1000", "nop", ".endr") }).unwrap();
    // SAFETY: as above.
    let two = counted(|| unsafe { asm!(".rept 2000", "nop", ".endr") }).unwrap();
    assert!(one.instructions < 1012, "{one}");
    assert_eq!(two.instructions, one.instructions + 1000);
    let repeated = counted(|| {
        let (from, mut to) = ([7u8; 100], [0u8; 100]);
        // SAFETY: copies 100 bytes between arrays of 100.
        unsafe {
            asm!("rep movsb", inout("rcx") 100usize => _, inout("rsi") from.as_ptr() => _, inout("rdi") to.as_mut_ptr() => _)
        };
        black_box(to);
    });
    assert!(repeated.unwrap().instructions < 100, "a repeated instruction counts once");
}

#[test]
fn a_panic_is_told() {
    match count(|| panic!("number {}", black_box(5))) {
        Err(Error::Panicked(message)) => assert!(message.starts_with("number 5 at "), "{message}"),
        Err(Error::Refused(e)) => eprintln!("not checked: this system refuses to trace: {e}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_child_that_dies_is_told() {
    match count(|| std::process::abort()) {
        Err(Error::Lost(_)) => {}
        Err(Error::Refused(e)) => eprintln!("not checked: this system refuses to trace: {e}"),
        other => panic!("{other:?}"),
    }
}
