//! Timers: who is to be woken when.
//!
//! ```text
//!   arm, cancel ──> wheel of the CPU ── eight levels of 64 slots ── lists of timers
//!                        │ under the wheel's lock
//!   one thread of the kernel: advances all wheels, wakes what is due, sleeps until the next
//! ```
//!
//! A slot of the lowest level is a tick of a microsecond; one of the next level is 64 of those, and so on. A timer lies in the level in
//! which its tick first differs from the wheel's own; when the wheel comes to that slot, the timers in it are put into lower
//! ones. So arming and cancelling are O(1), and a timer is moved seven times at most.
//!
//! The thread is started when the first timer is armed, and sleeps as long as nothing is due.

// Files are native.
#[cfg(not(loom))]
mod owned;

#[cfg(not(loom))]
pub(crate) use owned::{OwnedTimer, open_timer};

use crate::poll::Events;
use core::fmt;
use core::num::NonZeroU64;
use core::ptr::{self, NonNull};
use core::time::Duration;
use quietline_platform::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::thread::{self, JoinHandle};
use quietline_platform::{AllocError, clock, cpu, futex, heap};
use quietline_sync::{LazyBox, PerCpu, Shared, SpinLock, WaitQueue, wake_later};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Nanoseconds of a tick, as a power of two.
const TICK: u32 = 10;
/// Slots of a level, as a power of two.
const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 8;
/// Ticks that the wheel goes round in: nine years. What is due later is put where the round ends, and when the wheel comes there, anew.
const ROUND: u64 = 1 << (BITS as usize * LEVELS);
/// In no wheel.
const NOWHERE: u32 = u32::MAX;

/// A timer: wakes its queue when its time has come, once.
pub(crate) struct Timer {
    /// Which CPU's wheel it was put into last. Changed by the owner of the timer, who arms and cancels one at a time.
    wheel: AtomicU32,
    place: UnsafeCell<Place>,
    /// Who waits for it.
    pub(crate) queue: WaitQueue,
}

/// Under the wheel's lock.
struct Place {
    /// When it is due, which may be after the wheel's round.
    tick: u64,
    /// Level and slot; none if it is not in the wheel.
    at: Option<(u8, u8)>,
    next: *mut Timer,
    prev: *mut Timer,
}

// SAFETY: the place is used under the lock of the wheel.
unsafe impl Send for Timer {}
// SAFETY: as above.
unsafe impl Sync for Timer {}

/// A CPU's timers.
struct Wheel {
    /// Up to which tick all that was due has been woken.
    now: u64,
    occupied: [u64; LEVELS],
    slots: [[*mut Timer; SLOTS]; LEVELS],
}

// SAFETY: the timers in it leave it before they end, under its lock.
unsafe impl Send for Wheel {}

/// The timers of a kernel. Its thread ends when it is dropped.
#[derive(Debug)]
pub struct Timers {
    all: Shared<All>,
    thread: SpinLock<Option<Ringer>>,
}

/// The thread, and the host's process in which it runs: a child of that has none.
#[derive(Debug)]
struct Ringer {
    thread: JoinHandle<()>,
    process: u32,
}

struct All {
    /// Made before the thread.
    wheels: LazyBox<PerCpu<SpinLock<Option<Box<Wheel>>>>>,
    /// The tick until which the thread sleeps; the end of time while it looks.
    until: AtomicU64,
    /// Changes when the thread is to look again.
    bell: AtomicU32,
    started: AtomicBool,
    stop: AtomicBool,
}

fn now() -> u64 {
    tick_after(clock::monotonic()) - 1
}

/// The tick that begins at that time or next after it.
fn tick_after(time: Duration) -> u64 {
    (u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) >> TICK) + 1
}

impl Timer {
    pub(crate) fn new() -> Self {
        let place = Place { tick: 0, at: None, next: ptr::null_mut(), prev: ptr::null_mut() };
        Self {
            wheel: AtomicU32::new(NOWHERE),
            place: UnsafeCell::new(place),
            queue: WaitQueue::new(),
        }
    }

    /// Whether it was ever armed, for its owner.
    #[inline(always)]
    pub(crate) fn was_armed(&self) -> bool {
        // Relaxed: the owner's own.
        self.wheel.load(Ordering::Relaxed) != NOWHERE
    }

    /// # Safety
    /// The caller holds the lock of the wheel, and `f` gets at no other timer's place.
    unsafe fn place<R>(&self, f: impl FnOnce(&mut Place) -> R) -> R {
        // SAFETY: by contract.
        self.place.with_mut(|place| f(unsafe { &mut *place }))
    }
}

impl Wheel {
    fn new(now: u64) -> Result<Box<Self>, AllocError> {
        heap::try_box(Self {
            now,
            occupied: [0; LEVELS],
            slots: [[ptr::null_mut(); SLOTS]; LEVELS],
        })
    }

    /// The last tick that has a slot of its own: those of the highest level after it would be where the wheel is, and be come to at
    /// once, again and again.
    fn last(&self) -> u64 {
        let slot = ROUND / SLOTS as u64;
        (self.now | (slot - 1)) + (ROUND - slot)
    }

    /// Puts a timer in, which is in no wheel and lives until it is taken out.
    fn insert(&mut self, timer: NonNull<Timer>, tick: u64) {
        let seen = tick.clamp(self.now + 1, self.last());
        let differs = (self.now ^ seen) | (SLOTS as u64 - 1);
        let level = ((63 - differs.leading_zeros()) / BITS).min(LEVELS as u32 - 1) as usize;
        let slot = (seen >> (BITS as usize * level)) as usize % SLOTS;
        let first = self.slots[level][slot];
        // SAFETY: timers in the wheel live, and its lock is held by whoever has it. So below.
        unsafe {
            timer.as_ref().place(|place| {
                *place = Place {
                    tick,
                    at: Some((level as u8, slot as u8)),
                    next: first,
                    prev: ptr::null_mut(),
                };
            });
            if let Some(first) = first.as_ref() {
                first.place(|place| place.prev = timer.as_ptr());
            }
        }
        self.slots[level][slot] = timer.as_ptr();
        self.occupied[level] |= 1 << slot;
    }

    /// Takes a timer out, if it is in.
    fn remove(&mut self, timer: &Timer) {
        // SAFETY: as in `insert`.
        unsafe {
            let (at, next, prev) = timer.place(|place| (place.at.take(), place.next, place.prev));
            let Some((level, slot)) = at else { return };
            let (level, slot) = (usize::from(level), usize::from(slot));
            match prev.as_ref() {
                Some(prev) => prev.place(|place| place.next = next),
                None => self.slots[level][slot] = next,
            }
            if let Some(next) = next.as_ref() {
                next.place(|place| place.prev = prev);
            }
            if self.slots[level][slot].is_null() {
                self.occupied[level] &= !(1 << slot);
            }
        }
    }

    /// The next slot that has timers: level, slot, and the tick at which it begins.
    fn next(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|occupied| *occupied != 0)?;
        let width = BITS * level as u32;
        let here = (self.now >> width) as u32 % SLOTS as u32;
        let ahead = self.occupied[level].rotate_right(here).trailing_zeros();
        let begins = ((self.now >> width) + u64::from(ahead)) << width;
        Some((level, ((here + ahead) as usize) % SLOTS, begins))
    }

    /// Comes to the tick `to`: gives each timer that is due to `due`, out of the wheel. When to come again.
    fn advance(&mut self, to: u64, mut due: impl FnMut(&Timer)) -> Option<u64> {
        while let Some((level, slot, begins)) = self.next() {
            if begins > to {
                return Some(begins);
            }
            self.now = self.now.max(begins);
            while let Some(timer) = NonNull::new(self.slots[level][slot]) {
                // SAFETY: as in `insert`.
                let timer_ref = unsafe { timer.as_ref() };
                self.remove(timer_ref);
                // SAFETY: as in `insert`.
                let tick = unsafe { timer_ref.place(|place| place.tick) };
                if tick <= self.now {
                    due(timer_ref);
                } else {
                    self.insert(timer, tick);
                }
            }
        }
        self.now = self.now.max(to);
        None
    }
}

impl Timers {
    /// None yet, and no thread.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn new() -> Result<Self, AllocError> {
        let all = All {
            wheels: LazyBox::new(),
            until: AtomicU64::new(u64::MAX),
            bell: AtomicU32::new(0),
            started: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        };
        Ok(Self { all: Shared::new(all)?, thread: SpinLock::new(None) })
    }

    /// Arms a timer for a time of the monotonic clock. It is woken at most a tick later than then, and as late as the host lets
    /// the thread run.
    ///
    /// # Errors
    /// [`AllocError`]: no memory for the CPU's wheel, or no thread.
    ///
    /// # Safety
    /// The timer is not armed, stays where it is, and is [cancelled](Self::cancel) before it or this ends. Its owner
    /// arms and cancels one at a time.
    pub(crate) unsafe fn arm(&self, timer: &Timer, time: Duration) -> Result<(), AllocError> {
        let wheels = self.all.wheels.get_or_make(|| PerCpu::new(|_| SpinLock::new(None)))?;
        self.start()?;
        let tick = tick_after(time);
        let at = cpu::current();
        {
            let mut wheel = wheels[at].lock();
            if wheel.is_none() {
                *wheel = Some(Wheel::new(now())?);
            }
            // Relaxed: the owner's own.
            timer.wheel.store(at as u32, Ordering::Relaxed);
            wheel.as_mut().expect("made above").insert(NonNull::from(timer), tick);
        }
        // Relaxed: the wheel's lock orders it. If the thread did not find the timer there, it looked before us, and had said before that
        // it looks: we see that, and ring, or until when it sleeps after all, which is what we compare with.
        if tick < self.all.until.load(Ordering::Relaxed) {
            self.all.ring();
        }
        Ok(())
    }

    /// After this a timer is not armed, and is not being woken.
    pub(crate) fn cancel(&self, timer: &Timer) {
        // Relaxed: the owner's own.
        let at = timer.wheel.load(Ordering::Relaxed);
        if at == NOWHERE {
            return;
        }
        let wheels = self.all.wheels.get().expect("made before the timer was armed");
        if let Some(wheel) = &mut *wheels[at as usize].lock() {
            wheel.remove(timer);
        }
    }

    fn start(&self) -> Result<(), AllocError> {
        // A look, not to write a line that all have. Relaxed, so below: who finds it reads nothing that was written with it.
        if self.all.started.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let all = self.all.clone();
            // The host's own `spawn` panics when there is no thread to be had.
            let spawned = catch_unwind(AssertUnwindSafe(|| thread::spawn(move || all.run())));
            *thread = Some(Ringer {
                thread: spawned.map_err(|_| AllocError)?,
                process: std::process::id(),
            });
            self.all.started.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl All {
    fn ring(&self) {
        // ORDERING: Release pairs with the acquire in `run`: who sees that it has rung sees what for, a timer or the end. Who does not
        // sleeps on what it was before, and is woken.
        self.bell.fetch_add(1, Ordering::Release);
        futex::wake(&self.bell, 1);
    }

    fn run(&self) {
        // Sleeps that end when they are to, and not some 50 us later as the host likes it. It is as well if that cannot be had.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let wheels = self.wheels.get().expect("made before this thread");
        loop {
            // Relaxed: see `arm`.
            self.until.store(u64::MAX, Ordering::Relaxed);
            // ORDERING: Acquire pairs with the release in `ring`.
            let bell = self.bell.load(Ordering::Acquire);
            // Relaxed: the bell orders it.
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let to = now();
            let mut next = u64::MAX;
            for wheel in wheels.iter() {
                // Told under the wheel's lock: whoever cancels waits for that. Who sleeps is woken after it, and finds it free.
                let again = wake_later(|| {
                    wheel.lock().as_mut().and_then(|wheel| {
                        wheel.advance(to, |timer| {
                            timer.queue.wake(Events::IN.bits(), 1);
                        })
                    })
                });
                next = next.min(again.unwrap_or(u64::MAX));
            }
            // Relaxed: see `arm`.
            self.until.store(next, Ordering::Relaxed);
            let begins = Duration::from_nanos(next.saturating_mul(1 << TICK));
            let left = (next != u64::MAX).then(|| begins.saturating_sub(clock::monotonic()));
            if left != Some(Duration::ZERO) {
                futex::wait(&self.bell, bell, left);
            }
        }
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        let Some(Ringer { thread, process }) = self.thread.get_mut().take() else { return };
        // Relaxed: the bell orders it, which the thread reads before.
        self.all.stop.store(true, Ordering::Relaxed);
        self.all.ring();
        if process == std::process::id() {
            // It has reported a panic of its own.
            let _ = thread.join();
        } else {
            // It did not come along: to join it is not defined, and what it owns is leaked.
            core::mem::forget(thread);
        }
    }
}

impl fmt::Debug for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("All").field("started", &self.started).finish_non_exhaustive()
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("queue", &self.queue).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
#[path = "timer/tests.rs"]
mod tests;
