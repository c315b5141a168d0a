//! Pollers of open files: what an epoll's descriptor is.

use super::{Item, Nesting, Poller, Wanted, Watchable, file_ends};
use crate::eventpoll::{EpollEvent, EventPoll};
use crate::file::File;
use crate::pipe::Pipe;
use crate::poll::PollTable;
use crate::raw::handle::FileHandle;
use crate::raw::opened::Opened;
use crate::raw::pseudo::PseudoFs;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, AtomicU64, Ordering};
use quietline_platform::{AllocError, fault};
use quietline_slab::{LazyCache, Options, RawCache};
use quietline_sync::{Counter, Shared, SpinLock, WaitQueue, rcu};
use rustix::io::Errno;
use std::collections::HashMap;

impl Watchable for File {
    #[inline]
    fn look(&self) -> u32 {
        // SAFETY: the file has not ended, so what it is on is there.
        unsafe { Opened::read(self, self.f_status.flags()) }.poll(&mut PollTable::look()).bits()
    }

    fn enter(&self, each: &mut dyn FnMut(&WaitQueue)) -> u32 {
        // SAFETY: as above.
        unsafe { Opened::read(self, self.f_status.flags()) }
            .poll(&mut PollTable::entering(each))
            .bits()
    }

    fn poller(&self) -> Option<&Poller<Self>> {
        // SAFETY: as above.
        unsafe { Opened::read(self, 0) }.payload::<EventPoll>().map(|epoll| &epoll.inside.poller)
    }

    fn line(&self) -> *const u8 {
        if let Some(poller) = self.poller() {
            return ptr::from_ref(poller).cast();
        }
        // SAFETY: as above.
        let pipe = unsafe { Opened::read(self, 0) }.payload::<Pipe>();
        pipe.map_or(ptr::null(), |pipe| ptr::from_ref(pipe.core()).cast())
    }

    #[inline]
    fn has_items(&self) -> bool {
        self.f_pos.is_set()
    }

    /// The list head of most files is the word that is the offset of the others. A file that has
    /// an offset and can be watched, as the text of the mounts, has its list head in a table.
    fn with_items<R>(&self, f: impl FnOnce(&mut *mut Item<Self>) -> R) -> R {
        if polls_at_offset(self) {
            return with_listed_items(self, f);
        }
        let mut held = self.f_pos.hold();
        let mut first = ptr::with_exposed_provenance_mut(held.at as usize);
        let result = f(&mut first);
        held.at = first.expose_provenance() as u64;
        result
    }
}

#[inline]
fn polls_at_offset(file: &File) -> bool {
    // Relaxed: constant while the file is open.
    file.f_kind.load(Ordering::Relaxed).is_null()
        // SAFETY: a file of the tree, so not a poller's own file: it has not ended, and its inode
        // is there.
        && unsafe { Opened::read(file, 0) }.polls_at_offset()
}

fn listed_items(file: &File) -> &SpinLock<HashMap<usize, usize>> {
    // SAFETY: a file's `Files` outlive it.
    unsafe { &(*file.f_files.load(Ordering::Relaxed)).listed_items }
}

#[cold]
fn with_listed_items<R>(file: &File, f: impl FnOnce(&mut *mut Item<File>) -> R) -> R {
    let mut list = listed_items(file).lock();
    let mut none = 0;
    let entry = list.get_mut(&ptr::from_ref(file).addr()).unwrap_or(&mut none);
    let mut first = ptr::with_exposed_provenance_mut(*entry);
    let result = f(&mut first);
    *entry = first.expose_provenance();
    result
}

/// Makes an entry for the list head of a file that has an offset, unless there is one.
fn list_items_of(file: &File) -> Result<(), Errno> {
    if !polls_at_offset(file) {
        return Ok(());
    }
    let mut list = listed_items(file).lock();
    fault::check().map_err(|_| Errno::NOMEM)?;
    list.try_reserve(1).map_err(|_| Errno::NOMEM)?;
    list.entry(ptr::from_ref(file).addr()).or_insert(0);
    Ok(())
}

/// What the epolls of a kernel have in common. No wake-up and no wait touches it.
///
/// It must stay where it is while epolls live: they point to it. Its owner, a kernel, is boxed, and every handle borrows
/// it.
#[derive(Debug)]
pub struct EventPolls {
    pub(crate) fs: PseudoFs<EventPoll>,
    /// Of `Item<File>`s.
    items: LazyCache,
    nesting: Nesting,
    max_user_watches: AtomicU64,
    /// Watches of each user who ever had one.
    users: SpinLock<Vec<(u32, Shared<Counter>)>>,
}

/// The inside of an [`EventPoll`].
#[derive(Debug)]
pub(crate) struct Instance {
    poller: Poller<File>,
    all: NonNull<EventPolls>,
    /// Its user's watches; null until the first.
    watches: AtomicPtr<Counter>,
    uid: u32,
}

// SAFETY: the pointers are to what the kernel keeps, and is shared by design.
unsafe impl Send for Instance {}
// SAFETY: as above.
unsafe impl Sync for Instance {}

impl EventPolls {
    /// None yet.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for the RCU domain.
    pub fn new() -> Result<Self, AllocError> {
        // No item waits for a grace period.
        let options = |_| Options::of::<Item<File>>("eventpoll_epi");
        // SAFETY: there is no hook.
        let items = unsafe { LazyCache::new(options, rcu::global()?) };
        Ok(Self {
            fs: PseudoFs::new("anon_inodefs")?,
            items,
            nesting: Nesting::new(),
            max_user_watches: AtomicU64::new(1 << 20),
            users: SpinLock::new(Vec::new()),
        })
    }

    /// Watches that a user may have (`/proc/sys/fs/epoll/max_user_watches`): 1,048,576 to begin with.
    pub fn max_user_watches(&self) -> &AtomicU64 {
        &self.max_user_watches
    }

    /// Epolls that live; exact when nobody makes or ends one meanwhile.
    pub fn live(&self) -> i64 {
        self.fs.live()
    }

    /// The caches: of epolls, and of the files that they watch.
    pub fn caches(&self) -> [&LazyCache; 2] {
        [self.fs.cache(), &self.items]
    }

    /// See [`PseudoFs::flushed_by_caller`]: for all epolls that have ended.
    pub fn flushed_by_caller(&mut self) -> (bool, Option<&mut RawCache>) {
        self.fs.flushed_by_caller()
    }

    fn free(&self, item: NonNull<Item<File>>) {
        // SAFETY: items are made in `Instance::add`, in this cache, and their poller has let go of them.
        unsafe { self.items.free(item.cast()) };
    }

    /// A user's watches, which are counted as long as the kernel lives.
    fn watches_of(&self, uid: u32) -> Result<NonNull<Counter>, Errno> {
        let mut users = self.users.lock();
        if let Some((_, watches)) = users.iter().find(|(user, _)| *user == uid) {
            return Ok(NonNull::from(&**watches));
        }
        users.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        let watches = Counter::new().map_err(|_| Errno::NOMEM)?;
        let watches = Shared::new(watches).map_err(|_| Errno::NOMEM)?;
        let found = NonNull::from(&*watches);
        users.push((uid, watches));
        Ok(found)
    }
}

impl Instance {
    pub(crate) fn new(all: &EventPolls, uid: u32) -> Self {
        Self {
            poller: Poller::new(),
            all: NonNull::from(all),
            watches: AtomicPtr::new(ptr::null_mut()),
            uid,
        }
    }

    /// Says which file this is, when that has been opened.
    pub(crate) fn opened_as(file: &FileHandle<'_>) {
        let opened = file.opened();
        if let Some(epoll) = opened.payload::<EventPoll>() {
            epoll.inside.poller.set_own(NonNull::from(opened.file()));
        }
    }

    fn all(&self) -> &EventPolls {
        // SAFETY: a kernel's own, which outlives its files; asked for by calls on open files and by the last close.
        unsafe { self.all.as_ref() }
    }

    fn watches(&self) -> Result<&Counter, Errno> {
        // ORDERING: acquire pairs with the release below.
        // SAFETY: a counter stays as long as the kernel.
        if let Some(watches) = unsafe { self.watches.load(Ordering::Acquire).as_ref() } {
            return Ok(watches);
        }
        let found = self.all().watches_of(self.uid)?;
        // ORDERING: release: who finds the counter finds it made. All who come here find the same.
        self.watches.store(found.as_ptr(), Ordering::Release);
        // SAFETY: as above.
        Ok(unsafe { found.as_ref() })
    }

    /// Counts one watch less, for one that there was.
    fn uncount(&self, item: NonNull<Item<File>>) {
        self.all().free(item);
        // ORDERING: acquire pairs with the release in `watches`.
        // SAFETY: set before the first watch.
        unsafe { &*self.watches.load(Ordering::Acquire) }.dec();
    }

    /// `EPOLL_CTL_ADD`.
    ///
    /// # Errors
    /// `ENOSPC` when the user has as many watches as are allowed; as [`Poller::add`].
    pub(crate) fn add(&self, file: &FileHandle<'_>, wanted: Wanted) -> Result<(), Errno> {
        let (all, watches) = (self.all(), self.watches()?);
        let pointer = NonNull::from(file.opened().file());
        let alloc = |item| {
            let max =
                i64::try_from(all.max_user_watches.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
            // Relaxed, above: a tunable.
            if !watches.limited_add(max, 1) {
                return Err(Errno::NOSPC);
            }
            // SAFETY: the cache is one of items.
            unsafe { all.items.alloc_with(|| item) }.map_err(|_| {
                watches.dec();
                Errno::NOMEM
            })
        };
        list_items_of(file.opened().file())?;
        file.watch();
        // SAFETY: the handle keeps the file open.
        unsafe { self.poller.add(pointer, wanted, &all.nesting, alloc, |item| self.uncount(item)) }
    }

    /// `EPOLL_CTL_MOD`.
    ///
    /// # Errors
    /// As [`Poller::modify`].
    pub(crate) fn modify(
        &self,
        file: Opened<'_>,
        wanted: Wanted,
        allow: impl FnOnce(u32) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.poller.modify(NonNull::from(file.file()), wanted, allow)
    }

    /// `EPOLL_CTL_DEL`.
    ///
    /// # Errors
    /// `ENOENT`.
    pub(crate) fn delete(&self, file: Opened<'_>, fd: i32) -> Result<(), Errno> {
        self.poller.delete(NonNull::from(file.file()), fd, |item| self.uncount(item))
    }

    /// The last file on it ends.
    pub(crate) fn shut(&self) {
        self.poller.shut(|item| self.uncount(item));
    }

    pub(crate) fn poller(&self) -> &Poller<File> {
        &self.poller
    }

    /// Fills `events` as far as there are any: how many.
    #[inline]
    pub(crate) fn collect(&self, events: &mut [EpollEvent]) -> usize {
        let mut at = 0;
        self.poller.collect(events.len(), |ready, data| {
            events[at] = EpollEvent { events: ready, data };
            at += 1;
        })
    }
}

/// A watched file ends.
///
/// # Safety
/// Nobody has a reference to it any more; what it is on is still there.
#[cold]
pub(crate) unsafe fn watched_file_ends(file: &File) {
    // SAFETY: by contract; each poller is an `EventPoll`'s, which its pin keeps.
    unsafe {
        file_ends(file, |poller, item| {
            let at = core::mem::offset_of!(Instance, poller);
            let instance: NonNull<Instance> = NonNull::from(poller).byte_sub(at).cast();
            instance.as_ref().uncount(item);
        });
    }
    if polls_at_offset(file) {
        listed_items(file).lock().remove(&ptr::from_ref(file).addr());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventpoll::{EPOLLIN, control_add, epoll_create1};
    use crate::file::Files;
    use std::thread;

    /// A walk up finds an epoll by an item, under the lock of the item's file, and goes on to the
    /// epoll's own file. So that is not freed while the item is there, though the epoll is closed.
    #[test]
    fn the_file_of_an_epoll_is_freed_after_the_last_item() {
        let files = Files::new(100).unwrap();
        let polls = EventPolls::new().unwrap();
        let inner = epoll_create1(&polls, &files, 0, 0).unwrap();
        let outer = epoll_create1(&polls, &files, 0, 0).unwrap();
        let event = EpollEvent { events: EPOLLIN, data: 0 };
        let epoll = outer.opened().payload::<EventPoll>().unwrap();
        control_add(epoll, 3, &inner, &event).unwrap();
        let poller = NonNull::from(epoll.inside.poller());
        let open = || (files.nr_files(), files.cache().stats().active);
        assert_eq!(open(), (2, 2));
        thread::scope(|scope| {
            inner.opened().file().with_items(|_| {
                scope.spawn(|| drop(outer));
                // SAFETY: the poller ends after its item, for which the thread needs our lock.
                while !unsafe { poller.as_ref() }.is_locked() {
                    thread::yield_now();
                }
                assert_eq!(open(), (2, 2), "the item is there, and its epoll's file");
            });
        });
        assert_eq!(open(), (1, 1));
        drop(inner);
        assert_eq!((open(), polls.live()), ((0, 0), 0));
    }
}
