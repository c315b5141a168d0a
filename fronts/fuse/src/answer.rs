//! What quietline says, in FUSE's words.

use fuser::TimeOrNow;
use fuser::{FileAttr, FileType, INodeNo};
use quietline::Errno;
use quietline::abi::{
    DT_BLK, DT_CHR, DT_DIR, DT_FIFO, DT_LNK, DT_SOCK, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK,
    S_IFMT, S_IFSOCK, Stat, Timespec, UTIME_NOW, UTIME_OMIT,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// For how long the host may believe an answer: nobody else changes the files.
pub(crate) const LONG: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The name of an error on the wire.
pub(crate) fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

/// Node numbers are the numbers of the inodes, but that FUSE wants 1 for the root: the inode that has 1 gets the root's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    /// The number of the root's inode.
    pub(crate) root: u64,
}

impl Numbers {
    pub(crate) fn node(self, ino: u64) -> u64 {
        match ino {
            _ if ino == self.root => 1,
            1 => self.root,
            _ => ino,
        }
    }

    pub(crate) fn attr(self, stat: &Stat) -> FileAttr {
        FileAttr {
            ino: INodeNo(self.node(stat.st_ino)),
            size: stat.st_size as u64,
            blocks: stat.st_blocks,
            atime: moment(stat.st_atim),
            mtime: moment(stat.st_mtim),
            ctime: moment(stat.st_ctim),
            crtime: UNIX_EPOCH,
            kind: kind(stat.st_mode),
            perm: (stat.st_mode & 0o7777) as u16,
            nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev: stat.st_rdev as u32,
            blksize: stat.st_blksize,
            flags: 0,
        }
    }
}

fn kind(mode: u32) -> FileType {
    match mode & S_IFMT {
        S_IFDIR => FileType::Directory,
        S_IFLNK => FileType::Symlink,
        S_IFIFO => FileType::NamedPipe,
        S_IFSOCK => FileType::Socket,
        S_IFCHR => FileType::CharDevice,
        S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// A type of file, as a directory tells it.
pub(crate) fn entry_kind(kind: u8) -> FileType {
    match kind {
        DT_DIR => FileType::Directory,
        DT_LNK => FileType::Symlink,
        DT_FIFO => FileType::NamedPipe,
        DT_SOCK => FileType::Socket,
        DT_CHR => FileType::CharDevice,
        DT_BLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn moment(time: Timespec) -> SystemTime {
    let nanos = Duration::from_nanos(time.tv_nsec as u64);
    let seconds = Duration::from_secs(time.tv_sec.unsigned_abs());
    let whole = if time.tv_sec < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// A time that is to be set, or left.
pub(crate) fn set_time(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(UNIX_EPOCH) {
            Ok(since) => {
                Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() }
            }
            Err(before) => {
                let before = before.duration();
                let (seconds, nanos) = (before.as_secs() as i64, i64::from(before.subsec_nanos()));
                if nanos == 0 {
                    Timespec { tv_sec: -seconds, tv_nsec: 0 }
                } else {
                    Timespec { tv_sec: -seconds - 1, tv_nsec: 1_000_000_000 - nanos }
                }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_both_ways() {
        for (tv_sec, tv_nsec) in
            [(0, 0), (1, 999_999_999), (-1, 1), (-5, 0), (-3, 999_999_999), (1 << 33, 7)]
        {
            let time = Timespec { tv_sec, tv_nsec };
            assert_eq!(set_time(Some(TimeOrNow::SpecificTime(moment(time)))), time);
        }
    }

    #[test]
    fn the_root_is_one_and_no_number_is_given_twice() {
        let numbers = Numbers { root: 7 };
        assert_eq!([numbers.node(7), numbers.node(1), numbers.node(2)], [1, 7, 2]);
        let numbers = Numbers { root: 1 };
        assert_eq!([numbers.node(1), numbers.node(2)], [1, 2]);
    }
}
