//! What bytes through pipes and event counters take, one thread: nanoseconds on the CPU of quietline's calls and of the host
//! kernel's same calls, in turns; the median of some rounds. Last, a round trip between two threads, by the clock on the wall.
//!
//! `cargo run --release -p quietline --example bytes [ROW]`

// The host's side is made of system calls.
#![allow(unsafe_code)]

use quietline::{Config, Kernel, Process};
use std::time::Instant;

const ROUNDS: usize = 9;

/// Nanoseconds that this thread has been on a CPU: other programs do not count.
fn on_cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel that tells");
    stat.split(' ').next().and_then(|first| first.parse().ok()).expect("a number")
}

fn timed(n: usize, work: &mut impl FnMut(usize)) -> f64 {
    let begin = on_cpu();
    work(n);
    (on_cpu() - begin) as f64 / n as f64
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Runs both sides' work in turns, each `n` operations; prints the medians.
fn row(name: &str, n: usize, mut ours: impl FnMut(usize), mut host: impl FnMut(usize)) {
    if std::env::args().nth(1).is_some_and(|only| !name.contains(&only)) {
        return;
    }
    ours(n / 10 + 1);
    host(n / 100 + 1);
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        one.push(timed(n, &mut ours));
        other.push(timed(n / 10 + 1, &mut host));
    }
    // Sorted by this.
    let (one_median, other_median) = (median(&mut one), median(&mut other));
    println!("{name:<32} {one_median:>8.1}  (from {:.1})   host {other_median:>8.1}", one[0]);
}

fn check(n: isize, wanted: usize) {
    assert_eq!(n, wanted as isize, "the host's call");
}

fn host_pipe() -> [i32; 2] {
    let mut fds = [0; 2];
    // SAFETY: room for two.
    check(unsafe { libc::pipe(fds.as_mut_ptr()) } as isize, 0);
    fds
}

fn host_write(fd: i32, bytes: &[u8]) {
    // SAFETY: the bytes are there.
    check(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) }, bytes.len());
}

fn host_read(fd: i32, bytes: &mut [u8]) {
    // SAFETY: the room is there.
    check(unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) }, bytes.len());
}

fn transfer(p: &Process, name: &str, n: usize, len: usize) {
    let [reader, writer] = p.pipe2(0).expect("a pipe");
    let [host_reader, host_writer] = host_pipe();
    let (from, mut to, mut back) = (vec![7; len], vec![0; len], vec![0; len]);
    row(
        name,
        n,
        |n| {
            for _ in 0..n {
                assert_eq!(p.write(writer, &from), Ok(len));
                assert_eq!(p.read(reader, &mut to), Ok(len));
            }
            assert_eq!(from, to);
        },
        |n| {
            for _ in 0..n {
                host_write(host_writer, &from);
                host_read(host_reader, &mut back);
            }
        },
    );
}

fn main() {
    let kernel = Kernel::boot(Config::default()).expect("memory");
    let p = kernel.process().expect("memory");
    row(
        "pipe2 and two close",
        1_000_000,
        |n| {
            for _ in 0..n {
                let [reader, writer] = p.pipe2(0).expect("a pipe");
                p.close(reader).and_then(|()| p.close(writer)).expect("open");
            }
        },
        |n| {
            for _ in 0..n {
                for fd in host_pipe() {
                    // SAFETY: a descriptor of our own.
                    check(unsafe { libc::close(fd) } as isize, 0);
                }
            }
        },
    );
    transfer(&p, "pipe write and read, 1 byte", 2_000_000, 1);
    transfer(&p, "pipe write and read, 4 KiB", 1_000_000, 4096);
    transfer(&p, "pipe write and read, 64 KiB", 50_000, 65_536);
    let event = p.eventfd(0, 0).expect("an eventfd");
    // SAFETY: no memory is involved.
    let host_event = unsafe { libc::eventfd(0, 0) };
    let one = 1u64.to_ne_bytes();
    let (mut mine, mut its) = ([0; 8], [0; 8]);
    row(
        "eventfd write and read",
        2_000_000,
        |n| {
            for _ in 0..n {
                assert_eq!(p.write(event, &one), Ok(8));
                assert_eq!(p.read(event, &mut mine), Ok(8));
            }
            assert_eq!(mine, one);
        },
        |n| {
            for _ in 0..n {
                host_write(host_event, &one);
                host_read(host_event, &mut its);
            }
        },
    );
    let [[a, b], [c, d]] = [p.pipe2(0).expect("a pipe"), p.pipe2(0).expect("a pipe")];
    let ([ha, hb], [hc, hd]) = (host_pipe(), host_pipe());
    let (page, mut room, mut back) = ([3; 4096], [0; 4096], [0; 4096]);
    row(
        "write, splice, read, 4 KiB",
        500_000,
        |n| {
            for _ in 0..n {
                assert_eq!(p.write(b, &page), Ok(4096));
                assert_eq!(p.splice(a, None, d, None, 4096, 0), Ok(4096));
                assert_eq!(p.read(c, &mut room), Ok(4096));
            }
        },
        |n| {
            for _ in 0..n {
                host_write(hb, &page);
                // SAFETY: no memory is involved.
                let moved = unsafe {
                    libc::splice(ha, core::ptr::null_mut(), hd, core::ptr::null_mut(), 4096, 0)
                };
                check(moved, 4096);
                host_read(hc, &mut back);
            }
        },
    );
    round_trips(&p);
}

/// Two threads that hand a byte back and forth.
fn round_trips(p: &Process) {
    const TRIPS: usize = 50_000;
    let name = "round trip between two threads";
    if std::env::args().nth(1).is_some_and(|only| !name.contains(&only)) {
        return;
    }
    let [[a, b], [c, d]] = [p.pipe2(0).expect("a pipe"), p.pipe2(0).expect("a pipe")];
    let ([ha, hb], [hc, hd]) = (host_pipe(), host_pipe());
    let (mut ours, mut hosts) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut byte = [0];
                for _ in 0..TRIPS {
                    assert_eq!(p.read(a, &mut byte), Ok(1));
                    assert_eq!(p.write(d, &byte), Ok(1));
                }
            });
            let mut byte = [1];
            for _ in 0..TRIPS {
                assert_eq!(p.write(b, &byte), Ok(1));
                assert_eq!(p.read(c, &mut byte), Ok(1));
            }
        });
        ours.push(begin.elapsed().as_nanos() as f64 / TRIPS as f64);
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut byte = [0];
                for _ in 0..TRIPS {
                    host_read(ha, &mut byte);
                    host_write(hd, &byte);
                }
            });
            let mut byte = [1];
            for _ in 0..TRIPS {
                host_write(hb, &byte);
                host_read(hc, &mut byte);
            }
        });
        hosts.push(begin.elapsed().as_nanos() as f64 / TRIPS as f64);
    }
    println!(
        "{name:<32} {:>8.1}                 host {:>8.1}",
        median(&mut ours),
        median(&mut hosts)
    );
}
