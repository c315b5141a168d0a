//! A batch that is a freelist beside an array: the experiment behind docs/adr/0012.
//!
//! Objects are taken, each is written to, and all are freed again, by three ways: an array of 32 through the CPU's sheaf; an
//! array of 32 in a cache without sheaves, which walks freelists before the caller touches anything; and batches. Warm: the
//! same few hundred objects again and again. Cold: all of 16,384 objects, after the caches were filled with something else, their
//! freelists shuffled. Busy: cold, with some 50 ns of computing for each object, beside which the next one can be fetched;
//! what computing alone costs is a row of its own. Interleaved rounds, nanoseconds for each object taken and written to: minimum, median, maximum.
//!
//! ```text
//! cargo run --release -p quietline-slab --example batches
//! ```

use quietline_slab::{Entry, Options, RawCache};
use std::hint::black_box;
use std::ptr::NonNull;
use std::time::Instant;

const BULK: usize = 32;
const COLD: usize = 16 << 10;
const WARM: usize = 256;
const ROUNDS: usize = 15;
const TURNS: usize = 24;

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

/// Something to do for an object that needs no memory.
#[inline(never)]
fn compute(seed: u64) -> u64 {
    let mut random = Random(seed | 1);
    (0..TURNS).fold(0, |sum, _| sum ^ random.below(1 << 20) as u64)
}

fn write<const BUSY: bool>(object: NonNull<u8>) {
    if BUSY {
        black_box(compute(object.as_ptr() as u64));
    }
    // SAFETY: an object of the experiment's caches, 64 bytes at least, that the caller has just been given.
    unsafe { object.cast::<u64>().write(1) };
}

/// Takes `n` objects in arrays.
fn arrays<const BUSY: bool>(cache: &RawCache, n: usize, taken: &mut Vec<Entry>) {
    let mut objects: [Entry; BULK] = [None; BULK];
    while taken.len() < n {
        cache.alloc_bulk(&mut objects).expect("memory for the experiment");
        objects.iter().flatten().for_each(|object| write::<BUSY>(*object));
        taken.extend_from_slice(&objects);
    }
}

/// Takes `n` objects in batches.
fn batches<const BUSY: bool>(cache: &RawCache, n: usize, taken: &mut Vec<Entry>) {
    while taken.len() < n {
        for object in
            cache.alloc_batch(BULK).expect("memory for the experiment").take(n - taken.len())
        {
            write::<BUSY>(object);
            taken.push(Some(object));
        }
    }
}

/// The ways of taking objects.
type Way = fn(&RawCache, usize, &mut Vec<Entry>);

fn round(cache: &RawCache, n: usize, way: Way, before: impl FnOnce()) -> f64 {
    let mut taken = Vec::with_capacity(n + BULK);
    before();
    let start = Instant::now();
    way(cache, n, &mut taken);
    let time = start.elapsed().as_nanos() as f64 / n as f64;
    assert_eq!(taken.len(), n);
    let mut random = Random(n as u64);
    for i in 0..n {
        let other = random.below(n);
        taken.swap(i, other);
    }
    // SAFETY: taken above, each once.
    unsafe { cache.free_bulk(&mut taken) };
    time
}

fn main() {
    println!("objects  size  way            ns/object: min median max");
    let start = Instant::now();
    for seed in 0..COLD as u64 {
        black_box(compute(seed));
    }
    println!("computing alone         {:9.2}", start.elapsed().as_nanos() as f64 / COLD as f64);
    let mut elsewhere = vec![0u8; 96 << 20];
    for size in [64, 256, 1024] {
        // Empty slabs are kept, or pages that the system has to give would be all that is seen.
        let options = Options { min_partial: usize::MAX, ..Options::new("batches", size, 64) };
        let with = || RawCache::new(options).expect("memory for a cache");
        let without =
            || RawCache::new(Options { sheaves: false, ..options }).expect("memory for a cache");
        let columns: [(&str, RawCache, [Way; 2]); 3] = [
            ("array, sheaf", with(), [arrays::<false>, arrays::<true>]),
            ("array, slabs", without(), [arrays::<false>, arrays::<true>]),
            ("batch", without(), [batches::<false>, batches::<true>]),
        ];
        for (label, n) in [("warm", WARM), ("cold", COLD), ("busy", COLD)] {
            let mut times = [const { Vec::new() }; 3];
            for _ in 0..ROUNDS {
                for (i, (_, cache, ways)) in columns.iter().enumerate() {
                    let way = ways[usize::from(label == "busy")];
                    // Once for the lists, once for the time.
                    round(cache, n, way, || ());
                    times[i].push(round(cache, n, way, || {
                        if label != "warm" {
                            elsewhere
                                .iter_mut()
                                .step_by(64)
                                .for_each(|byte| *byte = byte.wrapping_add(1));
                            black_box(&elsewhere);
                        }
                    }));
                }
            }
            for (i, (name, cache, _)) in columns.iter().enumerate() {
                assert_eq!(cache.stats().active, 0, "everything came back");
                times[i].sort_by(f64::total_cmp);
                let t = &times[i];
                println!(
                    "{label:7}  {size:4}  {name:13}  {:9.2} {:6.2} {:6.2}",
                    t[0],
                    t[ROUNDS / 2],
                    t[ROUNDS - 1]
                );
            }
        }
    }
}
