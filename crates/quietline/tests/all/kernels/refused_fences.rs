//! Calls that need a fence on all CPUs, in threads to which the host refuses `membarrier`. Each is
//! refused, or does without the fence. A thread that gets the fence completes it. Only the memory
//! of a mount that was detached without a fence is lost.

use quietline::abi::*;
use quietline::{Config, Errno, Kernel, MS_BIND, MS_REMOUNT, Process};
use quietline_platform::percpu::{self, Body};
use quietline_testing::heap;
use std::thread;

const MS_RDONLY: u64 = 1;
const MNT_DETACH: u32 = 2;
/// Descriptors of a process.
const LIMIT: usize = 16;

/// Calls `f` in a thread to which the host refuses `membarrier`. Returns `None` if the host cannot
/// refuse it, or nothing calls it.
fn refused<R: Send>(f: impl FnOnce() -> R + Send) -> Option<R> {
    if percpu::active() == Body::Fallback {
        println!("skipped: without restartable sequences a fence makes no system call");
        return None;
    }
    let thread = || quietline_testing::refuse_membarrier().then(f);
    let result = thread::scope(|scope| scope.spawn(thread).join().unwrap());
    if result.is_none() {
        println!("skipped: no system call can be refused");
    }
    result
}

/// A process whose `/m` is a file system of its own, with an empty directory `/m/dir`.
fn process() -> Process {
    let p = Kernel::boot(Config::default().owner(0, 0)).unwrap().process().unwrap();
    p.mkdir("/m", 0o700).unwrap();
    p.mount("none", "/m", "tmpfs", 0).unwrap();
    p.mkdir("/m/dir", 0o700).unwrap();
    p
}

/// Numbers that a CPU keeps for `O_ANYFD` stay with it, so a table may be full before its limit.
#[test]
fn numbers_of_the_cpus_stay_with_them() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default().nofile(LIMIT)).unwrap();
    let p = kernel.process().unwrap();
    p.close(p.eventfd(0, O_ANYFD).unwrap()).unwrap();
    let fill = || {
        for n in 0.. {
            match p.eventfd(0, 0) {
                Ok(_) => {}
                Err(errno) => return (n, errno),
            }
        }
        unreachable!("the table is full some time")
    };
    let Some((first, errno)) = refused(fill) else { return };
    assert_eq!(errno, Errno::MFILE);
    assert!(first < LIMIT, "a CPU has numbers");
    assert_eq!(fill(), (LIMIT - first, Errno::MFILE), "a thread that gets the fence gets them");
}

/// A mount stays writable, and mounted. It is as it was afterwards.
#[test]
fn a_mount_is_busy() {
    quietline_testing::isolated!();
    let p = process();
    let read_only = || p.mount("none", "/m", "", MS_REMOUNT | MS_BIND | MS_RDONLY);
    let Some(results) = refused(|| [read_only(), p.umount2("/m", 0)]) else { return };
    assert_eq!(results, [Err(Errno::BUSY); 2]);
    p.mkdir("/m/other", 0o700).unwrap();
    read_only().unwrap();
    assert_eq!(p.mkdir("/m/third", 0o700), Err(Errno::ROFS));
    p.umount2("/m", 0).unwrap();
    assert_eq!(p.rmdir("/m/dir"), Err(Errno::NOENT), "it is mounted no more");
}

/// A mount that is detached, and whose last reference is put, without a fence is in no tree. Its
/// memory is lost, as that of a mount to which a reference is never given back. Its file system is
/// still there for others.
#[test]
fn a_detached_mount_is_lost() {
    quietline_testing::isolated!();
    let p = process();
    p.mkdir("/other", 0o700).unwrap();
    p.mount("/m", "/other", "", MS_BIND).unwrap();
    let detached = || {
        p.mount("/other", "/m", "", MS_BIND).unwrap();
        p.umount2("/m", MNT_DETACH)
    };
    detached().unwrap();
    heap::start();
    for _ in 0..100 {
        detached().unwrap();
    }
    p.kernel().shrink();
    let freed = heap::bytes();
    let Some(results) = refused(|| [(); 100].map(|()| detached())) else { return };
    assert_eq!(results, [Ok(()); 100]);
    p.kernel().shrink();
    let lost = heap::bytes();
    assert!(freed < 100 * 64 && lost > 100 * 64, "{freed} bytes, then {lost}");
    p.umount2("/m", 0).unwrap();
    assert_eq!(p.rmdir("/m/dir"), Err(Errno::NOENT));
    assert_eq!(p.rmdir("/m"), Ok(()), "nothing is mounted there");
    p.rmdir("/other/dir").unwrap();
    p.umount2("/other", 0).unwrap();
    assert_eq!(p.rmdir("/other"), Ok(()));
}
