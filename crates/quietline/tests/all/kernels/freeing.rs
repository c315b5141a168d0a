//! Memory that waits for a grace period: calls that free run callbacks when they return, outside of
//! all locks and read-side critical sections.

use quietline::abi::*;
use quietline::{Config, Kernel, Process, SendMsg};
use quietline_sync::rcu;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn process() -> Process {
    Kernel::boot(Config::default()).unwrap().process().unwrap()
}

fn make_and_remove(p: &Process, name: &str) {
    let fd = p.open(name, O_CREAT | O_RDWR, 0o600).unwrap();
    p.close(fd).unwrap();
    p.unlink(name).unwrap();
}

/// Nobody polls: what waits is bounded all the same.
#[test]
fn calls_bound_what_waits() {
    quietline_testing::isolated!();
    let domain = rcu::global().unwrap();
    let p = process();
    let bound = 2 * domain.backlog_limit();
    let (mut most, mut made) = (0, 0);
    // A dentry and an inode each.
    while made < 2 * bound {
        (0..500).for_each(|_| make_and_remove(&p, "/file"));
        made += 500;
        most = most.max(domain.backlog());
    }
    assert!(most <= bound, "{most} objects waited, the bound is {bound}");
}

/// Callbacks of the program run when calls return: they may wait for a grace period of the walks, and
/// call the process that is just returning, in the directory of its call.
#[test]
fn callbacks_run_outside_of_locks_and_sections() {
    quietline_testing::isolated!();
    let domain = rcu::global().unwrap();
    let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
    let p = Arc::new(kernel.process().unwrap());
    p.mkdir("/dir", 0o700).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let mut queued = 0;
    for round in 0..10_000 {
        if round % 100 == 0 {
            let (p, ran) = (p.clone(), ran.clone());
            let callback = move || {
                domain.synchronize();
                make_and_remove(&p, "/dir/callback");
                ran.fetch_add(1, Relaxed);
            };
            domain.defer(callback).unwrap();
            queued += 1;
        }
        make_and_remove(&p, "/dir/file");
        p.setgroups(&[round]).unwrap();
    }
    assert!(ran.load(Relaxed) > queued / 2, "{} of {queued}", ran.load(Relaxed));
    domain.barrier();
    assert_eq!(ran.load(Relaxed), queued);
}

/// Files whose last reference goes with a message that a process receives without room for it: the
/// process that frees makes no descriptor, and the one that makes them frees nothing.
#[test]
fn files_freed_by_a_receiver_are_bounded() {
    quietline_testing::isolated!();
    let domain = rcu::global().unwrap();
    let p = process();
    let [a, b] = p.socketpair(AF_UNIX, SOCK_DGRAM, 0).unwrap();
    let bound = 2 * domain.backlog_limit();
    let mut most = 0;
    std::thread::scope(|s| {
        s.spawn(|| {
            while p.recv(b, &mut [0; 8], 0).unwrap() != 2 {
                most = most.max(domain.backlog());
            }
        });
        for _ in 0..2 * bound {
            let fd = p.eventfd(0, 0).unwrap();
            // Readers have met the file, so it is freed after a grace period.
            p.write(fd, &1_u64.to_ne_bytes()).unwrap();
            let mut control = [0; 24];
            control[..8].copy_from_slice(&20_u64.to_ne_bytes());
            control[8..12].copy_from_slice(&SOL_SOCKET.to_ne_bytes());
            control[12..16].copy_from_slice(&SCM_RIGHTS.to_ne_bytes());
            control[16..20].copy_from_slice(&fd.to_ne_bytes());
            let buffers: &[&[u8]] = &[b"f"];
            p.sendmsg(a, &SendMsg { buffers, control: &control, ..SendMsg::default() }, 0).unwrap();
            p.close(fd).unwrap();
        }
        p.write(a, b"xx").unwrap();
    });
    assert!(most <= bound, "{most} objects waited, the bound is {bound}");
}

/// Walks to objects of `/proc` free those that no longer hold, also walks that fail: here the
/// objects' owner changes with the process's dumpable flag.
#[test]
fn objects_freed_by_walks_are_bounded() {
    quietline_testing::isolated!();
    let domain = rcu::global().unwrap();
    let p = Kernel::boot(Config::default().privileged(true)).unwrap().process().unwrap();
    p.mkdir("/proc", 0o755).unwrap();
    p.mount("proc", "/proc", "proc", 0).unwrap();
    p.setresuid(1000, 1000, 1000).unwrap();
    let bound = 2 * domain.backlog_limit();
    let fd = p.eventfd(0, 0).unwrap();
    let socket = p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap();
    let fds = p.open("/proc/self/fd", O_RDONLY | O_DIRECTORY, 0).unwrap();
    let path = format!("/proc/self/fd/{fd}");
    let address = [&(AF_UNIX as u16).to_ne_bytes()[..], path.as_bytes()].concat();
    type Call<'c> = &'c dyn Fn();
    let calls: [Call<'_>; 6] = [
        &|| _ = p.stat(&path),
        &|| assert!(p.mkdir(&path, 0o700).is_err()),
        &|| assert!(p.unlink(&path).is_err()),
        &|| assert!(p.renameat2(AT_FDCWD, format!("{path}/x"), AT_FDCWD, "/y", 1).is_err()),
        &|| assert!(p.connect(socket, &address).is_err()),
        &|| {
            p.lseek(fds, 0, SEEK_SET).unwrap();
            // While the process is not dumpable, the directory is another user's.
            let _ = p.getdents64(fds, &mut [0; 1024]);
        },
    ];
    for (number, call) in calls.iter().enumerate() {
        domain.barrier();
        let mut most = 0;
        for round in 0..2 * bound {
            p.set_dumpable(round % 2 == 0);
            call();
            most = most.max(domain.backlog());
        }
        assert!(most > 0 && most <= bound, "call {number}: {most} waited, the bound is {bound}");
    }
}

/// A file in memory for which there is no descriptor is freed at once.
#[test]
fn files_without_a_descriptor_are_bounded() {
    quietline_testing::isolated!();
    let domain = rcu::global().unwrap();
    let p = process();
    p.set_nofile(0).unwrap();
    let bound = 2 * domain.backlog_limit();
    let mut most = 0;
    for _ in 0..2 * bound {
        assert_eq!(p.memfd_create("m", 0), Err(quietline::Errno::MFILE));
        most = most.max(domain.backlog());
    }
    assert!(most > 0 && most <= bound, "{most} objects waited, the bound is {bound}");
}

/// A link whose first path begins at a descriptor runs callbacks after its walks: they may sleep.
#[test]
fn links_run_callbacks_outside_of_sections() {
    quietline_testing::isolated!();
    let domain = rcu::global().unwrap();
    let p = process();
    p.mkdir("/dir", 0o700).unwrap();
    let dir = p.open("/dir", O_RDONLY | O_DIRECTORY, 0).unwrap();
    p.close(p.open("/dir/file", O_CREAT | O_RDWR, 0o600).unwrap()).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    // A grace period begins after some full batches. Their number grows with the CPUs', and so does
    // the limit.
    let queued = domain.backlog_limit() as usize / 2;
    for _ in 0..queued {
        let ran = ran.clone();
        let callback = move || {
            // Panics inside a section of the walk; the callback then does not count.
            quietline_sync::might_sleep();
            ran.fetch_add(1, Relaxed);
        };
        domain.defer(callback).unwrap();
        p.linkat(dir, "file", dir, "other", AT_SYMLINK_FOLLOW).unwrap();
        p.unlinkat(dir, "other", 0).unwrap();
    }
    assert!(ran.load(Relaxed) > 0, "calls have run none");
    domain.barrier();
    assert_eq!(ran.load(Relaxed), queued);
}

/// Pages that a reader kept from being freed go with later calls, whatever these do.
#[test]
fn a_file_cut_off_under_a_reader_is_freed_after_it() {
    quietline_testing::isolated!();
    let domain = rcu::global().unwrap();
    // By default it grows with the number of CPUs that the system may get.
    let limit = 16 << 10;
    domain.set_backlog_limit(limit);
    let p = process();
    let fd = p.open("/file", O_CREAT | O_RDWR, 0o600).unwrap();
    let pages = vec![1; 1 << 20];
    for at in 0..4 * limit / 256 {
        p.pwrite(fd, &pages, (at << 20) as i64).unwrap();
    }
    let section = domain.read();
    p.ftruncate(fd, 0).unwrap();
    assert!(domain.is_over_backlog_limit() && domain.backlog() > 2 * limit);
    drop(section);
    // Each call frees some hundred pages.
    for _ in 0..4 * limit / 256 {
        p.close(p.eventfd(0, 0).unwrap()).unwrap();
    }
    // The CPUs' unfinished batches come on top of the limit.
    assert!(!domain.is_over_backlog_limit(), "{} pages wait", domain.backlog());
}
