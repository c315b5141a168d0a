//! Threads that wait in a queue.
//!
//! A waiter is a node and a word, on the stack of its thread:
//!
//! ```text
//!   IDLE ──> LINKED ──> CLAIMED ──> WOKEN ──> IDLE
//!     ^  owner  │  waker,     waker,    owner
//!     │         │  under the  without
//!     └─────────┘  lock       it
//!       owner, under the lock
//! ```
//!
//! While CLAIMED the node is the waker's: it is on no list but on the waker's own, which needs its links. After WOKEN
//! the waker knows only the word's address, and the waiter may be gone. So a waiter that gives up takes the lock, and
//! either takes itself off, and has not been woken, or finds itself claimed, and waits for the waker, which is past the
//! lock and has nothing left to wait for.

use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;

use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::cell::UnsafeCell;
#[cfg(loom)]
use quietline_platform::thread;
#[cfg(not(loom))]
use quietline_platform::{clock, futex};

use super::claimed::STEP;
use super::node::{Kind, Node};
use super::patience::{self, Origin};
use super::{Interrupt, Reply, WaitQueue};

/// How to wait.
#[derive(Debug, Clone, Copy)]
pub struct Wait<'a> {
    /// The events to be woken for; [`WaitQueue::ANY`] by default.
    pub key: u32,
    /// Whether a wake-up for one is enough if another waiter gets it.
    pub exclusive: bool,
    /// Whether an exclusive wait is woken before those that came earlier, not after them: the thread that slept for the
    /// shortest time has most of what it needs in its CPU's caches, and the others may sleep on (`__add_wait_queue_exclusive`).
    pub newest_first: bool,
    /// How long to wait at most; for ever by default.
    pub timeout: Option<Duration>,
    /// By what the wait may be interrupted; by nothing by default.
    pub interrupt: Option<&'a Interrupt>,
    /// Whether it may be interrupted by what the thread has [entered](Interrupt::enter), if `interrupt` says nothing. Asked
    /// only by a wait that sleeps.
    pub interruptible: bool,
}

impl Default for Wait<'_> {
    fn default() -> Self {
        Self {
            key: WaitQueue::ANY,
            exclusive: false,
            newest_first: false,
            timeout: None,
            interrupt: None,
            interruptible: false,
        }
    }
}

/// Why a wait ended without what was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitError {
    /// The time was up.
    TimedOut,
    /// The [`Interrupt`] was raised.
    Interrupted,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "the wait took too long",
            Self::Interrupted => "the wait was interrupted",
        })
    }
}

impl std::error::Error for WaitError {}

/// The bits of the word that say where the waiter is.
pub(super) const PHASE: u32 = 3;
const IDLE: u32 = 0;
pub(super) const LINKED: u32 = 1;
pub(super) const WOKEN: u32 = LINKED + 2 * STEP;
/// The waiter sleeps, or is about to.
pub(super) const ASLEEP: u32 = 1 << 2;
/// The interrupt was raised since the waiter looked at it.
pub(super) const DISTURBED: u32 = 1 << 3;

/// A thread in a queue.
#[repr(C)]
pub(super) struct Waiter {
    /// First, so that a pointer to it is one to the waiter.
    pub(super) node: Node,
    pub(super) word: AtomicU32,
    /// With what key it was claimed: the waker's until WOKEN, then the waiter's.
    pub(super) key: UnsafeCell<u32>,
    /// Where it was claimed, as the key.
    pub(super) origin: Origin,
    #[cfg(loom)]
    pub(super) thread: loom::thread::Thread,
}

impl Waiter {
    pub(super) fn new(wait: &Wait<'_>) -> Self {
        Self {
            node: Node::new(Kind::Sleeper(wait.key), wait.exclusive)
                .newest_first(wait.newest_first),
            word: AtomicU32::new(IDLE),
            key: UnsafeCell::new(0),
            origin: Origin::new(),
            #[cfg(loom)]
            thread: thread::current(),
        }
    }

    fn phase(&self) -> u32 {
        // ORDERING: Acquire pairs with the release in `Claimed::drop`: after WOKEN the waker's use of the node is over, and
        // what it did before the wake-up is seen.
        self.word.load(Ordering::Acquire) & PHASE
    }
}

/// A waiter's entry with its [`Interrupt`].
#[repr(C)]
struct Alarm {
    /// First, so that a pointer to it is one to the alarm.
    node: Node,
    waiter: NonNull<Waiter>,
}

/// # Safety
/// The node is that of an alarm in its queue, whose waiter lives.
unsafe fn disturb(node: NonNull<Node>, _key: u32) -> Reply {
    // SAFETY: by contract; `Leave` takes the alarm off before the waiter ends.
    let waiter = unsafe { node.cast::<Alarm>().as_ref().waiter.as_ref() };
    // ORDERING: Release pairs with the acquire in `sleep`: who finds the bit finds the interrupt raised.
    if waiter.word.fetch_or(DISTURBED, Ordering::Release) & ASLEEP != 0 {
        #[cfg(loom)]
        waiter.thread.unpark();
        #[cfg(not(loom))]
        futex::wake(&waiter.word, 1);
    }
    Reply::Woken
}

/// Takes the waiter out of everything, however its function is left.
struct Leave<'a> {
    queue: &'a WaitQueue,
    waiter: &'a Waiter,
    alarm: Option<(&'a Interrupt, &'a Alarm)>,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if let Some((interrupt, alarm)) = self.alarm {
            interrupt.sleepers.remove(&alarm.node);
        }
        if self.waiter.phase() == IDLE || self.give_up() {
            return;
        }
        // Woken, and the waiter did not come to look at its condition because of that: somebody else may have to.
        self.wait_for_waker();
        if self.waiter.node.exclusive {
            // SAFETY: after WOKEN the key is the waiter's.
            let key = self.waiter.key.with(|key| unsafe { *key });
            self.queue.wake(key, 1);
        }
    }
}

impl Leave<'_> {
    /// Enters the queue. What is looked at after this is not missed.
    fn enter(&self) {
        // Relaxed: not on the list, so nobody else changes the phase, and the lock in `add` brings it to wakers. An exchange,
        // so that an alarm at the same moment is not overwritten.
        self.waiter.word.fetch_or(LINKED, Ordering::Relaxed);
        let node = NonNull::from(self.waiter).cast::<Node>();
        // SAFETY: the waiter stays where it is, and `drop` takes it off before it ends; this is its only queue.
        unsafe { self.queue.add(node) };
    }

    /// The waiter has been WOKEN and has looked at its condition: the wake-up is used.
    fn settle(&self) {
        // SAFETY: this thread's waiter, WOKEN.
        unsafe { self.waiter.origin.keep() };
        // Relaxed: as in `enter`.
        self.waiter.word.fetch_and(!(PHASE | ASLEEP), Ordering::Relaxed);
    }

    /// Takes the waiter off the queue; false if a waker was faster.
    fn give_up(&self) -> bool {
        let off = self.queue.remove(&self.waiter.node);
        if off {
            // Relaxed: as in `enter`.
            self.waiter.word.fetch_and(!(PHASE | ASLEEP), Ordering::Relaxed);
        }
        off
    }

    /// Sleeps until woken; or until the time is up or the alarm goes, and then the waiter is off the queue and was not
    /// woken.
    ///
    /// Before that it [looks again](patience::look_again), where that has paid lately: not ASLEEP yet, so that nobody needs a
    /// system call to wake it.
    ///
    /// # Panics
    /// In debug builds, if the thread has an RCU read-side critical section open.
    fn sleep(&self, until: &mut Until) -> Result<(), WaitError> {
        #[cfg(all(debug_assertions, not(any(loom, quietline_sim))))]
        if !until.is_over() {
            crate::might_sleep();
        }
        if patience::look_again(self.waiter, until, self.alarm.map(|(interrupt, _)| interrupt)) {
            return Ok(());
        }
        let word = &self.waiter.word;
        loop {
            // ORDERING: Acquire pairs with the release in `disturb`: if the bit was there, the interrupt is found raised below.
            // If it comes later, the word changes and the thread does not fall asleep.
            word.fetch_and(!DISTURBED, Ordering::Acquire);
            // ORDERING: Acquire as in `phase`.
            let now = word.fetch_or(ASLEEP, Ordering::Acquire) | ASLEEP;
            match now & PHASE {
                WOKEN => return Ok(()),
                LINKED => {
                    let interrupted =
                        self.alarm.is_some_and(|(interrupt, _)| interrupt.is_pending());
                    if (interrupted || until.is_over()) && self.give_up() {
                        return Err(if interrupted {
                            WaitError::Interrupted
                        } else {
                            WaitError::TimedOut
                        });
                    }
                    if now & DISTURBED == 0 {
                        self.waiter.park(now, Some(until));
                    }
                }
                // CLAIMED: the waker is about to say so.
                _ => self.waiter.park(now, None),
            }
        }
    }

    /// For a claimed waiter: until the waker is done with it.
    #[cold]
    fn wait_for_waker(&self) {
        loop {
            // ORDERING: Acquire as in `phase`.
            let now = self.waiter.word.fetch_or(ASLEEP, Ordering::Acquire) | ASLEEP;
            if now & PHASE == WOKEN {
                return;
            }
            self.waiter.park(now, None);
        }
    }
}

impl WaitQueue {
    /// Waits until `ready` has something to give.
    ///
    /// It is asked at once, and again after each wake-up that meets `wait.key`. It may take locks, but must not wait for
    /// this queue. With something ready at once: no line is written here.
    ///
    /// # Errors
    /// [`WaitError`], when `ready` has nothing to give even then.
    #[inline]
    pub fn wait_until<R>(
        &self,
        wait: &Wait<'_>,
        mut ready: impl FnMut() -> Option<R>,
    ) -> Result<R, WaitError> {
        match ready() {
            Some(ready) => Ok(ready),
            None => self.wait_slow(wait, ready),
        }
    }

    #[cold]
    fn wait_slow<R>(
        &self,
        wait: &Wait<'_>,
        mut ready: impl FnMut() -> Option<R>,
    ) -> Result<R, WaitError> {
        let mut until = Until::new(wait.timeout);
        let own = if wait.interruptible && wait.interrupt.is_none() {
            Interrupt::current()
        } else {
            None
        };
        let interrupt = wait.interrupt.or(own.as_deref());
        // These two stay in this frame, and are used by reference only.
        let waiter = &Waiter::new(wait);
        let alarm = &Alarm {
            node: Node::new(Kind::Callback(disturb), false),
            waiter: NonNull::from(waiter),
        };
        let leave =
            Leave { queue: self, waiter, alarm: interrupt.map(|interrupt| (interrupt, alarm)) };
        if let Some(interrupt) = interrupt {
            // SAFETY: `leave` takes the alarm off before it or the waiter ends; this is its only queue.
            unsafe { interrupt.sleepers.add(NonNull::from(alarm).cast::<Node>()) };
        }
        loop {
            leave.enter();
            if let Some(ready) = ready() {
                return Ok(ready);
            }
            let slept = leave.sleep(&mut until);
            // Looked at outside the queue: a wake-up that comes now goes to somebody who needs it.
            let ready = ready();
            if slept.is_ok() {
                leave.settle();
            }
            if let Some(ready) = ready {
                return Ok(ready);
            }
            slept?;
        }
    }
}

#[cfg(not(loom))]
impl Waiter {
    /// Sleeps while the word is `now`, at most `until`.
    fn park(&self, now: u32, until: Option<&mut Until>) {
        futex::wait(&self.word, now, until.and_then(|until| until.left()));
    }
}

#[cfg(loom)]
impl Waiter {
    /// Sleeps until unparked. A wait with an end does not sleep: the model lets others run a while instead.
    fn park(&self, _now: u32, until: Option<&mut Until>) {
        if until.is_some_and(|until| until.looks_left.is_some()) {
            thread::yield_now();
        } else {
            thread::park();
        }
    }
}

/// When a wait is over.
#[cfg(not(loom))]
pub(super) struct Until {
    deadline: Option<Duration>,
}

#[cfg(not(loom))]
impl Until {
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        // What is past the end of the clock is never.
        Self { deadline: timeout.and_then(|timeout| clock::monotonic().checked_add(timeout)) }
    }

    pub(super) fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_sub(clock::monotonic()))
    }

    fn is_over(&mut self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}

/// In the model the time is up at the second look.
#[cfg(loom)]
pub(super) struct Until {
    looks_left: Option<u32>,
}

#[cfg(loom)]
impl Until {
    fn new(timeout: Option<Duration>) -> Self {
        Self { looks_left: timeout.map(|_| 1) }
    }

    fn is_over(&mut self) -> bool {
        match &mut self.looks_left {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }
}
