//! One thread in many queues at once.

use crate::poll::{Events, PollTable};
use crate::select::Polled;
use core::marker::PhantomPinned;
use core::mem::MaybeUninit;
use core::pin::{Pin, pin};
use core::ptr::{self, NonNull};
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicBool, Ordering};
use quietline_platform::heap;
use quietline_sync::{Callback, Entry, Reply, Wait, WaitError, WaitQueue};

/// Entries that need no memory but the stack's.
const FEW: usize = 4;
/// Entries of a piece of memory.
const MANY: usize = 64;

/// What all its entries ring.
struct Bell {
    rung: AtomicBool,
    queue: WaitQueue,
}

/// An entry's callback.
struct Ring {
    bell: NonNull<Bell>,
    wanted: u32,
}

// SAFETY: the bell is made of atomics and a queue, and outlives its entries.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Callback for Ring {
    fn wake(&self, key: u32) -> Reply {
        if key & self.wanted == 0 {
            return Reply::Ignored;
        }
        // SAFETY: the bell outlives its entries.
        let bell = unsafe { self.bell.as_ref() };
        // ORDERING: SeqCst: an exchange, as `wake_exchanged` wants it. Release in it pairs with the acquire in `wait`.
        bell.rung.swap(true, Ordering::SeqCst);
        bell.queue.wake_exchanged(WaitQueue::ANY, WaitQueue::ALL);
        Reply::Woken
    }
}

type Place = MaybeUninit<Entry<'static, Ring>>;

/// A thread that waits in the queues of many files. It stays where it is until it is dropped.
pub(crate) struct Bells {
    bell: Bell,
    few: [Place; FEW],
    many: Vec<Box<[Place]>>,
    entries: usize,
    _pinned: PhantomPinned,
}

impl Bells {
    /// In no queue.
    pub(crate) fn new() -> Self {
        Self {
            bell: Bell { rung: AtomicBool::new(false), queue: WaitQueue::new() },
            few: [const { Place::uninit() }; FEW],
            many: Vec::new(),
            entries: 0,
            _pinned: PhantomPinned,
        }
    }

    /// Enters a queue, to be woken for what is `wanted`. No memory for the first few.
    ///
    /// # Errors
    /// [`AllocError`].
    ///
    /// # Safety
    /// The queue lives until this is dropped.
    pub(crate) unsafe fn enter(
        self: Pin<&mut Self>,
        queue: &WaitQueue,
        wanted: Events,
    ) -> Result<(), AllocError> {
        // SAFETY: nothing is moved; by contract for the queue.
        let (this, queue) =
            unsafe { (self.get_unchecked_mut(), &*ptr::from_ref::<WaitQueue>(queue)) };
        if this.entries == FEW + this.many.len() * MANY {
            this.many.try_reserve(1).map_err(|_| AllocError)?;
            this.many.push(heap::try_boxed_slice(MANY, |_| Place::uninit())?);
        }
        let ring = Ring { bell: NonNull::from(&this.bell), wanted: wanted.bits() };
        let at = this.entries;
        let place = this.place(at).write(Entry::new(queue, ring, false));
        // SAFETY: neither a piece of memory nor this is moved until the entry is dropped.
        unsafe { Pin::new_unchecked(&*place) }.add();
        this.entries += 1;
        Ok(())
    }

    fn place(&mut self, at: usize) -> &mut Place {
        match at.checked_sub(FEW) {
            None => &mut self.few[at],
            Some(at) => &mut self.many[at / MANY][at % MANY],
        }
    }

    /// Waits until a queue has rung and `ready` then says something. Nothing is missed that has happened since the first queue
    /// was entered.
    pub(crate) fn wait<R>(
        &self,
        wait: &Wait<'_>,
        mut ready: impl FnMut() -> Option<R>,
    ) -> Result<R, WaitError> {
        self.bell.queue.wait_until(wait, || {
            // ORDERING: acquire pairs with the release in `wake`: what made the queue ring is seen by the look that follows.
            if self.bell.rung.swap(false, Ordering::SeqCst) { ready() } else { None }
        })
    }
}

impl Drop for Bells {
    fn drop(&mut self) {
        for at in 0..self.entries {
            // SAFETY: made in `enter`, and dropped once. Dropping it waits for a call that is going on.
            unsafe { self.place(at).assume_init_drop() };
        }
    }
}

/// Enters the queues of all files, and waits in them until `ready` says something: it is asked at once, too.
///
/// # Errors
/// [`AllocError`]; inside, how the wait ended without it.
pub(crate) fn wait_in_queues<R>(
    files: &mut [Polled<'_>],
    wait: &Wait<'_>,
    mut ready: impl FnMut(&mut [Polled<'_>]) -> Option<R>,
) -> Result<Result<R, WaitError>, AllocError> {
    let mut bells = pin!(Bells::new());
    let mut failed = None;
    for file in files.iter_mut() {
        let wanted = file.wanted;
        let mut enter = |queue: &WaitQueue| {
            // SAFETY: a queue that a file shows stays as long as what the file is on, and the handle in `files`, which is borrowed
            // until the bells are dropped, keeps that.
            failed = unsafe { bells.as_mut().enter(queue, wanted) }.err().or(failed);
        };
        file.look(&mut PollTable::entering(&mut enter));
    }
    match (failed, ready(files)) {
        (_, Some(ready)) => Ok(Ok(ready)),
        (Some(error), None) => Err(error),
        (None, None) => Ok(bells.wait(wait, || ready(files))),
    }
}
