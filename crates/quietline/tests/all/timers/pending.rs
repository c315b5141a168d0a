//! Signals below, at and past the number that may wait with what they are told with (`RLIMIT_SIGPENDING`), beside the host's. There it is
//! lowered, and is what all processes of a user have together: a comparison in which another process has sent or read some is made again.

use crate::timers::call::System;
use crate::timers::host::Host;
use crate::timers::ours::Ours;
use crate::timers::own;

/// Room for those of the library (docs/limits.md), and of the host here.
const OURS: usize = 4096;
const HOSTS: usize = 64;

/// What waits: which signal, whether its sender is told, and how many in a row; of the queue that was filled as many as there was room for
/// are 0.
type Read = Vec<(i32, bool, isize)>;

/// What of signals that were sent could be seen.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    sent: Vec<(i32, Result<(), i32>)>,
    pending: u64,
    pipe: Read,
    all: Read,
}

const FILLS: i32 = 40;

/// Reads all of a signalfd.
fn read(on: &mut dyn System, fd: i32, room: usize) -> Read {
    let mut read: Read = Vec::new();
    let ids = on.ids();
    while let Ok(bytes) = on.read(fd, &[128]) {
        let word = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
        let signo = word(0) as i32;
        let told = [word(12), word(16)] == ids;
        assert!(told || [word(12), word(16)] == [0, 0]);
        assert_eq!(word(8), 0, "by a process that told another");
        match read.last_mut() {
            Some((last, as_well, n)) if (*last, *as_well) == (signo, told) => *n += 1,
            _ => read.push((signo, told, 1)),
        }
    }
    let filled = read.iter_mut().find(|(signo, told, _)| *signo == FILLS && *told);
    filled.expect("some fit").2 -= room as isize;
    read
}

/// Sends `more` than there is room for of one, then others.
fn past(on: &mut dyn System, room: usize, more: isize) -> Seen {
    let fd = on.signals(-1, u64::MAX, libc::O_NONBLOCK).unwrap();
    let only_pipe = on.signals(-1, 1 << (libc::SIGPIPE - 1), libc::O_NONBLOCK).unwrap();
    for _ in 0..room.strict_add_signed(more) {
        assert_eq!(on.kill(FILLS), Ok(()));
    }
    let [end, other] = on.pipe().unwrap();
    on.close(end).unwrap();
    assert_eq!(on.write(other, b"x"), Err(libc::EPIPE));
    // Legacy ones twice, queued ones twice, one that ends others.
    let signals = [15, 15, 41, 41, 20, 63, 18, 0, 10, 34, FILLS];
    let sent = signals.map(|signo| (signo, on.kill(signo))).to_vec();
    let pending = on.pending();
    let pipe = on.read(only_pipe, &[128]).map(|bytes| {
        let [pid, uid] = [12, 16].map(|at| u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap()));
        vec![(i32::from(bytes[0]), [pid, uid] == on.ids(), 1)]
    });
    let all = read(on, fd, room);
    [fd, only_pipe, other].into_iter().for_each(|fd| on.close(fd).unwrap());
    Seen { sent, pending, pipe: pipe.unwrap_or_default(), all }
}

/// Signals that wait for all processes of this user.
fn waiting() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("SigQ:")).expect("how many wait");
    line.split('/').next().unwrap().trim().parse().expect("a number")
}

/// Lets so many wait. What may be set later is as it was.
fn limit(to: usize) {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limits are written and read, nothing else.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_SIGPENDING, &mut limits), 0);
        limits.rlim_cur = to as u64;
        assert_eq!(libc::setrlimit(libc::RLIMIT_SIGPENDING, &limits), 0);
    }
}

/// What the host does; `None` if others have sent or read signals meanwhile.
fn host(more: isize) -> Option<Seen> {
    let mut host = Host::new();
    let before = waiting();
    limit(before + HOSTS);
    let seen = past(&mut host, HOSTS, more);
    (waiting() == before).then_some(seen)
}

#[test]
fn signals_that_find_no_room() {
    if own::elsewhere("timers::pending::signals_that_find_no_room") {
        return;
    }
    for more in (-10..=2).chain([-20, 50]) {
        let ours = past(&mut Ours::new(), OURS, more);
        let same = (0..20).any(|_| host(more).is_some_and(|theirs| theirs == ours));
        assert!(
            same,
            "{more} more than there is room for:\n host      {:?}\n quietline {ours:?}",
            host(more)
        );
        // Seven find room before the last of those that is the only one of its kind.
        let untold = ours.all.iter().filter(|(_, told, _)| !told).count();
        assert_eq!(untold > 0, more >= -7, "{more}: {ours:?}");
        assert_eq!(ours.pipe, [(libc::SIGPIPE, true, 1)], "{more}");
    }
}
