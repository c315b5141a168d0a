//! Readers of a file beside its writer: what `ramfs::pages` says that they see.

use quietline_slab::LazyCache;
use quietline_sync::rcu;
use quietline_testing::TimedLoop;
use quietline_vfs::ramfs::pages::{PAGE_SIZE, PageCaches, PageTree, Seek};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const PAGE: u64 = PAGE_SIZE as u64;
const TIME: Duration = Duration::from_millis(700);

struct Sequence(u64);

impl Sequence {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs two readers beside a writer until the time is over, each reader has looked 100 times and
/// the goal is met. The writer asks whether it goes on.
fn beside(
    read: impl Fn(&mut Sequence) + Sync,
    goal: impl Fn() -> bool,
    write: impl FnOnce(&dyn Fn() -> bool),
) {
    let stop = AtomicBool::new(false);
    let looks = [const { AtomicU64::new(0) }; 2];
    thread::scope(|s| {
        let readers: Vec<_> = (1..=2)
            .map(|seed| {
                let (read, stop, looks) = (&read, &stop, &looks[seed as usize - 1]);
                s.spawn(move || {
                    let mut random = Sequence(seed);
                    while !stop.load(Ordering::Relaxed) {
                        read(&mut random);
                        looks.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        // Also if the writer panics: the readers must end.
        let stopping = Stop(&stop);
        let time = TimedLoop::new(TIME);
        write(&|| {
            let enough = goal() && looks.iter().all(|looks| looks.load(Ordering::Relaxed) > 100);
            time.goes_on(enough) && !readers.iter().any(thread::ScopedJoinHandle::is_finished)
        });
        drop(stopping);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

fn check_empty(caches: &PageCaches) {
    caches.flush();
    for stats in caches.caches().map(LazyCache::stats) {
        assert_eq!((stats.active, stats.waiting), (0, 0), "of {} nothing is left", stats.name);
    }
}

/// Pages come and go, each made by one write: they are seen whole or not at all, and never as another one's memory.
#[test]
fn new_pages_are_whole() {
    quietline_testing::isolated!();
    let caches = PageCaches::new(rcu::global().unwrap());
    let (tree, other) = (PageTree::new(&caches), PageTree::new(&caches));
    tree.write().truncate(&(), 1 << 40).unwrap();
    const PLACES: [u64; 7] = [0, 1, 63, 64, 4095, 4096, 1 << 20];
    let (seen, now) = (AtomicU64::new(0), AtomicU64::new(0));
    beside(
        |random| {
            // Mostly where the writer is.
            let place =
                if random.below(8) == 0 { random.below(7) } else { now.load(Ordering::Relaxed) };
            let index = PLACES[place as usize];
            let section = caches.domain().read();
            let mut bytes = [0xFF; PAGE_SIZE];
            assert_eq!(tree.read_at(&section, index * PAGE, &mut bytes), PAGE_SIZE);
            // A write fills a page with one byte, which is never that of `other`.
            let first = bytes[0];
            assert!(bytes.iter().all(|byte| *byte == first), "page {index} is of one write");
            assert_ne!(first, 0xEE, "page {index} is of this file");
            seen.fetch_add(u64::from(first != 0), Ordering::Relaxed);
            let data = tree.seek(&section, index * PAGE, Seek::Data);
            assert!(data.is_err() || data.is_ok_and(|at| PLACES.contains(&(at / PAGE))));
        },
        || seen.load(Ordering::Relaxed) > 100,
        |go_on| {
            let mut random = Sequence(77);
            let mut round = 0u64;
            while go_on() || round <= 1000 {
                round += 1;
                if round.is_multiple_of(500) {
                    now.store(random.below(7), Ordering::Relaxed);
                }
                let index = PLACES[now.load(Ordering::Relaxed) as usize];
                match random.below(16) {
                    0..12 => {
                        let mut writer = tree.write();
                        writer.punch_hole(&(), index * PAGE, PAGE);
                        let fill = [(round % 200) as u8 + 1; PAGE_SIZE];
                        writer.write_at(&(), index * PAGE, &fill).unwrap();
                    }
                    12 | 13 => tree.write().punch_hole(&(), index * PAGE, PAGE),
                    // What was freed comes back here.
                    _ => {
                        let mut writer = other.write();
                        writer.truncate(&(), 0).unwrap();
                        writer.write_at(&(), 0, &[0xEE; 8 * PAGE_SIZE]).unwrap();
                    }
                }
                if round.is_multiple_of(200) {
                    // Else memory would come back too late to be seen in the wrong place.
                    caches.flush();
                }
            }
        },
    );
    assert!(seen.load(Ordering::Relaxed) > 100, "pages were seen");
    drop((tree, other));
    check_empty(&caches);
}

/// A record that is appended by one call is there as soon as the size says so.
#[test]
fn appended_records_are_whole() {
    quietline_testing::isolated!();
    const RECORD: usize = 100;
    let caches = PageCaches::new(rcu::global().unwrap());
    let tree = PageTree::new(&caches);
    let record = |number: u64| -> [u8; RECORD] {
        core::array::from_fn(|i| (number.wrapping_mul(0x9E37_79B9) >> (i % 8)) as u8 ^ i as u8)
    };
    beside(
        |random| {
            let size = tree.size();
            assert_eq!(size % RECORD as u64, 0);
            if size == 0 {
                return;
            }
            // Often the last ones.
            let records = size / RECORD as u64;
            let near = 3 + random.below(1000);
            let number = records - 1 - random.below(records.min(near));
            let mut bytes = [0; RECORD];
            assert_eq!(tree.read(number * RECORD as u64, &mut bytes), RECORD);
            assert_eq!(bytes, record(number), "record {number} of {records}");
        },
        || true,
        |go_on| {
            let mut number = 0;
            while number < 600_000 && (go_on() || number <= 1000) {
                let appended = tree.write().append(&(), &record(number));
                assert_eq!(appended, Ok((number * RECORD as u64, RECORD)));
                number += 1;
            }
        },
    );
    drop(tree);
    check_empty(&caches);
}

/// A file without a zero in it is cut again and again: nobody reads one.
#[test]
fn what_is_cut_off_is_not_zero() {
    quietline_testing::isolated!();
    const SIZE: usize = 40 * PAGE_SIZE;
    let caches = PageCaches::new(rcu::global().unwrap());
    let tree = PageTree::new(&caches);
    // Odd while the file grows again.
    let epoch = AtomicU64::new(1);
    let checked = AtomicU64::new(0);
    beside(
        |random| {
            let before = epoch.load(Ordering::Acquire);
            let mut bytes = [1; 3 * PAGE_SIZE];
            let n = tree.read(random.below(SIZE as u64), &mut bytes);
            let zeros = bytes[..n].contains(&0);
            core::sync::atomic::fence(Ordering::Acquire);
            if before.is_multiple_of(2) && epoch.load(Ordering::Relaxed) == before {
                assert!(!zeros, "{n} bytes");
                checked.fetch_add(1, Ordering::Relaxed);
            }
        },
        || checked.load(Ordering::Relaxed) > 100,
        |go_on| {
            let mut random = Sequence(5);
            while go_on() {
                tree.write().write_at(&(), 0, &[0xAB; SIZE]).unwrap();
                epoch.fetch_add(1, Ordering::AcqRel);
                let mut size = SIZE as u64;
                while size > 0 {
                    size -= 1 + random.below(size.min(9000));
                    tree.write().truncate(&(), size).unwrap();
                }
                epoch.fetch_add(1, Ordering::AcqRel);
            }
        },
    );
    assert!(checked.load(Ordering::Relaxed) > 100);
    drop(tree);
    check_empty(&caches);
}

/// Writers from many threads, each its own part: the lock keeps them apart.
#[test]
fn writers_take_turns() {
    quietline_testing::isolated!();
    const THREADS: u64 = 4;
    let caches = PageCaches::new(rcu::global().unwrap());
    let tree = PageTree::new(&caches);
    thread::scope(|s| {
        for me in 0..THREADS {
            let tree = &tree;
            s.spawn(move || {
                for round in 0..2000u64 {
                    let offset = (round * THREADS + me) * 1000;
                    assert_eq!(tree.write().write_at(&(), offset, &[me as u8 + 1; 1000]), Ok(1000));
                    if round % 3 == 0 {
                        tree.write().punch_hole(&(), offset, 500);
                    }
                }
            });
        }
    });
    let mut bytes = vec![0; (2000 * THREADS * 1000) as usize];
    assert_eq!(tree.read(0, &mut bytes), bytes.len());
    for (piece, bytes) in bytes.chunks(1000).enumerate() {
        let (round, me) = (piece as u64 / THREADS, piece as u64 % THREADS);
        let cut = if round % 3 == 0 { 500 } else { 0 };
        assert!(bytes[..cut].iter().all(|byte| *byte == 0), "piece {piece}");
        assert!(bytes[cut..].iter().all(|byte| u64::from(*byte) == me + 1), "piece {piece}");
    }
    drop(tree);
    check_empty(&caches);
}
