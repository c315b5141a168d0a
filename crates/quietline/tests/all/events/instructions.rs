//! How many locked instructions calls that wait for events execute, and why not fewer: see `locked_instructions.rs`.

use quietline::abi::*;
use quietline::{Config, EpollEvent, Kernel, PollFd, Process};
use quietline_count::{Error, count};
use quietline_platform::percpu::{Body, active};

/// That `f` executes `locked` locked instructions and calls the host for nothing.
#[track_caller]
fn assert_locked(what: &str, locked: u64, mut f: impl FnMut()) {
    if active() != Body::Rseq {
        eprintln!("not checked: per-CPU operations use the fallback");
        return;
    }
    for _ in 0..100 {
        f();
    }
    match count(f) {
        Ok(counts) => {
            println!("{what}: {} locked, {} instructions", counts.locked, counts.instructions);
            assert_eq!((counts.locked, counts.syscalls), (locked, 0), "{what}: {counts}");
        }
        Err(Error::Refused(e)) => {
            let required = std::env::var_os("QUIETLINE_REQUIRE_COUNTS").is_some_and(|v| v == "1");
            assert!(!required, "counting is required here, but this system refuses to trace: {e}");
            eprintln!("not checked: this system refuses to trace: {e}");
        }
        Err(e) => panic!("{e}"),
    }
}

fn control(p: &Process, ep: i32, op: i32, fd: i32, events: u32) {
    p.epoll_ctl(ep, op, fd, &EpollEvent { events, data: 7 }).unwrap();
}

fn wait(p: &Process, ep: i32) -> usize {
    p.epoll_wait(ep, &mut [EpollEvent::default(); 4], 0).unwrap()
}

#[test]
fn calls_that_wait() {
    quietline_testing::isolated!();
    let p = Kernel::boot(Config::default()).unwrap().process().unwrap();
    let (ep, outer) = (p.epoll_create1(0).unwrap(), p.epoll_create1(0).unwrap());
    let fd = p.eventfd(0, EFD_NONBLOCK).unwrap();
    control(&p, ep, EPOLL_CTL_ADD, fd, EPOLLIN);
    // Two loads.
    assert_locked("epoll_wait, nothing ready", 0, || assert_eq!(wait(&p, ep), 0));
    // 1: the counter. 2: the lock of its queue, which has the epoll's item. 3: the epoll's word, which has the item's number.
    // 4: the epoll's lock. 5: the counter. 6: the lock of its queue: somebody may wait to write.
    assert_locked("write, epoll_wait, read", 6, || {
        assert_eq!(p.write(fd, &1u64.to_ne_bytes()), Ok(8));
        assert_eq!(wait(&p, ep), 1);
        assert_eq!(p.read(fd, &mut [0; 8]), Ok(8));
    });
    assert_eq!(p.write(fd, &1u64.to_ne_bytes()), Ok(8));
    // The epoll's lock. What stays ready stays queued.
    assert_locked("epoll_wait, one ready", 1, || assert_eq!(wait(&p, ep), 1));
    control(&p, outer, EPOLL_CTL_ADD, ep, EPOLLIN);
    // Each level's lock.
    assert_locked("epoll_wait, two levels", 2, || assert_eq!(wait(&p, outer), 1));
    // 1: the epoll's lock. 2: that of the file's queue, so that no call of the item is going on that has seen the old events.
    assert_locked("epoll_ctl MOD", 2, || control(&p, ep, EPOLL_CTL_MOD, fd, EPOLLIN));
    // Of these, a close takes none for locks on the file, because the file has taken none.
    assert_locked("eventfd, epoll_ctl ADD, close", 22, || {
        let fd = p.eventfd(0, O_ANYFD).unwrap();
        control(&p, ep, EPOLL_CTL_ADD, fd, EPOLLIN);
        p.close(fd).unwrap();
    });
    // Looks write nothing.
    assert_locked("poll, one ready", 0, || assert_eq!(p.poll(&mut [PollFd::new(fd, 1)], 0), Ok(1)));
}
