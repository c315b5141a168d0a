//! Who hands out objects in the `slab` workload: SLUB of 2015, the peers that this was built with, quietline.

use std::sync::Arc;

use quietline_platform::atomic::{AtomicBool, Ordering};

use crate::harness::{Arena, Column, Fault, Seat, Shape, Unfit, Worker};
use crate::raw::slab::heaps::{glibc, history, malloc, null, quietline};
use crate::raw::slab::{
    self, Bulk, Churn, Global, Held, Lanes, Random, Remote, Run, Scattered, Single, Source,
};
use crate::workloads::{Job, Pattern, Slab};

/// No allocator, SLUB, the peers, quietline without sheaves, quietline.
pub fn columns() -> Vec<Arc<dyn Column>> {
    let first = [
        Implementation {
            name: "null",
            says: "no allocator but a stack for each thread (remote: a count): the cost of hash, ring and dice",
            does: has_work_of_its_own,
            open: open_null,
        },
        everywhere(
            "history-4.2",
            "SLUB of Linux 4.2: a locked exchange for each object that leaves",
            open::<history::History<history::Linux42>>,
        ),
        everywhere(
            "history-detached-simple",
            "the same with the seed's second patch: neighbours of one slab go home together",
            open::<history::History<history::Simple>>,
        ),
        everywhere(
            "history-detached-lookahead",
            "the same with its third: so do objects with up to two strangers between",
            open::<history::History<history::LookAhead>>,
        ),
        everywhere(
            "peer-glibc",
            "malloc and free of the C library",
            open::<malloc::Malloc<glibc::Glibc>>,
        ),
    ];
    let last = [
        everywhere(
            "quietline-slabs-simple",
            "a cache without sheaves; a bulk free groups neighbours of one slab",
            open::<quietline::Quietline<quietline::SlabsSimple>>,
        ),
        everywhere(
            "quietline-slabs",
            "a cache without sheaves; a bulk free looks past two strangers ahead",
            open::<quietline::Quietline<quietline::Slabs>>,
        ),
        everywhere("quietline", "a cache", open::<quietline::Quietline<quietline::Sheaves>>),
    ];
    let all = first.into_iter().chain(peers()).chain(last);
    all.map(|column| Arc::new(column) as Arc<dyn Column>).collect()
}

/// The peers behind cargo features.
fn peers() -> Vec<Implementation> {
    vec![
        #[cfg(feature = "peer-jemalloc")]
        everywhere(
            "peer-jemalloc",
            "jemalloc (tikv-jemalloc-sys): malloc and sdallocx",
            open::<malloc::Malloc<slab::heaps::jemalloc::Jemalloc>>,
        ),
        #[cfg(feature = "peer-jemalloc")]
        Implementation {
            does: allocates_in_bulk,
            ..everywhere(
                "peer-jemalloc-batch",
                "the same with experimental.batch_alloc where many are allocated",
                open::<slab::heaps::jemalloc::JemallocBatch>,
            )
        },
        #[cfg(feature = "peer-mimalloc")]
        everywhere(
            "peer-mimalloc",
            "mimalloc (libmimalloc-sys): mi_malloc and mi_free",
            open::<malloc::Malloc<slab::heaps::mimalloc::Mimalloc>>,
        ),
        #[cfg(feature = "peer-snmalloc")]
        everywhere(
            "peer-snmalloc",
            "snmalloc (snmalloc-sys): sized alloc and dealloc",
            open::<malloc::Malloc<slab::heaps::snmalloc::Snmalloc>>,
        ),
        #[cfg(feature = "peer-tcmalloc")]
        everywhere(
            "peer-tcmalloc",
            "Google's tcmalloc (libtcmalloc-sys): sized new and delete",
            open::<malloc::Malloc<slab::heaps::tcmalloc::Tcmalloc>>,
        ),
        #[cfg(feature = "peer-sharded-slab")]
        everywhere(
            "peer-sharded-slab",
            "the crate sharded-slab: insert and remove by key",
            open_sharded_slab,
        ),
        #[cfg(feature = "peer-dpdk")]
        everywhere(
            if slab::heaps::dpdk::has_huge_pages() { "peer-dpdk-huge" } else { "peer-dpdk" },
            "DPDK's mempool: get_bulk, put_bulk, a cache for each thread; -huge: on huge pages",
            open::<slab::heaps::dpdk::Dpdk>,
        ),
    ]
}

/// A column: who it is, which patterns it has, how an arena is made.
struct Implementation {
    name: &'static str,
    says: &'static str,
    does: fn(Pattern) -> bool,
    open: fn(Slab, usize) -> Opened,
}

type Opened = Result<Arc<dyn Arena>, Unfit>;

/// A column that has every pattern.
fn everywhere(
    name: &'static str,
    says: &'static str,
    open: fn(Slab, usize) -> Opened,
) -> Implementation {
    Implementation { name, says, does: |_| true, open }
}

fn has_work_of_its_own(pattern: Pattern) -> bool {
    !matches!(pattern, Pattern::Pair | Pattern::Bulk(_) | Pattern::Single(_) | Pattern::Global(_))
}

#[cfg(feature = "peer-jemalloc")]
fn allocates_in_bulk(pattern: Pattern) -> bool {
    !matches!(pattern, Pattern::Pair | Pattern::Single(_) | Pattern::Churn)
}

fn open_null(slab: Slab, threads: usize) -> Opened {
    match slab.pattern {
        Pattern::Remote => open::<null::Count>(slab, threads),
        _ => open::<null::Stacks>(slab, threads),
    }
}

#[cfg(feature = "peer-sharded-slab")]
fn open_sharded_slab(slab: Slab, threads: usize) -> Opened {
    use crate::raw::slab::heaps::sharded_slab::ShardedSlab;
    match slab.size {
        64 => open::<ShardedSlab<64>>(slab, threads),
        192 => open::<ShardedSlab<192>>(slab, threads),
        224 => open::<ShardedSlab<224>>(slab, threads),
        256 => open::<ShardedSlab<256>>(slab, threads),
        other => Err(Unfit::Missing(format!("not compiled for objects of {other} bytes"))),
    }
}

impl Column for Implementation {
    fn name(&self) -> &str {
        self.name
    }

    fn says(&self) -> &str {
        self.says
    }

    fn shape(&self) -> Shape {
        Shape::NoTable
    }

    fn does(&self, job: Job) -> bool {
        matches!(job, Job::Slab(slab) if (self.does)(slab.pattern))
    }

    fn open(&self, job: Job, threads: usize) -> Opened {
        let missing = || Unfit::Missing("it has no such pattern".to_owned());
        let Job::Slab(slab) = job else { return Err(missing()) };
        if slab.pattern == Pattern::Remote {
            let pairs = threads > 0 && threads.is_multiple_of(2);
            return if pairs {
                (self.open)(slab, threads)
            } else {
                Err(Unfit::Missing("it takes two threads, or a multiple".to_owned()))
            };
        }
        let arena = (self.open)(slab, threads)?;
        let mut worker = arena.worker(Seat { thread: 0, threads })?;
        worker.run(PROOF, &AtomicBool::new(false))?;
        worker.check()?;
        arena.settle()?;
        drop(worker);
        arena.settle()?;
        Ok(arena)
    }
}

/// Objects that prove a column before it is timed: enough to fill and refill what is kept per CPU.
const PROOF: u64 = 5_000;

/// One source for all threads, and how a thread gets its pattern.
struct Stand<S, M> {
    source: Arc<S>,
    size: usize,
    held: Held,
    pattern: M,
}

impl<S, M, P> Arena for Stand<S, M>
where
    S: Source,
    M: Fn(Seat) -> P + Send + Sync,
    P: slab::Pattern,
{
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let pattern = (self.pattern)(seat);
        Ok(Box::new(Run::new(self.source.clone(), seat, self.size, self.held.clone(), pattern)?))
    }

    fn settle(&self) -> Result<(), Fault> {
        // Relaxed: no worker runs, and the channels to them order what they did.
        let held = self.held.load(Ordering::Relaxed);
        let active = self.source.active().unwrap_or(held);
        Fault::unless(active == held, || format!("{active} objects allocated, {held} held"))
    }
}

/// The arena of one pattern. Each number of objects is a loop compiled for it.
fn open<S: Source>(slab: Slab, threads: usize) -> Opened {
    macro_rules! sized {
        ($kind:ident, $count:expr, $($size:literal)*) => {
            match $count {
                $($size => arena::<S, _, _>(slab, threads, |_| $kind::<$size>),)*
                other => Err(Unfit::Missing(format!("not compiled for {other} objects"))),
            }
        };
    }
    match slab.pattern {
        Pattern::Pair => arena::<S, _, _>(slab, threads, |_| Single::<1>),
        Pattern::Bulk(count) => sized!(Bulk, count, 1 2 3 4 8 16 30 32 34 48 64 128 158 250),
        Pattern::Single(count) => sized!(Single, count, 1 2 3 4 8 16 30 32 34 48 64 128 158 250),
        Pattern::Random => arena::<S, _, _>(slab, threads, Random::new),
        Pattern::Global(count) => arena::<S, _, _>(slab, threads, move |_| Global::new(count)),
        Pattern::Scattered => arena::<S, _, _>(slab, threads, |_| Scattered::new(0)),
        Pattern::EveryNth(every) => arena::<S, _, _>(slab, threads, move |_| Scattered::new(every)),
        Pattern::Churn => arena::<S, _, _>(slab, threads, Churn::new),
        Pattern::Remote => {
            let lanes = Lanes::new(threads);
            arena::<S, _, _>(slab, threads, move |seat| Remote::new(&lanes, seat))
        }
    }
}

fn arena<S, M, P>(slab: Slab, threads: usize, pattern: M) -> Opened
where
    S: Source,
    M: Fn(Seat) -> P + Send + Sync + 'static,
    P: slab::Pattern,
{
    let source = Arc::new(S::new(slab.size, threads)?);
    Ok(Arc::new(Stand { source, size: slab.size, held: Held::default(), pattern }))
}
