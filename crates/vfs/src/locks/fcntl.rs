//! `fcntl`'s commands for locks and leases, with the checks in Linux's order.

use super::{FileLocks, LockKind, LockOwner, LockRange, LockWaits};
use crate::FileMode;
use rustix::io::Errno;

/// `fcntl`: which record lock is in the way.
pub const F_GETLK: i32 = 5;
/// `fcntl`: take or give up a record lock of the process.
pub const F_SETLK: i32 = 6;
/// `fcntl`: as [`F_SETLK`], and wait.
pub const F_SETLKW: i32 = 7;
/// `fcntl`: as [`F_GETLK`], for a lock of the open file.
pub const F_OFD_GETLK: i32 = 36;
/// `fcntl`: take or give up a record lock of the open file.
pub const F_OFD_SETLK: i32 = 37;
/// `fcntl`: as [`F_OFD_SETLK`], and wait.
pub const F_OFD_SETLKW: i32 = 38;
/// `fcntl`: ask for a lease.
pub const F_SETLEASE: i32 = 1024;
/// `fcntl`: which lease is held.
pub const F_GETLEASE: i32 = 1025;
/// A lock for reading.
pub const F_RDLCK: i16 = 0;
/// A lock for writing.
pub const F_WRLCK: i16 = 1;
/// No lock.
pub const F_UNLCK: i16 = 2;

/// `struct flock` (x86_64).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flock {
    /// [`F_RDLCK`], [`F_WRLCK`] or [`F_UNLCK`].
    pub l_type: i16,
    /// From where `l_start` counts: 0 the file's beginning, 1 the position, 2 the end.
    pub l_whence: i16,
    /// The first byte, or with a negative `l_len` the one behind the last.
    pub l_start: i64,
    /// How many bytes; 0 for all there will ever be.
    pub l_len: i64,
    /// Whose lock is in the way; -1 if an open file's. 0 when an open file's lock is asked for.
    pub l_pid: i32,
}

/// Who calls, and by which open file.
#[derive(Debug, Clone, Copy)]
pub struct LockUser {
    /// The process.
    pub process: i32,
    /// The open file, by a number that no other one has.
    pub file: u64,
    /// What it is open for.
    pub mode: FileMode,
    /// Its position.
    pub position: i64,
    /// The file's size.
    pub size: i64,
}

fn kind(l_type: i16) -> Result<Option<LockKind>, Errno> {
    match l_type {
        F_RDLCK => Ok(Some(LockKind::Read)),
        F_WRLCK => Ok(Some(LockKind::Write)),
        F_UNLCK => Ok(None),
        _ => Err(Errno::INVAL),
    }
}

fn range(flock: &Flock, user: &LockUser) -> Result<LockRange, Errno> {
    let base = match flock.l_whence {
        0 => 0,
        1 => user.position,
        2 => user.size,
        _ => return Err(Errno::INVAL),
    };
    LockRange::new(base, flock.l_start, flock.l_len)
}

impl FileLocks {
    /// `fcntl` with one of the six commands for record locks.
    ///
    /// # Errors
    /// `EINVAL` for a command, a kind or a place that is unknown, a negative start, or an `l_pid` with an open file's lock;
    /// `EOVERFLOW`; `EBADF` when the file is not open for what the lock is for; those of [`set`](Self::set).
    pub fn fcntl(
        &self,
        waits: &LockWaits,
        cmd: i32,
        flock: &mut Flock,
        user: &LockUser,
    ) -> Result<(), Errno> {
        let by_file = matches!(cmd, F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW);
        let owner =
            if by_file { LockOwner::File(user.file) } else { LockOwner::Process(user.process) };
        let foreign_pid = by_file && flock.l_pid != 0;
        match cmd {
            F_GETLK | F_OFD_GETLK => {
                if !by_file && !matches!(flock.l_type, F_RDLCK | F_WRLCK) {
                    return Err(Errno::INVAL);
                }
                let range = range(flock, user)?;
                let kind = kind(flock.l_type)?;
                if foreign_pid {
                    return Err(Errno::INVAL);
                }
                *flock = match self.get(owner, kind, range) {
                    None => Flock { l_type: F_UNLCK, ..*flock },
                    Some(lock) => Flock {
                        l_type: if lock.kind == LockKind::Read { F_RDLCK } else { F_WRLCK },
                        l_whence: 0,
                        l_start: lock.range.start,
                        l_len: lock.range.l_len(),
                        l_pid: if let LockOwner::Process(pid) = lock.owner { pid } else { -1 },
                    },
                };
                Ok(())
            }
            F_SETLK | F_SETLKW | F_OFD_SETLK | F_OFD_SETLKW => {
                let range = range(flock, user)?;
                let kind = kind(flock.l_type)?;
                let needs = match kind {
                    Some(LockKind::Read) => FileMode::READ,
                    Some(LockKind::Write) => FileMode::WRITE,
                    None => FileMode::empty(),
                };
                if !user.mode.contains(needs) {
                    return Err(Errno::BADF);
                }
                if foreign_pid {
                    return Err(Errno::INVAL);
                }
                self.set(waits, owner, kind, range, matches!(cmd, F_SETLKW | F_OFD_SETLKW))
            }
            _ => Err(Errno::INVAL),
        }
    }
}

/// `F_SETLEASE`. quietline has no leases, and answers as Linux does for a file that cannot have one. (On the host's
/// tmpfs a read lease is granted to an `O_RDONLY` file that nobody has open for writing, and others get `EAGAIN`.)
///
/// # Errors
/// Always `EINVAL`.
pub fn set_lease() -> Result<(), Errno> {
    Err(Errno::INVAL)
}

/// `F_GETLEASE`: none.
pub fn get_lease() -> i32 {
    F_UNLCK.into()
}
