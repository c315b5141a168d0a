//! Whose memory is measured, and how each is asked to give back what is free.

use super::{Case, Readings};
use crate::harness::Unfit;
use crate::raw::memory::{self, measure};
use crate::raw::slab::heaps::malloc::Malloc;
use crate::raw::slab::heaps::{glibc, quietline};

/// A source of objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    /// The call that gives back what is free, for people; none if there is none.
    pub(crate) purge: Option<&'static str>,
    pub(crate) measure: fn(Case) -> Result<Readings, Unfit>,
}

/// quietline, the C library, and the peers that this was built with. (Not DPDK's mempool and the old kernels' caches, whose
/// memory is mapped whole when they are made.)
pub(super) fn all() -> Vec<Subject> {
    vec![
        Subject {
            name: "quietline",
            purge: Some("shrink"),
            measure: |case| measure::<quietline::Quietline<quietline::Sheaves>>(case, shrink),
        },
        Subject {
            name: "quietline-slabs",
            purge: Some("shrink"),
            measure: |case| measure::<quietline::Quietline<quietline::Slabs>>(case, shrink),
        },
        Subject {
            name: "peer-glibc",
            purge: Some("malloc_trim(0)"),
            measure: |case| measure::<Malloc<glibc::Glibc>>(case, memory::trim_glibc),
        },
        #[cfg(feature = "peer-jemalloc")]
        Subject {
            name: "peer-jemalloc",
            purge: Some("thread.tcache.flush, arena.all.purge"),
            measure: |case| {
                use crate::raw::slab::heaps::jemalloc::Jemalloc;
                measure::<Malloc<Jemalloc>>(case, memory::purge_jemalloc)
            },
        },
        #[cfg(feature = "peer-mimalloc")]
        Subject {
            name: "peer-mimalloc",
            purge: Some("mi_collect(true)"),
            measure: |case| {
                use crate::raw::slab::heaps::mimalloc::Mimalloc;
                measure::<Malloc<Mimalloc>>(case, memory::collect_mimalloc)
            },
        },
        #[cfg(feature = "peer-snmalloc")]
        Subject {
            name: "peer-snmalloc",
            purge: None,
            measure: |case| {
                measure::<Malloc<crate::raw::slab::heaps::snmalloc::Snmalloc>>(case, nothing)
            },
        },
        #[cfg(feature = "peer-tcmalloc")]
        Subject {
            name: "peer-tcmalloc",
            purge: None,
            measure: |case| {
                measure::<Malloc<crate::raw::slab::heaps::tcmalloc::Tcmalloc>>(case, nothing)
            },
        },
        #[cfg(feature = "peer-sharded-slab")]
        Subject { name: "peer-sharded-slab", purge: None, measure: sharded_slab },
    ]
}

fn shrink() {
    quietline_slab::shrink_all();
}

#[cfg(any(feature = "peer-snmalloc", feature = "peer-tcmalloc", feature = "peer-sharded-slab"))]
fn nothing() {}

#[cfg(feature = "peer-sharded-slab")]
fn sharded_slab(case: Case) -> Result<Readings, Unfit> {
    use crate::raw::slab::heaps::sharded_slab::ShardedSlab;
    match case.size {
        64 => measure::<ShardedSlab<64>>(case, nothing),
        192 => measure::<ShardedSlab<192>>(case, nothing),
        224 => measure::<ShardedSlab<224>>(case, nothing),
        256 => measure::<ShardedSlab<256>>(case, nothing),
        other => Err(Unfit::Missing(format!("not compiled for objects of {other} bytes"))),
    }
}
