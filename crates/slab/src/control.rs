//! The operations that all kinds of caches have.

use crate::debug::{self, Debug};
use crate::inner::Inner;
use crate::options::CacheError;
use crate::registry;
use crate::stats::Stats;
use crate::tunables::Tunables;
use quietline_platform::FenceError;

/// A borrowed cache of any kind, without its type: tunables, checks, validation, reclaim,
/// statistics (a directory of `/sys/kernel/slab`).
///
/// [`RawCache`](crate::RawCache), [`Cache`](crate::Cache), [`TypesafeCache`](crate::TypesafeCache)
/// and [`RcuCache`](crate::RcuCache) have a method `control`; [`with_cache`] finds a cache by its
/// number. Everything here applies to all handles of a merged cache.
///
/// ```
/// use quietline_slab::{Cache, Debug, Options, Tunables};
///
/// let options = Options { debug: Debug::RED_ZONE, ..Options::of::<[u64; 8]>("example") };
/// let cache = Cache::<[u64; 8]>::with_options(options).unwrap();
/// let control = cache.control();
/// control.set_tunables(Tunables { min_partial: 0, ..control.tunables() }).unwrap();
/// assert_eq!(control.validate(), 0);
/// control.set_debug(Debug::OFF).unwrap();
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Control<'a>(pub(crate) &'a Inner);

impl Control<'_> {
    /// Returns the cache's statistics. O(CPUs), and a barrier on all CPUs.
    pub fn stats(&self) -> Stats {
        Stats::of(self.0)
    }

    /// Returns the tunables in force.
    pub fn tunables(&self) -> Tunables {
        self.0.tunables()
    }

    /// Sets the tunables: see [`RawCache::set_tunables`](crate::RawCache::set_tunables).
    ///
    /// # Errors
    /// [`CacheError`] if no object fits; nothing is changed.
    pub fn set_tunables(&self, tunables: Tunables) -> Result<(), CacheError> {
        self.0.set_tunables(tunables)
    }

    /// Frees cached memory: see [`RawCache::shrink`](crate::RawCache::shrink). Needs no memory.
    pub fn shrink(&self) {
        self.0.shrink();
    }

    /// Returns the checks in force: those that were [set](Self::set_debug), those that they
    /// include, without those that the cache cannot have.
    pub fn debug(&self) -> Debug {
        self.0.checks.flags()
    }

    /// Switches checks on or off: see [`RawCache::set_debug`](crate::RawCache::set_debug).
    ///
    /// # Errors
    /// [`FenceError`] if the kernel refuses `membarrier` while checks are switched on; nothing is
    /// changed.
    pub fn set_debug(&self, debug: Debug) -> Result<(), FenceError> {
        self.0.set_debug(debug)
    }

    /// Checks all objects, in use and free, and reports each violation. Returns the number of
    /// violations; 0 while checks are off. O(bytes) under the cache's lock.
    pub fn validate(&self) -> usize {
        debug::validate(self.0)
    }
}

/// Calls `f` with the cache that has this [number](Stats::id) in its statistics. Returns `None` if
/// there is no such cache any more. O(caches).
pub fn with_cache<R>(id: usize, f: impl FnOnce(&Control<'_>) -> R) -> Option<R> {
    let (mut f, mut done) = (Some(f), None);
    registry::each_where(
        |cache| core::ptr::from_ref(cache).addr() == id,
        |cache| {
            if let Some(f) = f.take() {
                done = Some(f(&Control(cache)));
            }
        },
    );
    done
}
