//! How many instances, watches and events there may be.

use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::fault;
use quietline_sync::SpinLock;
use rustix::io::Errno;

/// The limits of a kernel (`/proc/sys/fs/inotify/*`), and what each user has; and the cookies of its renames.
#[derive(Debug)]
pub struct InotifyLimits {
    max_queued_events: AtomicU32,
    max_user_instances: AtomicU32,
    max_user_watches: AtomicU32,
    users: SpinLock<Vec<User>>,
    cookie: AtomicU32,
}

#[derive(Debug)]
struct User {
    uid: u32,
    instances: u32,
    watches: u32,
}

impl InotifyLimits {
    /// Linux's: 16,384 events, 128 instances, 1,048,576 watches.
    pub const fn new() -> Self {
        Self {
            max_queued_events: AtomicU32::new(16_384),
            max_user_instances: AtomicU32::new(128),
            max_user_watches: AtomicU32::new(1 << 20),
            users: SpinLock::new(Vec::new()),
            cookie: AtomicU32::new(0),
        }
    }

    /// Events in a queue, for instances made from now on.
    pub fn max_queued_events(&self) -> &AtomicU32 {
        &self.max_queued_events
    }

    /// Instances of a user.
    pub fn max_user_instances(&self) -> &AtomicU32 {
        &self.max_user_instances
    }

    /// Watches of a user.
    pub fn max_user_watches(&self) -> &AtomicU32 {
        &self.max_user_watches
    }

    /// A number for the two events of a rename, never 0. Only to be asked for when somebody watches: a locked instruction
    /// on a shared line.
    pub fn cookie(&self) -> u32 {
        // Relaxed: a number of its own.
        match self.cookie.fetch_add(1, Ordering::Relaxed).wrapping_add(1) {
            0 => self.cookie(),
            cookie => cookie,
        }
    }

    /// Counts one more instance.
    pub(super) fn add_instance(&self, uid: u32) -> Result<(), Errno> {
        // Relaxed, here and below: a tunable.
        let max = self.max_user_instances.load(Ordering::Relaxed);
        self.add(uid, max, Errno::MFILE, |user| &mut user.instances)
    }

    /// Counts one more watch.
    pub(super) fn add_watch(&self, uid: u32) -> Result<(), Errno> {
        let max = self.max_user_watches.load(Ordering::Relaxed);
        self.add(uid, max, Errno::NOSPC, |user| &mut user.watches)
    }

    pub(super) fn remove_instance(&self, uid: u32) {
        self.remove(uid, |user| &mut user.instances);
    }

    pub(super) fn remove_watch(&self, uid: u32) {
        self.remove(uid, |user| &mut user.watches);
    }

    fn add(
        &self,
        uid: u32,
        max: u32,
        full: Errno,
        count: impl FnOnce(&mut User) -> &mut u32,
    ) -> Result<(), Errno> {
        let mut users = self.users.lock();
        let at = match users.iter().position(|user| user.uid == uid) {
            Some(at) => at,
            None => {
                fault::check().map_err(|_| Errno::NOMEM)?;
                users.try_reserve(1).map_err(|_| Errno::NOMEM)?;
                users.push(User { uid, instances: 0, watches: 0 });
                users.len() - 1
            }
        };
        let count = count(&mut users[at]);
        if *count >= max {
            return Err(full);
        }
        *count += 1;
        Ok(())
    }

    fn remove(&self, uid: u32, count: impl FnOnce(&mut User) -> &mut u32) {
        let mut users = self.users.lock();
        let Some(at) = users.iter().position(|user| user.uid == uid) else { return };
        *count(&mut users[at]) -= 1;
        if users[at].instances == 0 && users[at].watches == 0 {
            users.swap_remove(at);
        }
    }
}

impl crate::Vfs {
    /// The limits of inotify.
    pub fn inotify_limits(&self) -> &InotifyLimits {
        &self.inotify_limits
    }
}

impl Default for InotifyLimits {
    fn default() -> Self {
        Self::new()
    }
}
