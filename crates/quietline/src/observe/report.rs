//! What an observer tells.

use quietline_slab::{SlabinfoRow, Stats};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A process and its caches. Fields are only ever added.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// The process.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
    /// Bytes of slabs that all its caches use.
    pub memory: usize,
    /// Its caches, oldest first.
    pub caches: Vec<Cache>,
}

/// A cache: see [`Stats`], which this is for other processes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "those of `Stats` and `Tunables`")]
#[non_exhaustive]
pub struct Cache {
    pub name: String,
    pub size: usize,
    pub object_size: usize,
    pub objects_per_slab: usize,
    pub slab_size: usize,
    pub slabs: usize,
    pub partial_slabs: usize,
    pub places: usize,
    pub active: usize,
    pub cached: usize,
    pub waiting: usize,
    pub aliases: usize,
    pub refills: u64,
    pub flushes: u64,
    pub barn_gets: u64,
    pub barn_puts: u64,
    pub slab_syncs: u64,
    pub rcu_sheaves: u64,
    pub min_objects: usize,
    pub min_order: usize,
    pub min_partial: usize,
    pub cpu_partial: usize,
    pub sheaf_capacity: usize,
    pub look_ahead: usize,
    /// Full sheaves that the barn keeps at least.
    pub barn_limit: usize,
}

impl From<&Stats> for Cache {
    fn from(stats: &Stats) -> Self {
        let tunables = stats.tunables;
        Self {
            name: stats.name.to_string(),
            size: stats.size,
            object_size: stats.object_size,
            objects_per_slab: stats.objects_per_slab,
            slab_size: stats.slab_size,
            slabs: stats.slabs,
            partial_slabs: stats.partial_slabs,
            places: stats.places,
            active: stats.active,
            cached: stats.cached,
            waiting: stats.waiting,
            aliases: stats.aliases,
            refills: stats.refills,
            flushes: stats.flushes,
            barn_gets: stats.barn_gets,
            barn_puts: stats.barn_puts,
            slab_syncs: stats.slab_syncs,
            rcu_sheaves: stats.rcu_sheaves,
            min_objects: tunables.min_objects,
            min_order: tunables.min_order,
            min_partial: tunables.min_partial,
            cpu_partial: tunables.cpu_partial,
            sheaf_capacity: tunables.sheaf_capacity,
            look_ahead: tunables.look_ahead,
            barn_limit: quietline_slab::Options::barn_limit(),
        }
    }
}

impl Cache {
    /// Bytes of its slabs, if all are as those that are made now.
    pub fn memory(&self) -> usize {
        self.slabs.saturating_mul(self.slab_size)
    }

    /// Its line of slabinfo.
    pub fn slabinfo(&self) -> SlabinfoRow<'_> {
        SlabinfoRow {
            name: &self.name,
            active_objs: self.active + self.waiting,
            num_objs: self.places,
            objsize: self.object_size,
            objperslab: self.objects_per_slab,
            pagesperslab: self.slab_size / 4096,
            limit: self.sheaf_capacity,
            batchcount: self.cpu_partial,
            sharedfactor: self.barn_limit,
            active_slabs: self.slabs.saturating_sub(self.partial_slabs),
            num_slabs: self.slabs,
            sharedavail: self.cached,
        }
    }
}

impl Report {
    /// What this process has now.
    pub fn of_this_process() -> Self {
        let program = std::env::current_exe().ok();
        let program =
            program.as_deref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy());
        let mut caches = Vec::new();
        quietline_slab::each_cache(|stats| caches.push(Cache::from(&stats)));
        Self {
            pid: std::process::id(),
            program: program.unwrap_or_default().into_owned(),
            memory: quietline_slab::memory_used(),
            caches,
        }
    }

    /// All caches as `/proc/slabinfo` has them: see [`quietline_slab::slabinfo`].
    ///
    /// # Errors
    /// What `out` returns.
    pub fn slabinfo(&self, out: &mut impl fmt::Write) -> fmt::Result {
        writeln!(out, "{}", quietline_slab::SLABINFO_HEADER)?;
        self.caches.iter().try_for_each(|cache| writeln!(out, "{}", cache.slabinfo()))
    }
}
