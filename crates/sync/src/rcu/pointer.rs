//! RCU-protected pointers: cells in which readers find values that updaters replace.
//!
//! A value is in one of three states, each a type:
//!
//! ```text
//!   Unpublished --replace--> Pointer --replace, take--> Unlinked --drop--> grace period --> gone
//!   its owner may            readers find               readers may
//!   change it                the value                  still hold it
//! ```
//!
//! The memory comes from a [`Storage`]: boxes of a domain ([`RcuBox`](super::RcuBox)), or objects
//! of a slab cache.

use super::{Domain, Guard};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, Ordering};

/// A source of memory for values that the readers of one domain may hold: a domain for boxes, or a
/// slab cache.
///
/// # Safety
/// [`domain`](Self::domain) returns the same domain for the life of the storage.
/// [`retire`](Self::retire) drops the value only after a grace period of that domain.
pub unsafe trait Storage<T> {
    /// Returns the domain of the readers.
    fn domain(&self) -> &Domain;

    /// Frees the memory of a value that no reader has seen.
    ///
    /// # Safety
    /// The memory came from this storage. Its value has been dropped or moved out.
    unsafe fn free(&self, memory: NonNull<T>);

    /// Queues the drop of a value and the free of its memory for after a grace period. Runs no
    /// drop, and waits only if the storage's documentation says so.
    ///
    /// # Safety
    /// The value came from this storage, the caller owns it, and no section that begins later can
    /// find it.
    unsafe fn retire(&self, value: NonNull<T>);
}

/// An owned value that no reader has seen. Dropping it drops the value at once.
pub struct Unpublished<'s, T, S: Storage<T> = Domain> {
    value: NonNull<T>,
    storage: &'s S,
    /// Values are dropped as the type for which they were stored: no subtyping.
    of: PhantomData<fn(T) -> T>,
}

/// An RCU-protected pointer (`__rcu`): the cell in which readers find a value, or none. Dropping it
/// retires the value.
///
/// ```
/// use quietline_sync::rcu::{self, Pointer, RcuBox};
/// use std::sync::Arc;
///
/// let domain = rcu::global()?;
/// let config = Pointer::new(RcuBox::new(domain, Arc::new("one".to_owned()))?);
/// // A reference lives as long as the section. A clone of an `Arc` outlives it.
/// let kept = {
///     let section = domain.read();
///     Arc::clone(config.load(&section).expect("a value is there"))
/// };
/// // The old value is retired: its reference count is decremented after a grace period.
/// drop(config.replace(RcuBox::new(domain, Arc::new("two".to_owned()))?));
/// domain.barrier();
/// assert_eq!(Arc::strong_count(&kept), 1);
/// # Ok::<(), quietline_platform::AllocError>(())
/// ```
///
/// A reference cannot outlive its section:
///
/// ```compile_fail,E0505
/// # use quietline_sync::rcu::{Domain, Pointer, RcuBox};
/// let domain = Domain::new().unwrap();
/// let number = Pointer::new(RcuBox::new(&domain, 7).unwrap());
/// let section = domain.read();
/// let found = number.load(&section);
/// drop(section);
/// assert_eq!(found, Some(&7));
/// ```
///
/// A pointer cannot outlive its domain, which need not live as long as the process:
///
/// ```compile_fail,E0505
/// # use quietline_sync::rcu::{Domain, Pointer, RcuBox};
/// let domain = Domain::new().unwrap();
/// let number = Pointer::new(RcuBox::new(&domain, 7).unwrap());
/// drop(domain);
/// drop(number);
/// ```
pub struct Pointer<'s, T, S: Storage<T> = Domain> {
    value: AtomicPtr<T>,
    storage: &'s S,
    of: PhantomData<fn(T) -> T>,
}

/// An owned value that readers may still hold, although no pointer leads to it any more. Dropping
/// it retires the value. It may be published again instead.
#[must_use = "dropping it frees the value after a grace period"]
pub struct Unlinked<'s, T, S: Storage<T> = Domain> {
    value: NonNull<T>,
    storage: &'s S,
    of: PhantomData<fn(T) -> T>,
}

// SAFETY: it owns its value, as a box does, and shares the storage.
unsafe impl<T: Send, S: Storage<T> + Sync> Send for Unpublished<'_, T, S> {}
// SAFETY: as above.
unsafe impl<T: Sync, S: Storage<T> + Sync> Sync for Unpublished<'_, T, S> {}
// SAFETY: readers on other threads share the value, and any thread may drop it.
unsafe impl<T: Send + Sync, S: Storage<T> + Sync> Send for Unlinked<'_, T, S> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, S: Storage<T> + Sync> Sync for Unlinked<'_, T, S> {}

impl<'s, T, S: Storage<T>> Unpublished<'s, T, S> {
    /// Returns the owner of a value.
    ///
    /// # Safety
    /// The value is in memory of the storage, the caller gives it away, and no reader has seen it.
    /// It may be shared with other threads and dropped by any thread at any time: `T` is `Send`,
    /// `Sync` and `'static`.
    #[inline(always)]
    pub unsafe fn from_raw(value: NonNull<T>, storage: &'s S) -> Self {
        Self { value, storage, of: PhantomData }
    }

    /// Returns the storage of the value's memory.
    pub fn storage(&self) -> &'s S {
        self.storage
    }

    /// Gives up ownership. [`from_raw`](Self::from_raw) takes the value back.
    #[inline(always)]
    pub fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).value
    }

    /// Moves the value out and frees its memory.
    pub fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: the owner is forgotten, and no other thread has seen the value.
        unsafe {
            let _memory = Memory { value: this.value, storage: this.storage };
            this.value.read()
        }
    }

    /// Drops the value after a grace period. For a value that readers find by other means than a
    /// [`Pointer`], for example by an index.
    pub fn retire(self) {
        drop(Unlinked::from(self));
    }
}

impl<'s, T, S: Storage<T>> Pointer<'s, T, S> {
    /// Returns a pointer to a value.
    pub fn new(value: impl Into<Unlinked<'s, T, S>>) -> Self {
        let value = ManuallyDrop::new(value.into());
        let (value, storage) = (AtomicPtr::new(value.value.as_ptr()), value.storage);
        Self { value, storage, of: PhantomData }
    }

    /// Returns a pointer to no value, for values of `storage`.
    pub fn empty(storage: &'s S) -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()), storage, of: PhantomData }
    }

    /// Returns the value, for as long as the section is open (`rcu_dereference`). One plain load;
    /// writes nothing.
    ///
    /// # Panics
    /// If the section is one of another domain than the storage's: it would protect nothing.
    #[inline(always)]
    pub fn load<'g>(&self, section: &'g Guard<'_>) -> Option<&'g T> {
        check(self.storage, section);
        // ORDERING: pairs with the release of the store that published the value: its content is
        // visible.
        // SAFETY: found inside the section, so it was not yet unlinked when the section began; it
        // is dropped after that.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Publishes a value, new or unlinked from a pointer, and returns the value before it
    /// (`rcu_replace_pointer`). One locked instruction on the pointer's line.
    ///
    /// # Panics
    /// If the value belongs to another storage.
    pub fn replace(&self, new: impl Into<Unlinked<'s, T, S>>) -> Option<Unlinked<'s, T, S>> {
        let new = new.into();
        assert!(ptr::eq(new.storage, self.storage), "the value belongs to another storage");
        self.swap(ManuallyDrop::new(new).value.as_ptr())
    }

    /// Empties the pointer. Returns the value that was there.
    pub fn take(&self) -> Option<Unlinked<'s, T, S>> {
        self.swap(ptr::null_mut())
    }

    /// Publishes a value if the pointer still holds `current`, which a load in the same section
    /// returned. Returns the value before it. (Another value cannot be at the same address: the
    /// section keeps the memory of `current`.)
    ///
    /// # Errors
    /// The new value, if the pointer holds another one than `current`.
    ///
    /// # Panics
    /// If the new value belongs to another storage, or the section to another domain.
    pub fn replace_if<'g>(
        &self,
        current: Option<&'g T>,
        new: Unpublished<'s, T, S>,
        section: &'g Guard<'_>,
    ) -> Result<Option<Unlinked<'s, T, S>>, Unpublished<'s, T, S>> {
        check(self.storage, section);
        assert!(ptr::eq(new.storage, self.storage), "the value belongs to another storage");
        let current = current.map_or(ptr::null_mut(), |current| ptr::from_ref(current).cast_mut());
        // ORDERING: as in `swap`. Relaxed on failure: the value found is not looked at.
        let swapped = self.value.compare_exchange(
            current,
            new.value.as_ptr(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        match swapped {
            Ok(old) => {
                let _ = ManuallyDrop::new(new);
                Ok(self.unlinked(old))
            }
            Err(_) => Err(new),
        }
    }

    fn swap(&self, new: *mut T) -> Option<Unlinked<'s, T, S>> {
        // ORDERING: release pairs with the acquire of `load`. Acquire pairs with the release of the
        // store that published the old value, whose new owner sees its content.
        self.unlinked(self.value.swap(new, Ordering::AcqRel))
    }

    fn unlinked(&self, old: *mut T) -> Option<Unlinked<'s, T, S>> {
        let storage = self.storage;
        NonNull::new(old).map(|value| Unlinked { value, storage, of: PhantomData })
    }
}

#[inline(always)]
fn check<T, S: Storage<T>>(storage: &S, section: &Guard<'_>) {
    if !ptr::eq(section.domain(), storage.domain()) {
        wrong_domain();
    }
}

#[cold]
fn wrong_domain() -> ! {
    panic!("the read section is of another domain than that of the pointer, and protects nothing")
}

/// Memory of a value that no reader has seen. Dropping it frees the memory, also while a panic of
/// the value's drop unwinds.
struct Memory<'s, T, S: Storage<T>> {
    value: NonNull<T>,
    storage: &'s S,
}

impl<T, S: Storage<T>> Drop for Memory<'_, T, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the maker owned the value, which is dropped or moved out by now.
        unsafe { self.storage.free(self.value) };
    }
}

impl<'s, T, S: Storage<T>> From<Unpublished<'s, T, S>> for Unlinked<'s, T, S> {
    /// Treats a value as one that readers may have seen.
    fn from(value: Unpublished<'s, T, S>) -> Self {
        let storage = value.storage;
        Self { value: value.into_raw(), storage, of: PhantomData }
    }
}

impl<T, S: Storage<T>> Deref for Unpublished<'_, T, S> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: owned.
        unsafe { self.value.as_ref() }
    }
}

impl<T, S: Storage<T>> DerefMut for Unpublished<'_, T, S> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: owned, and no other thread has seen it.
        unsafe { self.value.as_mut() }
    }
}

impl<T, S: Storage<T>> Deref for Unlinked<'_, T, S> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: owned, and shared with readers.
        unsafe { self.value.as_ref() }
    }
}

impl<T: fmt::Debug, S: Storage<T>> fmt::Debug for Unpublished<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug, S: Storage<T>> fmt::Debug for Unlinked<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T, S: Storage<T>> fmt::Debug for Pointer<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pointer").field("value", &self.value).finish_non_exhaustive()
    }
}

impl<T, S: Storage<T>> Drop for Unpublished<'_, T, S> {
    #[inline(always)]
    fn drop(&mut self) {
        let _memory = Memory { value: self.value, storage: self.storage };
        // SAFETY: owned, no other thread has seen it, and it is not used again.
        unsafe { self.value.drop_in_place() };
    }
}

impl<T, S: Storage<T>> Drop for Unlinked<'_, T, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: owned, from this storage, and in no pointer: sections that begin later cannot
        // find it.
        unsafe { self.storage.retire(self.value) };
    }
}

impl<T, S: Storage<T>> Drop for Pointer<'_, T, S> {
    fn drop(&mut self) {
        drop(self.take());
    }
}
