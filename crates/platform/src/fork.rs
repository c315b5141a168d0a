//! `fork`: the child keeps working.
//!
//! A forked child has one thread and a copy of every lock in whatever state it was. Whoever owns a lock that
//! another thread might hold at that moment links a [`Node`] into the registry; around each `fork` of the
//! process, every registered owner is told to take its locks before, and to let go of them after, in both
//! processes. Owners are called by rank, lowest first, so that the order is the one in which the code takes
//! its locks.
//!
//! # Lock order
//!
//! The registry has a lock for each rank. A fork takes that of rank 0, the locks of its owners, that of rank 1, and so
//! on, and holds them all until it is over. So under a registered lock a node of a later rank may enter or leave, but
//! none of the same or an earlier one.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, Once};

/// When an owner is called: the order in which locks nest, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Rank {
    /// Locks of lists in which objects are found, and looked at: processes.
    List = 0,
    /// Locks of objects that callers name: a process's descriptor table, its place in the tree.
    Object = 1,
    /// Locks of slab caches.
    Cache = 2,
    /// Locks of counters, id allocators and RCU domains.
    Domain = 3,
    /// Locks of this crate.
    Machine = 4,
}

const RANKS: usize = Rank::Machine as usize + 1;

/// What an owner of locks does around a `fork`.
///
/// # Safety
/// After `before`, no other thread may be inside the owner's critical sections until `after`. `after(true)` runs
/// in the child, where the caller is the only thread.
pub unsafe trait AtFork: Sync {
    /// Takes the owner's locks.
    fn before(&self);
    /// Lets go of them, in the parent (`child` false) or in the child.
    fn after(&self, child: bool);
}

/// An owner's entry in the registry. Lives inside the owner; allocation-free. Everything is done
/// through shared references: the registry reads the owner through one, and no exclusive reference
/// may exist beside it.
#[derive(Debug)]
pub struct Node {
    /// The index of the entry, plus one; 0 while there is none. The owner registers and unregisters
    /// the node, one after the other. The lock of the rank protects the entry, not this field.
    slot: AtomicUsize,
    rank: Rank,
}

/// Owners of one rank: a vector with a free list beside it of the vacant places.
struct Owners {
    entries: Vec<Option<*const dyn AtFork>>,
    free: Vec<usize>,
}

// SAFETY: the pointers inside are only followed while the lock of their rank is held, and an owner leaves the
// registry before it dies (the contract of `Node::register`).
unsafe impl Send for Owners {}

/// One lock for each rank, taken by a fork when the rank's turn comes and not before: who holds an owner's lock may
/// wait for the lock of a later rank.
static REGISTRY: [Mutex<Owners>; RANKS] = [const { Mutex::new(Owners::NONE) }; RANKS];
static INSTALL: Once = Once::new();

fn owners(rank: usize) -> MutexGuard<'static, Owners> {
    REGISTRY[rank].lock().unwrap_or_else(|e| e.into_inner())
}

/// The owners of a rank, with room for one more. The heap is used without the lock, because it may have locks itself.
fn owners_with_room(rank: usize) -> Result<MutexGuard<'static, Owners>, crate::AllocError> {
    loop {
        let owners_now = owners(rank);
        if !owners_now.free.is_empty() || owners_now.entries.len() < owners_now.places() {
            return Ok(owners_now);
        }
        let wanted = 2 * owners_now.entries.len() + 4;
        drop(owners_now);
        let mut larger = Owners::with_places(wanted)?;
        owners(rank).grow_into(&mut larger);
    }
}

impl Owners {
    const NONE: Self = Self { entries: Vec::new(), free: Vec::new() };

    fn with_places(n: usize) -> Result<Self, crate::AllocError> {
        let mut owners = Self::NONE;
        owners.entries.try_reserve_exact(n).map_err(|_| crate::AllocError)?;
        owners.free.try_reserve_exact(n).map_err(|_| crate::AllocError)?;
        Ok(owners)
    }

    /// Owners that fit. Each has room on the free list: leaving the registry must not fail.
    fn places(&self) -> usize {
        self.entries.capacity().min(self.free.capacity())
    }

    /// Moves into the vectors of `larger`, which gets the old ones; unless it is not larger any more.
    fn grow_into(&mut self, larger: &mut Self) {
        if larger.places() > self.places() {
            larger.entries.append(&mut self.entries);
            larger.free.append(&mut self.free);
            core::mem::swap(self, larger);
        }
    }

    fn each(&self, mut f: impl FnMut(&dyn AtFork)) {
        for owner in self.entries.iter().flatten() {
            // SAFETY: owners in the registry are alive, as `register` demands, and it is locked.
            f(unsafe { &**owner });
        }
    }
}

impl Node {
    /// A node that is in no registry.
    pub const fn new(rank: Rank) -> Self {
        Self { slot: AtomicUsize::new(0), rank }
    }

    /// Enters `owner` into the registry. Once per node. Not under a registered lock of the node's rank or a later one,
    /// for which a fork that holds the rank's list would wait; so [`unregister`](Self::unregister).
    ///
    /// # Errors
    /// [`AllocError`](crate::AllocError) when the registry cannot grow.
    ///
    /// # Safety
    /// `owner` must stay where it is and alive until [`unregister`](Self::unregister) is called on this node.
    pub unsafe fn register(&self, owner: *const dyn AtFork) -> Result<(), crate::AllocError> {
        watch();
        crate::fault::check()?;
        let mut owners = owners_with_room(self.rank as usize)?;
        let slot = match owners.free.pop() {
            Some(slot) => slot,
            None => {
                owners.entries.push(None);
                owners.entries.len() - 1
            }
        };
        owners.entries[slot] = Some(owner);
        // Relaxed: only the owner reads it.
        self.slot.store(slot + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the owner out of the registry. Does nothing if it is in none.
    pub fn unregister(&self) {
        // Relaxed: as in `register`.
        if let Some(slot) = self.slot.swap(0, Ordering::Relaxed).checked_sub(1) {
            let mut owners = owners(self.rank as usize);
            owners.entries[slot] = None;
            owners.free.push(slot);
        }
    }
}

thread_local! {
    /// The registry's guards between `before` and `after`, in the thread that forks.
    static HELD: RefCell<Option<[MutexGuard<'static, Owners>; RANKS]>> = const { RefCell::new(None) };
}

/// Sees to it that forks are noticed, from now on. Whoever has locks calls it before the first one is taken.
pub(crate) fn watch() {
    INSTALL.call_once(install);
}

extern "C" fn before() {
    let guards = core::array::from_fn(|rank| {
        let owners = owners(rank);
        owners.each(|owner| owner.before());
        owners
    });
    crate::pages::fork_before();
    crate::percpu::fork_before();
    HELD.with(|h| *h.borrow_mut() = Some(guards));
}

fn after(child: bool) {
    if child {
        crate::membarrier::register();
    }
    crate::percpu::fork_after(child);
    crate::pages::fork_after();
    if let Some(guards) = HELD.with(|h| h.borrow_mut().take()) {
        guards.iter().for_each(|owners| owners.each(|owner| owner.after(child)));
        guards.into_iter().rev().for_each(drop);
    }
}

extern "C" fn after_in_parent() {
    after(false);
}

extern "C" fn after_in_child() {
    after(true);
}

fn install() {
    if cfg!(miri) {
        // The interpreter knows no fork.
        return;
    }
    // SAFETY: the three handlers are functions of this program with the required signature.
    unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
}

/// A value in the registry, at an address of its own, from its making to its end.
///
/// ```
/// # use quietline_platform::fork::{AtFork, Rank, Registered};
/// # struct Locks;
/// # // SAFETY: it has no locks.
/// # unsafe impl AtFork for Locks { fn before(&self) {} fn after(&self, _: bool) {} }
/// let locks = Registered::new(Rank::Object, Locks).unwrap(); // held across every fork from here on
/// ```
pub struct Registered<T: AtFork + 'static> {
    /// Owned, like a box. Not a box: moving one asserts that no other pointer to the value is used.
    value: NonNull<Place<T>>,
    node: Node,
}

// SAFETY: it owns the value, and the registry only calls it through the thread-safe `AtFork`.
unsafe impl<T: AtFork + Send + 'static> Send for Registered<T> {}
// SAFETY: it gives shared references to the value.
unsafe impl<T: AtFork + Sync + 'static> Sync for Registered<T> {}

/// Lines of its own: a lock must not share one with whatever the heap puts beside it.
#[derive(Debug)]
#[repr(align(128))]
struct Place<T>(T);

impl<T: AtFork + 'static> Registered<T> {
    /// Puts `value` at its place and into the registry.
    ///
    /// # Errors
    /// [`AllocError`](crate::AllocError); the value is dropped.
    pub fn new(rank: Rank, value: T) -> Result<Self, crate::AllocError> {
        let place = Box::leak(crate::heap::try_box(Place(value))?);
        let registered = Self { value: NonNull::from(place), node: Node::new(rank) };
        // SAFETY: the value stays where it is and alive until `drop`, which unregisters first.
        unsafe { registered.node.register(&raw const (*registered.value.as_ptr()).0)? };
        Ok(registered)
    }
}

impl<T: AtFork + 'static> core::ops::Deref for Registered<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: alive until `drop`, and never borrowed exclusively.
        unsafe { &self.value.as_ref().0 }
    }
}

impl<T: AtFork + 'static> Drop for Registered<T> {
    fn drop(&mut self) {
        self.node.unregister();
        // SAFETY: boxed in `new`, and the registry has forgotten it.
        drop(unsafe { Box::from_raw(self.value.as_ptr()) });
    }
}

impl<T: AtFork + core::fmt::Debug + 'static> core::fmt::Debug for Registered<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}
