//! Caches that somebody knows by their numbers only, as `/sys/kernel/slab` does.

use crate::inner::Inner;
use crate::options::CacheError;
use crate::registry;
use crate::stats::Stats;
use crate::tunables::Tunables;

/// A cache that lives as long as it is borrowed.
#[derive(Debug)]
pub struct Control<'a>(&'a Inner);

impl Control<'_> {
    /// What it holds now.
    pub fn stats(&self) -> Stats {
        Stats::of(self.0)
    }

    /// As [`RawCache::set_tunables`](crate::RawCache::set_tunables).
    ///
    /// # Errors
    /// As there.
    pub fn set_tunables(&self, tunables: Tunables) -> Result<(), CacheError> {
        self.0.set_tunables(tunables)
    }

    /// As [`RawCache::shrink`](crate::RawCache::shrink).
    pub fn shrink(&self) {
        self.0.shrink();
    }

    /// As [`RawCache::validate`](crate::RawCache::validate).
    pub fn validate(&self) -> usize {
        crate::debug::validate(self.0)
    }

    /// Whether objects are checked, so that there is something to validate.
    pub fn is_checked(&self) -> bool {
        self.0.checks.on()
    }
}

/// Calls `f` with the cache that has this [number](Stats::id) in its statistics; none if there is none any more. O(caches).
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
