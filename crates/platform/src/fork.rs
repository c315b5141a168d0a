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

#[cfg(not(loom))]
use crate::{pages, percpu::chunk};
use core::cell::{RefCell, UnsafeCell};
use core::ptr::{self, NonNull};
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
    rank: Rank,
    /// Used under the lock of the rank.
    links: UnsafeCell<Links>,
}

#[derive(Debug, Clone, Copy)]
struct Links {
    /// `None` while the node is in no registry.
    owner: Option<*const dyn AtFork>,
    next: *const Node,
    prev: *const Node,
}

// SAFETY: the links are used under the lock of the rank. The owner is `Sync`.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

/// The first node of a rank's list.
struct First(*const Node);

// SAFETY: nodes may be used by any thread. They leave the list before they die (the contract of
// `Node::register`).
unsafe impl Send for First {}

/// One lock for each rank, taken by a fork when the rank's turn comes and not before: who holds an owner's lock may
/// wait for the lock of a later rank.
static REGISTRY: [Mutex<First>; RANKS] = [const { Mutex::new(First(ptr::null())) }; RANKS];
static INSTALL: Once = Once::new();

fn first(rank: usize) -> MutexGuard<'static, First> {
    REGISTRY[rank].lock().unwrap_or_else(|e| e.into_inner())
}

impl First {
    fn each(&self, f: impl Fn(&dyn AtFork)) {
        let mut at = self.0;
        while !at.is_null() {
            // SAFETY: nodes on the list are alive, and the list is locked.
            let Links { owner, next, .. } = unsafe { *(*at).links.get() };
            if let Some(owner) = owner {
                // SAFETY: so is the owner.
                f(unsafe { &*owner });
            }
            at = next;
        }
    }
}

impl Node {
    /// A node that is in no registry.
    pub const fn new(rank: Rank) -> Self {
        let links = Links { owner: None, next: ptr::null(), prev: ptr::null() };
        Self { rank, links: UnsafeCell::new(links) }
    }

    /// Enters `owner` into the registry. Once per node. Not under a registered lock of the node's rank or a later one,
    /// for which a fork that holds the rank's list would wait; so [`unregister`](Self::unregister).
    ///
    /// # Safety
    /// `owner` and the node must stay where they are and alive until [`unregister`](Self::unregister)
    /// is called on this node.
    pub unsafe fn register(&self, owner: *const dyn AtFork) {
        watch();
        let mut first = first(self.rank as usize);
        // SAFETY: the list is locked, and its nodes are alive.
        unsafe {
            *self.links.get() = Links { owner: Some(owner), next: first.0, prev: ptr::null() };
            if let Some(next) = first.0.as_ref() {
                (*next.links.get()).prev = self;
            }
        }
        first.0 = self;
    }

    /// Takes the owner out of the registry. Does nothing if it is in none.
    pub fn unregister(&self) {
        let mut first = first(self.rank as usize);
        // SAFETY: the list is locked, and its nodes are alive.
        unsafe {
            let links = *self.links.get();
            if links.owner.is_none() {
                return;
            }
            (*self.links.get()).owner = None;
            match links.prev.as_ref() {
                Some(prev) => (*prev.links.get()).next = links.next,
                None => first.0 = links.next,
            }
            if let Some(next) = links.next.as_ref() {
                (*next.links.get()).prev = links.prev;
            }
        }
    }
}

/// Locks that a fork holds.
struct Held {
    registry: [MutexGuard<'static, First>; RANKS],
    #[cfg(not(loom))]
    pages: [MutexGuard<'static, pages::Class>; pages::CLASSES],
    #[cfg(not(loom))]
    chunks: MutexGuard<'static, Vec<chunk::Chunk>>,
}

thread_local! {
    /// The locks between `before` and `after`, in the thread that forks.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Sees to it that forks are noticed, from now on. Whoever has locks calls it before the first one is taken.
pub(crate) fn watch() {
    INSTALL.call_once(install);
}

extern "C" fn before() {
    let registry = core::array::from_fn(|rank| {
        let owners = first(rank);
        owners.each(|owner| owner.before());
        owners
    });
    // Not half made in the child.
    #[cfg(not(loom))]
    crate::backend::percpu::decide();
    let held = Held {
        registry,
        #[cfg(not(loom))]
        pages: pages::lock_all(),
        #[cfg(not(loom))]
        chunks: chunk::lock(),
    };
    HELD.with(|h| *h.borrow_mut() = Some(held));
}

fn after(child: bool) {
    if child {
        crate::membarrier::register();
        #[cfg(not(loom))]
        crate::backend::percpu::abandon();
    }
    if let Some(held) = HELD.with(|h| h.borrow_mut().take()) {
        #[cfg(not(loom))]
        drop((held.chunks, held.pages));
        held.registry.iter().for_each(|owners| owners.each(|owner| owner.after(child)));
        held.registry.into_iter().rev().for_each(drop);
    }
}

extern "C" fn after_in_parent() {
    after(false);
}

extern "C" fn after_in_child() {
    after(true);
}

fn install() {
    if cfg!(any(miri, loom)) {
        // The interpreter knows no fork, and no model has one.
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
    place: NonNull<Place<T>>,
}

// SAFETY: it owns the value, and the registry only calls it through the thread-safe `AtFork`.
unsafe impl<T: AtFork + Send + 'static> Send for Registered<T> {}
// SAFETY: it gives shared references to the value.
unsafe impl<T: AtFork + Sync + 'static> Sync for Registered<T> {}

/// Lines of its own: a lock must not share one with whatever the heap puts beside it.
#[repr(align(128))]
struct Place<T> {
    value: T,
    node: Node,
}

impl<T: AtFork + 'static> Registered<T> {
    /// Puts `value` at its place and into the registry.
    ///
    /// # Errors
    /// [`AllocError`](crate::AllocError); the value is dropped.
    pub fn new(rank: Rank, value: T) -> Result<Self, crate::AllocError> {
        let place = Place { value, node: Node::new(rank) };
        let registered = Self { place: NonNull::from(Box::leak(crate::heap::try_box(place)?)) };
        let place = registered.place();
        // SAFETY: both stay where they are and alive until `drop`, which unregisters first.
        unsafe { place.node.register(&raw const place.value) };
        Ok(registered)
    }

    #[inline(always)]
    fn place(&self) -> &Place<T> {
        // SAFETY: alive until `drop`, and never borrowed exclusively.
        unsafe { self.place.as_ref() }
    }
}

impl<T: AtFork + 'static> core::ops::Deref for Registered<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.place().value
    }
}

impl<T: AtFork + 'static> Drop for Registered<T> {
    fn drop(&mut self) {
        self.place().node.unregister();
        // SAFETY: boxed in `new`, and the registry has forgotten it.
        drop(unsafe { Box::from_raw(self.place.as_ptr()) });
    }
}

impl<T: AtFork + core::fmt::Debug + 'static> core::fmt::Debug for Registered<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(f)
    }
}
