//! Files come to a poller, change, and go.
//!
//! ```text
//!   poller's lock ──> file's lock (its list of items)      add, remove
//!   file's lock ──> pin, let go ──> poller's lock          a file ends: it knows only its items
//! ```
//!
//! An item is removed by one who holds its poller's lock. So whoever holds that lock finds each item of the table alive, and
//! its file too: a file that ends removes its items first.

use super::Watchable;
use super::item::Item;
use super::list::{join_file, leave_file};
use super::nesting;
use super::poller::{Inside, Locked, Poller, look};
use crate::eventpoll::flags::PRIVATE;
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_platform::{fault, thread};
use quietline_sync::SpinLock;
use rustix::io::Errno;

/// What the pollers of a kernel share: nothing that a wake-up or a wait touches.
#[derive(Debug)]
pub(crate) struct Nesting {
    /// Held by those who put a poller into another; counts them.
    pub(super) lock: SpinLock<u64>,
    /// The number of the last walk: what `lock` counts, for those who do not hold it.
    pub(super) walk: AtomicU64,
}

impl Nesting {
    pub(crate) fn new() -> Self {
        Self { lock: SpinLock::new(0), walk: AtomicU64::new(0) }
    }
}

/// What a poller is asked to watch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) fd: i32,
    pub(crate) events: u32,
    pub(crate) data: u64,
}

impl<F: Watchable> Poller<F> {
    /// Returns the lock of a poller that is not being shut: its own file is not freed before the
    /// unlock.
    fn lock_open(&self) -> Result<Locked<'_, F>, Errno> {
        let inside = self.lock();
        if inside.shut { Err(Errno::BADF) } else { Ok(inside) }
    }

    /// Begins to watch a file.
    ///
    /// # Errors
    /// `EEXIST`; `ELOOP` and `EINVAL` as [`nesting`] says; `EBADF` when this has been shut; `ENOMEM`, or what `alloc`
    /// says.
    ///
    /// # Safety
    /// The caller keeps the file open.
    pub(crate) unsafe fn add(
        &self,
        file: NonNull<F>,
        wanted: Wanted,
        kernel: &Nesting,
        alloc: impl FnOnce(Item<F>) -> Result<NonNull<Item<F>>, Errno>,
        free: impl FnOnce(NonNull<Item<F>>),
    ) -> Result<(), Errno> {
        // SAFETY: the caller keeps it open.
        let inner = unsafe { file.as_ref() }.poller();
        let mut inside = self.lock_open()?;
        let mut walking = None;
        if inner.is_some() || nesting::is_nested(self, kernel) {
            drop(inside);
            let mut walk = kernel.lock.lock();
            *walk += 1;
            // Relaxed: who walks holds locks of pollers, which bring it to those who lock these later.
            kernel.walk.store(*walk, Ordering::Relaxed);
            if let Some(inner) = inner {
                let above = nesting::above_poller(self, &self.lock_open()?, *walk);
                nesting::check_depth(self, above, inner, *walk)?;
            }
            walking = Some(walk);
            inside = self.lock_open()?;
        }
        if inside.table.contains_key(&(file, wanted.fd)) {
            return Err(Errno::EXIST);
        }
        fault::check().map_err(|_| Errno::NOMEM)?;
        inside.table.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        let number = inside.numbers.take();
        // SAFETY: the caller keeps the file open.
        let new = unsafe { Item::new(self, file, wanted, number) };
        let item = alloc(new).inspect_err(|_| {
            number.into_iter().for_each(|number| inside.numbers.put(number));
        })?;
        // SAFETY: the caller keeps the file open, so it is not ending; the item is new, and we hold the lock.
        unsafe {
            number.into_iter().for_each(|number| inside.numbers.set(number, item));
            inside.table.insert((file, wanted.fd), item);
            file.as_ref().with_items(|first| join_file(first, item));
            if let Some(walk) = &walking
                && let Err(errno) = nesting::check_paths(file.as_ref(), **walk)
            {
                self.remove(&mut inside, item);
                drop((inside, walking));
                free(item);
                return Err(errno);
            }
            drop(walking);
            if let Some(inner) = inner {
                // Relaxed: a hint, which is never followed.
                inner
                    .still
                    .above
                    .store(core::ptr::from_ref(&self.ready).cast_mut(), Ordering::Relaxed);
            }
            // First it enters the queues, then it looks: what happens meanwhile is announced, or seen.
            let events = file.as_ref().enter(&mut |queue| Item::enter(item, queue));
            self.queue_if(inside, item, events & wanted.events & !PRIVATE);
        }
        Ok(())
    }

    /// Changes what is wanted of a file.
    ///
    /// # Errors
    /// `ENOENT`; what `allow` says of the events that were wanted.
    pub(crate) fn modify(
        &self,
        file: NonNull<F>,
        wanted: Wanted,
        allow: impl FnOnce(u32) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let inside = self.lock();
        let item = *inside.table.get(&(file, wanted.fd)).ok_or(Errno::NOENT)?;
        // SAFETY: it is in the table, whose lock we hold; and so is its file.
        unsafe {
            let own = item.as_ref();
            allow(own.events.load(Ordering::Relaxed))?;
            own.own(|own| own.data = wanted.data);
            // Relaxed: `settle` orders it: a call that has not seen it has made its event visible to the look below.
            own.events.store(wanted.events, Ordering::Relaxed);
            own.settle();
            self.queue_if(inside, item, look(item));
        }
        Ok(())
    }

    /// Ends watching a file.
    ///
    /// # Errors
    /// `ENOENT`.
    pub(crate) fn delete(
        &self,
        file: NonNull<F>,
        fd: i32,
        free: impl FnOnce(NonNull<Item<F>>),
    ) -> Result<(), Errno> {
        let mut inside = self.lock();
        let item = *inside.table.get(&(file, fd)).ok_or(Errno::NOENT)?;
        // SAFETY: it is in the table, whose lock we hold.
        unsafe { self.remove(&mut inside, item) };
        drop(inside);
        free(item);
        Ok(())
    }

    /// # Safety
    /// The item is in the table.
    unsafe fn queue_if(&self, mut inside: Locked<'_, F>, item: NonNull<Item<F>>, events: u32) {
        if events == 0 {
            return;
        }
        self.take_note(&mut inside);
        // SAFETY: by contract; the guard is the lock.
        let fresh = !unsafe { item.as_ref().own(|own| own.listed) };
        if fresh {
            inside.list.push(item);
            self.hold_now();
        } else {
            self.hold(true);
        }
        drop(inside);
        if fresh {
            self.announce();
        }
    }

    /// Takes an item out of everything. The caller frees it.
    ///
    /// # Safety
    /// The item is in the table, or was when the holder of the lock took that.
    unsafe fn remove(&self, inside: &mut Inside<F>, item: NonNull<Item<F>>) {
        // SAFETY: by contract; whoever has what is inside has the lock.
        unsafe {
            let own = item.as_ref();
            own.leave();
            // Nobody pushes it any more, and what was pushed before is found here.
            if self.ready.may_have(own.number) {
                self.take_in(inside);
            }
            if own.own(|own| own.listed) {
                inside.list.remove(item);
            }
            self.hold(!inside.list.is_empty());
            own.number.into_iter().for_each(|number| inside.numbers.put(number));
            if let Some(inner) = own.file.as_ref().poller() {
                // Relaxed: as in `add`. If it was another's, that one's wake-ups fetch it when they come to it.
                inner.still.above.store(core::ptr::null_mut(), Ordering::Relaxed);
            }
            own.file.as_ref().with_items(|first| leave_file(first, item));
            inside.table.remove(&(own.file, own.fd));
        }
    }

    /// Ends watching all files, for good: the poller's own file ends.
    pub(crate) fn shut(&self, mut free: impl FnMut(NonNull<Item<F>>)) {
        let mut inside = self.lock();
        inside.shut = true;
        // Gone through once: looking for the first one each time would go over the places of all that were before it.
        let table = core::mem::take(&mut inside.table);
        for &item in table.values() {
            // SAFETY: it was in the table, and nobody else has removed it: we hold the lock.
            unsafe { self.remove(&mut inside, item) };
            free(item);
        }
        drop(inside);
        drop(table);
        // ORDERING: acquire pairs with the release in `file_ends`: who held a pin is done with us. Pins are taken for items in a
        // file's list, under the file's lock, under which the last of them left.
        while self.still.pins.load(Ordering::Acquire) != 0 {
            thread::yield_now();
        }
    }
}

/// A file ends: ends watching it, in all pollers.
///
/// # Safety
/// Nobody has a reference to the file any more; what it is on still is.
pub(crate) unsafe fn file_ends<F: Watchable>(
    file: &F,
    mut free: impl FnMut(&Poller<F>, NonNull<Item<F>>),
) {
    // SAFETY: an item in the file's list lives while the file's lock is held, and its poller with it; after that the pin
    // keeps the poller.
    unsafe {
        let first = |first: &mut *mut Item<F>| {
            let home = first.as_ref()?.home;
            // Relaxed: the file's lock orders it for those who take the item out of the list.
            home.as_ref().still.pins.fetch_add(1, Ordering::Relaxed);
            Some(home)
        };
        while let Some(home) = file.with_items(first) {
            let home = home.as_ref();
            let mut inside = home.lock();
            // Only holders of this lock remove its items, so one that is there now stays for us to remove.
            let still = |first: &mut *mut Item<F>| {
                let item = NonNull::new(*first)?;
                core::ptr::eq(item.as_ref().home.as_ptr(), home).then_some(item)
            };
            let item = file.with_items(still);
            if let Some(item) = item {
                home.remove(&mut inside, item);
            }
            drop(inside);
            if let Some(item) = item {
                free(home, item);
            }
            // ORDERING: release pairs with the acquire in `shut`: we are done with the poller.
            home.still.pins.fetch_sub(1, Ordering::Release);
        }
    }
}
