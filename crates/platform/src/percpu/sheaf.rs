//! An array of objects behind a per-CPU pointer.

use crate::AllocError;
use crate::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::ptr::NonNull;

/// A counted array of non-zero values (addresses, descriptor numbers plus one).
///
/// While a per-CPU word points to it, only the sheaf operations of [`Words`](super::Words) on that CPU may change
/// it. Fields are atomics so that a reader elsewhere may look at the length.
#[repr(C)]
#[cfg_attr(loom, repr(align(64)))]
#[derive(Debug)]
pub struct Sheaf {
    pub(crate) len: AtomicU64,
    pub(crate) capacity: u64,
    /// For lists of sheaves; belongs to whoever owns the sheaf.
    link: AtomicUsize,
    /// See [`OwnedSheaf::owner_words`].
    owner: [AtomicUsize; OWNER_WORDS],
    slots: Slots,
}

/// Words of a sheaf that are its owner's: see [`OwnedSheaf::owner_words`].
pub const OWNER_WORDS: usize = 3;

/// Where the values lie, as the restartable sequences know it.
#[cfg(not(any(loom, quietline_sim)))]
pub(crate) const LEN: usize = core::mem::offset_of!(Sheaf, len);
#[cfg(not(any(loom, quietline_sim)))]
pub(crate) const CAPACITY: usize = core::mem::offset_of!(Sheaf, capacity);
#[cfg(not(loom))]
pub(crate) const SLOTS: usize = core::mem::offset_of!(Sheaf, slots);

/// Natively the values follow the header.
#[cfg(not(loom))]
type Slots = [AtomicUsize; 0];
#[cfg(loom)]
type Slots = Box<[AtomicUsize]>;

#[cfg(not(loom))]
static STUB: Sheaf = Sheaf {
    len: AtomicU64::new(0),
    capacity: 0,
    link: AtomicUsize::new(0),
    owner: [const { AtomicUsize::new(0) }; OWNER_WORDS],
    slots: [],
};

impl Sheaf {
    /// A sheaf that is empty and full at once, and that no operation writes: what a per-CPU word points to before
    /// its CPU has a sheaf.
    #[cfg(not(loom))]
    pub fn stub() -> NonNull<Sheaf> {
        NonNull::from(&STUB)
    }

    /// Whether this is [`Sheaf::stub`].
    pub fn is_stub(&self) -> bool {
        self.capacity == 0
    }

    /// Values inside.
    pub fn len(&self) -> usize {
        // Relaxed: exact for the owner, a hint for others.
        self.len.load(Ordering::Relaxed) as usize
    }

    /// Whether nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Values that fit.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// The address of the first slot, by the provenance that `OwnedSheaf::new` has exposed: that of
    /// a reference to the header ends with the header.
    #[cfg(not(loom))]
    fn slots(&self) -> *const AtomicUsize {
        core::ptr::with_exposed_provenance(core::ptr::from_ref(self).addr() + SLOTS)
    }

    pub(crate) fn slot(&self, i: usize) -> &AtomicUsize {
        assert!(i < self.capacity());
        #[cfg(not(loom))]
        // SAFETY: the header is followed by `capacity` slots (see `OwnedSheaf::new`), and i is below that.
        unsafe {
            &*self.slots().add(i)
        }
        #[cfg(loom)]
        &self.slots[i]
    }
}

#[cfg(loom)]
impl Sheaf {
    /// An empty sheaf, which is never freed unless it comes to be owned.
    fn leak(capacity: usize) -> NonNull<Sheaf> {
        NonNull::from(Box::leak(Box::new(Sheaf {
            len: AtomicU64::new(0),
            capacity: capacity as u64,
            link: AtomicUsize::new(0),
            owner: core::array::from_fn(|_| AtomicUsize::new(0)),
            slots: (0..capacity).map(|_| AtomicUsize::new(0)).collect(),
        })))
    }

    /// A sheaf that is empty and full at once (see the native back end). One leaks for each execution,
    /// made when the first words are, because loom's atomics cannot live in statics. All threads see
    /// it, as they see a static, if the thread that makes the words is before all others.
    pub fn stub() -> NonNull<Sheaf> {
        loom::lazy_static! {
            static ref STUB: usize = Sheaf::leak(0).as_ptr() as usize;
        }
        NonNull::new(*STUB as *mut Sheaf).expect("boxed")
    }
}

/// A sheaf that nobody else can reach. Dropping it frees the array, not the values.
#[derive(Debug)]
pub struct OwnedSheaf(NonNull<Sheaf>);

// SAFETY: an owned sheaf is reachable by its owner alone; its values are plain numbers.
unsafe impl Send for OwnedSheaf {}

#[cfg(not(loom))]
fn layout(capacity: usize) -> core::alloc::Layout {
    let slots = core::alloc::Layout::array::<usize>(capacity).expect("a sheaf's capacity is small");
    let (layout, offset) =
        core::alloc::Layout::new::<Sheaf>().extend(slots).expect("a sheaf's capacity is small");
    debug_assert_eq!(offset, SLOTS);
    // A line of its own: neighbours on the heap belong to other CPUs.
    layout.align_to(OwnedSheaf::ALIGN).expect("a power of two").pad_to_align()
}

impl OwnedSheaf {
    /// What a sheaf's address is a multiple of.
    pub const ALIGN: usize = 64;

    /// An empty sheaf for `capacity` values.
    ///
    /// # Errors
    /// [`AllocError`] when the heap is exhausted.
    ///
    /// # Panics
    /// When `capacity` is 0 or above 65,536.
    pub fn new(capacity: usize) -> Result<Self, AllocError> {
        assert!((1..=65_536).contains(&capacity), "a sheaf holds 1 to 65,536 values");
        crate::fault::check()?;
        #[cfg(not(loom))]
        {
            // SAFETY: the layout has a size above zero; the zeroed memory is a valid header and valid slots.
            let memory = unsafe { std::alloc::alloc_zeroed(layout(capacity)) }.cast::<Sheaf>();
            let sheaf = NonNull::new(memory).ok_or(AllocError)?;
            // SAFETY: fresh memory of our own.
            unsafe { (*sheaf.as_ptr()).capacity = capacity as u64 };
            // See `Sheaf::slots`.
            sheaf.as_ptr().expose_provenance();
            Ok(Self(sheaf))
        }
        #[cfg(loom)]
        Ok(Self(Sheaf::leak(capacity)))
    }

    /// Gives up ownership, to put the sheaf behind a per-CPU word or on a list.
    pub fn into_raw(self) -> NonNull<Sheaf> {
        let raw = self.0;
        core::mem::forget(self);
        raw
    }

    /// Takes ownership back.
    ///
    /// # Safety
    /// `raw` came from [`into_raw`](Self::into_raw), is not a stub, and nobody else can reach it any more.
    pub unsafe fn from_raw(raw: NonNull<Sheaf>) -> Self {
        Self(raw)
    }

    /// Adds a value; false when full.
    pub fn push(&mut self, value: usize) -> bool {
        let len = self.len();
        if len == self.capacity() {
            return false;
        }
        // Relaxed: nobody else can reach the sheaf.
        self.slot(len).store(value, Ordering::Relaxed);
        self.len.store(len as u64 + 1, Ordering::Relaxed);
        true
    }

    /// Takes out the value that was added last.
    pub fn pop(&mut self) -> Option<usize> {
        let len = self.len().checked_sub(1)?;
        // Relaxed: nobody else can reach the sheaf.
        let value = self.slot(len).load(Ordering::Relaxed);
        self.len.store(len as u64, Ordering::Relaxed);
        Some(value)
    }

    /// Takes out as many of the values that were added last as `into` has room for, in the order in which they lie; how many.
    /// Values that are addresses are written as pointers: `into` may be an array of those.
    #[cfg(not(loom))]
    pub fn pop_into(&mut self, into: &mut [usize]) -> usize {
        let rest = self.len().saturating_sub(into.len());
        let last = &self.values()[rest..];
        for (into, value) in into.iter_mut().zip(last.iter()) {
            let value = core::ptr::with_exposed_provenance_mut::<u8>(*value);
            // SAFETY: a pointer's bytes are an address's; the slice is exclusively ours.
            unsafe { core::ptr::from_mut(into).cast::<*mut u8>().write(value) };
        }
        let taken = last.len();
        // Relaxed: nobody else can reach the sheaf.
        self.len.store(rest as u64, Ordering::Relaxed);
        taken
    }

    /// Adds as many of the first values as there is room for; how many.
    #[cfg(not(loom))]
    pub fn extend(&mut self, values: &[usize]) -> usize {
        let (len, n) = (self.len(), values.len().min(self.capacity() - self.len()));
        // Relaxed: nobody else can reach the sheaf.
        self.len.store((len + n) as u64, Ordering::Relaxed);
        self.values()[len..].copy_from_slice(&values[..n]);
        n
    }

    /// The values, first pushed first.
    #[cfg(not(loom))]
    pub fn values(&mut self) -> &mut [usize] {
        let len = self.len();
        // SAFETY: the first `len` slots are initialised, AtomicUsize has usize's layout, and we own the sheaf.
        unsafe { core::slice::from_raw_parts_mut(self.slots().cast_mut().cast::<usize>(), len) }
    }

    /// [`OWNER_WORDS`] words inside the sheaf for whoever owns it: what it needs while the sheaf waits for something. No
    /// operation touches them.
    pub fn owner_words(&self) -> NonNull<usize> {
        // Not through a reference: `from_owner_words` finds the sheaf by the address.
        // SAFETY: a field of a sheaf that we own.
        unsafe { NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).owner) }.cast()
    }

    /// The sheaf whose words [`owner_words`](Self::owner_words) gave out.
    ///
    /// # Safety
    /// The sheaf was given up by [`into_raw`](Self::into_raw) since, and nobody else can reach it any more.
    pub unsafe fn from_owner_words(words: NonNull<usize>) -> Self {
        // SAFETY: the words are a field of a sheaf, which by contract is the caller's.
        unsafe { Self::from_raw(words.byte_sub(core::mem::offset_of!(Sheaf, owner)).cast()) }
    }

    /// The value for lists of sheaves.
    pub fn link(&self) -> usize {
        // Relaxed: belongs to the owner.
        self.link.load(Ordering::Relaxed)
    }

    /// Sets the value for lists of sheaves.
    pub fn set_link(&mut self, value: usize) {
        // Relaxed: belongs to the owner.
        self.link.store(value, Ordering::Relaxed);
    }
}

/// Sheaves that were taken away from their CPUs, linked through themselves: needs no memory.
#[derive(Debug, Default)]
pub struct Chain(usize);

impl Chain {
    /// Adds what was swapped out of a word: a sheaf, or the stub or nothing, which are left out.
    ///
    /// # Safety
    /// The caller swapped `raw` out of a per-CPU word. Operations in flight may still use its length and its slots.
    pub unsafe fn add(&mut self, raw: *mut Sheaf) {
        let Some(raw) = NonNull::new(raw) else { return };
        // SAFETY: by contract it lives. Its link belongs to whoever swapped it out.
        unsafe {
            if !raw.as_ref().is_stub() {
                let mut sheaf = core::mem::ManuallyDrop::new(OwnedSheaf::from_raw(raw));
                sheaf.set_link(self.0);
                self.0 = raw.as_ptr() as usize;
            }
        }
    }

    /// Gives each sheaf to `f`, which may do with it what it likes.
    ///
    /// # Safety
    /// No operation in flight uses any of them any more: the words were [fenced](super::Words::fence) since.
    pub unsafe fn for_each(self, mut f: impl FnMut(OwnedSheaf)) {
        let mut next = self.0;
        while let Some(raw) = NonNull::new(next as *mut Sheaf) {
            // SAFETY: chained by `add`, and by contract ours alone.
            let sheaf = unsafe { OwnedSheaf::from_raw(raw) };
            next = sheaf.link();
            f(sheaf);
        }
    }
}

impl core::ops::Deref for OwnedSheaf {
    type Target = Sheaf;

    fn deref(&self) -> &Sheaf {
        // SAFETY: the pointer is valid while we own it.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for OwnedSheaf {
    fn drop(&mut self) {
        #[cfg(not(loom))]
        // SAFETY: allocated with this layout in `new`.
        unsafe {
            std::alloc::dealloc(self.0.as_ptr().cast(), layout(self.capacity()));
        }
        #[cfg(loom)]
        // SAFETY: boxed in `new`.
        unsafe {
            drop(Box::from_raw(self.0.as_ptr()));
        }
    }
}
