//! Sides with a fault planted: what the tester must find.

use crate::posix::call::{Call, Step};
use crate::posix::outcome::{Body, Outcome, Stamp};
use crate::posix::sys::{Setting, Sys};

/// Changes an outcome. Says whether it did.
type Spoil = fn(&Call, &mut Outcome) -> bool;

/// A side that lies.
#[derive(Debug)]
pub(crate) struct Faulty<S> {
    side: S,
    spoil: Spoil,
    /// Lies told.
    pub(crate) spoilt: u64,
}

impl<S> Faulty<S> {
    pub(crate) fn new(side: S, spoil: Spoil) -> Self {
        Self { side, spoil, spoilt: 0 }
    }
}

impl<S: Sys> Sys for Faulty<S> {
    fn name(&self) -> String {
        "faulty".to_owned()
    }

    fn begin(&mut self, setting: Setting) {
        self.side.begin(setting);
    }

    fn go(&mut self, steps: &[Step]) -> Vec<Outcome> {
        let mut outcomes = self.side.go(steps);
        for (step, outcome) in steps.iter().zip(&mut outcomes) {
            self.spoilt += u64::from((self.spoil)(&step.call, outcome));
        }
        outcomes
    }

    fn end(&mut self) {
        self.side.end();
    }

    fn fine_times(&self) -> bool {
        self.side.fine_times()
    }

    fn newest_first(&self) -> bool {
        self.side.newest_first()
    }
}

/// Replaces one errno of one call by another.
fn errno(outcome: &mut Outcome, from: i32, to: i32) -> bool {
    let fits = *outcome == Outcome::Failed(from);
    if fits {
        *outcome = Outcome::Failed(to);
    }
    fits
}

/// Changes attributes.
fn stat(outcome: &mut Outcome, change: impl FnOnce(&mut crate::posix::outcome::Stat)) -> bool {
    let Outcome::Stat(stat) = outcome else { return false };
    let before = stat.clone();
    change(stat);
    *stat != before
}

/// Faults by name: each is small, and one that an implementation could have.
pub(crate) const FAULTS: &[(&str, Spoil)] = &[
    ("rmdir of a full directory says EEXIST", |call, outcome| {
        matches!(call, Call::Unlinkat { .. }) && errno(outcome, libc::ENOTEMPTY, libc::EEXIST)
    }),
    ("rename of a directory into itself says EBUSY", |call, outcome| {
        let Call::Renameat2 { flags, .. } = call else { return false };
        flags.0 == 0 && errno(outcome, libc::EINVAL, libc::EBUSY)
    }),
    ("unlink of a directory says EPERM", |call, outcome| {
        matches!(call, Call::Unlinkat { .. }) && errno(outcome, libc::EISDIR, libc::EPERM)
    }),
    ("a loop of symlinks is not found", |call, outcome| {
        matches!(call, Call::Openat { .. }) && errno(outcome, libc::ELOOP, libc::ENOENT)
    }),
    ("chown without the right says EACCES", |call, outcome| {
        matches!(call, Call::Fchownat { .. }) && errno(outcome, libc::EPERM, libc::EACCES)
    }),
    ("a path with a name too long says ENOENT", |call, outcome| {
        matches!(call, Call::Mkdirat { .. }) && errno(outcome, libc::ENAMETOOLONG, libc::ENOENT)
    }),
    ("mkdir over a symlink that leads nowhere succeeds", |call, outcome| {
        let fits =
            matches!(call, Call::Mkdirat { .. }) && *outcome == Outcome::Failed(libc::EEXIST);
        if fits {
            *outcome = Outcome::Done(0);
        }
        fits
    }),
    ("a size is one more beyond a page", |_, outcome| {
        stat(outcome, |stat| {
            stat.size += i64::from(stat.size > 4096 && stat.mode & libc::S_IFMT == libc::S_IFREG)
        })
    }),
    ("blocks of a sparse file are its size", |_, outcome| {
        stat(outcome, |stat| {
            if stat.mode & libc::S_IFMT == libc::S_IFREG && stat.blocks > 0 {
                stat.blocks = (stat.size + 511) / 512;
            }
        })
    }),
    ("links of a directory are not counted", |_, outcome| {
        stat(outcome, |stat| {
            if stat.mode & libc::S_IFMT == libc::S_IFDIR && stat.nlink > 2 {
                stat.nlink = 2;
            }
        })
    }),
    ("the set-group bit stays where it should go", |_, outcome| {
        stat(outcome, |stat| {
            if stat.mode & libc::S_IFMT == libc::S_IFREG && stat.mode & 0o111 == 0o111 {
                stat.mode |= libc::S_ISGID;
            }
        })
    }),
    ("a time that was set is cut to microseconds", |_, outcome| {
        stat(outcome, |stat| {
            if let Stamp::At(_, nanos) = &mut stat.mtime
                && *nanos != 999_999_999
            {
                *nanos -= *nanos % 1000;
            }
        })
    }),
    ("no change moves the time of change", |_, outcome| {
        stat(outcome, |stat| {
            if stat.ctime != Stamp::Unknown {
                stat.ctime = stat.btime;
            }
        })
    }),
    ("inode numbers are small, and so come again", |_, outcome| {
        stat(outcome, |stat| stat.ino %= 3)
    }),
    ("the last byte of a read across a page is wrong", |call, outcome| match (call, outcome) {
        (Call::Pread { .. } | Call::Read { .. }, Outcome::Bytes(bytes)) if bytes.len() > 4096 => {
            *bytes.last_mut().expect("not empty") ^= 1;
            true
        }
        _ => false,
    }),
    ("holes are not known", |_, outcome| {
        let Outcome::Tree(nodes) = outcome else { return false };
        let mut changed = false;
        for node in nodes {
            if let Ok(Body::Data(pieces)) = &mut node.body
                && pieces.len() > 1
            {
                pieces.truncate(1);
                changed = true;
            }
        }
        changed
    }),
    ("a directory forgets its last name", |_, outcome| match outcome {
        Outcome::Names { names, .. } if names.len() > 3 => names.pop().is_some(),
        _ => false,
    }),
    ("a directory lists the oldest name first", |_, outcome| match outcome {
        Outcome::Names { names, .. } if names.len() > 4 => {
            names[2..].reverse();
            true
        }
        _ => false,
    }),
    ("going on from a cookie starts anew", |_, outcome| match outcome {
        Outcome::Names { resumes, names } if names.len() > 4 => {
            *resumes = false;
            true
        }
        _ => false,
    }),
    ("a directory swept shows a name twice", |_, outcome| match outcome {
        Outcome::Swept(names) if names.len() > 1 => {
            names.push(names[0].clone());
            true
        }
        _ => false,
    }),
    ("a descriptor is not the lowest", |call, outcome| match (call, outcome) {
        (Call::Dup { .. }, Outcome::Done(fd)) => {
            *fd += 1;
            true
        }
        _ => false,
    }),
    ("the status flags of an open file lack O_APPEND", |_, outcome| {
        let Outcome::Fds(all) = outcome else { return false };
        let append = i64::from(libc::O_APPEND);
        let fits = all.iter().any(|descriptor| descriptor.status & append != 0);
        all.iter_mut().for_each(|descriptor| descriptor.status &= !append);
        fits
    }),
    ("the position of an open file is lost", |_, outcome| {
        let Outcome::Fds(all) = outcome else { return false };
        let mut changed = false;
        for position in all.iter_mut().filter_map(|descriptor| descriptor.position.as_mut().ok()) {
            changed |= std::mem::replace(position, 0) != 0;
        }
        changed
    }),
    ("a value's length is not told", |call, outcome| {
        matches!(call, Call::Fgetxattr { .. }) && errno(outcome, libc::ERANGE, libc::E2BIG)
    }),
    ("a lock of another is not seen", |call, outcome| match (call, outcome) {
        (Call::Setlk { .. }, outcome @ Outcome::Failed(libc::EAGAIN)) => {
            *outcome = Outcome::Done(0);
            true
        }
        _ => false,
    }),
    ("a full filesystem has one page more", |call, outcome| match (call, outcome) {
        (Call::Statfs { .. }, Outcome::Statfs(statfs)) if statfs.bfree == 0 => {
            statfs.bfree += 1;
            true
        }
        _ => false,
    }),
    ("the last event is lost", |_, outcome| match outcome {
        Outcome::Events(events) if events.len() > 2 => events.pop().is_some(),
        _ => false,
    }),
    ("the halves of a rename do not belong together", |_, outcome| match outcome {
        Outcome::Events(events) => {
            let half = events.iter_mut().rfind(|event| event.mask & libc::IN_MOVED_TO != 0);
            half.is_some_and(|event| {
                event.cookie += 1;
                true
            })
        }
        _ => false,
    }),
    ("the umask is not given back", |call, outcome| match (call, outcome) {
        (Call::Umask { .. }, Outcome::Done(mask)) if *mask > 0o777 || *mask & 0o700 != 0 => {
            *mask = 0;
            true
        }
        _ => false,
    }),
];
