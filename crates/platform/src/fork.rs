//! `fork`: the child keeps working.
//!
//! A forked child has one thread and a copy of every lock in whatever state it was. Whoever owns a lock that
//! another thread might hold at that moment links a [`Node`] into the registry; around each `fork` of the
//! process, every registered owner is told to take its locks before, and to let go of them after, in both
//! processes. Owners are called by rank, lowest first, so that the order is the one in which the code takes
//! its locks.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, Once};

/// When an owner is called: the order in which locks nest, outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Rank {
    /// Locks of objects that callers name: descriptor tables.
    Object = 0,
    /// Locks of slab caches.
    Cache = 1,
    /// Locks of counters, id allocators and RCU domains.
    Domain = 2,
    /// Locks of this crate.
    Machine = 3,
}

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

/// An owner's place in the registry. Lives inside the owner; allocation-free.
#[derive(Debug)]
pub struct Node {
    slot: Option<usize>,
    rank: Rank,
}

/// Owners of one rank: a vector with a free list threaded through the vacant places.
struct Owners {
    entries: Vec<Option<*const dyn AtFork>>,
    free: Vec<usize>,
}

struct Registry {
    ranks: [Owners; 4],
}

// SAFETY: the pointers inside are only followed while the registry's lock is held, and an owner leaves the
// registry before it dies (the contract of `Node::register`).
unsafe impl Send for Registry {}

const NONE: Owners = Owners { entries: Vec::new(), free: Vec::new() };
static REGISTRY: Mutex<Registry> = Mutex::new(Registry { ranks: [NONE; 4] });
static INSTALL: Once = Once::new();

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(|e| e.into_inner())
}

impl Node {
    /// A node that is in no registry.
    pub const fn new(rank: Rank) -> Self {
        Self { slot: None, rank }
    }

    /// Enters `owner` into the registry. Once per node.
    ///
    /// # Errors
    /// [`AllocError`](crate::AllocError) when the registry cannot grow.
    ///
    /// # Safety
    /// `owner` must stay where it is and alive until [`unregister`](Self::unregister) is called on this node.
    pub unsafe fn register(&mut self, owner: *const dyn AtFork) -> Result<(), crate::AllocError> {
        watch();
        crate::fault::check()?;
        let mut registry = registry();
        let owners = &mut registry.ranks[self.rank as usize];
        let entry = Some(owner);
        let slot = match owners.free.pop() {
            Some(slot) => {
                owners.entries[slot] = entry;
                slot
            }
            None => {
                owners.entries.try_reserve(1).map_err(|_| crate::AllocError)?;
                // Room to come back without allocating: leaving the registry must not fail.
                let all = owners.entries.len() + 1;
                owners.free.try_reserve(all).map_err(|_| crate::AllocError)?;
                owners.entries.push(entry);
                owners.entries.len() - 1
            }
        };
        self.slot = Some(slot);
        Ok(())
    }

    /// Takes the owner out of the registry; nothing if it is in none.
    pub fn unregister(&mut self) {
        if let Some(slot) = self.slot.take() {
            let mut registry = registry();
            let owners = &mut registry.ranks[self.rank as usize];
            owners.entries[slot] = None;
            owners.free.push(slot);
        }
    }
}

thread_local! {
    /// The registry's guard between `before` and `after`, in the thread that forks.
    static HELD: RefCell<Option<MutexGuard<'static, Registry>>> = const { RefCell::new(None) };
}

/// Sees to it that forks are noticed, from now on. Whoever has locks calls it before the first one is taken.
pub(crate) fn watch() {
    INSTALL.call_once(install);
}

fn each(registry: &Registry, mut f: impl FnMut(&dyn AtFork)) {
    for owners in &registry.ranks {
        for owner in owners.entries.iter().flatten() {
            // SAFETY: owners in the registry are alive, as `register` demands, and it is locked.
            f(unsafe { &**owner });
        }
    }
}

extern "C" fn before() {
    let guard = registry();
    each(&guard, |owner| owner.before());
    crate::pages::fork_before();
    crate::percpu::fork_before();
    HELD.with(|h| *h.borrow_mut() = Some(guard));
}

fn after(child: bool) {
    if child {
        crate::membarrier::register();
    }
    crate::percpu::fork_after(child);
    crate::pages::fork_after();
    if let Some(guard) = HELD.with(|h| h.borrow_mut().take()) {
        each(&guard, |owner| owner.after(child));
    }
}

extern "C" fn after_in_parent() {
    after(false);
}

extern "C" fn after_in_child() {
    after(true);
}

fn install() {
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
#[derive(Debug)]
pub struct Registered<T: AtFork + 'static> {
    value: Box<Place<T>>,
    node: Node,
}

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
        let mut registered = Self { value: crate::heap::try_box(Place(value))?, node: Node::new(rank) };
        let owner: *const T = &registered.value.0;
        // SAFETY: the box stays where it is and alive until `drop`, which unregisters first.
        unsafe { registered.node.register(owner)? };
        Ok(registered)
    }
}

impl<T: AtFork + 'static> core::ops::Deref for Registered<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value.0
    }
}

impl<T: AtFork + 'static> Drop for Registered<T> {
    fn drop(&mut self) {
        self.node.unregister();
    }
}
