//! Retirement of values: boxes with room for the head of their callback (`kfree_rcu`).
//!
//! A value is dropped after a grace period, where the domain's callbacks run. The head that queues
//! it lies before it in one heap object: retirement of an [`RcuBox`] allocates nothing and cannot
//! fail. [`Domain::retire`] makes such a box for a value that has none, when it is retired.

use super::pointer::{Storage, Unpublished};
use super::{Domain, HeadOfMany, Many};
use core::fmt;
use core::mem::{MaybeUninit, offset_of};
use core::ptr::NonNull;
use quietline_platform::{AllocError, heap};

/// A value on the heap with room for its retirement: a [`Box`] that readers of a domain may find.
///
/// Dropping the box drops the value at once, because no reader has seen it.
/// [`retire`](Self::retire) drops it after a grace period, and so does publication in a
/// [`Pointer`](super::Pointer) when the value is replaced. Four words more than a `Box`.
///
/// The value may be an [`Arc`](std::sync::Arc): retirement then gives up one reference after the
/// grace period, and readers may clone it. It may be the owner of an index or of any other handle,
/// whose drop then frees the index:
///
/// ```
/// use quietline_sync::rcu::{Domain, RcuBox};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// static FREE: AtomicU64 = AtomicU64::new(u64::MAX);
///
/// /// One of 64 slots. The drop makes it free for reuse.
/// struct Slot(u32);
/// impl Drop for Slot {
///     fn drop(&mut self) {
///         FREE.fetch_or(1 << self.0, Relaxed);
///     }
/// }
///
/// let domain = Domain::new()?;
/// FREE.fetch_and(!(1 << 7), Relaxed);
/// let slot = RcuBox::new(&domain, Slot(7))?;
/// // Readers find slot 7 by its index. The updater removes the index from their sight, and then:
/// let section = domain.read();
/// slot.retire();
/// domain.poll();
/// assert_eq!(FREE.load(Relaxed) & 1 << 7, 0, "a reader may still use the slot");
/// drop(section);
/// domain.barrier();
/// assert_ne!(FREE.load(Relaxed) & 1 << 7, 0);
/// # Ok::<(), quietline_platform::AllocError>(())
/// ```
pub type RcuBox<'d, T> = Unpublished<'d, T, Domain>;

/// The heap object of an [`RcuBox`].
#[repr(C)]
struct Boxed<T> {
    head: HeadOfMany,
    weight: u32,
    value: T,
}

/// Bytes for which a retired value counts as one object of the domain's backlog.
pub const BYTES_PER_OBJECT: usize = 1024;

/// Returns the number of objects for which a value of so many bytes counts.
const fn weight(bytes: usize) -> u32 {
    match bytes.div_ceil(BYTES_PER_OBJECT) {
        0 => 1,
        objects if objects > i32::MAX as usize => i32::MAX as u32,
        objects => objects as u32,
    }
}

impl<T> Boxed<T> {
    const KIND: &'static Many = &Many { run: Self::run, count: Self::count };

    /// Allocates the heap object of a value.
    ///
    /// # Errors
    /// The value, if there is no memory.
    fn alloc(value: T) -> Result<NonNull<T>, T> {
        let Ok(memory) = heap::try_box(MaybeUninit::<Self>::uninit()) else { return Err(value) };
        let head = HeadOfMany::new(Self::KIND);
        let this = Box::into_raw(memory).cast::<Self>();
        // SAFETY: fresh memory of this type; a field of it is not null.
        unsafe {
            this.write(Self { head, weight: const { weight(size_of::<Self>()) }, value });
            Ok(NonNull::new_unchecked(&raw mut (*this).value))
        }
    }

    /// Returns the heap object around a value.
    ///
    /// # Safety
    /// The value is in such an object.
    unsafe fn of(value: NonNull<T>) -> NonNull<Self> {
        // SAFETY: by contract.
        unsafe { value.byte_sub(offset_of!(Self, value)).cast() }
    }

    unsafe fn run(head: NonNull<HeadOfMany>) {
        // SAFETY: the head is the first field of a leaked box of this type.
        let this = unsafe { Box::from_raw(head.cast::<Self>().as_ptr()) };
        super::contain(|| drop(this));
    }

    unsafe fn count(head: NonNull<HeadOfMany>) -> u32 {
        // SAFETY: as above.
        unsafe { (*head.cast::<Self>().as_ptr()).weight }
    }
}

/// Boxes of the domain. Retirement allocates nothing and never waits.
// SAFETY: a callback of the domain drops a retired value.
unsafe impl<T> Storage<T> for Domain {
    #[inline(always)]
    fn domain(&self) -> &Domain {
        self
    }

    unsafe fn free(&self, memory: NonNull<T>) {
        // SAFETY: by contract the memory is in a leaked box, without a value.
        unsafe { drop(Box::from_raw(Boxed::of(memory).cast::<MaybeUninit<Boxed<T>>>().as_ptr())) };
    }

    unsafe fn retire(&self, value: NonNull<T>) {
        // SAFETY: by contract the value, with its head, is the caller's to give away. `run` does
        // not unwind.
        unsafe { self.call_many(Boxed::of(value).cast()) };
    }
}

impl<'d, T: Send + Sync + 'static> RcuBox<'d, T> {
    /// Stores a value on the heap, for readers of `domain`.
    ///
    /// # Errors
    /// [`AllocError`]; the value is dropped.
    pub fn new(domain: &'d Domain, value: T) -> Result<Self, AllocError> {
        let value = Boxed::alloc(value).map_err(|_| AllocError)?;
        // SAFETY: stored above.
        Ok(unsafe { Self::from_raw(value, domain) })
    }

    /// Adds memory that the value owns elsewhere to the bytes for which it counts in the domain's
    /// backlog, once it is retired: see [Bounded garbage](super#bounded-garbage).
    #[must_use]
    pub fn with_bytes(self, bytes: usize) -> Self {
        let domain = self.storage();
        let value = self.into_raw();
        // SAFETY: owned, and not yet queued.
        unsafe {
            let bytes = bytes.saturating_add(size_of::<Boxed<T>>());
            (*Boxed::of(value).as_ptr()).weight = weight(bytes);
            Self::from_raw(value, domain)
        }
    }
}

/// The refusal of a retirement, with the value. Readers may still hold the value: it may be dropped
/// after [`Domain::synchronize`], or retired again later.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RetireError<T> {
    /// There is no memory for the head of the callback.
    NoMemory(T),
    /// The domain holds more than its [backlog limit](Domain::backlog_limit).
    Backlog(T),
}

impl<T> RetireError<T> {
    /// Returns the value.
    pub fn into_inner(self) -> T {
        match self {
            Self::NoMemory(value) | Self::Backlog(value) => value,
        }
    }

    fn map<U>(self, f: impl FnOnce(T) -> U) -> RetireError<U> {
        match self {
            Self::NoMemory(value) => RetireError::NoMemory(f(value)),
            Self::Backlog(value) => RetireError::Backlog(f(value)),
        }
    }
}

impl<T> fmt::Debug for RetireError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMemory(_) => "NoMemory(..)",
            Self::Backlog(_) => "Backlog(..)",
        })
    }
}

impl<T> fmt::Display for RetireError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMemory(_) => "no memory for the retirement of a value",
            Self::Backlog(_) => "the RCU domain holds more than its backlog limit",
        })
    }
}

impl<T> std::error::Error for RetireError<T> {}

impl Domain {
    /// Drops a value after a grace period: an [`Arc`](std::sync::Arc), the owner of an index, any
    /// handle. Allocates the head of a callback; an [`RcuBox`] brings its own. Waits for nothing.
    /// A panic of the drop is reported as panics are and ends there.
    ///
    /// One load of the domain's backlog, which full batches of callbacks write; else as
    /// [`call`](Self::call).
    ///
    /// A box from which readers hold references is retired by [`retire_box`](Self::retire_box):
    /// moving it here would assert that its content has no other user.
    ///
    /// ```
    /// use quietline_sync::rcu;
    /// use std::sync::Arc;
    ///
    /// let domain = rcu::global()?;
    /// let table = Arc::new([1, 2, 3]);
    /// if let Err(refused) = domain.retire(table) {
    ///     // No memory, or the backlog is full. Outside all locks and sections, it helps to wait.
    ///     domain.synchronize();
    ///     drop(refused.into_inner());
    /// }
    /// # domain.barrier();
    /// # Ok::<(), quietline_platform::AllocError>(())
    /// ```
    ///
    /// # Errors
    /// [`RetireError`], with the value.
    pub fn retire<T: Send + 'static>(&self, value: T) -> Result<(), RetireError<T>> {
        self.retire_with(value, 0)
    }

    /// [`retire`](Self::retire) of a value that owns so many bytes elsewhere.
    fn retire_with<T: Send + 'static>(&self, value: T, bytes: usize) -> Result<(), RetireError<T>> {
        if self.is_over_backlog_limit() {
            return Err(RetireError::Backlog(value));
        }
        let value = Boxed::alloc(value).map_err(RetireError::NoMemory)?;
        let bytes = bytes.saturating_add(size_of::<Boxed<T>>());
        // SAFETY: stored above, not yet queued, and the caller gives the value away.
        unsafe {
            (*Boxed::of(value).as_ptr()).weight = weight(bytes);
            Storage::retire(self, value);
        }
        Ok(())
    }

    /// [`retire`](Self::retire) for a box that readers find by its address: frees what
    /// [`Box::into_raw`] returned.
    ///
    /// # Errors
    /// [`RetireError`] with the pointer, which the caller still owns.
    ///
    /// # Safety
    /// `value` came from [`Box::into_raw`], the caller owns it, and no section that begins later
    /// can find it.
    pub unsafe fn retire_box<T: ?Sized + Send + 'static>(
        &self,
        value: *mut T,
    ) -> Result<(), RetireError<*mut T>> {
        struct Raw<T: ?Sized>(*mut T);
        // SAFETY: it owns the value, as a box does.
        unsafe impl<T: ?Sized + Send> Send for Raw<T> {}
        impl<T: ?Sized> Drop for Raw<T> {
            fn drop(&mut self) {
                // SAFETY: by contract of `retire_box`; its grace period is over.
                drop(unsafe { Box::from_raw(self.0) });
            }
        }
        // SAFETY: by contract it is the caller's, and lives.
        let bytes = size_of_val(unsafe { &*value });
        self.retire_with(Raw(value), bytes)
            .map_err(|refused| refused.map(|raw| core::mem::ManuallyDrop::new(raw).0))
    }
}
