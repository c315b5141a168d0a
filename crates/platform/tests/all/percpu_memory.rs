//! The memory of per-CPU words: only copies in use take any.
#![cfg(not(any(loom, quietline_sim)))]

use crate::support::{Mapping, allowed_cpus, in_child, mappings, pin};
use quietline_platform::percpu::{Body, Sheaf, Words, active};
use quietline_platform::{cpu, fault};
use std::ops::Range;
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

/// Writes every copy of words, and checks that each had its initial content before.
fn use_all_copies<const N: usize>(words: &Words<N>, initial: [u64; N]) {
    for cpu in 0..words.cpus() {
        let found: [u64; N] = std::array::from_fn(|index| words.load(cpu, index));
        assert_eq!(found, initial, "CPU {cpu}");
        (0..N).for_each(|index| words.word(cpu, index).store(7, Relaxed));
    }
}

/// Locked memory: the system makes the copies of all CPUs at once, by pretended writes.
#[test]
fn locked_copies_have_their_initial_content() {
    quietline_testing::isolated!();
    let initial = [stub(), 1, stub(), 0, 0, 0, 0, 0];
    let make = || -> Words<8> { Words::with_initial(initial).unwrap() };
    let first = make();
    for cpu in 0..first.cpus() {
        let unit = first.word(cpu, 0).as_ptr() as usize & !0xffff;
        // SAFETY: the unit is mapped. The call changes no content.
        let locked = unsafe { libc::mlock(unit as *const libc::c_void, 1 << 16) };
        assert_eq!(locked, 0, "{}", std::io::Error::last_os_error());
    }
    let words: Vec<_> = (0..1000).map(|_| make()).collect();
    words.iter().for_each(|words| use_all_copies(words, initial));
    use_all_copies(&first, initial);
}

/// As above, by `mlockall` before and after the first words.
#[test]
fn a_program_that_locks_all_its_memory_has_right_words() {
    for flags in [libc::MCL_CURRENT, libc::MCL_CURRENT | libc::MCL_FUTURE, libc::MCL_FUTURE] {
        for locked_first in [false, true] {
            in_child(60, || {
                let initial = [stub(), 1, stub(), 0, flags as u64, locked_first as u64, 0, 0];
                let lock = || {
                    // SAFETY: changes no content.
                    let locked = unsafe { libc::mlockall(flags) } == 0;
                    if !locked {
                        eprintln!("not checked: {}", std::io::Error::last_os_error());
                    }
                    locked
                };
                if locked_first && !lock() {
                    return;
                }
                let first = Words::with_initial(initial).unwrap();
                if !locked_first && !lock() {
                    return;
                }
                let words: Vec<_> =
                    (0..1000).map(|_| Words::with_initial(initial).unwrap()).collect();
                words.iter().for_each(|words| use_all_copies(words, initial));
                use_all_copies(&first, initial);
            });
        }
    }
}

/// Returns the mappings of templates.
fn template_mappings() -> Vec<Mapping> {
    mappings().into_iter().filter(|mapping| mapping.name == "/memfd:quietline").collect()
}

/// No process can change a template: a wild write of a forked child reaches none of its parent's
/// words.
#[test]
fn templates_cannot_be_written() {
    quietline_testing::isolated!();
    let words = like_a_cache();
    let templates = template_mappings();
    assert_eq!(templates.len(), words.cpus(), "a mapping for each copy");
    for mapping in &templates {
        assert_eq!(mapping.permissions, "rw-p", "{:x?}", mapping.range);
    }
    let Range { start, end } = templates[0].range;
    let path = format!("/proc/self/map_files/{start:x}-{end:x}");
    match std::fs::File::options().write(true).open(&path) {
        Ok(file) => {
            use std::os::unix::fs::FileExt;
            let written = file.write_at(&[1; 8], 0).map_err(|error| error.raw_os_error());
            assert_eq!(written, Err(Some(libc::EPERM)));
            assert!(file.set_len(0).is_err() && file.set_len(1 << 20).is_err());
        }
        Err(error) => eprintln!("seals not checked: {path}: {error}"),
    }
}

/// Templates use no more than a part of the mappings that a process may have.
#[test]
fn mappings_of_templates_are_bounded() {
    quietline_testing::isolated!();
    cpu::pretend_possible(POSSIBLE);
    let initial = |kind: u64| [kind, 0, stub()];
    let words: Vec<_> = (1..13).map(|kind| Words::with_initial(initial(kind)).unwrap()).collect();
    let used = template_mappings().len();
    assert!(used <= 8192, "{used} mappings");
    if active() != Body::Fallback {
        assert!(used >= 4096, "{used} mappings: templates are used up to the bound");
    }
    for (kind, words) in (1..13).zip(&words) {
        use_all_copies(words, initial(kind));
    }
}

/// Where a template cannot be mapped for all CPUs, the allocating thread writes the copies.
#[test]
fn words_are_made_with_few_mappings_left() {
    quietline_testing::isolated!();
    cpu::pretend_possible(64);
    let copies = Words::<1>::new().unwrap().cpus();
    let before = mappings().len();
    let all = quietline_testing::use_up_mappings(copies / 2);
    let mut words = vec![];
    for kind in 1..4 {
        words.push((Words::with_initial([kind, 0, 3]).unwrap(), [kind, 0, 3]));
    }
    assert_eq!(template_mappings().len(), 0);
    for (words, initial) in &words {
        use_all_copies(words, *initial);
    }
    drop(words);
    drop(all);
    // For each kind, one chunk and one unit that was given up.
    assert!(mappings().len() <= before + 3 * 3, "{before} to {}", mappings().len());
}

/// Returns the bytes of addresses that the process has mapped.
fn mapped_bytes() -> usize {
    mappings().iter().map(|mapping| mapping.range.len()).sum()
}

/// Each system call that makes words fails once, or with all after it.
#[test]
fn each_refusal_leaves_words_right_or_nothing() {
    quietline_testing::isolated!();
    cpu::pretend_possible(64);
    let copies = Words::<1>::new().unwrap().cpus();
    let size = copies << 16;
    for (arm, expected) in [(fault::fail_nth as fn(u64), 1), (fault::fail_from, usize::MAX)] {
        let (mut refused, mut made) = (0, 0);
        for nth in 1.. {
            let (mapped, templates) = (mapped_bytes(), template_mappings().len());
            arm(nth);
            let initial = [nth, expected as u64, 3];
            let words = Words::with_initial(initial);
            let fired = !fault::armed() || (expected != 1 && words.is_err());
            fault::fail_nth(0);
            let added = mapped_bytes().saturating_sub(mapped);
            // Addresses of one unit may be given up, and the heap may grow.
            let slack = (64 << 10) + (1 << 20);
            match words {
                Ok(words) => {
                    made += 1;
                    use_all_copies(&words, initial);
                    assert!(added <= size + slack, "{nth}: {added:#x} bytes");
                }
                Err(_) => {
                    refused += 1;
                    assert!(added <= slack, "{nth}: {added:#x} bytes");
                    assert_eq!(template_mappings().len(), templates, "{nth}");
                }
            }
            if !fired {
                break;
            }
        }
        // The check of the allocation, the file, the addresses and each unit; then nothing more.
        assert_eq!(refused + made, copies + 4);
        assert_eq!(refused, expected.min(copies + 3));
    }
}
