//! Sequences of calls with effects on another descriptor: locks and attributes of pseudo
//! objects, on both systems.

use super::host::Host;
use super::ours::Ours;
use super::system::{Outcome, System};
use libc::*;
use std::thread;
use std::time::Duration;

/// What a sequence found.
type Found = Vec<Outcome>;

fn flock(s: &dyn System, fd: i32, operation: i32) -> Outcome {
    s.call(SYS_flock, &[fd.into(), (operation | LOCK_NB).into()])
}

/// A record lock of all bytes.
fn lock(s: &dyn System, fd: i32, cmd: i32, ty: i32) -> Outcome {
    let at = s.room().structure(0, &[ty as u64, 0, 0, 0]);
    s.call(SYS_fcntl, &[fd.into(), cmd.into(), at])
}

/// The type of the lock in the way of a lock for writing by the open file.
fn in_the_way(s: &dyn System, fd: i32) -> Outcome {
    let at = s.room().structure(0, &[F_WRLCK as u64, 0, 0, 0]);
    s.call(SYS_fcntl, &[fd.into(), F_OFD_GETLK.into(), at])?;
    Ok((s.room().int(at) as i16).into())
}

fn eventfd(s: &dyn System) -> i32 {
    s.must(SYS_eventfd2, &[0, 0]) as i32
}

fn dup(s: &dyn System, fd: i32) -> i32 {
    s.must(SYS_dup, &[fd.into()]) as i32
}

/// Mode, owner, group and the seconds of both times.
fn attributes(s: &dyn System, fd: i32) -> Found {
    let at = s.room().target();
    s.must(SYS_fstat, &[fd.into(), at]);
    [(24, 4), (28, 4), (32, 4), (72, 8), (88, 8)]
        .map(|(field, size)| {
            Ok(if size == 4 {
                s.room().int(at + field).into()
            } else {
                s.room().word(at + field) as i64
            })
        })
        .to_vec()
}

fn change(s: &dyn System, fd: i32) -> Found {
    let times = s.room().structure(0, &[1000, 0, 2000, 0]);
    vec![
        s.call(SYS_fchmod, &[fd.into(), 0o641]),
        s.call(SYS_fchown, &[fd.into(), 7, 8]),
        s.call(SYS_utimensat, &[fd.into(), 0, times, 0]),
    ]
}

/// Calls of a system, in their order.
type Sequence = fn(&dyn System) -> Found;

const SEQUENCES: &[(&str, Sequence)] = &[
    ("the ends of a pipe are one file to flock", |s| {
        let [read, write] = s.pipe();
        let mut found = vec![flock(s, read, LOCK_EX), flock(s, write, LOCK_SH)];
        s.close(read);
        found.push(flock(s, write, LOCK_EX));
        found
    }),
    ("an flock stays until the last descriptor of the open file is closed", |s| {
        let [read, write] = s.pipe();
        let again = dup(s, read);
        let mut found = vec![flock(s, read, LOCK_SH)];
        s.close(read);
        found.push(flock(s, write, LOCK_EX));
        s.close(again);
        found.push(flock(s, write, LOCK_EX));
        found
    }),
    ("the ends of a pair of sockets are two files", |s| {
        let [one, two] = s.pair(SOCK_STREAM);
        vec![flock(s, one, LOCK_EX), flock(s, two, LOCK_EX), flock(s, one, LOCK_UN)]
    }),
    ("record locks of open files on a pipe", |s| {
        let [read, write] = s.pipe();
        let mut found = vec![
            lock(s, read, F_OFD_SETLK, F_RDLCK),
            lock(s, write, F_OFD_SETLK, F_WRLCK),
            in_the_way(s, write),
            lock(s, read, F_OFD_SETLK, F_UNLCK),
            in_the_way(s, write),
            lock(s, read, F_OFD_SETLK, F_RDLCK),
        ];
        s.close(read);
        found.extend([in_the_way(s, write), lock(s, write, F_OFD_SETLK, F_WRLCK)]);
        found
    }),
    ("a process's locks end with any descriptor of the file", |s| {
        let [read, write] = s.pipe();
        let mut found = vec![lock(s, write, F_SETLK, F_WRLCK), in_the_way(s, write)];
        s.close(read);
        found.push(in_the_way(s, write));
        found
    }),
    ("locks of a socket", |s| {
        let [one, _] = s.pair(SOCK_DGRAM);
        vec![
            lock(s, one, F_SETLK, F_WRLCK),
            lock(s, one, F_OFD_SETLK, F_RDLCK),
            lock(s, one, F_SETLK, F_UNLCK),
            lock(s, one, F_OFD_SETLK, F_RDLCK),
            flock(s, one, LOCK_EX),
        ]
    }),
    ("anonymous descriptors are one file", |s| {
        let [one, two] = [eventfd(s), s.must(SYS_epoll_create1, &[0]) as i32];
        let mut found = vec![flock(s, one, LOCK_EX), flock(s, two, LOCK_EX)];
        found.extend([lock(s, one, F_OFD_SETLK, F_WRLCK), lock(s, two, F_OFD_SETLK, F_RDLCK)]);
        s.close(one);
        found.extend([lock(s, two, F_OFD_SETLK, F_RDLCK), flock(s, two, LOCK_EX)]);
        s.close(two);
        let three = eventfd(s);
        found.extend([flock(s, three, LOCK_EX), in_the_way(s, three)]);
        found
    }),
    ("a process's locks end with any anonymous descriptor", |s| {
        let timer = s.must(SYS_timerfd_create, &[CLOCK_MONOTONIC.into(), 0]) as i32;
        // Of a kind of which no sequence has locked a descriptor.
        let other = s.must(SYS_inotify_init1, &[0]) as i32;
        let mut found = vec![lock(s, timer, F_SETLK, F_WRLCK), in_the_way(s, timer)];
        s.close(other);
        found.push(in_the_way(s, timer));
        found
    }),
    ("the ends of a pipe have the same attributes", |s| {
        let [read, write] = s.pipe();
        let mut found = change(s, read);
        found.extend(attributes(s, write));
        s.close(read);
        found.extend(attributes(s, write));
        found
    }),
    ("a new pipe has none of an old one's attributes", |s| {
        let [read, write] = s.pipe();
        change(s, write);
        flock(s, write, LOCK_EX).unwrap();
        s.close(read);
        s.close(write);
        let fds = s.pipe();
        let mut found = attributes(s, fds[0])[..3].to_vec();
        found.push(flock(s, fds[0], LOCK_EX));
        found
    }),
    ("the ends of a pair of sockets have attributes of their own", |s| {
        let [one, two] = s.pair(SOCK_STREAM);
        let mut found = change(s, one);
        found.extend(attributes(s, one));
        found.extend(attributes(s, two)[..3].to_vec());
        found
    }),
    ("the attributes of anonymous descriptors do not change", |s| {
        let fd = eventfd(s);
        let mut found = change(s, fd);
        found.extend(attributes(s, fd)[..3].to_vec());
        found
    }),
];

#[test]
fn what_one_descriptor_changes_another_sees() {
    quietline_testing::isolated!();
    let (host, ours) = (Host::new(), Ours::new());
    for (name, sequence) in SEQUENCES {
        let run = |s: &dyn System| {
            let found = sequence(s);
            s.must(SYS_close_range, &[3, i64::from(u32::MAX), 0]);
            found
        };
        let (mut theirs, own) = (run(&host), run(&ours));
        // Other programs may have locked the host's anonymous inode.
        for _ in 0..100 {
            if theirs == own {
                break;
            }
            thread::sleep(Duration::from_millis(5));
            theirs = run(&host);
        }
        assert_eq!(theirs, own, "{name}");
        assert!(own.iter().any(Result::is_ok), "{name}: {own:?}");
    }
}
