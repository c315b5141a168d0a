//! The memory of an idle kernel, and how long it takes to boot and to drop it. `--nocapture` shows
//! the figures.
//!
//! `QUIETLINE_KERNELS` sets how many kernels [`many_idle_kernels`] boots.

use crate::support::resident;
use quietline::{Config, Kernel, Process};
use quietline_platform::{cpu, pages, percpu};
use quietline_testing::heap;
use std::time::Instant;

/// Kernels that are measured together.
const KERNELS: usize = 64;
/// Kernels of [`many_idle_kernels`] unless the variable is set.
const MANY: usize = 100_000;
/// The most bytes of an idle kernel with one process.
const LIMIT: usize = 8 << 10;

/// A kernel with a process that has done nothing.
fn idle() -> (Process, Kernel) {
    let kernel = Kernel::boot(Config::default()).unwrap();
    (kernel.process().unwrap(), kernel)
}

/// Returns the bytes on the heap, in blocks of pages, and of per-CPU words in all copies.
fn bytes() -> [usize; 3] {
    let heap = usize::try_from(heap::bytes()).unwrap_or(0);
    [heap, pages::usage().used, percpu::allocated()]
}

/// Boots kernels, and returns the bytes of each.
fn measure(number: usize) -> usize {
    heap::start();
    // What the first kernel makes for the process, such as the RCU domain, is not the kernel's.
    let first = idle();
    let mut kernels = Vec::with_capacity(number);
    let (before, resident_before) = (bytes(), resident());
    let start = Instant::now();
    kernels.extend((0..number).map(|_| idle()));
    let boot = start.elapsed() / number as u32;
    let after = bytes();
    let resident = resident().saturating_sub(resident_before) / number;
    let start = Instant::now();
    kernels.clear();
    let end = start.elapsed() / number as u32;
    let each = [0, 1, 2].map(|i| after[i].saturating_sub(before[i]) / number);
    println!(
        "{} CPUs, {number} kernels: an idle kernel with a process takes {} bytes ({} heap, \
         {} pages, {} per-CPU; {resident} resident); boot {:.1} us, drop {:.1} us",
        cpu::nr_cpus(),
        each.iter().sum::<usize>(),
        each[0],
        each[1],
        each[2],
        boot.as_secs_f64() * 1e6,
        end.as_secs_f64() * 1e6,
    );
    drop(first);
    each.iter().sum()
}

#[test]
fn an_idle_kernel_is_light() {
    quietline_testing::isolated!();
    let each = measure(KERNELS);
    assert!(each <= LIMIT, "{each} bytes");
}

#[test]
fn an_idle_kernel_is_light_where_there_may_be_many_cpus() {
    quietline_testing::isolated!();
    cpu::pretend_possible(128);
    let each = measure(KERNELS);
    assert!(each <= LIMIT, "{each} bytes");
}

#[test]
#[ignore = "allocates a gigabyte"]
fn many_idle_kernels() {
    quietline_testing::isolated!();
    let most = std::env::var("QUIETLINE_KERNELS").ok().and_then(|number| number.parse().ok());
    // The first drop of a program takes longer than later ones: one kernel is measured twice.
    for number in [1, 1, 1_000, most.unwrap_or(MANY)] {
        let each = measure(number);
        assert!(each <= LIMIT, "{each} bytes, {number} kernels");
    }
}
