//! What is unsafe in the miniature of SLUB: the memory of the slabs, the links in free objects, and the pair of words
//! that one instruction compares and exchanges.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use quietline_platform::atomic::{AtomicU64, Ordering};
use quietline_platform::{AllocError, pages};

use super::Current;

/// An object that is in use: its memory is the holder's until it is freed, which takes this away.
///
/// Dropping it instead leaves the object in use for as long as its cache lives.
#[repr(transparent)]
#[derive(Debug, PartialEq, Eq)]
pub struct Object<'a> {
    memory: NonNull<u8>,
    cache: PhantomData<&'a ()>,
}

impl Object<'_> {
    /// The object's memory. It is good until the object is freed or its cache dropped.
    #[inline(always)]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.memory
    }

    #[inline(always)]
    pub(super) fn address(&self) -> u64 {
        self.memory.as_ptr().expose_provenance() as u64
    }
}

// SAFETY: an object is memory without an owner among the threads.
unsafe impl Send for Object<'_> {}

/// The memory that slabs are made of: one mapping, in blocks of one size. Addresses are 0 for none.
pub(super) struct Memory {
    start: NonNull<u8>,
    size: usize,
    block_shift: u32,
}

// SAFETY: the mapping is shared by design: who may touch which word is told by the freelists.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// `size` bytes, in blocks of `1 << block_shift`; both a power of two.
    pub(super) fn new(size: usize, block_shift: u32) -> Result<Self, AllocError> {
        Ok(Self { start: pages::alloc(size)?, size, block_shift })
    }

    /// The number of the block that `address` lies in; past the last block if it lies in none
    /// (`virt_to_head_page()`).
    #[inline(always)]
    pub(super) fn block_of(&self, address: u64) -> usize {
        (address as usize).wrapping_sub(self.start.as_ptr().addr()) >> self.block_shift
    }

    /// Where a block starts.
    pub(super) fn block(&self, number: usize) -> u64 {
        assert!(number << self.block_shift < self.size, "no such block");
        (self.start.as_ptr().expose_provenance() + (number << self.block_shift)) as u64
    }

    /// `get_freepointer()`. `object` is a free object of this memory that is the caller's: it came from a freelist
    /// that the caller owns.
    #[inline(always)]
    pub(super) fn next(&self, object: u64) -> u64 {
        debug_assert!(self.block_of(object) << self.block_shift < self.size, "not an object");
        // SAFETY: only this module's callers, in slab_bulk, name objects by address, and they take them from freelists
        // made of objects in this mapping; a freelist has one owner at a time.
        unsafe { ptr::with_exposed_provenance::<u64>(object as usize).read() }
    }

    /// `set_freepointer()`, under the same rule.
    #[inline(always)]
    pub(super) fn set_next(&self, object: u64, next: u64) {
        debug_assert!(self.block_of(object) << self.block_shift < self.size, "not an object");
        // SAFETY: as in `next`; or the object was just taken from its user and is on no list yet.
        unsafe { ptr::with_exposed_provenance_mut::<u64>(object as usize).write(next) };
    }

    /// `prefetch_freepointer()`.
    #[inline(always)]
    pub(super) fn prefetch(&self, object: u64) {
        // SAFETY: a prefetch of any address, 0 among them, does nothing but fetch.
        #[cfg(all(target_arch = "x86_64", not(quietline_sim)))]
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(ptr::without_provenance(object as usize));
        }
        #[cfg(any(not(target_arch = "x86_64"), quietline_sim))]
        let _ = object;
    }

    /// An object from a freelist, now its user's.
    #[inline(always)]
    pub(super) fn hand_out<'a>(&'a self, object: u64) -> Object<'a> {
        let pointer = ptr::with_exposed_provenance_mut(object as usize);
        // SAFETY: a freelist's objects lie in the mapping, so their addresses are not 0.
        Object { memory: unsafe { NonNull::new_unchecked(pointer) }, cache: PhantomData }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this size; the cache that used it is being dropped.
        unsafe { pages::free(self.start, self.size) };
    }
}

impl<'a> Current<'a> {
    /// Frees as [`free_bulk`](Self::free_bulk) does, and leaves the array as it is. So does the
    /// kernel.
    ///
    /// # Safety
    ///
    /// The objects in the array are freed: the entries must not be used again.
    #[inline]
    pub unsafe fn free_bulk_as_is(&self, objects: &[Option<Object<'a>>]) {
        self.free_each(objects.iter().flatten().map(Object::address));
    }

    /// Frees as [`free_bulk_simple`](Self::free_bulk_simple) does, and leaves the array as it is.
    /// So does the kernel.
    ///
    /// # Safety
    ///
    /// The objects in the array are freed: the entries must not be used again.
    #[inline]
    pub unsafe fn free_bulk_simple_as_is(&self, objects: &[Option<Object<'a>>]) {
        self.free_neighbours(objects.iter().flatten().map(Object::address));
    }
}

/// Two words that are compared and exchanged as one (`cmpxchg_double()`).
///
/// On x86_64 that is `cmpxchg16b`, which every such CPU since 2006 has. Elsewhere a lock bit is held for the exchange, as
/// `slab_lock()` does in kernels for machines without such an instruction.
#[repr(C, align(16))]
pub(super) struct Double {
    words: [AtomicU64; 2],
    #[cfg(any(not(target_arch = "x86_64"), quietline_sim))]
    locked: quietline_platform::atomic::AtomicU32,
}

/// `cmpxchg16b` with the given prefix on the words of `$this`.
#[cfg(all(target_arch = "x86_64", not(quietline_sim)))]
macro_rules! cmpxchg16b {
    ($prefix:literal, $this:expr, $old:expr, $new:expr) => {{
        let equal: u8;
        // SAFETY: the words are 16 bytes, aligned to 16, and shared only as atomics; rbx, which the compiler keeps for
        // itself, is put back.
        unsafe {
            core::arch::asm!(
                "xchg {low}, rbx",
                concat!($prefix, "cmpxchg16b [rdi]"),
                "sete r8b",
                "mov rbx, {low}",
                low = inout(reg) $new.0 => _,
                in("rcx") $new.1,
                inout("rax") $old.0 => _,
                inout("rdx") $old.1 => _,
                in("rdi") $this.words.as_ptr(),
                out("r8b") equal,
                options(nostack),
            );
        }
        equal != 0
    }};
}

impl Double {
    pub(super) const fn new(first: u64, second: u64) -> Self {
        Self {
            words: [AtomicU64::new(first), AtomicU64::new(second)],
            #[cfg(any(not(target_arch = "x86_64"), quietline_sim))]
            locked: quietline_platform::atomic::AtomicU32::new(0),
        }
    }

    /// Both words, read one after the other: perhaps not a pair that was ever there, and then an exchange fails.
    #[inline(always)]
    pub(super) fn load(&self) -> (u64, u64) {
        // Relaxed: confirmed by the exchange, which is a full barrier.
        (self.words[0].load(Ordering::Relaxed), self.words[1].load(Ordering::Relaxed))
    }

    /// Writes both words, of which nobody else may write meanwhile.
    #[inline(always)]
    pub(super) fn store(&self, new: (u64, u64)) {
        // Relaxed: the words are the caller's own; who they are given to later learns of them by an exchange or a lock.
        self.words[0].store(new.0, Ordering::Relaxed);
        self.words[1].store(new.1, Ordering::Relaxed);
    }

    /// Writes the first word, of a pair that only the calling thread writes.
    #[inline(always)]
    pub(super) fn store_first(&self, first: u64) {
        // Relaxed: the words are the caller's own.
        self.words[0].store(first, Ordering::Relaxed);
    }

    /// Adds one to the second word, of a pair that only the calling thread writes.
    #[inline(always)]
    pub(super) fn count_second(&self) {
        // Relaxed: the words are the caller's own.
        self.words[1].store(self.words[1].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Puts `new` in the place of `old` if that is there, by one locked instruction, a full barrier.
    #[cfg(all(target_arch = "x86_64", not(quietline_sim)))]
    #[inline(always)]
    pub(super) fn exchange(&self, old: (u64, u64), new: (u64, u64)) -> bool {
        cmpxchg16b!("lock ", self, old, new)
    }

    /// The same among the instructions of one CPU (`this_cpu_cmpxchg_double()`): not locked, and so for words that only
    /// the calling thread writes.
    #[cfg(all(target_arch = "x86_64", not(quietline_sim)))]
    #[inline(always)]
    pub(super) fn exchange_local(&self, old: (u64, u64), new: (u64, u64)) -> bool {
        cmpxchg16b!("", self, old, new)
    }

    /// Puts `new` in the place of `old` if that is there, under the lock bit.
    #[cfg(any(not(target_arch = "x86_64"), quietline_sim))]
    pub(super) fn exchange(&self, old: (u64, u64), new: (u64, u64)) -> bool {
        // ORDERING: the acquire pairs with the release below: who has the bit sees what its last holder wrote.
        while self.locked.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            quietline_platform::hint::spin_loop();
        }
        let equal = self.load() == old;
        if equal {
            self.store(new);
        }
        // ORDERING: pairs with the acquire above.
        self.locked.store(0, Ordering::Release);
        equal
    }

    /// The same for words that only the calling thread writes.
    #[cfg(any(not(target_arch = "x86_64"), quietline_sim))]
    #[inline(always)]
    pub(super) fn exchange_local(&self, old: (u64, u64), new: (u64, u64)) -> bool {
        let equal = self.load() == old;
        if equal {
            self.store(new);
        }
        equal
    }
}
