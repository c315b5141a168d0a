//! What a run executes.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "instructions that only assembly can place")]

use quietline_count::{Counts, Error, count, count_operations, run_reproducibly};
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
    quietline_testing::isolated!();
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
            .any(|f| f.line.as_ref().is_some_and(|(file, _)| file.ends_with("tests/all/count.rs")))
    };
    assert!(counts.locked_at.iter().all(here), "each site knows its place: {counts}");
}

#[test]
fn plain_code_is_none() {
    quietline_testing::isolated!();
    let Some(counts) = counted(|| WORD.store(black_box(7), Ordering::Release)) else { return };
    assert_eq!((counts.locked, counts.fences, counts.syscalls), (0, 0, 0), "{counts}");
    assert_eq!(WORD.load(Ordering::Relaxed) & 7, 0, "what the child stored stays in the child");
}

#[test]
fn loops_calls_and_the_c_library_are_followed() {
    quietline_testing::isolated!();
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
    quietline_testing::isolated!();
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
    quietline_testing::isolated!();
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
    quietline_testing::isolated!();
    match count(|| panic!("number {}", black_box(5))) {
        Err(Error::Panicked(message)) => assert!(message.starts_with("number 5 at "), "{message}"),
        Err(Error::Refused(e)) => eprintln!("not checked: this system refuses to trace: {e}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_child_that_dies_is_told() {
    quietline_testing::isolated!();
    match count(|| std::process::abort()) {
        Err(Error::Lost(_)) => {}
        Err(Error::Refused(e)) => eprintln!("not checked: this system refuses to trace: {e}"),
        other => panic!("{other:?}"),
    }
}

/// The counts of three operations, or none on a system that does not let us trace.
fn three<F: FnMut()>(prepare: impl FnOnce() -> F) -> Option<Vec<Counts>> {
    match count_operations(prepare, 10, |counts| counts.len() == 3) {
        Ok(counts) => Some(counts),
        Err(Error::Refused(e)) => {
            eprintln!("not checked: this system refuses to trace: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn operations_are_counted_one_by_one() {
    quietline_testing::isolated!();
    let operation = || {
        let mut rounds = 0;
        // Behind a pointer, as the ledger's operations: the compiler cannot merge it with the loop
        // that calls it.
        let boxed: Box<dyn FnMut()> = Box::new(move || {
            rounds += 1;
            // After 10 to warm up, the second of three.
            let times = if black_box(rounds) == 12 { 5 } else { 1 };
            (0..times).for_each(|_| {
                black_box(WORD.fetch_add(1, Ordering::Relaxed));
            });
        });
        boxed
    };
    let Some(counts) = three(operation) else { return };
    assert_eq!(counts.iter().map(|c| c.own.locked).collect::<Vec<_>>(), [1, 5, 1]);
    assert_eq!(counts[0].own.instructions, counts[2].own.instructions);
    assert!(counts[1].own.instructions > counts[0].own.instructions);
}

#[test]
fn library_calls_are_counted_apart_with_the_bytes_that_they_request() {
    quietline_testing::isolated!();
    let operation = || {
        || {
            black_box(vec![1_u8; black_box(100)]);
            black_box(std::process::id());
        }
    };
    let Some(counts) = three(operation) else { return };
    let own = &counts[0].own;
    assert_eq!(own.bytes_requested, 100);
    // malloc, free and getpid; memset, unless the compiler knows better.
    assert!((3..=4).contains(&own.library_calls), "{own:?}");
    assert_eq!(own.instructions, counts[0].instructions, "library code is not stepped through");
    assert_eq!((counts[0].syscalls, counts[0].syscalls_at[0].text.as_str()), (1, "syscall 39"));
    assert_eq!(own.profile.values().sum::<u64>(), own.instructions);
    let functions = own.by_function();
    assert_eq!(functions.iter().map(|(_, n)| n).sum::<u64>(), own.instructions);
    assert!(functions.iter().any(|(name, _)| name.contains("alloc")), "{functions:?}");
}

#[test]
fn clocks_and_random_numbers_do_not_depend_on_the_run() {
    quietline_testing::isolated!();
    let operation = || {
        // A map's hasher has random keys.
        let keys = std::collections::HashMap::from([("key", 0)]);
        let start = std::time::Instant::now();
        move || {
            let nanoseconds = black_box(start.elapsed()).as_nanos();
            assert!(nanoseconds.is_multiple_of(1_000) && nanoseconds < 1_000_000);
            black_box(keys.get(black_box("key")));
        }
    };
    let Some(counts) = three(operation) else { return };
    assert_eq!(counts[0].syscalls, 0);
    assert_eq!(counts[0].own.library_calls, 2, "the clock and memcmp");
    assert_eq!(Some(counts), three(operation));
}

#[test]
fn a_panic_while_the_operation_is_prepared_is_told() {
    quietline_testing::isolated!();
    let prepare = || {
        assert!(black_box(false), "no operation");
        || ()
    };
    match count_operations(prepare, 0, |_| true) {
        Err(Error::Panicked(message)) => {
            assert!(message.starts_with("no operation at "), "{message}")
        }
        Err(Error::Refused(e)) => eprintln!("not checked: this system refuses to trace: {e}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_has_the_same_clock_and_random_numbers_as_another() {
    quietline_testing::isolated!();
    use std::io::{Read, Write};
    let run = || {
        let (mut said, mut says) = std::io::pipe().unwrap();
        let result = run_reproducibly(|| {
            let mut random = [0_u8; 21];
            // SAFETY: writes the bytes of the array.
            let n = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
            assert!(n == 21 && random[20] != 0 && random[..8] != random[8..16]);
            let now = std::time::SystemTime::now();
            writeln!(says, "{random:?} {now:?}").unwrap();
        });
        drop(says);
        let mut text = String::new();
        said.read_to_string(&mut text).unwrap();
        result.map(|()| text)
    };
    match [run(), run()] {
        [Ok(one), Ok(two)] => assert!(one.len() > 20 && one == two, "{one}{two}"),
        [Err(Error::Refused(e)), _] => {
            eprintln!("not checked: this system refuses to trace: {e}")
        }
        other => panic!("{other:?}"),
    }
}
