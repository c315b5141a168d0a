//! Restartable sequences where the C library registers no thread: this library does.
//!
//! glibc is told to register none, which is what musl and glibc before 2.35 do.
#![cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, quietline_sim))))]

use crate::support::{allowed_cpus, in_child, pin};
use quietline_platform::percpu::{self, Body, Words, active};
use quietline_platform::{cpu, membarrier};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Barrier, OnceLock};

/// Runs the enclosing test in a process whose C library registers no thread, if the kernel could.
macro_rules! unregistered {
    () => {
        quietline_testing::isolated!(
            "GLIBC_TUNABLES" = "glibc.pthread.rseq=0",
            "QUIETLINE_PERCPU" = "auto"
        );
        if !kernel_registers() {
            eprintln!("not checked: this kernel registers no thread");
            assert_eq!(active(), Body::Fallback);
            return;
        }
    };
}

/// An area as another library may have one.
#[repr(C, align(32))]
struct ForeignArea(UnsafeCell<[u32; 8]>);

impl ForeignArea {
    fn new() -> Self {
        Self(UnsafeCell::new([0, u32::MAX, 0, 0, 0, 0, 0, 0]))
    }

    fn call(&self, flags: libc::c_int) -> bool {
        let signature: u32 = if cfg!(target_arch = "x86_64") { 0x5305_3053 } else { 0xd428_bc00 };
        // SAFETY: the area stays where it is until the calling thread has unregistered it.
        unsafe { libc::syscall(libc::SYS_rseq, self.0.get(), 32, flags, signature) == 0 }
    }

    /// Returns `false` if the calling thread has a registered area already.
    fn register(&self) -> bool {
        self.call(0)
    }

    fn unregister(&self) {
        assert!(self.call(1));
    }
}

fn kernel_registers() -> bool {
    let probe = || {
        let area = ForeignArea::new();
        let registered = area.register();
        if registered {
            area.unregister();
        }
        registered
    };
    membarrier::available() && std::thread::spawn(probe).join().unwrap()
}

/// Returns whether the calling thread is registered.
fn is_registered() -> bool {
    let area = ForeignArea::new();
    let free = area.register();
    if free {
        area.unregister();
    }
    !free
}

#[test]
fn each_thread_registers_itself() {
    unregistered!();
    let words = Words::<1>::new().unwrap();
    assert_eq!(active(), Body::OwnRseq);
    assert!(percpu::is_fallback(), "callers without an area of the C library take the slow path");
    for (n, cpu) in (1..).zip(allowed_cpus()) {
        let run = || {
            pin(cpu);
            assert!(!is_registered());
            (0..100).for_each(|_| words.add(0, 1));
            assert!(is_registered());
            assert_eq!(cpu::current(), cpu);
        };
        std::thread::scope(|s| s.spawn(run).join().unwrap());
        assert_eq!(words.load(cpu, 0), 100, "the words of the CPU, not of a slot");
        assert_eq!(words.sum(0), 100 * n);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn an_operation_executes_no_locked_instruction() {
    unregistered!();
    let words = Words::<1>::new().unwrap();
    let counts = match quietline_count::count(|| words.add(0, 1)) {
        Ok(counts) => counts,
        Err(quietline_count::Error::Refused(e)) => {
            return eprintln!("not checked: no tracing: {e}");
        }
        Err(e) => panic!("{e}"),
    };
    assert_eq!((counts.locked, counts.fences, counts.syscalls), (0, 0, 0), "{counts}");
}

/// Operations of a thread at its end, after its registration has ended.
static LATE: OnceLock<Words<1>> = OnceLock::new();
static LATE_WAS_REGISTERED: AtomicBool = AtomicBool::new(true);

unsafe extern "C" fn at_the_end(_: *mut libc::c_void) {
    LATE_WAS_REGISTERED.store(is_registered(), Relaxed);
    LATE.get().unwrap().add(0, 1);
    assert!(!is_registered(), "a thread at its end is not registered again");
}

#[test]
fn the_end_of_a_thread_unregisters_it() {
    unregistered!();
    let words = LATE.get_or_init(|| Words::new().unwrap());
    let mut key = 0;
    // Destructors run in the order of their keys; this library's came with the first words.
    // SAFETY: the destructor is a function of this program.
    assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(at_the_end)) }, 0);
    for n in 1..=3 {
        let run = move || {
            words.add(0, 1);
            assert!(is_registered());
            // SAFETY: the key exists; the value is only not null.
            assert_eq!(unsafe { libc::pthread_setspecific(key, (&raw const LATE).cast()) }, 0);
        };
        std::thread::spawn(run).join().unwrap();
        assert!(!LATE_WAS_REGISTERED.swap(true, Relaxed));
        assert_eq!(words.sum(0), 2 * n);
    }
}

/// Threads that the kernel refuses to register work beside threads that it registers, on words of
/// their own.
#[test]
fn a_refused_thread_uses_a_locked_slot() {
    unregistered!();
    const ROUNDS: u64 = 50_000;
    let words = Words::<3>::new().unwrap();
    let cpus = words.cpus();
    let nodes: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
    let list = AtomicU64::new(1);
    let work = |refused: bool| {
        let area = ForeignArea::new();
        assert!(!refused || area.register());
        for n in 0..ROUNDS {
            words.add(0, 1);
            let mut next = words.swap(1, 0) as *mut AtomicU64;
            while let Some(node) = NonNull::new(next) {
                // SAFETY: the nodes outlive the list; each is on the list or with one thread.
                unsafe {
                    next = node.as_ref().load(Relaxed) as *mut AtomicU64;
                    words.list_push_selected(&list, node);
                }
            }
            if n % 1000 == 0 {
                words.fence().unwrap();
            }
        }
        let here = cpu::current();
        if refused {
            assert!(here >= cpus - 32 && here < cpus, "{here} is a slot");
            area.unregister();
        } else {
            assert!(here < cpus - 32, "{here} is a CPU");
        }
    };
    for node in &nodes {
        // SAFETY: as above.
        unsafe { words.list_push_selected(&list, node.into()) };
    }
    std::thread::scope(|s| {
        for n in 0..6 {
            s.spawn(move || work(n % 2 == 0));
        }
    });
    assert_eq!(words.sum(0), 6 * ROUNDS);
    // Relaxed: the threads have ended.
    let slots: u64 = (cpus - 32..cpus).map(|slot| words.load(slot, 0)).sum();
    assert_eq!(slots, 3 * ROUNDS);
    let mut listed = 0;
    for copy in 0..cpus {
        let mut next = words.load(copy, 1) as *const AtomicU64;
        while !next.is_null() {
            listed += 1;
            // SAFETY: a node, all of which are alive.
            next = unsafe { (*next).load(Relaxed) } as *const AtomicU64;
        }
    }
    assert_eq!(listed, nodes.len(), "no node is lost or doubled");
}

/// Another CPU's words can be taken away under the guard, from CPUs and from slots.
#[test]
fn the_guard_refuses_both_kinds_of_threads() {
    unregistered!();
    let (words, guard) = (Words::<1>::new().unwrap(), AtomicU64::new(0));
    let (stop, swapped) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| {
        for n in 0..4 {
            let (words, guard, stop, swapped) = (&words, &guard, &stop, &swapped);
            s.spawn(move || {
                let area = ForeignArea::new();
                assert!(n % 2 == 0 || area.register());
                while !stop.load(Relaxed) {
                    if words.swap_unless(0, guard, 1).is_some() {
                        swapped.fetch_add(1, Relaxed);
                    }
                }
                if n % 2 == 1 {
                    area.unregister();
                }
            });
        }
        for _ in 0..200 {
            let read = || (0..words.cpus()).map(|cpu| words.word(cpu, 0).swap(0, Relaxed)).sum();
            let held = words.hold_still(&guard, &mut 0, |_| {
                let _: u64 = read();
                std::thread::yield_now();
                let again: u64 = read();
                assert_eq!(again, 0, "a word changed under the guard");
            });
            held.unwrap();
        }
        // The threads are seen at work.
        let before = swapped.load(Relaxed);
        while swapped.load(Relaxed) < before + 100 {
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
    });
}

#[test]
fn a_forked_child_stays_registered() {
    unregistered!();
    let words = Words::<1>::new().unwrap();
    words.add(0, 1);
    assert!(is_registered());
    in_child(60, || {
        assert!(is_registered());
        for cpu in allowed_cpus() {
            pin(cpu);
            let before = words.load(cpu, 0);
            (0..1000).for_each(|_| words.add(0, 1));
            assert_eq!(words.load(cpu, 0), before + 1000);
        }
        std::thread::scope(|s| {
            s.spawn(|| {
                words.add(0, 1);
                assert!(is_registered());
            });
        });
        in_child(20, || words.add(0, 1));
    });
    assert_eq!(words.sum(0), 1);
    // A child of a thread at work, which has to come back from the kernel in its sequence's place.
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Relaxed) {
                words.add(0, 1);
            }
        });
        (0..50).for_each(|_| in_child(20, || (0..100).for_each(|_| words.add(0, 1))));
        stop.store(true, Relaxed);
    });
}

static HANDLED: OnceLock<Words<1>> = OnceLock::new();
static HANDLERS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    HANDLED.get().unwrap().add(0, 1);
    HANDLERS.fetch_add(1, Relaxed);
}

/// A thread's first operation may be that of a signal handler, which interrupts whatever the thread
/// does: also the thread's own first operation.
#[test]
fn a_signal_handler_may_come_first() {
    unregistered!();
    let words = HANDLED.get_or_init(|| Words::new().unwrap());
    // SAFETY: the handler uses per-CPU operations only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    let rounds = quietline_testing::scaled(300);
    for _ in 0..rounds {
        let (ready, sent) = (Barrier::new(2), AtomicU32::new(0));
        let thread = AtomicUsize::new(0);
        std::thread::scope(|s| {
            s.spawn(|| {
                // SAFETY: returns the thread's name, an integer or a pointer.
                thread.store(unsafe { libc::pthread_self() } as usize, Relaxed);
                ready.wait();
                (0..3).for_each(|_| words.add(0, 1));
                assert!(is_registered());
                while sent.load(Relaxed) == 0 {
                    std::hint::spin_loop();
                }
            });
            ready.wait();
            let thread = thread.load(Relaxed) as libc::pthread_t;
            // SAFETY: the thread runs until it sees the flag.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            sent.store(1, Relaxed);
        });
    }
    assert_eq!(HANDLERS.load(Relaxed) as u64, rounds);
    assert_eq!(words.sum(0), 4 * rounds);
}
