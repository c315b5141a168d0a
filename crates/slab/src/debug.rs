//! Checks of a cache's use, switched on and off while it is in use.
//!
//! # How it costs nothing when it is off
//!
//! While checks are on, CPUs have no sheaves: each `pop` and `push` misses, as it does when a sheaf runs out, and the slow
//! path that follows comes here. While they are off, the hit path does not know that there is such a thing.
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
mod flags;
mod objects;
mod slabs;
mod violation;

pub use call_site::CallSite;
pub use flags::{Debug, DebugError};
pub(crate) use objects::{record_size, zone};
pub use violation::{Dump, Invalid, Side, Violation, ViolationKind, set_violation_handler};

use crate::bulk::Entry;
use crate::cache::RawCache;
use crate::freelist::State;
use crate::inner::Inner;
use crate::options::Options;
use crate::slab::{Layout, Partial, Slab};
use crate::tunables::Tunables;
use crate::{reclaim, registry, stats};
use core::ptr::{self, NonNull};
use objects::{Objects, Use};
use quietline_platform::atomic::{AtomicBool, AtomicU8, Ordering};
use quietline_platform::fork::AtFork;
use quietline_platform::{AllocError, FenceError, thread};
use quietline_sync::SpinLock;
use slabs::{Popped, Put, Slabs, Way};
use violation::report;

/// The checks of a live cache.
#[derive(Debug)]
pub(crate) struct Checks {
    /// What is checked, for those who need not know exactly. Written under `slabs`.
    flags: AtomicU8,
    /// Whether a thread turns the switch. No lock: hooks may be called meanwhile, and nobody who forks waits for it.
    turning: AtomicBool,
    slabs: SpinLock<Slabs>,
}

impl RawCache {
    /// Switches checks on or off, or others on. Other threads may go on meanwhile; what they have allocated by then is
    /// checked for less than what they allocate afterwards. For all handles of a merged cache. Each check includes
    /// [`Debug::CONSISTENCY`], and [`Debug::POISON`] is ignored where it cannot be.
    ///
    /// With checks on, all operations take one lock of the cache, and objects need more room: some 40 bytes with
    /// [`RED_ZONE`](Debug::RED_ZONE), 200 with [`TRACK`](Debug::TRACK), which also takes some microseconds for each operation.
    /// Without `POISON`, the memory of an object is as [`alloc`](Self::alloc) says; with it, it is filled with `0x5a`.
    ///
    /// What is found goes to the [handler](set_violation_handler). When the cache is dropped, objects of the current checks
    /// that are still out are reported one by one as [leaks](ViolationKind::Leak).
    ///
    /// The environment switches checks on for caches as they are made: `QUIETLINE_SLAB_DEBUG=FZPU` for all,
    /// `QUIETLINE_SLAB_DEBUG=FZ,inode,dentry*` for some.
    ///
    /// Not to be called from a hook of the cache.
    ///
    /// ```
    /// use quietline_slab::{Debug, Options, RawCache, ViolationKind, set_violation_handler};
    ///
    /// set_violation_handler(|violation| {
    ///     assert_eq!(violation.kind, ViolationKind::DoubleFree);
    ///     println!("{violation}");
    /// });
    /// let cache = RawCache::new(Options::new("packet", 256, 64))?;
    /// cache.set_debug(Debug::ALL)?;
    /// let packet = cache.alloc()?;
    /// // SAFETY: allocated above, at least the first time. The second time is found, and nothing happens.
    /// unsafe {
    ///     cache.free(packet);
    ///     cache.free(packet);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`FenceError`] when checks are to be switched on and the kernel refuses `membarrier`,
    /// without which no CPU's sheaf can be taken away. Nothing is changed then.
    pub fn set_debug(&self, debug: Debug) -> Result<(), FenceError> {
        self.inner.set_debug(debug)
    }

    /// What is checked: what was [set](Self::set_debug), with what it includes and without what cannot be.
    pub fn debug(&self) -> Debug {
        self.inner.checks.flags()
    }

    /// Looks at all objects that are checked, free ones and others (the kernel's `validate`): red zones, poison, free lists.
    /// How many violations were found, and reported. O(bytes) under the lock; 0 with checks off.
    pub fn validate(&self) -> usize {
        validate(&self.inner)
    }
}

impl Checks {
    pub(crate) const fn new() -> Self {
        Self {
            flags: AtomicU8::new(0),
            turning: AtomicBool::new(false),
            slabs: SpinLock::new(Slabs::new()),
        }
    }

    pub(crate) fn flags(&self) -> Debug {
        // Relaxed: a setting. Whoever must know asks again under the lock.
        Debug::from_bits_truncate(self.flags.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn on(&self) -> bool {
        !self.flags().is_off()
    }

    pub(crate) fn before(&self) {
        self.slabs.before();
    }

    pub(crate) fn after(&self, child: bool) {
        self.slabs.after(child);
        if child {
            // Relaxed: the child has one thread. Whoever turned the switch did not come along.
            self.turning.store(false, Ordering::Relaxed);
        }
    }

    /// Waits until nobody else turns the switch.
    fn turn(&self) -> Turn<'_> {
        // ORDERING: pairs with the release in `Turn::drop`: what another thread did to the CPUs' sheaves and the flags is
        // seen. Who finds it turning tries again.
        while self.turning.swap(true, Ordering::Acquire) {
            thread::yield_now();
        }
        Turn(self)
    }

    /// The call site of whoever asks, if such are kept.
    fn here(&self) -> CallSite {
        if self.flags().contains(Debug::TRACK) { CallSite::here() } else { CallSite::NONE }
    }
}

/// The right to turn the switch.
struct Turn<'a>(&'a Checks);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // ORDERING: pairs with the acquire in `Checks::turn`.
        self.0.turning.store(false, Ordering::Release);
    }
}

impl Inner {
    pub(crate) fn set_debug(&self, asked: Debug) -> Result<(), FenceError> {
        let mut debug = asked;
        if self.options.keeps_state() {
            debug -= Debug::POISON;
        }
        // What a check of POISON alone became is still one.
        if !asked.is_off() {
            debug |= Debug::CONSISTENCY;
        }
        let _turn = self.checks.turn();
        let before = self.checks.flags();
        if debug == before {
            return Ok(());
        }
        // Nothing of the new epoch must come into a sheaf: they go first, and come back last.
        if before.is_off() && self.has_sheaves() {
            self.forbid_sheaves()?;
        }
        let old = self.checks.slabs.with(|slabs| {
            // Relaxed: see `Checks::flags`.
            self.checks.flags.store(debug.bits(), Ordering::Relaxed);
            slabs.turn(debug)
        });
        old.into_iter().for_each(|slabs| thaw(self, slabs));
        if debug.is_off() && self.options.sheaves {
            self.allow_sheaves();
        }
        Ok(())
    }
}

/// What shall be checked in a cache with these options.
pub(crate) fn asked(options: Options) -> Options {
    let debug = match Debug::from_environment(&options.name) {
        Some(Debug::OFF) => Debug::OFF,
        Some(more) => options.debug | more,
        None => options.debug,
    };
    Options { debug, ..options }
}

/// Where objects lie in slabs that are made now.
pub(crate) fn layout(cache: &Inner) -> Layout {
    layout_with(cache, cache.checks.flags())
}

fn layout_with(cache: &Inner, checked: Debug) -> Layout {
    let Tunables { min_objects, min_order, .. } = cache.tunables();
    let layout = Options { min_objects, min_order, ..cache.options }.layout_with(checked);
    layout.expect("what fits without checks fits with them")
}

/// Makes slabs with checks slabs as ever. Nobody looks at their records any more, while others may push to them already.
fn thaw(cache: &Inner, mut slabs: Partial) {
    while let Some(slab) = slabs.first() {
        // SAFETY: on this list, which nobody else knows; frozen, so ours to take from, and after this on no list.
        let (_, state) = unsafe {
            slabs.remove(slab);
            slab.as_ref().take(0, None, |_| ())
        };
        // One without a free object is nobody's from now on.
        if state == State::Frozen {
            cache.thaw(slab);
        }
    }
}

#[cold]
#[inline(never)]
pub(crate) fn alloc(cache: &Inner) -> Result<NonNull<u8>, AllocError> {
    alloc_by(cache, &cache.checks.here())
}

fn alloc_by(cache: &Inner, by: &CallSite) -> Result<NonNull<u8>, AllocError> {
    cache.count(stats::REFILL);
    loop {
        match cache.checks.slabs.with(|slabs| slabs.pop(cache, by)) {
            Popped::Off => return cache.alloc_slow(),
            Popped::NoSlab => grow(cache)?,
            Popped::Again(violation) => report(violation),
            Popped::Object { object, fresh, found } => {
                cache.count(stats::SLAB_SYNC);
                // Relaxed: a statistic.
                cache.taken.fetch_add(1, Ordering::Relaxed);
                found.into_iter().for_each(report);
                if let Some(ctor) = cache.options.ctor.filter(|_| fresh) {
                    // SAFETY: never handed out before, of the cache's size and alignment.
                    unsafe { ctor.call(object) };
                }
                return Ok(object);
            }
        }
    }
}

/// A new slab, unless nothing is checked any more.
fn grow(cache: &Inner) -> Result<(), AllocError> {
    let (checked, epoch) = cache.checks.slabs.with(|slabs| (slabs.checked, slabs.epoch));
    if checked.is_off() {
        return Ok(());
    }
    let slab = match cache.new_slab() {
        Err(_) if reclaim::under_pressure() => cache.new_slab()?,
        slab => slab?,
    };
    // The switch may have been turned, or a tunable, while the slab was made.
    // SAFETY: nobody else knows the slab.
    let fits = unsafe { *slab.as_ref().layout() } == layout_with(cache, checked);
    if fits {
        // SAFETY: as above; with this layout it has room for records.
        unsafe {
            (*slab.as_ptr()).set_checked(checked, epoch);
            Objects::of(slab, cache.options.size).init();
        }
    }
    let added = fits
        && cache.checks.slabs.with(|slabs| {
            let now = slabs.epoch == epoch;
            if now {
                slabs.add(slab);
            }
            now
        });
    if !added {
        // SAFETY: nobody else knows the slab.
        unsafe { cache.discard(slab) };
    }
    Ok(())
}

#[cold]
#[inline(never)]
pub(crate) fn alloc_bulk(
    cache: &Inner,
    objects: &mut [Entry],
    got: usize,
) -> Result<(), AllocError> {
    let by = cache.checks.here();
    for i in got..objects.len() {
        match alloc_by(cache, &by) {
            Ok(object) => objects[i] = Some(object),
            Err(error) => {
                objects.iter_mut().filter_map(Option::take).for_each(|object| {
                    give_back(cache, object.as_ptr() as usize, &by, Way::Free);
                });
                return Err(error);
            }
        }
    }
    Ok(())
}

#[cold]
#[inline(never)]
pub(crate) fn free(cache: &Inner, object: usize) {
    give_back(cache, object, &cache.checks.here(), Way::Free);
}

/// An object is to be freed after a grace period. False if it cannot be: that has been reported, and it is to be left alone.
#[cold]
#[inline(never)]
pub(crate) fn free_rcu(cache: &Inner, object: usize) -> bool {
    give_back(cache, object, &cache.checks.here(), Way::Wait)
}

/// An object after its grace period. Who freed it is known since [`free_rcu`], if that was asked.
#[cold]
#[inline(never)]
pub(crate) fn freed_rcu(cache: &Inner, object: usize) {
    give_back(cache, object, &CallSite::NONE, Way::Waited);
}

fn give_back(cache: &Inner, object: usize, by: &CallSite, way: Way) -> bool {
    match cache.checks.slabs.with(|slabs| slabs.put(cache, object, by, way)) {
        Put::Off | Put::Unchecked if way == Way::Wait => {}
        Put::Off => cache.free_slow(object),
        Put::Unchecked => cache.free_to_slabs(&mut [object]),
        Put::Refused(violation) => {
            report(violation);
            return false;
        }
        Put::Foreign(owner, slab) => {
            report(foreign(cache, object, owner, slab, by));
            return false;
        }
        Put::Done(found) => {
            found.into_iter().for_each(report);
            if way != Way::Wait {
                cache.count(stats::SLAB_SYNC);
                // Relaxed: a statistic.
                cache.taken.fetch_sub(1, Ordering::Relaxed);
                if !cache.options.has_destructor() {
                    discard_empty(cache, cache.knobs.min_partial());
                }
            }
        }
    }
    true
}

/// An address in a slab of another cache, which may be gone.
fn foreign(
    cache: &Inner,
    object: usize,
    owner: *const Inner,
    slab: NonNull<Slab>,
    by: &CallSite,
) -> Violation {
    let found = by.known();
    let nobodys = Violation::new(ViolationKind::InvalidPointer(Invalid::NoSlab), cache, object);
    let mut violation = Violation { found, ..nobodys };
    registry::each(|candidate| {
        if !ptr::eq(candidate, owner) {
            return;
        }
        let kind = ViolationKind::WrongCache { owner: candidate.options.name };
        let size = candidate.options.size;
        let known = candidate.checks.slabs.with(|slabs| {
            slabs.iter().find(|known| *known == slab)?;
            // SAFETY: on the list, so a checked slab of that cache, and alive.
            let objects = unsafe { Objects::of(slab, size) };
            let (index, _) = objects.slab.locate(object)?;
            Some(slabs::about(cache, &objects, index, kind))
        });
        violation = Violation { kind, object, found, size, ..known.unwrap_or(nobodys) };
    });
    violation
}

/// Gives back all slabs of which nothing is in use, but for some that are kept.
pub(crate) fn discard_empty(cache: &Inner, keep: usize) {
    loop {
        match cache.checks.slabs.with(|slabs| slabs.take_empty(cache, keep)) {
            (None, None) => return,
            (None, Some(violation)) => report(violation),
            // SAFETY: no object is out, and the slab is on no list any more. Discarding runs hooks and callbacks, which
            // may use the cache: not under the lock.
            (Some(slab), _) => unsafe { cache.discard(slab) },
        }
    }
}

pub(crate) fn validate(cache: &Inner) -> usize {
    let mut found = 0;
    while let Some(violation) = cache.checks.slabs.with(|slabs| slabs.next_wrong(cache)) {
        report(violation);
        found += 1;
    }
    found
}

/// The last owner is going, and nobody else uses the cache: what is wrong now, and what is still out.
pub(crate) fn at_drop(cache: &Inner) {
    if !cache.checks.on() {
        return;
    }
    validate(cache);
    let slabs = cache.checks.slabs.with(|slabs| slabs.turn(Debug::OFF));
    let out = || {
        slabs.iter().flat_map(Partial::iter).flat_map(|slab| {
            // SAFETY: checked slabs of the cache, which nobody else knows any more.
            let objects = unsafe { Objects::of(slab, cache.options.size) };
            (0..objects.count()).filter_map(move |index| match objects.usage(index) {
                Some(Use::Allocated | Use::Waiting) => Some((slab, index)),
                _ => None,
            })
        })
    };
    let of = out().count();
    for (number, (slab, index)) in (1..).zip(out()) {
        // SAFETY: as above.
        let objects = unsafe { Objects::of(slab, cache.options.size) };
        report(slabs::about(cache, &objects, index, ViolationKind::Leak { number, of }));
    }
    slabs.into_iter().for_each(|slabs| thaw(cache, slabs));
}
