//! Bounds on what a guest can pile up beside objects of the slab: mounts, locks, pages of pipes and
//! memory of sockets. Each at its edge and past it, and beside the host where that can be asked.
#![allow(unsafe_code, reason = "system calls of the host")]

use crate::support::spawn_asleep;
use quietline::abi::*;
use quietline::locks::{F_SETLK, F_UNLCK, F_WRLCK, Flock, LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN};
use quietline::{
    Config, Errno, Events, Kernel, MS_BIND, MS_MOVE, MS_REC, PollFd, Process, SendMsg,
};
use std::thread;

fn process(config: Config) -> Process {
    Kernel::boot(config).unwrap().process().unwrap()
}

fn text(p: &Process, path: &str) -> String {
    let fd = p.open(path, O_RDONLY, 0).unwrap();
    let mut text = vec![0; 1 << 16];
    let n = p.read(fd, &mut text).unwrap();
    p.close(fd).unwrap();
    String::from_utf8(text[..n].to_vec()).unwrap()
}

fn set(p: &Process, path: &str, text: &str) -> Result<usize, Errno> {
    let fd = p.open(path, O_WRONLY, 0)?;
    let written = p.write(fd, text.as_bytes());
    p.close(fd).unwrap();
    written
}

const OUT: i16 = Events::OUT.bits() as i16;
const MOUNT_MAX: &str = "/proc/sys/fs/mount-max";

#[test]
fn mounts_end_at_their_number() {
    quietline_testing::isolated!();
    let config = Config::default().owner(0, 0).proc(true);
    for max in [0, 2] {
        let refused = Kernel::boot(config.clone().mount_max(max)).unwrap_err();
        assert_eq!(refused, Errno::NOSPC, "the root, /proc and /sys are three");
    }
    let p = process(config.mount_max(5));
    for path in ["/a", "/b", "/c", "/d"] {
        p.mkdir(path, 0o755).unwrap();
    }
    let tmpfs = |path: &str| p.mount("none", path, "tmpfs", 0);
    let mounts = || text(&p, "/proc/self/mounts");
    assert_eq!(text(&p, MOUNT_MAX), "5\n");
    tmpfs("/a").unwrap();
    p.mkdir("/a/x", 0o755).unwrap();
    tmpfs("/a/x").unwrap();
    let full = mounts();
    assert_eq!(full.lines().count(), 5);
    assert_eq!(tmpfs("/b"), Err(Errno::NOSPC));
    assert_eq!(p.mount("/a", "/b", "", MS_BIND), Err(Errno::NOSPC));
    assert_eq!(tmpfs("/nowhere"), Err(Errno::NOENT), "what is wrong with the place comes first");
    assert_eq!(mounts(), full);
    p.mount("/a", "/c", "", MS_MOVE).unwrap();
    p.mount("/c", "/a", "", MS_MOVE).unwrap();
    // A tree is mounted whole or not at all.
    assert_eq!(set(&p, MOUNT_MAX, "6"), Ok(1));
    assert_eq!(p.mount("/a", "/b", "", MS_BIND | MS_REC), Err(Errno::NOSPC));
    assert_eq!(mounts(), full);
    p.mount("/a", "/b", "", MS_BIND).unwrap();
    p.umount2("/b", 0).unwrap();
    assert_eq!(set(&p, MOUNT_MAX, "7"), Ok(1));
    p.mount("/a", "/b", "", MS_BIND | MS_REC).unwrap();
    assert_eq!(tmpfs("/d"), Err(Errno::NOSPC));
    // Fewer than there are: all stay, and none comes.
    assert_eq!(set(&p, MOUNT_MAX, "0"), Err(Errno::INVAL));
    assert_eq!(set(&p, MOUNT_MAX, "1"), Ok(1));
    p.umount2("/b/x", 0).unwrap();
    assert_eq!(tmpfs("/b/x"), Err(Errno::NOSPC));
    assert_eq!(mounts().lines().count(), 6);
    assert_eq!(text(&process(Config::default().owner(0, 0).proc(true)), MOUNT_MAX), "100000\n");
}

#[test]
fn threads_do_not_mount_more_together() {
    quietline_testing::isolated!();
    const MAX: u32 = 12;
    let kernel = Kernel::boot(Config::default().owner(0, 0).proc(true).mount_max(MAX)).unwrap();
    thread::scope(|scope| {
        for n in 0..4 {
            let kernel = &kernel;
            scope.spawn(move || {
                let p = kernel.process().unwrap();
                let path = format!("/{n}");
                p.mkdir(&path, 0o755).unwrap();
                let mut refused = 0;
                for _ in 0..quietline_testing::scaled(200) {
                    while p.mount("none", &path, "tmpfs", 0).is_ok() {}
                    refused += 1;
                    assert!(text(&p, "/proc/self/mounts").lines().count() <= MAX as usize);
                    while p.umount2(&path, 0).is_ok() {}
                }
                assert!(refused > 0);
            });
        }
    });
}

fn lock(p: &Process, fd: i32, l_type: i16, start: i64, len: i64) -> Result<(), Errno> {
    let mut lock = Flock { l_type, l_whence: 0, l_start: start, l_len: len, l_pid: 0 };
    p.fcntl_lock(fd, F_SETLK, &mut lock)
}

#[test]
fn locks_of_a_file_end_at_their_number() {
    quietline_testing::isolated!();
    let p = process(Config::default().file_locks(3));
    let [a, b] = ["/a", "/b"].map(|path| p.open(path, O_RDWR | O_CREAT, 0o600).unwrap());
    let other = p.open("/a", O_RDWR, 0).unwrap();
    for start in [0, 2, 4] {
        lock(&p, a, F_WRLCK, start, 1).unwrap();
    }
    assert_eq!(lock(&p, a, F_WRLCK, 6, 1), Err(Errno::NOLCK));
    assert_eq!(p.flock(other, LOCK_SH), Err(Errno::NOLCK));
    lock(&p, b, F_WRLCK, 6, 1).unwrap();
    // Locks that touch are one.
    lock(&p, a, F_WRLCK, 1, 1).unwrap();
    lock(&p, a, F_WRLCK, 6, 1).unwrap();
    assert_eq!(lock(&p, a, F_UNLCK, 1, 1), Err(Errno::NOLCK), "one would be two");
    lock(&p, a, F_UNLCK, 0, 1).unwrap();
    lock(&p, a, F_UNLCK, 6, 1).unwrap();
    p.flock(other, LOCK_SH).unwrap();
    assert_eq!(lock(&p, a, F_WRLCK, 8, 1), Err(Errno::NOLCK));
    p.flock(other, LOCK_SH).unwrap();
    p.flock(other, LOCK_UN).unwrap();
    lock(&p, a, F_WRLCK, 8, 1).unwrap();
    // A lock in the way is told first.
    lock(&p, a, F_UNLCK, 8, 1).unwrap();
    p.flock(other, LOCK_EX).unwrap();
    assert_eq!(p.flock(a, LOCK_SH | LOCK_NB), Err(Errno::AGAIN));
    p.flock(other, LOCK_SH).unwrap();
    assert_eq!(p.flock(a, LOCK_SH | LOCK_NB), Err(Errno::NOLCK));
}

#[test]
fn a_reservation_beyond_the_memory_limit_makes_no_page() {
    quietline_testing::isolated!();
    const LIMIT: usize = 8 << 20;
    for config in [Config::default(), Config::default().fs_size(1 << 40)] {
        let p = process(config.memory(LIMIT));
        let fd = p.open("/f", O_RDWR | O_CREAT, 0o600).unwrap();
        let before = p.kernel().memory();
        for len in [LIMIT as i64 + 1, 1 << 30, 1 << 50] {
            assert_eq!(p.fallocate(fd, 0, 0, len), Err(Errno::NOSPC), "{len}");
        }
        assert_eq!(p.kernel().memory(), before, "nothing was tried");
        p.fallocate(fd, 0, 0, LIMIT as i64 / 2).unwrap();
        // What fits alone, but not beside other files, is made as far as it goes, and taken back.
        assert!(matches!(p.fallocate(fd, 0, 1 << 30, LIMIT as i64), Err(Errno::NOMEM)));
        assert_eq!(p.fstat(fd).unwrap().st_blocks, LIMIT as u64 / 2 / 512);
    }
}

/// A pipe, and its size in pages.
fn pipe(p: &Process) -> ([i32; 2], i32) {
    let ends = p.pipe2(O_NONBLOCK).unwrap();
    (ends, pages(p, ends[0]))
}

fn pages(p: &Process, fd: i32) -> i32 {
    p.fcntl(fd, F_GETPIPE_SZ, 0).unwrap() / 4096
}

fn resize(p: &Process, fd: i32, pages: i32) -> Result<i32, Errno> {
    p.fcntl(fd, F_SETPIPE_SZ, pages as u64 * 4096).map(|size| size / 4096)
}

#[test]
fn many_pipes_of_a_user_are_small() {
    quietline_testing::isolated!();
    let p = process(Config::default().pipe_user_pages(40, 0));
    let [(a, 16), (b, 16), (c, 2)] = [pipe(&p), pipe(&p), pipe(&p)] else {
        panic!("40 pages are two pipes, and small ones");
    };
    assert_eq!(resize(&p, a[0], 32), Err(Errno::PERM));
    assert_eq!(resize(&p, c[0], 4), Ok(4), "36 pages");
    assert_eq!(resize(&p, c[0], 16), Err(Errno::PERM), "48");
    assert_eq!((resize(&p, a[0], 1), resize(&p, c[0], 16)), (Ok(1), Ok(16)));
    assert_eq!((resize(&p, b[0], 1), resize(&p, c[0], 32)), (Ok(1), Ok(32)));
    [a, b].into_iter().flatten().for_each(|fd| p.close(fd).unwrap());
    assert_eq!((pipe(&p).1, resize(&p, c[0], 2)), (2, Ok(2)), "32 pages stay");
    assert_eq!([pipe(&p).1, pipe(&p).1, pipe(&p).1], [16, 16, 2]);
    // All processes of the user share the limit, and user 0 has none.
    let other = p.kernel().process().unwrap();
    assert_eq!(pipe(&other).1, 2);
    let root = process(Config::default().owner(0, 0).pipe_user_pages(1, 1));
    assert_eq!([pipe(&root).1, pipe(&root).1], [16, 16]);
}

/// A pipe is counted by whichever call uses its ring first.
#[test]
fn every_first_use_counts_a_pipe() {
    quietline_testing::isolated!();
    type Use = (&'static str, usize, fn(&Process, [i32; 2]) -> usize);
    static FULL: [u8; 100_000] = [7; 100_000];
    let uses: [Use; 5] = [
        ("write", 8192, |p, [_, w]| p.write(w, &FULL).unwrap()),
        ("few bytes, then more", FULL.len() % 4096 + 4096, |p, [_, w]| {
            // The few are at the beginning of the first page, and the odd part is put behind them.
            p.write(w, b"few").unwrap();
            p.write(w, &FULL).unwrap()
        }),
        ("splice of a file", 8192, |p, [_, w]| {
            let file = p.open("/f", O_RDWR | O_CREAT | O_TRUNC, 0o600).unwrap();
            p.write(file, &FULL).unwrap();
            let n = p.splice(file, Some(&mut 0), w, None, FULL.len(), 0).unwrap();
            p.close(file).unwrap();
            n
        }),
        ("splice of a pipe", 8192, |p, [_, w]| {
            let [r, source] = p.pipe2(O_NONBLOCK).unwrap();
            for _ in 0..2 {
                p.write(source, &FULL[..4096]).unwrap();
            }
            let n = p.splice(r, None, w, None, FULL.len(), 0).unwrap();
            [r, source].into_iter().for_each(|fd| p.close(fd).unwrap());
            n
        }),
        ("packets", 2, |p, [_, w]| {
            p.fcntl(w, F_SETFL, (O_NONBLOCK | O_DIRECT) as u64).unwrap();
            (0..).take_while(|_| p.write(w, b"packet of more bytes").is_ok()).count()
        }),
    ];
    for (name, expected, first) in uses {
        let p = process(Config::default().pipe_user_pages(17, 0));
        let (kept, 16) = pipe(&p) else { panic!("one is large") };
        for round in 0..3 {
            let ends = p.pipe2(O_NONBLOCK).unwrap();
            let mut ready = [PollFd::new(ends[1], OUT)];
            assert_eq!(p.poll(&mut ready, 0), Ok(1), "{name}");
            assert_eq!(first(&p, ends), expected, "{name}, {round}");
            assert_eq!((pages(&p, ends[0]), p.write(ends[1], &[0; 4096])), (2, Err(Errno::AGAIN)));
            ends.into_iter().for_each(|fd| p.close(fd).unwrap());
        }
        // Nothing is left counted.
        kept.into_iter().for_each(|fd| p.close(fd).unwrap());
        assert_eq!([pipe(&p).1, pipe(&p).1], [16, 2], "{name}");
    }
}

#[test]
fn a_named_pipe_counts_while_it_is_open() {
    quietline_testing::isolated!();
    let p = process(Config::default().pipe_user_pages(17, 0));
    p.mknod("/fifo", S_IFIFO | 0o600, 0).unwrap();
    let open = || p.open("/fifo", O_RDWR | O_NONBLOCK, 0).unwrap();
    for _ in 0..3 {
        let fd = open();
        assert_eq!((pages(&p, fd), pipe(&p).1), (16, 2));
        assert_eq!(resize(&p, fd, 1), Ok(1));
        p.close_range(0, u32::MAX, 0).unwrap();
    }
}

/// A named pipe counts for the user that opens it first, each time that it is open nowhere.
#[test]
fn a_named_pipe_counts_for_the_first_opener() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default().owner(0, 0).pipe_user_pages(17, 0)).unwrap();
    let [root, user] = [(); 2].map(|()| kernel.process().unwrap());
    root.mkdir("/d", 0o777).unwrap();
    root.chmod("/d", 0o777).unwrap();
    root.mknod("/d/fifo", S_IFIFO | 0o666, 0).unwrap();
    root.chmod("/d/fifo", 0o666).unwrap();
    user.setresuid(7, 7, 7).unwrap();
    let open = |p: &Process| p.open("/d/fifo", O_RDWR | O_NONBLOCK, 0).unwrap();
    let fd = open(&root);
    assert_eq!((pages(&root, fd), pipe(&user).1), (16, 16), "user 7 has one pipe");
    user.close_range(0, u32::MAX, 0).unwrap();
    root.close(fd).unwrap();
    let fd = open(&user);
    assert_eq!((pages(&user, fd), pipe(&user).1), (16, 2), "and now two");
}

#[test]
fn a_hard_limit_gives_no_page() {
    quietline_testing::isolated!();
    let p = process(Config::default().pipe_user_pages(0, 16));
    let (first, 16) = pipe(&p) else { panic!("the first fits") };
    let [r, w] = p.pipe2(O_NONBLOCK).unwrap();
    assert_eq!(p.write(w, &[1; 100]), Err(Errno::NOMEM));
    assert_eq!(p.write(w, b"few"), Ok(3), "those need no page");
    assert_eq!(p.write(w, &[1; 100]), Err(Errno::NOMEM));
    assert_eq!(resize(&p, first[0], 32), Err(Errno::PERM));
    let mut buffer = [0; 8];
    assert_eq!((p.read(r, &mut buffer), &buffer[..3]), (Ok(3), &b"few"[..]));
    first.into_iter().for_each(|fd| p.close(fd).unwrap());
    assert_eq!((p.write(w, &[1; 100]), pages(&p, w)), (Ok(100), 16));
}

/// What a user without privileges gets, beside the host's pipes.
#[test]
fn pipes_of_a_user_beside_the_host() {
    quietline_testing::isolated!();
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return quietline_testing::skip_without_root("the user is to have no other pipes");
    }
    const SOFT: &str = "/proc/sys/fs/pipe-user-pages-soft";
    let number = |path| std::fs::read_to_string(path).unwrap().trim().parse::<u64>().unwrap();
    let (soft, hard) = (number(SOFT), number("/proc/sys/fs/pipe-user-pages-hard"));
    let max_size = number("/proc/sys/fs/pipe-max-size");
    if soft == 0 || soft > 1 << 16 || hard != 0 || max_size != 1 << 20 {
        return println!("the host's limits are not the default ones");
    }
    // SAFETY: changes the user of this process, which runs nothing but this test.
    unsafe {
        let none = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none), 0);
        assert_eq!(libc::setresuid(54_321, 54_321, 54_321), 0);
    }
    let p = process(Config::default().pipe_user_pages(soft, 0));
    let errno = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap();
    let ours = |fd: i32, cmd: i32, arg: u64| p.fcntl(fd, cmd, arg);
    let host = |fd: i32, cmd: i32, arg: u64| {
        // SAFETY: a descriptor of this process, and a number.
        match unsafe { libc::fcntl(fd, cmd, arg) } {
            -1 => Err(errno()),
            n => Ok(n),
        }
    };
    let mut made: Vec<[i32; 2]> = Vec::new();
    let mut step = |what: &str, at: usize, cmd: i32, arg: u64| {
        while made.len() <= at {
            let mut pair = [0; 2];
            // SAFETY: room for two descriptors.
            assert_eq!(unsafe { libc::pipe2(pair.as_mut_ptr(), 0) }, 0);
            made.push([pair[0], p.pipe2(0).unwrap()[0]]);
            let [a, b] = *made.last().unwrap();
            assert_eq!(host(a, F_GETPIPE_SZ, 0), ours(b, F_GETPIPE_SZ, 0), "{what}: pipe {at}");
        }
        let [a, b] = made[at];
        let (theirs, mine) = (host(a, cmd, arg), ours(b, cmd, arg));
        assert_eq!(theirs, mine, "{what}: pipe {at}");
        mine
    };
    let large = (soft / 256) as usize;
    let mut refused = 0;
    for at in 0..large + 8 {
        refused += usize::from(step("enlarged", at, F_SETPIPE_SZ, 1 << 20).is_err());
    }
    assert!(refused >= 8, "the limit was met");
    let mut seed = 1u64;
    for _ in 0..2000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (seed >> 33) as usize % (large + 16);
        let size = 4096 << ((seed >> 50) % 9);
        let _ = step("any", at, if seed >> 63 == 0 { F_SETPIPE_SZ } else { F_GETPIPE_SZ }, size);
    }
}

/// A TCP connection: two descriptors.
fn connection(p: &Process) -> [i32; 2] {
    let listener = p.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    let mut address = [0; 16];
    address[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
    address[4..8].copy_from_slice(&[127, 0, 0, 1]);
    p.bind(listener, &address).unwrap();
    p.listen(listener, 1).unwrap();
    let name = p.getsockname(listener).unwrap();
    let client = p.socket(AF_INET, SOCK_STREAM, 0).unwrap();
    p.connect(client, name.bytes()).unwrap();
    let (server, _) = p.accept(listener).unwrap();
    p.close(listener).unwrap();
    [client, server]
}

/// Sends without waiting until nothing more fits. Returns the number of bytes.
fn flood(p: &Process, fd: i32, piece: usize) -> usize {
    let bytes = vec![5; piece];
    let mut sent = 0;
    loop {
        match p.send(fd, &bytes, MSG_DONTWAIT) {
            Ok(n) => sent += n,
            Err(errno) => {
                assert_eq!(errno, Errno::AGAIN);
                return sent;
            }
        }
    }
}

fn drain(p: &Process, fd: i32) -> usize {
    let mut buffer = vec![0; 10_000];
    let mut got = 0;
    while let Ok(n @ 1..) = p.recv(fd, &mut buffer, MSG_DONTWAIT) {
        assert!(buffer[..n].iter().all(|&byte| byte == 5));
        got += n;
    }
    got
}

fn is_writable(p: &Process, fd: i32) -> bool {
    let mut ready = [PollFd::new(fd, OUT)];
    p.poll(&mut ready, 0).unwrap() == 1
}

#[test]
fn queues_of_tcp_end_at_their_memory() {
    quietline_testing::isolated!();
    const PAGES: u64 = 32;
    for piece in [1, 100, 4096, 5000, 32_768, 100_000, 1 << 20] {
        let p = process(Config::default().tcp_mem(PAGES));
        for round in 0..3 {
            let ends = connection(&p);
            let [client, server] = ends;
            let sent = flood(&p, client, piece);
            let most = PAGES as usize * 4096;
            assert!((most / 2..=most + 4096).contains(&sent), "{piece}, {round}: {sent}");
            assert!(!is_writable(&p, client));
            // A connection with an empty queue goes on, a little at a time.
            let others = connection(&p);
            for _ in 0..3 {
                let little = flood(&p, others[0], piece);
                assert!((1..=4096 + 32_768).contains(&little), "{piece}: {little}");
                assert!(!is_writable(&p, others[0]));
                assert_eq!(drain(&p, others[1]), little);
                assert!(is_writable(&p, others[0]));
            }
            assert_eq!(drain(&p, server), sent);
            assert!(is_writable(&p, client));
            [ends, others].into_iter().flatten().for_each(|fd| p.close(fd).unwrap());
        }
    }
}

#[test]
fn who_waits_for_memory_of_sockets_goes_on() {
    quietline_testing::isolated!();
    const ALL: usize = 1 << 20;
    let p = process(Config::default().tcp_mem(0));
    let [client, server] = connection(&p);
    thread::scope(|scope| {
        let writer = spawn_asleep(scope, || {
            let mut sent = 0;
            while sent < ALL {
                sent += p.write(client, &vec![5; 70_000usize.min(ALL - sent)]).unwrap();
            }
        });
        let mut got = 0;
        while got < ALL {
            let mut buffer = [0; 9_999];
            let n = p.read(server, &mut buffer).unwrap();
            assert!(n > 0 && buffer[..n].iter().all(|&byte| byte == 5));
            got += n;
        }
        writer.join().unwrap();
    });
}

/// A reader that waits for more than the queue may hold is told of the bytes that are there: the
/// sender waits
/// for it.
#[test]
fn a_low_water_mark_beyond_the_memory_of_sockets_is_met() {
    quietline_testing::isolated!();
    let is_readable = |p: &Process, fd: i32| {
        let mut ready = [PollFd::new(fd, Events::IN.bits() as i16)];
        p.poll(&mut ready, 0).unwrap() == 1
    };
    for piece in [1000, 4096, 50_000] {
        let p = process(Config::default().tcp_mem(0));
        let [client, server] = connection(&p);
        p.setsockopt(server, SOL_SOCKET, SO_RCVLOWAT, &100_000i32.to_ne_bytes()).unwrap();
        // The first piece fits, and is too little. (A larger one meets the limit at once.)
        let sent = p.send(client, &vec![5; piece], MSG_DONTWAIT).unwrap();
        assert_eq!(is_readable(&p, server), piece > 4096, "{piece}");
        if piece <= 4096 {
            thread::scope(|scope| {
                let poller = spawn_asleep(scope, || {
                    let mut ready = [PollFd::new(server, Events::IN.bits() as i16)];
                    p.poll(&mut ready, -1)
                });
                assert_eq!(sent + flood(&p, client, piece), 4096, "{piece}");
                assert_eq!(poller.join().unwrap(), Ok(1), "{piece}");
            });
        }
        assert_eq!(drain(&p, server), 4096);
        assert!(!is_readable(&p, server) && is_writable(&p, client));
        // The next bytes are too little again.
        p.send(client, &[5; 100], 0).unwrap();
        assert!(!is_readable(&p, server), "{piece}");
    }
}

#[test]
fn limits_of_sockets_are_files() {
    quietline_testing::isolated!();
    let p = process(Config::default().owner(0, 0).proc(true));
    let at = |name: &str| format!("/proc/sys/net/{name}");
    // SAFETY: reads a number.
    let memory = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) } as u64 / 16;
    let expected = [memory / 4 * 3, memory, memory / 4 * 3 * 2];
    let tcp_mem = || -> Vec<u64> {
        text(&p, &at("ipv4/tcp_mem")).split_whitespace().map(|n| n.parse().unwrap()).collect()
    };
    assert_eq!(tcp_mem(), expected);
    assert_eq!(set(&p, &at("ipv4/tcp_mem"), "1 2 3\n"), Ok(6));
    assert_eq!(text(&p, &at("ipv4/tcp_mem")), "1\t2\t3\n");
    assert_eq!(set(&p, &at("ipv4/tcp_mem"), "7"), Ok(1));
    assert_eq!(tcp_mem(), [7, 2, 3]);
    assert_eq!(set(&p, &at("ipv4/tcp_mem"), "x 1"), Err(Errno::INVAL));
    assert_eq!(tcp_mem(), [7, 2, 3]);
    assert_eq!(set(&p, &at("ipv4/tcp_mem"), "8 x"), Err(Errno::INVAL));
    assert_eq!(tcp_mem(), [8, 2, 3], "the numbers before the error are set");
    assert_eq!(set(&p, &at("ipv4/tcp_mem"), "9  "), Ok(3));
    assert_eq!(set(&p, &at("ipv4/tcp_mem"), "9 2 3 more"), Ok(6), "no more than three");
    assert_eq!(set(&p, &at("ipv4/tcp_mem"), "8x 5"), Err(Errno::INVAL));
    assert_eq!(tcp_mem(), [9, 2, 3]);
    let sock = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    for (name, option, least) in
        [("core/wmem_max", SO_SNDBUF, 4608), ("core/rmem_max", SO_RCVBUF, 2304)]
    {
        assert_eq!(text(&p, &at(name)), "4194304\n");
        assert_eq!(set(&p, &at(name), &format!("{}", least - 1)), Err(Errno::INVAL));
        set(&p, &at(name), "10000").unwrap();
        p.setsockopt(sock, SOL_SOCKET, option, &(1i32 << 20).to_ne_bytes()).unwrap();
        let mut value = [0; 4];
        p.getsockopt(sock, SOL_SOCKET, option, &mut value).unwrap();
        assert_eq!(i32::from_ne_bytes(value), 20_000);
    }
    for name in ["core/wmem_default", "core/rmem_default"] {
        assert_eq!(text(&p, &at(name)), "212992\n");
    }
}

/// More control messages than one message may have, beside the host.
#[test]
fn control_messages_end_at_their_memory() {
    quietline_testing::isolated!();
    const PATH: &str = "/proc/sys/net/core/optmem_max";
    let host_max = std::fs::read_to_string(PATH).unwrap();
    let max: usize = host_max.trim().parse().unwrap();
    let p = process(Config::default().owner(0, 0).proc(true));
    assert_eq!(text(&p, PATH), "131072\n");
    set(&p, PATH, &host_max).unwrap();
    for (family, ty) in [
        (AF_UNIX, SOCK_STREAM),
        (AF_UNIX, SOCK_DGRAM),
        (AF_UNIX, SOCK_SEQPACKET),
        (AF_INET, SOCK_DGRAM),
        (AF_INET, SOCK_STREAM),
    ] {
        let mut theirs = [0; 2];
        let ours = if family == AF_UNIX {
            // SAFETY: room for two descriptors.
            assert_eq!(unsafe { libc::socketpair(family, ty, 0, theirs.as_mut_ptr()) }, 0);
            p.socketpair(family, ty, 0).unwrap()[0]
        } else {
            // SAFETY: plain numbers.
            theirs[0] = unsafe { libc::socket(family, ty, 0) };
            p.socket(family, ty, 0).unwrap()
        };
        let mut name = [0u8; 16];
        name[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
        name[2..8].copy_from_slice(&[0, 9, 127, 0, 0, 1]);
        let name = if (family, ty) == (AF_INET, SOCK_DGRAM) { &name[..] } else { &[] };
        for len in [0, 16, 36, 37, max - 1, max, max + 1, 2 * max] {
            // One message of nothing that fills all, of a level that no protocol knows.
            let mut control = vec![0u8; len];
            if len >= 16 {
                control[..8].copy_from_slice(&len.to_ne_bytes());
                control[8..12].copy_from_slice(&9999i32.to_ne_bytes());
            }
            let byte = [1u8];
            let message =
                SendMsg { name, buffers: &[&byte], control: &control, ..SendMsg::default() };
            let mine = p.sendmsg(ours, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
            let mut buffer = libc::iovec { iov_base: byte.as_ptr().cast_mut().cast(), iov_len: 1 };
            // SAFETY: all zeros is a message of nothing.
            let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
            header.msg_name = name.as_ptr().cast_mut().cast();
            header.msg_namelen = name.len() as u32;
            header.msg_iov = &raw mut buffer;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = control.len() as _;
            let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
            // SAFETY: what the header points to is here, and is only read.
            let host = match unsafe { libc::sendmsg(theirs[0], &raw const header, flags) } {
                -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
                n => Ok(n as usize),
            };
            assert_eq!(mine, host, "{family} {ty}: {len} bytes");
        }
    }
}
