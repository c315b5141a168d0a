//! The normal form of outcomes, in which two sides must agree.
//!
//! Numbers of inodes and of the filesystem, and cookies of events, become numbers by order of appearance. Times that someone
//! set stay; those of the clock become what can be told of them on any machine: that they are the clock's, and of the times
//! of change and modification whether they are other than when the same inode was seen last. (Whether a read moves the time
//! of access of a file that was just made hangs on the clock's steps; that it moves one from long ago does not.) Lists of
//! extended attributes are sorted, and those of names where a side has an order of its own. What stays is compared exactly.

use crate::posix::call::Call;
use crate::posix::outcome::{Body, Event, Name, Outcome, Stamp, Stat};
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What one side has shown so far in a program.
#[derive(Debug)]
pub(crate) struct Eyes {
    /// Times of the clock lie between these.
    clock: [Duration; 2],
    /// Whether both sides' clocks are fine enough to tell each change.
    fine: bool,
    /// Whether both sides list names in the same order.
    ordered: bool,
    devices: HashMap<u64, u64>,
    inodes: HashMap<u64, Seen>,
    /// The two halves of renames.
    cookies: HashMap<u32, u32>,
    /// A process may have ended since the last look at events.
    ended: bool,
}

#[derive(Debug)]
struct Seen {
    number: u64,
    /// Of modification, of change.
    times: [Option<Stamp>; 2],
}

/// No program runs for so long, and none sets a time so near.
const NEAR: Duration = Duration::from_secs(86_400);

impl Eyes {
    pub(crate) fn new(fine: bool, ordered: bool) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set");
        let clock = [now.saturating_sub(NEAR), now + NEAR];
        Self {
            clock,
            fine,
            ordered,
            devices: HashMap::new(),
            inodes: HashMap::new(),
            cookies: HashMap::new(),
            ended: false,
        }
    }

    fn of_clock(&self, stamp: Stamp) -> bool {
        let Stamp::At(seconds, nanos) = stamp else { return false };
        let Ok(seconds) = u64::try_from(seconds) else { return false };
        (self.clock[0]..self.clock[1]).contains(&Duration::new(seconds, nanos))
    }

    fn inode(&mut self, ino: u64) -> &mut Seen {
        let next = self.inodes.len() as u64 + 1;
        self.inodes.entry(ino).or_insert(Seen { number: next, times: [None, None] })
    }

    fn stat(&mut self, stat: &mut Stat) {
        let asked_ino = stat.ino != 0;
        let times = [stat.mtime, stat.ctime];
        for stamp in [&mut stat.atime, &mut stat.mtime, &mut stat.ctime, &mut stat.btime] {
            if self.of_clock(*stamp) {
                *stamp = Stamp::Clock;
            }
        }
        if !asked_ino {
            return;
        }
        let next = self.devices.len() as u64 + 1;
        stat.dev = *self.devices.entry(stat.dev).or_insert(next);
        let fine = self.fine;
        let seen = self.inode(stat.ino);
        stat.ino = seen.number;
        for ((stamp, now), last) in
            [&mut stat.mtime, &mut stat.ctime].into_iter().zip(times).zip(&mut seen.times)
        {
            if now == Stamp::Unknown {
                continue;
            }
            let before = last.replace(now);
            if *stamp == Stamp::Clock && fine && before.is_some() {
                *stamp = if before == Some(now) { Stamp::Same } else { Stamp::Changed };
            }
        }
    }

    fn names(&mut self, names: &mut [Name]) {
        if !self.ordered {
            names.sort();
        }
        for name in names {
            name.ino = self.inode(name.ino).number;
        }
    }

    fn events(&mut self, events: &mut Vec<Event>) {
        for event in events.iter_mut().filter(|event| event.cookie != 0) {
            let next = self.cookies.len() as u32 + 1;
            event.cookie = *self.cookies.entry(event.cookie).or_insert(next);
        }
        for event in events.iter_mut().filter(|event| event.name.starts_with(b"#")) {
            event.name.truncate(1);
        }
        // Whoever walks through a directory that is not in order meets its names in another order, and the files of a process that
        // ends are closed in another order if it had some of them more than once.
        if std::mem::take(&mut self.ended) || !self.ordered {
            events.sort();
            events.dedup();
        }
    }

    /// The normal form of what `call` returned. Outcomes must come in the order of calls.
    pub(crate) fn normal(&mut self, call: &Call, outcome: Outcome) -> Outcome {
        self.ended |= matches!(call, Call::Fork { .. });
        match outcome {
            Outcome::Stat(mut stat) => {
                self.stat(&mut stat);
                Outcome::Stat(stat)
            }
            Outcome::Names { mut names, resumes } => {
                self.names(&mut names);
                Outcome::Names { names, resumes }
            }
            Outcome::Lock(mut lock) => {
                lock.pid = lock.pid.signum();
                Outcome::Lock(lock)
            }
            Outcome::Bytes(bytes)
                if matches!(call, Call::Listxattr { .. } | Call::Flistxattr { .. }) =>
            {
                let mut names: Vec<&[u8]> = bytes.split_inclusive(|&b| b == 0).collect();
                names.sort_unstable();
                Outcome::Bytes(names.concat())
            }
            Outcome::Events(mut events) => {
                self.events(&mut events);
                Outcome::Events(events)
            }
            Outcome::Tree(mut nodes) => {
                for node in &mut nodes {
                    self.stat(&mut node.stat);
                    if let Ok(Body::Names(names)) = &mut node.body {
                        self.names(names);
                    }
                }
                Outcome::Tree(nodes)
            }
            Outcome::Fds(mut all) => {
                for descriptor in &mut all {
                    if let Ok(stat) = &mut descriptor.stat {
                        self.stat(stat);
                    }
                }
                Outcome::Fds(all)
            }
            Outcome::Failed(_)
            | Outcome::Done(_)
            | Outcome::Bytes(_)
            | Outcome::Statfs(_)
            | Outcome::Swept(_) => outcome,
        }
    }
}
