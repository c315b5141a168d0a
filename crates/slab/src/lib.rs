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
//!        |  whole sheaves, under the barn's lock
//!   barn                                up to 10 full and 10 empty sheaves
//!        |  groups of one slab's objects, one compare-and-exchange on the slab's word
//!   slabs                               full (on no list), partial (listed), frozen (being taken from)
//!        |  blocks
//!   pages                               quietline_platform::pages
//! ```
//!
//! An object freed on another CPU than it was allocated on goes to the freeing CPU's sheaf like any other; a full
//! sheaf wanders through the barn to a CPU that needs objects. So a remote free costs what a local one costs.
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
//!   fails and never needs memory.
//! * In a [`TypesafeCache`], memory stays a `T` while a read section may look at it; constructors run once.
//! * Every failure to get memory is an [`AllocError`](quietline_platform::AllocError).
//!
//! # Limits
//!
//! * Objects up to 16 KiB. This does not replace the global allocator.
//! * Dropping a cache with objects still out leaks those objects' slabs.
//! * Giving a typesafe slab back is an RCU callback: a free that does so may run other callbacks that are due, as
//!   [`rcu::Domain::call`](quietline_sync::rcu::Domain::call) says. No lock of the cache is held then, nor while a
//!   constructor or destructor runs: all of them may use the cache.
//! * What other threads had in hand at a `fork` (a sheaf on its way, a slab being taken from) is lost to the child.
//!
//! # Who holds what, and lock order
//!
//! ```text
//!   Cache ─ owns ─ slabs, barn, the CPUs' sheaves           handshake (shrink, stats)
//!   Slot  ─ borrows ─ Cache, owns one object                barn
//!   slab, partial ─ its list;  full ─ its objects           partial list
//!   slab, frozen ─ the thread that takes from it            all three are leaves: never nested, and
//!   slab (typesafe, empty) ─ its RCU callback               nothing is called while one is held
//! ```

// Pages and callbacks are native; what the model checker can see, its tests take in by path.
#![cfg(not(loom))]

mod barn;
mod bulk;
mod cache;
mod freelist;
mod options;
mod sheaves;
mod slab;
mod stats;
mod typed;

pub use barn::BARN_LIMIT;
pub use bulk::{Entry, LOOK_AHEAD};
pub use cache::RawCache;
pub use options::{CacheError, MAX_OBJECT, Options};
pub use slab::{Hook, Layout};
pub use stats::Stats;
pub use typed::{Cache, Slot, Typesafe, TypesafeCache};

#[cfg(test)]
mod tests;
