//! Threads that share a process, without taking turns.

use crate::support::{
    StopOnDrop, allowed_cpus, assert_nothing_open, in_child, pin, until_others_sleep,
};
use quietline::abi::*;
use quietline::{Config, Errno, EventFd, ItimerSpec, Kernel, Process, Rlimit};
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// Descriptors whose content changes all the time.
const TARGETS: usize = 8;

/// What is known of a target: its writer's number of the file that is there, or that is being put there.
#[derive(Default)]
struct Target {
    /// Numbers up to this may be there already.
    begun: AtomicU32,
    /// Numbers below this are gone.
    done: AtomicU32,
    /// Times that it was found.
    found: AtomicU32,
}

/// An eventfd's first count says where it belongs and which of the target's files it is.
fn label(target: usize, number: u32) -> u32 {
    (target as u32) << 24 | number
}

/// Even targets hold files with `O_NONBLOCK`.
fn status(target: usize) -> i32 {
    if target.is_multiple_of(2) { O_NONBLOCK } else { 0 }
}

/// Puts the next file at a target; now and then closes the target before.
fn rewrite(p: &Process, targets: &[Target], target: usize, number: u32) {
    let fd = target as i32;
    targets[target].begun.store(number, Ordering::SeqCst);
    let fresh = p.eventfd(label(target, number), O_ANYFD | status(target)).expect("room");
    assert!(fresh as usize >= TARGETS, "leased numbers lie above");
    if number.is_multiple_of(3) {
        p.close(fd).expect("it is the writer's");
    }
    assert_eq!(p.dup2(fresh, fd), Ok(fd));
    targets[target].done.store(number, Ordering::SeqCst);
    p.close(fresh).expect("it is open");
}

/// Looks a target up, and checks that what was found was there during the call.
fn look(p: &Process, targets: &[Target], target: usize) {
    let fd = target as i32;
    let oldest = targets[target].done.load(Ordering::SeqCst);
    let file = p.file(fd);
    let newest = targets[target].begun.load(Ordering::SeqCst);
    match file {
        Ok(file) => {
            let count = file.payload::<EventFd>().expect("targets are eventfds").count() as u32;
            assert_eq!(count >> 24, target as u32, "a file of another descriptor");
            let number = count & 0xff_ffff;
            assert!(
                (oldest..=newest).contains(&number),
                "{number} was not at {fd} between {oldest} and {newest}"
            );
            assert_eq!(file.flags(), O_RDWR | status(target));
            targets[target].found.fetch_add(1, Ordering::Relaxed);
        }
        Err(errno) => assert_eq!(errno, Errno::BADF, "closed for a moment"),
    }
    match p.fcntl(fd, F_GETFL, 0) {
        Ok(flags) => assert_eq!(flags, O_RDWR | status(target), "the status flags of another file"),
        Err(errno) => assert_eq!(errno, Errno::BADF),
    }
}

/// Property 7: a lookup returns the file that the slot held at some moment of the call, never one that was freed and
/// made anew for another descriptor.
#[test]
fn a_lookup_finds_what_is_there() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default()).unwrap();
    let p = kernel.process().unwrap();
    let targets: Vec<Target> = (0..TARGETS).map(|_| Target::default()).collect();
    for target in 0..TARGETS {
        assert_eq!(p.eventfd(label(target, 0), status(target)), Ok(target as i32));
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (p, targets, stop) = (&p, &targets, &stop);
        let _stop = StopOnDrop(stop);
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                scope.spawn(move || {
                    let mine = || (writer..TARGETS).step_by(2);
                    // However late the readers come, each target shall be found often while it changes.
                    let found = |target: usize| targets[target].found.load(Ordering::Relaxed);
                    for number in
                        (1..1 << 24).take_while(|n| *n < 4000 || mine().any(|t| found(t) < 1000))
                    {
                        mine().for_each(|target| rewrite(p, targets, target, number));
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    (0..TARGETS).for_each(|target| look(p, targets, target));
                }
            });
        }
        // Files are recycled meanwhile, with counts that belong nowhere.
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let fds = [0; 5].map(|_| p.eventfd(u32::MAX, O_ANYFD | O_NONBLOCK).unwrap());
                fds.into_iter().for_each(|fd| p.close(fd).unwrap());
                drop([0; 5].map(|_| p.eventfd_file(u32::MAX, 0).unwrap()));
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    assert!(targets.iter().all(|t| t.found.load(Ordering::Relaxed) >= 1000), "each was looked up");
    assert_eq!((p.open_fds().unwrap().len(), kernel.nr_files()), (TARGETS, TARGETS as i64));
    p.close_range(0, u32::MAX, 0).unwrap();
    assert_nothing_open(&kernel);
}

/// The same, as sharp as it can be made: between a descriptor's closing and its next opening, its old file is already
/// another one, which never was at any descriptor. (A reader must lose its CPU between two neighbouring instructions to
/// meet it, which is rare: this is a stress, and the proof is the model of the slots in quietline-vfs.)
#[test]
fn a_recycled_file_is_not_mistaken() {
    quietline_testing::isolated!();
    const ELSEWHERE: u32 = u32::MAX;
    let kernel = Kernel::boot(Config::default()).unwrap();
    let p = kernel.process().unwrap();
    let (stop, found) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let read = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let Ok(file) = p.file(0) else { continue };
                let count = file.payload::<EventFd>().expect("an eventfd").count();
                assert!(count != u64::from(ELSEWHERE), "a file that never had a descriptor");
                found.fetch_add(1, Ordering::Relaxed);
            }
        });
        for round in 0.. {
            assert_eq!(p.eventfd(round, 0), Ok(0));
            p.close(0).unwrap();
            // Most often the file that was at 0 a moment ago.
            drop(p.eventfd_file(ELSEWHERE, 0).unwrap());
            if read.is_finished() || (round > 400_000 && found.load(Ordering::Relaxed) > 10_000) {
                break;
            }
        }
    });
    assert_nothing_open(&kernel);
}

/// Everything at once on descriptors that everybody uses. Nobody can say what a call will find, but in the end the
/// books are right.
#[test]
fn everything_at_once() {
    quietline_testing::isolated!();
    const SHARED: u32 = 40;
    let kernel = Kernel::boot(Config::default().nofile(200)).unwrap();
    let p = kernel.process().unwrap();
    let cpus = allowed_cpus();
    thread::scope(|scope| {
        for n in 0..6u64 {
            let (p, cpu) = (&p, cpus[n as usize % cpus.len()]);
            scope.spawn(move || {
                pin(cpu);
                let mut random = crate::support::Random(n);
                for round in 0..8000 {
                    let fd = random.below(SHARED as usize) as i32;
                    let to = random.below(SHARED as usize) as i32;
                    let any = if random.below(2) == 0 { 0 } else { O_ANYFD };
                    // Each of these may fail: others close, and fill, what they work on.
                    let outcome = match random.below(12) {
                        0 => p.eventfd(1, any),
                        1 => p.socket(AF_UNIX, SOCK_STREAM | any, 0),
                        2 => p.pipe2(any | O_CLOEXEC).map(|[reader, _]| reader),
                        3 => p.dup2(fd, to),
                        4 => p.dup(fd),
                        5 => p.fcntl(fd, F_SETFD, round & 1),
                        6 => p.fcntl(fd, F_SETFL, O_NONBLOCK as u64),
                        7 => p.fcntl(fd, F_GETFL, 0),
                        8 if round % 64 == 0 => p.close_range(to as u32, SHARED, 0).map(|()| 0),
                        9 if round % 64 == 0 => p.close_range(100, u32::MAX, 0).map(|()| 0),
                        10 => p.file(fd).map(|file| file.clone().flags()),
                        _ => p.close(fd).map(|()| 0),
                    };
                    let expected = [Errno::BADF, Errno::MFILE, Errno::BUSY];
                    assert!(
                        outcome.is_ok() || outcome.is_err_and(|e| expected.contains(&e)),
                        "{outcome:?}"
                    );
                }
            });
        }
    });
    // Count open files by hand: descriptors that are the same file count once.
    let fds = p.open_fds().unwrap();
    let handles: Vec<_> = fds.iter().map(|&fd| p.file(fd).unwrap()).collect();
    let first = |n: &usize| !handles[..*n].iter().any(|other| other.same_file(&handles[*n]));
    let distinct = (0..handles.len()).filter(first).count();
    let names: BTreeSet<String> = handles.iter().map(|file| file.name().to_string()).collect();
    assert_eq!(kernel.nr_files(), distinct as i64);
    assert!(
        kernel.nr_inodes() as usize + 1 >= names.len(),
        "one name for all eventfds, one for each inode"
    );
    drop(handles);
    for &fd in &fds {
        p.close(fd).unwrap();
    }
    assert_nothing_open(&kernel);
    for fd in 0..200 {
        assert_eq!(p.eventfd(0, 0), Ok(fd), "no number was lost");
    }
}

#[test]
fn close_range_and_openers() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default()).unwrap();
    let p = kernel.process().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (p, stop) = (&p, &stop);
        let _stop = StopOnDrop(stop);
        let openers: Vec<_> = (0..3)
            .map(|n| {
                scope.spawn(move || {
                    let any = if n == 0 { 0 } else { O_ANYFD };
                    for _ in 0..20_000 {
                        let fd = p.eventfd(n, any).unwrap();
                        // Perhaps the other thread was faster, and perhaps somebody has the number again.
                        let closed = p.close(fd);
                        assert!(matches!(closed, Ok(()) | Err(Errno::BADF)));
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                p.close_range(0, u32::MAX, 0).unwrap();
                p.close_range(0, u32::MAX, CLOSE_RANGE_CLOEXEC).unwrap();
            }
        });
        openers.into_iter().for_each(|t| t.join().unwrap());
    });
    p.close_range(0, u32::MAX, 0).unwrap();
    assert_nothing_open(&kernel);
}

/// After a `fork` of the host process, what other threads were in the middle of is lost, and no more: the child's one
/// thread goes on with the kernels and processes that it finds.
#[test]
fn a_child_process_goes_on() {
    quietline_testing::isolated!();
    const THREADS: usize = 3;
    let kernel = Kernel::boot(Config::default().owner(0, 0)).unwrap();
    let p = kernel.process().unwrap();
    // So that forks also copy a namespace and limits.
    p.unshare(CLONE_NEWNS).unwrap();
    let kept = p.eventfd(77, 0).unwrap();
    let stop = AtomicBool::new(false);
    let started = Barrier::new(THREADS + 1);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        for n in 0..THREADS {
            let (p, stop, started) = (&p, &stop, &started);
            scope.spawn(move || {
                started.wait();
                while !stop.load(Ordering::Relaxed) {
                    let any = if n == 0 { 0 } else { O_ANYFD };
                    let fd = p.socket(AF_INET, SOCK_STREAM | any, 0).unwrap();
                    if n == 0 {
                        p.chdir("/").unwrap();
                        p.setrlimit(RLIMIT_SIGPENDING, Rlimit { soft: 10, hard: 4096 }).unwrap();
                    }
                    if n == 2 {
                        // Copies come and go, so that their tables' locks have older places than the parent's in the
                        // order in which a fork of the host takes them.
                        let copies = [p.fork().unwrap(), p.fork().unwrap()];
                        assert!(copies.iter().all(|copy| copy.file(kept).is_ok()));
                    }
                    let _flags = p.file(fd).unwrap().flags();
                    p.close(fd).unwrap();
                }
            });
        }
        started.wait();
        for _ in 0..30 {
            in_child(180, || {
                assert_eq!(p.file(kept).unwrap().payload::<EventFd>().unwrap().count(), 77);
                let mut seen: BTreeSet<i32> = p.open_fds().unwrap().into_iter().collect();
                for n in 0..300 {
                    let any = if n % 2 == 0 { 0 } else { O_ANYFD };
                    let fd = p.pipe2(any).unwrap();
                    assert!(fd.into_iter().all(|fd| seen.insert(fd)), "a number twice");
                }
                let copy = p.fork().unwrap();
                assert!(copy.open_fds().unwrap().iter().eq(&seen));
                assert_eq!((p.chdir("/"), copy.getcwd().as_deref()), (Ok(()), Ok(&b"/"[..])));
                p.close_range(0, u32::MAX, 0).unwrap();
                drop(copy);
                assert!(p.open_fds().unwrap().is_empty());
                // Files that a vanished thread held are lost to the child: one that it has in hand each, and those of the
                // two copies, which are no moment's state: of each other thread two perhaps.
                let lost = 1 + THREADS as i64 + 2 * 2 * (THREADS as i64 - 1);
                assert!((0..=lost).contains(&kernel.nr_files()), "{}", kernel.nr_files());
                kernel.shrink();
                let fresh = Kernel::boot(Config::default()).unwrap();
                let other = fresh.process().unwrap();
                assert_eq!(other.socket(AF_INET6, SOCK_DGRAM, 0), Ok(0));
                drop(other);
                assert_nothing_open(&fresh);
            });
        }
    });
    assert_eq!(
        (p.open_fds().unwrap(), kernel.nr_files()),
        (vec![kept], 1),
        "the parent is as it was"
    );
}

/// The thread that rings timers does not come along, and nobody waits for its end.
#[test]
fn timers_end_in_a_child() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default()).unwrap();
    let p = kernel.process().unwrap();
    let fd = p.timerfd_create(CLOCK_MONOTONIC, 0).unwrap();
    let far = ItimerSpec { value: Duration::from_secs(1000), ..ItimerSpec::default() };
    p.timerfd_settime(fd, 0, far).unwrap();
    // Until the thread sleeps: it has a wheel's lock while it looks, which a fork does not wait for.
    until_others_sleep();
    in_child(180, move || {
        assert!(p.timerfd_gettime(fd).unwrap().value > Duration::from_secs(900));
        drop(p);
        assert_nothing_open(&kernel);
        drop(kernel);
    });
}
