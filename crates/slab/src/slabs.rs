//! The bottom layer: a cache's slabs, without checks here, with checks in [`debug`](crate::debug).
//!
//! Objects that come back form detached freelists, one for each slab. Such a list is built in the
//! objects, which no other thread can touch, and goes to its slab by one compare-and-exchange
//! instead of one for each object (Brouer 2015). Objects of one slab tend to lie near each other in
//! the caller's array, so a scan that gives up after a few misses finds most of them.

use crate::account::{Account, AccountState};
use crate::bulk::GATHER;
use crate::debug::{Checks, Debug, FreeKind};
use crate::freelist::{Detached, State};
use crate::options::Options;
use crate::sheaves::Counters;
use crate::slab::{Layout, Partial, Slab};
use crate::tunables::{Knob, Tunables};
use crate::{reclaim, stats};
use core::marker::PhantomPinned;
use core::ptr::NonNull;
use crossbeam_utils::CachePadded;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicI64, AtomicUsize, Ordering};
use quietline_sync::{Once, Shared, SpinLock};

/// At a stable address, which slabs name.
#[derive(Debug)]
pub(crate) struct Slabs {
    /// On lines of its own: the fields around it are read on every slow path.
    pub(crate) partial: CachePadded<SpinLock<Partial>>,
    pub(crate) options: Options,
    min_objects: Knob,
    min_order: Knob,
    pub(crate) min_partial: Knob,
    look_ahead: Knob,
    counters: Counters,
    pub(crate) slabs: AtomicUsize,
    /// Places for objects in all slabs.
    pub(crate) places: AtomicUsize,
    /// Objects that slabs have given out and not got back.
    pub(crate) taken: AtomicI64,
    pub(crate) checks: Checks,
    account: Once<Shared<AccountState>>,
    /// Slabs have the address, and use it beside an exclusive reference of the only owner.
    _pinned: PhantomPinned,
}

impl Slabs {
    pub(crate) fn new(options: Options, tunables: Tunables, counters: Counters) -> Self {
        Self {
            partial: CachePadded::new(SpinLock::new(Partial::new())),
            options,
            min_objects: Knob::new(tunables.min_objects),
            min_order: Knob::new(tunables.min_order),
            min_partial: Knob::new(tunables.min_partial),
            look_ahead: Knob::new(tunables.look_ahead),
            counters,
            slabs: AtomicUsize::new(0),
            places: AtomicUsize::new(0),
            taken: AtomicI64::new(0),
            checks: Checks::new(),
            account: Once::empty(),
            _pinned: PhantomPinned,
        }
    }

    /// The tunables of this layer, with those of the CPUs' sheaves.
    pub(crate) fn tunables(&self, sheaf_capacity: usize, cpu_partial: usize) -> Tunables {
        Tunables {
            min_objects: self.min_objects.get(),
            min_order: self.min_order.get(),
            min_partial: self.min_partial.get(),
            cpu_partial,
            sheaf_capacity,
            look_ahead: self.look_ahead.get(),
        }
    }

    pub(crate) fn set_tunables(&self, tunables: Tunables) {
        self.min_objects.set(tunables.min_objects);
        self.min_order.set(tunables.min_order);
        self.min_partial.set(tunables.min_partial);
        self.look_ahead.set(tunables.look_ahead);
    }

    /// Returns another owner of the account that slabs are charged to.
    fn account(&self) -> Option<Account> {
        // SAFETY: owned by this.
        self.account.get().map(|state| unsafe { Account::of(state) })
    }

    /// Returns whether slabs are charged to an account.
    pub(crate) fn is_charged(&self) -> bool {
        self.account.get().is_some()
    }

    /// Charges slabs that are made from now on. Returns `false` if they are charged already.
    pub(crate) fn charge_to(&self, account: &Account) -> bool {
        self.account.set(account.state().clone()).is_ok()
    }

    /// The layout of slabs that are made now.
    pub(crate) fn layout(&self) -> Layout {
        self.layout_with(self.checks.flags())
    }

    pub(crate) fn layout_with(&self, checked: Debug) -> Layout {
        let (min_objects, min_order) = (self.min_objects.get(), self.min_order.get());
        let layout = Options { min_objects, min_order, ..self.options }.layout_with(checked);
        layout.expect("tunables that fit no object are refused, and checks change no size class")
    }

    pub(crate) fn count(&self, statistic: usize) {
        self.counters.add(statistic);
    }

    pub(crate) fn counted(&self, statistic: usize) -> u64 {
        self.counters.sum(statistic)
    }

    /// Takes up to `want` objects out of slabs, at least one.
    ///
    /// # Errors
    /// [`AllocError`]
    pub(crate) fn take(&self, want: usize, mut give: impl FnMut(usize)) -> Result<(), AllocError> {
        self.count(stats::REFILL);
        let mut got = 0;
        while got < want {
            let taken = if self.checks.on() {
                self.take_checked(want - got, &mut give)
            } else {
                self.take_unchecked(want - got, &mut give)
            };
            match taken {
                Ok(n) => got += n,
                Err(error) if got == 0 => return Err(error),
                Err(AllocError) => break,
            }
        }
        Ok(())
    }

    fn take_unchecked(
        &self,
        want: usize,
        give: &mut impl FnMut(usize),
    ) -> Result<usize, AllocError> {
        let slab = self.frozen_slab()?;
        // SAFETY: a frozen slab lives, and is ours.
        let (n, state) = unsafe { slab.as_ref() }.take(want, self.options.ctor, give);
        self.count(stats::SLAB_SYNC);
        // Relaxed: a statistic.
        self.taken.fetch_add(n as i64, Ordering::Relaxed);
        if state == State::Frozen {
            self.thaw(slab);
        }
        Ok(n)
    }

    /// Gives objects back to their slabs. The array is the caller's to forget: without checks, one
    /// compare-and-exchange for each group of one slab that the scan finds.
    pub(crate) fn give(&self, objects: &mut [usize], kind: FreeKind) {
        if self.checks.on() {
            return objects.iter().for_each(|object| _ = self.give_checked(*object, kind));
        }
        self.give_unchecked(objects);
    }

    pub(crate) fn give_unchecked(&self, objects: &mut [usize]) {
        if self.look_ahead.get() == GATHER {
            return self.gather_unchecked(objects);
        }
        let mut freed = 0;
        let mut rest = objects;
        while let Some((slab, list, shorter)) = self.detach(rest) {
            freed += i64::from(list.count);
            self.push(slab, list);
            rest = &mut rest[..shorter];
        }
        // Relaxed: a statistic.
        self.taken.fetch_sub(freed, Ordering::Relaxed);
    }

    /// [`give`](Self::give) of objects that were freed in any order, a sheaf's content: gathers the
    /// objects of one slab from all of the array, up to `GROUPS` slabs at a time. Leaves the array
    /// as it is.
    pub(crate) fn gather(&self, objects: &[usize]) {
        if self.checks.on() {
            return objects
                .iter()
                .for_each(|object| _ = self.give_checked(*object, FreeKind::Direct));
        }
        self.gather_unchecked(objects);
    }

    fn gather_unchecked(&self, objects: &[usize]) {
        const GROUPS: usize = 64;
        let mut groups: [Option<(&Slab, Detached)>; GROUPS] = [const { None }; GROUPS];
        for &object in objects {
            // SAFETY: it is an object of this cache.
            let slab = unsafe { Slab::of(object) };
            let address = slab as *const Slab as usize;
            // Blocks lie side by side in their regions, so these bits differ for neighbours of any
            // size.
            let group = &mut groups[(address >> 12 ^ address >> 18) % GROUPS];
            match group {
                Some((other, list)) if core::ptr::eq(*other, slab) => {
                    slab.detach_more(list, object)
                }
                _ => {
                    if let Some((other, list)) = group.replace((slab, slab.detach(object))) {
                        self.push(other, list);
                    }
                }
            }
        }
        groups.into_iter().flatten().for_each(|(slab, list)| self.push(slab, list));
        // Relaxed: a statistic.
        self.taken.fetch_sub(objects.len() as i64, Ordering::Relaxed);
    }

    /// Builds a detached freelist of the last object in the array and those of the same slab not
    /// far before it, and zeroes their entries. The slab, the list, and the length of the array that
    /// is left.
    fn detach<'a>(&self, objects: &mut [usize]) -> Option<(&'a Slab, Detached, usize)> {
        let last = objects.iter().rposition(|object| *object != 0)?;
        let first = core::mem::take(&mut objects[last]);
        // SAFETY: it is an object of this cache.
        let slab = unsafe { Slab::of(first) };
        let block = slab.layout().block;
        let look_ahead = self.look_ahead.get();
        let mut list = slab.detach(first);
        let (mut misses, mut end) = (0, last);
        for i in (0..last).rev() {
            let object = objects[i];
            // Nulls are objects of an earlier group.
            if object != 0 {
                if core::ptr::eq((object & !(block - 1)) as *const Slab, slab) {
                    slab.detach_more(&mut list, core::mem::take(&mut objects[i]));
                } else {
                    misses += 1;
                    if misses >= look_ahead {
                        break;
                    }
                    continue;
                }
            }
            if misses == 0 {
                end = i;
            }
        }
        Some((slab, list, end))
    }

    /// Gives a detached list to its slab. Takes the lock only if that makes a full slab partial, or
    /// leaves a slab empty.
    fn push(&self, slab: &Slab, list: Detached) {
        self.count(stats::SLAB_SYNC);
        let pushed = slab.push(list, |old, new| old.state != State::Full && new.inuse != 0);
        if pushed.is_none() {
            self.push_slow(slab, list);
        }
    }

    #[cold]
    fn push_slow(&self, slab: &Slab, list: Detached) {
        let mut partial = self.partial.lock();
        let pushed = slab.push(list, |old, new| {
            if old.state == State::Full {
                new.state = State::Partial;
            }
            true
        });
        let (old, new) = pushed.expect("under the lock every change is allowed");
        let slab = slab.as_raw();
        let surplus =
            new.inuse == 0 && new.state == State::Partial && !self.options.has_destructor();
        // SAFETY: a full slab is on no list and nobody's: the thread that changes its state under
        // the lock owns the change. An empty partial slab is on the list, and no thread can take
        // from it while the lock is held.
        unsafe {
            if old.state == State::Full {
                partial.add(slab);
            }
            if surplus && partial.len > self.min_partial.get() {
                partial.remove(slab);
                drop(partial);
                self.discard(slab);
            }
        }
    }

    /// A slab with free objects, the caller's to take from: a partial one, else a new one.
    ///
    /// # Errors
    /// [`AllocError`]
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
            // Another cache may have what this one needs.
            Err(AllocError) if self.may_find_pages() => match self.freeze_partial() {
                Some(slab) => Ok(slab),
                None => self.new_slab(),
            },
            slab => slab,
        }
    }

    /// Handles a failure to make a slab: shrinks other caches, unless it was the account that
    /// refused. Returns whether it is worth another attempt.
    pub(crate) fn may_find_pages(&self) -> bool {
        let has_room = |account: Account| account.has_room(self.layout().block);
        self.account().is_none_or(has_room) && reclaim::under_pressure()
    }

    pub(crate) fn new_slab(&self) -> Result<NonNull<Slab>, AllocError> {
        let layout = self.layout();
        let slab = Slab::new(NonNull::from(self), layout, self.options.dtor, self.account())?;
        // Relaxed: statistics.
        self.slabs.fetch_add(1, Ordering::Relaxed);
        self.places.fetch_add(layout.objects, Ordering::Relaxed);
        Ok(slab)
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

    /// Puts a frozen slab on the partial list.
    pub(crate) fn thaw(&self, slab: NonNull<Slab>) {
        let mut partial = self.partial.lock();
        // SAFETY: the slab is the caller's, and on no list.
        unsafe {
            slab.as_ref().set_state(State::Partial);
            partial.add(slab);
        }
    }

    /// Frees all empty slabs.
    pub(crate) fn drain(&self) {
        self.discard_checked(0);
        // Discarding runs destructors, which may use the cache: not under the lock.
        let mut empty = self.partial.lock().take_empty();
        while let Some(slab) = empty.first() {
            // SAFETY: taken off the cache's list while empty, so nobody else's.
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
