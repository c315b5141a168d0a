//! Waits for locks on files: crossed ones, and how they end.

use crate::support::spawn_asleep;
use quietline::abi::*;
use quietline::locks::{F_OFD_SETLKW, F_SETLKW, F_WRLCK, Flock, LOCK_EX, LOCK_NB, LOCK_UN};
use quietline::{Config, Errno, Interrupt, Kernel, Process, Shared};
use std::thread;

/// Takes a lock of a descriptor's file, and waits for it.
type Lock = fn(&Process, i32) -> Result<(), Errno>;

const LOCKS: [(&str, Lock); 3] = [
    ("flock", |p, fd| p.flock(fd, LOCK_EX)),
    ("F_OFD_SETLKW", |p, fd| p.fcntl_lock(fd, F_OFD_SETLKW, &mut all())),
    ("F_SETLKW", |p, fd| p.fcntl_lock(fd, F_SETLKW, &mut all())),
];

fn all() -> Flock {
    Flock { l_type: F_WRLCK, ..Flock::default() }
}

/// An interrupt ends each of two waits for a lock that the other waiter holds.
#[test]
fn crossed_waits_can_be_interrupted() {
    quietline_testing::isolated!();
    for (name, lock) in LOCKS {
        let p = Kernel::boot(Config::default()).unwrap().process().unwrap();
        let q = p.fork().unwrap();
        let fds = [(&p, "/a"), (&p, "/b"), (&q, "/a"), (&q, "/b")]
            .map(|(who, path)| who.open(path, O_CREAT | O_RDWR, 0o600).unwrap());
        lock(&p, fds[0]).unwrap();
        lock(&q, fds[3]).unwrap();
        let interrupts = [(); 2].map(|()| Shared::new(Interrupt::new()).unwrap());
        thread::scope(|scope| {
            let first = spawn_asleep(scope, || {
                let _entered = Interrupt::enter(&interrupts[0]);
                lock(&p, fds[1])
            });
            if name == "F_SETLKW" {
                // Deadlocks are detected between locks of this kind.
                assert_eq!(lock(&q, fds[2]), Err(Errno::DEADLK));
            } else {
                let second = spawn_asleep(scope, || {
                    let _entered = Interrupt::enter(&interrupts[1]);
                    lock(&q, fds[2])
                });
                assert!(!first.is_finished() && !second.is_finished(), "{name} waits");
                interrupts[1].raise();
                assert_eq!(second.join().unwrap(), Err(Errno::INTR), "{name}");
            }
            assert!(!first.is_finished(), "{name}: the interrupt of another thread");
            interrupts[0].raise();
            assert_eq!(first.join().unwrap(), Err(Errno::INTR), "{name}");
        });
        // The locks held before the waits are held yet.
        assert_eq!(p.flock(fds[0], LOCK_UN), Ok(()));
        drop(q);
        assert_eq!(lock(&p, fds[1]), Ok(()), "{name}: free when its owner has ended");
    }
}

/// An interrupt that was raised before is found by a call that would wait, and by no other.
#[test]
fn an_interrupt_ends_only_calls_that_would_wait() {
    let p = Kernel::boot(Config::default()).unwrap().process().unwrap();
    let q = p.fork().unwrap();
    let interrupt = Shared::new(Interrupt::new()).unwrap();
    let _entered = Interrupt::enter(&interrupt);
    interrupt.raise();
    for (name, lock) in LOCKS {
        let [mine, theirs] = [&p, &q].map(|who| who.open("/f", O_CREAT | O_RDWR, 0o600).unwrap());
        assert_eq!(lock(&p, mine), Ok(()), "{name}: nothing to wait for");
        assert_eq!(lock(&q, theirs), Err(Errno::INTR), "{name}");
        let now = q.flock(theirs, LOCK_EX | LOCK_NB);
        assert_eq!(now == Err(Errno::AGAIN), name == "flock", "{name}: says so at once");
        p.close(mine).unwrap();
        q.close(theirs).unwrap();
    }
}
