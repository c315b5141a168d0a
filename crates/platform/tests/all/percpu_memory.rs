//! The memory of per-CPU words: only copies in use take any.
#![cfg(not(any(loom, quietline_sim)))]

use crate::support::{allowed_cpus, in_child, pin};
use quietline_platform::cpu;
use quietline_platform::percpu::{Body, Sheaf, Words, active};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// CPUs that the machine may get; it has a few of them.
const POSSIBLE: usize = 1024;
/// Pages that may be touched by other parts of the process while a test looks.
const SLACK: usize = 200;

/// Returns the pages of anonymous memory that are resident: those that were written.
fn resident_pages() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    // SAFETY: sysconf reads a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024 / page
}

fn stub() -> u64 {
    Sheaf::stub().as_ptr() as u64
}

/// Words as a slab cache has them.
fn like_a_cache() -> Words<10> {
    Words::with_initial([stub(), 0, stub(), 0, 0, 0, 0, 0, 0, 0]).unwrap()
}

#[test]
fn copies_that_are_not_used_take_no_memory() {
    quietline_testing::isolated!();
    cpu::pretend_possible(POSSIBLE);
    // The first ones decide.
    let (zeros, stubs) = (Words::<8>::new().unwrap(), like_a_cache());
    assert!(zeros.cpus() >= POSSIBLE || active() == Body::Fallback);
    let before = resident_pages();
    let zeros: Vec<_> = (0..2000).map(|_| Words::<8>::new().unwrap()).chain([zeros]).collect();
    let stubs: Vec<_> = (0..2000).map(|_| like_a_cache()).chain([stubs]).collect();
    for words in &zeros {
        words.add(0, 1);
    }
    for words in &stubs {
        // SAFETY: the first word points to the stub everywhere.
        assert_eq!(unsafe { words.sheaf_pop(0) }, 0);
        words.add(9, 1);
    }
    // 2,000 lines of 64 and 2,000 of 128 bytes are 96 pages for each CPU that was used.
    let limit = before + SLACK + 100 * allowed_cpus().len();
    let used = resident_pages();
    assert!(used <= limit, "{before} to {used} pages, of {POSSIBLE} CPUs");
    // Copies that are looked at, or swept in vain, take no memory either.
    assert!(zeros.iter().all(|words| words.sum(0) == 1 && words.sum(1) == 0));
    let guard = AtomicU64::new(0);
    for words in &stubs {
        let held = words.hold_still(&guard, &mut 0, |_| {
            words.swap_all(0, stub(), |found| panic!("found {found:#x}"));
            words.swap_all(1, 0, |found| panic!("found {found:#x}"));
        });
        held.unwrap();
    }
    let swept = resident_pages();
    assert!(swept <= limit, "{before} to {used} to {swept} pages");
    // Words that are used again touch no other copy.
    drop((zeros, stubs));
    for round in 0..3 {
        let zeros: Vec<_> = (0..1000).map(|_| Words::<8>::new().unwrap()).collect();
        let stubs: Vec<_> = (0..1000).map(|_| like_a_cache()).collect();
        assert!(zeros.iter().all(|words| words.sum(0) == 0), "{round}");
        assert!(stubs.iter().all(|words| words.sum(9) == 0), "{round}");
        zeros.iter().for_each(|words| words.add(0, 1));
        stubs.iter().for_each(|words| words.add(9, 1));
    }
    let again = resident_pages();
    assert!(again <= limit, "{before} to {used} to {again} pages");
}

/// The memory of a copy is first touched by the CPU that uses it, and by no other.
#[test]
fn a_copy_is_touched_by_its_cpu() {
    quietline_testing::isolated!();
    let (zeros, stubs) = (Words::<8>::new().unwrap(), like_a_cache());
    if active() == Body::Fallback {
        eprintln!("not checked: per-CPU operations use the fallback");
        return;
    }
    let written = |word: &AtomicU64| is_written(word.as_ptr() as usize);
    for cpu in allowed_cpus() {
        assert!(!written(zeros.word(cpu, 0)) && !written(stubs.word(cpu, 0)), "CPU {cpu}");
    }
    for cpu in allowed_cpus() {
        std::thread::scope(|s| {
            s.spawn(|| {
                pin(cpu);
                zeros.add(0, 1);
                stubs.add(9, 1);
            });
        });
        for other in allowed_cpus() {
            let expected = other <= cpu;
            assert_eq!(written(zeros.word(other, 0)), expected, "CPU {other} after CPU {cpu}");
            assert_eq!(written(stubs.word(other, 0)), expected, "CPU {other} after CPU {cpu}");
        }
    }
}

/// Returns whether the page of an address has memory of its own: `/proc/self/pagemap` says that it
/// is present, and is neither a file's nor shared.
fn is_written(address: usize) -> bool {
    use std::os::unix::fs::FileExt;
    // SAFETY: sysconf reads a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let mut entry = [0; 8];
    let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    pagemap.read_exact_at(&mut entry, (address / page * 8) as u64).unwrap();
    let entry = u64::from_ne_bytes(entry);
    let (present, swapped, of_file) = (entry >> 63 & 1, entry >> 62 & 1, entry >> 61 & 1);
    present | swapped == 1 && of_file == 0
}

/// Every copy of words has its initial content, whatever was there before.
#[test]
fn words_have_their_initial_content() {
    quietline_testing::isolated!();
    let check = |words: &Words<3>, initial: [u64; 3]| {
        for cpu in 0..words.cpus() {
            let found = [0, 1, 2].map(|index| words.load(cpu, index));
            assert_eq!(found, initial, "CPU {cpu}");
        }
    };
    let spoil = |words: &Words<3>| {
        for cpu in 0..words.cpus() {
            (0..3).for_each(|index| words.word(cpu, index).store(7, Relaxed));
        }
    };
    // More than a chunk of each has, in a stride that is no power of two.
    let kinds = [[0, 0, 0], [1, 0, u64::MAX], [1, 2, 3]];
    for _round in 0..2 {
        let mut words: Vec<_> =
            (0..9000).map(|n| (Words::with_initial(kinds[n % 3]).unwrap(), kinds[n % 3])).collect();
        for (n, (words, initial)) in words.iter().enumerate() {
            check(words, *initial);
            if n % 2 == 0 {
                spoil(words);
            }
        }
        // Every second one goes, so that others come between.
        let mut n = 0;
        words.retain(|_| {
            n += 1;
            n % 2 == 0
        });
        for (words, initial) in &words {
            check(words, *initial);
        }
        for kind in kinds.into_iter().cycle().take(6000) {
            let fresh = Words::with_initial(kind).unwrap();
            check(&fresh, kind);
            spoil(&fresh);
            words.push((fresh, kind));
        }
    }
}

/// A child and its parent share pages that neither has written, and each has its own words.
#[test]
fn a_forked_child_has_words_of_its_own() {
    quietline_testing::isolated!();
    let initial = [5, 0, 6, 0, 0, 0, 0, 0];
    let keep = Words::with_initial(initial).unwrap();
    let filled = |n: usize| -> Vec<Words<8>> {
        (0..n).map(|_| Words::with_initial(initial).unwrap()).collect()
    };
    let right = |words: &[Words<8>]| {
        words.iter().all(|words| {
            (0..words.cpus()).all(|cpu| words.load(cpu, 0) == 5 && words.load(cpu, 2) == 6)
        })
    };
    for _ in 0..3 {
        in_child(60, || {
            let words = filled(500);
            assert!(right(&words));
            words.iter().for_each(|words| words.add(0, 1));
            keep.add(0, 1);
        });
        assert_eq!(keep.sum(0), 5 * keep.cpus() as u64);
        assert!(right(&filled(300)));
    }
}

/// Without files in memory, the words have their content all the same.
#[test]
fn initial_content_needs_no_file() {
    quietline_testing::isolated!();
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: reads the structure. Larger files would end this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    for _ in 0..3 {
        let words: Vec<_> = (0..3000).map(|_| Words::with_initial([1, 0, 3]).unwrap()).collect();
        for words in &words {
            for cpu in 0..words.cpus() {
                assert_eq!([0, 1, 2].map(|index| words.load(cpu, index)), [1, 0, 3]);
                words.word(cpu, 1).store(7, Relaxed);
            }
        }
    }
}
