use super::*;
use core::ptr::NonNull;

unsafe fn never(_: NonNull<Head>) {
    unreachable!("nobody runs these");
}

/// Heads that are not freed, as in chains they have no owner.
fn chain(n: usize) -> Chain {
    let mut chain = Chain::EMPTY;
    for _ in 0..n {
        let head = NonNull::from(Box::leak(Box::new(Head::new())));
        // SAFETY: leaked, and on no other chain.
        unsafe {
            Head::set(head, never);
            chain.append(Chain::of_list(head.as_ptr() as u64));
        }
    }
    chain
}

/// What grace period 1 took from `cpu` is due after `completed`, 2 or later.
fn stages(cpus: usize, cpu: usize, n: usize, completed: u64) -> Stages {
    let mut stages = Stages::new(cpus).unwrap();
    stages.collected(1, cpu, chain(n));
    stages.promote(1);
    assert_eq!(stages.past_waiting(), 0, "not due: it began when they were taken");
    stages.promote(completed);
    assert_eq!(stages.past_waiting(), n as i64);
    stages
}

#[test]
fn a_share_is_of_the_own_cpu() {
    let mut stages = stages(8, 5, 10, 2);
    for cpu in [0, 1, 2, 3, 4, 6, 7] {
        assert_eq!(stages.take(100, cpu, false).len(), 0, "CPU {cpu}");
    }
    assert_eq!(stages.take(4, 5, false).len(), 4);
    assert_eq!(stages.past_waiting(), 6);
    assert_eq!(stages.take(100, 5, false).len(), 6);
    assert_eq!(stages.past_waiting(), 0);
}

#[test]
fn a_poll_takes_all() {
    let mut stages = stages(8, 5, 10, 2);
    stages.collected(2, 3, chain(4));
    stages.collected(2, 6, chain(1));
    assert_eq!(stages.take(i64::MAX, 0, true).len(), 10, "the others are not due");
    stages.promote(3);
    assert_eq!(stages.take(2, 0, true).len(), 2);
    assert_eq!(stages.take(i64::MAX, 0, true).len(), 3);
    assert_eq!((stages.past_waiting(), stages.take_all().len()), (0, 0));
}

/// Two grace periods' takings wait at a time, and none is due before the next one is over.
#[test]
fn two_heaps_wait() {
    let mut stages = Stages::new(2).unwrap();
    stages.collected(7, 0, chain(1));
    stages.promote(7);
    stages.collected(8, 0, chain(2));
    stages.collected(8, 1, chain(4));
    stages.promote(8);
    assert_eq!(stages.past_waiting(), 1);
    stages.collected(9, 1, chain(8));
    stages.promote(9);
    assert_eq!(stages.past_waiting(), 7);
    assert_eq!(stages.take_all().len(), 15);
}
