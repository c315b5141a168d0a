//! `ops-NAME count [OP...]`, `ops-NAME average OP N`, `ops-NAME trace OP`, `ops-NAME time OP MS`,
//! `ops-NAME list`.
//! With `OPS_KEEP=N`, a process of pipes has N eventfds before, so its files lie elsewhere.
#![allow(unexpected_cfgs)]
use quietline::abi::*;
use quietline::{Config, Kernel, Process};
use quietline_platform::percpu::{Body, active};
use quietline_slab::{Entry, Options, RawCache};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

#[cfg(epoll)]
use quietline::EpollEvent;

fn process(privileged: bool) -> Process {
    Kernel::boot(Config::default().privileged(privileged)).unwrap().process().unwrap()
}

fn process_with_files() -> Process {
    let p = process(false);
    let keep: usize = std::env::var("OPS_KEEP").map_or(0, |n| n.parse().unwrap());
    for _ in 0..keep {
        std::mem::forget(p.eventfd_file(0, 0).unwrap());
    }
    p
}

/// Boxed loops: each call of the closure is one run of N operations.
type Op = Box<dyn FnMut(u64)>;

fn op<F: FnMut() + 'static>(mut f: F) -> Op {
    Box::new(move |n| {
        for _ in 0..n {
            f();
        }
    })
}

const OPS: &[&str] = &[
    "empty",
    "socket-handle",
    "socket-anyfd",
    "socket-lowest",
    "pipe-anyfd",
    "pipe-lowest",
    "pipe-handle",
    "pipe-anyfd-reversed",
    "pipe-lowest-reversed",
    "pipe-handle-reversed",
    "eventfds-handle",
    "eventfds-handle-reversed",
    "eventfd-anyfd",
    "eventfd-lowest",
    "eventfd-handle",
    "slab-pair",
    "slab-bulk32",
    #[cfg(epoll)]
    "epoll-zero",
    #[cfg(epoll)]
    "epoll-one",
    #[cfg(paths)]
    "stat-1",
    #[cfg(paths)]
    "stat-8",
    #[cfg(paths)]
    "open-close",
    #[cfg(paths)]
    "create-unlink",
];

fn make(name: &str) -> Op {
    match name {
        "empty" => op(|| {
            black_box(0);
        }),
        "socket-handle" => {
            let p = process(false);
            op(move || {
                let f = black_box(&p).socket_file(AF_INET, SOCK_STREAM, 0).unwrap();
                black_box(&f);
                drop(f);
            })
        }
        "socket-anyfd" | "socket-lowest" => {
            let p = process(false);
            let any = if name == "socket-anyfd" { O_ANYFD } else { 0 };
            op(move || {
                let fd = black_box(&p).socket(AF_INET, SOCK_STREAM | any, 0).unwrap();
                p.close(black_box(fd)).unwrap();
            })
        }
        "pipe-handle" => {
            let p = process_with_files();
            op(move || {
                let f = black_box(&p).pipe_files(0).unwrap();
                black_box(&f);
                drop(f);
            })
        }
        "pipe-handle-reversed" => {
            let p = process_with_files();
            op(move || {
                let [a, b] = black_box(&p).pipe_files(0).unwrap();
                black_box((&a, &b));
                drop(b);
                drop(a);
            })
        }
        "eventfds-handle" | "eventfds-handle-reversed" => {
            let p = process_with_files();
            let reversed = name.ends_with("reversed");
            op(move || {
                let mut a = black_box(&p).eventfd_file(0, 0).unwrap();
                let mut b = black_box(&p).eventfd_file(0, 0).unwrap();
                if reversed {
                    std::mem::swap(&mut a, &mut b);
                }
                black_box((&a, &b));
                drop(a);
                drop(b);
            })
        }
        "pipe-anyfd" | "pipe-lowest" | "pipe-anyfd-reversed" | "pipe-lowest-reversed" => {
            let p = process_with_files();
            let any = if name.starts_with("pipe-anyfd") { O_ANYFD } else { 0 };
            let reversed = name.ends_with("reversed");
            op(move || {
                let [mut a, mut b] = black_box(&p).pipe2(any).unwrap();
                if reversed {
                    (a, b) = (b, a);
                }
                p.close(black_box(a)).unwrap();
                p.close(black_box(b)).unwrap();
            })
        }
        "eventfd-handle" => {
            let p = process(false);
            op(move || {
                let f = black_box(&p).eventfd_file(0, 0).unwrap();
                black_box(&f);
                drop(f);
            })
        }
        "eventfd-anyfd" | "eventfd-lowest" => {
            let p = process(false);
            let any = if name == "eventfd-anyfd" { O_ANYFD } else { 0 };
            op(move || {
                let fd = black_box(&p).eventfd(0, any).unwrap();
                p.close(black_box(fd)).unwrap();
            })
        }
        "slab-pair" => {
            let c = RawCache::new(Options::new("ops", 192, 64)).unwrap();
            op(move || {
                let o = black_box(&c).alloc().unwrap();
                // SAFETY: allocated above.
                unsafe { c.free(black_box(o)) };
            })
        }
        "slab-bulk32" => {
            let c = RawCache::new(Options::new("ops", 192, 64)).unwrap();
            let mut objects: [Entry; 32] = [None; 32];
            op(move || {
                black_box(&c).alloc_bulk(&mut objects).unwrap();
                black_box(&mut objects);
                // SAFETY: allocated above.
                unsafe { c.free_bulk(&mut objects) };
                black_box(&mut objects);
            })
        }
        #[cfg(epoll)]
        "epoll-zero" | "epoll-one" => {
            let p = process(false);
            let ep = p.epoll_create1(0).unwrap();
            let fd = p.eventfd(0, EFD_NONBLOCK).unwrap();
            p.epoll_ctl(ep, EPOLL_CTL_ADD, fd, &EpollEvent { events: EPOLLIN, data: 7 }).unwrap();
            let one = (name == "epoll-one") as usize;
            if one == 1 {
                assert_eq!(p.write(fd, &1u64.to_ne_bytes()), Ok(8));
            }
            let mut events = [EpollEvent::default(); 4];
            op(move || {
                let n = black_box(&p).epoll_wait(ep, &mut events, 0).unwrap();
                assert_eq!(n, one);
                black_box(&mut events);
            })
        }
        #[cfg(paths)]
        "stat-1" | "stat-8" | "open-close" | "create-unlink" => {
            let p = process(true);
            let create = |p: &Process, path: &str| {
                p.close(p.open(path, O_CREAT | O_EXCL | O_RDWR, 0o644).unwrap()).unwrap()
            };
            match name {
                "stat-1" => {
                    create(&p, "/a");
                    op(move || {
                        black_box(&black_box(&p).stat(black_box("/a")).unwrap());
                    })
                }
                "stat-8" => {
                    let mut path = String::new();
                    for d in ["b", "c", "d", "e", "f", "g", "h"] {
                        path += "/";
                        path += d;
                        p.mkdir(&path, 0o755).unwrap();
                    }
                    path += "/a";
                    create(&p, &path);
                    op(move || {
                        black_box(&black_box(&p).stat(black_box(path.as_str())).unwrap());
                    })
                }
                "open-close" => {
                    create(&p, "/a");
                    op(move || {
                        let fd = black_box(&p).open(black_box("/a"), O_RDONLY, 0).unwrap();
                        p.close(black_box(fd)).unwrap();
                    })
                }
                _ => {
                    p.mkdir("/own", 0o755).unwrap();
                    op(move || {
                        let flags = O_CREAT | O_EXCL | O_RDWR;
                        let fd = black_box(&p).open(black_box("/own/new"), flags, 0o644).unwrap();
                        p.close(black_box(fd)).unwrap();
                        p.unlink(black_box("/own/new")).unwrap();
                    })
                }
            }
        }
        _ => panic!("no such operation: {name}"),
    }
}

/// Mappings of the program's own file.
fn own() -> Vec<std::ops::Range<u64>> {
    let exe = std::fs::read_link("/proc/self/exe").unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|l| l.ends_with(exe.to_str().unwrap()))
        .map(|l| {
            let (a, b) = l.split(' ').next().unwrap().split_once('-').unwrap();
            u64::from_str_radix(a, 16).unwrap()..u64::from_str_radix(b, 16).unwrap()
        })
        .collect()
}

struct Steady {
    total: u64,
    own: u64,
    locked: u64,
    fences: u64,
    syscalls: u64,
    times: BTreeMap<u64, u64>,
    seen: Vec<u64>,
    texts: std::collections::HashMap<u64, String>,
    /// Instructions that one more turn of a loop takes.
    turn: u64,
}

/// Counts one operation several times, each after another warm-up. Returns the most frequent count.
fn steady(name: &str) -> Steady {
    let own = own();
    let mut f = make(name);
    f(20_000);
    let mut runs: Vec<quietline_count::Counts> = Vec::new();
    for i in 0..7u64 {
        f(1 + i * 3);
        runs.push(quietline_count::count(|| f(1)).unwrap());
    }
    let mut seen: Vec<u64> = runs.iter().map(|r| r.instructions).collect();
    // The most frequent count; the lowest of those as frequent.
    let mut best = (0, 0);
    let mut sorted = seen.clone();
    sorted.sort_unstable();
    for s in &sorted {
        let n = sorted.iter().filter(|x| *x == s).count();
        if n > best.0 {
            best = (n, *s);
        }
    }
    let run = runs.iter().find(|r| r.instructions == best.1).unwrap();
    seen.sort_unstable();
    let is_own = |a: &u64| own.iter().any(|r| r.contains(a));
    Steady {
        total: run.instructions,
        own: run.times.iter().filter(|(a, _)| is_own(a)).map(|(_, n)| n).sum(),
        locked: run.locked,
        fences: run.fences,
        syscalls: run.syscalls,
        turn: {
            let mut turns: Vec<u64> = (0..5)
                .map(|i| {
                    f(1 + i * 3);
                    let two = quietline_count::count(|| f(2)).unwrap().instructions;
                    two.saturating_sub(run.instructions)
                })
                .collect();
            turns.sort_unstable();
            turns[2]
        },
        times: run.times.iter().map(|(a, n)| (*a, *n)).collect(),
        seen,
        texts: run.texts.clone(),
    }
}

fn short(file: &str) -> String {
    match file.find("/crates/") {
        Some(at) => file[at + 8..].to_owned(),
        None => file
            .rsplit('/')
            .take(3)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
            .join("/"),
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    assert_eq!(active(), Body::Rseq, "per-CPU operations use the fallback");
    match args.first().map(String::as_str) {
        Some("list") => OPS.iter().for_each(|o| println!("{o}")),
        Some("count") => {
            let wanted: Vec<&str> = if args.len() > 1 {
                args[1..].iter().map(String::as_str).collect()
            } else {
                OPS.to_vec()
            };
            let empty = steady("empty");
            println!(
                "{:16} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}",
                "operation", "turn", "total", "own", "locked", "fences", "syscalls"
            );
            for name in wanted {
                if !OPS.contains(&name) {
                    println!("{name:16} -");
                    continue;
                }
                let s = steady(name);
                let odd: Vec<u64> = s
                    .seen
                    .iter()
                    .copied()
                    .filter(|x| *x != s.total)
                    .map(|x| x - empty.total)
                    .collect();
                println!(
                    "{name:16} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}{}",
                    s.turn,
                    s.total - empty.total,
                    s.own - empty.own,
                    s.locked,
                    s.fences,
                    s.syscalls,
                    if odd.is_empty() { String::new() } else { format!("   also seen: {odd:?}") }
                );
            }
        }
        // Of N operations in a row, with what batches of them cost.
        Some("average") => {
            let (mut f, n) = (make(&args[1]), args[2].parse::<u64>().unwrap());
            f(20_000);
            let all = quietline_count::count(|| f(n)).unwrap();
            let each = |count: u64| count as f64 / n as f64;
            println!(
                "{}: {:.1} instructions, {:.3} locked, {:.4} system calls",
                args[1],
                each(all.instructions),
                each(all.locked),
                each(all.syscalls)
            );
        }
        // Lines of: times, innermost function, file:line, chain. For diffs by function and by line.
        Some("trace") => {
            let s = steady(&args[1]);
            for (address, n) in &s.times {
                let frames = quietline_count::frames(*address);
                let f = |fr: &quietline_count::Frame| {
                    let line = fr.line.as_ref().map(|(f, l)| format!("{}:{l}", short(f)));
                    let l = line.unwrap_or("?".to_owned());
                    format!("{} @{l}", fr.function)
                };
                let chain: Vec<String> = frames.iter().map(f).collect();
                println!(
                    "{n}\t{address:x}\t{}\t{}",
                    s.texts.get(address).map_or("", |t| t.as_str()),
                    chain.join("\t")
                );
            }
        }
        Some("time") => {
            let mut f = make(&args[1]);
            let ms: u64 = args.get(2).map_or(50, |a| a.parse().unwrap());
            f(20_000);
            let mut samples = Vec::new();
            let end = Instant::now() + std::time::Duration::from_millis(ms);
            while Instant::now() < end {
                let start = Instant::now();
                f(5_000);
                samples.push(start.elapsed().as_nanos() as f64 / 5_000.0);
            }
            samples.sort_by(f64::total_cmp);
            println!("{:.3} {:.3}", samples[samples.len() / 2], samples[0]);
        }
        _ => panic!("count [OP...] | trace OP | time OP MS | list"),
    }
}
