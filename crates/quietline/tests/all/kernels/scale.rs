//! A million descriptors, ten thousand kernels: that it works, and in how much memory. `--nocapture` shows the figures.

#![allow(unsafe_code, reason = "the C library's heap")]

use crate::support::{alone, assert_nothing_open, resident, settle};
use quietline::abi::*;
use quietline::{Config, Kernel, Process};
use quietline_platform::{cpu, pages};

const MIB: usize = 1 << 20;
const DESCRIPTORS: usize = 1_000_000;

/// Gives back what is only cached. Twice: what comes back after the grace period may empty a slab.
fn shrink(kernel: &Kernel) {
    for _ in 0..2 {
        kernel.shrink();
        trim();
    }
}

/// What the C library's heap keeps of what was freed is nobody's: back with it, before memory is measured.
fn trim() {
    settle();
    #[cfg(target_env = "gnu")]
    // SAFETY: may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn grown(since: usize) -> usize {
    resident().saturating_sub(since)
}

fn a_million(what: &str, any: i32, bound: usize, open: impl Fn(&Process) -> i32) {
    let _alone = alone();
    let kernel = Kernel::boot(Config::default()).unwrap();
    let process = kernel.process().unwrap();
    process.close(open(&process)).unwrap();
    shrink(&kernel);
    let (start, start_used) = (resident(), pages::usage().used);

    let mut seen = vec![0u64; DESCRIPTORS.div_ceil(64) * 2];
    let start_with_map = resident().max(start + size_of_val(&*seen));
    for n in 0..DESCRIPTORS {
        let fd = open(&process) as usize;
        if any == 0 {
            assert_eq!(fd, n, "the lowest number");
        }
        assert!(seen[fd / 64] & 1 << (fd % 64) == 0, "{fd} twice");
        seen[fd / 64] |= 1 << (fd % 64);
    }
    let full = grown(start_with_map);
    let expected = DESCRIPTORS as i64;
    assert_eq!((kernel.nr_files(), kernel.nr_dentry()), (expected, expected));

    process.close_range(0, u32::MAX, 0).unwrap();
    assert_nothing_open(&kernel);
    drop(seen);
    shrink(&kernel);
    let closed = grown(start);
    drop(process);
    trim();
    let gone = grown(start);
    println!(
        "{DESCRIPTORS} {what}: {:.1} bytes each; closed and shrunk: {:.1} MiB above the start, {:.1} MiB without \
         the process",
        full as f64 / DESCRIPTORS as f64,
        closed as f64 / MIB as f64,
        gone as f64 / MIB as f64,
    );
    assert!(
        full <= bound * DESCRIPTORS,
        "{} bytes a descriptor, and not {bound}",
        full / DESCRIPTORS
    );
    assert!(closed <= 24 * MIB, "the table's slots stay: 8 MiB of them; {closed}");
    // The slots are freed; whether the heap keeps their 8 MiB depends on what lies behind them.
    assert!(gone <= 9 * MIB, "{gone}");
    assert!(pages::usage().used <= start_used, "pages in use");
}

#[test]
fn a_million_sockets() {
    quietline_testing::isolated!();
    let open = |p: &Process| p.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    a_million("sockets, lowest descriptors", 0, 256, open);
}

#[test]
fn a_million_sockets_at_any_descriptor() {
    quietline_testing::isolated!();
    let open = |p: &Process| p.socket(AF_INET, SOCK_STREAM | O_ANYFD, 0).unwrap();
    a_million("sockets, any descriptors", O_ANYFD, 256, open);
}

/// A kernel with a process that has a few things open.
fn small(n: usize) -> (Kernel, Process) {
    let kernel = Kernel::boot(Config::default()).unwrap();
    let process = kernel.process().unwrap();
    let any = if n.is_multiple_of(2) { 0 } else { O_ANYFD };
    process.socket(AF_INET, SOCK_STREAM | any, 0).unwrap();
    process.pipe2(any).unwrap();
    process.eventfd(1, any).unwrap();
    (kernel, process)
}

#[test]
fn ten_thousand_kernels_one_after_the_other() {
    quietline_testing::isolated!();
    let kernels = if cfg!(debug_assertions) { quietline_testing::scaled(1_000) } else { 10_000 };
    let kernels = kernels as usize;
    let _alone = alone();
    (0..100).for_each(|n| drop(small(n)));
    trim();
    let (start, start_used) = (resident(), pages::usage().used);
    let mut most = 0;
    for n in 0..kernels {
        let (kernel, process) = small(n);
        assert_eq!(kernel.nr_files(), 4);
        // Either may go first.
        if n % 3 == 0 {
            drop(kernel);
            drop(process);
        } else {
            drop(process);
            assert_eq!(kernel.nr_files(), 0);
        }
        if n % 100 == 0 {
            most = most.max(grown(start));
        }
    }
    trim();
    let left = grown(start);
    println!(
        "{kernels} kernels, one after the other: {} KiB more at most, {} KiB left",
        most >> 10,
        left >> 10
    );
    assert!(most <= 32 * MIB, "files' memory waits for grace periods: {most}");
    assert!(left <= 4 * MIB, "{left}");
    assert_eq!(pages::usage().used, start_used, "pages in use");
}

#[test]
fn a_thousand_kernels_side_by_side() {
    quietline_testing::isolated!();
    const KERNELS: usize = 1_000;
    let _alone = alone();
    (0..10).for_each(|n| drop(small(n)));
    trim();
    let (start, start_used) = (resident(), pages::usage().used);
    let kernels: Vec<_> = (0..KERNELS).map(small).collect();
    let each = grown(start) / KERNELS;
    let pages_each = (pages::usage().used - start_used) / KERNELS;
    for (kernel, process) in &kernels {
        assert_eq!((kernel.nr_files(), process.open_fds().unwrap().len()), (4, 4));
    }
    drop(kernels);
    trim();
    let left = grown(start);
    println!(
        "{KERNELS} kernels side by side, each with a process and 4 open files: {} KiB each, {} KiB of it in pages; \
         {} KiB left of all",
        each >> 10,
        pages_each >> 10,
        left >> 10
    );
    // Each of its caches, counters and tables has some words for every CPU that there may be.
    assert!(each <= (256 << 10) + (4 << 10) * cpu::nr_cpus(), "{each} bytes a kernel");
    assert!(left <= 16 * MIB, "{left}");
    assert_eq!(pages::usage().used, start_used, "pages in use");
}
