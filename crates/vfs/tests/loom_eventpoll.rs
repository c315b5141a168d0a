//! Property 12 in every interleaving: an epoll beside those who wake it, and those who wait, add, change, delete and close: no event is
//! lost, of two opposite additions one is refused, and a file's end takes its items away.
//!
//! What is modelled is the library's own source, with files that are a count and a wait queue. An item that is used after its end
//! is found out, because items are the heap's here and their cells are the model's. A wake-up that is lost leaves a thread
//! parked for ever, which the model reports as a deadlock.
//!
//! # Faults that were planted
//!
//! Each is found by the tests that are named: an item taken off without a second look (`Poller::look`:
//! `wake_against_scan_level`, `two_wake`, `nested_wake_against_scan`); a waker that finds its item's number and makes no exchange
//! (`Ready::push`: the same, and `wake_against_scan_edge`); what was pushed left where it is by one who takes an edge-triggered
//! item off (`Poller::collect`: `in_order`); events changed without waiting for calls that go on (`modify` without `settle`:
//! `modify_against_wake`); an epoll's file freed before the epoll is shut
//! (`a_freed_file_is_found_by_a_walk`, which expects that the model finds it;
//! `a_nesting_against_the_end_of_an_epoll_above` and `add_against_close`).
#![cfg(loom)]
// As in the crate's `raw`.
#![allow(unsafe_code, dead_code, unused_imports, unreachable_pub, missing_docs)]

#[path = "../src/eventpoll"]
mod eventpoll {
    pub(crate) mod flags;
}

#[path = "../src/raw"]
mod raw {
    pub(crate) mod eventpoll;
}

use eventpoll::flags::*;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::thread;
use quietline_sync::{SpinLock, Wait, WaitQueue};
use raw::eventpoll::{Item, Nesting, Poller, Wanted, Watchable, file_ends};
use rustix::io::Errno;
use std::ptr::NonNull;
use std::sync::Arc;

/// A file: so many bytes to be read, or a poller.
struct File {
    bytes: AtomicU32,
    queue: WaitQueue,
    items: SpinLock<First>,
    poller: Option<Poller<File>>,
    /// Written where the memory would be freed, and read where the library's code uses it: the
    /// model reports a use that is not ordered before the end.
    memory: UnsafeCell<bool>,
}

// SAFETY: the cell is what the model checks.
unsafe impl Sync for File {}
// SAFETY: as above.
unsafe impl Send for File {}

struct First(*mut Item<File>);
// SAFETY: followed under the lock.
unsafe impl Send for First {}

impl Watchable for File {
    fn look(&self) -> u32 {
        match &self.poller {
            Some(poller) => u32::from(poller.is_readable()) * EPOLLIN,
            None => u32::from(self.bytes.load(Ordering::Relaxed) != 0) * EPOLLIN,
        }
    }

    fn enter(&self, each: &mut dyn FnMut(&WaitQueue)) -> u32 {
        each(self.poller.as_ref().map_or(&self.queue, |poller| poller.pollers()));
        self.look()
    }

    fn poller(&self) -> Option<&Poller<Self>> {
        self.poller.as_ref()
    }

    fn has_items(&self) -> bool {
        self.use_memory();
        self.is_watched()
    }

    fn with_items<R>(&self, f: impl FnOnce(&mut *mut Item<Self>) -> R) -> R {
        self.use_memory();
        f(&mut self.items.lock().0)
    }
}

impl File {
    fn new(poller: Option<Poller<Self>>) -> Arc<Self> {
        let items = SpinLock::new(First(std::ptr::null_mut()));
        let (bytes, queue) = (AtomicU32::new(0), WaitQueue::new());
        Arc::new(Self { bytes, queue, items, poller, memory: UnsafeCell::new(true) })
    }

    fn data() -> Arc<Self> {
        Self::new(None)
    }

    fn epoll() -> Arc<Self> {
        let file = Self::new(Some(Poller::new()));
        file.poller().unwrap().set_own(NonNull::from(&*file));
        file
    }

    fn ep(&self) -> &Poller<Self> {
        self.poller.as_ref().unwrap()
    }

    fn write(&self) {
        self.bytes.fetch_add(1, Ordering::SeqCst);
        self.queue.wake_exchanged(EPOLLIN, 1);
    }

    fn read(&self) -> bool {
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    fn add(&self, file: &File, events: u32, kernel: &Nesting) -> Result<(), Errno> {
        self.add_as(7, file, events, kernel)
    }

    fn add_as(&self, data: u64, file: &File, events: u32, kernel: &Nesting) -> Result<(), Errno> {
        let wanted = Wanted { fd: 0, events, data };
        // SAFETY: the tests keep what is open.
        unsafe { self.ep().add(NonNull::from(file), wanted, kernel, boxed, free) }
    }

    fn delete(&self, file: &File) -> Result<(), Errno> {
        self.ep().delete(NonNull::from(file), 0, free)
    }

    fn collect(&self, max: usize) -> Vec<u32> {
        let mut events = Vec::new();
        self.ep().collect(max, |event, data| {
            assert_eq!(data, 7);
            events.push(event);
        });
        events
    }

    /// Of which files there are events.
    fn collect_data(&self) -> Vec<u64> {
        let mut found = Vec::new();
        self.ep().collect(3, |_, data| found.push(data));
        found
    }

    /// `epoll_wait` without end.
    fn wait(&self) -> Vec<u32> {
        let some = || Some(self.collect(1)).filter(|events| !events.is_empty());
        self.ep().wait_for(&Wait::default(), some).unwrap()
    }

    fn is_watched(&self) -> bool {
        !self.items.lock().0.is_null()
    }

    fn use_memory(&self) {
        // SAFETY: the model finds a write that is not ordered.
        assert!(self.memory.with(|memory| unsafe { *memory }), "a file is used after its end");
    }

    fn free(&self) {
        // SAFETY: as above.
        self.memory.with_mut(|memory| unsafe { *memory = false });
    }

    /// `close`, last.
    fn close(&self) {
        // SAFETY: the test uses it no more, but to look.
        unsafe { file_ends(self, |_, item| free(item)) };
        if let Some(poller) = &self.poller {
            poller.shut(free);
        }
        self.free();
    }
}

fn boxed(item: Item<File>) -> Result<NonNull<Item<File>>, Errno> {
    Ok(NonNull::from(Box::leak(Box::new(item))))
}

fn free(item: NonNull<Item<File>>) {
    // SAFETY: from `boxed`, and the poller has let go of it.
    drop(unsafe { Box::from_raw(item.as_ptr()) });
}

/// With a bound on forced switches per execution the model comes to an end.
fn bounded(switches: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.max_branches = 20_000;
    model.check(f);
}

/// A write beside a wait, with nothing ready before: the wait ends.
fn wake_against_wait(events: u32) {
    bounded(3, move || {
        let (file, ep, kernel) = (File::data(), File::epoll(), Nesting::new());
        ep.add(&file, events, &kernel).unwrap();
        let waiter = {
            let ep = ep.clone();
            thread::spawn(move || ep.wait())
        };
        file.write();
        assert_eq!(waiter.join().unwrap(), [EPOLLIN]);
        file.close();
        ep.close();
    });
}

#[test]
fn wake_against_wait_level() {
    wake_against_wait(EPOLLIN);
}

#[test]
fn wake_against_wait_edge() {
    wake_against_wait(EPOLLIN | EPOLLET);
}

/// A scan that finds nothing ready and takes the item off, beside a write: the event is found afterwards.
fn wake_against_scan(events: u32) {
    bounded(3, move || {
        let (file, ep, kernel) = (File::data(), File::epoll(), Nesting::new());
        file.write();
        ep.add(&file, events, &kernel).unwrap();
        assert!(file.read());
        // Queued, and not ready.
        let scanner = {
            let ep = ep.clone();
            thread::spawn(move || ep.collect(2).len())
        };
        file.write();
        let found = scanner.join().unwrap();
        assert!(found <= 1);
        let after = ep.collect(2).len();
        assert!(found + after >= 1, "the event is lost");
        if events & EPOLLET == 0 {
            assert_eq!(after, 1, "it is still ready");
        }
        file.close();
        ep.close();
    });
}

#[test]
fn wake_against_scan_level() {
    wake_against_scan(EPOLLIN);
}

#[test]
fn wake_against_scan_edge() {
    wake_against_scan(EPOLLIN | EPOLLET);
}

/// A sleeper whose epoll's word is not empty, because what was ready has stayed there: the next write wakes it.
#[test]
fn wake_of_one_whose_number_has_stayed() {
    bounded(3, || {
        let (file, ep, kernel) = (File::data(), File::epoll(), Nesting::new());
        ep.add(&file, EPOLLIN, &kernel).unwrap();
        file.write();
        assert_eq!(ep.collect(1), [EPOLLIN]);
        assert!(file.read());
        let waiter = {
            let ep = ep.clone();
            thread::spawn(move || ep.wait())
        };
        file.write();
        assert_eq!(waiter.join().unwrap(), [EPOLLIN]);
        file.close();
        ep.close();
    });
}

/// One shot, armed again beside a write: there is an event, once.
#[test]
fn armed_again_against_wake() {
    bounded(3, || {
        let (file, ep, kernel) = (File::data(), File::epoll(), Nesting::new());
        ep.add(&file, EPOLLIN | EPOLLONESHOT, &kernel).unwrap();
        file.write();
        assert_eq!(ep.collect(1), [EPOLLIN]);
        assert!(file.read());
        let writer = {
            let file = file.clone();
            thread::spawn(move || file.write())
        };
        let wanted = Wanted { fd: 0, events: EPOLLIN | EPOLLONESHOT, data: 7 };
        ep.ep().modify(NonNull::from(&*file), wanted, |_| Ok(())).unwrap();
        assert_eq!(ep.wait(), [EPOLLIN]);
        writer.join().unwrap();
        assert!(ep.collect(1).is_empty(), "one shot");
        file.close();
        ep.close();
    });
}

/// A number that goes from one item to another beside the first one's waker: what was for the first is not told of the second.
#[test]
fn a_number_used_again() {
    bounded(3, || {
        let (first, second, ep, kernel) =
            (File::data(), File::data(), File::epoll(), Nesting::new());
        ep.add_as(1, &first, EPOLLIN, &kernel).unwrap();
        let writer = {
            let first = first.clone();
            thread::spawn(move || first.write())
        };
        ep.delete(&first).unwrap();
        ep.add_as(2, &second, EPOLLIN, &kernel).unwrap();
        assert!(ep.collect_data().is_empty());
        writer.join().unwrap();
        assert!(ep.collect_data().is_empty());
        second.write();
        assert_eq!(ep.collect_data(), [2]);
        [&first, &second, &ep].iter().for_each(|file| file.close());
    });
}

/// Two scans of an edge-triggered item beside a write: at least one has the event, and no more than there were causes.
#[test]
fn two_scans() {
    bounded(2, || {
        let (file, ep, kernel) = (File::data(), File::epoll(), Nesting::new());
        ep.add(&file, EPOLLIN | EPOLLONESHOT, &kernel).unwrap();
        let scan = || {
            let ep = ep.clone();
            thread::spawn(move || ep.collect(1).len())
        };
        let scanners = [scan(), scan()];
        file.write();
        let found: usize = scanners.into_iter().map(|scanner| scanner.join().unwrap()).sum();
        assert!(found <= 1, "one shot");
        assert_eq!(found + ep.collect(1).len(), 1);
        file.close();
        ep.close();
    });
}

/// A change of what is wanted beside a write: either the write finds the new events, or the change finds the bytes.
#[test]
fn modify_against_wake() {
    bounded(3, || {
        let (file, ep, kernel) = (File::data(), File::epoll(), Nesting::new());
        ep.add(&file, EPOLLOUT, &kernel).unwrap();
        let changer = {
            let (file, ep) = (file.clone(), ep.clone());
            thread::spawn(move || {
                let wanted = Wanted { fd: 0, events: EPOLLIN, data: 7 };
                ep.ep().modify(NonNull::from(&*file), wanted, |_| Ok(())).unwrap();
            })
        };
        file.write();
        changer.join().unwrap();
        assert_eq!(ep.collect(1), [EPOLLIN]);
        file.close();
        ep.close();
    });
}

/// An addition beside a write.
#[test]
fn add_against_wake() {
    bounded(3, || {
        let (file, ep) = (File::data(), File::epoll());
        let writer = {
            let file = file.clone();
            thread::spawn(move || file.write())
        };
        ep.add(&file, EPOLLIN | EPOLLET, &Nesting::new()).unwrap();
        assert_eq!(ep.wait(), [EPOLLIN]);
        writer.join().unwrap();
        file.close();
        ep.close();
    });
}

/// An addition of what is ready beside a wait.
#[test]
fn add_against_wait() {
    bounded(3, || {
        let (file, ep) = (File::data(), File::epoll());
        file.write();
        let waiter = {
            let ep = ep.clone();
            thread::spawn(move || ep.wait())
        };
        ep.add(&file, EPOLLIN | EPOLLET, &Nesting::new()).unwrap();
        assert_eq!(waiter.join().unwrap(), [EPOLLIN]);
        file.close();
        ep.close();
    });
}

/// Two wait and one event is left ready by the first: the second gets it, too.
#[test]
fn what_is_left_wakes_the_next() {
    bounded(2, || {
        let (file, ep, kernel) = (File::data(), File::epoll(), Nesting::new());
        ep.add(&file, EPOLLIN, &kernel).unwrap();
        let waiters = [0, 1].map(|_| {
            let ep = ep.clone();
            thread::spawn(move || ep.wait())
        });
        file.write();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), [EPOLLIN]);
        }
        file.close();
        ep.close();
    });
}

/// A deletion beside a write: whatever comes first, nothing is used after its end, and nothing is left.
#[test]
fn delete_against_wake() {
    bounded(3, || {
        let (file, ep, kernel) = (File::data(), File::epoll(), Nesting::new());
        ep.add(&file, EPOLLIN, &kernel).unwrap();
        let writer = {
            let file = file.clone();
            thread::spawn(move || file.write())
        };
        ep.delete(&file).unwrap();
        assert!(ep.collect(1).is_empty());
        writer.join().unwrap();
        assert_eq!(ep.delete(&file), Err(Errno::NOENT));
        assert!(!ep.ep().may_have());
        file.close();
        ep.close();
    });
}

/// A file and the poller that watches it are closed at once, beside a deletion: the item is freed once (a leak or a
/// second free would be found by the model's heap).
#[test]
fn close_against_close() {
    bounded(3, || {
        let (file, ep, kernel) = (File::data(), File::epoll(), Nesting::new());
        ep.add(&file, EPOLLIN, &kernel).unwrap();
        let closer = {
            let file = file.clone();
            thread::spawn(move || file.close())
        };
        ep.close();
        closer.join().unwrap();
        assert!(!file.is_watched());
        assert_eq!(ep.add(&File::data(), EPOLLIN, &kernel), Err(Errno::BADF));
    });
}

#[test]
fn close_against_delete() {
    bounded(3, || {
        let (file, ep, kernel) = (File::data(), File::epoll(), Nesting::new());
        ep.add(&file, EPOLLIN, &kernel).unwrap();
        let closer = {
            let file = file.clone();
            thread::spawn(move || file.close())
        };
        let deleted = ep.delete(&file);
        assert!(matches!(deleted, Ok(()) | Err(Errno::NOENT)));
        closer.join().unwrap();
        assert!(!file.is_watched());
        ep.close();
    });
}

/// The file ends beside a scan.
#[test]
fn close_against_scan() {
    bounded(3, || {
        let (file, ep, kernel) = (File::data(), File::epoll(), Nesting::new());
        file.write();
        ep.add(&file, EPOLLIN, &kernel).unwrap();
        let scanner = {
            let ep = ep.clone();
            thread::spawn(move || ep.collect(1).len())
        };
        file.close();
        assert!(ep.collect(1).is_empty());
        scanner.join().unwrap();
        ep.close();
    });
}

/// Two levels: a write below beside a wait above.
#[test]
fn nested_wake() {
    bounded(2, || {
        let (file, inner, outer, kernel) =
            (File::data(), File::epoll(), File::epoll(), Nesting::new());
        inner.add(&file, EPOLLIN, &kernel).unwrap();
        outer.add(&inner, EPOLLIN | EPOLLET, &kernel).unwrap();
        let waiter = {
            let outer = outer.clone();
            thread::spawn(move || outer.wait())
        };
        file.write();
        assert_eq!(waiter.join().unwrap(), [EPOLLIN]);
        assert_eq!(inner.collect(1), [EPOLLIN]);
        file.close();
        inner.close();
        outer.close();
    });
}

/// Each is put into the other at once: exactly one of the two is.
#[test]
fn opposite_additions() {
    bounded(2, || {
        let (a, b, kernel) = (File::epoll(), File::epoll(), Arc::new(Nesting::new()));
        let other = {
            let (a, b, kernel) = (a.clone(), b.clone(), kernel.clone());
            thread::spawn(move || a.add(&b, EPOLLIN, &kernel))
        };
        let mine = b.add(&a, EPOLLIN, &kernel);
        let results = [mine, other.join().unwrap()];
        assert!(results.contains(&Ok(())) && results.contains(&Err(Errno::LOOP)), "{results:?}");
        a.close();
        b.close();
    });
}

/// A file is added to a poller while that is put into another: whoever comes second counts the path.
#[test]
fn add_below_against_nesting() {
    bounded(2, || {
        let (file, inner, outer, kernel) =
            (File::data(), File::epoll(), File::epoll(), Arc::new(Nesting::new()));
        let other = {
            let (file, inner, kernel) = (file.clone(), inner.clone(), kernel.clone());
            thread::spawn(move || inner.add(&file, EPOLLIN, &kernel).unwrap())
        };
        outer.add(&inner, EPOLLIN, &kernel).unwrap();
        other.join().unwrap();
        file.write();
        assert_eq!(outer.collect(1), [EPOLLIN]);
        file.close();
        inner.close();
        outer.close();
    });
}

/// A walk up from a file, beside the end of another epoll that watches the file.
fn walk_against_end(end: impl Fn(&File) + Copy + Sync + Send + 'static) {
    bounded(2, move || {
        let (file, ending, inner, outer, kernel) =
            (File::data(), File::epoll(), File::epoll(), File::epoll(), Nesting::new());
        ending.add(&file, EPOLLIN, &kernel).unwrap();
        outer.add(&inner, EPOLLIN, &kernel).unwrap();
        let closer = {
            let ending = ending.clone();
            thread::spawn(move || end(&ending))
        };
        // It is watched itself, so the paths to the file are counted.
        inner.add(&file, EPOLLIN, &kernel).unwrap();
        closer.join().unwrap();
        file.close();
        inner.close();
        outer.close();
    });
}

#[test]
fn a_walk_against_the_end_of_an_epoll() {
    walk_against_end(File::close);
}

/// An epoll is added to another, beside the end of a third one, which watches the second.
#[test]
fn a_nesting_against_the_end_of_an_epoll_above() {
    bounded(2, || {
        let [ending, middle, below] = [(); 3].map(|()| File::epoll());
        let kernel = Nesting::new();
        ending.add(&middle, EPOLLIN, &kernel).unwrap();
        let closer = {
            let ending = ending.clone();
            thread::spawn(move || ending.close())
        };
        middle.add(&below, EPOLLIN, &kernel).unwrap();
        closer.join().unwrap();
        middle.close();
        below.close();
    });
}

/// A file is added to an epoll that is closed meanwhile: the epoll takes it, or has ended.
#[test]
fn add_against_close() {
    bounded(2, || {
        let (file, other, ep, kernel) =
            (File::data(), File::epoll(), File::epoll(), Nesting::new());
        let closer = {
            let ep = ep.clone();
            thread::spawn(move || ep.close())
        };
        for watched in [&file, &other] {
            let added = ep.add(watched, EPOLLIN, &kernel);
            assert!(matches!(added, Ok(()) | Err(Errno::BADF)), "{added:?}");
        }
        closer.join().unwrap();
        assert!(!file.is_watched() && !other.is_watched());
        file.close();
        other.close();
    });
}

#[test]
#[should_panic(expected = "Concurrent read and write accesses")]
fn a_freed_file_is_found_by_a_walk() {
    walk_against_end(|ending| {
        // SAFETY: as in `close`.
        unsafe { file_ends(ending, |_, item| free(item)) };
        ending.free();
        ending.ep().shut(free);
    });
}

/// An epoll with three files: in the model one number fits into the word, and the third item has none. So the first goes by its
/// number, the others by the stack.
fn three(events: u32) -> ([Arc<File>; 3], Arc<File>) {
    let (files, ep, kernel) = ([(); 3].map(|()| File::data()), File::epoll(), Nesting::new());
    for (n, file) in (1..).zip(&files) {
        ep.add_as(n, file, events, &kernel).unwrap();
    }
    (files, ep)
}

fn close_three(files: &[Arc<File>; 3], ep: &File) {
    files.iter().for_each(|file| file.close());
    ep.close();
}

/// What is written one after the other is told in that order, each once, however it came to the epoll.
#[test]
fn in_order() {
    bounded(3, || {
        let (files, ep) = three(EPOLLIN | EPOLLET);
        let scanner = {
            let ep = ep.clone();
            thread::spawn(move || ep.collect_data())
        };
        files.iter().for_each(|file| file.write());
        let mut found = scanner.join().unwrap();
        found.extend(ep.collect_data());
        assert_eq!(found, [1, 2, 3]);
        assert!(!ep.ep().may_have());
        close_three(&files, &ep);
    });
}

/// Two write to different files of one epoll, beside a scan: both are found, by the number or by the stack.
#[test]
fn two_wake() {
    bounded(2, || {
        let (files, ep) = three(EPOLLIN);
        files[0].write();
        assert_eq!(ep.collect_data(), [1]);
        assert!(files[0].read());
        // The first stays in the word until a scan finds it not ready.
        let writer = {
            let file = files[0].clone();
            thread::spawn(move || file.write())
        };
        let scanner = {
            let ep = ep.clone();
            thread::spawn(move || ep.collect_data())
        };
        files[1].write();
        writer.join().unwrap();
        scanner.join().unwrap();
        let mut found = ep.collect_data();
        found.sort_unstable();
        assert_eq!(found, [1, 2], "both are ready");
        close_three(&files, &ep);
    });
}

/// A deletion beside a wake-up that goes by the stack.
#[test]
fn delete_against_wake_by_stack() {
    bounded(3, || {
        let (files, ep) = three(EPOLLIN);
        files[0].write();
        let writer = {
            let file = files[2].clone();
            thread::spawn(move || file.write())
        };
        ep.delete(&files[2]).unwrap();
        assert_eq!(ep.collect_data(), [1]);
        writer.join().unwrap();
        assert_eq!(ep.collect_data(), [1]);
        close_three(&files, &ep);
    });
}

/// Two levels, both queued and neither ready: a write beside a scan of the outer one is found afterwards.
#[test]
fn nested_wake_against_scan() {
    bounded(2, || {
        let (file, inner, outer, kernel) =
            (File::data(), File::epoll(), File::epoll(), Nesting::new());
        inner.add(&file, EPOLLIN, &kernel).unwrap();
        outer.add(&inner, EPOLLIN, &kernel).unwrap();
        file.write();
        assert_eq!(outer.collect(1), [EPOLLIN]);
        assert_eq!(inner.collect(1), [EPOLLIN]);
        assert!(file.read());
        let scanner = {
            let outer = outer.clone();
            thread::spawn(move || outer.collect(1).len())
        };
        file.write();
        assert!(scanner.join().unwrap() <= 1);
        assert_eq!(outer.collect(1), [EPOLLIN], "the event is lost");
        assert_eq!(inner.collect(1), [EPOLLIN]);
        file.close();
        inner.close();
        outer.close();
    });
}
