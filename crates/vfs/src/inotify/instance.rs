//! Inotify instances.

use super::limits::InotifyLimits;
use super::mask::{IN_MASK_ADD, IN_MASK_CREATE, KEPT, check_mask};
use super::queue::{AT_ONCE, Queue, TooLarge};
use super::watches::{Watch, Watches};
use crate::file::Sink;
use core::fmt;
use core::ptr;
use quietline_platform::atomic::Ordering;
use quietline_platform::fault;
use quietline_sync::{Shared, SpinLock, Wait, WaitQueue};
use rustix::io::Errno;
use std::collections::HashMap;

/// What readers of a queue wait for: `POLLIN`.
const READABLE: u32 = 1;

/// An instance, as its file owns it. Dropping it closes it.
#[derive(Debug)]
pub struct Inotify {
    instance: Shared<Instance>,
}

/// A watch, as `/proc/PID/fdinfo` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchInfo {
    /// The watch descriptor.
    pub wd: i32,
    /// The number of the file.
    pub ino: u64,
    /// The number of its filesystem.
    pub dev: u64,
    /// Events and options.
    pub mask: u32,
}

pub(super) struct Instance {
    limits: Shared<InotifyLimits>,
    uid: u32,
    watches: SpinLock<Table>,
    queue: SpinLock<Queue>,
    readers: WaitQueue,
}

/// Watches by number.
struct Table {
    by_wd: HashMap<i32, Shared<Watch>>,
    /// The number that is tried next.
    next: i32,
    /// Whether the instance was [closed](Inotify::close).
    closed: bool,
}

impl fmt::Debug for Instance {
    /// Without its watches, which point back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").field("uid", &self.uid).finish_non_exhaustive()
    }
}

impl Inotify {
    /// `inotify_init`: no watches, no events.
    ///
    /// # Errors
    /// `EMFILE` when the user has as many as are allowed; `ENOMEM`.
    pub fn new(limits: &Shared<InotifyLimits>, uid: u32) -> Result<Self, Errno> {
        // Relaxed: a tunable.
        let max = limits.max_queued_events().load(Ordering::Relaxed);
        let queue = Queue::new(max as usize).map_err(|_| Errno::NOMEM)?;
        limits.add_instance(uid)?;
        let instance = Shared::new(Instance {
            limits: limits.clone(),
            uid,
            watches: SpinLock::new(Table { by_wd: HashMap::new(), next: 1, closed: false }),
            queue: SpinLock::new(queue),
            readers: WaitQueue::new(),
        });
        match instance {
            Ok(instance) => Ok(Self { instance }),
            Err(_) => {
                limits.remove_instance(uid);
                Err(Errno::NOMEM)
            }
        }
    }

    /// `inotify_add_watch` on a file, which the caller has found, may read, and keeps alive. A second watch of the same
    /// instance changes the first.
    ///
    /// # Errors
    /// `EINVAL` as [`check_mask`]; `EEXIST` with `IN_MASK_CREATE` when it is watched; `ENOSPC` when the user has as
    /// many watches as are allowed; `ENOMEM`.
    pub fn add_watch(&self, at: &Shared<Watches>, mask: u32) -> Result<i32, Errno> {
        check_mask(mask)?;
        let instance = &self.instance;
        let mut table = instance.watches.lock();
        let mut list = at.list.lock();
        let own =
            |watch: &&Shared<Watch>| ptr::eq(&*watch.instance, &**instance) && !watch.is_spent();
        if let Some(watch) = list.iter().find(own) {
            if mask & IN_MASK_CREATE != 0 {
                return Err(Errno::EXIST);
            }
            // Relaxed: under the list's lock.
            let before =
                if mask & IN_MASK_ADD != 0 { watch.mask.load(Ordering::Relaxed) } else { 0 };
            watch.mask.store(before | (mask & KEPT), Ordering::Relaxed);
            at.sum_up(&list);
            return Ok(watch.wd);
        }
        let wd = table.free_wd().ok_or(Errno::NOSPC)?;
        fault::check().map_err(|_| Errno::NOMEM)?;
        table.by_wd.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        list.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        let watch = Watch::new(wd, instance.clone(), at.clone(), mask & KEPT);
        let watch = Shared::new(watch).map_err(|_| Errno::NOMEM)?;
        instance.limits.add_watch(instance.uid)?;
        table.by_wd.insert(wd, watch.clone());
        table.next = wd.checked_add(1).unwrap_or(1);
        list.push(watch);
        at.sum_up(&list);
        Ok(wd)
    }

    /// `inotify_rm_watch`: `IN_IGNORED` follows.
    ///
    /// # Errors
    /// `EINVAL` if there is no such watch.
    pub fn rm_watch(&self, wd: i32) -> Result<(), Errno> {
        let watch = {
            let mut table = self.instance.watches.lock();
            let watch = table.by_wd.remove(&wd).ok_or(Errno::INVAL)?;
            // After this nobody finds it, so no event follows the last one.
            watch.at.remove(&watch);
            watch
        };
        self.instance.limits.remove_watch(self.instance.uid);
        watch.say_goodbye();
        Ok(())
    }

    /// `read`: as many events as fit, oldest first. Waits for one, unless `nonblock`.
    ///
    /// # Errors
    /// `EINVAL` if not even the first fits; `EAGAIN`; `EINTR`.
    pub fn read(&self, buffer: &mut [u8], nonblock: bool) -> Result<usize, Errno> {
        let wait = Wait { key: READABLE, exclusive: true, interruptible: true, ..Wait::default() };
        let first = if nonblock {
            self.read_now(buffer).ok_or(Errno::AGAIN)?
        } else {
            let readers = &self.instance.readers;
            readers.wait_until(&wait, || self.read_now(buffer)).map_err(|_| Errno::INTR)?
        };
        if self.is_readable() {
            // One wake-up may have stood for several events, and this reader has left some.
            self.instance.readers.wake_ordered(READABLE, 1);
        }
        first
    }

    /// `read`, as far as it goes at once.
    ///
    /// # Errors
    /// `EINVAL` if not even the first event fits; `EAGAIN` if there is none.
    pub(crate) fn take(&self, to: &mut Sink<'_, '_>) -> Result<usize, Errno> {
        let mut taken = 0;
        loop {
            // Bytes are copied when the lock is free.
            let popped = self.instance.queue.lock().pop(to.left());
            let events = match popped {
                Ok(events) => events,
                Err(TooLarge) if taken == 0 => return Err(Errno::INVAL),
                Err(TooLarge) => return Ok(taken),
            };
            let mut n = 0;
            for event in events.iter().flatten() {
                taken += event.tell(to);
                n += 1;
            }
            if n < AT_ONCE {
                return if taken == 0 { Err(Errno::AGAIN) } else { Ok(taken) };
            }
        }
    }

    /// Whether there is something to read.
    pub fn is_readable(&self) -> bool {
        !self.instance.queue.lock().is_empty()
    }

    /// How many bytes there are to read (`FIONREAD`).
    pub fn readable_bytes(&self) -> usize {
        self.instance.queue.lock().bytes()
    }

    /// Where those wait who wait for an event. Its key is `POLLIN`; one of its exclusive waiters is woken for each.
    pub fn readers(&self) -> &WaitQueue {
        &self.instance.readers
    }

    /// Its watches, as `/proc/PID/fdinfo` shows them: the latest first.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn list(&self) -> Result<Vec<WatchInfo>, Errno> {
        let mut all = Vec::new();
        {
            let table = self.instance.watches.lock();
            fault::check().map_err(|_| Errno::NOMEM)?;
            all.try_reserve_exact(table.by_wd.len()).map_err(|_| Errno::NOMEM)?;
            all.extend(table.by_wd.values().map(|watch| {
                let [ino, dev] = watch.at.identity();
                // Relaxed: a word of its own.
                WatchInfo { wd: watch.wd, ino, dev, mask: watch.mask.load(Ordering::Relaxed) }
            }));
        }
        all.sort_unstable_by_key(|watch| core::cmp::Reverse(watch.wd));
        Ok(all)
    }

    /// Watches that it has.
    pub fn watches(&self) -> usize {
        self.instance.watches.lock().by_wd.len()
    }

    /// `close`: removes all watches without an event and returns what the user was charged. A
    /// second call does nothing.
    pub(crate) fn close(&self) {
        let by_wd = {
            let mut table = self.instance.watches.lock();
            if core::mem::replace(&mut table.closed, true) {
                return;
            }
            core::mem::take(&mut table.by_wd)
        };
        for watch in by_wd.into_values() {
            watch.at.remove(&watch);
            self.instance.limits.remove_watch(self.instance.uid);
        }
        self.instance.limits.remove_instance(self.instance.uid);
    }

    /// What there is, copied; none if there is nothing.
    fn read_now(&self, buffer: &mut [u8]) -> Option<Result<usize, Errno>> {
        Some(self.take(&mut Sink::new(&mut [buffer]))).filter(|read| *read != Err(Errno::AGAIN))
    }
}

impl Drop for Inotify {
    fn drop(&mut self) {
        self.close();
    }
}

impl Instance {
    /// Queues an event, and wakes a reader.
    pub(super) fn push(&self, wd: i32, mask: u32, cookie: u32, name: &[u8]) {
        if self.queue.lock().push(wd, mask, cookie, name) {
            // What readers look at is changed and looked at under the queue's lock.
            self.readers.wake_ordered(READABLE, 1);
        }
    }

    /// A watch is off its file's list: takes it out of the table too, and says so. If its number is already gone, somebody
    /// else does.
    pub(super) fn forget(&self, watch: &Watch) {
        let found = {
            let mut table = self.watches.lock();
            // By identity: the number may be another watch's by now.
            let own = table.by_wd.get(&watch.wd).is_some_and(|found| ptr::eq(&**found, watch));
            if own { table.by_wd.remove(&watch.wd) } else { None }
        };
        if found.is_some() {
            self.limits.remove_watch(self.uid);
            watch.say_goodbye();
        }
    }
}

impl Table {
    /// The next number that no watch has: upwards, and from 1 again after the last.
    fn free_wd(&self) -> Option<i32> {
        let numbers = (self.next..=i32::MAX).chain(1..self.next);
        numbers.into_iter().find(|wd| !self.by_wd.contains_key(wd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_round() {
        let limits = Shared::new(InotifyLimits::new()).unwrap();
        let inotify = Inotify::new(&limits, 0).unwrap();
        let files: Vec<_> = (0..4).map(|_| Shared::new(Watches::new(1, 1)).unwrap()).collect();
        let add = |n: usize| inotify.add_watch(&files[n], super::super::IN_OPEN).unwrap();
        assert_eq!((add(0), add(1)), (1, 2));
        inotify.rm_watch(2).unwrap();
        assert_eq!(add(1), 3, "not used again at once");
        inotify.instance.watches.lock().next = i32::MAX;
        assert_eq!((add(2), add(3)), (i32::MAX, 2), "1 is in use");
    }
}
