//! Slab caches with per-CPU sheaves.
//!
//! # The problem
//!
//! A kernel, a server or a packet processor makes and frees objects of a few types by the million. A general
//! allocator does not know the types: it searches by size, keeps no constructed state, and returns objects one by
//! one to wherever they came from.
//!
//! # The contended way
//!
//! One free list for each type, under a lock or with a compare-and-exchange for each object: a line that all CPUs
//! want, and a locked instruction for each object even when nobody else is there. (Linux's SLUB of 2.6 to 4.2, whose
//! slow path took 10 to 25 % of the socket benchmark that started this project.)
//!
//! # Our way
//!
//! Layers, from fast to slow; each serves many requests of the one above by one operation of its own:
//!
//! ```text
//!   alloc, free, alloc_bulk, free_bulk
//!        |  one restartable sequence, no locked instruction
//!   sheaf (main) and sheaf (spare)      of each CPU: arrays of objects, 12 to 512
//!        |  whole sheaves, two sequences; those that a grace period gave back to the CPU
//!   pile                                of each CPU: up to 1,024 objects
//!        |  whole sheaves, under the barn's lock
//!   barn                                10 full and 10 empty sheaves, or three of each for every CPU
//!        |  groups of one slab's objects, one compare-and-exchange on the slab's word
//!   slabs                               full (on no list), partial (listed), frozen (being taken from)
//!        |  blocks
//!   pages                               quietline_platform::pages
//! ```
//!
//! An object freed on another CPU than it was allocated on goes to the freeing CPU's sheaf like any other; a full
//! sheaf wanders through the barn to a CPU that needs objects. So a remote free costs what a local one costs.
//!
//! How large each layer is follows from the object's size and the number of CPUs, by the formulas in [`Options`]; all of it
//! can be changed while the cache lives ([`Control::set_tunables`]).
//!
//! # Why a slab cache, and when not
//!
//! A cache knows its type. So it needs no size search and no header for each object; free objects wait in arrays near the CPU that
//! will want them; many can come and go in one operation; an object can keep its constructed state from life to life; and
//! memory can stay an object of the type while readers look at it, which no general allocator can promise.
//!
//! Use something else when objects are few or of many sizes (the global allocator), when all of them end at once (an arena), when
//! they are larger than a few pages (map them), or when they are kept by index for ever (a `Vec`).
//!
//! # Which one
//!
//! | you have | take |
//! |---|---|
//! | values of a type, each with one owner | [`Cache<T>`](Cache): a [`Slot`] is a box |
//! | the same, in structures without lifetimes | [`OwnedSlot`], which owns its cache |
//! | values that must not move | [`Cache::alloc_pin`] |
//! | values whose making can fail | [`Cache::alloc_vacant`] |
//! | values that readers find by a pointer and may keep reading while they are taken away | [`RcuCache<T>`](RcuCache): freed after a grace period |
//! | the same, by the million, and readers who can take a reference and look again | [`TypesafeCache<T>`](TypesafeCache): memory is reused at once, but only for the same type |
//! | raw memory, hooks, C | [`RawCache`] |
//! | the same, in many caches of which few are used | [`LazyCache`] |
//!
//! | you do | call |
//! |---|---|
//! | one or two at a time | [`RawCache::alloc`], [`RawCache::free`]: under 2 ns a pair |
//! | three or more | [`RawCache::alloc_bulk`], [`RawCache::free_bulk`]: down to 0.2 ns each |
//! | some hundreds that were cold, number not important | [`RawCache::alloc_batch`] |
//! | free what readers may still see | [`RawCache::free_rcu`] |
//! | go to sleep, or run out | [`decay`], [`Control::shrink`], [`shrink_all`], [`set_memory_limit`] |
//! | hunt a bug | [`Control::set_debug`], or `QUIETLINE_SLAB_DEBUG=FZPU` in the environment |
//! | tune, validate or shrink a cache of any kind | [`Control`], which every cache dereferences to, or [`with_cache`] |
//! | look inside | [`Control::stats`], [`each_cache`], [`slabinfo`], `ql slabtop` |
//!
//! # Use
//!
//! Typed, owned and safe: [`Cache`]. Many at once, without types:
//!
//! ```
//! use quietline_slab::{Options, RawCache};
//!
//! let cache = RawCache::new(Options::new("packet", 256, 64))?;
//! let mut packets = [None; 32];
//! cache.alloc_bulk(&mut packets)?;
//! let first = packets[0].take().expect("all or nothing");
//! // SAFETY: these came from this cache, and nobody uses them any more.
//! unsafe {
//!     cache.free_bulk(&mut packets); // skips the one that was taken out
//!     cache.free(first);
//! }
//! assert_eq!(cache.stats().active, 0);
//! # Ok::<(), quietline_slab::CacheError>(())
//! ```
//!
//! Objects that readers find without owning them:
//!
//! ```
//! use quietline_platform::atomic::{AtomicPtr, AtomicU64, Ordering};
//! use quietline_slab::{Typesafe, TypesafeCache};
//! use quietline_sync::rcu;
//!
//! struct Session {
//!     id: AtomicU64,
//! }
//!
//! // SAFETY: there is no LINK_OFFSET.
//! unsafe impl Typesafe for Session {
//!     fn construct() -> Self {
//!         Session { id: AtomicU64::new(0) }
//!     }
//! }
//!
//! let domain = rcu::global()?;
//! let cache = TypesafeCache::<Session>::new("session", domain)?;
//! let session = cache.alloc()?;
//! // SAFETY: allocated and not yet freed.
//! unsafe { session.as_ref() }.id.store(7, Ordering::Relaxed);
//! let current = AtomicPtr::new(session.as_ptr());
//! {
//!     let _section = domain.read();
//!     // SAFETY: found inside the section, so it stays a Session until the section ends, perhaps another one: a reader
//!     // that needs to know takes a reference and looks at `current` again.
//!     let found = unsafe { &*current.load(Ordering::Acquire) };
//!     assert_eq!(found.id.load(Ordering::Relaxed), 7);
//! }
//! current.store(core::ptr::null_mut(), Ordering::Release);
//! // SAFETY: allocated above; its owner is done with it, and no one can find it any more.
//! unsafe { cache.free(session) };
//! # Ok::<(), quietline_slab::CacheError>(())
//! ```
//!
//! # Guarantees
//!
//! * Each object is in exactly one place: with a user, in a sheaf, or on its slab's list.
//! * The hit path has no locked instruction and writes only the CPU's own lines and the sheaf's.
//! * [`RawCache::alloc_bulk`] is all or nothing; [`RawCache::free_bulk`] is what single frees would be; freeing never
//!   fails and never needs memory. (Of a cache that does not name its domain, [`RawCache::free_rcu`] waits for a grace period
//!   when there is none and every sheaf there is waits for one.)
//! * In a [`TypesafeCache`], memory stays a `T` while a read section may look at it; constructors run once.
//! * No free and no allocation calls a destructor, a callback, or a release function of another
//!   object. No lock of the cache is held while a hook runs: hooks may use the cache.
//! * Every failure to get memory is an [`AllocError`](quietline_platform::AllocError).
//! * Where the kernel refuses `membarrier` to a thread (a seccomp filter), its calls leave the
//!   CPUs' sheaves alone: nothing is shrunk, [`Control::set_debug`] fails, and
//!   [`RawCache::flush_rcu`] waits until the call is allowed.
//!
//! # Limits
//!
//! * Objects up to 16 KiB. This does not replace the global allocator.
//! * Dropping a cache with objects still out leaks those objects' slabs; with checks on, each is reported.
//! * Memory that lies idle is given back when somebody uses some cache ([`set_decay_interval`]); a process that touches none
//!   keeps what it has until it calls [`decay`] or [`shrink_all`].
//! * Objects freed by [`RawCache::free_rcu`] and typesafe slabs wait until the program runs the
//!   domain's callbacks: see [`rcu`](quietline_sync::rcu) and [`RawCache::set_rcu_limit`].
//! * Empty slabs of a cache with a destructor stay until [`Control::shrink`], [`decay`] or
//!   [`shrink_all`].
//! * What other threads had in hand at a `fork` (a sheaf on its way, a slab being taken from) is lost to the child.
//!
//! # Layers, and lock order
//!
//! ```text
//!   Slot  ─ borrows ─ Cache, owns one object                          its lock
//!   OwnedSlot ─ owns ─ Arc of the Cache, one object
//!   Cache ─ a handle on a Control
//!   Control ─ owns ─ what waits for a grace period                    switch (of checks)
//!     Cpus ─ owns ─ the CPUs' sheaves                                 handshake (drain, stats)
//!       Barn ─ owns ─ sheaves between the CPUs                        piles
//!         Slabs ─ owns ─ slabs                                        partial list
//!           with checks ─ another form of the same                    slabs with checks
//!   slab, partial ─ its list;  full ─ its objects
//!   slab, frozen ─ the thread that takes from it
//!   slab (typesafe, empty) ─ its RCU callback
//! ```
//!
//! Each layer takes objects from the one below, gives objects to it, and drains into it; none knows
//! what is above it. All locks but the switch, which is the outermost, are leaves: no thread holds
//! two, and nothing is called while one is held.

// Pages and callbacks are native; what the model checker can see, its tests take in by path.
#![cfg(not(loom))]

mod account;
mod barn;
mod batch;
mod bulk;
mod cache;
mod control;
mod cpus;
mod debug;
mod deferred;
mod freelist;
mod hook;
mod lazy;
mod name;
mod options;
mod rcu;
mod rcu_cache;
mod reclaim;
mod registry;
mod sheaves;
mod slab;
mod slabinfo;
mod slabs;
mod slot;
mod stats;
mod tunables;
mod typed;
mod typesafe_place;
mod visits;

pub use account::Account;
pub use barn::BARN_LIMIT;
pub use batch::Batch;
pub use bulk::{Entry, GATHER, LOOK_AHEAD};
pub use cache::RawCache;
pub use control::{Control, with_cache};
pub use debug::{
    CallSite, Debug, DebugError, Dump, Invalid, Side, Violation, ViolationKind,
    set_violation_handler,
};
pub use hook::{ContextFn, Hook};
pub use lazy::LazyCache;
pub use name::Name;
pub use options::{CacheError, MAX_OBJECT, Merge, Options};
pub use rcu_cache::{Place, RcuCache, RcuSlot, Unlinked};
pub use reclaim::{decay, memory_used, set_decay_interval, set_memory_limit, shrink_all};
pub use registry::{each_cache, set_merging};
pub use slab::Layout;
pub use slabinfo::{SLABINFO_HEADER, SlabinfoRow, slabinfo};
pub use slot::{OwnedSlot, Slot, SlotOf, VacantSlot};
pub use stats::Stats;
pub use tunables::Tunables;
pub use typed::{Cache, Typesafe, TypesafeCache};
pub use typesafe_place::{Candidate, Counted, Held, TypesafePlace};

#[cfg(test)]
mod tests;
