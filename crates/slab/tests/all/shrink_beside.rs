//! Property 10 while another thread takes all sheaves away, again and again.
#![cfg(not(loom))]

use quietline_slab::{Entry, Options, RawCache};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Sizes of bulks: within a sheaf, around it, and beyond what the barn holds.
const SIZES: [usize; 8] = [1, 2, 3, 8, 15, 16, 40, 700];

#[test]
fn nothing_is_lost() {
    quietline_testing::isolated!();
    quietline_slab::set_decay_interval(Duration::ZERO);
    let cache =
        RawCache::new(Options { sheaf_capacity: 16, ..Options::new("shrink", 64, 8) }).unwrap();
    let rounds = if cfg!(debug_assertions) { 3_000 } else { 30_000 };
    for users in [1, 2] {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let shrinker = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    cache.shrink();
                }
            });
            let workers: Vec<_> = (0..users)
                .map(|me| {
                    let cache = &cache;
                    scope.spawn(move || {
                        for round in 0..rounds {
                            let mut objects: Vec<Entry> =
                                vec![None; SIZES[(round + me) % SIZES.len()]];
                            cache.alloc_bulk(&mut objects).unwrap();
                            let mark = (me * rounds + round) as u64;
                            for object in objects.iter().flatten() {
                                // SAFETY: allocated above, 64 bytes.
                                unsafe { object.cast::<u64>().write(mark) };
                            }
                            if round % 3 == 0 {
                                for entry in &mut objects {
                                    // SAFETY: allocated above, and freed once.
                                    unsafe { cache.free(entry.take().unwrap()) };
                                }
                            }
                            for object in objects.iter().flatten() {
                                // SAFETY: still ours.
                                let found = unsafe { object.cast::<u64>().read() };
                                assert_eq!(found, mark, "given out twice");
                            }
                            // SAFETY: allocated above, each once.
                            unsafe { cache.free_bulk(&mut objects) };
                        }
                    })
                })
                .collect();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            done.store(true, Ordering::Relaxed);
            shrinker.join().unwrap();
        });
        assert_eq!(cache.stats().active, 0, "{users} threads: {:?}", cache.stats());
        cache.shrink();
        assert_eq!(cache.stats().slabs, 0);
    }
}
