//! Per-CPU words that are allocated when they are first used.
//!
//! An object that may never be used, such as a statistic of an idle kernel, takes two words of
//! memory at first, and words for every CPU only when an operation needs them.
//!
//! A fast path does not pay for that. Its restartable operation tests the offset of the thread's
//! rseq area anyway, because there is none [in the fallback](super::is_fallback). Words that are
//! not made have no offset either. So the fast path leaves for the slow path, which makes them.
//!
//! ```text
//!              offset      words
//!   new        0           null
//!   set        0           address      exchange, release: one thread's words
//!   ready      not 0       address      store, release; stays 0 in the fallback
//! ```
//!
//! # Guarantees
//!
//! * A thread that finds the words finds them with their initial content, or as they are since.
//! * Of several threads that make them at the same time, one succeeds, and all get the same words.
//! * A thread that fails to make them for want of memory has changed nothing.
//! * A fork at any moment leaves the child words that it can use, or none.

use super::Words;
use crate::atomic::{AtomicPtr, Ordering};
use crate::{AllocError, FenceError};
use core::fmt;
use core::ptr;

#[cfg(not(loom))]
pub use native::{LazyWords, WordsCell, WordsRef};

#[cfg(not(loom))]
mod native {
    use super::{AllocError, AtomicPtr, FenceError, Ordering, Words, fmt, ptr};
    use crate::atomic::AtomicU64;
    use crate::percpu::area::Area;
    use core::marker::PhantomData;
    use core::mem::ManuallyDrop;
    use core::ptr::NonNull;

    #[cfg(not(quietline_sim))]
    use crate::backend::percpu::offset;
    #[cfg(not(quietline_sim))]
    use core::sync::atomic::AtomicIsize;

    /// A borrow of words: by value, as a handle on words is a pointer.
    pub struct WordsRef<'a, const N: usize> {
        pub(super) words: ManuallyDrop<Words<N>>,
        of: PhantomData<&'a Words<N>>,
    }

    impl<const N: usize> core::ops::Deref for WordsRef<'_, N> {
        type Target = Words<N>;

        #[inline(always)]
        fn deref(&self) -> &Words<N> {
            &self.words
        }
    }

    impl<const N: usize> WordsRef<'_, N> {
        /// # Safety
        /// `base` is that of `N` words that outlive the borrow. `offset` is that of every thread's
        /// rseq area, or 0 in the fallback.
        #[inline(always)]
        unsafe fn new(base: NonNull<AtomicU64>, #[cfg(not(quietline_sim))] offset: isize) -> Self {
            // SAFETY: by contract. The handle is not dropped.
            let area = unsafe {
                Area::from_base(
                    base,
                    #[cfg(not(quietline_sim))]
                    offset,
                )
            };
            Self { words: ManuallyDrop::new(Words { area }), of: PhantomData }
        }
    }

    /// A pointer to words of another owner that is set once.
    pub struct WordsCell<const N: usize> {
        /// 0 until the pointer is set, and then still in the fallback.
        #[cfg(not(quietline_sim))]
        offset: AtomicIsize,
        words: AtomicPtr<AtomicU64>,
    }

    impl<const N: usize> WordsCell<N> {
        /// Returns a pointer to nothing.
        pub const fn new() -> Self {
            Self {
                #[cfg(not(quietline_sim))]
                offset: AtomicIsize::new(0),
                words: AtomicPtr::new(ptr::null_mut()),
            }
        }

        /// The words for a fast path, which leaves the rest to a slow path: `None` if the pointer
        /// is not set, and [in the fallback](crate::percpu::is_fallback). The test replaces that
        /// of a restartable operation on the words.
        #[inline(always)]
        pub fn ready(&self) -> Option<WordsRef<'_, N>> {
            #[cfg(quietline_sim)]
            return self.get();
            #[cfg(not(quietline_sim))]
            {
                // ORDERING: pairs with the release in `ready_from_now_on`: a thread that finds the
                // offset finds the words' address, and their content.
                let offset = self.offset.load(Ordering::Acquire);
                if offset == 0 {
                    return None;
                }
                // Relaxed: ordered by the offset.
                let words = self.words.load(Ordering::Relaxed);
                // SAFETY: the address was set before the offset, and the words outlive this.
                Some(unsafe { WordsRef::new(NonNull::new_unchecked(words), offset) })
            }
        }

        /// The words, if the pointer is set.
        #[inline]
        pub fn get(&self) -> Option<WordsRef<'_, N>> {
            // ORDERING: pairs with the exchange in `set`: a thread that finds the words finds their
            // content. One that does not find them acts before they were set.
            let words = NonNull::new(self.words.load(Ordering::Acquire))?;
            // SAFETY: the words outlive this. The offset is known since they were allocated.
            Some(unsafe {
                WordsRef::new(
                    words,
                    #[cfg(not(quietline_sim))]
                    offset(),
                )
            })
        }

        /// Sets the pointer. Returns `false` if it was set before.
        ///
        /// # Safety
        /// If this returns `true`, the words outlive the cell.
        pub unsafe fn set(&self, words: &Words<N>) -> bool {
            let base = words.area.base().as_ptr();
            // ORDERING: release pairs with the acquire in `get`; acquire with the release of a
            // thread that was faster: the caller uses its words next.
            let set = self.words.compare_exchange(
                ptr::null_mut(),
                base,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            self.ready_from_now_on();
            set.is_ok()
        }

        /// Sets the offset. The caller has found the words, perhaps those of a thread that was
        /// interrupted before it came here.
        fn ready_from_now_on(&self) {
            // Relaxed: compared, so that the line stays with the CPUs that read it.
            #[cfg(not(quietline_sim))]
            if self.offset.load(Ordering::Relaxed) != offset() {
                // ORDERING: pairs with the acquire in `ready`. All that come here store the same.
                self.offset.store(offset(), Ordering::Release);
            }
        }
    }

    /// `N` 64-bit words for each CPU that are allocated when they are first used.
    pub struct LazyWords<const N: usize>(WordsCell<N>);

    impl<const N: usize> LazyWords<N> {
        /// Returns no words. Allocates nothing.
        pub const fn new() -> Self {
            Self(WordsCell::new())
        }

        /// The words for a fast path: see [`WordsCell::ready`].
        #[inline(always)]
        pub fn ready(&self) -> Option<WordsRef<'_, N>> {
            self.0.ready()
        }

        /// The words, if they were made.
        #[inline]
        pub fn get(&self) -> Option<WordsRef<'_, N>> {
            self.0.get()
        }

        /// As [`Words::fence`], also before the words are made: a thread that makes them
        /// afterwards, or has made them and is not found by [`get`](Self::get) after this, sees
        /// what the caller wrote before.
        ///
        /// # Errors
        /// As [`Words::fence`].
        pub fn fence(&self) -> Result<(), FenceError> {
            crate::fault::check_fence()?;
            crate::backend::percpu::fence()
        }

        /// The words, made with these values in every copy if they were not.
        ///
        /// # Errors
        /// [`AllocError`]; nothing has changed.
        pub fn get_or_make_with(&self, initial: [u64; N]) -> Result<WordsRef<'_, N>, AllocError> {
            if let Some(words) = self.0.get() {
                self.0.ready_from_now_on();
                return Ok(words);
            }
            let fresh = Words::with_initial(initial)?;
            // SAFETY: words that were set are freed when this is dropped.
            if unsafe { self.0.set(&fresh) } {
                core::mem::forget(fresh);
            }
            Ok(self.0.get().expect("set by one thread or the other"))
        }
    }

    impl<const N: usize> Drop for LazyWords<N> {
        fn drop(&mut self) {
            if let Some(mut words) = self.0.get() {
                // SAFETY: forgotten in `get_or_make`, and dropped once.
                unsafe { ManuallyDrop::drop(&mut words.words) };
            }
        }
    }

    impl<const N: usize> Default for WordsCell<N> {
        fn default() -> Self {
            Self::new()
        }
    }

    impl<const N: usize> fmt::Debug for WordsCell<N> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("WordsCell").field("set", &self.get().is_some()).finish()
        }
    }
}

/// A borrow of words.
#[cfg(loom)]
pub type WordsRef<'a, const N: usize> = &'a Words<N>;

/// `N` 64-bit words for each CPU that are allocated when they are first used. In the
/// model, a pointer to words on the heap.
#[cfg(loom)]
pub struct LazyWords<const N: usize>(AtomicPtr<Words<N>>);

#[cfg(loom)]
impl<const N: usize> LazyWords<N> {
    /// Returns no words. Allocates nothing.
    pub fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The words, if they were made.
    pub fn ready(&self) -> Option<WordsRef<'_, N>> {
        self.get()
    }

    /// The words, if they were made.
    pub fn get(&self) -> Option<WordsRef<'_, N>> {
        // ORDERING: pairs with the exchange in `get_or_make`, as natively.
        // SAFETY: null, or boxed there, and freed with this.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// As [`Words::fence`], also before the words are made.
    ///
    /// # Errors
    /// As [`Words::fence`].
    pub fn fence(&self) -> Result<(), FenceError> {
        // ORDERING: the native barrier, where there are no words whose steps would order it: a
        // thread that makes the words afterwards acquires this; else this finds its words.
        let null = ptr::null_mut();
        match self.0.compare_exchange(null, null, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => crate::fault::check_fence(),
            // SAFETY: as in `get`.
            Err(words) => unsafe { &*words }.fence(),
        }
    }

    /// The words, made with these values in every copy if they were not.
    ///
    /// # Errors
    /// [`AllocError`]; nothing has changed.
    pub fn get_or_make_with(&self, initial: [u64; N]) -> Result<WordsRef<'_, N>, AllocError> {
        if let Some(words) = self.get() {
            return Ok(words);
        }
        let fresh = Box::into_raw(Box::new(Words::with_initial(initial)?));
        // ORDERING: as natively.
        let set =
            self.0.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
        if set.is_err() {
            // SAFETY: boxed above, and seen by no other thread.
            drop(unsafe { Box::from_raw(fresh) });
        }
        Ok(self.get().expect("set by one thread or the other"))
    }
}

#[cfg(loom)]
impl<const N: usize> Drop for LazyWords<N> {
    fn drop(&mut self) {
        if let Some(words) = self.get() {
            // SAFETY: boxed in `get_or_make`, and dropped once.
            drop(unsafe { Box::from_raw(ptr::from_ref(words).cast_mut()) });
        }
    }
}

impl<const N: usize> LazyWords<N> {
    /// The words, made with zeros if they were not.
    ///
    /// # Errors
    /// [`AllocError`]; nothing has changed.
    pub fn get_or_make(&self) -> Result<WordsRef<'_, N>, AllocError> {
        self.get_or_make_with([0; N])
    }

    /// The wrapping sum of a word over all CPUs: 0 if the words are not made. Exact if no other
    /// thread writes.
    pub fn sum(&self, index: usize) -> u64 {
        self.get().map_or(0, |words| words.sum(index))
    }
}

impl<const N: usize> Default for LazyWords<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> fmt::Debug for LazyWords<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyWords").field("made", &self.get().is_some()).finish()
    }
}
