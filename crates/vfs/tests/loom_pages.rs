//! A file's pages: readers that take no lock beside the one who writes, cuts and reserves, in every interleaving.
//!
//! What is modelled is the library's own source: the tree, its writer, and what reads and writes are made of. Nodes have two
//! slots here instead of 64, and pages two pieces, each a value that all its bytes have. Slabs are native, so memory is the
//! heap's: what is freed after a grace period is kept until `flush`, and then taken back by a write that the model sees. A reader
//! that still looks at it is found out. Domain, sections and grace periods are the library's own.
//!
//! # Faults that were planted
//!
//! Each is found by the tests that are named: a page published before it is filled (`publish` relaxed: all three growths,
//! `a_reserved_page...`); pages freed at once (`free` for `free_rcu`: `what_is_cut_off_stays...`); the size told after the pages
//! are gone (`set_size` behind `remove` in `truncate`: `what_was_cut_off_is_not_read_as_zeros`), or without its fence (the same); the size
//! told before the bytes are written (`set_size` before the loop in `fill`: `who_sees_a_size...`); a tree that grows by a root that is
//! published empty (`a_tree_that_grows...`).
#![cfg(loom)]
// As in the crate's `raw`.
#![allow(unsafe_code, dead_code, unused_imports, unreachable_pub, missing_docs)]

#[path = "../src/ramfs"]
mod ramfs {
    #[path = "pages"]
    pub(crate) mod pages {
        mod change;
        mod read;

        pub(crate) use crate::memory::{PageCaches, Quota};
        pub(crate) use crate::raw::page_tree::{PageTree, PageWriter};
        use read::{Pieces, page_of};

        pub(crate) const PAGE_SIZE: usize = 64;
        pub(crate) const MAX_SIZE: u64 = 1 << 15;
    }
}

#[path = "../src/raw"]
mod raw {
    pub(crate) mod page_tree;

    pub(crate) use crate::memory::copy;
}

/// Pages and nodes of the heap.
mod memory {
    use crate::ramfs::pages::PAGE_SIZE;
    use crate::raw::page_tree::Node;
    use core::ptr::NonNull;
    use loom::sync::Mutex;
    use loom::sync::atomic::{AtomicPtr, AtomicU8};
    use quietline_platform::AllocError;
    use quietline_sync::rcu::Domain;

    /// Pieces of a page.
    const PIECES: usize = 2;

    /// What a page's address is the address of. It is as long as it is; only its first 64 bytes have addresses in use.
    #[repr(align(64))]
    struct Bytes([AtomicU8; PIECES]);

    pub(crate) mod copy {
        use super::{Bytes, PAGE_SIZE, PIECES};
        use loom::sync::atomic::{AtomicU8, Ordering::Relaxed};

        /// The piece that an address is in.
        unsafe fn piece<'a>(at: *const u8) -> &'a AtomicU8 {
            let page = at.map_addr(|at| at & !(PAGE_SIZE - 1)).cast::<Bytes>();
            // SAFETY: inside a page, which is checked to be there by the access itself.
            unsafe { &(*page).0[at.addr() % PAGE_SIZE / (PAGE_SIZE / PIECES)] }
        }

        /// Calls `each` for each piece that has some of the bytes: it, and which of the bytes.
        unsafe fn pieces(
            at: *const u8,
            n: usize,
            mut each: impl FnMut(&AtomicU8, core::ops::Range<usize>),
        ) {
            let mut from = 0;
            while from < n {
                let here = at.wrapping_add(from);
                let left = PAGE_SIZE / PIECES - here.addr() % (PAGE_SIZE / PIECES);
                let to = n.min(from + left);
                // SAFETY: by contract.
                each(unsafe { piece(here) }, from..to);
                from = to;
            }
        }

        pub(crate) unsafe fn copy_out(from: *const u8, to: *mut u8, n: usize) {
            // SAFETY: by contract.
            unsafe {
                pieces(from, n, |piece, bytes| {
                    to.add(bytes.start).write_bytes(piece.load(Relaxed), bytes.len())
                })
            };
        }

        pub(crate) unsafe fn copy_in(from: *const u8, to: *mut u8, n: usize) {
            // SAFETY: by contract.
            unsafe {
                pieces(to, n, |piece, bytes| piece.store(from.add(bytes.start).read(), Relaxed))
            };
        }

        pub(crate) unsafe fn copy_over(from: *const u8, to: *mut u8, n: usize) {
            let mut between = [0; PAGE_SIZE];
            // SAFETY: by contract; no more than a page.
            unsafe {
                copy_out(from, between.as_mut_ptr(), n);
                copy_in(between.as_ptr(), to, n);
            }
        }

        pub(crate) unsafe fn zero(to: *mut u8, n: usize) {
            // SAFETY: by contract.
            unsafe { pieces(to, n, |piece, _| piece.store(0, Relaxed)) };
        }
    }

    /// The address of some memory, for those that wait.
    #[derive(Clone, Copy)]
    struct Waiting(NonNull<u8>);

    // SAFETY: an address.
    unsafe impl Send for Waiting {}

    /// As much of a `RawCache` as is used.
    pub(crate) struct Cache {
        make: fn() -> NonNull<u8>,
        /// Takes memory back, by a write that must not meet any other access.
        end: unsafe fn(NonNull<u8>),
        waiting: Mutex<Vec<Waiting>>,
    }

    impl Cache {
        fn new(make: fn() -> NonNull<u8>, end: unsafe fn(NonNull<u8>)) -> Self {
            Self { make, end, waiting: Mutex::new(Vec::new()) }
        }

        pub(crate) fn alloc(&self) -> Result<NonNull<u8>, AllocError> {
            Ok((self.make)())
        }

        pub(crate) fn alloc_bulk(
            &self,
            into: &mut [Option<NonNull<u8>>],
        ) -> Result<(), AllocError> {
            into.iter_mut().for_each(|entry| *entry = Some((self.make)()));
            Ok(())
        }

        pub(crate) unsafe fn free(&self, object: NonNull<u8>) {
            // SAFETY: by contract.
            unsafe { (self.end)(object) };
        }

        pub(crate) unsafe fn free_bulk(&self, objects: &mut [Option<NonNull<u8>>]) {
            // SAFETY: by contract.
            objects
                .iter_mut()
                .filter_map(Option::take)
                .for_each(|object| unsafe { self.free(object) });
        }

        pub(crate) unsafe fn free_rcu(&self, object: NonNull<u8>) {
            self.waiting.lock().unwrap().push(Waiting(object));
        }
    }

    fn make_page() -> NonNull<u8> {
        let bytes = Bytes(core::array::from_fn(|_| AtomicU8::new(99)));
        NonNull::from(Box::leak(Box::new(bytes))).cast()
    }

    unsafe fn end_page(page: NonNull<u8>) {
        // SAFETY: `make_page` made it; that nobody else looks at it is the claim under test.
        let bytes = unsafe { page.cast::<Bytes>().as_mut() };
        bytes.0.iter_mut().for_each(|piece| piece.with_mut(|piece| *piece = 0xdd));
    }

    fn make_node() -> NonNull<u8> {
        NonNull::from(Box::leak(Box::<Node>::new_uninit())).cast()
    }

    unsafe fn end_node(node: NonNull<u8>) {
        // A node begins with its slots.
        // SAFETY: as in `end_page`.
        let slots = unsafe { node.cast::<[AtomicPtr<u8>; 2]>().as_mut() };
        slots.iter_mut().for_each(|slot| slot.with_mut(|slot| *slot = core::ptr::dangling_mut()));
    }

    /// Where pages come from.
    pub(crate) struct PageCaches {
        pub(crate) page: Cache,
        pub(crate) node: Cache,
        domain: &'static Domain,
    }

    impl PageCaches {
        pub(crate) fn new(domain: &'static Domain) -> Self {
            Self {
                page: Cache::new(make_page, end_page),
                node: Cache::new(make_node, end_node),
                domain,
            }
        }

        pub(crate) fn domain(&self) -> &'static Domain {
            self.domain
        }

        /// What waits, waits for a grace period.
        pub(crate) fn flush(&self) {
            for cache in [&self.page, &self.node] {
                let waiting = core::mem::take(&mut *cache.waiting.lock().unwrap());
                if waiting.is_empty() {
                    continue;
                }
                self.domain.synchronize();
                // SAFETY: each was given to `free_rcu`, once.
                waiting.into_iter().for_each(|Waiting(object)| unsafe { (cache.end)(object) });
            }
        }
    }

    pub(crate) trait Quota {
        fn charge(&self, pages: u64) -> bool;
        fn uncharge(&self, pages: u64);
        fn left(&self) -> u64;
    }

    impl Quota for () {
        fn charge(&self, _: u64) -> bool {
            true
        }
        fn uncharge(&self, _: u64) {}
        fn left(&self) -> u64 {
            u64::MAX
        }
    }
}

use memory::PageCaches;
use quietline_platform::thread;
use quietline_sync::rcu::Domain;
use ramfs::pages::{PAGE_SIZE, PageTree};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const PAGE: u64 = PAGE_SIZE as u64;
const HALF: usize = PAGE_SIZE / 2;

fn explore(switches: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(switches));
    builder.max_branches = 20_000;
    let tried = Arc::new(AtomicUsize::new(0));
    let count = tried.clone();
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        f();
    });
    let tried = tried.load(Relaxed);
    println!("{tried} orders");
    assert!(tried > 4, "the threads have not met");
}

/// An empty file of a kernel that is never dropped.
fn file() -> &'static PageTree<'static> {
    let domain: &'static Domain = Domain::leaked().unwrap();
    Box::leak(Box::new(PageTree::new(Box::leak(Box::new(PageCaches::new(domain))))))
}

/// Writes half a page.
fn write(file: &PageTree<'_>, offset: u64, value: u8) {
    let n = file.write().write_at(&(), offset, &[value; HALF]).unwrap();
    assert_eq!(n, HALF);
}

/// The values of the half pages that a read of so many finds, each of which has one value.
fn read(file: &PageTree<'_>, offset: u64, halves: usize) -> Vec<u8> {
    let mut bytes = vec![77; halves * HALF];
    let section = file.caches().domain().read();
    let n = file.read_at(&section, offset, &mut bytes);
    assert_eq!(n % HALF, 0, "sizes are of half pages");
    bytes.truncate(n);
    bytes.chunks(HALF).map(|half| half[0]).collect()
}

/// A reader on another CPU. Readers are spawned, and the one who changes something is the first thread, because of how loom finds
/// out which orders to try: it looks at the *last* access to a word only. A first thread that loads a word, and a second one
/// that loads it and then stores it, are to loom without conflict, and the model would try one order of them.
fn reader(read: impl FnOnce() + 'static) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        quietline_platform::cpu::migrate(1);
        read();
    })
}

/// A second page, for which a root is put above the first; then one that needs two levels more. What was there is there all the
/// time, what comes is there whole or not at all.
#[test]
fn a_tree_that_grows_is_whole_to_readers() {
    for further in [1, 3] {
        explore(3, move || {
            let file = file();
            write(file, 0, 1);
            // So that what is behind is a hole and not the end.
            file.write().truncate(&(), 8 * PAGE).unwrap();
            let reader = reader(move || {
                assert_eq!(read(file, 0, 1), [1]);
                let new = read(file, further * PAGE, 2);
                assert!(new == [0, 0] || new == [2, 0], "{new:?}");
            });
            write(file, further * PAGE, 2);
            reader.join().unwrap();
            assert_eq!((read(file, 0, 1), read(file, further * PAGE, 1)), (vec![1], vec![2]));
            assert_eq!(file.page_count(), 2);
        });
    }
}

/// The first page of a file, and one below a node that is there already.
#[test]
fn a_page_that_is_made_is_filled_before_it_is_found() {
    for there in [None, Some(1)] {
        explore(3, move || {
            let file = file();
            if let Some(there) = there {
                write(file, there * PAGE, 9);
            }
            file.write().truncate(&(), 2 * PAGE).unwrap();
            let reader = reader(move || {
                let new = read(file, 0, 2);
                assert!(new == [0, 0] || new == [0, 2], "{new:?}");
            });
            write(file, HALF as u64, 2);
            reader.join().unwrap();
        });
    }
}

/// Who sees a size sees what was written below it.
#[test]
fn who_sees_a_size_sees_what_is_below() {
    explore(3, || {
        let file = file();
        let reader = reader(move || {
            let found = read(file, 0, 2);
            assert!([1, 2].starts_with(&found), "{found:?}");
        });
        write(file, 0, 1);
        write(file, HALF as u64, 2);
        reader.join().unwrap();
        assert_eq!(read(file, 0, 2), [1, 2]);
    });
}

/// A page that is cut off while a reader copies out of it stays until the reader is done; so do the nodes above it.
#[test]
fn what_is_cut_off_stays_until_its_readers_have_left() {
    explore(2, || {
        let file = file();
        write(file, 0, 1);
        write(file, 2 * PAGE, 2);
        let reader = reader(move || {
            let found = read(file, 2 * PAGE, 1);
            assert!(found.is_empty() || found == [2], "{found:?}");
        });
        file.write().truncate(&(), PAGE).unwrap();
        file.caches().flush();
        reader.join().unwrap();
        assert_eq!((file.page_count(), read(file, 0, 2)), (1, vec![1, 0]));
    });
}

/// What was cut off is not read as zeros: the read ends before it. (A file that grows again has zeros there.)
#[test]
fn what_was_cut_off_is_not_read_as_zeros() {
    for cut in [0, HALF as u64, PAGE] {
        explore(3, move || {
            let file = file();
            for half in 0..4 {
                write(file, half * HALF as u64, half as u8 + 1);
            }
            let reader = reader(move || {
                let found = read(file, 0, 4);
                assert!([1, 2, 3, 4].starts_with(&found), "{found:?}");
            });
            file.write().truncate(&(), cut).unwrap();
            reader.join().unwrap();
            assert_eq!(file.size(), cut);
        });
    }
}

/// A page that was reserved and is then written: zeros, or what was written, never what the memory held.
#[test]
fn a_reserved_page_is_not_seen_before_it_is_written() {
    explore(3, || {
        let file = file();
        file.write().allocate(&(), 0, PAGE, false).unwrap();
        assert_eq!(read(file, 0, 2), [0, 0]);
        let reader = reader(move || {
            let found = read(file, 0, 2);
            assert!(found == [0, 0] || found == [5, 0], "{found:?}");
        });
        write(file, 0, 5);
        reader.join().unwrap();
        assert_eq!(read(file, 0, 2), [5, 0]);
    });
}

/// A hole is punched beside a reader: each page is as it was, or zeros.
#[test]
fn a_hole_that_is_punched() {
    explore(2, || {
        let file = file();
        write(file, 0, 1);
        write(file, PAGE, 2);
        let reader = reader(move || {
            let found = read(file, 0, 3);
            assert!([1, 0].contains(&found[0]) && found[1] == 0 && found[2] == 2, "{found:?}");
        });
        file.write().punch_hole(&(), 0, PAGE);
        file.caches().flush();
        reader.join().unwrap();
        assert_eq!(read(file, 0, 3), [0, 0, 2]);
    });
}
