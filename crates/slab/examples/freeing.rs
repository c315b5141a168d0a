//! The cost of freeing after a grace period, after Piggin's question of 2010: an object alone,
//! without a file system around it.
//!
//! An inode-like object of 576 bytes is made, initialised as a new inode is, and freed: at once (what was before); by a callback
//! for each object (what Linux merged); into memory that keeps its type, reused at once (what was put off); by sheaves that wait
//! whole (`free_rcu`, what Linux came to). Alone, as create and unlink in turn; and 1,000 made, then 1,000 freed. Interleaved
//! rounds, nanoseconds for each object: minimum, median, maximum, and the median against freeing at once.
//!
//! ```text
//! cargo run --release -p quietline-slab --example freeing
//! ```

use core::ptr::NonNull;
use quietline_slab::{Options, RawCache};
use quietline_sync::rcu;
use std::time::Instant;

const SIZE: usize = 576;
const OBJECTS: usize = 200_000;
const ROUNDS: usize = 11;

/// How an object begins: what a callback needs.
#[repr(C)]
struct Inode {
    head: rcu::Head,
    cache: *const RawCache,
    fields: [u64; 24],
}

type Free = fn(&RawCache, NonNull<Inode>);

fn make(cache: &RawCache, number: u64) -> NonNull<Inode> {
    let inode = cache.alloc().expect("memory for the experiment").cast::<Inode>();
    // SAFETY: fresh memory, larger than an Inode.
    unsafe { inode.write(Inode { head: rcu::Head::new(), cache, fields: [number; 24] }) };
    inode
}

fn at_once(cache: &RawCache, inode: NonNull<Inode>) {
    // SAFETY: made by `make` from this cache, and freed once.
    unsafe { cache.free(inode.cast()) };
}

fn by_sheaf(cache: &RawCache, inode: NonNull<Inode>) {
    // SAFETY: as in `at_once`.
    unsafe { cache.free_rcu(inode.cast()) };
}

fn by_callback(_: &RawCache, inode: NonNull<Inode>) {
    unsafe fn free(head: NonNull<rcu::Head>) {
        let inode = head.cast::<Inode>();
        // SAFETY: the head is the first field of an inode whose cache waits for all callbacks before it goes.
        unsafe { (*inode.as_ref().cache).free(inode.cast()) };
    }
    // SAFETY: the head is ours and is freed by the callback only.
    unsafe { rcu::global().expect("a domain").call(inode.cast(), free) };
}

fn round(cache: &RawCache, batch: usize, free: Free) -> f64 {
    let domain = rcu::global().expect("a domain");
    let mut made = Vec::with_capacity(batch);
    let start = Instant::now();
    for first in (0..OBJECTS).step_by(batch) {
        for number in first..first + batch {
            made.push(make(cache, number as u64));
        }
        for (i, inode) in made.drain(..).enumerate() {
            // SAFETY: ours until it is freed.
            assert_eq!(unsafe { inode.as_ref() }.fields[7], (first + i) as u64, "given out twice");
            free(cache, inode);
            if domain.is_pending() {
                rcu::run_pending(&[domain]);
            }
        }
    }
    start.elapsed().as_nanos() as f64 / OBJECTS as f64
}

fn main() {
    let domain = rcu::global().expect("a domain");
    let options = Options::new("inode", SIZE, 64);
    let cache = |options| RawCache::new(options).expect("memory for a cache");
    let columns: [(&str, RawCache, Free); 4] = [
        ("at once", cache(options), at_once),
        ("callback each", cache(options), by_callback),
        ("typesafe", cache(Options { typesafe: Some(domain), ..options }), at_once),
        ("sheaves", cache(options), by_sheaf),
    ];
    println!("batch  freed          ns: min median max   median / at once");
    for batch in [1, 1000] {
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            for (i, (_, cache, free)) in columns.iter().enumerate() {
                times[i].push(round(cache, batch, *free));
            }
        }
        let mut first = 0.0;
        for (i, (name, cache, _)) in columns.iter().enumerate() {
            domain.barrier();
            cache.flush_rcu();
            assert_eq!(cache.stats().active, 0, "everything came back");
            times[i].sort_by(f64::total_cmp);
            let t = &times[i];
            if i == 0 {
                first = t[ROUNDS / 2];
            }
            let ratio = t[ROUNDS / 2] / first;
            println!(
                "{batch:5}  {name:13}  {:8.2} {:6.2} {:6.2}   {ratio:6.2}",
                t[0],
                t[ROUNDS / 2],
                t[ROUNDS - 1]
            );
        }
    }
}
