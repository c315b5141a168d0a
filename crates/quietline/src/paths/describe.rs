//! Asking about files.

use super::how;
use crate::abi::{
    AT_EACCESS, AT_EMPTY_PATH, AT_FDCWD, AT_NO_AUTOMOUNT, AT_STATX_SYNC_TYPE, AT_SYMLINK_NOFOLLOW,
    F_OK, R_OK, STATX__RESERVED, Stat, StatFs, Statx, W_OK, X_OK,
};
use crate::{Errno, Process};
use core::cell::RefCell;
use quietline_vfs::namei::{self, stat_of, stat_of_object, statx_of, statx_of_object};
use quietline_vfs::permission::Mask;

/// The flags of `fstatat` and `statx`.
const FLAGS: i32 = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;

impl Process {
    /// Describes the file at a path. Writes no shared line.
    ///
    /// # Errors
    /// As `stat(2)`.
    #[inline]
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Stat, Errno> {
        self.fstatat(AT_FDCWD, path, 0)
    }

    /// Describes the file at a path, or the symbolic link that is there.
    ///
    /// # Errors
    /// As `lstat(2)`.
    #[inline]
    pub fn lstat(&self, path: impl AsRef<[u8]>) -> Result<Stat, Errno> {
        self.fstatat(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW)
    }

    /// Describes the file that a descriptor is open on. Writes no shared line.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn fstat(&self, fd: i32) -> Result<Stat, Errno> {
        let section = self.inner().vfs.read();
        let file = self.table.look(fd, &section)?;
        if let Some(inode) = file.inode() {
            return Ok(stat_of(inode));
        }
        drop(section);
        self.stat_pseudo(fd)
    }

    #[cold]
    fn stat_pseudo(&self, fd: i32) -> Result<Stat, Errno> {
        let file = self.file(fd)?;
        Ok(stat_of_object(&file))
    }

    /// [`stat`](Self::stat) from a directory, with `AT_SYMLINK_NOFOLLOW`, `AT_NO_AUTOMOUNT`, `AT_EMPTY_PATH`.
    ///
    /// # Errors
    /// As `fstatat(2)`.
    #[inline]
    pub fn fstatat(&self, dirfd: i32, path: impl AsRef<[u8]>, flags: i32) -> Result<Stat, Errno> {
        let path = path.as_ref();
        // Before the flags are looked at, as on Linux.
        if path.is_empty() && flags & AT_EMPTY_PATH != 0 && dirfd >= 0 {
            return self.fstat(dirfd);
        }
        if flags & !FLAGS != 0 {
            return Err(Errno::INVAL);
        }
        let how = how(flags, flags & AT_SYMLINK_NOFOLLOW == 0);
        self.look_inside(dirfd, path, flags, how, |found| stat_of(found.inode()))
    }

    /// Describes the file at a path at length. All that is known is told, whatever `mask` asks for.
    ///
    /// # Errors
    /// As `statx(2)`.
    pub fn statx(
        &self,
        dirfd: i32,
        path: impl AsRef<[u8]>,
        flags: i32,
        mask: u32,
    ) -> Result<Statx, Errno> {
        if mask & STATX__RESERVED != 0 || flags & AT_STATX_SYNC_TYPE == AT_STATX_SYNC_TYPE {
            return Err(Errno::INVAL);
        }
        // Of a descriptor alone Linux does not look at the other flags.
        let path = path.as_ref();
        let alone = path.is_empty() && flags & AT_EMPTY_PATH != 0 && dirfd >= 0;
        if flags & !FLAGS != 0 && !alone {
            return Err(Errno::INVAL);
        }
        if let Some(file) = self.object_at(dirfd, path, flags)? {
            return Ok(statx_of_object(&file));
        }
        let how = how(flags, flags & AT_SYMLINK_NOFOLLOW == 0);
        self.look_inside(dirfd, path, flags, how, |found| statx_of(found.mount(), found.dentry()))?
    }

    /// Describes the filesystem that a path is in.
    ///
    /// # Errors
    /// As `statfs(2)`.
    pub fn statfs(&self, path: impl AsRef<[u8]>) -> Result<StatFs, Errno> {
        self.call_at(AT_FDCWD, path.as_ref(), 0, namei::statfs)
    }

    /// Describes the filesystem that a descriptor is open in.
    ///
    /// # Errors
    /// `EBADF`, and those of an embedder's file system.
    pub fn fstatfs(&self, fd: i32) -> Result<StatFs, Errno> {
        let file = &self.file(fd)?;
        self.call_again(|c| namei::fstatfs(c, file))
    }

    /// Whether the process may do this with the file at a path: `F_OK`, or `R_OK`, `W_OK`, `X_OK`. By the real ids.
    ///
    /// # Errors
    /// As `access(2)`.
    pub fn access(&self, path: impl AsRef<[u8]>, mode: i32) -> Result<(), Errno> {
        self.faccessat2(AT_FDCWD, path, mode, 0)
    }

    /// [`access`](Self::access) from a directory, with `AT_EACCESS`, `AT_SYMLINK_NOFOLLOW`, `AT_EMPTY_PATH`.
    ///
    /// # Errors
    /// As `faccessat2(2)`.
    pub fn faccessat2(
        &self,
        dirfd: i32,
        path: impl AsRef<[u8]>,
        mode: i32,
        flags: i32,
    ) -> Result<(), Errno> {
        if mode & !(F_OK | R_OK | W_OK | X_OK) != 0
            || flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0
        {
            return Err(Errno::INVAL);
        }
        let mask = Mask::from_bits_truncate(mode as u32);
        let effective = flags & AT_EACCESS != 0;
        self.call_at_or_on(
            dirfd,
            path.as_ref(),
            flags,
            |c, file| namei::access_object(c, file, mask, effective),
            |c, path, how| namei::access(c, path, how, mask, effective),
        )
    }

    /// Where the symbolic link at a path leads: how many bytes of that are in the buffer now.
    ///
    /// # Errors
    /// As `readlink(2)`.
    pub fn readlink(&self, path: impl AsRef<[u8]>, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.readlinkat(AT_FDCWD, path, buffer)
    }

    /// [`readlink`](Self::readlink) from a directory; the empty path stands for a link that is open itself.
    ///
    /// # Errors
    /// As `readlinkat(2)`.
    pub fn readlinkat(
        &self,
        dirfd: i32,
        path: impl AsRef<[u8]>,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        if buffer.is_empty() {
            return Err(Errno::INVAL);
        }
        let path = path.as_ref();
        if self.object_at(dirfd, path, AT_EMPTY_PATH)?.is_some() {
            return Err(Errno::NOENT);
        }
        let buffer = RefCell::new(buffer);
        self.call_at(dirfd, path, AT_EMPTY_PATH, |c, path| {
            namei::readlink(c, path, how(AT_EMPTY_PATH, false), &mut buffer.borrow_mut())
        })
    }
}
