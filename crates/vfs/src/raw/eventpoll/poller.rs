//! What an epoll is made of: the stack and the list of what may be ready, and the table of what is watched.

use super::Watchable;
use super::item::Item;
use super::list::List;
use super::numbers::Numbers;
use super::ready::{Pushed, Ready};
use crate::eventpoll::flags::{EPOLLET, EPOLLIN, EPOLLONESHOT, PRIVATE};
use core::fmt;
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use quietline_platform::hint;
use quietline_sync::{SpinLock, SpinLockGuard, Wait, WaitError, WaitQueue};
use std::collections::HashMap;

/// The work of an epoll, for any kind of file.
///
/// ```text
///   line 0   what was pushed, and the queue of those who poll the poller      wakers write it
///   line 1   the queue of those who wait; what seldom changes                 wakers read it
///   line 2   lock, list, whether it has something                             who waits writes it
/// ```
#[repr(C, align(64))]
pub(crate) struct Poller<F: Watchable> {
    pub(super) ready: Ready,
    /// Those who poll the poller itself.
    pollers: WaitQueue,
    pub(super) still: Still<F>,
    list: Listed<F>,
}

/// The line that changes when somebody goes to sleep or wakes, and else seldom.
#[repr(C, align(64))]
pub(super) struct Still<F> {
    waiters: WaitQueue,
    /// The file that this is: set when it is open.
    pub(super) own: AtomicPtr<F>,
    /// Files that are ending and are about to lock this.
    pub(super) pins: AtomicU32,
    /// How many pollers that found below this, on the longest way.
    pub(super) depth: AtomicU32,
    /// The walk that came by here last.
    pub(super) walk: AtomicU64,
    /// What was pushed to the poller that has come to watch this one last: only where it is, which may be nothing any more.
    pub(super) above: AtomicPtr<Ready>,
}

impl<F> Still<F> {
    /// Begins to fetch the line that a wake-up goes on to, before it waits for the one that it has come to.
    #[inline(always)]
    pub(super) fn fetch_above(&self) {
        // Relaxed: a hint.
        let above = self.above.load(Ordering::Relaxed);
        if !above.is_null() {
            hint::prefetch_write(above.cast_const().cast());
        }
    }
}

/// The line of those who wait, and what they seldom need behind it.
#[repr(C, align(64))]
struct Listed<F: Watchable> {
    /// Whether somebody looks through the list, or has left something on it. Written under the lock.
    held: AtomicBool,
    inside: SpinLock<Inside<F>>,
    /// How many pollers the walk that came from below last found above this, and the number of that walk.
    height: AtomicU64,
}

/// What the lock protects.
#[repr(C)]
pub(super) struct Inside<F: Watchable> {
    pub(super) list: List<F>,
    pub(super) table: HashMap<(NonNull<F>, i32), NonNull<Item<F>>, super::hash::Hasher>,
    pub(super) numbers: Numbers<F>,
    /// Nothing can be added any more.
    pub(super) shut: bool,
}

// SAFETY: items and files are made of atomics and of what locks protect, and belong to whoever has the poller.
unsafe impl<F: Watchable> Send for Inside<F> {}
// SAFETY: as above.
unsafe impl<F: Watchable> Send for Poller<F> {}
// SAFETY: as above.
unsafe impl<F: Watchable> Sync for Poller<F> {}

pub(super) type Locked<'a, F> = SpinLockGuard<'a, Inside<F>>;

impl<F: Watchable> Poller<F> {
    pub(crate) fn new() -> Self {
        let (list, numbers) = (List::new(), Numbers::new());
        let inside = Inside { list, table: HashMap::default(), numbers, shut: false };
        Self {
            ready: Ready::new(),
            pollers: WaitQueue::new(),
            still: Still {
                waiters: WaitQueue::new(),
                own: AtomicPtr::new(core::ptr::null_mut()),
                pins: AtomicU32::new(0),
                depth: AtomicU32::new(0),
                walk: AtomicU64::new(0),
                above: AtomicPtr::new(core::ptr::null_mut()),
            },
            list: Listed {
                held: AtomicBool::new(false),
                inside: SpinLock::new(inside),
                height: AtomicU64::new(0),
            },
        }
    }

    /// Says which file this is, before anybody else can use it.
    pub(crate) fn set_own(&self, file: NonNull<F>) {
        // ORDERING: release pairs with the acquire in `nesting`.
        self.still.own.store(file.as_ptr(), Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn lock(&self) -> Locked<'_, F> {
        self.list.inside.lock()
    }

    /// Returns whether a thread holds the lock.
    #[cfg(all(test, not(loom)))]
    pub(super) fn is_locked(&self) -> bool {
        self.list.inside.try_lock().is_none()
    }

    /// What a walk upwards notes of this. For the holder of the kernel's lock of nesting.
    pub(super) fn height(&self) -> &AtomicU64 {
        &self.list.height
    }

    /// Whether there may be an event. Two loads; writes no line.
    #[inline(always)]
    pub(crate) fn may_have(&self) -> bool {
        // ORDERING: acquire pairs with the release in `hold`; SeqCst with the exchange in `hold_now`, as in `is_any`.
        self.ready.is_any() || self.list.held.load(Ordering::SeqCst)
    }

    /// Where those wait who poll the poller itself.
    pub(crate) fn pollers(&self) -> &WaitQueue {
        &self.pollers
    }

    /// An item was pushed, or the list has something [now](Self::hold_now): wakes one who waits, and all who poll; whether
    /// somebody was woken who waits.
    #[inline]
    pub(super) fn announce(&self) -> bool {
        // Sleepers look at what an exchange has changed, or, those who wait, at what was changed under the lock. If the item was
        // about to be pushed by somebody else, he wakes them.
        let woken = self.still.waiters.wake_exchanged(WaitQueue::ANY, 1) != 0;
        self.pollers.wake_exchanged(EPOLLIN, WaitQueue::ALL);
        woken
    }

    /// Gives up to `max` events, and takes what is not ready off the list.
    ///
    /// Writes the lock's line and, if an item leaves, that of what was pushed; nothing of another poller, but of those that
    /// are watched.
    pub(crate) fn collect(&self, max: usize, mut give: impl FnMut(u32, u64)) -> usize {
        // Whoever comes here has seen that there is something, and who takes that off writes there.
        hint::prefetch_write(core::ptr::from_ref(&self.ready).cast());
        let mut inside = self.lock();
        let mut taken = self.take_note(&mut inside);
        let (mut again, mut n) = (List::new(), 0);
        while n < max {
            let Some(item) = inside.list.first() else { break };
            // SAFETY: what is on the list lives, with its file, while we hold the lock. So below.
            let own = unsafe { item.as_ref() };
            // Relaxed: changed under the lock.
            let wanted = own.events.load(Ordering::Relaxed);
            let stays = wanted & (EPOLLET | EPOLLONESHOT) == 0;
            if !stays && !taken {
                // It goes, ready or not: nothing that was pushed before may bring it back.
                self.take_in(&mut inside);
                taken = true;
            }
            // SAFETY: as above.
            let events = unsafe { self.look(item, &mut inside, &mut taken) };
            inside.list.remove(item);
            if events == 0 {
                continue;
            }
            if stays {
                again.push(item);
            } else if wanted & EPOLLONESHOT != 0 {
                own.events.store(wanted & PRIVATE, Ordering::Relaxed);
            }
            // SAFETY: as above.
            give(events, unsafe { own.own(|own| own.data) });
            n += 1;
        }
        inside.list.append(&mut again);
        self.let_go(inside);
        n
    }

    /// Whether one of the files is ready. Takes those that are not off the list.
    pub(crate) fn is_readable(&self) -> bool {
        if !self.may_have() {
            return false;
        }
        let mut inside = self.lock();
        let mut taken = self.take_note(&mut inside);
        let mut found = false;
        while let Some(item) = inside.list.first() {
            // SAFETY: as in `collect`.
            found = unsafe { self.look(item, &mut inside, &mut taken) } != 0;
            if found {
                break;
            }
            inside.list.remove(item);
        }
        self.let_go(inside);
        found
    }

    /// The wanted events of an item on the list. If there are none, what was pushed was taken before the look, as `taken`
    /// says: the item may leave the list, and will be pushed when it is ready.
    ///
    /// # Safety
    /// The item is on the list of this poller, whose lock the caller holds.
    #[inline(always)]
    unsafe fn look(&self, item: NonNull<Item<F>>, inside: &mut Inside<F>, taken: &mut bool) -> u32 {
        // SAFETY: by contract.
        let events = unsafe { look(item) };
        if events != 0 || *taken {
            return events;
        }
        self.take_in(inside);
        *taken = true;
        // SAFETY: by contract.
        unsafe { look(item) }
    }

    /// Waits until `collect` gives something. As `wait` says; its key, and in which order one of several is woken, are ours: the
    /// one that came last, as on Linux.
    pub(crate) fn wait_for<R>(
        &self,
        wait: &Wait<'_>,
        mut collect: impl FnMut() -> Option<R>,
    ) -> Result<R, WaitError> {
        let wait = Wait { key: WaitQueue::ANY, exclusive: true, newest_first: true, ..*wait };
        // A look under the lock: whoever left something on the list has woken after it let go of that.
        self.still
            .waiters
            .wait_until(&wait, || if self.has_under_lock() { collect() } else { None })
    }

    fn has_under_lock(&self) -> bool {
        let inside = self.lock();
        self.ready.is_pushed() || !inside.list.is_empty()
    }

    /// Puts what was pushed to the end of the list; whether nothing is left where it was pushed. The list is looked
    /// through, or changed, and then [let go](Self::let_go), or it is said what it [holds](Self::hold).
    #[inline(always)]
    pub(super) fn take_note(&self, inside: &mut Inside<F>) -> bool {
        let (list, numbers) = (&mut inside.list, &inside.numbers);
        match self.ready.note(|number| list.push_new(numbers.get(number))) {
            Some(any) => !any,
            None => {
                self.take_in(inside);
                true
            }
        }
    }

    /// Moves what was pushed to the end of the list. Then as after [`take_note`](Self::take_note).
    pub(super) fn take_in(&self, inside: &mut Inside<F>) {
        // Relaxed: the exchange in `take` publishes it.
        self.list.held.store(true, Ordering::Relaxed);
        let (list, numbers) = (&mut inside.list, &inside.numbers);
        self.ready.take(|pushed| {
            list.push_new(match pushed {
                Pushed::Number(number) => numbers.get(number),
                Pushed::Link(link) => link.cast(),
            });
        });
    }

    /// Says whether the list has something. For the holder of the lock.
    #[inline(always)]
    pub(super) fn hold(&self, any: bool) {
        // ORDERING: release pairs with the acquire in `may_have`.
        self.list.held.store(any, Ordering::Release);
    }

    /// Says that the list has something, to those who look without the lock; the caller then [wakes](Self::announce) them.
    #[inline(always)]
    pub(super) fn hold_now(&self) {
        // ORDERING: release as in `hold`. SeqCst and an exchange for `wake_exchanged`, which follows: one who has not been found
        // among those who poll finds this.
        self.list.held.swap(true, Ordering::SeqCst);
    }

    /// Unlocks after the list was changed. If something is left, another waiter may have it.
    #[inline]
    pub(super) fn let_go(&self, inside: Locked<'_, F>) {
        let left = !inside.list.is_empty();
        self.hold(left);
        drop(inside);
        if left || self.ready.is_pushed() {
            // What sleepers look at under the lock was changed under the lock; or a waker has pushed it, who wakes himself.
            self.still.waiters.wake_ordered(WaitQueue::ANY, 1);
        }
    }
}

/// The wanted events that a file has now.
///
/// # Safety
/// The item is in the table of a poller whose lock the caller holds: so it lives, and so does its file.
#[inline(always)]
pub(super) unsafe fn look<F: Watchable>(item: NonNull<Item<F>>) -> u32 {
    // SAFETY: by contract.
    unsafe {
        let item = item.as_ref();
        item.fetch();
        // Relaxed: changed under the lock.
        item.file.as_ref().look() & item.events.load(Ordering::Relaxed) & !PRIVATE
    }
}

impl<F: Watchable> fmt::Debug for Poller<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("may_have", &self.may_have()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom), target_pointer_width = "64"))]
mod tests {
    use super::*;
    use crate::File;
    use core::mem::{offset_of, size_of};
    use core::ptr;

    /// The compiler orders what is in a lock. If it does so otherwise, a scan writes more lines.
    #[test]
    fn a_line_for_each_who_writes() {
        type Poller = super::Poller<File>;
        let poller = Poller::new();
        let at = |field: *const List<File>| field.addr() - ptr::from_ref(&poller).addr();
        assert!(offset_of!(Poller, pollers) + size_of::<WaitQueue>() <= 64);
        assert_eq!((offset_of!(Poller, still), size_of::<Still<File>>()), (64, 64));
        assert_eq!(offset_of!(Poller, list), 128);
        assert!(
            at(&raw const poller.lock().list) + size_of::<List<File>>() <= 192,
            "lock and list are on one line"
        );
    }
}
