//! RCU: readers that write no shared line, and writers that wait for them.
//!
//! # The problem and the contended way
//!
//! A reader that follows a pointer must be sure that what it points to stays until the reader is done. A lock, or a
//! count in the object, makes every reader write the object's line.
//!
//! # Our way
//!
//! The shape of the kernel's SRCU, on restartable sequences: each CPU has a pair of counters, sections entered and
//! sections left, at two indices. A reader adds one to *entered* at the current index on the CPU
//! where it begins, and one to *left* at the same index on the CPU where it ends; both are plain
//! additions to the CPU's own line. A grace period makes the other index current, and waits until
//! the counters at the old index agree:
//!
//! ```text
//!   reader                          grace period
//!   i := index (in the sequence)    index := other
//!   entered[i][cpu] += 1            fence: restarts sequences in flight. No section is entered
//!   ... reads ...                          at the old index any more; all entries are visible
//!   left[i][cpu'] += 1              E := sum of entered[old]        (it can no longer change)
//!                                   wait until sum of left[old] = E
//! ```
//!
//! Because the index is read *inside* the restartable sequence, one barrier ends all uncertainty
//! about late entries; SRCU, whose readers may sleep between reading the index and counting, needs
//! two rounds.
//!
//! # Guarantees
//!
//! * A read section has no locked instruction and no fence; it may be entered by any thread, without registration,
//!   and its [`Guard`] may be dropped on another CPU or by another thread.
//! * [`Domain::synchronize`] returns after every section that was open when it was called has ended; what the caller
//!   wrote before is seen by every section that begins later.
//! * A callback ([`Domain::call`]) runs exactly once, after such a grace period. Queueing it runs
//!   nothing: callbacks run in [`Domain::poll`], [`Domain::synchronize`], [`Domain::barrier`] and
//!   [`run_pending`], and never inside another callback. Those of one CPU run newest first within a
//!   batch, older batches before newer ones.
//! * [`run_pending`] runs callbacks of the CPU on which it is called: what they free is in that
//!   CPU's cache. The others run those of all CPUs.
//! * In a child process every guard that the parent's other threads held counts as dropped, and callbacks queued
//!   before the fork run in both processes; those that another thread was just running are lost to the child.
//!
//! # Retirement
//!
//! An updater that has removed a value from the sight of new readers gives it to the domain, which
//! drops it after a grace period.
//!
//! * Without allocation, because the value has room for the head of its callback: a value in a
//!   [`Pointer`], when it is replaced; any other [`RcuBox`], for example of an
//!   [`Arc`](std::sync::Arc) or of the owner of an index; an object with a [`Head`]
//!   ([`Domain::call`], unsafe); an object of a slab cache (`RcuCache` and `RawCache::free_rcu` in
//!   `quietline_slab`).
//! * Without allocation, because the updater takes it back: indices, ids, descriptor numbers and
//!   other values in a [`RetireQueue`].
//! * With an allocation, whose failure returns the value: [`Domain::retire`] for an `Arc` or any
//!   handle, [`Domain::retire_box`] (unsafe) for a [`Box`] in a pointer of the program's own.
//!
//! # Bounded garbage
//!
//! A domain counts its garbage in objects ([`Domain::backlog`]) and bounds it by the
//! [backlog limit](Domain::set_backlog_limit). A retired box counts as one object for each KiB that
//! it begins ([`BYTES_PER_OBJECT`]), with the bytes that [`with_bytes`](Unpublished::with_bytes)
//! adds. So a limit of *n* objects is a limit of *n* KiB, too. On top of it come the unfinished
//! batches, of less than [`BATCH`] objects on each CPU, and one value for each thread. At the
//! limit:
//!
//! * [`Domain::retire`] and [`Domain::retire_box`] return the value ([`RetireError::Backlog`]).
//!   Outside all sections, [`Domain::barrier`] makes room, and the value may be dropped after it.
//! * [`Domain::call`], [`Domain::defer`], [`Pointer`] and [`RcuBox`] cannot fail. Their updater
//!   asks [`Domain::is_over_backlog_limit`] before it makes garbage, and waits outside all sections
//!   and locks. [`run_pending`] waits for it, up to ten milliseconds, after a full batch.
//!
//! A [`RetireQueue`] has a bound of its own, its capacity: a full queue returns the value, and
//! [`pop_wait`](RetireQueue::pop_wait) makes room. So has a slab cache, whose objects are of one
//! size: at `RawCache::set_rcu_limit`, `free_rcu` waits for a grace period.
//!
//! Beside a reader that never leaves its section, calls that return a value go on returning it, and
//! calls that wait for a grace period do not return. The [stall report](set_stall_handler) names
//! the reason.
//!
//! # Event loops
//!
//! A thread that sleeps in `epoll_wait` inside a section holds up every grace period of its domain:
//! nothing is freed, all waits for a grace period go on, and the backlog grows to its limit. No
//! thread is registered here, and a thread that is outside all sections is quiescent. So a loop
//! leaves the section before it sleeps. It also runs the callbacks of the program, if it is the
//! domain's [`Reclaimer`]:
//!
//! 1. Events are handled in a section each, or together in one. The guard is dropped before the
//!    loop sleeps. For what may survive the sleep see [`might_sleep`](crate::might_sleep), which
//!    debug builds assert.
//! 2. A thread that fills a batch of callbacks notifies the loop by an eventfd.
//! 3. The loop [polls](Domain::poll) the domain outside all sections and locks. While that returns
//!    `true`, callbacks wait, perhaps in an unfinished batch of which no notification tells: the
//!    loop sleeps with a time-out and polls again.
//!
//! ```
//! use quietline_sync::might_sleep;
//! use quietline_sync::rcu::{Domain, Pointer, RcuBox, Reclaimer};
//! use std::fs::File;
//! use std::io::{Read, Write};
//! use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
//! use std::sync::Arc;
//!
//! /// The eventfd of a loop. A full counter refuses a write: the loop is woken already.
//! struct WakeUp(File);
//!
//! impl Reclaimer for WakeUp {
//!     fn notify(&self) {
//!         let _ = (&self.0).write(&1_u64.to_ne_bytes());
//!     }
//! }
//!
//! let domain = Domain::new()?;
//! let config = Pointer::new(RcuBox::new(&domain, 0_u64)?);
//! // SAFETY: plain calls; the descriptors are fresh.
//! let (epoll, wake_up) = unsafe {
//!     let event = libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
//!     let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
//!     let mut readable = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
//!     libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, event, &mut readable);
//!     (epoll, Arc::new(WakeUp(File::from_raw_fd(event))))
//! };
//! domain.set_reclaimer(Some(Box::new(wake_up.clone())))?;
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         for version in 1..=10_000 {
//!             drop(config.replace(RcuBox::new(&domain, version).expect("memory")));
//!         }
//!     });
//!     let mut callbacks_wait = true;
//!     let mut newest = 0;
//!     while newest < 10_000 || callbacks_wait {
//!         might_sleep();
//!         let mut event = libc::epoll_event { events: 0, u64: 0 };
//!         let timeout = if callbacks_wait { 1 } else { 1_000 };
//!         // SAFETY: room for one event.
//!         if unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, timeout) } == 1 {
//!             let _ = (&wake_up.0).read(&mut [0; 8]);
//!         }
//!         {
//!             let section = domain.read();
//!             newest = *config.load(&section).expect("a value is there");
//!         }
//!         callbacks_wait = domain.poll();
//!     }
//! });
//! assert_eq!(domain.backlog(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//!
//! * No thread of its own: a program that queues callbacks calls [`Domain::poll`] now and then, or
//!   [`run_pending`] where it holds no lock and no section. A `quietline::Process` does so when
//!   calls that free return. Until then what is queued waits. A program may choose a
//!   [`Reclaimer`] instead: an event loop, or a thread ([`Domain::spawn_reclaimer`]).
//! * Due callbacks of a CPU whose threads have left wait for the backlog limit or for a poll.
//! * A child process loses the callbacks that other threads were running at the fork, of
//!   [`SHARE`] objects each.
//! * A guard that a thread holds across `fork` protects nothing in the child, and must not be dropped there after seven
//!   further forks, each by the child of the one before: its counters are in use again then.
//! * Sections may be entered and left in signal handlers; everything else here takes locks and may not.
//! * [`Domain::barrier`] inside a callback ends the process, as callbacks do not nest.
//! * Waiting for a grace period inside a read section of the same domain waits for ever; the stall report says so.
//! * A thread to which the kernel refuses `membarrier` (a seccomp filter) ends no grace period. It
//!   waits until another thread does; the stall report says so. No memory is freed early.
//! * A thread must not sleep inside a section of any domain: nothing is freed meanwhile. Debug
//!   builds assert it in a [`WaitQueue`](crate::WaitQueue) and where the program calls
//!   [`might_sleep`](crate::might_sleep), which says what an event loop does instead.
//!
//! # Lock order
//!
//! The grace-period lock, inside it the lock of the collected callbacks; callbacks run under neither.
//!
//! # Source
//!
//! `kernel/rcu/srcutree.c`; M. Desnoyers et al., "User-Level Implementations of Read-Copy Update", 2012 (the
//! membarrier pairing).

mod boxed;
mod callbacks;
mod chain;
mod grace;
mod handle;
#[cfg(all(debug_assertions, not(any(loom, quietline_sim))))]
pub(crate) mod open_sections;
mod pending;
mod pointer;
#[cfg(not(any(loom, quietline_sim)))]
mod reclaimer;
mod retire_queue;
mod run;
#[cfg(not(loom))]
mod stall;
mod wait;

pub use boxed::{BYTES_PER_OBJECT, RcuBox, RetireError};
pub use callbacks::{BATCH, SHARE};
pub use chain::{Head, HeadOfMany, Many};
pub use handle::DomainHandle;
pub use pending::{DomainSet, run_pending};
pub use pointer::{Pointer, Storage, Unlinked, Unpublished};
#[cfg(not(any(loom, quietline_sim)))]
pub use reclaimer::Reclaimer;
pub use retire_queue::RetireQueue;
#[cfg(not(loom))]
pub use stall::{Stall, set_stall_handler};

use callbacks::{Callbacks, contain};
use core::marker::PhantomPinned;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use crossbeam_utils::CachePadded;
pub use grace::GpSeq;
use grace::{Grace, Want};
use quietline_platform::AllocError;
use quietline_platform::atomic::AtomicU64;
#[cfg(not(loom))]
use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_platform::percpu::Words;

/// Words of one index: entered, left.
const PER_INDEX: usize = 2;
/// Words of one generation: two indices. Each `fork` moves the child to the next generation, so
/// that guards of the parent's time count nowhere that matters.
const PER_GENERATION: usize = 2 * PER_INDEX;
/// Generations before words are used again.
#[cfg(not(loom))]
const GENERATIONS: usize = 8;
#[cfg(loom)]
const GENERATIONS: usize = 1;
const WORDS: usize = PER_GENERATION * GENERATIONS;

/// Readers that are waited for together. Most programs need only [`global`].
///
/// A domain lives as long as the process ([`leaked`](Self::leaked), [`StaticDomain`]), belongs to a
/// scope that guards and pointers borrow it from ([`new`](Self::new)), or ends with the last of its
/// [handles](DomainHandle). Its end is a [`barrier`](Self::barrier) that waits for no reader: no
/// guard borrows the domain any more, so the thread that drops it runs all callbacks that are
/// queued, and those that they queue, before the drop returns. That thread holds no lock that a
/// callback may take.
///
/// A domain does not move: the registry of what takes part in a `fork` has its address.
///
/// ```compile_fail,E0507
/// # use quietline_sync::rcu::Domain;
/// let moved = *Domain::new().unwrap();
/// ```
///
/// ```compile_fail,E0596
/// # use quietline_sync::rcu::Domain;
/// let (mut one, mut other) = (Domain::new().unwrap(), Domain::new().unwrap());
/// std::mem::swap(&mut *one, &mut *other);
/// ```
#[derive(Debug)]
// Readers find their words at the domain's own address.
#[repr(C)]
pub struct Domain {
    readers: CachePadded<Readers>,
    grace: CachePadded<Grace>,
    callbacks: Callbacks,
    #[cfg(not(any(loom, quietline_sim)))]
    reclaimer: reclaimer::Chosen,
    #[cfg(not(loom))]
    node: quietline_platform::fork::Node,
    /// The registry of forks has the address.
    _pinned: PhantomPinned,
}

/// What readers read: one line, written once for each grace period.
#[derive(Debug)]
struct Readers {
    /// The *entered* word of the counter pair in use (`srcu_idx`).
    index: AtomicU64,
    counts: Words<WORDS>,
}

/// An open read section. Ends when dropped.
#[derive(Debug)]
#[must_use = "the section ends at once if the guard is dropped"]
pub struct Guard<'a> {
    domain: &'a Domain,
    entered: usize,
}

impl Domain {
    /// A domain without readers.
    ///
    /// # Errors
    /// [`AllocError`] when memory for the counters cannot be had.
    pub fn new() -> Result<Pin<Box<Self>>, AllocError> {
        let domain = Self {
            readers: CachePadded::new(Readers { index: AtomicU64::new(0), counts: Words::new()? }),
            grace: CachePadded::new(Grace::new()),
            callbacks: Callbacks::new()?,
            #[cfg(not(any(loom, quietline_sim)))]
            reclaimer: reclaimer::Chosen::new(),
            #[cfg(not(loom))]
            node: quietline_platform::fork::Node::new(quietline_platform::fork::Rank::Domain),
            _pinned: PhantomPinned,
        };
        let domain = Box::into_pin(quietline_platform::heap::try_box(domain)?);
        quietline_platform::name_words!(*domain => "rcu_domain" { readers, grace, callbacks });
        #[cfg(not(loom))]
        {
            let owner: *const Domain = &*domain;
            // SAFETY: the domain is pinned, and `drop` takes it out of the registry first.
            unsafe { domain.node.register(owner) };
        }
        Ok(domain)
    }

    /// A domain that lives as long as the process.
    ///
    /// # Errors
    /// [`AllocError`] when memory for the counters cannot be had.
    pub fn leaked() -> Result<&'static Self, AllocError> {
        // SAFETY: the domain is not moved out of the box, which is never freed.
        Ok(Box::leak(unsafe { Pin::into_inner_unchecked(Self::new()?) }))
    }

    /// Opens a read section: about a nanosecond, one plain addition to the CPU's own line.
    ///
    /// Writes no shared line.
    #[inline(always)]
    pub fn read(&self) -> Guard<'_> {
        // SAFETY: the index is always below WORDS.
        let entered = unsafe { self.readers.counts.increment_selected(&self.readers.index) };
        // The sequence is a barrier for the compiler, which with the fence in `Grace::begin` is one for the processor.
        #[cfg(all(debug_assertions, not(any(loom, quietline_sim))))]
        open_sections::enter();
        Guard { domain: self, entered }
    }

    /// Waits for a grace period: every section open now has ended when it returns. Microseconds when readers are
    /// short; callbacks that become due run here too, unless the caller is a callback.
    ///
    /// # Panics
    /// Never; but called inside a read section of this domain it never returns, and reports a stall after ten
    /// seconds.
    pub fn synchronize(&self) {
        self.wait_for(self.get_state_synchronize());
    }

    /// Returns the sequence number of the next full grace period (`get_state_synchronize_rcu`).
    /// A full memory barrier. Requests nothing.
    pub fn get_state_synchronize(&self) -> GpSeq {
        self.grace.snapshot()
    }

    /// Returns the sequence number of the next full grace period and requests that grace period
    /// (`start_poll_synchronize_rcu`): [`poll`](Self::poll) brings it about. A full memory barrier.
    pub fn start_poll_synchronize(&self) -> GpSeq {
        self.grace.request()
    }

    /// Returns whether the grace period is over (`poll_state_synchronize_rcu`).
    pub fn poll_state_synchronize(&self, seq: GpSeq) -> bool {
        self.grace.completed() >= seq
    }

    /// Moves a grace period on if a callback or a request wants one and nobody else is at it, and
    /// runs callbacks that are due; never waits. Whether callbacks are still queued or running:
    /// inside a callback always, so a loop until `false` does not end there. O(CPUs).
    pub fn poll(&self) -> bool {
        self.step(Want::Any);
        self.run_due();
        #[cfg(not(loom))]
        self.look_for_stall();
        self.callbacks.pending() > 0
    }

    /// Moves a grace period on as [`poll`](Self::poll) does, and runs no callback: for the holder
    /// of a lock that callbacks may take.
    pub fn advance(&self) {
        self.step(Want::Any);
    }

    /// Waits until the grace period is over (`cond_synchronize_rcu`). Runs no callback.
    ///
    /// Inside a read section of this domain it may wait for ever, as
    /// [`synchronize`](Self::synchronize).
    pub fn cond_synchronize(&self, seq: GpSeq) {
        let mut wait = wait::Wait::new();
        while !self.poll_state_synchronize(seq) {
            self.step(Want::Seq(seq));
            if self.poll_state_synchronize(seq) {
                break;
            }
            wait.pause(self);
        }
    }

    fn wait_for(&self, seq: GpSeq) {
        self.cond_synchronize(seq);
        self.run_due();
    }

    /// One step of the grace-period machine, if nobody else is making one.
    fn step(&self, want: Want) {
        self.grace.advance(self, want);
    }
}

impl<'a> Guard<'a> {
    /// The domain whose section this is.
    pub fn domain(&self) -> &'a Domain {
        self.domain
    }

    /// Leaves the section open, and returns what [`from_raw`](Self::from_raw) needs to close it:
    /// the domain, and a number below [`RAW_LIMIT`](Self::RAW_LIMIT).
    #[inline(always)]
    pub fn into_raw(self) -> (&'a Domain, usize) {
        let guard = ManuallyDrop::new(self);
        (guard.domain, guard.entered)
    }

    /// The numbers of [`into_raw`](Self::into_raw) are below this.
    pub const RAW_LIMIT: usize = WORDS;

    /// The guard that [`into_raw`](Self::into_raw) took apart.
    ///
    /// # Safety
    /// Both values came from [`into_raw`](Self::into_raw), which this undoes; once for each.
    #[inline(always)]
    pub unsafe fn from_raw(domain: &'a Domain, entered: usize) -> Self {
        Self { domain, entered }
    }
}

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(all(debug_assertions, not(any(loom, quietline_sim))))]
        open_sections::leave();
        // SAFETY: it came from the index, which names an *entered* word; the *left* word is the
        // next one. Saying so saves the check.
        unsafe { core::hint::assert_unchecked(self.entered < WORDS - 1) };
        // A release store: what the section read was read before it counts as left.
        self.domain.readers.counts.add(self.entered + 1, 1);
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        #[cfg(not(loom))]
        self.node.unregister();
        #[cfg(not(any(loom, quietline_sim)))]
        self.reclaimer.replace(self, None);
        // No guard borrows the domain any more, so every callback is due.
        self.callbacks.run_all();
        // The note of a domain that is no more would stand for ever.
        self.callbacks.over_limit();
    }
}

/// The domain of everything that brings none of its own.
///
/// # Errors
/// [`AllocError`] when its counters cannot be allocated, on the first call.
#[cfg(not(loom))]
pub fn global() -> Result<&'static Domain, AllocError> {
    static GLOBAL: StaticDomain = StaticDomain::new();
    GLOBAL.get()
}

/// A domain in a static variable, made by the first call that needs it.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct StaticDomain(AtomicPtr<Domain>);

#[cfg(not(loom))]
impl StaticDomain {
    /// A variable without a domain yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Returns the domain, and makes it if there is none.
    ///
    /// # Errors
    /// [`AllocError`] when its counters cannot be allocated.
    pub fn get(&'static self) -> Result<&'static Domain, AllocError> {
        match self.made() {
            Some(domain) => Ok(domain),
            None => self.make_slow(Domain::new),
        }
    }

    fn made(&'static self) -> Option<&'static Domain> {
        // ORDERING: pairs with the release in `make_slow`: a thread that sees the pointer sees the
        // domain.
        // SAFETY: null, or a box that is never freed.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Makes the domain. Another thread may do the same: no thread waits for another one, because a
    /// child that is forked meanwhile would wait for ever.
    #[cold]
    fn make_slow(
        &'static self,
        make: impl FnOnce() -> Result<Pin<Box<Domain>>, AllocError>,
    ) -> Result<&'static Domain, AllocError> {
        // Without memory, the domain of a quicker thread will do.
        let fresh = match make() {
            Ok(fresh) => fresh,
            Err(error) => return self.made().ok_or(error),
        };
        // SAFETY: the domain is not moved out of the box.
        let fresh = Box::into_raw(unsafe { Pin::into_inner_unchecked(fresh) });
        let null = core::ptr::null_mut();
        // ORDERING: release publishes the domain to the acquire in `made`, which also loads the
        // domain of a quicker thread.
        let stored = self.0.compare_exchange(null, fresh, Ordering::Release, Ordering::Relaxed);
        if stored.is_err() {
            // SAFETY: made above, and no other thread has it.
            drop(unsafe { Box::from_raw(fresh) });
        }
        self.made().ok_or(AllocError)
    }
}

#[cfg(not(loom))]
impl Default for StaticDomain {
    fn default() -> Self {
        Self::new()
    }
}

/// `before` holds the grace-period lock; the child starts a new generation of counters.
#[cfg(not(loom))]
// SAFETY: every step of the machine and every list of callbacks is under the grace-period lock, which `before` takes.
unsafe impl quietline_platform::fork::AtFork for Domain {
    fn before(&self) {
        self.grace.fork_before();
        self.callbacks.fork_before();
    }

    fn after(&self, child: bool) {
        self.callbacks.fork_after(child);
        self.grace.fork_after(child, self);
        #[cfg(not(quietline_sim))]
        if child {
            self.reclaimer.forget();
        }
    }
}

#[cfg(all(test, not(any(loom, quietline_sim))))]
mod tests {
    use super::{Domain, StaticDomain};
    use quietline_platform::AllocError;

    /// A thread without memory gets the domain that another thread has made meanwhile.
    #[test]
    fn a_slower_thread_needs_no_memory() {
        static DOMAIN: StaticDomain = StaticDomain::new();
        let nothing = DOMAIN.make_slow(|| Err(AllocError));
        assert!(nothing.is_err() && DOMAIN.made().is_none());
        let quicker = || DOMAIN.get().expect("memory");
        let domain = DOMAIN.make_slow(|| {
            quicker();
            Err(AllocError)
        });
        assert!(std::ptr::eq(domain.expect("the quicker thread's domain"), quicker()));
        let domain = DOMAIN.make_slow(|| {
            quicker();
            Domain::new()
        });
        assert!(std::ptr::eq(domain.expect("the quicker thread's domain"), quicker()));
    }
}
