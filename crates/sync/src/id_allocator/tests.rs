//! What only a thread that loses its CPU in the middle of a refill meets.

use super::*;

/// Property 2: a CPU that still has ids is not given others, so none are lost; the batch is left over.
#[test]
fn a_batch_is_not_installed_over_another() {
    let mut ids = IdAllocator::starting_at(8192).unwrap();
    ids.words.init(0, 1025);
    assert!(!ids.install(8193));
    assert_eq!(ids.next(), 1025);
}

/// Property 2: the next refill hands out what was left over, to its end and without a gap, before a new batch.
#[test]
fn a_leftover_batch_comes_first() {
    let ids = IdAllocator::starting_at(8192).unwrap();
    ids.pool.lock().leftover = Some(1025);
    // Every CPU is empty: whichever asks first gets the leftover, others new batches.
    let mut taken: Vec<_> = (0..3 * BATCH).map(|_| ids.next()).collect();
    assert_eq!(taken[0], 1025);
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 3 * BATCH as usize);
}
