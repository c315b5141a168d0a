//! Who writes in a mount beside who makes it read-only, in every interleaving: either the writer is refused, or the mount stays as it
//! was; never does a change go on in a mount that is read-only. And who writes without a reference beside who ends the mount: either he
//! finds that it is not mounted, or he is waited for.
//!
//! The counts and their states are the library's own source. A change is a write to a cell, which who has made the mount read-only reads:
//! the model sees where the two may meet. (Where who closes tries two thousand times, it tries once here.)
//!
//! # Faults that were planted
//!
//! In `src/namespace/writers.rs`: a writer that looks at the state before it counts (all of the first four but the last); no fence between
//! the sums (`a_change_that_moves...`); opening again by a relaxed store (`a_change_after...`). The fence before the sums may go: the one
//! between them does its work, and what it saves is a second try. In `drain`: beginnings summed before ends, and no fence between the two
//! (both of `one_who_passes...`). Not found: in `close`, beginnings summed before ends, for which it takes a second writer.
#![cfg(loom)]
// The cell by which the model sees who changes something.
#![allow(unsafe_code)]

#[path = "../src/event_counts.rs"]
mod event_counts;
#[allow(dead_code, unreachable_pub)]
#[path = "../src/mount.rs"]
mod mount;
#[allow(dead_code, unreachable_pub)]
#[path = "../src/namespace/writers.rs"]
mod writers;

use loom::cell::UnsafeCell;
use mount::Mount;
use quietline_platform::{cpu, thread};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use writers::Writers;

/// A mount: who may write, and what is written.
struct Mounted {
    writers: Writers,
    changes: UnsafeCell<u32>,
}

// SAFETY: the cell is accessed as the protocol says, and the model finds out where that is not enough.
unsafe impl Sync for Mounted {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Mounted {}

impl Mounted {
    fn new() -> Arc<Self> {
        Arc::new(Self { writers: Writers::new(true), changes: UnsafeCell::new(0) })
    }

    fn change(&self) {
        // SAFETY: the claim under test: one thread changes something here, and nobody looks unless nobody may.
        self.changes.with_mut(|changes| unsafe { *changes += 1 });
    }

    /// What `remount,ro` does; whether it is read-only now.
    fn close(&self) -> bool {
        let closed = self.writers.close();
        if closed.is_ok() {
            // SAFETY: the claim under test: nobody writes.
            self.changes.with(|changes| unsafe { *changes });
        }
        assert!(matches!(closed, Ok(()) | Err(Errno::BUSY)));
        closed.is_ok()
    }
}

fn explore(f: impl Fn(Arc<Mounted>) + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.max_branches = 20_000;
    let tried = Arc::new(AtomicUsize::new(0));
    let count = tried.clone();
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        f(Mounted::new());
    });
    assert!(tried.load(Relaxed) > 4, "the threads have not met");
}

/// A change, on another CPU.
#[test]
fn a_change_beside_a_close() {
    explore(|mounted| {
        let writer = {
            let mounted = mounted.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                let may = mounted.writers.begin();
                if may.is_ok() {
                    mounted.change();
                    mounted.writers.end();
                }
                assert!(matches!(may, Ok(()) | Err(Errno::ROFS)));
            })
        };
        let closed = mounted.close();
        writer.join().unwrap();
        assert_eq!(mounted.writers.begin().is_err(), closed);
    });
}

/// A change that begins on one CPU and ends on another.
#[test]
fn a_change_that_moves_between_cpus() {
    explore(|mounted| {
        let writer = {
            let mounted = mounted.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                if mounted.writers.begin().is_ok() {
                    mounted.change();
                    cpu::migrate(0);
                    mounted.writers.end();
                }
            })
        };
        mounted.close();
        writer.join().unwrap();
    });
}

/// A file is opened for writing, and stays open: whoever closes is told so, or the file is not opened.
#[test]
fn a_file_that_is_opened_beside_a_close() {
    explore(|mounted| {
        let opener = {
            let mounted = mounted.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                let may = mounted.writers.begin().is_ok();
                if may {
                    mounted.writers.open_file();
                    mounted.change();
                }
                may
            })
        };
        let closed = mounted.close();
        let opened = opener.join().unwrap();
        assert!(!(closed && opened), "a file is open for writing in a mount that is read-only");
        if opened {
            mounted.writers.close_file();
        }
        assert!(mounted.close(), "nobody writes any more");
    });
}

/// It is opened again: who is let in sees what was done while it was closed.
#[test]
fn a_change_after_it_was_opened_again() {
    explore(|mounted| {
        assert!(mounted.close());
        let writer = {
            let mounted = mounted.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                if mounted.writers.begin().is_ok() {
                    mounted.change();
                    mounted.writers.end();
                }
            })
        };
        mounted.change();
        mounted.writers.open();
        writer.join().unwrap();
    });
}

/// Who passes through a mount that he has seen mounted, without a reference, beside who takes it out of its tree and ends it. `away`: he
/// ends on another CPU than he began on.
fn passes_beside_the_end(away: bool) {
    let ended = Arc::new(AtomicUsize::new(0));
    let (count, passed) = (ended.clone(), Arc::new(AtomicUsize::new(0)));
    let passes = passed.clone();
    explore(move |mounted| {
        let mount = Arc::new(Mount::ordinary("model"));
        let writer = {
            let (mounted, mount, passes) = (mounted.clone(), mount.clone(), passes.clone());
            thread::spawn(move || {
                cpu::migrate(1);
                let begun = mounted.writers.try_begin();
                assert!(matches!(begun, Some(Ok(()))), "nobody closes it");
                if mount.found_mounted() {
                    mounted.change();
                    passes.fetch_add(1, Relaxed);
                }
                if away {
                    cpu::migrate(0);
                }
                mounted.writers.end();
            })
        };
        assert!(mount.detach(), "nobody has a reference");
        if mounted.writers.drain() {
            // What ending it does: nobody uses it.
            mounted.change();
            count.fetch_add(1, Relaxed);
        }
        writer.join().unwrap();
    });
    assert!(ended.load(Relaxed) > 4 && passed.load(Relaxed) > 4, "one of the two never came to it");
}

#[test]
fn one_who_passes_beside_the_end() {
    passes_beside_the_end(false);
}

#[test]
fn one_who_passes_and_moves_beside_the_end() {
    passes_beside_the_end(true);
}
