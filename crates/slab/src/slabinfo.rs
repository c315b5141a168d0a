//! Caches as text, in the columns of `/proc/slabinfo`.

use crate::options::Options;
use crate::registry;
use crate::stats::Stats;
use core::fmt;
use quietline_platform::pages::PAGE_SIZE;

/// The two lines above the caches, without a line end behind them.
pub const SLABINFO_HEADER: &str = "slabinfo - version: 2.1\n\
    # name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> \
    : tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>";

/// One line of slabinfo, which it is displayed as. What the kernel counts exactly for its oldest allocator, and not at all for
/// its present one, is exact here:
///
/// | column | here |
/// |---|---|
/// | `active_objs` | objects with users, and those that wait for a grace period |
/// | `num_objs` | places for objects in all slabs |
/// | `objsize` | bytes from one object to the next |
/// | `limit` | objects in a sheaf |
/// | `batchcount` | objects that a miss takes out of slabs |
/// | `sharedfactor` | full sheaves that the barn keeps at least |
/// | `active_slabs` | slabs that are not on the partial list: wholly taken |
/// | `sharedavail` | objects in sheaves, ready to be handed out |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "see the table")]
pub struct SlabinfoRow<'a> {
    pub name: &'a str,
    pub active_objs: usize,
    pub num_objs: usize,
    pub objsize: usize,
    pub objperslab: usize,
    pub pagesperslab: usize,
    pub limit: usize,
    pub batchcount: usize,
    pub sharedfactor: usize,
    pub active_slabs: usize,
    pub num_slabs: usize,
    pub sharedavail: usize,
}

impl<'a> From<&'a Stats> for SlabinfoRow<'a> {
    fn from(stats: &'a Stats) -> Self {
        Self {
            name: &stats.name,
            active_objs: stats.active + stats.waiting,
            num_objs: stats.places,
            objsize: stats.object_size,
            objperslab: stats.objects_per_slab,
            pagesperslab: stats.slab_size / PAGE_SIZE,
            limit: stats.tunables.sheaf_capacity,
            batchcount: stats.tunables.cpu_partial,
            sharedfactor: Options::barn_limit(),
            active_slabs: stats.slabs.saturating_sub(stats.partial_slabs),
            num_slabs: stats.slabs,
            sharedavail: stats.cached,
        }
    }
}

impl fmt::Display for SlabinfoRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<17}", Word(self.name))?;
        let (active, objects) = (self.active_objs, self.num_objs);
        write!(
            f,
            " {active:6} {objects:6} {:6} {:4} {:4}",
            self.objsize, self.objperslab, self.pagesperslab
        )?;
        write!(f, " : tunables {:4} {:4} {:4}", self.limit, self.batchcount, self.sharedfactor)?;
        write!(f, " : slabdata {:6} {:6} {:6}", self.active_slabs, self.num_slabs, self.sharedavail)
    }
}

/// A name that is one column: what separates columns or lines becomes an underscore, and no name at all a dash.
struct Word<'a>(&'a str);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        let name = if self.0.is_empty() { "-" } else { self.0 };
        let width = f.width().unwrap_or(0).saturating_sub(name.chars().count());
        let breaks = |c: char| c.is_whitespace() || c.is_control();
        name.chars().try_for_each(|c| f.write_char(if breaks(c) { '_' } else { c }))?;
        (0..width).try_for_each(|_| f.write_char(' '))
    }
}

/// Writes all caches of the process as `/proc/slabinfo` has them, oldest first; the columns are those of [`SlabinfoRow`].
/// Needs no memory but what `out` does. O(caches x CPUs), and a barrier for each cache.
///
/// ```
/// # let _cache = quietline_slab::Cache::<u64>::new("numbers").unwrap();
/// let mut text = String::new();
/// quietline_slab::slabinfo(&mut text).unwrap();
/// assert!(text.starts_with("slabinfo - version: 2.1\n# name "));
/// assert!(text.contains("\nnumbers "));
/// ```
///
/// # Errors
/// What `out` returns.
pub fn slabinfo(out: &mut impl fmt::Write) -> fmt::Result {
    writeln!(out, "{SLABINFO_HEADER}")?;
    let mut result = Ok(());
    registry::each_cache(|stats| {
        if result.is_ok() {
            result = writeln!(out, "{}", SlabinfoRow::from(&stats));
        }
    });
    result
}
