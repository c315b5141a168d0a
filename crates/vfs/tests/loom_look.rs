//! A file that is looked at in its slot, without a reference to it (`FdTable::look`), in every interleaving: what is read is all
//! of one life, which was in the slot, and what it refers to is there until the section ends (properties 7 and 8).
//!
//! The slot's word, the flags with their generations, sections and grace periods are the library's own source. The file is the two words
//! of it that matter here, stored and loaded as `raw/handle.rs` does in `begin` and `Opened::read`, by hand: they are of types that
//! the model has not got.
//!
//! # Faults that were planted
//!
//! In `src/status.rs`: the generation stored relaxed, or after the flags; the flags stored relaxed; no second look at the
//! generation; the first look relaxed. Here: what a life refers to stored relaxed; the slot not looked at again; what a life refers to
//! freed without a grace period. Each is found, by one or more of the three tests.
#![cfg(loom)]
// The cells by which the model sees who is alone with what.
#![allow(unsafe_code)]

#[allow(dead_code, unreachable_pub)]
#[path = "../src/status.rs"]
mod status;
#[allow(dead_code, unreachable_pub)]
#[path = "../src/raw/word.rs"]
mod word;

use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicPtr, AtomicU32, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::{cpu, thread};
use quietline_sync::rcu::Domain;
use status::Status;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use word::{ANYFD, SlotWord};

/// What a file is on: whoever looks at it reads the cell, whoever frees it writes it.
struct Dentry {
    number: u32,
    freed: UnsafeCell<bool>,
}

// SAFETY: the cell is accessed as the protocol says, and the model finds out where that is not enough.
unsafe impl Sync for Dentry {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Dentry {}

impl Dentry {
    fn new(number: u32) -> Arc<Self> {
        Arc::new(Self { number, freed: UnsafeCell::new(false) })
    }

    fn free(&self) {
        // SAFETY: the claim under test: no section is open in which it was found.
        self.freed.with_mut(|freed| unsafe { *freed = true });
    }
}

/// A file, whose memory is that of a file for ever.
#[repr(align(64))]
struct File {
    status: Status,
    mode: AtomicU32,
    dentry: AtomicPtr<Dentry>,
}

/// A descriptor, a file, and what it is on in its lives.
struct World {
    domain: Pin<Box<Domain>>,
    slot: SlotWord<File>,
    file: File,
    dentries: [Arc<Dentry>; 3],
}

impl World {
    /// In its first life the file is in the slot.
    fn new() -> Arc<Self> {
        let file = File {
            status: Status::new(),
            mode: AtomicU32::new(0),
            dentry: AtomicPtr::new(core::ptr::null_mut()),
        };
        let dentries = [1, 2, 3].map(Dentry::new);
        let world = Arc::new(Self {
            domain: Domain::new().unwrap(),
            slot: SlotWord::empty(),
            file,
            dentries,
        });
        world.begin(1);
        world.slot.fill(NonNull::from(&world.file), ANYFD);
        world
    }

    /// Begins a life: as `begin` in `raw/handle.rs`.
    fn begin(&self, life: u32) {
        self.file.status.begin(life);
        // ORDERING: pairs with the acquires in `look`, as in the original.
        self.file.mode.store(life, Ordering::Release);
        // ORDERING: as above.
        self.file
            .dentry
            .store(Arc::as_ptr(&self.dentries[life as usize - 1]).cast_mut(), Ordering::Release);
    }

    /// One attempt of `Slots::look`: flags, mode and dentry.
    fn look(&self) -> Option<(u32, u32, *mut Dentry)> {
        let seen = self.slot.load()?;
        let file = &self.file;
        assert!(core::ptr::eq(file, seen.file()));
        let here = || self.slot.load().is_some_and(|now| now.file() == seen.file());
        file.status.read_all_while(here, |flags| {
            // ORDERING: pairs with the releases in `begin`.
            (flags, file.mode.load(Ordering::Acquire), file.dentry.load(Ordering::Acquire))
        })
    }

    /// Looks in a section, and uses what it finds until the section ends; the life that it found.
    fn look_and_use(&self) -> Option<u32> {
        let section = self.domain.read();
        let (flags, mode, dentry) = self.look()?;
        // SAFETY: the memory stays to the end of the model; the cell says whether it may be used.
        let dentry = unsafe { &*dentry };
        // SAFETY: the claim under test: nobody frees it while the section is open.
        dentry.freed.with(|freed| assert!(unsafe { !*freed }, "freed under a section"));
        assert_eq!((flags, mode), (dentry.number, dentry.number), "all of one life");
        drop(section);
        Some(flags)
    }

    /// Takes the file out of the slot and ends its life; what it was on is freed after a grace period.
    fn close(&self) {
        let seen = self.slot.load().expect("it is open");
        assert!(self.slot.take_anyfd(seen));
    }
}

fn explore(switches: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(switches));
    builder.max_branches = 20_000;
    let tried = Arc::new(AtomicUsize::new(0));
    let count = tried.clone();
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        f();
    });
    assert!(tried.load(Ordering::Relaxed) > 4, "the threads have not met");
}

/// A reader, spawned: as in `loom_pages`.
fn reader<R: 'static>(
    world: &Arc<World>,
    read: impl FnOnce(&World) -> R + 'static,
) -> thread::JoinHandle<R> {
    let world = world.clone();
    thread::spawn(move || {
        cpu::migrate(1);
        read(&world)
    })
}

/// The file is closed, opened elsewhere, closed, and opened in the slot again: the second life is never found.
#[test]
fn what_is_found_is_of_a_life_in_the_slot() {
    explore(3, || {
        let world = World::new();
        let reader = reader(&world, |world| {
            if let Some((flags, mode, dentry)) = world.look() {
                assert!(flags == 1 || flags == 3, "{flags}");
                assert_eq!(flags, mode, "all of one life");
                assert_eq!(dentry.cast_const(), Arc::as_ptr(&world.dentries[flags as usize - 1]));
            }
        });
        world.close();
        world.begin(2);
        world.begin(3);
        world.slot.fill(NonNull::from(&world.file), ANYFD);
        reader.join().unwrap();
    });
}

/// What a life referred to is freed after a grace period: who found it may use it until its section ends.
#[test]
fn what_a_file_is_on_stays_until_the_section_ends() {
    explore(2, || {
        let world = World::new();
        let reader = reader(&world, World::look_and_use);
        world.close();
        world.domain.synchronize();
        world.dentries[0].free();
        let found = reader.join().unwrap();
        assert!(found.is_none_or(|life| life == 1));
    });
}

/// The same, and the file begins its next life in the slot before the first one's grace period is over.
#[test]
fn what_a_file_was_on_is_not_found_after_its_grace_period() {
    explore(2, || {
        let world = World::new();
        let reader = reader(&world, World::look_and_use);
        world.close();
        world.begin(2);
        world.slot.fill(NonNull::from(&world.file), ANYFD);
        world.domain.synchronize();
        world.dentries[0].free();
        let found = reader.join().unwrap();
        assert!(matches!(found, None | Some(1) | Some(2)), "{found:?}");
        assert_eq!(world.look_and_use(), Some(2));
    });
}
