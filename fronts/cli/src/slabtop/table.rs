//! The caches as a table, in the columns and orders of procps' slabtop.

use std::cmp::Reverse;
use std::fmt::Write;

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use quietline::observe::{Cache, Report};

/// The orders of slabtop, by their letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// Most active objects
    #[value(name = "a")]
    Active,
    /// Most objects in a slab
    #[value(name = "b")]
    ObjectsPerSlab,
    /// Largest cache
    #[value(name = "c")]
    CacheSize,
    /// Most slabs
    #[value(name = "l")]
    Slabs,
    /// Most slabs that are not partial
    #[value(name = "v")]
    ActiveSlabs,
    /// Name
    #[value(name = "n")]
    Name,
    /// Most objects
    #[value(name = "o")]
    Objects,
    /// Largest slabs
    #[value(name = "p")]
    PagesPerSlab,
    /// Largest objects
    #[value(name = "s")]
    ObjectSize,
    /// Best used
    #[value(name = "u")]
    Use,
}

pub(super) const COLUMNS: [&str; 10] = [
    "OBJS",
    "ACTIVE",
    "USE",
    "CACHED",
    "WAITING",
    "OBJ SIZE",
    "SLABS",
    "OBJ/SLAB",
    "CACHE SIZE",
    "NAME",
];

/// The caches in order; those that are equal in it, by name.
pub(super) fn sorted(report: &Report, sort: Sort) -> Vec<&Cache> {
    let key = |cache: &Cache| match sort {
        Sort::Active => cache.active,
        Sort::ObjectsPerSlab => cache.objects_per_slab,
        Sort::CacheSize => cache.memory(),
        Sort::Slabs => cache.slabs,
        Sort::ActiveSlabs => cache.slabs.saturating_sub(cache.partial_slabs),
        Sort::Name => 0,
        Sort::Objects => cache.places,
        Sort::PagesPerSlab => cache.slab_size,
        Sort::ObjectSize => cache.object_size,
        Sort::Use => percent(cache.active, cache.places) as usize,
    };
    let mut caches: Vec<_> = report.caches.iter().collect();
    caches.sort_by(|a, b| Reverse(key(a)).cmp(&Reverse(key(b))).then_with(|| a.name.cmp(&b.name)));
    caches
}

pub(super) fn cells(cache: &Cache) -> [String; COLUMNS.len()] {
    // What a name holds must not reach the terminal as an order to it.
    let name = cache.name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    [
        cache.places.to_string(),
        cache.active.to_string(),
        format!("{}%", percent(cache.active, cache.places)),
        cache.cached.to_string(),
        cache.waiting.to_string(),
        bytes(cache.object_size),
        cache.slabs.to_string(),
        cache.objects_per_slab.to_string(),
        bytes(cache.memory()),
        name,
    ]
}

/// The lines above the table.
pub(super) fn summary(report: &Report) -> String {
    let sum = |of: fn(&Cache) -> usize| report.caches.iter().map(of).sum::<usize>();
    let part = |active: usize, all: usize| format!("{active} / {all} ({}%)", percent(active, all));
    let used = sum(|cache| cache.active * cache.object_size);
    let memory = sum(Cache::memory);
    let live = report.caches.iter().filter(|cache| cache.active > 0).count();
    let mut text =
        format!(" Process                            : {} ({})\n", report.pid, report.program);
    let _ = write!(
        text,
        " Active / Total Objects (% used)    : {}\n \
         Active / Total Slabs (% used)      : {}\n \
         Active / Total Caches (% used)     : {}\n \
         Active / Total Size (% used)       : {} / {} ({}%)\n",
        part(sum(|cache| cache.active), sum(|cache| cache.places)),
        part(
            sum(|cache| cache.slabs.saturating_sub(cache.partial_slabs)),
            sum(|cache| cache.slabs)
        ),
        part(live, report.caches.len()),
        bytes(used),
        bytes(memory),
        percent(used, memory)
    );
    text
}

/// All of it, for a terminal that is not cleared and for files.
pub(super) fn once(report: &Report, sort: Sort) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(COLUMNS);
    for cache in sorted(report, sort) {
        table.add_row(cells(cache));
    }
    for column in table.column_iter_mut().take(COLUMNS.len() - 1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{}\n{}\n", summary(report), table.trim_fmt())
}

fn percent(part: usize, all: usize) -> u64 {
    (part as u64 * 100).checked_div(all as u64).unwrap_or(0)
}

/// Bytes as slabtop shows them: with two decimals below a MiB, whole above.
fn bytes(bytes: usize) -> String {
    let kib = bytes as f64 / 1024.0;
    if kib < 1024.0 { format!("{kib:.2}K") } else { format!("{kib:.0}K") }
}
