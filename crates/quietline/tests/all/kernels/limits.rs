//! Limits, at the edge and past it. Property 1: the limit on files is overshot by what is in flight, at most.

use crate::support::{Random, allowed_cpus, assert_nothing_open, pin};
use quietline::abi::*;
use quietline::{Config, Errno, Kernel, Process};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

fn process(config: Config) -> Process {
    Kernel::boot(config).unwrap().process().unwrap()
}

#[test]
fn nofile_is_exact() {
    quietline_testing::isolated!();
    for nofile in [0, 1, 2, 63, 64, 65, 1024, 1 << 20] {
        for any in [0, O_ANYFD] {
            let p = process(Config::default().nofile(nofile));
            let mut fds = Vec::with_capacity(nofile);
            for _ in 0..nofile {
                fds.push(p.eventfd(0, any).unwrap());
            }
            assert_eq!(p.eventfd(0, any), Err(Errno::MFILE), "{nofile}, flags {any:#x}");
            assert_eq!(p.eventfd(0, 0), Err(Errno::MFILE));
            assert_eq!(p.eventfd(0, O_ANYFD), Err(Errno::MFILE));
            assert_eq!(
                p.kernel().nr_files(),
                nofile as i64,
                "files that got no descriptor are closed"
            );
            if any != 0 {
                fds.sort_unstable();
            }
            assert!(fds.iter().copied().eq(0..nofile as i32), "each number once");
            if nofile > 0 {
                let free = nofile as i32 / 2;
                p.close(free).unwrap();
                assert_eq!(p.eventfd(0, any ^ O_ANYFD), Ok(free));
            }
            p.close_range(0, u32::MAX, 0).unwrap();
            assert_nothing_open(p.kernel());
        }
    }
}

#[test]
fn nofile_has_a_limit_itself() {
    quietline_testing::isolated!();
    let p = process(Config::default().nofile(usize::MAX));
    assert_eq!(p.nofile(), 1 << 20);
    assert_eq!(p.set_nofile((1 << 20) + 1), Err(Errno::PERM));
    assert_eq!(p.eventfd(0, 0), Ok(0));
    assert_eq!(p.dup2(0, (1 << 20) - 1), Ok((1 << 20) - 1));
    assert_eq!(p.dup2(0, 1 << 20), Err(Errno::BADF));
    assert_eq!(p.fcntl(0, F_DUPFD, (1 << 20) - 1), Err(Errno::MFILE));
    assert_eq!(p.fcntl(0, F_DUPFD, 1 << 20), Err(Errno::INVAL));
}

#[test]
fn a_lowered_limit_closes_nothing() {
    quietline_testing::isolated!();
    for any in [0, O_ANYFD] {
        let p = process(Config::default().nofile(100));
        let fds: Vec<i32> = (0..100).map(|n| p.eventfd(n, any).unwrap()).collect();
        p.set_nofile(10).unwrap();
        assert_eq!(p.open_fds().unwrap().len(), 100);
        p.close(50).unwrap();
        assert_eq!(p.eventfd(0, any), Err(Errno::MFILE));
        assert_eq!(p.dup2(0, 99), Err(Errno::BADF), "open, but not below the limit");
        p.close(5).unwrap();
        assert_eq!(p.eventfd(0, any), Ok(5));
        p.close_range(10, 99, 0).unwrap();
        assert_eq!(p.eventfd(0, any), Err(Errno::MFILE));
        p.set_nofile(100).unwrap();
        let again: BTreeSet<i32> = (0..90).map(|n| p.eventfd(n, any).unwrap()).collect();
        assert!(again.into_iter().eq(10..100));
        assert_eq!(fds.len(), p.open_fds().unwrap().len());
    }
}

#[test]
fn file_max_is_exact_for_one_thread() {
    quietline_testing::isolated!();
    for file_max in [0, 1, 2, 31, 32, 33, 64, 200, 1000] {
        let p = process(Config::default().file_max(file_max));
        for n in 0..file_max {
            assert!(p.eventfd(0, 0).is_ok(), "{n} of {file_max}");
        }
        assert_eq!(p.eventfd(0, 0), Err(Errno::NFILE), "{file_max}");
        assert_eq!(p.eventfd(0, O_ANYFD), Err(Errno::NFILE));
        assert_eq!(p.socket_file(AF_INET, SOCK_STREAM, 0).unwrap_err(), Errno::NFILE);
        assert_eq!(p.pipe2(0), Err(Errno::NFILE));
        assert_eq!(p.kernel().nr_files(), file_max as i64);
        assert_eq!(
            p.kernel().nr_dentry(),
            file_max as i64,
            "objects of files that failed are gone"
        );
        if file_max > 0 {
            assert_eq!(p.dup(0), Ok(file_max as i32), "a duplicate is no file");
            assert_eq!(p.pipe2(0), Err(Errno::NFILE));
            p.close(file_max as i32).unwrap();
            p.close(0).unwrap();
            assert_eq!(p.eventfd(0, 0), Ok(0), "one was free");
            assert_eq!(p.eventfd(0, 0), Err(Errno::NFILE));
        }
        p.kernel().set_file_max(file_max + 2);
        p.pipe2(0).unwrap();
        p.close_range(0, u32::MAX, 0).unwrap();
        assert_nothing_open(p.kernel());
    }
}

#[test]
fn a_pipe_needs_two_files() {
    quietline_testing::isolated!();
    let p = process(Config::default().file_max(3));
    p.pipe2(0).unwrap();
    assert_eq!(p.pipe2(0), Err(Errno::NFILE));
    assert_eq!((p.kernel().nr_files(), p.kernel().nr_dentry(), p.kernel().nr_inodes()), (2, 1, 1));
    assert_eq!(p.eventfd(0, 0), Ok(2));
    p.set_nofile(4).unwrap();
    p.kernel().set_file_max(u64::MAX);
    assert_eq!(p.pipe2(0), Err(Errno::MFILE), "one descriptor is not enough");
    assert_eq!(p.pipe2(O_ANYFD), Err(Errno::MFILE));
    assert_eq!((p.open_fds().unwrap(), p.kernel().nr_files()), (vec![0, 1, 2], 3));
    assert_eq!(p.eventfd(0, 0), Ok(3), "and it is still there");
}

#[test]
fn who_is_privileged_has_no_file_max() {
    quietline_testing::isolated!();
    let p = process(Config::default().file_max(1).privileged(true));
    for fd in 0..1000 {
        assert_eq!(p.eventfd(0, 0), Ok(fd));
    }
}

/// Which of two errors: Linux takes a descriptor first, but for a pipe the files first.
#[test]
fn descriptors_run_out_before_files() {
    quietline_testing::isolated!();
    let p = process(Config::default().nofile(2).file_max(2));
    p.pipe2(0).unwrap();
    for any in [0, O_ANYFD] {
        assert_eq!(p.socket(AF_INET, SOCK_STREAM | any, 0), Err(Errno::MFILE));
        assert_eq!(p.eventfd(0, any), Err(Errno::MFILE));
        assert_eq!(p.timerfd_create(CLOCK_MONOTONIC, any), Err(Errno::MFILE));
        assert_eq!(p.signalfd(-1, 0, any), Err(Errno::MFILE));
        assert_eq!(p.pipe2(any), Err(Errno::NFILE));
        assert_eq!(
            p.socket(AF_INET, 77 | any, 0),
            Err(Errno::INVAL),
            "nonsense runs out of nothing"
        );
    }
    assert_eq!(p.dup(0), Err(Errno::MFILE));
    p.set_nofile(3).unwrap();
    assert_eq!(p.eventfd(0, 0), Err(Errno::NFILE));
    assert_eq!(p.dup(0), Ok(2));
}

#[test]
fn file_max_is_exceeded_by_threads_in_flight_at_most() {
    quietline_testing::isolated!();
    const THREADS: usize = 4;
    for (round, file_max) in (0..40).zip([0, 1, 50, 700].into_iter().cycle()) {
        let kernel = Kernel::boot(Config::default().file_max(file_max)).unwrap();
        let start = Barrier::new(THREADS);
        let opened: usize = thread::scope(|scope| {
            let open = |any| {
                let p = kernel.process().unwrap();
                start.wait();
                let opened = (0..).take_while(|_| p.eventfd(0, any).is_ok()).count();
                // None is closed before all have come to the limit.
                start.wait();
                opened
            };
            let threads: Vec<_> = (0..THREADS)
                .map(|n| scope.spawn(move || open(if n % 2 == 0 { 0 } else { O_ANYFD })))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        let file_max = file_max as usize;
        assert!(
            (file_max..=file_max + THREADS).contains(&opened),
            "round {round}: {opened} of {file_max}"
        );
        assert_nothing_open(&kernel);
    }
}

/// Numbers that another CPU keeps for itself are found when there are no others.
#[test]
fn a_full_table_is_full_on_every_cpu() {
    quietline_testing::isolated!();
    let cpus = allowed_cpus();
    for nofile in [1, 2, 8, 64, 65, 200] {
        let p = process(Config::default().nofile(nofile));
        let turn = |cpu: usize, any: i32| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    pin(cpu);
                    let fds: BTreeSet<i32> =
                        (0..nofile).map(|_| p.eventfd(0, any).expect("free")).collect();
                    assert!(fds.iter().copied().eq(0..nofile as i32));
                    assert_eq!(p.eventfd(0, O_ANYFD), Err(Errno::MFILE));
                    assert_eq!(p.eventfd(0, 0), Err(Errno::MFILE));
                    fds.iter().for_each(|&fd| p.close(fd).unwrap());
                });
            });
        };
        for round in 0..3 {
            for &cpu in &cpus {
                turn(cpu, O_ANYFD);
                if round == 1 {
                    turn(cpu, 0);
                }
            }
        }
        assert_nothing_open(p.kernel());
    }
}

/// What a table should have open.
struct Model {
    open: BTreeSet<i32>,
    limit: usize,
}

impl Model {
    fn lowest(&self, from: i32) -> Result<i32, Errno> {
        (from..self.limit as i32).find(|fd| !self.open.contains(fd)).ok_or(Errno::MFILE)
    }

    fn step(&mut self, p: &Process, random: &mut Random) {
        let span = self.limit + 3;
        let fd = random.below(span) as i32;
        let target = random.below(span) as i32;
        match random.below(20) {
            0..5 => {
                let expected = self.lowest(0);
                assert_eq!(p.eventfd(0, 0), expected, "the lowest free number");
                self.open.extend(expected);
            }
            5..10 => match p.eventfd(0, O_ANYFD) {
                Ok(fd) => {
                    assert!((fd as usize) < self.limit);
                    assert!(self.open.insert(fd), "{fd} was open");
                }
                Err(errno) => assert_eq!(Err(errno), self.lowest(0), "there is no free number"),
            },
            10 => {
                let expected =
                    if self.open.contains(&fd) { self.lowest(0) } else { Err(Errno::BADF) };
                assert_eq!(p.dup(fd), expected);
                self.open.extend(expected);
            }
            11 => {
                let expected = match self.open.contains(&fd) {
                    false => Err(Errno::BADF),
                    true if target as usize >= self.limit => Err(Errno::INVAL),
                    true => self.lowest(target),
                };
                assert_eq!(p.fcntl(fd, F_DUPFD, target as u64), expected);
                self.open.extend(expected);
            }
            12..14 => {
                let open = self.open.contains(&fd);
                let fits = (target as usize) < self.limit || fd == target;
                let expected = if open && fits { Ok(target) } else { Err(Errno::BADF) };
                assert_eq!(p.dup2(fd, target), expected);
                self.open.extend(expected);
            }
            14..19 => {
                let expected = if self.open.remove(&fd) { Ok(()) } else { Err(Errno::BADF) };
                assert_eq!(p.close(fd), expected);
            }
            _ => {
                let last = fd + random.below(6) as i32;
                p.close_range(fd as u32, last as u32, 0).unwrap();
                self.open.retain(|open| !(fd..=last).contains(open));
            }
        }
    }
}

/// Threads on several CPUs take turns, so that each call has one right answer.
#[test]
fn the_lowest_number_is_the_lowest_whatever_cpus_keep() {
    quietline_testing::isolated!();
    const THREADS: usize = 4;
    let cpus = allowed_cpus();
    for limit in [5, 70, 1500] {
        let p = process(Config::default().nofile(limit));
        let model = Mutex::new(Model { open: BTreeSet::new(), limit });
        thread::scope(|scope| {
            for n in 0..THREADS {
                let (p, model, cpu) = (&p, &model, cpus[n % cpus.len()]);
                scope.spawn(move || {
                    pin(cpu);
                    let mut random = Random((limit * THREADS + n) as u64);
                    for _ in 0..quietline_testing::scaled(150) {
                        let mut model = model.lock().unwrap();
                        (0..20).for_each(|_| model.step(p, &mut random));
                        assert!(p.open_fds().unwrap().iter().eq(&model.open));
                    }
                });
            }
        });
        p.close_range(0, u32::MAX, 0).unwrap();
        assert_nothing_open(p.kernel());
    }
}

/// Threads that do not wait for each other: no number has two owners, and the books are right in the end.
#[test]
fn no_number_has_two_owners() {
    quietline_testing::isolated!();
    const THREADS: usize = 4;
    const LIMIT: usize = 300;
    let p = process(Config::default().nofile(LIMIT));
    let owned: Vec<AtomicBool> = (0..LIMIT).map(|_| AtomicBool::new(false)).collect();
    let refused = AtomicUsize::new(0);
    let kept: BTreeSet<i32> = thread::scope(|scope| {
        let run = |n: usize| {
            let mut random = Random(n as u64);
            let mut mine: Vec<i32> = Vec::new();
            for _ in 0..6000 {
                let any = if random.below(2) == 0 { 0 } else { O_ANYFD };
                if random.below(20) < 11 {
                    let fd = match mine.first() {
                        Some(&fd) if random.below(4) == 0 => p.dup(fd),
                        _ => p.eventfd(0, any),
                    };
                    match fd {
                        Ok(fd) => {
                            let was = owned[fd as usize].swap(true, Ordering::AcqRel);
                            assert!(!was, "{fd} has an owner");
                            mine.push(fd);
                        }
                        Err(errno) => {
                            assert_eq!(errno, Errno::MFILE);
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                } else if !mine.is_empty() {
                    if let [.., a, b] = mine[..]
                        && random.below(3) == 0
                    {
                        assert_eq!(p.dup2(a, b), Ok(b));
                    }
                    let fd = mine.swap_remove(random.below(mine.len()));
                    assert!(owned[fd as usize].swap(false, Ordering::AcqRel));
                    match random.below(2) {
                        0 => p.close(fd).unwrap(),
                        _ => p.close_range(fd as u32, fd as u32, 0).unwrap(),
                    }
                }
            }
            mine
        };
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || run(n))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    assert!(p.open_fds().unwrap().iter().eq(&kept));
    assert!(refused.into_inner() > 0, "the limit was met");
    for fd in 0..LIMIT as i32 {
        if !kept.contains(&fd) {
            assert_eq!(p.eventfd(0, 0), Ok(fd), "free numbers are all still there");
        }
    }
    assert_eq!(p.eventfd(0, O_ANYFD), Err(Errno::MFILE));
    p.close_range(0, u32::MAX, 0).unwrap();
    assert_nothing_open(p.kernel());
}

/// Two threads meet the limit on files together. A call that fails with `ENFILE` leaves no name,
/// and a caller that is exempt makes its file at the first attempt.
#[test]
fn a_file_over_the_limit_leaves_no_name() {
    quietline_testing::isolated!();
    for privileged in [false, true] {
        let kernel = Kernel::boot(Config::default().privileged(privileged).file_max(2)).unwrap();
        let rounds = quietline_testing::budget("QUIETLINE_FILE_MAX_ROUNDS", 5_000);
        let refused = AtomicUsize::new(0);
        thread::scope(|scope| {
            for n in 0..2 {
                let (kernel, refused) = (&kernel, &refused);
                scope.spawn(move || {
                    let p = kernel.process().unwrap();
                    let name = format!("/{n}");
                    for _ in 0..rounds {
                        let kept = p.eventfd(0, 0);
                        match p.open(&name, O_CREAT | O_EXCL | O_RDWR, 0o600) {
                            Ok(fd) => {
                                p.close(fd).unwrap();
                                p.unlink(&name).unwrap();
                            }
                            Err(errno) => {
                                assert_eq!((errno, privileged), (Errno::NFILE, false));
                                assert_eq!(p.unlink(&name), Err(Errno::NOENT), "no name is left");
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        let _ = kept.map(|fd| p.close(fd));
                    }
                });
            }
        });
        println!("privileged: {privileged}, refused: {}", refused.into_inner());
        assert_nothing_open(&kernel);
    }
}
