//! What only a thread that loses its CPU in the middle of a refill meets.

use super::*;

/// Property 2: a batch that replaces another leaves it over, so no id is lost.
#[test]
fn a_replaced_batch_is_left_over() {
    let ids = IdAllocator::starting_at(8192).unwrap();
    let words = ids.words.get_or_make().unwrap();
    for cpu in 0..words.cpus() {
        words.word(cpu, 0).store(1025, Ordering::Relaxed);
    }
    ids.install(&words, 8193);
    assert_eq!(ids.pool.take(), 1025);
    let loaded = (0..words.cpus()).map(|cpu| words.load(cpu, 0));
    assert_eq!(loaded.filter(|word| *word == 8193).count(), 1);
}

/// Property 2: the next refill hands out what was left over, to its end and without a gap, before a new batch.
#[test]
fn a_leftover_batch_comes_first() {
    let ids = IdAllocator::starting_at(8192).unwrap();
    ids.pool.leave(1025);
    // Every CPU is empty: whichever asks first gets the leftover, others new batches.
    let mut taken: Vec<_> = (0..3 * BATCH).map(|_| ids.next()).collect();
    assert_eq!(taken[0], 1025);
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 3 * BATCH as usize);
}

/// Ids from the shared word are those that the CPUs go on from.
#[test]
fn shared_ids_come_first() {
    let ids = WideIdAllocator(IdAllocator::with(4096, u64::MAX).unwrap());
    let shared = [ids.next_shared(), ids.next_shared()];
    assert!(ids.0.words.get().is_none());
    assert_eq!((shared, ids.next(), ids.next_shared()), ([4096, 4097], 4098, 5120));
}

/// As many batches as the pool's line has room for are kept; one more is skipped, and what was kept stays.
#[test]
fn leftovers_have_an_end() {
    let ids = IdAllocator::starting_at(1 << 20).unwrap();
    let rests: Vec<u64> = (0..=LEFTOVERS as u64).map(|i| i * u64::from(BATCH) + 7).collect();
    rests.iter().for_each(|rest| ids.pool.leave(*rest));
    let taken: Vec<u64> = (0..=LEFTOVERS).map(|_| ids.pool.take()).collect();
    assert_eq!(taken[..LEFTOVERS], rests[..LEFTOVERS]);
    assert_eq!(taken[LEFTOVERS], 1 << 20, "the eighth was skipped: a new batch");
}

/// Wide ids go on where the others begin again, and are given once.
#[test]
fn wide_ids_do_not_wrap() {
    let ids = WideIdAllocator(IdAllocator::with(0u32.wrapping_sub(BATCH + 10), u64::MAX).unwrap());
    let mut taken: Vec<u64> = (0..4 * BATCH).map(|_| ids.next()).collect();
    taken.sort_unstable();
    let first = (1 << 32) - u64::from(BATCH) - 10;
    let last = taken[taken.len() - 1];
    assert!(taken[0] >= first && last > 1 << 32, "{} to {last}", taken[0]);
    taken.dedup();
    assert_eq!(taken.len(), 4 * BATCH as usize);
    let narrow = IdAllocator::starting_at(0u32.wrapping_sub(BATCH + 10)).unwrap();
    let taken: std::collections::BTreeSet<u32> = (0..4 * BATCH).map(|_| narrow.next()).collect();
    assert_eq!(taken.len(), 4 * BATCH as usize);
    assert!(taken.contains(&1) && !taken.contains(&0), "begins again");
}
