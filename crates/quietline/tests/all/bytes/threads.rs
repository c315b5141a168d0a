//! Property 13 of pipes, fifos and event counters, between threads: nothing is lost, nobody sleeps for ever; and memory that runs out.

use crate::support::{alone, assert_nothing_open, spawn_asleep, watched};
use quietline::abi::*;
use quietline::locks::{F_OFD_GETLK, F_OFD_SETLK, F_WRLCK, Flock};
use quietline::{Config, EpollEvent, Errno, Interrupt, Kernel, PollFd, Process, Shared, SigPipe};
use quietline_platform::fault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Runs `f`, which takes a second or so; if it has not ended after three minutes, a thread has been
/// left asleep.
fn within_minutes(f: impl FnOnce() + Send + 'static) {
    let (done, over) = mpsc::channel();
    let worker = thread::spawn(move || {
        f();
        let _ = done.send(());
    });
    match over.recv_timeout(Duration::from_secs(180)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a thread has been left asleep"),
        _ => worker.join().unwrap(),
    }
}

fn process() -> Process {
    Kernel::boot(Config::default()).unwrap().process().unwrap()
}

/// Bytes that writers put into one pipe are those that readers take out of it, whatever the sizes.
#[test]
fn what_goes_in_comes_out() {
    quietline_testing::isolated!();
    for (writers, readers, flags) in [(1, 1, 0), (3, 1, 0), (1, 3, 0), (3, 3, 0), (2, 2, O_DIRECT)]
    {
        within_minutes(move || {
            let p = &process();
            let [reader, writer] = p.pipe2(flags).unwrap();
            p.fcntl(writer, F_SETPIPE_SZ, 8192).unwrap();
            let per_writer = 600_000usize;
            let (sums, counts): (Vec<u64>, Vec<usize>) = thread::scope(|scope| {
                let writing: Vec<_> = (0..writers)
                    .map(|n| {
                        scope.spawn(move || {
                            let mut dice = crate::support::Random(n);
                            let (mut left, mut sum) = (per_writer, 0u64);
                            while left != 0 {
                                let len = (1 + dice.below(12_000)).min(left);
                                let bytes: Vec<u8> =
                                    (0..len).map(|_| dice.below(256) as u8).collect();
                                assert_eq!(p.write(writer, &bytes), Ok(len));
                                sum += bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
                                left -= len;
                            }
                            sum
                        })
                    })
                    .collect();
                let reading: Vec<_> = (0..readers)
                    .map(|n| {
                        scope.spawn(move || {
                            let mut dice = crate::support::Random(100 + n);
                            let (mut sum, mut count) = (0u64, 0);
                            loop {
                                // A packet is not cut.
                                let len = if flags == 0 { 1 + dice.below(10_000) } else { 4096 };
                                let mut room = vec![0; len];
                                let n = p.read(reader, &mut room).unwrap();
                                if n == 0 {
                                    return (sum, count);
                                }
                                sum += room[..n].iter().map(|byte| u64::from(*byte)).sum::<u64>();
                                count += n;
                            }
                        })
                    })
                    .collect();
                let written: u64 = writing.into_iter().map(|writer| writer.join().unwrap()).sum();
                p.close(writer).unwrap();
                let (sums, counts): (Vec<u64>, Vec<usize>) =
                    reading.into_iter().map(|r| r.join().unwrap()).unzip();
                ([&[written][..], &sums].concat(), counts)
            });
            assert_eq!(counts.iter().sum::<usize>(), per_writer * writers as usize);
            assert_eq!(
                sums[0],
                sums[1..].iter().sum::<u64>(),
                "{writers} writers, {readers} readers"
            );
            p.close(reader).unwrap();
            crate::support::settle();
            assert_eq!(p.kernel().nr_files(), 0);
        });
    }
}

/// A write of at most a page comes out in one piece.
#[test]
fn small_writes_are_not_mixed() {
    quietline_testing::isolated!();
    within_minutes(|| {
        let p = &process();
        let [reader, writer] = p.pipe2(0).unwrap();
        thread::scope(|scope| {
            for n in 1..4u8 {
                scope.spawn(move || {
                    let record = [n; 100];
                    (0..5000).for_each(|_| assert_eq!(p.write(writer, &record), Ok(100)));
                });
            }
            let mut record = [0; 100];
            for _ in 0..15_000 {
                let mut have = 0;
                while have < 100 {
                    have += p.read(reader, &mut record[have..]).unwrap();
                }
                assert!(record.iter().all(|byte| *byte == record[0]), "{record:?}");
            }
        });
    });
}

/// Counters: what is added is what is taken, with several of both.
#[test]
fn counts_are_exact() {
    quietline_testing::isolated!();
    for flags in [0, EFD_SEMAPHORE] {
        within_minutes(move || {
            let p = &process();
            let fd = p.eventfd(0, flags).unwrap();
            let all = 2 * 30_000u64;
            let taken: u64 = thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        (0..30_000)
                            .for_each(|_| assert_eq!(p.write(fd, &1u64.to_ne_bytes()), Ok(8)))
                    });
                }
                if flags == EFD_SEMAPHORE {
                    let takers: Vec<_> = (0..2)
                        .map(|_| {
                            scope.spawn(|| {
                                let mut sum = 0;
                                for _ in 0..30_000 {
                                    let mut n = [0; 8];
                                    assert_eq!(p.read(fd, &mut n), Ok(8));
                                    sum += u64::from_ne_bytes(n);
                                }
                                sum
                            })
                        })
                        .collect();
                    return takers.into_iter().map(|taker| taker.join().unwrap()).sum();
                }
                let mut sum = 0;
                while sum < all {
                    let mut n = [0; 8];
                    assert_eq!(p.read(fd, &mut n), Ok(8));
                    sum += u64::from_ne_bytes(n);
                }
                sum
            });
            assert_eq!(taken, all);
        });
    }
}

/// A counter that would be too much lets its writer wait until somebody takes.
#[test]
fn a_full_counter_waits() {
    quietline_testing::isolated!();
    within_minutes(|| {
        let p = &process();
        let fd = p.eventfd(0, 0).unwrap();
        p.write(fd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        thread::scope(|scope| {
            let writer = spawn_asleep(scope, || p.write(fd, &5u64.to_ne_bytes()));
            assert!(!writer.is_finished());
            let mut n = [0; 8];
            p.read(fd, &mut n).unwrap();
            assert_eq!(u64::from_ne_bytes(n), u64::MAX - 1);
            assert_eq!(writer.join().unwrap(), Ok(8));
        });
    });
}

/// What a reader takes may be too little for the writer that has waited longest, and enough for the next.
#[test]
fn a_small_number_passes_a_large_one() {
    quietline_testing::isolated!();
    within_minutes(|| {
        let p = &process();
        let fd = p.eventfd(0, EFD_SEMAPHORE).unwrap();
        p.write(fd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        thread::scope(|scope| {
            let large = spawn_asleep(scope, || p.write(fd, &5u64.to_ne_bytes()));
            let small = spawn_asleep(scope, || p.write(fd, &1u64.to_ne_bytes()));
            let take = || p.read(fd, &mut [0; 8]).unwrap();
            take();
            assert_eq!(small.join().unwrap(), Ok(8));
            assert!(!large.is_finished());
            (0..5).for_each(|_| assert_eq!(take(), 8));
            assert_eq!(large.join().unwrap(), Ok(8));
        });
    });
}

/// A write that waits in the middle, of which some comes before the other end goes: what it says, whether a signal was sent
/// for it, and what the next one says. `cut` reads a little and goes.
fn cut_write(p: &Process, writer: i32, cut: impl FnOnce()) -> (usize, bool, Result<usize, Errno>) {
    p.set_sigpipe(SigPipe::Signal);
    let written = thread::scope(|scope| {
        let writing = spawn_asleep(scope, || p.write(writer, &vec![7; 50_000_000]));
        assert!(!writing.is_finished());
        cut();
        writing.join().unwrap().unwrap()
    });
    let told = p.sigpending() != 0;
    p.set_sigpipe(SigPipe::Ignore);
    (written, told, p.write(writer, &[7]))
}

/// As on Linux: a pipe's writer gets the signal at once, a socket's not before it is told the error; that of a connection that
/// was reset waits for the next call.
#[test]
fn what_a_cut_write_does_not_say() {
    quietline_testing::isolated!();
    within_minutes(|| {
        let p = &process();
        let ends = |cut: [i32; 2]| {
            cut_write(p, cut[1], || {
                assert_eq!(p.read(cut[0], &mut [0; 10]), Ok(10));
                p.close(cut[0]).unwrap();
            })
        };
        let (written, _, next) = ends(p.socketpair(AF_UNIX, SOCK_STREAM, 0).unwrap());
        assert!((10..50_000_000).contains(&written));
        assert_eq!((p.sigpending(), next), (0, Err(Errno::PIPE)));
        let listener = p.socket(AF_INET, SOCK_STREAM, 0).unwrap();
        p.listen(listener, 1).unwrap();
        let writer = p.socket(AF_INET, SOCK_STREAM, 0).unwrap();
        p.connect(writer, p.getsockname(listener).unwrap().bytes()).unwrap();
        let (written, told, next) = ends([p.accept(listener).unwrap().0, writer]);
        assert!((10..50_000_000).contains(&written));
        assert_eq!((told, next), (false, Err(Errno::CONNRESET)));
        assert_eq!(p.write(writer, &[7]), Err(Errno::PIPE));
        let (written, told, next) = ends(p.pipe2(0).unwrap());
        assert_eq!((written, told, next), (65_536, true, Err(Errno::PIPE)));
    });
}

/// Two who splice from one pipe: the one that finds it emptied by the other waits on, and does not take that for the end.
#[test]
fn an_empty_pipe_is_not_its_end() {
    quietline_testing::isolated!();
    within_minutes(|| {
        let p = &process();
        let [reader, writer] = p.pipe2(0).unwrap();
        let pieces = 20_000;
        let taken: usize = thread::scope(|scope| {
            let readers: Vec<_> = (0..3)
                .map(|n| {
                    scope.spawn(move || {
                        let file = p.memfd_create("m", 0).unwrap();
                        let mut taken = 0;
                        loop {
                            let got = match n {
                                0 => p.read(reader, &mut [0; 1]),
                                _ => p.splice(reader, None, file, None, 1, 0),
                            };
                            match got.unwrap() {
                                0 => return taken,
                                n => taken += n,
                            }
                        }
                    })
                })
                .collect();
            (0..pieces).for_each(|_| assert_eq!(p.write(writer, b"x"), Ok(1)));
            thread::sleep(Duration::from_millis(10));
            assert!(
                readers.iter().all(|reader| !reader.is_finished()),
                "a thread has been told of an end"
            );
            p.close(writer).unwrap();
            readers.into_iter().map(|reader| reader.join().unwrap()).sum()
        });
        assert_eq!(taken, pieces);
    });
}

/// Nor to who duplicates what is in it, when another reader or another writer of the target was faster.
#[test]
fn an_empty_pipe_is_not_its_end_for_tee() {
    quietline_testing::isolated!();
    let written = AtomicU64::new(0);
    watched(&written, || {
        let p = &process();
        let ([reader, writer], [copy, target]) = (p.pipe2(0).unwrap(), p.pipe2(0).unwrap());
        p.fcntl(target, F_SETPIPE_SZ, 4096).unwrap();
        let pieces = 100_000;
        let (taken, teed, copied) = thread::scope(|scope| {
            let all = |fd: i32| {
                let mut all = 0;
                while let n @ 1.. = p.read(fd, &mut [0; 64]).unwrap() {
                    all += n;
                }
                all
            };
            let tees: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut all = 0;
                        while let n @ 1.. = p.tee(reader, target, 1, 0).unwrap() {
                            all += n;
                        }
                        all
                    })
                })
                .collect();
            let (taking, copying) =
                (scope.spawn(move || all(reader)), scope.spawn(move || all(copy)));
            for _ in 0..pieces {
                assert_eq!(p.write(writer, b"x"), Ok(1));
                written.fetch_add(1, Ordering::Relaxed);
            }
            thread::sleep(Duration::from_millis(10));
            assert!(tees.iter().all(|tee| !tee.is_finished()), "a thread has been told of an end");
            p.close(writer).unwrap();
            let teed: usize = tees.into_iter().map(|tee| tee.join().unwrap()).sum();
            p.close(target).unwrap();
            (taking.join().unwrap(), teed, copying.join().unwrap())
        });
        assert_eq!((taken, copied), (pieces, teed));
    });
}

/// What a splice has taken out of a pipe and waits with is still in it: nobody is told of its end, or given what comes after it.
#[test]
fn what_a_splice_waits_with_is_not_gone() {
    quietline_testing::isolated!();
    within_minutes(|| {
        let p = &process();
        for pages in [1, 2] {
            let [reader, writer] = p.pipe2(O_DIRECT).unwrap();
            (0..pages).for_each(|n| assert_eq!(p.write(writer, &[n, n, n]), Ok(3)));
            p.close(writer).unwrap();
            let [full, end] = p.socketpair(AF_UNIX, SOCK_STREAM, 0).unwrap();
            p.fcntl(full, F_SETFL, O_NONBLOCK as u64).unwrap();
            while p.write(full, &[0; 4096]).is_ok() {}
            p.fcntl(full, F_SETFL, 0).unwrap();
            let interrupt = Shared::new(Interrupt::new()).unwrap();
            let mut bytes = [9; 8];
            thread::scope(|scope| {
                let splicing = spawn_asleep(scope, || {
                    let _entered = Interrupt::enter(&interrupt);
                    p.splice(reader, None, full, None, 3, 0)
                });
                let mut poll = [PollFd { fd: reader, events: 0x7fff, revents: 0 }];
                assert_eq!(p.poll(&mut poll, 0), Ok(1));
                assert_eq!(
                    poll[0].revents & 0x11,
                    0x11,
                    "there is something to read, and nobody writes"
                );
                p.fcntl(reader, F_SETFL, O_NONBLOCK as u64).unwrap();
                assert_eq!(p.read(reader, &mut bytes), Err(Errno::AGAIN));
                p.fcntl(reader, F_SETFL, 0).unwrap();
                let reading = spawn_asleep(scope, || {
                    let mut bytes = [9; 8];
                    p.read(reader, &mut bytes).map(|n| bytes[..n].to_vec())
                });
                interrupt.raise();
                assert_eq!(splicing.join().unwrap(), Err(Errno::INTR));
                assert_eq!(
                    reading.join().unwrap(),
                    Ok(vec![0; 3]),
                    "it is the first one, as it was"
                );
            });
            (1..pages).for_each(|n| {
                assert_eq!(p.read(reader, &mut bytes), Ok(3));
                assert_eq!(bytes[..3], [n; 3]);
            });
            assert_eq!(p.read(reader, &mut bytes), Ok(0), "now it is the end");
            for fd in [reader, full, end] {
                p.close(fd).unwrap();
            }
        }
    });
}

/// A fifo has no position, also while an epoll watches it.
#[test]
fn locks_count_from_the_beginning_of_a_fifo() {
    quietline_testing::isolated!();
    let p = process();
    p.mknod("/f", S_IFIFO | 0o600, 0).unwrap();
    let (fd, ep) = (p.open("/f", O_RDWR, 0).unwrap(), p.epoll_create1(0).unwrap());
    p.epoll_ctl(ep, 1, fd, &EpollEvent { events: 1, data: 0 }).unwrap();
    let mut lock =
        Flock { l_type: F_WRLCK, l_whence: SEEK_CUR as i16, l_start: 5, l_len: 1, l_pid: 0 };
    p.fcntl_lock(fd, F_OFD_SETLK, &mut lock).unwrap();
    let other = p.open("/f", O_RDWR, 0).unwrap();
    let mut found = Flock { l_type: F_WRLCK, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    p.fcntl_lock(other, F_OFD_GETLK, &mut found).unwrap();
    assert_eq!((found.l_type, found.l_start, found.l_len), (F_WRLCK, 5, 1));
}

/// Those who sleep learn that the other end is gone.
#[test]
fn ends_that_go_wake_the_others() {
    quietline_testing::isolated!();
    within_minutes(|| {
        let p = &process();
        let [reader, writer] = p.pipe2(0).unwrap();
        thread::scope(|scope| {
            let reading = spawn_asleep(scope, || p.read(reader, &mut [0; 10]));
            p.close(writer).unwrap();
            assert_eq!(reading.join().unwrap(), Ok(0));
        });
        p.close(reader).unwrap();
        let [reader, writer] = p.pipe2(0).unwrap();
        thread::scope(|scope| {
            let writing = spawn_asleep(scope, || p.write(writer, &vec![1; 100_000]));
            p.close(reader).unwrap();
            assert_eq!(writing.join().unwrap(), Ok(65_536), "what had gone before counts");
        });
        assert_eq!(p.write(writer, b"x"), Err(Errno::PIPE));
    });
}

/// A descriptor that is closed while a call waits on it: the call goes on.
#[test]
fn a_closed_descriptor_does_not_end_a_call() {
    quietline_testing::isolated!();
    within_minutes(|| {
        let p = &process();
        let [reader, writer] = p.pipe2(0).unwrap();
        thread::scope(|scope| {
            let reading = spawn_asleep(scope, || {
                let mut room = [0; 10];
                p.read(reader, &mut room).map(|n| room[..n].to_vec())
            });
            p.close(reader).unwrap();
            assert_eq!(p.write(writer, b"abc"), Ok(3));
            assert_eq!(reading.join().unwrap(), Ok(b"abc".to_vec()));
        });
    });
}

/// Objects that are used by one thread while another one closes and makes them.
#[test]
fn uses_race_with_closes() {
    quietline_testing::isolated!();
    within_minutes(|| {
        let p = &process();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let [reader, writer] = p.pipe2(O_NONBLOCK).unwrap();
                        let _ = p.write(writer, b"mine");
                        p.close(reader).unwrap();
                        p.close(writer).unwrap();
                        let event = p.eventfd(1, O_NONBLOCK).unwrap();
                        p.close(event).unwrap();
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for n in 0..100_000 {
                        let fd = n % 6;
                        let mut room = [0; 16];
                        match p.read(fd, &mut room) {
                            Ok(4) => assert_eq!(&room[..4], b"mine"),
                            Ok(0 | 8) | Err(Errno::AGAIN | Errno::BADF) => {}
                            odd => panic!("{odd:?}"),
                        }
                    }
                });
            }
        });
        crate::support::settle();
        let kernel = p.kernel();
        assert_eq!((kernel.nr_files(), kernel.nr_dentry(), kernel.nr_inodes()), (0, 0, 0));
    });
}

#[test]
fn waits_are_interrupted() {
    quietline_testing::isolated!();
    within_minutes(|| {
        let p = &process();
        let [reader, writer] = p.pipe2(0).unwrap();
        p.mknod("/f", S_IFIFO | 0o600, 0).unwrap();
        let interrupt = Shared::new(Interrupt::new()).unwrap();
        thread::scope(|scope| {
            let reading = spawn_asleep(scope, || {
                let _entered = Interrupt::enter(&interrupt);
                let read = p.read(reader, &mut [0]);
                (
                    read,
                    p.write(writer, &vec![0; 70_000]),
                    p.write(writer, &[0]),
                    p.open("/f", O_RDONLY, 0),
                )
            });
            interrupt.raise();
            let intr = Errno::INTR;
            assert_eq!(reading.join().unwrap(), (Err(intr), Ok(65_536), Err(intr), Err(intr)));
        });
        // The opening that came to nothing is not counted.
        assert_eq!(p.open("/f", O_WRONLY | O_NONBLOCK, 0), Err(Errno::NXIO));
    });
}

/// Those who open a fifo wait for each other, in either order, and also for one that comes and goes.
#[test]
fn fifo_openers_meet() {
    quietline_testing::isolated!();
    within_minutes(|| {
        let p = &process();
        p.mknod("/f", S_IFIFO | 0o600, 0).unwrap();
        for [first, second] in [[O_RDONLY, O_WRONLY], [O_WRONLY, O_RDONLY]] {
            thread::scope(|scope| {
                let waiting = spawn_asleep(scope, move || p.open("/f", first, 0).unwrap());
                assert!(!waiting.is_finished());
                let (second, first) = (p.open("/f", second, 0).unwrap(), waiting.join().unwrap());
                let [reader, writer] =
                    if first_reads(p, first) { [first, second] } else { [second, first] };
                assert_eq!(p.write(writer, b"through"), Ok(7));
                let mut room = [0; 7];
                assert_eq!(p.read(reader, &mut room), Ok(7));
                assert_eq!(&room, b"through");
                p.close(reader).unwrap();
                p.close(writer).unwrap();
            });
        }
        // What nobody has read goes with the last who has it open.
        let both = p.open("/f", O_RDWR, 0).unwrap();
        p.write(both, b"gone").unwrap();
        p.close(both).unwrap();
        let both = p.open("/f", O_RDWR | O_NONBLOCK, 0).unwrap();
        assert_eq!(p.read(both, &mut [0; 4]), Err(Errno::AGAIN));
    });
}

fn first_reads(p: &Process, fd: i32) -> bool {
    p.fcntl(fd, F_GETFL, 0).unwrap() & O_ACCMODE == O_RDONLY
}

/// Every allocation of a write fails once: what the call says is what is there.
#[test]
fn memory_that_runs_out() {
    quietline_testing::isolated!();
    let _alone = alone();
    let (mut reported, mut short) = (0, 0);
    for n in 1..1000 {
        let kernel = Kernel::boot(Config::default()).unwrap();
        let p = kernel.process().unwrap();
        let [reader, writer] = p.pipe2(O_NONBLOCK).unwrap();
        fault::fail_from(n);
        let size = p.fcntl(writer, F_SETPIPE_SZ, 1 << 18);
        let written = p.write(writer, &[5; 60_000]);
        let met = !fault::armed() || size.is_err() || written.is_err();
        fault::fail_nth(0);
        let written = match written {
            Ok(written) => written,
            Err(errno) => {
                assert_eq!(errno, Errno::NOMEM);
                reported += 1;
                0
            }
        };
        short += u64::from(written != 0 && written != 60_000);
        let mut room = vec![0; 100_000];
        assert_eq!(
            p.read(reader, &mut room),
            if written == 0 { Err(Errno::AGAIN) } else { Ok(written) }
        );
        assert!(room[..written].iter().all(|byte| *byte == 5));
        p.close(reader).unwrap();
        p.close(writer).unwrap();
        crate::support::settle();
        assert_nothing_open(&kernel);
        if !met {
            assert!(reported > 0, "some allocation was met");
            println!("{n} allocations: {reported} reported, {short} short writes");
            return;
        }
    }
    panic!("a write has no end of allocations");
}
