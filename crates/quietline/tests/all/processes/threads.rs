//! Processes that begin, end, change their groups, are waited for and get signals at the same time.

use crate::support::StopOnDrop;
use quietline::abi::*;
use quietline::{Config, Errno, Kernel, PollFd, Process, SigChld};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Threads that fork, and as many that wait.
const THREADS: usize = 3;

/// Counts the threads that fork, down when one ends, also when it fails.
struct CountDown<'a>(&'a AtomicUsize);

impl Drop for CountDown<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Makes a child of `p`, or a child and an orphan, and ends them. Returns how many `p` waits for.
fn fork_and_end(p: &Process, n: usize) -> usize {
    let child = p.fork().unwrap();
    match n % 5 {
        0 => child.setpgid(0, 0).unwrap(),
        1 => assert_eq!(child.setsid(), Ok(child.getpid())),
        2 => {
            let orphan = child.fork().unwrap();
            orphan.setpgid(0, 0).unwrap();
            if n.is_multiple_of(2) {
                drop(child);
                assert_eq!(orphan.getppid(), p.getpid());
                orphan.exit(1);
            } else {
                drop(orphan);
                child.exit(2);
            }
            return 2;
        }
        3 => {
            let fd = p.pidfd_open(child.getpid(), O_ANYFD).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| child.exit(3));
                let mut fds = [PollFd::new(fd, EPOLLIN as i16)];
                assert_eq!(p.poll(&mut fds, -1), Ok(1));
                assert_ne!(fds[0].revents & EPOLLIN as i16, 0);
            });
            p.close(fd).unwrap();
            return 1;
        }
        _ => {}
    }
    drop(child);
    1
}

#[test]
fn each_child_is_waited_for_once() {
    let kernel = Kernel::boot(Config::default()).unwrap();
    let p = kernel.process().unwrap();
    p.set_sigchld(SigChld::Signal);
    let forks = quietline_testing::scaled(500) as usize;
    let (made, forking) = (AtomicUsize::new(0), AtomicUsize::new(THREADS));
    let ended = Mutex::new(BTreeSet::new());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let (p, stop, made, forking, ended) = (&p, &stop, &made, &forking, &ended);
        let waiters: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(move || {
                    loop {
                        // Before the look: no thread forks any more if this is 0.
                        let last = forking.load(Ordering::Acquire) == 0;
                        match p.waitid(P_ALL, 0, WEXITED) {
                            Ok(Some(info)) => {
                                let first = ended.lock().unwrap().insert(info.pid);
                                assert!(first, "{} is waited for twice", info.pid);
                            }
                            Err(Errno::CHILD) if last => break,
                            Err(Errno::CHILD) => thread::yield_now(),
                            other => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        for first in 0..THREADS {
            scope.spawn(move || {
                let _forking = CountDown(forking);
                for n in 0..forks {
                    made.fetch_add(fork_and_end(p, n + first), Ordering::Relaxed);
                }
            });
        }
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for to in [-1, 0, 2, -2, -3] {
                    assert!(matches!(p.kill(to, 40), Ok(()) | Err(Errno::SRCH)));
                }
            }
        });
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
    assert_eq!(ended.into_inner().unwrap().len(), made.into_inner());
    assert_eq!(p.kill(-1, 0), Err(Errno::SRCH));
    assert_eq!(p.waitid(P_ALL, 0, WEXITED), Err(Errno::CHILD));
    assert_eq!(kernel.nr_files(), 0);
}
