//! What all handles of a cache share, and the slow paths: between sheaves, barn, slabs and pages.

use crate::barn::Barn;
use crate::debug::{self, Checks};
use crate::deferred::Deferred;
use crate::freelist::State;
use crate::options::{CacheError, Options};
use crate::reclaim::{self, Idle};
use crate::sheaves::{GuardState, Handshake, Sheaves, Taken};
use crate::slab::{Layout, Partial, Slab};
use crate::stats;
use crate::tunables::{self, Knobs, Tunables};
use crate::visits::Visits;
use core::marker::PhantomPinned;
use core::ptr::NonNull;
use crossbeam_utils::CachePadded;
use quietline_platform::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use quietline_platform::percpu::{self, OwnedSheaf};
use quietline_platform::{AllocError, FenceError, fork, fork::AtFork};
use quietline_sync::{Shared, SpinLock};

/// At a stable address, which slabs name. Owned by the handles ([`RawCache`](crate::RawCache)), by whoever visits all
/// caches, and by sheaves that wait for a grace period; the last owner takes it apart.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) sheaves: Sheaves,
    pub(crate) options: Options,
    pub(crate) knobs: Knobs,
    /// On lines of their own: what is read on every slow path, around them, would move with the locks (the simulated machine
    /// named it).
    pub(crate) barn: CachePadded<Barn>,
    pub(crate) partial: CachePadded<SpinLock<Partial>>,
    /// One at a time raises the CPUs' guards.
    pub(crate) handshake: Handshake,
    /// Whether CPUs may have sheaves: if not, the guard is up.
    sheaves_allowed: AtomicBool,
    /// Whether the last handle is gone: nothing is worth keeping.
    closed: AtomicBool,
    pub(crate) slabs: AtomicUsize,
    /// Places for objects in all slabs.
    pub(crate) places: AtomicUsize,
    /// Objects that slabs have given out and not got back: with users or in sheaves.
    pub(crate) taken: AtomicI64,
    /// Objects that wait for a grace period that has been asked for.
    pub(crate) waiting: AtomicI64,
    /// The bound on `waiting`: see [`RawCache::set_rcu_limit`](crate::RawCache::set_rcu_limit).
    pub(crate) rcu_limit: AtomicI64,
    /// Objects that wait without one.
    pub(crate) deferred: Deferred,
    pub(crate) checks: Checks,
    pub(crate) idle: Idle,
    pub(crate) visits: Visits,
    pub(crate) membership: crate::registry::Membership,
    node: fork::Node,
    /// Slabs and the registries have the address, and use it beside an exclusive reference of the
    /// only owner.
    _pinned: PhantomPinned,
}

impl Inner {
    /// # Errors
    /// [`CacheError`].
    pub(crate) fn new(options: Options) -> Result<Shared<Self>, CacheError> {
        let (tunables, _) = tunables::resolve(&options, options.tunables(&options.layout()?))?;
        // Nobody else knows the cache: what has no sheaves from the start needs no fence for it.
        let sheaves = options.sheaves && options.debug.is_off();
        let inner = Shared::new(Self {
            sheaves: Sheaves::new(sheaves)?,
            options,
            knobs: Knobs::new(tunables),
            barn: CachePadded::new(Barn::new(Options::barn_limit())),
            partial: CachePadded::new(SpinLock::new(Partial::new())),
            handshake: SpinLock::new(GuardState::new(sheaves)),
            sheaves_allowed: AtomicBool::new(sheaves),
            closed: AtomicBool::new(false),
            slabs: AtomicUsize::new(0),
            places: AtomicUsize::new(0),
            taken: AtomicI64::new(0),
            waiting: AtomicI64::new(0),
            rcu_limit: AtomicI64::new(i64::MAX),
            deferred: Deferred::new(),
            checks: Checks::new(),
            idle: Idle::new(),
            visits: Visits::new(),
            membership: crate::registry::Membership::new(),
            node: fork::Node::new(fork::Rank::Cache),
            _pinned: PhantomPinned,
        })?;
        quietline_platform::name_words!(*inner => "kmem_cache" { knobs, barn, partial, handshake, sheaves_allowed });
        quietline_platform::name_words!(*inner => "kmem_cache" { slabs, places, taken, waiting, idle, visits });
        let owner: *const Inner = &*inner;
        // SAFETY: the value stays where it is, and `drop` takes it out of the registry first.
        unsafe { inner.node.register(owner) };
        inner.set_debug(options.debug).expect("there are no sheaves to take away");
        Ok(inner)
    }

    pub(crate) fn layout(&self) -> Layout {
        if self.checks.on() {
            return debug::layout(self);
        }
        let asked = self.knobs.get();
        let resolved = tunables::resolve(&self.options, asked);
        resolved.expect("tunables that fit no object are refused").1
    }

    pub(crate) fn tunables(&self) -> Tunables {
        self.knobs.get()
    }

    pub(crate) fn set_tunables(&self, asked: Tunables) -> Result<(), CacheError> {
        let (tunables, _) = tunables::resolve(&self.options, asked)?;
        let capacity = self.knobs.sheaf_capacity();
        self.knobs.set(tunables);
        if capacity != tunables.sheaf_capacity {
            // If the fence is refused, sheaves of the old capacity serve until they are replaced.
            let _ = self.put_back(|| self.sheaves.take_all(&self.handshake));
            self.empty_barn();
        }
        Ok(())
    }

    /// Lets CPUs have sheaves.
    pub(crate) fn allow_sheaves(&self) {
        self.sheaves.allow(&self.handshake);
        // Relaxed: who sees the old value does without, as it may.
        self.sheaves_allowed.store(true, Ordering::Relaxed);
    }

    /// Takes the CPUs' sheaves away, and lets them have none.
    ///
    /// # Errors
    /// [`FenceError`]; CPUs may have sheaves, as before.
    pub(crate) fn forbid_sheaves(&self) -> Result<(), FenceError> {
        // Relaxed: who sees the old value tries, and is refused by the guard.
        self.sheaves_allowed.store(false, Ordering::Relaxed);
        let forbidden = self.put_back(|| self.sheaves.forbid(&self.handshake));
        if forbidden.is_err() {
            self.sheaves_allowed.store(true, Ordering::Relaxed);
        }
        self.empty_barn();
        forbidden
    }

    pub(crate) fn has_sheaves(&self) -> bool {
        // Relaxed: see `forbid_sheaves`.
        self.sheaves_allowed.load(Ordering::Relaxed)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_slow(&self) -> Result<NonNull<u8>, AllocError> {
        if percpu::is_fallback()
            && let Some(object) = NonNull::new(self.sheaves.pop() as *mut u8)
        {
            return Ok(object);
        }
        if self.checks.on() {
            return debug::alloc(self);
        }
        let mut object = 0;
        match if self.has_sheaves() { self.filled_sheaf(false) } else { Err(AllocError) } {
            Ok(mut sheaf) => {
                object = sheaf.pop().expect("the sheaf is not empty");
                self.install(sheaf, false);
            }
            // No sheaves, no memory for one, or no slab to fill it from; perhaps a single object can be had.
            Err(AllocError) => {
                self.refill(1, |o| object = o)?;
            }
        }
        NonNull::new(object as *mut u8).ok_or(AllocError)
    }

    /// A sheaf with at least one object that is at hand: the CPU's spare one, one that came home, or one of the barn's. Else an empty one, if
    /// there is any.
    fn sheaf_at_hand(&self) -> Result<OwnedSheaf, Option<OwnedSheaf>> {
        let spare = self.sheaves.take_spare();
        match spare {
            Some(sheaf) if !sheaf.is_empty() => return Ok(sheaf),
            _ => {}
        }
        reclaim::tick();
        if let Some(full) = self.take_home() {
            if let Some(empty) = spare {
                self.park(empty);
            }
            return Ok(full);
        }
        let Some(full) = self.barn.take_full() else { return Err(spare) };
        self.count(stats::BARN_GET);
        if let Some(empty) = spare {
            self.park(empty);
        }
        Ok(full)
    }

    /// A sheaf that came home to the CPU.
    pub(crate) fn take_home(&self) -> Option<OwnedSheaf> {
        self.sheaves.take_home(|over| self.store(over))
    }

    /// A sheaf with at least one object. Not one filled from slabs for a caller who wants `many` objects, who is better served
    /// from slabs at once.
    pub(crate) fn filled_sheaf(&self, many: bool) -> Result<OwnedSheaf, AllocError> {
        let spare = match self.sheaf_at_hand() {
            Ok(sheaf) => return Ok(sheaf),
            Err(spare) => spare,
        };
        if many {
            if let Some(empty) = spare {
                self.park(empty);
            }
            return Err(AllocError);
        }
        let mut sheaf = match spare.or_else(|| self.barn.take_empty()) {
            Some(sheaf) => sheaf,
            None => OwnedSheaf::new(self.knobs.sheaf_capacity())?,
        };
        let batch = self.knobs.cpu_partial().clamp(1, sheaf.capacity());
        let filled = self.refill(batch, |object| {
            assert!(sheaf.push(object), "a sheaf holds a batch");
        });
        match filled {
            Ok(()) => Ok(sheaf),
            Err(error) => {
                self.park(sheaf);
                Err(error)
            }
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn free_slow(&self, object: usize) {
        if percpu::is_fallback() && self.sheaves.push(object) {
            return;
        }
        if self.checks.on() {
            return debug::free(self, object);
        }
        let Some((mut sheaf, _)) = self.roomy_sheaf(false) else {
            return self.free_to_slabs(&mut [object]);
        };
        assert!(sheaf.push(object), "the sheaf has room");
        self.install(sheaf, true);
    }

    /// A sheaf with room, and whether it is the CPU's spare one; none if there is no memory for one, if there shall be
    /// none, or if the barn is full and the caller has `many` objects, which may as well go to slabs as those of a sheaf.
    pub(crate) fn roomy_sheaf(&self, many: bool) -> Option<(OwnedSheaf, bool)> {
        if !self.has_sheaves() {
            return None;
        }
        match self.sheaves.take_spare() {
            Some(sheaf) if sheaf.len() < sheaf.capacity() => return Some((sheaf, true)),
            Some(full) => {
                reclaim::tick();
                match self.barn.put(full) {
                    Ok(()) => self.count(stats::BARN_PUT),
                    Err(full) if many => {
                        self.park(full);
                        return None;
                    }
                    Err(full) => return Some((self.flush(full), false)),
                }
            }
            None => {}
        }
        self.empty_sheaf().ok().map(|sheaf| (sheaf, false))
    }

    /// An empty sheaf of the capacity that is in force.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(crate) fn empty_sheaf(&self) -> Result<OwnedSheaf, AllocError> {
        match self.barn.take_empty() {
            Some(sheaf) => Ok(sheaf),
            None => OwnedSheaf::new(self.knobs.sheaf_capacity()),
        }
    }

    /// Makes a sheaf the CPU's main one, in place of one that is full or empty as the caller found it, and parks what
    /// is left over.
    pub(crate) fn install(&self, sheaf: OwnedSheaf, full: bool) {
        if let Some(over) = self.sheaves.install(sheaf, full) {
            self.park(over);
        }
    }

    /// Puts a sheaf where it will be found: the CPU's spare place, else the barn, else its objects go to their slabs. Not
    /// one of another capacity than is in force, once it is empty, nor any where there shall be none.
    pub(crate) fn park(&self, sheaf: OwnedSheaf) {
        if sheaf.is_empty() && sheaf.capacity() != self.knobs.sheaf_capacity() {
            return;
        }
        let Some(over) = self.sheaves.put_spare(sheaf) else { return };
        self.store(over);
    }

    /// Whether sheaves are worth keeping.
    pub(crate) fn keeps_sheaves(&self) -> bool {
        // Relaxed: whoever stores after the last handle has gone has taken part in its going, or the cache has other owners.
        self.has_sheaves() && !self.closed.load(Ordering::Relaxed)
    }

    /// Puts a sheaf into the barn, or its objects back into their slabs.
    pub(crate) fn store(&self, sheaf: OwnedSheaf) {
        let left = if self.keeps_sheaves() { self.barn.put(sheaf).err() } else { Some(sheaf) };
        if let Some(over) = left {
            drop(self.flush(over));
        }
    }

    /// Gives a sheaf's objects back to their slabs.
    pub(crate) fn flush(&self, mut sheaf: OwnedSheaf) -> OwnedSheaf {
        if !sheaf.is_empty() {
            self.count(stats::FLUSH);
            self.gather_to_slabs(sheaf.values());
            while sheaf.pop().is_some() {}
        }
        sheaf
    }

    /// Takes up to `want` objects out of slabs, at least one.
    pub(crate) fn refill(
        &self,
        want: usize,
        mut give: impl FnMut(usize),
    ) -> Result<(), AllocError> {
        self.count(stats::REFILL);
        let mut got = 0;
        while got < want {
            let slab = match self.frozen_slab() {
                Ok(slab) => slab,
                Err(error) if got == 0 => return Err(error),
                Err(_) => break,
            };
            // SAFETY: a frozen slab lives, and is ours.
            let (n, state) =
                unsafe { slab.as_ref() }.take(want - got, self.options.ctor, &mut give);
            self.count(stats::SLAB_SYNC);
            // Relaxed: a statistic.
            self.taken.fetch_add(n as i64, Ordering::Relaxed);
            got += n;
            if state == State::Frozen {
                self.thaw(slab);
            }
        }
        Ok(())
    }

    /// A slab with free objects, the caller's to take from: a partial one, else a new one.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(crate) fn frozen_slab(&self) -> Result<NonNull<Slab>, AllocError> {
        if let Some(slab) = self.freeze_partial() {
            return Ok(slab);
        }
        if reclaim::mind_the_limit()
            && let Some(slab) = self.freeze_partial()
        {
            return Ok(slab);
        }
        match self.new_slab() {
            Ok(slab) => Ok(slab),
            // Another cache may have what this one needs.
            Err(error) if reclaim::under_pressure() => match self.freeze_partial() {
                Some(slab) => Ok(slab),
                None => self.new_slab().map_err(|_| error),
            },
            Err(error) => Err(error),
        }
    }

    pub(crate) fn new_slab(&self) -> Result<NonNull<Slab>, AllocError> {
        let layout = self.layout();
        let slab = Slab::new(NonNull::from(self), layout, self.options.dtor)?;
        // Relaxed: statistics.
        self.slabs.fetch_add(1, Ordering::Relaxed);
        self.places.fetch_add(layout.objects, Ordering::Relaxed);
        Ok(slab)
    }

    /// See [`RawCache::shrink`](crate::RawCache::shrink).
    pub(crate) fn shrink(&self) {
        let _visit = self.visits.begin();
        // If the fence is refused, the CPUs keep their sheaves.
        let _ = self.put_back(|| self.sheaves.take_all(&self.handshake));
        self.empty_barn();
        self.discard_empty();
    }

    /// The last handle is going.
    pub(crate) fn close(&self) {
        // Relaxed: see `store`.
        self.closed.store(true, Ordering::Relaxed);
        self.shrink();
    }

    /// [`close`](Self::close) for the only owner: needs no barrier.
    pub(crate) fn close_alone(&mut self) {
        // Relaxed: see `store`.
        self.closed.store(true, Ordering::Relaxed);
        let taken = self.take_alone();
        self.put_back(|| Ok(taken)).expect("taken before");
        self.empty_barn();
        self.discard_empty();
    }

    /// Every CPU's sheaves, for the only owner.
    pub(crate) fn take_alone(&mut self) -> Taken {
        #[cfg(not(loom))]
        return self.sheaves.take_all_mut(&mut self.handshake);
        #[cfg(loom)]
        return self
            .sheaves
            .take_all(&self.handshake)
            .expect("no fence of a model's end is refused");
    }

    pub(crate) fn empty_barn(&self) {
        while let Some(sheaf) = self.barn.take_full() {
            drop(self.flush(sheaf));
        }
        while self.barn.take_empty().is_some() {}
    }

    pub(crate) fn count(&self, what: usize) {
        self.sheaves.count(what);
    }

    /// Takes a slab off the partial list; it is the caller's.
    fn freeze_partial(&self) -> Option<NonNull<Slab>> {
        let mut partial = self.partial.lock();
        let slab = partial.first()?;
        // SAFETY: the slab is on the list, which is locked.
        unsafe {
            partial.remove(slab);
            slab.as_ref().set_state(State::Frozen);
        }
        Some(slab)
    }

    /// Puts a frozen slab back on the partial list.
    pub(crate) fn thaw(&self, slab: NonNull<Slab>) {
        let mut partial = self.partial.lock();
        // SAFETY: the slab is the caller's, and on no list.
        unsafe {
            slab.as_ref().set_state(State::Partial);
            partial.add(slab);
        }
    }

    /// Gives all empty slabs back.
    pub(crate) fn discard_empty(&self) {
        debug::discard_empty(self, 0);
        // Discarding runs destructors, which may use the cache: not under the lock.
        let mut empty = self.partial.lock().take_empty();
        while let Some(slab) = empty.first() {
            // SAFETY: taken off the cache's list while empty, so nobody else's; the next one is read before.
            unsafe {
                empty.remove(slab);
                self.discard(slab);
            }
        }
    }

    /// # Safety
    /// As [`Slab::discard`].
    pub(crate) unsafe fn discard(&self, slab: NonNull<Slab>) {
        // SAFETY: the slab is the caller's.
        let places = unsafe { slab.as_ref() }.layout().objects;
        // Relaxed: statistics.
        self.slabs.fetch_sub(1, Ordering::Relaxed);
        self.places.fetch_sub(places, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { Slab::discard(slab, self.options.typesafe) };
    }

    #[cfg(debug_assertions)]
    pub(crate) fn check_owner(&self, object: NonNull<u8>) {
        // With checks on there is a better report.
        if !self.checks.on() {
            // SAFETY: the object is the caller's to give back, so it lies in a live slab.
            let slab = unsafe { Slab::of(object.as_ptr() as usize) };
            let name = self.options.name;
            assert_eq!(
                slab.cache(),
                NonNull::from(self),
                "the object belongs to another cache than {name}"
            );
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.node.unregister();
        let taken = self.sheaves.take_all_mut(&mut self.handshake);
        taken.each(
            |sheaf| drop(self.flush(sheaf)),
            |sheaf| debug_assert!(sheaf.is_empty(), "what waits for a grace period owns the cache"),
        );
        self.empty_barn();
        debug::at_drop(self);
        self.discard_empty();
        // What is left has objects out: leaked, as documented.
    }
}

// SAFETY: `before` takes all locks of a cache; none is inside them but the machine's.
unsafe impl AtFork for Inner {
    fn before(&self) {
        self.handshake.before();
        self.checks.before();
        self.barn.before();
        self.deferred.before();
        self.partial.before();
    }

    fn after(&self, child: bool) {
        if child {
            self.visits.after_fork();
        }
        self.partial.after(child);
        self.deferred.after(child);
        self.barn.after(child);
        self.checks.after(child);
        self.handshake.after(child);
    }
}

// SAFETY: a cache is shared by design: sheaves are per CPU, the rest is under locks; hooks are plain functions.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}
