//! Objects used by readers without a reference, and ended by who closes the last file: what nobody has met is freed at once,
//! and then nobody looks at it. One reader in every interleaving; two with at most three switches that no thread asked for.
//!
//! The words are the library's own source, and so is the count. An object that has been met is not freed in the model: it
//! would wait for the readers' sections, which is RCU's affair.
#![cfg(loom)]
// The cell by which the model sees who looks at what.
#![allow(unsafe_code)]

#[allow(dead_code, unreachable_pub)]
#[path = "../src/file/mode.rs"]
mod mode;
#[allow(dead_code, unreachable_pub)]
#[path = "../src/status.rs"]
mod status;
#[allow(dead_code, unreachable_pub)]
#[path = "../src/raw/word.rs"]
mod word;

use core::ptr::NonNull;
use mode::Mode;
use quietline_platform::atomic::{AtomicUsize, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::thread;
use quietline_sync::FileRef;
use status::Status;
use std::sync::Arc;
use word::SlotWord;

/// What READ is to a file here.
const READ: u32 = 1;

/// What is planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Readers believe the bit and do not look at the count.
    TrustsTheBit,
    /// Who ends the file looks at the bit before anything else.
    LooksTooSoon,
}

/// A file, with the objects of its lives.
#[repr(align(64))]
struct File {
    count: FileRef,
    status: Status,
    mode: Mode,
    object: AtomicUsize,
    objects: [UnsafeCell<u32>; 2],
}

// SAFETY: the cells are accessed as the protocol says, and the model finds out where that is not enough.
unsafe impl Sync for File {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for File {}

struct Table {
    slot: SlotWord<File>,
    file: File,
}

impl Table {
    fn open() -> Arc<Self> {
        let file = File {
            count: FileRef::dead(),
            status: Status::new(),
            mode: Mode::new(),
            object: AtomicUsize::new(0),
            objects: [UnsafeCell::new(1), UnsafeCell::new(1)],
        };
        let table = Arc::new(Self { slot: SlotWord::empty(), file });
        table.begin(0);
        table
    }

    /// Begins a life of the file on an object, as the library does.
    fn begin(&self, object: usize) {
        self.file.status.begin(0);
        self.file.mode.begin(READ, false);
        // ORDERING: as `begin` of the library's files.
        self.file.object.store(object, Ordering::Release);
        self.file.count.init(1);
        self.slot.fill(NonNull::from(&self.file), 0);
    }

    /// Looks by descriptor, and uses what it finds. Gives up after some looks, to keep the model small.
    fn read(&self, fault: Fault, looks: usize) {
        for _ in 0..looks {
            let Some(seen) = self.slot.load() else { return };
            let file = &self.file;
            let here = || self.slot.load().is_some_and(|now| now.file() == seen.file());
            let read = |_| {
                // ORDERING: as `Opened::read`.
                let object = file.object.load(Ordering::Acquire);
                let alive = || fault == Fault::TrustsTheBit || file.count.is_alive();
                (object, file.mode.is_met(alive))
            };
            match file.status.read_all_while(here, read) {
                Some((object, true)) => {
                    // SAFETY: the claim under test: the object is not freed while the section is open.
                    let alive = file.objects[object].with(|object| unsafe { *object });
                    assert_eq!(alive, 1, "an object that has ended is used");
                    return;
                }
                Some((_, false)) => file.mode.meet(),
                None => {}
            }
        }
    }

    /// Closes the descriptor, and frees the object unless it has been met.
    fn close(&self, fault: Fault) {
        let before = self.file.mode.end();
        let Some(_) = self.slot.take() else { return };
        // Relaxed: the closer has opened it, or come after who has.
        let object = self.file.object.load(Ordering::Relaxed);
        assert!(self.file.count.put_close(), "nobody else has a reference");
        let ended = if fault == Fault::LooksTooSoon { before } else { self.file.mode.end() };
        assert_eq!(ended.mode(), READ);
        if !ended.is_met() {
            // SAFETY: the claim under test: nobody is looking, or will.
            self.file.objects[object].with_mut(|object| unsafe { *object = 0 });
        }
    }
}

/// So many readers, and one who closes, and perhaps opens the file's memory again on another object.
fn run(readers: usize, again: bool, fault: Fault) {
    let mut builder = loom::model::Builder::new();
    if readers > 1 {
        builder.preemption_bound = builder.preemption_bound.or(Some(3));
    }
    builder.check(move || {
        let table = Table::open();
        // One sets the bit, another finds it.
        let looks = if readers == 1 { 3 } else { 2 };
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                let table = table.clone();
                thread::spawn(move || table.read(fault, looks))
            })
            .collect();
        table.close(fault);
        if again {
            table.begin(1);
        }
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn what_a_reader_uses_is_not_freed() {
    run(1, false, Fault::None);
}

#[test]
fn nor_what_one_of_two_uses() {
    run(2, false, Fault::None);
}

#[test]
fn nor_in_another_life() {
    run(1, true, Fault::None);
}

#[test]
#[should_panic]
fn the_bit_alone_is_not_enough() {
    run(2, false, Fault::TrustsTheBit);
}

#[test]
#[should_panic]
fn a_look_before_the_exchange_is_too_soon() {
    run(1, false, Fault::LooksTooSoon);
}
