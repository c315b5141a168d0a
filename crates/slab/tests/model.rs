//! Property 10: random operations on two caches, held against what a map says.
#![cfg(not(loom))]

mod support;

use quietline_slab::{Entry, Options, RawCache};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::time::{Duration, Instant};
use support::{Random, allowed_cpus, fill, is_filled, pin};

/// A cache, and what is out of it: each object, and the byte that fills it.
struct Tested {
    cache: RawCache,
    size: usize,
    out: BTreeMap<NonNull<u8>, u8>,
}

impl Tested {
    fn new(random: &mut Random) -> Self {
        let size = [0, 1, 8, 24, 64, 192, 600, 4096, 9000][random.below(9)];
        let options = Options {
            sheaf_capacity: [0, 1, 2, 5, 40][random.below(5)],
            min_partial: random.below(7),
            min_objects: 1 + random.below(40),
            min_order: random.below(4) as u32,
            ..Options::new("model", size, 1 << random.below(8))
        };
        Self { cache: RawCache::new(options).unwrap(), size, out: BTreeMap::new() }
    }

    fn came(&mut self, object: NonNull<u8>, random: &mut Random) {
        let byte = random.next() as u8;
        fill(object, self.size, byte);
        assert!(self.out.insert(object, byte).is_none(), "given out twice");
        let near = |other: Option<(&NonNull<u8>, _)>| other.map(|(other, _)| other.addr().get());
        let address = object.addr().get();
        if let Some(below) = near(self.out.range(..object).next_back()) {
            assert!(below + self.size <= address, "overlap");
        }
    }

    /// One that is out, its content checked.
    fn goes(&mut self, random: &mut Random) -> Entry {
        let from = NonNull::new((random.next() >> 17) as *mut u8)?;
        let object = *self.out.range(from..).next().or(self.out.iter().next())?.0;
        let byte = self.out.remove(&object).unwrap();
        assert!(is_filled(object, self.size, byte), "somebody else wrote to it");
        Some(object)
    }

    fn step(&mut self, random: &mut Random) {
        let many = [1, 2, 3, 7, 20, 70, 300][random.below(7)];
        // Grows when small, shrinks when large.
        let grow = random.below(2000) > self.out.len();
        match random.below(12) {
            0..5 if grow => {
                let object = self.cache.alloc().unwrap();
                self.came(object, random);
            }
            0..5 => {
                if let Some(object) = self.goes(random) {
                    // SAFETY: it was out.
                    unsafe { self.cache.free(object) };
                }
            }
            5..10 if grow => {
                let mut objects = vec![None; many];
                self.cache.alloc_bulk(&mut objects).unwrap();
                objects.into_iter().for_each(|object| self.came(object.unwrap(), random));
            }
            5..10 => {
                let mut objects: Vec<Entry> =
                    (0..many).map(|_| if random.below(9) > 0 { self.goes(random) } else { None }).collect();
                // SAFETY: they were out.
                unsafe { self.cache.free_bulk(&mut objects) };
                assert!(objects.iter().all(Option::is_none));
            }
            10 if random.below(20) == 0 => self.cache.shrink(),
            _ => {
                let stats = self.cache.stats();
                assert_eq!(stats.active, self.out.len(), "{stats:?}");
                assert!(stats.active + stats.cached <= stats.slabs * stats.objects_per_slab, "{stats:?}");
            }
        }
    }
}

fn run(seed: u64, cpus: &[usize]) {
    let mut random = Random::new(seed);
    let mut caches = [Tested::new(&mut random), Tested::new(&mut random)];
    for _ in 0..3000 {
        if random.below(50) == 0 {
            pin(cpus[random.below(cpus.len())]);
        }
        caches[random.below(2)].step(&mut random);
    }
    for mut tested in caches {
        while let Some(object) = tested.goes(&mut random) {
            // SAFETY: it was out.
            unsafe { tested.cache.free(object) };
        }
        tested.cache.shrink();
        let stats = tested.cache.stats();
        assert_eq!((stats.active, stats.cached, stats.slabs), (0, 0, 0), "seed {seed}");
    }
}

/// For two seconds, from a seed that a failure names (`QUIETLINE_SEED` repeats it).
#[test]
fn random_operations() {
    let cpus = allowed_cpus();
    if let Ok(seed) = std::env::var("QUIETLINE_SEED") {
        return run(seed.parse().unwrap(), &cpus);
    }
    let start = Instant::now();
    let mut runs = 0;
    for seed in 1.. {
        let result = std::panic::catch_unwind(|| run(seed, &cpus));
        if let Err(panic) = result {
            eprintln!("QUIETLINE_SEED={seed} repeats this");
            std::panic::resume_unwind(panic);
        }
        runs += 1;
        if start.elapsed() > Duration::from_secs(2) {
            break;
        }
    }
    assert!(runs >= 3, "only {runs} runs in two seconds");
}
