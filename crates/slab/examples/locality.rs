//! What a per-CPU stack does to slab locality, and what gives it back: the experiment behind docs/adr/0011.
//!
//! Objects are freed in an order that is shuffled within a window, as packets of many flows are. Then their memory goes back to
//! the slabs a sheaf's worth at a time, by Brouer's two scans (look-ahead 1 and 3), by a longer one, and gathered by slab. For
//! each: compare-and-exchanges on slabs for each object (exact), and nanoseconds for each object (interleaved rounds, median
//! and spread). Last column: allocating the objects again through sheaves and writing to them, in the shuffled order in which
//! they came back, against the order in which slabs hand them out: what Brouer feared for the users of such objects.
//!
//! ```text
//! cargo run --release -p quietline-slab --example locality
//! ```

use quietline_slab::{Entry, GATHER, Options, RawCache};
use std::time::Instant;

const OBJECTS: usize = 16 << 10;
const ROUNDS: usize = 11;
const SCANS: [(&str, usize); 4] = [("1", 1), ("3", 3), ("16", 16), ("gather", GATHER)];

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % n as u64) as usize
    }
}

/// Swaps each entry with one less than `window` places on.
fn shuffle(objects: &mut [Entry], window: usize, random: &mut Random) {
    for i in 0..objects.len() {
        let other = (i + random.below(window)).min(objects.len() - 1);
        objects.swap(i, other);
    }
}

fn median(times: &mut [f64]) -> (f64, f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2], times[times.len() - 1])
}

/// Nanoseconds for each of `n`.
fn per_object(n: usize, f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_nanos() as f64 / n as f64
}

/// Frees a shuffled array to the slabs, a sheaf's worth at a time: changes of slab words, nanoseconds.
fn free_shuffled(cache: &RawCache, sheaf: usize, window: usize, random: &mut Random) -> (f64, f64) {
    let mut objects: Vec<Entry> = vec![None; OBJECTS];
    cache.alloc_bulk(&mut objects).expect("memory for the experiment");
    shuffle(&mut objects, window, random);
    let before = cache.stats().slab_syncs;
    let time = per_object(OBJECTS, || {
        for part in objects.chunks_mut(sheaf) {
            // SAFETY: allocated above, each once, and used no more.
            unsafe { cache.free_bulk(part) };
        }
    });
    let stats = cache.stats();
    assert_eq!(stats.active, 0, "everything came back");
    ((stats.slab_syncs - before) as f64 / OBJECTS as f64, time)
}

/// Frees a shuffled array object by object through sheaves, and allocates it again, writing to each: nanoseconds for the second
/// part.
fn alloc_again(cache: &RawCache, window: usize, random: &mut Random) -> f64 {
    let held = 256;
    let mut objects: Vec<Entry> = vec![None; held];
    cache.alloc_bulk(&mut objects).expect("memory for the experiment");
    let mut time = 0.0;
    const TIMES: usize = 64;
    for _ in 0..TIMES {
        shuffle(&mut objects, window.min(held), random);
        for object in objects.iter().flatten() {
            // SAFETY: allocated from this cache, each once.
            unsafe { cache.free(*object) };
        }
        time += per_object(held, || {
            for entry in &mut objects {
                let object = cache.alloc().expect("the sheaf has what was freed");
                // SAFETY: an object of 64 bytes at least.
                unsafe { object.cast::<u64>().write(1) };
                *entry = Some(object);
            }
        });
    }
    // SAFETY: as above.
    unsafe { cache.free_bulk(&mut objects) };
    time / TIMES as f64
}

fn main() {
    println!(
        "size  window  scan    syncs/object  free ns: min median max   alloc+write again ns: min median max"
    );
    for size in [64, 192, 256] {
        for window in [1, 8, 64, 512, OBJECTS] {
            let sheaf = (64 * 1024 / size).clamp(12, 512);
            let caches = SCANS.map(|(_, look_ahead)| {
                let options = Options::new("locality", size, 64);
                RawCache::new(Options { sheaves: false, look_ahead, ..options })
                    .expect("memory for a cache")
            });
            let stacked = RawCache::new(Options::new("locality-stack", size, 64))
                .expect("memory for a cache");
            let mut random = Random(0x9E37_79B9_7F4A_7C15);
            let mut syncs = [0.0; SCANS.len()];
            let mut times = [const { Vec::new() }; SCANS.len()];
            let mut again = Vec::new();
            for _ in 0..ROUNDS {
                for (i, cache) in caches.iter().enumerate() {
                    let (changes, time) = free_shuffled(cache, sheaf, window, &mut random);
                    syncs[i] += changes / ROUNDS as f64;
                    times[i].push(time);
                }
                again.push(alloc_again(&stacked, window, &mut random));
            }
            let (low, middle, high) = median(&mut again);
            for (i, (scan, _)) in SCANS.iter().enumerate() {
                let (min, median, max) = median(&mut times[i]);
                print!(
                    "{size:4}  {window:6}  {scan:6}  {:12.3}  {min:12.2} {median:6.2} {max:5.2}",
                    syncs[i]
                );
                println!(
                    "{}",
                    if i == 0 {
                        format!("   {low:18.2} {middle:6.2} {high:5.2}")
                    } else {
                        String::new()
                    }
                );
            }
        }
    }
}
