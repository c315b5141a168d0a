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
//!   entered[i][cpu] += 1            fence: restarts sequences in flight, so that nobody enters
//!   ... reads ...                          at the old index any more, and entries are visible
//!   left[i][cpu'] += 1              E := sum of entered[old]      (it can no longer change)
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
//! # Limits
//!
//! * No thread of its own: a program that queues callbacks calls [`Domain::poll`] now and then, or
//!   [`run_pending`] where it holds no lock and no section. A `quietline::Process` does so when
//!   calls that free return. Until then what is queued waits. A program may choose a
//!   [`Reclaimer`] instead: an event loop, or a thread ([`Domain::spawn_reclaimer`]).
//! * What waits is bounded while readers leave: by [`Domain::backlog_limit`], the unfinished
//!   batches, and what one call queues. Due callbacks of a CPU whose threads have left wait for the
//!   limit or for a poll.
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

mod callbacks;
mod chain;
mod grace;
#[cfg(all(debug_assertions, not(any(loom, quietline_sim))))]
pub(crate) mod open_sections;
mod pending;
#[cfg(not(any(loom, quietline_sim)))]
mod reclaimer;
mod run;
#[cfg(not(loom))]
mod stall;
mod wait;

pub use callbacks::{BATCH, SHARE};
pub use chain::{Head, HeadOfMany, Many};
pub use pending::{DomainSet, run_pending};
#[cfg(not(any(loom, quietline_sim)))]
pub use reclaimer::Reclaimer;
#[cfg(not(loom))]
pub use stall::{Stall, set_stall_handler};

use callbacks::Callbacks;
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
    /// runs callbacks that are due; never waits. Whether callbacks are still queued or running.
    /// O(CPUs).
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
