//! The untyped cache: hit paths, and the slow paths behind them.

use crate::barn::Barn;
use crate::options::{CacheError, Options};
use crate::slab::{Layout, Partial, Slab};
use crate::stats::{self, Stats};
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicI64, AtomicUsize, Ordering};
use quietline_platform::percpu::{OwnedSheaf, Sheaf, Words};
use quietline_platform::{AllocError, fork, fork::AtFork, heap};
use quietline_sync::SpinLock;

/// Words for each CPU: the sheaf that serves, the sheaf in reserve (0: none), the guard of [`RawCache::shrink`],
/// and statistics.
pub(crate) const MAIN: usize = 0;
pub(crate) const SPARE: usize = 1;
pub(crate) const GUARD: usize = 2;
pub(crate) const WORDS: usize = 3 + stats::WORDS;

/// A cache of objects of one size (`struct kmem_cache`).
///
/// Any thread may allocate and free. While a CPU has objects in its sheaf, [`alloc`](Self::alloc) and
/// [`free`](Self::free) are one restartable sequence each: no locked instruction, no shared line.
///
/// Dropping the cache gives all memory back. Objects that are still out then are leaked, memory and all, so that
/// whoever holds them does not crash; [`Stats::active`] says before how many there are.
#[derive(Debug)]
pub struct RawCache {
    pub(crate) words: Words<WORDS>,
    pub(crate) inner: Box<Inner>,
}

/// What only slow paths touch; at a stable address, which slabs name.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) layout: Layout,
    pub(crate) capacity: usize,
    pub(crate) barn: Barn,
    pub(crate) partial: SpinLock<Partial>,
    /// One at a time raises the CPUs' guards.
    handshake: SpinLock<()>,
    pub(crate) slabs: AtomicUsize,
    /// Objects that slabs have given out and not got back: with users or in sheaves.
    pub(crate) taken: AtomicI64,
    node: fork::Node,
}

impl RawCache {
    /// An empty cache. Allocates no slab and no sheaf yet.
    ///
    /// # Errors
    /// [`CacheError`].
    pub fn new(options: Options) -> Result<Self, CacheError> {
        let layout = options.layout()?;
        let mut inner = heap::try_box(Inner {
            options,
            layout,
            capacity: options.capacity(&layout),
            barn: Barn::new(),
            partial: SpinLock::new(Partial::new()),
            handshake: SpinLock::new(()),
            slabs: AtomicUsize::new(0),
            taken: AtomicI64::new(0),
            node: fork::Node::new(fork::Rank::Cache),
        })?;
        let mut words = Words::new()?;
        words.init(MAIN, Sheaf::stub().as_ptr() as u64);
        let owner: *const Inner = &*inner;
        // SAFETY: the box stays where it is, and `drop` takes it out of the registry first.
        unsafe { inner.node.register(owner)? };
        Ok(Self { words, inner })
    }

    /// An object's memory: as its last user left it, but for the link (see [`Options::link_offset`]); unspecified if
    /// it never had one and there is no constructor.
    ///
    /// Writes no shared line while the CPU's sheaf has objects; else, once in a sheaf's worth, the barn's lock or a
    /// slab's word.
    ///
    /// # Errors
    /// [`AllocError`] when the system gives no memory.
    #[inline(always)]
    pub fn alloc(&self) -> Result<NonNull<u8>, AllocError> {
        // SAFETY: MAIN points to a sheaf, which outlives operations in flight: sheaves leave it only by
        // `sheaf_replace`, which cannot happen during an operation on the CPU, or under the guard with fences.
        match NonNull::new(unsafe { self.words.sheaf_pop(MAIN) } as *mut u8) {
            Some(object) => Ok(object),
            None => self.alloc_slow(),
        }
    }

    /// Gives an object back. Never fails.
    ///
    /// Writes no shared line while the CPU's sheaf has room; else as [`alloc`](Self::alloc).
    ///
    /// # Safety
    /// `object` came from this cache, and nobody uses it any more. (In a typesafe cache, readers may still look.)
    #[inline(always)]
    pub unsafe fn free(&self, object: NonNull<u8>) {
        #[cfg(debug_assertions)]
        self.check_owner(object);
        // SAFETY: see `alloc`.
        if !unsafe { self.words.sheaf_push(MAIN, object.as_ptr() as usize) } {
            self.free_slow(object.as_ptr() as usize);
        }
    }

    #[cfg(debug_assertions)]
    fn check_owner(&self, object: NonNull<u8>) {
        // SAFETY: the object is the caller's to give back, so it lies in a live slab.
        let slab = unsafe { Slab::of(object.as_ptr() as usize, self.inner.layout.block) };
        let name = self.inner.options.name;
        assert_eq!(
            slab.cache(),
            NonNull::from(&*self.inner),
            "the object belongs to another cache than {name}"
        );
    }

    /// The layout of objects in slabs.
    pub fn layout(&self) -> Layout {
        self.inner.layout
    }

    /// What the cache holds now.
    pub fn stats(&self) -> Stats {
        Stats::of(self)
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self) -> Result<NonNull<u8>, AllocError> {
        let mut object = 0;
        match self.filled_sheaf() {
            Ok(mut sheaf) => {
                object = sheaf.pop().expect("the sheaf is not empty");
                self.install(sheaf, false);
            }
            // No memory for a sheaf, or no slab to fill it from; perhaps a single object can be had.
            Err(AllocError) => {
                self.refill(1, |o| object = o)?;
            }
        }
        NonNull::new(object as *mut u8).ok_or(AllocError)
    }

    /// A sheaf with at least one object.
    pub(crate) fn filled_sheaf(&self) -> Result<OwnedSheaf, AllocError> {
        let spare = self.take_spare();
        match spare {
            Some(sheaf) if !sheaf.is_empty() => return Ok(sheaf),
            _ => {}
        }
        if let Some(full) = self.inner.barn.take_full() {
            self.count(stats::BARN_GET);
            if let Some(empty) = spare {
                self.park(empty);
            }
            return Ok(full);
        }
        let mut sheaf = match spare.or_else(|| self.inner.barn.take_empty()) {
            Some(sheaf) => sheaf,
            None => OwnedSheaf::new(self.inner.capacity)?,
        };
        let filled = self.refill(self.inner.capacity, |object| {
            assert!(sheaf.push(object), "a sheaf of the cache's capacity holds it");
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
    fn free_slow(&self, object: usize) {
        let Some(mut sheaf) = self.emptied_sheaf() else {
            return self.free_to_slabs(&mut [object]);
        };
        assert!(sheaf.push(object), "an empty sheaf has room");
        self.install(sheaf, true);
    }

    /// A sheaf with nothing in it, or none if there is no memory for one.
    pub(crate) fn emptied_sheaf(&self) -> Option<OwnedSheaf> {
        match self.take_spare() {
            Some(sheaf) if sheaf.is_empty() => return Some(sheaf),
            Some(full) => {
                if let Err(full) = self.inner.barn.put(full) {
                    return Some(self.flush(full));
                }
                self.count(stats::BARN_PUT);
            }
            None => {}
        }
        self.inner.barn.take_empty().or_else(|| OwnedSheaf::new(self.inner.capacity).ok())
    }

    /// Makes a sheaf the CPU's main one, in place of one that is full or empty as the caller found it, and parks
    /// that. If the CPU has another one by now, parks the sheaf itself.
    pub(crate) fn install(&self, sheaf: OwnedSheaf, full: bool) {
        let raw = sheaf.into_raw();
        // SAFETY: see `alloc`; a sheaf that comes out is ours alone.
        unsafe {
            match self.words.sheaf_replace(MAIN, GUARD, raw, full) {
                Some(old) if old.as_ref().is_stub() => {}
                Some(old) => self.park(OwnedSheaf::from_raw(old)),
                None => self.park(OwnedSheaf::from_raw(raw)),
            }
        }
    }

    /// Takes the CPU's spare sheaf.
    fn take_spare(&self) -> Option<OwnedSheaf> {
        let raw = self.words.swap_unless(SPARE, GUARD, 0)?;
        // SAFETY: whoever swaps a sheaf out owns it.
        NonNull::new(raw as *mut Sheaf).map(|raw| unsafe { OwnedSheaf::from_raw(raw) })
    }

    /// Puts a sheaf where it will be found: the CPU's spare place, else the barn, else its objects go to their slabs.
    pub(crate) fn park(&self, sheaf: OwnedSheaf) {
        let raw = sheaf.into_raw();
        let displaced = match self.words.swap_unless(SPARE, GUARD, raw.as_ptr() as u64) {
            Some(other) => NonNull::new(other as *mut Sheaf),
            None => Some(raw),
        };
        let Some(displaced) = displaced else { return };
        // SAFETY: swapped out by us, or never given away.
        let sheaf = unsafe { OwnedSheaf::from_raw(displaced) };
        if let Err(sheaf) = self.inner.barn.put(sheaf) {
            drop(self.flush(sheaf));
        }
    }

    /// Gives a sheaf's objects back to their slabs.
    pub(crate) fn flush(&self, mut sheaf: OwnedSheaf) -> OwnedSheaf {
        if !sheaf.is_empty() {
            self.count(stats::FLUSH);
            self.free_to_slabs(sheaf.values());
            while sheaf.pop().is_some() {}
        }
        sheaf
    }

    /// Takes up to `want` objects out of slabs, at least one.
    pub(crate) fn refill(&self, want: usize, mut give: impl FnMut(usize)) -> Result<(), AllocError> {
        self.count(stats::REFILL);
        let inner = &*self.inner;
        let mut got = 0;
        while got < want {
            let slab = match inner.freeze_partial() {
                Some(slab) => slab,
                None => match self.new_slab() {
                    Ok(slab) => slab,
                    Err(error) if got == 0 => return Err(error),
                    Err(_) => break,
                },
            };
            // SAFETY: a frozen slab lives, and is ours.
            let (n, state) = unsafe { slab.as_ref() }.take(want - got, inner.options.ctor, &mut give);
            self.count(stats::SLAB_SYNC);
            got += n;
            if state == crate::freelist::State::Frozen {
                inner.thaw(slab);
            }
        }
        // Relaxed: a statistic.
        inner.taken.fetch_add(got as i64, Ordering::Relaxed);
        Ok(())
    }

    fn new_slab(&self) -> Result<NonNull<Slab>, AllocError> {
        let inner = &*self.inner;
        let slab = Slab::new(NonNull::from(inner), inner.layout, inner.options.dtor)?;
        // Relaxed: a statistic.
        inner.slabs.fetch_add(1, Ordering::Relaxed);
        Ok(slab)
    }

    /// Gives every CPU's sheaves, the barn's, and all empty slabs back (`kmem_cache_shrink`). Other threads may go
    /// on meanwhile; they find no sheaf for some microseconds and use slabs.
    pub fn shrink(&self) {
        let stub = Sheaf::stub().as_ptr() as u64;
        let words = &self.words;
        let taken: [Vec<u64>; 2] = self.hold_still(|| {
            [(MAIN, stub), (SPARE, 0)].map(|(index, replacement)| {
                // Relaxed: the fences before and after order it.
                (0..words.cpus())
                    .map(|cpu| words.word(cpu, index).swap(replacement, Ordering::Relaxed))
                    .collect()
            })
        });
        // After this, nobody pushes to or pops from those that were taken.
        words.fence();
        for raw in taken.into_iter().flatten().filter(|raw| *raw != stub) {
            if let Some(raw) = NonNull::new(raw as *mut Sheaf) {
                // SAFETY: taken out of the CPU's word, and nothing in flight knows it any more.
                drop(self.flush(unsafe { OwnedSheaf::from_raw(raw) }));
            }
        }
        self.empty_barn();
        self.inner.discard_empty(0);
    }

    /// Calls `f` while no CPU swaps its sheaves (it may still push and pop).
    fn hold_still<R>(&self, f: impl FnOnce() -> R) -> R {
        let words = &self.words;
        let _one = self.inner.handshake.lock();
        // Relaxed: the fence orders the stores with every sequence on their CPU.
        (0..words.cpus()).for_each(|cpu| words.word(cpu, GUARD).store(1, Ordering::Relaxed));
        words.fence();
        let result = f();
        // ORDERING: pairs with the guard's test inside `swap_unless` and `sheaf_replace`: who finds zero again finds the
        // words as `f` left them; who still finds one keeps off.
        (0..words.cpus()).for_each(|cpu| words.word(cpu, GUARD).store(0, Ordering::Release));
        result
    }

    /// Objects in the CPUs' sheaves.
    pub(crate) fn in_sheaves(&self) -> usize {
        let words = &self.words;
        self.hold_still(|| {
            let sheaf = |cpu, index| NonNull::new(words.load(cpu, index) as *mut Sheaf);
            (0..words.cpus())
                .flat_map(|cpu| [sheaf(cpu, MAIN), sheaf(cpu, SPARE)])
                .flatten()
                // SAFETY: a sheaf behind a word lives until it is swapped out, and nobody swaps now.
                .map(|sheaf| unsafe { sheaf.as_ref() }.len())
                .sum()
        })
    }

    fn empty_barn(&self) {
        while let Some(sheaf) = self.inner.barn.take_full() {
            drop(self.flush(sheaf));
        }
        while self.inner.barn.take_empty().is_some() {}
    }

    pub(crate) fn count(&self, what: usize) {
        self.words.add(what, 1);
    }
}

impl Inner {
    /// Takes a slab off the partial list; it is the caller's.
    fn freeze_partial(&self) -> Option<NonNull<Slab>> {
        let mut partial = self.partial.lock();
        let slab = partial.first()?;
        // SAFETY: the slab is on the list, which is locked.
        unsafe {
            partial.remove(slab);
            slab.as_ref().set_state(crate::freelist::State::Frozen);
        }
        Some(slab)
    }

    /// Puts a frozen slab back on the partial list.
    fn thaw(&self, slab: NonNull<Slab>) {
        let mut partial = self.partial.lock();
        // SAFETY: the slab is the caller's, and on no list.
        unsafe {
            slab.as_ref().set_state(crate::freelist::State::Partial);
            partial.add(slab);
        }
    }

    /// Gives empty slabs back but for `keep`.
    fn discard_empty(&self, keep: usize) {
        let mut partial = self.partial.lock();
        let mut kept = 0;
        loop {
            // SAFETY: slabs on the list live; it is locked, so an empty one stays empty: nobody can take from it.
            let empty = partial.iter().filter(|s| unsafe { s.as_ref() }.packed().inuse == 0).nth(kept);
            let Some(slab) = empty else { return };
            if kept < keep {
                kept += 1;
                continue;
            }
            // SAFETY: on the list, empty, and off it now.
            unsafe {
                partial.remove(slab);
                self.discard(slab);
            }
        }
    }

    /// # Safety
    /// As [`Slab::discard`].
    pub(crate) unsafe fn discard(&self, slab: NonNull<Slab>) {
        // Relaxed: a statistic.
        self.slabs.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { Slab::discard(slab, self.options.typesafe) };
    }
}

impl Drop for RawCache {
    fn drop(&mut self) {
        self.inner.node.unregister();
        // Nobody else has the cache, so no handshake.
        for cpu in 0..self.words.cpus() {
            for index in [MAIN, SPARE] {
                // Relaxed: nobody else has the cache.
                let raw = NonNull::new(self.words.word(cpu, index).swap(0, Ordering::Relaxed) as *mut Sheaf);
                // SAFETY: MAIN points to a sheaf or the stub, SPARE to a sheaf or nothing; they are ours.
                let sheaf = raw.filter(|s| !unsafe { s.as_ref() }.is_stub());
                if let Some(sheaf) = sheaf {
                    // SAFETY: as above.
                    let sheaf = unsafe { OwnedSheaf::from_raw(sheaf) };
                    drop(self.flush(sheaf));
                }
            }
        }
        self.empty_barn();
        self.inner.discard_empty(0);
        // What is left has objects out: leaked, as documented.
    }
}

// SAFETY: `before` takes all locks of a cache; none is inside them but the machine's.
unsafe impl AtFork for Inner {
    fn before(&self) {
        self.handshake.before();
        self.barn.before();
        self.partial.before();
    }

    fn after(&self, child: bool) {
        self.partial.after(child);
        self.barn.after(child);
        self.handshake.after(child);
    }
}

// SAFETY: a cache is shared by design: sheaves are per CPU, the rest is under locks; hooks are plain functions.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}
