//! The pool of buffers in front of the slab: every buffer is in one place.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;

use quietline_history::alf_queue::{AlfQueue, BULK, LOCAL, Local, Qmempool};

fn values<const N: usize>(from: u32) -> [Option<u32>; N] {
    core::array::from_fn(|i| Some(from + i as u32))
}

#[test]
fn all_or_none_go_in_and_what_is_there_comes_out() {
    let queue = AlfQueue::new(8).unwrap();
    let mut places = [None; 8];
    assert!(queue.is_empty() && queue.dequeue(&mut places) == 0);
    // Round and round.
    for turn in 0..50 {
        assert!(queue.enqueue(&mut values::<5>(turn * 10)));
        let mut more = values::<4>(0);
        assert!(!queue.enqueue(&mut more) && more == values::<4>(0), "no room for four");
        assert!(queue.enqueue(&mut values::<3>(turn * 10 + 5)));
        assert_eq!((queue.len(), queue.dequeue(&mut places[..6])), (8, 6));
        assert_eq!(places[..6], values::<6>(turn * 10));
        assert_eq!((queue.dequeue(&mut places), queue.dequeue(&mut places[2..])), (2, 0));
        assert_eq!(places[..2], values::<2>(turn * 10 + 6));
    }
    let kept = std::sync::Arc::new(());
    let queue = AlfQueue::new(4).unwrap();
    assert!(queue.enqueue(&mut [Some(kept.clone()), Some(kept.clone())]));
    drop(queue);
    assert_eq!(std::sync::Arc::strong_count(&kept), 1, "what is in it ends with it");
}

#[test]
fn a_pool_keeps_what_it_has_room_for() {
    let pool = Qmempool::new(2 * BULK).unwrap();
    let (mut local, mut slab) = (Local::default(), Vec::new());
    assert_eq!(pool.alloc(&mut local), None);
    for value in 0..200 {
        pool.free(&mut local, value, |value| slab.push(value));
    }
    // Eleven times sixteen left the thread's own queue, of which two times sixteen are shared.
    assert_eq!((pool.len(), slab.len()), (2 * BULK, 9 * BULK));
    let out: Vec<u32> = core::iter::from_fn(|| pool.alloc(&mut local)).collect();
    let all: BTreeSet<u32> = out.iter().chain(&slab).copied().collect();
    assert_eq!((all.len(), out.len() + slab.len()), (200, 200));
    assert!(out.len() == 200 - 9 * BULK && out.len() <= LOCAL + 2 * BULK && pool.is_empty());
    pool.free(&mut local, 7, |_| unreachable!("there is room"));
    let mut drained = Vec::new();
    pool.drain(&mut local, |value| drained.push(value));
    assert_eq!(drained, [7]);
}

#[test]
fn threads_never_have_the_same_buffer() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 20_000;
    let pool = Qmempool::new(64).unwrap();
    let (made, slab) = (Mutex::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for me in 0..THREADS {
            let (pool, made, slab) = (&pool, &made, &slab);
            scope.spawn(move || {
                let (mut local, mut held) = (Local::default(), Vec::new());
                for round in 0..ROUNDS {
                    if (round / 50 + me).is_multiple_of(2) {
                        // A buffer is a box: two owners would be seen by what they write.
                        let buffer = pool.alloc(&mut local).unwrap_or_else(|| {
                            *made.lock().unwrap() += 1;
                            Box::new(usize::MAX)
                        });
                        assert_eq!(*buffer, usize::MAX, "somebody has it");
                        held.push(buffer);
                        **held.last_mut().unwrap() = me;
                    } else if let Some(mut buffer) = held.pop() {
                        assert_eq!(*buffer, me);
                        *buffer = usize::MAX;
                        pool.free(&mut local, buffer, |buffer| slab.lock().unwrap().push(buffer));
                    }
                }
                for mut buffer in held {
                    *buffer = usize::MAX;
                    pool.free(&mut local, buffer, |buffer| slab.lock().unwrap().push(buffer));
                }
                pool.drain(&mut local, |buffer| slab.lock().unwrap().push(buffer));
            });
        }
    });
    pool.drain(&mut Local::default(), |buffer| slab.lock().unwrap().push(buffer));
    assert_eq!(*made.lock().unwrap(), slab.into_inner().unwrap().len(), "each came back once");
    assert!(*made.lock().unwrap() > 0);
}
