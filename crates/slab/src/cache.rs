//! The untyped cache: hit paths, and the slow paths behind them.

use crate::barn::Barn;
use crate::options::{CacheError, Options};
use crate::sheaves::{Handshake, Sheaves};
use crate::slab::{Layout, Partial, Slab};
use crate::stats::{self, Stats};
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicI64, AtomicUsize, Ordering};
use quietline_platform::percpu::OwnedSheaf;
use quietline_platform::{AllocError, fork, fork::AtFork, heap};
use quietline_sync::SpinLock;

/// A cache of objects of one size (`struct kmem_cache`).
///
/// Any thread may allocate and free. While a CPU has objects in its sheaf, [`alloc`](Self::alloc) and
/// [`free`](Self::free) are one restartable sequence each: no locked instruction, no shared line.
///
/// Dropping the cache gives all memory back. Objects that are still out then are leaked, memory and all, so that
/// whoever holds them does not crash; [`Stats::active`] says before how many there are.
#[derive(Debug)]
pub struct RawCache {
    pub(crate) sheaves: Sheaves,
    pub(crate) inner: Box<Inner>,
}

/// What only slow paths touch; at a stable address, which slabs name.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) layout: Layout,
    /// Objects that a sheaf holds, and that a miss takes out of slabs.
    pub(crate) capacity: usize,
    pub(crate) batch: usize,
    pub(crate) barn: Barn,
    pub(crate) partial: SpinLock<Partial>,
    /// One at a time raises the CPUs' guards.
    pub(crate) handshake: Handshake,
    pub(crate) slabs: AtomicUsize,
    /// Objects that slabs have given out and not got back: with users or in sheaves.
    pub(crate) taken: AtomicI64,
    node: fork::Node,
}

impl RawCache {
    /// An empty cache. Allocates no slab and no sheaf yet.
    ///
    /// # Errors
    /// [`CacheError`]; [`CacheError::Hooks`] for options with a constructor or a destructor.
    pub fn new(options: Options) -> Result<Self, CacheError> {
        if options.ctor.is_some() || options.dtor.is_some() {
            return Err(CacheError::Hooks);
        }
        // SAFETY: there is no hook.
        unsafe { Self::with_hooks(options) }
    }

    /// An empty cache with a constructor, a destructor, both or neither.
    ///
    /// # Errors
    /// [`CacheError`].
    ///
    /// # Safety
    /// The constructor may be called with any memory of the options' size and alignment that nobody else uses, the
    /// destructor with any that was constructed and is used no more; both on any thread.
    pub unsafe fn with_hooks(options: Options) -> Result<Self, CacheError> {
        let layout = options.layout()?;
        let mut inner = heap::try_box(Inner {
            options,
            layout,
            capacity: options.capacity(&layout),
            batch: options.batch(&layout),
            barn: Barn::new(),
            partial: SpinLock::new(Partial::new()),
            handshake: SpinLock::new(()),
            slabs: AtomicUsize::new(0),
            taken: AtomicI64::new(0),
            node: fork::Node::new(fork::Rank::Cache),
        })?;
        let sheaves = Sheaves::new()?;
        let owner: *const Inner = &*inner;
        // SAFETY: the box stays where it is, and `drop` takes it out of the registry first.
        unsafe { inner.node.register(owner)? };
        Ok(Self { sheaves, inner })
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
        match NonNull::new(self.sheaves.pop() as *mut u8) {
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
        if !self.sheaves.push(object.as_ptr() as usize) {
            self.free_slow(object.as_ptr() as usize);
        }
    }

    #[cfg(debug_assertions)]
    pub(crate) fn check_owner(&self, object: NonNull<u8>) {
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
        let spare = self.sheaves.take_spare();
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
        let filled = self.refill(self.inner.batch, |object| {
            assert!(sheaf.push(object), "a sheaf of the cache's capacity holds a batch");
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
        match self.sheaves.take_spare() {
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

    /// Makes a sheaf the CPU's main one, in place of one that is full or empty as the caller found it, and parks what
    /// is left over.
    pub(crate) fn install(&self, sheaf: OwnedSheaf, full: bool) {
        if let Some(over) = self.sheaves.install(sheaf, full) {
            self.park(over);
        }
    }

    /// Puts a sheaf where it will be found: the CPU's spare place, else the barn, else its objects go to their slabs.
    pub(crate) fn park(&self, sheaf: OwnedSheaf) {
        let Some(over) = self.sheaves.put_spare(sheaf) else { return };
        if let Err(over) = self.inner.barn.put(over) {
            drop(self.flush(over));
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
    /// on meanwhile; they find no sheaf for some microseconds and use slabs. Needs no memory.
    pub fn shrink(&self) {
        self.sheaves.take_all(&self.inner.handshake, |sheaf| drop(self.flush(sheaf)));
        self.empty_barn();
        self.inner.discard_empty();
    }

    fn empty_barn(&self) {
        while let Some(sheaf) = self.inner.barn.take_full() {
            drop(self.flush(sheaf));
        }
        while self.inner.barn.take_empty().is_some() {}
    }

    pub(crate) fn count(&self, what: usize) {
        self.sheaves.count(what);
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

    /// Gives all empty slabs back.
    fn discard_empty(&self) {
        // Discarding runs hooks and callbacks, which may use the cache: not under the lock.
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
        // Relaxed: a statistic.
        self.slabs.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { Slab::discard(slab, self.options.typesafe) };
    }
}

impl Drop for RawCache {
    fn drop(&mut self) {
        self.inner.node.unregister();
        self.sheaves.take_all_mut().for_each(|sheaf| drop(self.flush(sheaf)));
        self.empty_barn();
        self.inner.discard_empty();
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
