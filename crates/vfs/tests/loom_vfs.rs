//! The protocols of descriptor tables and mounts in every interleaving (properties 4 and 7).
//!
//! Longer than most files here: one model for each pair of operations, in one place to see which are missing.
//!
//! Files here are lives of a few words each; what is modelled is the slot's word, the flags' generations and the
//! mount's counts, which are the library's own source, and [`FileRef`], which is checked with them.
#![cfg(loom)]
// The cells by which the model sees who is alone with what.
#![allow(unsafe_code)]

#[allow(dead_code, unreachable_pub)]
#[path = "../src/mount.rs"]
mod mount;
#[allow(dead_code, unreachable_pub)]
#[path = "../src/status.rs"]
mod status;
#[allow(dead_code, unreachable_pub)]
#[path = "../src/raw/word.rs"]
mod word;

use core::ptr::NonNull;
use loom::sync::Mutex;
use mount::Mount;
use quietline_platform::atomic::{
    AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::{cpu, model, thread};
use quietline_sync::FileRef;
use status::Status;
use std::sync::Arc;
use word::{ANYFD, CLOEXEC, SlotWord};

/// A file: its count, its flags, and a field that only those with a reference may touch.
#[repr(align(64))]
struct Life {
    count: FileRef,
    status: Status,
    number: UnsafeCell<u32>,
    ends: AtomicU32,
}

// SAFETY: the cell is accessed as the protocols say, and the model finds out where that is not enough.
unsafe impl Sync for Life {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Life {}

impl Life {
    fn dead() -> Arc<Self> {
        Arc::new(Self {
            count: FileRef::dead(),
            status: Status::new(),
            number: UnsafeCell::new(0),
            ends: AtomicU32::new(0),
        })
    }

    /// Opens the file for the `number`th time, with that number as its flags.
    fn open(&self, number: u32) {
        self.status.begin(number);
        // SAFETY: the claim under test: a dead file is its opener's alone.
        self.number.with_mut(|cell| unsafe { *cell = number });
        self.count.init(1);
    }

    /// The number of the life that the caller has a reference to.
    fn number(&self) -> u32 {
        // SAFETY: the claim under test: nobody writes while somebody has a reference.
        self.number.with(|cell| unsafe { *cell })
    }

    fn put(&self) {
        if self.count.put_close() {
            // SAFETY: the claim under test: whoever put the last reference is alone with the file.
            self.number.with_mut(|cell| unsafe { *cell = 0 });
            // ORDERING: pairs with the acquire of who opens it again: the allocator gives the file from its ender to its next opener.
            self.ends.fetch_add(1, Release);
        }
    }
}

/// A table of one slot.
struct Table {
    slot: SlotWord<Life>,
    lock: Mutex<()>,
    lives: [Arc<Life>; 2],
}

impl Table {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slot: SlotWord::empty(),
            lock: Mutex::new(()),
            lives: [Life::dead(), Life::dead()],
        })
    }

    fn pointer(&self, life: usize) -> NonNull<Life> {
        NonNull::from(&*self.lives[life])
    }

    fn at(&self, file: *mut Life) -> &Life {
        self.lives
            .iter()
            .find(|life| core::ptr::eq(&***life, file))
            .expect("a slot holds a file of ours")
    }

    /// What `close` does.
    fn close(&self) -> bool {
        loop {
            match self.slot.load() {
                None => return false,
                Some(seen) if seen.is_anyfd() => {
                    if self.slot.take_anyfd(seen) {
                        self.at(seen.file()).put();
                        return true;
                    }
                }
                Some(_) => {
                    let was = {
                        let _locked = self.lock.lock().unwrap();
                        self.slot.take()
                    };
                    return was.map(|was| self.at(was.file()).put()).is_some();
                }
            }
        }
    }

    /// What `get` does: one attempt. The number of the life that was found, if it was in the slot.
    fn get(&self) -> Option<u32> {
        let seen = self.slot.load()?;
        let life = self.at(seen.file());
        if !life.count.get() {
            return None;
        }
        let number = life.number();
        let there = self.slot.load().is_some_and(|now| now.file() == seen.file());
        life.put();
        there.then_some(number)
    }
}

fn ends(table: &Table) -> u32 {
    table.lives.iter().map(|life| life.ends.load(Relaxed)).sum()
}

/// Two close a descriptor of a store: one does, and ends the file.
#[test]
fn two_closers_without_the_lock() {
    model(|| {
        let table = Table::new();
        table.lives[0].open(1);
        table.slot.fill(table.pointer(0), ANYFD);
        let other = {
            let table = table.clone();
            thread::spawn(move || table.close())
        };
        let mine = table.close();
        assert!(mine != other.join().unwrap(), "one of them closes it");
        assert_eq!((ends(&table), table.slot.load().is_none()), (1, true));
    });
}

/// The lock's holder makes the descriptor an ordinary one while another thread closes it: the number goes back one
/// way, and the file ends once.
#[test]
fn revocation_beside_a_close() {
    model(|| {
        let table = Table::new();
        table.lives[0].open(1);
        table.slot.fill(table.pointer(0), ANYFD | CLOEXEC);
        let closer = {
            let table = table.clone();
            thread::spawn(move || table.close())
        };
        let settled = {
            let _locked = table.lock.lock().unwrap();
            table.slot.clear_anyfd()
        };
        if let (true, Some(seen)) = (settled, table.slot.load()) {
            assert!(!seen.is_anyfd() && seen.is_cloexec());
        }
        assert!(closer.join().unwrap());
        assert_eq!((ends(&table), table.slot.load().is_none()), (1, true));
    });
}

/// The lock's holder replaces the file while another thread closes the descriptor without the lock: both files end
/// once.
#[test]
fn replacement_beside_a_close() {
    model(|| {
        let table = Table::new();
        table.lives[0].open(1);
        table.lives[1].open(2);
        table.slot.fill(table.pointer(0), ANYFD);
        let closer = {
            let table = table.clone();
            thread::spawn(move || table.close())
        };
        let was = {
            let _locked = table.lock.lock().unwrap();
            let was = table.slot.replace(table.pointer(1), CLOEXEC);
            if let Some(now) = table.slot.load() {
                assert!(now.is_anyfd() && now.is_cloexec(), "the number's owner is the same");
            }
            was
        };
        match was {
            Some(was) => {
                assert!(was.is_anyfd() && core::ptr::eq(table.at(was.file()), &*table.lives[0]));
                table.at(was.file()).put();
            }
            None => table.lives[1].put(),
        }
        assert!(closer.join().unwrap());
        assert!(table.slot.load().is_none());
        assert_eq!((table.lives[0].ends.load(Relaxed), table.lives[1].ends.load(Relaxed)), (1, 1));
    });
}

/// Under the lock a held slot's file stays open, though its number belongs to a store and another thread closes it.
#[test]
fn a_held_file_stays_open() {
    model(|| {
        let table = Table::new();
        table.lives[0].open(1);
        table.slot.fill(table.pointer(0), ANYFD);
        let closer = {
            let table = table.clone();
            thread::spawn(move || table.close())
        };
        let taken = {
            let _locked = table.lock.lock().unwrap();
            table.slot.hold(|seen| {
                let life = table.at(seen.file());
                assert!(life.count.get() && seen.is_anyfd());
                life.number()
            })
        };
        if let Some(number) = taken {
            assert_eq!((number, table.lives[0].number()), (1, 1));
            table.lives[0].put();
        }
        assert!(closer.join().unwrap());
        assert_eq!((ends(&table), table.slot.load().is_none()), (1, true));
    });
}

/// Property 7: the slot's file is closed, and opened again with another number somewhere else; a reader beside that
/// never takes the second life for what is in the slot.
#[test]
fn a_file_found_was_in_the_slot() {
    model(|| {
        let table = Table::new();
        table.lives[0].open(1);
        table.slot.fill(table.pointer(0), ANYFD);
        let other = {
            let table = table.clone();
            thread::spawn(move || {
                table.close();
                // Whoever ended the file may open it again; the reader's reference may have delayed that.
                // ORDERING: pairs with the release in `put`.
                if table.lives[0].ends.load(Acquire) == 1 {
                    table.lives[0].open(2);
                    return true;
                }
                false
            })
        };
        let found = table.get();
        assert!(found.is_none_or(|number| number == 1), "a file that was never in the slot");
        if other.join().unwrap() {
            table.lives[0].put();
        }
        assert_eq!(table.lives[0].count.count(), 0);
    });
}

/// The flags that a reader without a reference finds are those of a life that was in the slot: the first or the third,
/// not the second, which was elsewhere.
#[test]
fn flags_are_of_a_life_in_the_slot() {
    model(|| {
        let table = Table::new();
        table.lives[0].open(1);
        table.slot.fill(table.pointer(0), ANYFD);
        let other = {
            let table = table.clone();
            thread::spawn(move || {
                table.close();
                table.lives[0].open(2);
                table.lives[0].put();
                table.lives[0].open(3);
                table.slot.fill(table.pointer(0), 0);
            })
        };
        if let Some(seen) = table.slot.load() {
            let life = table.at(seen.file());
            let there = || table.slot.load().is_some_and(|now| now.file() == seen.file());
            let flags = life.status.read_while(there);
            assert!(matches!(flags, None | Some(1) | Some(3)), "{flags:?}");
        }
        other.join().unwrap();
        let life = &table.lives[0];
        assert_eq!(life.status.read_while(|| true), Some(3));
        life.put();
    });
}

/// Flags that a holder sets are found with the holder's life.
#[test]
fn flags_that_were_set() {
    model(|| {
        let table = Table::new();
        let other = {
            let table = table.clone();
            thread::spawn(move || {
                table.lives[0].open(1);
                table.slot.fill(table.pointer(0), ANYFD);
                table.lives[0].status.set(4, 4);
                table.close();
                table.lives[0].open(2);
            })
        };
        if let Some(seen) = table.slot.load() {
            let there = || table.slot.load().is_some_and(|now| now.file() == seen.file());
            let flags = table.at(seen.file()).status.read_while(there);
            assert!(matches!(flags, None | Some(1) | Some(5)), "{flags:?}");
        }
        other.join().unwrap();
    });
}

/// A mount, and how many destroyed it.
struct Mounted {
    mount: Mount,
    destroyed: AtomicU32,
    /// Written by each holder's put, in turn; read by the destroyer.
    used: [UnsafeCell<bool>; 3],
}

// SAFETY: cells are accessed as the protocol says, and the model finds out where that is not enough.
unsafe impl Sync for Mounted {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Mounted {}

impl Mounted {
    /// With two references beside the tree's.
    fn new() -> Arc<Self> {
        let mount = Mount::ordinary("ramfs");
        mount.get();
        mount.get();
        let used = core::array::from_fn(|_| UnsafeCell::new(false));
        Arc::new(Self { mount, destroyed: AtomicU32::new(0), used })
    }

    fn told(&self, last: bool) {
        if last {
            self.destroyed.fetch_add(1, Relaxed);
            for cell in &self.used {
                // SAFETY: the claim under test: the destroyer is alone.
                cell.with_mut(|used| unsafe { *used = true });
            }
        }
    }

    fn put(&self, holder: usize) {
        // SAFETY: the claim under test: nobody destroys what this thread has a reference to.
        self.used[holder].with(|used| assert!(unsafe { !*used }, "destroyed while it is held"));
        self.told(self.mount.put());
    }
}

/// Checks a model with at most three preemptions, as counts of mounts have many steps.
fn bounded(model: impl Fn() + Send + Sync + 'static) {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(model);
}

/// Property 4: one holder puts while the mount is detached, and the detacher's own reference goes: one of the three
/// puts is the last.
#[test]
fn one_of_three_is_the_last() {
    bounded(|| {
        let mounted = Mounted::new();
        let holder = {
            let mounted = mounted.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                mounted.put(1);
            })
        };
        mounted.told(mounted.mount.detach());
        mounted.put(0);
        holder.join().unwrap();
        assert_eq!(mounted.destroyed.load(Relaxed), 1);
    });
}

/// Property 4: two put on two CPUs when the mount is already detached: one of them finds that it
/// was the last.
#[test]
fn two_puts_of_a_detached_mount() {
    bounded(|| {
        let mounted = Mounted::new();
        mounted.told(mounted.mount.detach());
        let holder = {
            let mounted = mounted.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                mounted.put(1);
            })
        };
        mounted.put(0);
        holder.join().unwrap();
        assert_eq!(mounted.destroyed.load(Relaxed), 1);
    });
}

/// Property 4: a holder takes a reference on one CPU and puts its old one on another while the detacher sums: no false
/// zero.
#[test]
fn a_reference_that_moves() {
    bounded(|| {
        let mounted = Mounted::new();
        mounted.told(mounted.mount.put());
        let holder = {
            let mounted = mounted.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                mounted.mount.get();
                cpu::migrate(0);
                mounted.put(0);
                mounted.put(1);
            })
        };
        mounted.told(mounted.mount.detach());
        holder.join().unwrap();
        assert_eq!(mounted.destroyed.load(Relaxed), 1);
    });
}
