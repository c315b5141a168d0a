//! The bottom layer with checks, switched on and off while the cache is in use.
//!
//! # How it costs nothing when it is off
//!
//! While checks are on, the CPUs and the barn have no sheaves: each operation misses, as it does when a sheaf runs out,
//! goes through the layers and ends in [`Slabs::take`] or [`Slabs::give`], which come here.
//!
//! # The switch
//!
//! On: the CPUs' guard goes up and their sheaves are taken, the barn is closed and drained, and then, under the lock of the
//! slabs with checks, an epoch begins. A thread that was on its way meanwhile may fill a sheaf from slabs with checks. That
//! sheaf has no way out of the thread's hands: the guard refuses it, the closed barn too, and its objects return here. Off:
//! the epoch ends first, and the barn and the guard open last.
//!
//! # What is checked, of what
//!
//! ```text
//!   off  |  slabs as ever: nothing is known of an object but that it is one
//!   on   |  new slabs, of this epoch only: room around the objects, a record of each; all under one lock
//!   off  |  those slabs become slabs as ever, if odd ones
//!   on   |  the next epoch: new slabs again
//! ```
//!
//! While checks are on, objects are taken from slabs of the epoch only, so all that is allocated is checked. What was
//! allocated before is checked for being an object of the cache when it is freed.
//!
//! Nothing is reported while a lock is held: what is wrong is first made harmless.

mod call_site;
mod checked;
mod flags;
mod objects;
mod violation;

pub use call_site::CallSite;
pub(crate) use checked::FreeKind;
pub use flags::{Debug, DebugError};
pub(crate) use objects::{record_size, zone};
pub use violation::{Dump, Invalid, Side, Violation, ViolationKind, set_violation_handler};

use crate::freelist::State;
use crate::slab::{Partial, Slab};
use crate::slabs::Slabs;
use crate::{registry, stats};
use checked::{Checked, Popped, Put};
use core::ptr::{self, NonNull};
use objects::{Objects, Use};
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicU8, Ordering};
use quietline_sync::SpinLock;
use violation::report;

/// The checks of a live cache.
#[derive(Debug)]
pub(crate) struct Checks {
    /// What is checked, a hint. Written under `slabs`.
    flags: AtomicU8,
    pub(crate) slabs: SpinLock<Checked>,
}

impl Checks {
    pub(crate) const fn new() -> Self {
        Self { flags: AtomicU8::new(0), slabs: SpinLock::new(Checked::new()) }
    }

    pub(crate) fn flags(&self) -> Debug {
        // Relaxed: a setting. A thread that must know asks again under the lock.
        Debug::from_bits_truncate(self.flags.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn on(&self) -> bool {
        !self.flags().is_off()
    }

    /// The call site of the caller, if such are kept.
    fn here(&self) -> CallSite {
        if self.flags().contains(Debug::TRACK) { CallSite::here() } else { CallSite::NONE }
    }
}

impl Slabs {
    /// Begins a new epoch: checks this from now on. No CPU has a sheaf, nor has the barn.
    pub(crate) fn switch(&self, debug: Debug) {
        let old = self.checks.slabs.with(|slabs| {
            // Relaxed: see `Checks::flags`.
            self.checks.flags.store(debug.bits(), Ordering::Relaxed);
            slabs.turn(debug)
        });
        old.into_iter().for_each(|slabs| self.thaw_all(slabs));
    }

    /// Makes slabs with checks ordinary ones. No thread looks at their records any more, while others may push to them.
    fn thaw_all(&self, mut slabs: Partial) {
        while let Some(slab) = slabs.first() {
            // SAFETY: on this list, which nobody else knows; frozen, so ours to take from, and after this on no list.
            let (_, state) = unsafe {
                slabs.remove(slab);
                slab.as_ref().take(0, None, &mut |_| ())
            };
            // One without a free object is nobody's from now on.
            if state == State::Frozen {
                self.thaw(slab);
            }
        }
    }

    /// Takes up to `want` objects, fewer if nothing is checked any more.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_checked(
        &self,
        want: usize,
        give: &mut impl FnMut(usize),
    ) -> Result<usize, AllocError> {
        let by = self.checks.here();
        for got in 0..want {
            if got > 0 {
                // Each object is taken alone.
                self.count(stats::REFILL);
            }
            loop {
                match self.checks.slabs.with(|slabs| slabs.pop(&by)) {
                    Popped::Off => return Ok(got),
                    Popped::NoSlab => match self.grow() {
                        Err(AllocError) if got > 0 => return Ok(got),
                        grown => grown?,
                    },
                    Popped::Again(violation) => report(violation),
                    Popped::Object { object, fresh, found } => {
                        self.count(stats::SLAB_SYNC);
                        // Relaxed: a statistic.
                        self.taken.fetch_add(1, Ordering::Relaxed);
                        found.into_iter().for_each(report);
                        if let Some(ctor) = self.options.ctor.filter(|_| fresh) {
                            // SAFETY: never handed out before, of the cache's size and alignment.
                            unsafe { ctor.call(object) };
                        }
                        give(object.as_ptr() as usize);
                        break;
                    }
                }
            }
        }
        Ok(want)
    }

    /// Makes a slab, unless nothing is checked any more.
    fn grow(&self) -> Result<(), AllocError> {
        let (checked, epoch) = self.checks.slabs.with(|slabs| (slabs.checked, slabs.epoch));
        if checked.is_off() {
            return Ok(());
        }
        let slab = match self.new_slab() {
            Err(AllocError) if self.may_find_pages() => self.new_slab()?,
            slab => slab?,
        };
        // The switch may have been turned, or a tunable, while the slab was made.
        // SAFETY: nobody else knows the slab.
        let fits = unsafe { *slab.as_ref().layout() } == self.layout_with(checked);
        if fits {
            // SAFETY: as above; with this layout it has room for records.
            unsafe {
                (*slab.as_ptr()).set_checked(checked, epoch);
                Objects::of(slab).init();
            }
        }
        let added = fits
            && self.checks.slabs.with(|slabs| {
                let now = slabs.epoch == epoch;
                if now {
                    slabs.add(slab);
                }
                now
            });
        if !added {
            // SAFETY: nobody else knows the slab.
            unsafe { self.discard(slab) };
        }
        Ok(())
    }

    /// Gives an object back. False if it is none, which has been reported.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_checked(&self, object: usize, kind: FreeKind) -> bool {
        // Who freed an object that has waited is known since it began to wait.
        let by = if kind == FreeKind::RcuEnd { CallSite::NONE } else { self.checks.here() };
        match self.checks.slabs.with(|slabs| slabs.put(self, object, &by, kind)) {
            Put::Unchecked if kind == FreeKind::RcuBegin => {}
            Put::Unchecked => self.give_unchecked(&mut [object]),
            Put::Refused(violation) => {
                report(violation);
                return false;
            }
            Put::Foreign(owner, slab) => {
                report(foreign(self, object, owner, slab, &by));
                return false;
            }
            Put::Done(found) => {
                found.into_iter().for_each(report);
                if kind != FreeKind::RcuBegin {
                    self.count(stats::SLAB_SYNC);
                    // Relaxed: a statistic.
                    self.taken.fetch_sub(1, Ordering::Relaxed);
                    if !self.options.has_destructor() {
                        self.discard_checked(self.min_partial.get());
                    }
                }
            }
        }
        true
    }

    /// Frees all empty slabs with checks, but for some.
    pub(crate) fn discard_checked(&self, keep: usize) {
        loop {
            match self.checks.slabs.with(|slabs| slabs.take_empty(keep)) {
                (None, None) => return,
                (None, Some(violation)) => report(violation),
                // SAFETY: no object is out, and the slab is on no list any more. Discarding runs hooks, which may use the
                // cache: not under the lock.
                (Some(slab), _) => unsafe { self.discard(slab) },
            }
        }
    }

    /// See [`Control::validate`](crate::Control::validate).
    pub(crate) fn validate(&self) -> usize {
        let mut found = 0;
        while let Some(violation) = self.checks.slabs.with(Checked::next_wrong) {
            report(violation);
            found += 1;
        }
        found
    }

    /// Reports what is wrong, and what is still out, when the last owner goes.
    pub(crate) fn report_leaks(&self) {
        if !self.checks.on() {
            return;
        }
        self.validate();
        let slabs = self.checks.slabs.with(|slabs| slabs.turn(Debug::OFF));
        let out = || {
            slabs.iter().flat_map(Partial::iter).flat_map(|slab| {
                // SAFETY: checked slabs of the cache, which nobody else knows any more.
                let objects = unsafe { Objects::of(slab) };
                (0..objects.count())
                    .filter(move |index| {
                        matches!(objects.usage(*index), Some(Use::Allocated | Use::Waiting))
                    })
                    .map(move |index| (objects, index))
            })
        };
        let of = out().count();
        for (number, (objects, index)) in (1..).zip(out()) {
            report(objects.about(index, ViolationKind::Leak { number, of }));
        }
        slabs.into_iter().for_each(|slabs| self.thaw_all(slabs));
    }
}

/// An address in a slab of another cache, which may be gone.
fn foreign(
    cache: &Slabs,
    object: usize,
    owner: *const Slabs,
    slab: NonNull<Slab>,
    by: &CallSite,
) -> Violation {
    let nobodys = Violation::new(ViolationKind::InvalidPointer(Invalid::NoSlab), cache, object);
    let mut violation = Violation { found: by.known(), ..nobodys };
    registry::each(|candidate| {
        let candidate = candidate.slabs();
        if !ptr::eq(candidate, owner) {
            return;
        }
        let kind = ViolationKind::WrongCache { owner: candidate.options.name };
        let known = candidate.checks.slabs.with(|slabs| {
            slabs.iter().find(|known| *known == slab)?;
            // SAFETY: on the list, so a checked slab of that cache, and alive.
            let objects = unsafe { Objects::of(slab) };
            let (index, _) = objects.slab.locate(object)?;
            Some(objects.about(index, kind))
        });
        let size = candidate.options.size;
        let Violation { cache, found, .. } = violation;
        violation = Violation { kind, cache, object, found, size, ..known.unwrap_or(nobodys) };
    });
    violation
}
