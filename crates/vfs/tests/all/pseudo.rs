//! Property 3: what a pseudo object is not part of.

use crate::fdtable::support::table_for;
use quietline_sync::{IdAllocator, PerCpuShared, rcu};
use quietline_vfs::signalfd::Signals;
use quietline_vfs::{
    DentryFlags, EventFd, FdFlags, Files, Owner, Pipe, PseudoFs, SignalFd, TimerFd, Timers, Vfs,
    abi,
};
use quietline_vfs::{eventfd, pipe2, set_signals, signalfd, timerfd};
use rustix::io::Errno;

const ROOT: Owner = Owner::new(0, 0);

#[test]
fn its_dentry_is_its_own_parent_and_on_no_list() {
    quietline_testing::isolated!();
    let files = Files::new(100).unwrap();
    let fs = PseudoFs::<EventFd>::new("anon_inodefs").unwrap();
    let file = eventfd(&fs, &files, 3, abi::EFD_SEMAPHORE).unwrap();
    let dentry = file.dentry();
    assert!(dentry.is_root());
    // There is no hash and no list of dentries that it could be on; the flags say so to whoever walks paths.
    assert_eq!(
        dentry.flags(),
        DentryFlags::UNHASHED | DentryFlags::DISCONNECTED | DentryFlags::NORCU
    );
    assert_eq!(dentry.count(), 1, "the file's reference is the only one");
    assert!(
        file.mount().is_internal() && file.mount().references() == 0,
        "and the mount is not counted"
    );
    let second = file.clone();
    assert_eq!(second.dentry().count(), 1, "a second handle is on the file, not on the dentry");
    assert!(core::ptr::eq(second.dentry(), file.dentry()));
    let state = file.payload::<EventFd>().unwrap();
    assert_eq!((state.count(), state.is_semaphore()), (3, true));
}

/// The name can be read by descriptor, and only so.
#[test]
fn it_is_named_by_descriptor() {
    quietline_testing::isolated!();
    let files = Files::new(100).unwrap();
    let ino = IdAllocator::starting_at(41).unwrap();
    let pipes = PseudoFs::<Pipe>::new("pipefs").unwrap();
    let eventfds = PseudoFs::<EventFd>::new("anon_inodefs").unwrap();
    let timerfds = PseudoFs::<TimerFd>::new("anon_inodefs").unwrap();
    let signalfds = PseudoFs::<SignalFd>::new("anon_inodefs").unwrap();
    let (vfs, timers) = (Vfs::new().unwrap(), Timers::new().unwrap());
    let process = PerCpuShared::new(Signals::new()).unwrap();
    let mut table = table_for(100);
    let [reader, writer] = pipe2(&pipes, &files, &vfs, &ino, ROOT, 0).unwrap();
    assert_eq!(reader.inode::<Pipe>().unwrap().i_ino, 41);
    assert!(core::ptr::eq(reader.dentry(), writer.dentry()) && reader.dentry().count() == 2);
    let signals = signalfd(&signalfds, &files, &process, u64::MAX, 0).unwrap();
    assert_eq!(
        signals.payload::<SignalFd>().unwrap().mask(),
        !(1 << 8 | 1 << 18),
        "two cannot be waited for"
    );
    set_signals(&signals, 5).unwrap();
    assert_eq!(signals.payload::<SignalFd>().unwrap().mask(), 5);
    assert_eq!(set_signals(&reader, 5), Err(Errno::INVAL));
    let all = [
        (reader, "pipe:[41]"),
        (writer, "pipe:[41]"),
        (eventfd(&eventfds, &files, 0, 0).unwrap(), "anon_inode:[eventfd]"),
        (
            timerfd(&timerfds, &timers, &files, abi::CLOCK_MONOTONIC, 0, || false).unwrap(),
            "anon_inode:[timerfd]",
        ),
        (signals, "anon_inode:[signalfd]"),
    ];
    for (file, name) in all {
        let fd = table.install(file, FdFlags::default()).unwrap();
        assert_eq!(table.get(fd, &files).unwrap().name().to_string(), name);
    }
    assert_eq!((pipes.live(), files.nr_files()), (1, 5));
    table.close(0, &files).unwrap();
    assert_eq!((pipes.live(), files.nr_files()), (1, 4), "the writer keeps the pipe");
    table.clear(&files);
    assert_eq!((pipes.live(), eventfds.live(), timerfds.live(), signalfds.live()), (0, 0, 0, 0));
}

/// Its memory can be used again at once: with a read section open all the time no grace period can end, and yet a
/// hundred thousand objects need no more memory than one.
#[test]
fn it_is_freed_without_a_grace_period() {
    quietline_testing::isolated!();
    let files = Files::new(100).unwrap();
    let fs = PseudoFs::<EventFd>::new("anon_inodefs").unwrap();
    let domain = rcu::global().unwrap();
    let section = domain.read();
    let seq = domain.start_poll_synchronize();
    drop(eventfd(&fs, &files, 0, 0).unwrap());
    for count in 0..100_000 {
        let file = eventfd(&fs, &files, count, 0).unwrap();
        assert_eq!(file.payload::<EventFd>().unwrap().count(), count.into());
    }
    let stats = fs.cache().stats();
    // A CPU that the thread comes to fills a sheaf of its own once, at most from slabs of its own.
    let bound = 4 * (1 + quietline_platform::cpu::nr_cpus()) * stats.objects_per_slab.max(128);
    assert!(stats.slabs * stats.objects_per_slab <= bound, "{stats:?}");
    assert_eq!((stats.active, fs.live(), files.nr_files()), (0, 0, 0));
    assert!(!domain.poll_state_synchronize(seq), "no grace period has ended");
    // And the memory goes back to the system as soon as it is asked for.
    fs.shrink();
    assert_eq!(fs.cache().stats().slabs, 0);
    drop(section);
}

/// Two ends that are closed by two threads at once end the object once.
#[test]
fn the_last_of_two_ends_ends_it() {
    quietline_testing::isolated!();
    let files = Files::new(1_000).unwrap();
    let ino = IdAllocator::new().unwrap();
    let pipes = PseudoFs::<Pipe>::new("pipefs").unwrap();
    let vfs = Vfs::new().unwrap();
    std::thread::scope(|s| {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        s.spawn(move || receive.into_iter().for_each(drop));
        for _ in 0..30_000 {
            let [reader, writer] = pipe2(&pipes, &files, &vfs, &ino, ROOT, abi::O_CLOEXEC).unwrap();
            send.send(reader).unwrap();
            drop(writer);
        }
    });
    assert_eq!((pipes.live(), files.nr_files()), (0, 0));
}

#[test]
fn limits_and_failures_leave_nothing() {
    quietline_testing::isolated!();
    use quietline_platform::fault;
    let files = Files::new(1).unwrap();
    let ino = IdAllocator::new().unwrap();
    let pipes = PseudoFs::<Pipe>::new("pipefs").unwrap();
    let vfs = Vfs::new().unwrap();
    assert_eq!(
        pipe2(&pipes, &files, &vfs, &ino, ROOT, 0).unwrap_err(),
        Errno::NFILE,
        "room for one end only"
    );
    assert_eq!((pipes.live(), files.nr_files()), (0, 0));
    assert_eq!(pipe2(&pipes, &files, &vfs, &ino, ROOT, 1).unwrap_err(), Errno::INVAL);
    assert_eq!(
        pipe2(&pipes, &files, &vfs, &ino, ROOT, abi::O_NOTIFICATION_PIPE).unwrap_err(),
        Errno::NOPKG
    );
    files.set_max_files(10);
    let mut failures = 0;
    for nth in 1.. {
        pipes.shrink();
        files.shrink();
        fault::fail_from(nth);
        let result = pipe2(&pipes, &files, &vfs, &ino, ROOT, 0).map(drop);
        fault::fail_nth(0);
        assert_eq!((pipes.live(), files.nr_files()), (0, 0), "after failure {nth}");
        match result {
            Ok(()) => break,
            Err(errno) => assert_eq!(errno, Errno::NOMEM),
        }
        failures += 1;
    }
    assert!(failures >= 2, "the object and the file need memory, {failures} failures");
}
