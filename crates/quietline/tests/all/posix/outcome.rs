//! What calls return: first as a side says it, then in the normal form that two sides share (`normal.rs`).

/// What a call returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The error's number.
    Failed(i32),
    /// Success, with a descriptor, a count, a position or nothing.
    Done(i64),
    /// Data that was read: contents, a body, a value, a path.
    Bytes(Vec<u8>),
    Stat(Box<Stat>),
    Statfs(Statfs),
    /// Names of a directory, in its order; and whether going on from the middle gave what came after the middle.
    Names {
        names: Vec<Name>,
        resumes: bool,
    },
    /// What a sweep saw, sorted, and what the removal of each returned.
    Swept(Vec<(Vec<u8>, i32)>),
    Lock(Lock),
    Events(Vec<Event>),
    Tree(Vec<Node>),
    Fds(Vec<Descriptor>),
}

impl Outcome {
    /// Of a call that returns a number.
    pub(crate) fn number(result: Result<i64, i32>) -> Self {
        match result {
            Ok(number) => Outcome::Done(number),
            Err(errno) => Outcome::Failed(errno),
        }
    }

    /// Whether the call succeeded.
    pub(crate) fn is_success(&self) -> bool {
        !matches!(self, Outcome::Failed(_))
    }
}

/// A point in time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamp {
    /// As a side says it; in the normal form, a time that someone set.
    At(i64, u32),
    /// Normal form: the clock's, some time in the run.
    Clock,
    /// Normal form: the clock's, other than when this inode was seen last.
    Changed,
    /// Normal form: as when this inode was seen last.
    Same,
    /// Not asked for.
    Unknown,
}

/// On one line also where structures take many: so that two can be compared line by line.
impl std::fmt::Debug for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stamp::At(seconds, nanos) => write!(f, "At {seconds}.{nanos:09}"),
            Stamp::Clock => f.write_str("Clock"),
            Stamp::Changed => f.write_str("Changed"),
            Stamp::Same => f.write_str("Same"),
            Stamp::Unknown => f.write_str("Unknown"),
        }
    }
}

/// Attributes. Those that a `statx` did not ask for are zero on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Normal form: a number by order of appearance.
    pub(crate) dev: u64,
    /// Normal form: a number by order of appearance.
    pub(crate) ino: u64,
    pub(crate) mode: u32,
    pub(crate) nlink: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Major and minor.
    pub(crate) rdev: (u32, u32),
    pub(crate) size: i64,
    pub(crate) blksize: i64,
    pub(crate) blocks: i64,
    pub(crate) atime: Stamp,
    pub(crate) mtime: Stamp,
    pub(crate) ctime: Stamp,
    pub(crate) btime: Stamp,
}

/// All that `fstatat` gives.
pub(crate) const STATX_BASIC: u32 = libc::STATX_BASIC_STATS;

impl Stat {
    /// Without what `mask` does not ask for. What the side gives beyond it is no promise.
    pub(crate) fn masked(mut self, mask: u32) -> Self {
        let asked = |bit: u32| mask & bit != 0;
        if !asked(libc::STATX_TYPE) {
            self.mode &= !libc::S_IFMT;
            self.rdev = (0, 0);
        }
        if !asked(libc::STATX_MODE) {
            self.mode &= libc::S_IFMT;
        }
        if !asked(libc::STATX_NLINK) {
            self.nlink = 0;
        }
        if !asked(libc::STATX_UID) {
            self.uid = 0;
        }
        if !asked(libc::STATX_GID) {
            self.gid = 0;
        }
        if !asked(libc::STATX_INO) {
            (self.ino, self.dev) = (0, 0);
        }
        if !asked(libc::STATX_SIZE) {
            self.size = 0;
        }
        if !asked(libc::STATX_BLOCKS) {
            self.blocks = 0;
        }
        for (bit, stamp) in [
            (libc::STATX_ATIME, &mut self.atime),
            (libc::STATX_MTIME, &mut self.mtime),
            (libc::STATX_CTIME, &mut self.ctime),
            (libc::STATX_BTIME, &mut self.btime),
        ] {
            if mask & bit == 0 {
                *stamp = Stamp::Unknown;
            }
        }
        self
    }
}

/// Of the filesystem: what does not depend on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Statfs {
    pub(crate) bsize: i64,
    pub(crate) blocks: u64,
    pub(crate) bfree: u64,
    pub(crate) bavail: u64,
    pub(crate) files: u64,
    pub(crate) ffree: u64,
    pub(crate) namelen: i64,
}

/// A name as one read of a directory gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dent {
    pub(crate) name: Vec<u8>,
    pub(crate) ino: u64,
    /// `DT_*`.
    pub(crate) kind: u8,
    /// Where to go on after it.
    pub(crate) next: i64,
}

/// A name of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: u8,
    /// Normal form: as `Stat::ino`.
    pub(crate) ino: u64,
}

/// The lock that stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) ty: i32,
    pub(crate) whence: i32,
    pub(crate) start: i64,
    pub(crate) length: i64,
    /// Normal form: 1 for any process. (The host's side has one process number for all.)
    pub(crate) pid: i32,
}

/// What a watch saw.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event {
    pub(crate) wd: i32,
    pub(crate) mask: u32,
    /// Normal form: a number by order of appearance.
    pub(crate) cookie: u32,
    /// Normal form: of a file that never had a name, no number.
    pub(crate) name: Vec<u8>,
}

/// On one line, by what happened: so that kinds of differences are told apart.
impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const BITS: &[(u32, &str)] = &[
            (libc::IN_ACCESS, "access"),
            (libc::IN_MODIFY, "modify"),
            (libc::IN_ATTRIB, "attrib"),
            (libc::IN_CLOSE_WRITE, "close_write"),
            (libc::IN_CLOSE_NOWRITE, "close_nowrite"),
            (libc::IN_OPEN, "open"),
            (libc::IN_MOVED_FROM, "moved_from"),
            (libc::IN_MOVED_TO, "moved_to"),
            (libc::IN_CREATE, "create"),
            (libc::IN_DELETE, "delete"),
            (libc::IN_DELETE_SELF, "delete_self"),
            (libc::IN_MOVE_SELF, "move_self"),
            (libc::IN_IGNORED, "ignored"),
            (libc::IN_ISDIR, "isdir"),
        ];
        let named = BITS.iter().filter(|(bit, _)| self.mask & bit != 0);
        let names: Vec<&str> = named.clone().map(|&(_, name)| name).collect();
        let rest = self.mask & !named.fold(0, |all, (bit, _)| all | bit);
        write!(f, "{}: of {}", names.join("|"), self.wd)?;
        if rest != 0 {
            write!(f, ", also {rest:#x}")?;
        }
        if self.cookie != 0 {
            write!(f, ", cookie {}", self.cookie)?;
        }
        if self.name.is_empty() { Ok(()) } else { write!(f, ", \"{}\"", self.name.escape_ascii()) }
    }
}

/// A file of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) path: String,
    pub(crate) stat: Stat,
    /// A symlink's body, a file's data, or why there is none.
    pub(crate) body: Result<Body, i32>,
    /// Names and values.
    pub(crate) xattrs: Vec<(String, String)>,
}

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    Nothing,
    Link(String),
    /// Data between holes: start, end, and a checksum.
    Data(Vec<(i64, i64, u64)>),
    Names(Vec<Name>),
}

/// An open descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) fd: i32,
    pub(crate) fd_flags: i64,
    pub(crate) status: i64,
    /// Or the error's number.
    pub(crate) position: Result<i64, i32>,
    pub(crate) stat: Result<Stat, i32>,
}

/// FNV-1a.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &b| (sum ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// The bytes that a write with `fill` writes: a page of zeroes is not among them, and no two pages are alike.
pub(crate) fn pattern(length: usize, fill: u32) -> Vec<u8> {
    (0..length)
        .map(|at| {
            ((at as u32 / 16) ^ at as u32).wrapping_add(fill).wrapping_mul(0x9e37_79b1) as u8 | 1
        })
        .collect()
}
