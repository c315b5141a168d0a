//! A grace period that does not end is reported, once for each spell of patience. (Alone in its process: the handler is
//! for all domains.)
#![cfg(not(loom))]

use quietline_sync::rcu::{Domain, Stall, set_stall_handler};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

static STALLS: Mutex<Vec<Stall>> = Mutex::new(Vec::new());

fn note(stall: &Stall) {
    STALLS.lock().unwrap().push(*stall);
}

#[test]
fn a_stall_is_reported_to_the_handler() {
    quietline_testing::isolated!();
    const PATIENCE: Duration = Duration::from_millis(20);
    let domain = Domain::new().unwrap();
    domain.set_stall_patience(PATIENCE);
    set_stall_handler(note);
    // Many sleeping waiters, and one who only polls.
    let from = Instant::now();
    let guard = domain.read();
    thread::scope(|s| {
        let waiters: Vec<_> = (0..4).map(|_| s.spawn(|| domain.synchronize())).collect();
        domain.start_poll_synchronize();
        while STALLS.lock().unwrap().len() < 3 {
            assert!(from.elapsed() < Duration::from_secs(30), "no report");
            domain.poll();
            thread::yield_now();
        }
        drop(guard);
        waiters.into_iter().for_each(|w| w.join().unwrap());
    });
    let spells = from.elapsed().as_millis() / PATIENCE.as_millis();
    let stalls = STALLS.lock().unwrap();
    assert!(stalls.len() as u128 <= spells, "{} reports in {spells} spells", stalls.len());
    // The first reports came while the guard was held; one more may have come while it was being dropped.
    for (i, stall) in stalls[..3].iter().enumerate() {
        assert!(stall.waited >= PATIENCE * (i as u32 + 1));
        assert_eq!(stall.open_sections, 1);
    }
    drop(stalls);

    // A long idle time is no stall.
    let before = STALLS.lock().unwrap().len();
    let end = Instant::now() + 2 * PATIENCE;
    while Instant::now() < end {
        thread::yield_now();
    }
    (0..100).for_each(|_| domain.synchronize());
    domain.poll();
    assert_eq!(STALLS.lock().unwrap().len(), before);
}
