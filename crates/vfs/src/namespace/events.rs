//! Changes of the mounts of a kernel, for callers that poll `/proc/PID/mounts`.

use crate::poll::Events;
use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_sync::WaitQueue;

/// A count of changes, and the callers that wait for the next one.
#[derive(Debug)]
pub struct MountEvents {
    count: AtomicU64,
    queue: WaitQueue,
}

impl MountEvents {
    pub(crate) fn new() -> Self {
        Self { count: AtomicU64::new(0), queue: WaitQueue::new() }
    }

    /// Returns the number of changes so far.
    pub fn count(&self) -> u64 {
        // Relaxed: a caller looks after it has entered the queue, and `wake` orders what comes
        // before it.
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the queue that is woken after each change.
    pub fn queue(&self) -> &WaitQueue {
        &self.queue
    }

    /// Reports a change. The caller holds no lock.
    pub(crate) fn changed(&self) {
        // Relaxed: as above.
        self.count.fetch_add(1, Ordering::Relaxed);
        self.queue.wake((Events::ERR | Events::PRI).bits(), WaitQueue::ALL);
    }
}

impl crate::Vfs {
    /// Changes of the mounts.
    pub fn mount_events(&self) -> &MountEvents {
        &self.mount_events
    }
}
