//! inotify: what no host is needed for.

use quietline_platform::fault;
use quietline_sync::{Interrupt, Shared};
use quietline_vfs::inotify::*;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

fn limits() -> Shared<InotifyLimits> {
    Shared::new(InotifyLimits::new()).unwrap()
}

fn file() -> Shared<Watches> {
    Shared::new(Watches::new(1, 1)).unwrap()
}

fn happen(file: &Watches, mask: u32) {
    notify(Some(file), None, Happening { mask, ..Happening::default() });
}

/// Numbers and masks of what there is to read.
fn read(inotify: &Inotify) -> Vec<(i32, u32)> {
    let mut buffer = [0; 4096];
    let Ok(n) = inotify.read(&mut buffer, true) else { return Vec::new() };
    buffer[..n]
        .chunks(16)
        .map(|event| {
            let word = |at: usize| u32::from_ne_bytes(event[at..at + 4].try_into().unwrap());
            assert_eq!(word(12), 0, "no name");
            (word(0) as i32, word(4))
        })
        .collect()
}

#[test]
fn limits_of_a_user() {
    quietline_testing::isolated!();
    let limits = limits();
    limits.max_user_instances().store(2, Ordering::Relaxed);
    limits.max_user_watches().store(3, Ordering::Relaxed);
    let first = Inotify::new(&limits, 5).unwrap();
    let second = Inotify::new(&limits, 5).unwrap();
    assert_eq!(Inotify::new(&limits, 5).err(), Some(Errno::MFILE));
    let other = Inotify::new(&limits, 6).expect("another user");
    let files = [file(), file(), file(), file()];
    assert_eq!(
        (first.add_watch(&files[0], IN_OPEN), first.add_watch(&files[1], IN_OPEN)),
        (Ok(1), Ok(2))
    );
    assert_eq!(second.add_watch(&files[2], IN_OPEN), Ok(1));
    assert_eq!(second.add_watch(&files[3], IN_OPEN), Err(Errno::NOSPC));
    assert_eq!(second.add_watch(&files[2], IN_CREATE), Ok(1), "no new one");
    assert_eq!(other.add_watch(&files[3], IN_OPEN), Ok(1));
    first.rm_watch(2).unwrap();
    assert_eq!(second.add_watch(&files[3], IN_OPEN), Ok(2));
    drop(first);
    assert_eq!(files[0].watchers(), 0);
    let again = Inotify::new(&limits, 5).expect("its place is free");
    assert_eq!(again.add_watch(&files[0], IN_OPEN), Ok(1), "and those of its watches");
}

#[test]
fn masks_and_flags() {
    quietline_testing::isolated!();
    assert_eq!(
        (check_init_flags(IN_CLOEXEC | IN_NONBLOCK), check_init_flags(1)),
        (Ok(()), Err(Errno::INVAL))
    );
    for (mask, good) in [
        (0, false),
        (IN_ISDIR, true),
        (1 << 16, false),
        (IN_MASK_ADD | IN_MASK_CREATE | IN_OPEN, false),
        (IN_ALL_EVENTS | IN_ONESHOT | IN_EXCL_UNLINK | IN_ONLYDIR | IN_DONT_FOLLOW, true),
    ] {
        assert_eq!(check_mask(mask).is_ok(), good, "{mask:#x}");
    }
}

#[test]
fn nobody_is_told_what_nobody_wants() {
    quietline_testing::isolated!();
    let (limits, file) = (limits(), file());
    assert!(!file.wants(IN_ALL_EVENTS));
    let inotify = Inotify::new(&limits, 0).unwrap();
    let wd = inotify.add_watch(&file, IN_OPEN).unwrap();
    assert!(file.wants(IN_OPEN) && !file.wants(IN_ALL_EVENTS & !IN_OPEN));
    happen(&file, IN_ACCESS);
    assert_eq!(read(&inotify), []);
    inotify.rm_watch(wd).unwrap();
    assert!(!file.wants(IN_ALL_EVENTS));
    assert_eq!((read(&inotify), inotify.rm_watch(wd)), (vec![(wd, IN_IGNORED)], Err(Errno::INVAL)));
}

#[test]
fn an_unmount_is_told_to_all() {
    quietline_testing::isolated!();
    let (limits, file) = (limits(), file());
    let instances = [0; 2].map(|_| Inotify::new(&limits, 0).unwrap());
    for inotify in &instances {
        inotify.add_watch(&file, IN_OPEN).unwrap();
    }
    file.unmounted(false);
    for inotify in &instances {
        assert_eq!(read(inotify), [(1, IN_UNMOUNT), (1, IN_IGNORED)]);
        assert_eq!(inotify.watches(), 0);
    }
}

/// Both instances of a file's one-shot watches get one event each, and their ends.
#[test]
fn one_shot_watches_of_two() {
    quietline_testing::isolated!();
    let (limits, file) = (limits(), file());
    let instances = [0; 2].map(|_| Inotify::new(&limits, 0).unwrap());
    for inotify in &instances {
        inotify.add_watch(&file, IN_OPEN | IN_ONESHOT).unwrap();
    }
    happen(&file, IN_OPEN);
    happen(&file, IN_OPEN);
    for inotify in &instances {
        assert_eq!(read(inotify), [(1, IN_OPEN), (1, IN_IGNORED)]);
        assert_eq!(inotify.add_watch(&file, IN_OPEN), Ok(2));
    }
}

#[test]
fn a_reader_waits() {
    quietline_testing::isolated!();
    let (limits, file) = (limits(), file());
    let (inotify, interrupt) =
        (Inotify::new(&limits, 0).unwrap(), Shared::new(Interrupt::new()).unwrap());
    let read = |buffer: &mut [u8]| {
        let _entered = Interrupt::enter(&interrupt);
        inotify.read(buffer, false)
    };
    inotify.add_watch(&file, IN_OPEN).unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| read(&mut [0; 100]));
        thread::sleep(Duration::from_millis(20));
        happen(&file, IN_OPEN);
        assert_eq!(reader.join().unwrap(), Ok(16));
        let reader = scope.spawn(|| read(&mut [0; 100]));
        thread::sleep(Duration::from_millis(20));
        interrupt.raise();
        assert_eq!(reader.join().unwrap(), Err(Errno::INTR));
        interrupt.clear();
        let reader = scope.spawn(|| read(&mut [0; 15]));
        happen(&file, IN_OPEN);
        assert_eq!(reader.join().unwrap(), Err(Errno::INVAL));
    });
}

/// Every allocation fails once: a call fails and changes nothing, a lost event is told as an overflow.
#[test]
fn without_memory() {
    quietline_testing::isolated!();
    let limits = limits();
    let mut failed = 0;
    let inotify = loop {
        fault::fail_nth(failed + 1);
        let made = Inotify::new(&limits, 0);
        let armed = fault::armed();
        fault::fail_nth(0);
        match made {
            Ok(inotify) if armed => break inotify,
            Ok(_) => panic!("a failure was not noticed"),
            Err(error) => assert_eq!(error, Errno::NOMEM),
        }
        failed += 1;
    };
    assert!(failed >= 2);
    let file = file();
    let mut failed = 0;
    loop {
        fault::fail_nth(failed + 1);
        let added = inotify.add_watch(&file, IN_OPEN);
        let armed = fault::armed();
        fault::fail_nth(0);
        if added.is_ok() && armed {
            break;
        }
        assert_eq!(added, Err(Errno::NOMEM));
        assert_eq!((inotify.watches(), file.watchers()), (0, 0));
        failed += 1;
    }
    assert!(failed >= 2);
    let named = |name: &[u8]| {
        let happening = Happening { mask: IN_OPEN, ..Happening::default() };
        notify(None, Some((&file, name)), happening);
    };
    named(b"one");
    fault::fail_from(1);
    // Names that are not part of the event.
    named(&[b'2'; 40]);
    named(&[b'3'; 40]);
    fault::fail_nth(0);
    let mut buffer = [0; 100];
    assert_eq!(inotify.read(&mut buffer, true), Ok(32 + 16), "one event and the overflow");
    assert_eq!(u32::from_ne_bytes(buffer[36..40].try_into().unwrap()), IN_Q_OVERFLOW);
    assert_eq!(inotify.add_watch(&file, IN_OPEN), Ok(1), "the first number: what failed took none");
}

/// Events are raised while watches and instances come and go and readers read; at the end nothing is left.
#[test]
fn stress() {
    quietline_testing::isolated!();
    const ROUNDS: u32 = 3_000;
    let (limits, files) = (limits(), [file(), file()]);
    let done = AtomicBool::new(false);
    let events = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for file in &files {
                        happen(file, IN_OPEN);
                        notify(
                            Some(file),
                            Some((&files[0], b"name")),
                            Happening { mask: IN_CLOSE_WRITE, ..Happening::default() },
                        );
                    }
                }
            });
        }
        let churn = [0, 1].map(|n| {
            let (limits, files, events) = (&limits, &files, &events);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let inotify = Inotify::new(limits, n).unwrap();
                    let options = if round % 3 == 0 { IN_ONESHOT } else { 0 };
                    let wds = files
                        .each_ref()
                        .map(|file| inotify.add_watch(file, IN_ALL_EVENTS | options).unwrap());
                    let mut buffer = [0; 256];
                    if let Ok(read) = inotify.read(&mut buffer, round % 2 == 0) {
                        assert!(read >= 16);
                        events.fetch_add(1, Ordering::Relaxed);
                    }
                    // A one-shot watch may be gone already.
                    let removed = inotify.rm_watch(wds[0]);
                    assert!(removed.is_ok() || options != 0);
                    if round % 5 == 0 {
                        files[1].forget();
                    }
                }
            })
        });
        churn.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    assert!(events.into_inner() >= ROUNDS);
    for mut file in files {
        assert_eq!(file.watchers(), 0);
        assert!(!file.wants(IN_ALL_EVENTS));
        assert!(Shared::get_mut(&mut file).is_some(), "no watch is left in memory");
    }
}
