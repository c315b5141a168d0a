//! An inode's attributes, read as of one moment and without writing.

use super::{Inode, InodeFlags, InodeGuard};
use crate::abi::Timespec;
use quietline_platform::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Four times, in three words of eight bytes for each two.
#[derive(Debug)]
pub(super) struct Times {
    atime: AtomicI64,
    mtime: AtomicI64,
    ctime: AtomicI64,
    btime: AtomicI64,
    atime_nsec: AtomicU32,
    mtime_nsec: AtomicU32,
    ctime_nsec: AtomicU32,
    btime_nsec: AtomicU32,
}

/// What `stat` tells of an inode, as of one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The number.
    pub ino: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device of a device node.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timespec,
    /// Last change of the content.
    pub mtime: Timespec,
    /// Last change.
    pub ctime: Timespec,
    /// Birth.
    pub btime: Timespec,
}

/// What shall change of an inode's attributes, all at one moment; none: stays.
#[derive(Debug, Clone, Copy, Default)]
pub struct Changes {
    /// Permissions; and the type, which must be what it is.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Links.
    pub nlink: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Blocks of 512 bytes.
    pub blocks: Option<u64>,
    /// Last access.
    pub atime: Option<Timespec>,
    /// Last change of the content.
    pub mtime: Option<Timespec>,
    /// Last change.
    pub ctime: Option<Timespec>,
}

#[inline]
fn store(secs: &AtomicI64, nsecs: &AtomicU32, time: Timespec) {
    // Relaxed: the sequence count tells readers what belongs together.
    secs.store(time.tv_sec, Ordering::Relaxed);
    nsecs.store(time.tv_nsec as u32, Ordering::Relaxed);
}

#[inline]
fn load(secs: &AtomicI64, nsecs: &AtomicU32) -> Timespec {
    // Relaxed: as above.
    let nsecs = nsecs.load(Ordering::Relaxed) & !TOLD;
    Timespec { tv_sec: secs.load(Ordering::Relaxed), tv_nsec: nsecs.into() }
}

/// In the nanoseconds of the last change: somebody has been told of it, so the next change must be seen to be later.
const TOLD: u32 = 1 << 31;

impl Times {
    pub(super) fn all(time: Timespec) -> Self {
        let secs = || AtomicI64::new(time.tv_sec);
        let nsecs = || AtomicU32::new(time.tv_nsec as u32);
        Self {
            atime: secs(),
            mtime: secs(),
            ctime: secs(),
            btime: secs(),
            atime_nsec: nsecs(),
            mtime_nsec: nsecs(),
            ctime_nsec: nsecs(),
            btime_nsec: nsecs(),
        }
    }
}

impl Inode {
    /// All attributes as of one moment. Writes nothing; waits while somebody changes them.
    #[inline]
    pub fn attributes(&self) -> Attributes {
        self.snapshot::<true>().0
    }

    /// All attributes as of one moment, the time of birth only if asked for, and whether the time
    /// of the last change has the mark of [`tell`](Self::tell).
    #[inline(always)]
    fn snapshot<const BIRTH: bool>(&self) -> (Attributes, bool) {
        loop {
            let began = self.i_seq.read_begin();
            let times = &self.i_times;
            let ctime_nsec = times.ctime_nsec.load(Ordering::Relaxed);
            // Relaxed, all of them: the sequence count tells whether they belong together.
            let attributes = Attributes {
                ino: self.i_ino,
                mode: self.mode(),
                nlink: self.nlink(),
                uid: self.uid(),
                gid: self.gid(),
                rdev: self.i_rdev,
                size: self.i_size.load(Ordering::Relaxed),
                blocks: self.i_blocks.load(Ordering::Relaxed),
                atime: load(&times.atime, &times.atime_nsec),
                mtime: load(&times.mtime, &times.mtime_nsec),
                ctime: Timespec {
                    tv_sec: times.ctime.load(Ordering::Relaxed),
                    tv_nsec: (ctime_nsec & !TOLD).into(),
                },
                btime: match BIRTH {
                    true => load(&times.btime, &times.btime_nsec),
                    false => Timespec::default(),
                },
            };
            if !self.i_seq.read_retry(began) {
                return (attributes, ctime_nsec & TOLD != 0);
            }
        }
    }

    /// All attributes but the time of birth as of one moment, for a caller that may compare them
    /// with later ones: the next change will have another time. Writes a mark, once after each
    /// change.
    #[inline]
    pub fn tell(&self) -> Attributes {
        loop {
            let (attributes, told) = self.snapshot::<false>();
            if told {
                return attributes;
            }
            self.mark_told();
        }
    }

    #[cold]
    fn mark_told(&self) {
        // Relaxed: a change that comes meanwhile stores a time without the mark, and `tell` begins again.
        self.i_times.ctime_nsec.fetch_or(TOLD, Ordering::Relaxed);
    }

    /// The time of the last change, if somebody has been told of it. For the holder of the lock.
    #[inline]
    pub(crate) fn told_ctime(&self) -> Option<Timespec> {
        // Relaxed: only the lock's holder changes the time.
        let told = self.i_times.ctime_nsec.load(Ordering::Relaxed) & TOLD != 0;
        told.then(|| load(&self.i_times.ctime, &self.i_times.ctime_nsec))
    }

    /// The times of access, of the last change of the content, and of the last change, as of one moment.
    pub fn times(&self) -> [Timespec; 3] {
        loop {
            let began = self.i_seq.read_begin();
            let times = &self.i_times;
            let read = [
                load(&times.atime, &times.atime_nsec),
                load(&times.mtime, &times.mtime_nsec),
                load(&times.ctime, &times.ctime_nsec),
            ];
            if !self.i_seq.read_retry(began) {
                return read;
            }
        }
    }

    /// Changes attributes before anybody else can see the inode.
    pub(crate) fn init(&self, changes: &Changes) {
        self.apply(changes);
    }

    // Most of what may change does not in most calls, which is known where they are made.
    #[inline(always)]
    fn apply(&self, changes: &Changes) {
        let set32 = |word: &AtomicU32, value: Option<u32>| {
            if let Some(value) = value {
                // Relaxed, here and below: see `attributes`.
                word.store(value, Ordering::Relaxed);
            }
        };
        let set64 = |word: &AtomicU64, value: Option<u64>, order| {
            if let Some(value) = value {
                word.store(value, order);
            }
        };
        set32(&self.i_mode, changes.mode);
        if let Some(mode) = changes.mode
            && let privileged = InodeFlags::of_mode(mode)
            && !privileged.is_empty()
        {
            let flags = self.i_flags.load(Ordering::Relaxed);
            self.i_flags.store(flags | privileged.bits(), Ordering::Relaxed);
        }
        set32(&self.i_uid, changes.uid);
        set32(&self.i_gid, changes.gid);
        set32(&self.i_nlink, changes.nlink);
        // ORDERING: pairs with the acquire in `size`: who sees the size sees the bytes.
        set64(&self.i_size, changes.size, Ordering::Release);
        set64(&self.i_blocks, changes.blocks, Ordering::Relaxed);
        let times = &self.i_times;
        if let Some(time) = changes.atime {
            store(&times.atime, &times.atime_nsec, time);
        }
        if let Some(time) = changes.mtime {
            store(&times.mtime, &times.mtime_nsec, time);
        }
        if let Some(time) = changes.ctime {
            store(&times.ctime, &times.ctime_nsec, time);
        }
    }
}

impl InodeGuard<'_> {
    /// Changes attributes; readers see all of it or nothing. Plain stores to the inode's lines.
    #[inline(always)]
    pub fn change(&mut self, changes: &Changes) {
        let inode = self.inode();
        let _writing = inode.i_seq.write();
        inode.apply(changes);
    }

    /// Sets and clears flags.
    pub fn set_flags(&mut self, set: InodeFlags, clear: InodeFlags) {
        let inode = self.inode();
        // Relaxed: under the lock; readers want a word.
        let flags = inode.i_flags.load(Ordering::Relaxed);
        inode.i_flags.store((flags & !clear.bits()) | set.bits(), Ordering::Relaxed);
    }
}
