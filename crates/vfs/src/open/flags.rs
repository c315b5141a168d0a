//! What the flags of `open` ask for.

use crate::abi::{
    O_ACCMODE, O_APPEND, O_ASYNC, O_CLOEXEC, O_CREAT, O_DIRECT, O_DIRECTORY, O_DSYNC, O_EXCL,
    O_LARGEFILE, O_NOATIME, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_SYNC,
    O_TMPFILE, O_TRUNC, O_WRONLY, RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT,
    RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
};
use crate::file::FileMode;
use crate::permission::Mask;
use rustix::io::Errno;

/// What `openat2` takes (`struct open_how`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// `O_*`.
    pub flags: u64,
    /// Permissions of a file that is made.
    pub mode: u64,
    /// `RESOLVE_*`.
    pub resolve: u64,
}

/// All bits of the flags that mean something.
const VALID: i32 = O_ACCMODE
    | O_CREAT
    | O_EXCL
    | O_NOCTTY
    | O_TRUNC
    | O_APPEND
    | O_NONBLOCK
    | O_DSYNC
    | O_SYNC
    | O_ASYNC
    | O_DIRECT
    | O_LARGEFILE
    | O_DIRECTORY
    | O_NOFOLLOW
    | O_NOATIME
    | O_CLOEXEC
    | O_PATH
    | O_TMPFILE;
/// Those that go with `O_PATH`.
const WITH_PATH: i32 = O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC;
/// `O_TMPFILE` without `O_DIRECTORY`.
pub(super) const TMPFILE: i32 = O_TMPFILE & !O_DIRECTORY;
const RESOLVE: u64 = RESOLVE_NO_XDEV
    | RESOLVE_NO_MAGICLINKS
    | RESOLVE_NO_SYMLINKS
    | RESOLVE_BENEATH
    | RESOLVE_IN_ROOT
    | RESOLVE_CACHED;

/// An `open` whose flags make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The flags.
    pub flags: i32,
    /// Permissions of a file that is made, before the umask.
    pub mode: u32,
    /// `RESOLVE_*`.
    pub resolve: u64,
}

impl Opening {
    /// As `open` takes it: what means nothing is ignored.
    ///
    /// # Errors
    /// `EINVAL` for flags that contradict each other.
    #[inline]
    pub fn new(flags: i32, mode: u32) -> Result<Self, Errno> {
        let mut flags = flags & VALID | O_LARGEFILE;
        if flags & O_PATH != 0 {
            flags &= WITH_PATH;
        }
        let mode = if flags & (O_CREAT | TMPFILE) != 0 { mode & 0o7777 } else { 0 };
        Self { flags, mode, resolve: 0 }.checked()
    }

    /// As `openat2` takes it: what means nothing is an error.
    ///
    /// # Errors
    /// `EINVAL`; `EAGAIN` for what cannot be done without waiting.
    pub fn of(how: OpenHow) -> Result<Self, Errno> {
        let flags = i32::try_from(how.flags).map_err(|_| Errno::INVAL)?;
        let both = RESOLVE_BENEATH | RESOLVE_IN_ROOT;
        if flags & !VALID != 0 || how.resolve & !RESOLVE != 0 || how.resolve & both == both {
            return Err(Errno::INVAL);
        }
        let makes = flags & (O_CREAT | TMPFILE) != 0;
        if how.mode & !0o7777 != 0 || (!makes && how.mode != 0) {
            return Err(Errno::INVAL);
        }
        if flags & O_PATH != 0 && flags & !WITH_PATH != 0 {
            return Err(Errno::INVAL);
        }
        let flags = if flags & O_PATH != 0 { flags } else { flags | O_LARGEFILE };
        let opening = Self { flags, mode: how.mode as u32, resolve: how.resolve }.checked()?;
        if how.resolve & RESOLVE_CACHED != 0 && (makes || flags & O_TRUNC != 0) {
            return Err(Errno::AGAIN);
        }
        Ok(opening)
    }

    #[inline]
    fn checked(mut self) -> Result<Self, Errno> {
        if self.has(O_CREAT) && self.has(O_DIRECTORY) {
            return Err(Errno::INVAL);
        }
        if self.has(TMPFILE) && !(self.has(O_DIRECTORY) && self.has(O_ACCMODE)) {
            return Err(Errno::INVAL);
        }
        if self.flags & O_SYNC & !O_DSYNC != 0 {
            self.flags |= O_DSYNC;
        }
        Ok(self)
    }

    /// Whether this flag is set.
    #[inline]
    pub fn has(self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    /// Whether it is for a file without a name.
    pub fn is_tmpfile(self) -> bool {
        self.has(TMPFILE)
    }

    /// Whether the last name is followed, if it is a symbolic link.
    #[inline]
    pub fn follows(self) -> bool {
        !self.has(O_NOFOLLOW) && self.flags & (O_CREAT | O_EXCL) != O_CREAT | O_EXCL
    }

    /// What one must be permitted to do to the file.
    #[inline]
    pub fn access(self) -> Mask {
        let by_mode = match self.flags & O_ACCMODE {
            O_RDONLY => Mask::READ,
            O_WRONLY => Mask::WRITE,
            _ => Mask::READ | Mask::WRITE,
        };
        if self.has(O_TRUNC) { by_mode | Mask::WRITE } else { by_mode }
    }

    /// What may be done with the open file. With the fourth access mode: neither reading nor writing.
    #[inline]
    pub fn file_mode(self) -> FileMode {
        if self.has(O_PATH) {
            return FileMode::PATH;
        }
        match self.flags & O_ACCMODE {
            O_RDONLY => FileMode::READ,
            O_WRONLY => FileMode::WRITE,
            O_RDWR => FileMode::READ.union(FileMode::WRITE),
            _ => FileMode::empty(),
        }
    }

    /// The flags that stay with the open file.
    #[inline]
    pub fn status(self) -> i32 {
        self.flags & !(O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_CLOEXEC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(flags: i32) -> Result<Opening, Errno> {
        Opening::new(flags, 0o644)
    }

    fn how(flags: i32, mode: u64, resolve: u64) -> Result<Opening, Errno> {
        Opening::of(OpenHow { flags: flags as u64, mode, resolve })
    }

    #[test]
    fn contradictions() {
        assert_eq!(open(O_CREAT | O_DIRECTORY), Err(Errno::INVAL));
        assert_eq!(open(O_TMPFILE), Err(Errno::INVAL), "nothing could be written");
        assert_eq!(open(TMPFILE | O_RDWR), Err(Errno::INVAL));
        assert!(open(O_TMPFILE | O_RDWR).unwrap().is_tmpfile());
        assert_eq!(how(O_CREAT, 0o10000, 0), Err(Errno::INVAL));
        assert_eq!(how(O_RDWR, 0o600, 0), Err(Errno::INVAL), "a mode, and nothing is made");
        assert_eq!(how(O_PATH | O_RDWR, 0, 0), Err(Errno::INVAL));
        assert_eq!(how(0, 0, RESOLVE_BENEATH | RESOLVE_IN_ROOT), Err(Errno::INVAL));
        assert_eq!(how(0, 0, 0x40), Err(Errno::INVAL));
        assert_eq!(how(1 << 30, 0, 0), Err(Errno::INVAL));
        assert_eq!(how(O_CREAT, 0o600, RESOLVE_CACHED), Err(Errno::AGAIN));
    }

    #[test]
    fn what_open_ignores() {
        assert_eq!(open(1 << 30).unwrap().flags, O_LARGEFILE);
        assert_eq!(open(O_RDWR).unwrap().mode, 0);
        let path = open(O_PATH | O_RDWR | O_TRUNC | O_NOFOLLOW).unwrap();
        assert_eq!((path.flags, path.file_mode()), (O_PATH | O_NOFOLLOW, FileMode::PATH));
    }

    #[test]
    fn modes_and_rights() {
        assert_eq!(open(O_RDONLY | O_TRUNC).unwrap().access(), Mask::READ | Mask::WRITE);
        assert_eq!(open(O_WRONLY).unwrap().access(), Mask::WRITE);
        let odd = open(O_ACCMODE).unwrap();
        assert_eq!((odd.access(), odd.file_mode()), (Mask::READ | Mask::WRITE, FileMode::empty()));
        let made = open(O_CREAT | O_EXCL | O_RDWR | O_APPEND | O_CLOEXEC).unwrap();
        assert_eq!((made.status(), made.follows()), (O_RDWR | O_APPEND | O_LARGEFILE, false));
        assert!(open(O_CREAT).unwrap().follows() && !open(O_NOFOLLOW).unwrap().follows());
        assert_eq!(open(O_SYNC).unwrap().flags & O_SYNC, O_SYNC);
    }
}
