//! A thread with an RCU read-side critical section of its own, and the kernel's `epoll_wait`.
#![cfg(all(debug_assertions, not(quietline_sim)))]

use quietline::abi::*;
use quietline::{Config, EpollEvent, Kernel};
use quietline_sync::rcu;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Milliseconds after which a sleep counts as a hang.
const PATIENCE: i32 = 60_000;

/// Debug builds report an `epoll_wait` that is about to sleep inside a section. A call that only
/// looks is allowed there, and a thread that has left its section sleeps and is woken.
#[test]
fn epoll_wait_inside_a_section_is_reported() {
    quietline_testing::isolated!();
    let p = Kernel::boot(Config::default()).unwrap().process().unwrap();
    let event = p.eventfd(0, 0).unwrap();
    let epoll = p.epoll_create1(0).unwrap();
    let readable = EpollEvent { events: EPOLLIN, ..EpollEvent::default() };
    p.epoll_ctl(epoll, EPOLL_CTL_ADD, event, &readable).unwrap();
    let mut events = [EpollEvent::default(); 2];

    let section = rcu::global().unwrap().read();
    assert_eq!(p.epoll_wait(epoll, &mut events, 0), Ok(0));
    let sleep = catch_unwind(AssertUnwindSafe(|| p.epoll_wait(epoll, &mut events, PATIENCE)));
    let report = sleep.unwrap_err().downcast::<String>().unwrap();
    assert!(report.contains("sleeps inside 1 read-side critical section"), "{report}");
    drop(section);

    thread::scope(|scope| {
        let sleeper = scope.spawn(|| p.epoll_wait(epoll, &mut [EpollEvent::default()], PATIENCE));
        // Ends, although the other thread sleeps or is about to.
        rcu::global().unwrap().synchronize();
        assert_eq!(p.write(event, &1_u64.to_ne_bytes()), Ok(8));
        assert_eq!(sleeper.join().unwrap(), Ok(1));
    });
}
