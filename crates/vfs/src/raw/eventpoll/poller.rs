//! What an epoll is made of: the stack and the list of what may be ready, and the table of what is watched.

use super::Watchable;
use super::item::Item;
use super::list::List;
use super::ready::Ready;
use crate::eventpoll::flags::{EPOLLET, EPOLLIN, EPOLLONESHOT, PRIVATE};
use core::fmt;
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use quietline_sync::{SpinLock, SpinLockGuard, Wait, WaitError, WaitQueue};
use std::collections::HashMap;

/// The work of an epoll, for any kind of file.
///
/// On two lines' worth of words: what wakers write, and what waiters write.
#[repr(C)]
pub(crate) struct Poller<F: Watchable> {
    pub(super) ready: Ready,
    /// Those who wait for events.
    waiters: WaitQueue,
    /// Those who poll the poller itself.
    pollers: WaitQueue,
    inside: Apart<SpinLock<Inside<F>>>,
    /// The file that this is: set when it is open.
    pub(super) own: AtomicPtr<F>,
    /// Files that are ending and are about to lock this.
    pub(super) pins: AtomicU32,
    /// The walk that came by here last.
    pub(super) walk: AtomicU64,
    /// How many pollers that found below this, on the longest way.
    pub(super) depth: AtomicU32,
}

/// On a line of its own.
#[repr(align(64))]
struct Apart<T>(T);

/// What the lock protects.
pub(super) struct Inside<F: Watchable> {
    pub(super) list: List<F>,
    pub(super) table: HashMap<(NonNull<F>, i32), NonNull<Item<F>>, super::hash::Hasher>,
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
        let inside = Inside { list: List::new(), table: HashMap::default(), shut: false };
        Self {
            ready: Ready::new(),
            waiters: WaitQueue::new(),
            pollers: WaitQueue::new(),
            inside: Apart(SpinLock::new(inside)),
            own: AtomicPtr::new(core::ptr::null_mut()),
            pins: AtomicU32::new(0),
            walk: AtomicU64::new(0),
            depth: AtomicU32::new(0),
        }
    }

    /// Says which file this is, before anybody else can use it.
    pub(crate) fn set_own(&self, file: NonNull<F>) {
        // ORDERING: release pairs with the acquire in `nesting`.
        self.own.store(file.as_ptr(), Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn lock(&self) -> Locked<'_, F> {
        self.inside.0.lock()
    }

    /// Whether there may be an event. Two loads of one line; writes none.
    #[inline(always)]
    pub(crate) fn may_have(&self) -> bool {
        self.ready.is_any()
    }

    /// Where those wait who poll the poller itself.
    pub(crate) fn pollers(&self) -> &WaitQueue {
        &self.pollers
    }

    /// An item was pushed: wakes one who waits, and all who poll; whether somebody was woken who waits.
    #[inline]
    pub(super) fn announce(&self) -> bool {
        // The push is an exchange of what sleepers look at; or the item was queued already, and they have seen it.
        let woken = self.waiters.wake_ordered(WaitQueue::ANY, 1) != 0;
        self.pollers.wake_ordered(EPOLLIN, WaitQueue::ALL);
        woken
    }

    /// Gives up to `max` events, and takes what is not ready off the list.
    ///
    /// Writes the lock's line, and the stack's if something was pushed; nothing of another poller, but of those that are
    /// watched.
    pub(crate) fn collect(&self, max: usize, mut give: impl FnMut(u32, u64)) -> usize {
        let mut inside = self.lock();
        self.take_in(&mut inside);
        let (mut again, mut n) = (List::new(), 0);
        while n < max {
            let Some(item) = inside.list.pop() else { break };
            // SAFETY: what is on the list lives, with its file, while we hold the lock. So below.
            let (events, data) =
                unsafe { (ready_events(item, &mut again), item.as_ref().own(|own| own.data)) };
            if events != 0 {
                give(events, data);
                n += 1;
            }
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
        self.take_in(&mut inside);
        let mut found = false;
        while let Some(item) = inside.list.first() {
            // SAFETY: as in `collect`.
            let (item_ref, events) = unsafe { (item.as_ref(), look(item)) };
            found = events != 0 || {
                inside.list.remove(item);
                item_ref.link.clear();
                // SAFETY: as in `collect`. One that has been pushed again meanwhile is for the next look.
                let again = unsafe { look(item) } != 0;
                if again && item_ref.link.queue() {
                    inside.list.push_front(item);
                }
                again
            };
            if found {
                break;
            }
        }
        self.let_go(inside);
        found
    }

    /// Waits until `collect` gives something. As `wait` says; its key and whether it is exclusive are ours.
    pub(crate) fn wait_for<R>(
        &self,
        wait: &Wait<'_>,
        mut collect: impl FnMut() -> Option<R>,
    ) -> Result<R, WaitError> {
        let wait = Wait { key: WaitQueue::ANY, exclusive: true, ..*wait };
        // A look under the lock: whoever left something on the list has woken after it let go of that.
        self.waiters.wait_until(&wait, || if self.has_under_lock() { collect() } else { None })
    }

    fn has_under_lock(&self) -> bool {
        let inside = self.lock();
        self.ready.is_pushed() || !inside.list.is_empty()
    }

    /// Moves what was pushed to the end of the list. The list is looked through, or changed, and then
    /// [let go](Self::let_go).
    #[inline(always)]
    pub(super) fn take_in(&self, inside: &mut Inside<F>) {
        if self.ready.is_pushed() {
            self.ready.take(|link| inside.list.push(link.cast()));
        }
    }

    /// Unlocks after the list was changed. If something is left, another waiter may have it.
    #[inline]
    pub(super) fn let_go(&self, inside: Locked<'_, F>) {
        let left = !inside.list.is_empty();
        self.ready.hold(left);
        drop(inside);
        if left || self.ready.is_pushed() {
            // What sleepers look at under the lock was changed under the lock; or a waker has pushed it, who wakes himself.
            self.waiters.wake_ordered(WaitQueue::ANY, 1);
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
        // Relaxed: changed under the lock.
        item.file.as_ref().look() & item.events.load(Ordering::Relaxed) & !PRIVATE
    }
}

/// The events to be told of an item that was just taken off the list. It goes to `again`, if it is to be looked at again.
///
/// # Safety
/// As [`look`].
#[inline]
unsafe fn ready_events<F: Watchable>(item: NonNull<Item<F>>, again: &mut List<F>) -> u32 {
    // SAFETY: by contract.
    unsafe {
        let own = item.as_ref();
        // Relaxed: changed under the lock.
        let wanted = own.events.load(Ordering::Relaxed);
        if wanted & (EPOLLET | EPOLLONESHOT) != 0 {
            own.link.clear();
            let events = look(item);
            if events != 0 && wanted & EPOLLONESHOT != 0 {
                own.events.store(wanted & PRIVATE, Ordering::Relaxed);
            }
            return events;
        }
        // Level-triggered: as long as it is ready it stays queued, and no exchange is needed.
        let mut events = look(item);
        if events == 0 {
            own.link.clear();
            events = look(item);
            if events == 0 || !own.link.queue() {
                // Not ready; or it is, and a waker has pushed it in the meantime.
                return events;
            }
        }
        again.push(item);
        events
    }
}

impl<F: Watchable> fmt::Debug for Poller<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("may_have", &self.may_have()).finish_non_exhaustive()
    }
}
