//! One file watched by one poller.

use super::poller::Poller;
use super::ready::Link;
use super::{Wanted, Watchable};
use crate::eventpoll::flags::{EPOLLET, EPOLLEXCLUSIVE, EPOLLIN, EPOLLONESHOT, EPOLLOUT, PRIVATE};
use core::mem::MaybeUninit;
use core::num::NonZeroU8;
use core::pin::Pin;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::hint;
use quietline_sync::{Callback, Entry, Reply, WaitQueue};

/// Queues that an object has its pollers wait in at most: one to read, one to write.
const QUEUES: usize = 2;

/// A watched file (`struct epitem`). Lives while it is in its poller's table. On lines of its own, because neighbours in a slab
/// are of other pollers.
///
/// What those write who wait comes first, then what wakers only read: so that a wake-up writes no line of the item, and
/// finds all that it needs on lines that stay with it. (But see [`Link`].)
#[repr(C, align(64))]
pub(crate) struct Item<F: Watchable> {
    /// First, so that a pointer to it is one to the item.
    pub(super) link: Link,
    own: UnsafeCell<Own<F>>,
    entries: [Apart<UnsafeCell<Place<F>>>; QUEUES],
    /// The events that are wanted, with the bits that say how. Written under the poller's lock.
    pub(super) events: AtomicU32,
    pub(super) fd: i32,
    pub(super) file: NonNull<F>,
    pub(super) home: NonNull<Poller<F>>,
    /// The file's [line](Watchable::line).
    line: *const u8,
    /// Among the poller's items, if there are not too many.
    pub(super) number: Option<NonZeroU8>,
    beside: UnsafeCell<Beside<F>>,
}

/// For an entry in a queue of the file.
type Place<F> = MaybeUninit<Entry<'static, Wake<F>>>;

/// On a line of its own.
#[repr(align(64))]
struct Apart<T>(T);

/// What the poller's lock protects.
pub(super) struct Own<F: Watchable> {
    pub(super) data: u64,
    /// Neighbours on the list, and whether it is on it.
    pub(super) next: *mut Item<F>,
    pub(super) prev: *mut Item<F>,
    pub(super) listed: bool,
    /// Entries that are made.
    entries: usize,
}

/// Neighbours among the items of one file; under that file's lock.
pub(super) struct Beside<F: Watchable> {
    pub(super) next: *mut Item<F>,
    pub(super) prev: *mut Item<F>,
}

/// What a queue of the file calls.
pub(super) struct Wake<F: Watchable>(NonNull<Item<F>>);

// SAFETY: items are made of atomics and of what locks protect; the entry leaves its queue before the item ends.
unsafe impl<F: Watchable> Send for Wake<F> {}
// SAFETY: as above.
unsafe impl<F: Watchable> Sync for Wake<F> {}

impl<F: Watchable> Callback for Wake<F> {
    /// `ep_poll_callback`. Writes the line of what was pushed to the poller, on which the queue of its pollers is too, and, if
    /// somebody waits, that of those who wait: no line that two pollers share.
    fn wake(&self, key: u32) -> Reply {
        // SAFETY: the item takes its entries out of their queues before it ends.
        let item = unsafe { self.0.as_ref() };
        // Relaxed: `Entry::settle` orders it: who changes it looks at the file after every call that has not seen the change.
        let wanted = item.events.load(Ordering::Relaxed);
        if wanted & !PRIVATE == 0 || wanted & key == 0 {
            return Reply::Ignored;
        }
        // SAFETY: the poller outlives its items, and they stay until they have left what was pushed and the list.
        let home = unsafe {
            let home = item.home.as_ref();
            home.still.fetch_above();
            home.ready.push(self.0.cast(), item.number, wanted & (EPOLLET | EPOLLONESHOT) == 0);
            home
        };
        let woken = home.announce();
        if wanted & EPOLLEXCLUSIVE == 0 || (woken && wants_exactly(wanted, key)) {
            Reply::Woken
        } else {
            Reply::Ignored
        }
    }
}

/// Whether an exclusive item has used a wake-up: one direction, and the one that it waits for; or none in particular.
fn wants_exactly(wanted: u32, key: u32) -> bool {
    match key & (EPOLLIN | EPOLLOUT) {
        _ if key == WaitQueue::ANY => true,
        0 => true,
        one => one != (EPOLLIN | EPOLLOUT) && wanted & one != 0,
    }
}

impl<F: Watchable> Item<F> {
    /// # Safety
    /// The file is open.
    pub(super) unsafe fn new(
        home: &Poller<F>,
        file: NonNull<F>,
        wanted: Wanted,
        number: Option<NonZeroU8>,
    ) -> Self {
        let Wanted { fd, events, data } = wanted;
        // SAFETY: the caller keeps it open.
        let line = unsafe { file.as_ref() }.line();
        Self {
            link: Link::new(),
            own: UnsafeCell::new(Own {
                data,
                next: ptr::null_mut(),
                prev: ptr::null_mut(),
                listed: false,
                entries: 0,
            }),
            entries: core::array::from_fn(|_| Apart(UnsafeCell::new(MaybeUninit::uninit()))),
            events: AtomicU32::new(events),
            fd,
            file,
            home: NonNull::from(home),
            line,
            number,
            beside: UnsafeCell::new(Beside { next: ptr::null_mut(), prev: ptr::null_mut() }),
        }
    }

    /// Begins to fetch the line that comes from whoever has woken the item: for who looks at the file, and then writes it.
    #[inline(always)]
    pub(super) fn fetch(&self) {
        if !self.line.is_null() {
            hint::prefetch_write(self.line);
        }
    }

    /// # Safety
    /// The caller holds the poller's lock, and `f` gets at no other item's.
    #[inline(always)]
    pub(super) unsafe fn own<R>(&self, f: impl FnOnce(&mut Own<F>) -> R) -> R {
        // SAFETY: by contract nobody else has it.
        self.own.with_mut(|own| f(unsafe { &mut *own }))
    }

    /// # Safety
    /// The caller holds the file's lock, and `f` gets at no other item's.
    pub(super) unsafe fn beside<R>(&self, f: impl FnOnce(&mut Beside<F>) -> R) -> R {
        // SAFETY: by contract nobody else has it.
        self.beside.with_mut(|beside| f(unsafe { &mut *beside }))
    }

    /// Enters a queue of the file.
    ///
    /// # Panics
    /// If the file has more queues than any may have.
    ///
    /// # Safety
    /// The caller holds the poller's lock. The queue lives until [`leave`](Self::leave).
    pub(super) unsafe fn enter(this: NonNull<Self>, queue: &WaitQueue) {
        // SAFETY: by contract.
        unsafe {
            let item = this.as_ref();
            let exclusive = item.events.load(Ordering::Relaxed) & EPOLLEXCLUSIVE != 0;
            let queue: &'static WaitQueue = &*ptr::from_ref(queue);
            let at = item.own(|own| {
                own.entries += 1;
                own.entries - 1
            });
            assert!(at < QUEUES, "a file has two queues at most");
            item.entries[at]
                .0
                .with_mut(|entry| (*entry).write(Entry::new(queue, Wake(this), exclusive)));
            item.entry(at).add();
        }
    }

    /// # Safety
    /// It has been made, and stays while the result is used.
    unsafe fn entry(&self, at: usize) -> Pin<&Entry<'static, Wake<F>>> {
        // SAFETY: by contract; items do not move.
        self.entries[at].0.with(|entry| unsafe { Pin::new_unchecked((*entry).assume_init_ref()) })
    }

    /// Waits for calls that are going on: those that come later see what the caller has changed.
    ///
    /// # Safety
    /// The caller holds the poller's lock.
    pub(super) unsafe fn settle(&self) {
        // SAFETY: by contract.
        unsafe {
            for at in 0..self.own(|own| own.entries) {
                self.entry(at).settle();
            }
        }
    }

    /// Leaves the queues of the file. After this nobody pushes the item.
    ///
    /// # Safety
    /// The caller holds the poller's lock.
    pub(super) unsafe fn leave(&self) {
        // SAFETY: by contract; each entry is dropped once.
        unsafe {
            for at in 0..self.own(|own| core::mem::take(&mut own.entries)) {
                // Dropping it waits for a call that is going on.
                self.entries[at].0.with_mut(|entry| (*entry).assume_init_drop());
            }
        }
    }
}
