//! `fallocate` of much: bounded by the machine's memory, interrupted, and all or none.
#![allow(unsafe_code, reason = "a limit on the memory of this process")]

use quietline::abi::*;
use quietline::{Config, Errno, Interrupt, Kernel, Process, Shared};

fn file(config: Config) -> (Process, i32) {
    let p = Kernel::boot(config).unwrap().process().unwrap();
    let fd = p.open("/f", O_RDWR | O_CREAT, 0o644).unwrap();
    (p, fd)
}

/// Bounds the address space of this process: if the kernel is wrong the test ends, and not the
/// machine's memory.
fn bound_memory(more: u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let used: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let limit = libc::rlimit { rlim_cur: used * 4096 + more, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is to what lives here.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}

#[test]
fn more_than_the_machine_has_is_refused() {
    quietline_testing::isolated!();
    bound_memory(256 << 20);
    for config in [Config::default(), Config::default().fs_size(1 << 60)] {
        let (p, fd) = file(config);
        p.write(fd, b"abc").unwrap();
        for mode in [0, FALLOC_FL_KEEP_SIZE] {
            for len in [1 << 50, i64::MAX] {
                assert_eq!(p.fallocate(fd, mode, 0, len), Err(Errno::NOSPC), "{mode} {len}");
            }
            assert_eq!(p.fallocate(fd, mode, 1 << 40, 1 << 50), Err(Errno::NOSPC));
        }
        let stat = p.fstat(fd).unwrap();
        assert_eq!((stat.st_size, stat.st_blocks), (3, 8), "nothing has changed");
    }
}

/// Without a size, a reservation leaves half of the memory free that all filesystems of the kernel
/// together have.
#[test]
fn the_pages_of_all_filesystems_count() {
    quietline_testing::isolated!();
    // SAFETY: reads numbers.
    let [pages, size] =
        [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|name| unsafe { libc::sysconf(name) });
    let (used, most) = (32 << 20, pages * size / 2);
    bound_memory(256 << 20);
    let (p, fd) = file(Config::default().privileged(true));
    p.mkdir("/d", 0o755).unwrap();
    p.mount("", "/d", "tmpfs", 0).unwrap();
    let others =
        [p.memfd_create("a", 0).unwrap(), p.open("/d/f", O_RDWR | O_CREAT, 0o644).unwrap()];
    for other in others {
        p.fallocate(other, 0, 0, used).unwrap();
        let refused = [fd, others[0], others[1]]
            .map(|fd| p.fallocate(fd, FALLOC_FL_KEEP_SIZE, 1 << 30, most - used / 2));
        assert_eq!(refused, [Err(Errno::NOSPC); 3]);
        p.ftruncate(other, 0).unwrap();
    }
}

#[test]
fn a_reservation_can_be_interrupted() {
    quietline_testing::isolated!();
    const LEN: i64 = 64 << 20;
    let (p, fd) = file(Config::default().fs_size(LEN as u64 + (1 << 20)));
    p.pwrite(fd, b"abc", 5 << 20).unwrap();
    let before = (p.fstat(fd).unwrap().st_blocks, p.statfs("/").unwrap().f_bfree);
    let interrupt = Shared::new(Interrupt::new()).unwrap();
    let entered = Interrupt::enter(&interrupt);
    interrupt.raise();
    assert_eq!(p.fallocate(fd, 0, 0, LEN), Err(Errno::INTR));
    let after = (p.fstat(fd).unwrap().st_blocks, p.statfs("/").unwrap().f_bfree);
    assert_eq!(after, before, "all or none");
    assert_eq!(p.fstat(fd).unwrap().st_size, (5 << 20) + 3);
    interrupt.clear();
    p.fallocate(fd, 0, 0, LEN).unwrap();
    drop(entered);
    let stat = p.fstat(fd).unwrap();
    assert_eq!((stat.st_size, stat.st_blocks), (LEN, LEN as u64 / 512));
    let mut bytes = [9; 5];
    assert_eq!(p.pread(fd, &mut bytes, 5 << 20), Ok(5));
    assert_eq!(bytes, *b"abc\0\0");
}

/// While one thread reserves a part of a file again and again, others punch holes in it, write and
/// cut it.
#[test]
fn turns_do_not_disturb_other_changes() {
    quietline_testing::isolated!();
    const PAGES: i64 = 2048;
    let (p, fd) = file(Config::default().fs_size(PAGES as u64 * 4096));
    let rounds = quietline_testing::budget("QUIETLINE_RESERVE_ROUNDS", 40);
    std::thread::scope(|scope| {
        let reserving = scope.spawn(|| {
            for _ in 0..rounds {
                let done = p.fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, PAGES * 4096);
                assert!(matches!(done, Ok(()) | Err(Errno::NOSPC)), "{done:?}");
            }
        });
        let mut n = 0;
        while !reserving.is_finished() {
            n = (n * 5 + 3) % PAGES;
            let punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
            p.fallocate(fd, punch, n * 4096, 40 * 4096).unwrap();
            let _ = p.pwrite(fd, b"abc", n * 4096);
            if n % 7 == 0 {
                p.ftruncate(fd, n * 4096).unwrap();
            }
        }
    });
    p.ftruncate(fd, 0).unwrap();
    assert_eq!(p.fstat(fd).unwrap().st_blocks, 0);
    let room = p.statfs("/").unwrap();
    assert_eq!(room.f_bfree, room.f_blocks, "every page is given back");
}

/// An interrupted reservation beside a change of another part of the file: `st_blocks` is right
/// after both.
#[test]
fn an_interrupted_reservation_leaves_the_number_of_blocks_right() {
    quietline_testing::isolated!();
    const PAGES: i64 = 512;
    let (p, fd) = file(Config::default().fs_size(PAGES as u64 * 4 * 4096));
    let rounds = quietline_testing::budget("QUIETLINE_RESERVE_ROUNDS", 40) * 50;
    let punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    let interrupt = Shared::new(Interrupt::new()).unwrap();
    interrupt.raise();
    let start = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let interrupted = scope.spawn(|| {
            let _entered = Interrupt::enter(&interrupt);
            for _ in 0..rounds {
                start.wait();
                let done = p.fallocate(fd, FALLOC_FL_KEEP_SIZE, PAGES * 4096, PAGES * 4096);
                assert_eq!(done, Err(Errno::INTR));
                start.wait();
            }
        });
        for round in 0..rounds {
            p.ftruncate(fd, 0).unwrap();
            p.fallocate(fd, 0, 0, PAGES * 4096).unwrap();
            start.wait();
            for page in 0..PAGES {
                p.fallocate(fd, punch, page * 4096, 4096).unwrap();
            }
            start.wait();
            // Pages of the reservation may have stayed.
            let room = p.statfs("/").unwrap();
            let blocks = (room.f_blocks - room.f_bfree) * 8;
            assert_eq!(p.fstat(fd).unwrap().st_blocks, blocks, "round {round}");
        }
        interrupted.join().unwrap();
    });
}
