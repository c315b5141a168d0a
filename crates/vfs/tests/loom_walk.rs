//! What a walk that saw a mount may do with it, in every interleaving (properties 4 and 9).
//!
//! The mount is a cell and the library's own counts; the table of mounts is the library's own source.
#![cfg(loom)]
// The cells by which the model sees who is alone with what.
#![allow(unsafe_code)]

#[allow(dead_code, unreachable_pub)]
#[path = "../src/mount.rs"]
mod mount;
#[allow(dead_code, unreachable_pub)]
#[path = "../src/raw/mount_table.rs"]
mod mount_table;

use core::ptr::NonNull;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use mount::{Got, Mount};
use mount_table::MountTable;
use quietline_platform::cell::UnsafeCell;
use quietline_platform::{cpu, thread};
use quietline_sync::{Lockref, Seqcount, rcu::Domain};
use std::pin::Pin;
use std::sync::Arc;

/// A mount, and whether it was ended: whoever uses it reads the cell, whoever ends it writes it.
struct Mounted {
    counts: Mount,
    ended: UnsafeCell<bool>,
    ends: AtomicU32,
}

// SAFETY: the cell is accessed as the protocol says, and the model finds out where that is not enough.
unsafe impl Sync for Mounted {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Mounted {}

impl Mounted {
    fn new() -> Arc<Self> {
        let counts = Mount::ordinary("ramfs");
        Arc::new(Self { counts, ended: UnsafeCell::new(false), ends: AtomicU32::new(0) })
    }

    fn use_it(&self) {
        // SAFETY: the claim under test: nobody ends what somebody has a reference to.
        self.ended.with(|ended| assert!(unsafe { !*ended }, "ended while it is held"));
    }

    fn told(&self, last: bool) {
        if last {
            self.ends.fetch_add(1, Relaxed);
            // SAFETY: the claim under test: whoever ends it is alone with it.
            self.ended.with_mut(|ended| unsafe { *ended = true });
        }
    }

    /// What a walk does at its end with a mount that it saw; whether it got a reference.
    fn legitimize(&self) -> bool {
        match self.counts.get_mounted() {
            Got::Reference => {
                self.use_it();
                self.told(self.counts.put());
                true
            }
            Got::Nothing => false,
            Got::LastPut => {
                self.told(true);
                false
            }
        }
    }

    /// What `umount` does; whether it went.
    fn umount(&self) -> bool {
        let held = self.counts.begin_umount().expect("it is mounted");
        let goes = held == 1;
        self.counts.end_umount(goes);
        if goes {
            self.told(self.counts.put());
        }
        goes
    }
}

fn bounded(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

/// A walk takes a reference while the mount is unmounted: either it has one and the unmounter finds it busy, or it has none
/// and the mount ends; once.
#[test]
fn a_walk_and_an_unmount() {
    bounded(3, || {
        let mounted = Mounted::new();
        let walker = {
            let mounted = mounted.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                mounted.legitimize()
            })
        };
        let went = mounted.umount();
        let _got = walker.join().unwrap();
        assert_eq!(mounted.ends.load(Relaxed), u32::from(went));
        if !went {
            assert!(mounted.legitimize(), "it is mounted as before");
        }
    });
}

/// The same, lazily: nobody asks whether it is busy, and the last reference ends it.
#[test]
fn a_walk_and_a_lazy_unmount() {
    bounded(3, || {
        let mounted = Mounted::new();
        let walker = {
            let mounted = mounted.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                mounted.legitimize()
            })
        };
        mounted.counts.end_umount(true);
        mounted.told(mounted.counts.put());
        walker.join().unwrap();
        assert_eq!(mounted.ends.load(Relaxed), 1);
    });
}

/// A walk crosses a mountpoint while the mount on it is taken off, ended, and freed after a grace period: what it finds is
/// there as long as its section is open.
#[test]
fn a_mountpoint_is_crossed_while_it_is_unmounted() {
    bounded(2, || {
        let domain: Arc<Pin<Box<Domain>>> = Arc::new(Domain::new().unwrap());
        let table = Arc::new(MountTable::<Mounted>::new());
        let mounted = Mounted::new();
        // SAFETY: nobody else has the table yet; the mount stays to the end of the model, and is "freed" by what writes its cell.
        unsafe { table.insert(8, NonNull::from(&*mounted), &domain).unwrap() };
        let walker = {
            let (domain, table) = (domain.clone(), table.clone());
            thread::spawn(move || {
                cpu::migrate(1);
                let section = domain.read();
                if let Some(found) = table.find(8, &section) {
                    // SAFETY: the claim under test: it is not freed while the section is open.
                    found.ended.with(|ended| assert!(unsafe { !*ended }, "freed under a section"));
                }
                assert!(table.find(16, &section).is_none());
            })
        };
        table.remove(8);
        domain.synchronize();
        mounted.told(true);
        walker.join().unwrap();
    });
}

/// A mount is added to a table that a walk is looking into: what was there is found all the time.
#[test]
fn a_table_grows_under_a_walk() {
    bounded(2, || {
        let domain: Arc<Pin<Box<Domain>>> = Arc::new(Domain::new().unwrap());
        let table = Arc::new(MountTable::<Mounted>::new());
        let (one, two) = (Mounted::new(), Mounted::new());
        // SAFETY: nobody else has the table yet; both stay to the end of the model.
        unsafe { table.insert(8, NonNull::from(&*one), &domain).unwrap() };
        let walker = {
            let (domain, table, one, two) =
                (domain.clone(), table.clone(), one.clone(), two.clone());
            thread::spawn(move || {
                cpu::migrate(1);
                let section = domain.read();
                let found = table.find(8, &section).expect("it is there all the time");
                assert!(core::ptr::eq(found, &*one));
                let other = table.find(4, &section);
                assert!(other.is_none_or(|other| core::ptr::eq(other, &*two)));
            })
        };
        // SAFETY: this thread alone changes it.
        unsafe { table.insert(4, NonNull::from(&*two), &domain).unwrap() };
        walker.join().unwrap();
        domain.barrier();
    });
}

/// Property 9, of the dentry: a reference is taken, then the sequence count is looked at. Who renames moves the count first.
/// So a reference that is kept is to what was seen, and one that is not is given back.
#[test]
fn a_dentry_is_taken_while_it_is_moved() {
    struct Dentry {
        seq: Seqcount,
        lockref: Lockref,
        name: loom::sync::atomic::AtomicU64,
    }
    bounded(3, || {
        let name = loom::sync::atomic::AtomicU64::new(1);
        let dentry = Arc::new(Dentry { seq: Seqcount::new(), lockref: Lockref::new(1), name });
        let walker = {
            let dentry = dentry.clone();
            thread::spawn(move || {
                let Some(seen) = dentry.seq.read_try() else { return };
                let name = dentry.name.load(Relaxed);
                if dentry.seq.read_retry(seen) || name != 1 {
                    return;
                }
                if dentry.lockref.get_not_dead() {
                    // Whether it still has that name is asked after the reference was taken.
                    if !dentry.seq.read_retry(seen) {
                        assert!(dentry.lockref.count() > 0);
                    }
                    let _ = dentry.lockref.put_or_lock().map(|mut guard| {
                        guard.put();
                    });
                }
            })
        };
        {
            let _writing = dentry.seq.write();
            dentry.name.store(2, Relaxed);
        }
        // Taken out for good.
        let mut guard = dentry.lockref.lock();
        if guard.count() == 1 {
            guard.mark_dead();
        }
        drop(guard);
        walker.join().unwrap();
        let count = dentry.lockref.count();
        assert!(count == Lockref::DEAD || count == 1, "no reference is left over: {count}");
    });
}
