//! The only unsafe code of this crate: links between objects, and the arenas the objects live in.
//!
//! The kernel's structures point at each other. Here such a pointer is a [`Link`], and what it points at is a
//! [`Resident`]: it lives in an [`Arena`] (or in the world's globals), at one address, from the day it is
//! made until the whole world is dropped, and all that changes in it are atomics. So following a link can
//! find an object that has meanwhile been freed and given to another user, as in the kernel; it can never
//! find memory that is gone, nor race with plain accesses.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use std::alloc::{Layout, alloc, dealloc};

use crate::atomic::{AtomicPtr, Ordering};
use crate::errno::Errno;

/// A type whose values stay at one address while a link to them can be followed.
///
/// # Safety
///
/// Whoever implements it vouches for two rules. Values that are stored in a [`Link`] live in an [`Arena`] or
/// in the globals of the world that also holds the link, so that they live as long as it does. And everything
/// in them that changes after that is atomic, so that any thread may look at any time.
pub(crate) unsafe trait Resident: Send + Sync + 'static {}

// SAFETY: files, dentries and inodes live in the slabs of their caches, slabs and descriptor tables in
// arenas, mounts, superblocks and caches in the globals; list heads and callback heads are fields of these.
// All their mutable fields are atomics. A process holds its world's globals by an `Arc`, so its tables' links
// end before.
unsafe impl Resident for crate::file::File {}
// SAFETY: as above.
unsafe impl Resident for crate::dcache::Dentry {}
// SAFETY: as above.
unsafe impl Resident for crate::inode::Inode {}
// SAFETY: as above.
unsafe impl Resident for crate::superblock::SuperBlock {}
// SAFETY: as above.
unsafe impl Resident for crate::mount::VfsMount {}
// SAFETY: as above.
unsafe impl Resident for crate::list::ListHead {}
// SAFETY: as above.
unsafe impl Resident for crate::rcupdate::RcuHead {}
// SAFETY: as above.
unsafe impl Resident for crate::fdtable::Fdtable {}
// SAFETY: as above; `objects` is filled before the page enters its arena and never changed in length.
unsafe impl<T: crate::slab::Object> Resident for crate::slab::Page<T> {}

/// A pointer to an object of the same world, or none.
#[repr(transparent)]
pub(crate) struct Link<T: Resident> {
    pointer: AtomicPtr<T>,
}

impl<T: Resident> Link<T> {
    /// A link to nothing.
    pub(crate) fn null() -> Self {
        Self { pointer: AtomicPtr::new(ptr::null_mut()) }
    }

    /// What the link points at.
    #[inline(always)]
    pub(crate) fn load(&self) -> Option<&T> {
        // ORDERING: pairs with the release in `store`: who sees the pointer sees the object as it was when
        // the pointer was stored; who sees the older pointer sees an older object, whole as well.
        let pointer = self.pointer.load(Ordering::Acquire);
        // SAFETY: only `store` writes the word, so it is null or comes from a `&T` to a resident, which
        // outlives the borrow of this link: both belong to one world, whose arenas are dropped together.
        unsafe { pointer.as_ref() }
    }

    /// Points the link at `target`.
    #[inline(always)]
    pub(crate) fn store(&self, target: Option<&T>) {
        let pointer = target.map_or(ptr::null_mut(), |target| ptr::from_ref(target).cast_mut());
        // ORDERING: pairs with the acquire in `load`, which see.
        self.pointer.store(pointer, Ordering::Release);
    }
}

/// Objects of one type that are made one by one and dropped all together.
pub(crate) struct Arena<T: Send + Sync> {
    last: AtomicPtr<Node<T>>,
    owns: PhantomData<T>,
}

struct Node<T> {
    value: T,
    older: *mut Node<T>,
}

impl<T: Send + Sync> Arena<T> {
    /// An arena with nothing in it.
    pub(crate) fn new() -> Self {
        Self { last: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// Puts `value` into the arena, where it stays at one address until the arena is dropped.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; then `value` is dropped.
    pub(crate) fn put(&self, value: T) -> Result<&T, Errno> {
        let layout = Layout::new::<Node<T>>();
        // SAFETY: a node is not of size zero: it holds a pointer.
        let node = unsafe { alloc(layout) }.cast::<Node<T>>();
        let node = NonNull::new(node).ok_or(Errno::ENOMEM)?;
        // Relaxed: the compare-exchange below confirms it.
        let mut older = self.last.load(Ordering::Relaxed);
        // SAFETY: `node` is memory of the right layout that is ours alone.
        unsafe { node.write(Node { value, older }) };
        loop {
            // ORDERING: Release pairs with the `&mut` that a drop needs, which comes after every `put` by
            // whatever made it exclusive; Relaxed on failure: `older` is only stored, not followed.
            match self.last.compare_exchange_weak(
                older,
                node.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(seen) => older = seen,
            }
            // SAFETY: the node is not published yet, so it is still ours alone.
            unsafe { (*node.as_ptr()).older = older };
        }
        // SAFETY: nodes are freed by `drop` alone, and that needs the borrow of `self` to have ended.
        Ok(unsafe { &node.as_ref().value })
    }

    /// Calls `f` with every object.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&T)) {
        // ORDERING: pairs with the release in `put`: a node that is seen is seen whole, and so are all older
        // ones, since each `put` extends the release sequence of those before it.
        let mut node = self.last.load(Ordering::Acquire);
        // SAFETY: nodes are freed by `drop` alone; `older` never changes once a node is published.
        while let Some(live) = unsafe { node.as_ref() } {
            f(&live.value);
            node = live.older;
        }
    }
}

impl<T: Send + Sync> Drop for Arena<T> {
    fn drop(&mut self) {
        // Relaxed: `&mut self` says that no one else is left.
        let mut node = self.last.load(Ordering::Relaxed);
        while !node.is_null() {
            // SAFETY: `put` allocated the node with this layout and initialised it; it is dropped and freed
            // once, since the walk goes on from the copy of its link.
            unsafe {
                let older = (*node).older;
                ptr::drop_in_place(node);
                dealloc(node.cast(), Layout::new::<Node<T>>());
                node = older;
            }
        }
    }
}
