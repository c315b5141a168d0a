//! What the calls on paths and files take, one thread: nanoseconds on the CPU, the median of some rounds. Each row checks
//! what it did.
//!
//! `cargo run --release -p quietline --example paths [ROW]`

use quietline::abi::*;
use quietline::{Config, Errno, Kernel, Process};

const ROUNDS: usize = 7;

/// Nanoseconds that this thread has been on a CPU: other programs do not count.
fn on_cpu() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel that tells");
    stat.split(' ').next().and_then(|first| first.parse().ok()).expect("a number")
}

/// Runs `work`, which does `n` operations, some times; prints the median of the time of one.
fn row(name: &str, n: usize, mut work: impl FnMut(usize)) {
    if std::env::args().nth(1).is_some_and(|only| !name.contains(&only)) {
        return;
    }
    work(n / 10 + 1);
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = on_cpu();
            work(n);
            (on_cpu() - begin) as f64 / n as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "{name:<32} {:>8.1}   (from {:.1} to {:.1})",
        times[ROUNDS / 2],
        times[0],
        times[ROUNDS - 1]
    );
}

fn create(p: &Process, path: &str) -> i32 {
    p.open(path, O_CREAT | O_EXCL | O_RDWR, 0o644).expect("a new file")
}

fn main() {
    let kernel = Kernel::boot(Config::default().privileged(true)).expect("memory");
    let p = kernel.process().expect("memory");
    let mut path = String::new();
    let mut paths = Vec::new();
    for depth in 1..=8 {
        let file = format!("{path}/file{depth}");
        let fd = create(&p, &file);
        assert_eq!(p.write(fd, &[7; 4096]), Ok(4096));
        p.close(fd).expect("open");
        paths.push(file);
        path = format!("{path}/dir{depth}");
        p.mkdir(&path, 0o755).expect("a new directory");
    }
    let word = quietline_platform::atomic::AtomicU64::new(0);
    row("locked addition, to compare", 5_000_000, |n| {
        for _ in 0..n {
            word.fetch_add(1, quietline_platform::atomic::Ordering::SeqCst);
        }
    });
    for depth in [1, 3, 8] {
        let path = &*paths[depth - 1];
        row(&format!("stat, depth {depth}"), 1_000_000, |n| {
            for _ in 0..n {
                assert_eq!(p.stat(path).map(|stat| stat.st_size), Ok(4096));
            }
        });
    }
    row("stat, no such name", 1_000_000, |n| {
        for _ in 0..n {
            assert_eq!(p.stat("/nothing"), Err(Errno::NOENT));
        }
    });
    for depth in [1, 3, 8] {
        let path = &*paths[depth - 1];
        row(&format!("open+close, depth {depth}"), 500_000, |n| {
            for _ in 0..n {
                let fd = p.open(path, O_RDONLY, 0).expect("it is there");
                assert_eq!(p.close(fd), Ok(()));
            }
        });
    }
    p.mkdir("/own", 0o755).expect("a new directory");
    row("create+close+unlink", 200_000, |n| {
        for _ in 0..n {
            let fd = create(&p, "/own/file");
            assert_eq!(p.close(fd), Ok(()));
            assert_eq!(p.unlink("/own/file"), Ok(()));
        }
    });
    let names: Vec<String> = (0..1000).map(|n| format!("/own/file{n}")).collect();
    row("1,000 creates, 1,000 unlinks", 100_000, |n| {
        for _ in 0..n.div_ceil(1000) {
            for name in &names {
                assert_eq!(p.close(create(&p, name)), Ok(()));
            }
            for name in &names {
                assert_eq!(p.unlink(name), Ok(()));
            }
        }
    });
    p.mkdir("/other", 0o755).expect("a new directory");
    p.close(create(&p, "/own/a")).expect("open");
    row("rename in a directory", 200_000, |n| {
        for _ in 0..n.div_ceil(2) {
            assert_eq!(p.rename("/own/a", "/own/b"), Ok(()));
            assert_eq!(p.rename("/own/b", "/own/a"), Ok(()));
        }
    });
    row("rename across", 200_000, |n| {
        for _ in 0..n.div_ceil(2) {
            assert_eq!(p.rename("/own/a", "/other/a"), Ok(()));
            assert_eq!(p.rename("/other/a", "/own/a"), Ok(()));
        }
    });
    row("link+unlink", 200_000, |n| {
        for _ in 0..n {
            assert_eq!(p.link("/own/a", "/own/b"), Ok(()));
            assert_eq!(p.unlink("/own/b"), Ok(()));
        }
    });
    row("mkdir+rmdir", 200_000, |n| {
        for _ in 0..n {
            assert_eq!(p.mkdir("/own/d", 0o755), Ok(()));
            assert_eq!(p.rmdir("/own/d"), Ok(()));
        }
    });
    let fd = p.open("/file1", O_RDWR, 0).expect("it is there");
    let mut byte = [0];
    row("pread 1 byte", 2_000_000, |n| {
        for _ in 0..n {
            assert_eq!(p.pread(fd, &mut byte, 0), Ok(1));
        }
        assert_eq!(byte, [7]);
    });
    let page = [7; 4096];
    row("pwrite 4 KiB", 500_000, |n| {
        for _ in 0..n {
            assert_eq!(p.pwrite(fd, &page, 0), Ok(4096));
        }
    });
    row("fstat", 1_000_000, |n| {
        for _ in 0..n {
            assert_eq!(p.fstat(fd).map(|stat| stat.st_size), Ok(4096));
        }
    });
}
