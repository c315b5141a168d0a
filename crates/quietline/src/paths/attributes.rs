//! Changing modes, owners, times and lengths.

use crate::abi::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, Timespec, UTIME_OMIT};
use crate::{Errno, FileHandle, Process};
use quietline_vfs::PathRef;
use quietline_vfs::namei::{self, Caller};

impl Process {
    /// Changes permissions.
    ///
    /// # Errors
    /// As `chmod(2)`.
    pub fn chmod(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<(), Errno> {
        self.fchmodat2(AT_FDCWD, path, mode, 0)
    }

    /// Changes the permissions of an open file.
    ///
    /// # Errors
    /// As `fchmod(2)`.
    pub fn fchmod(&self, fd: i32, mode: u32) -> Result<(), Errno> {
        self.call_on(fd, |c, file| namei::fchmod(c, file, mode))
    }

    /// [`chmod`](Self::chmod) from a directory, with `AT_SYMLINK_NOFOLLOW`, `AT_EMPTY_PATH`.
    ///
    /// # Errors
    /// As `fchmodat2(2)`.
    pub fn fchmodat2(
        &self,
        dirfd: i32,
        path: impl AsRef<[u8]>,
        mode: u32,
        flags: i32,
    ) -> Result<(), Errno> {
        self.change_at(
            dirfd,
            path.as_ref(),
            flags,
            |c, file| namei::fchmod(c, file, mode),
            |c, place| namei::chmod(c, place, mode),
        )
    }

    /// Changes owner and group; -1 keeps one.
    ///
    /// # Errors
    /// As `chown(2)`.
    pub fn chown(&self, path: impl AsRef<[u8]>, uid: u32, gid: u32) -> Result<(), Errno> {
        self.fchownat(AT_FDCWD, path, uid, gid, 0)
    }

    /// [`chown`](Self::chown) of a symbolic link itself.
    ///
    /// # Errors
    /// As `lchown(2)`.
    pub fn lchown(&self, path: impl AsRef<[u8]>, uid: u32, gid: u32) -> Result<(), Errno> {
        self.fchownat(AT_FDCWD, path, uid, gid, AT_SYMLINK_NOFOLLOW)
    }

    /// [`chown`](Self::chown) of an open file.
    ///
    /// # Errors
    /// As `fchown(2)`.
    pub fn fchown(&self, fd: i32, uid: u32, gid: u32) -> Result<(), Errno> {
        self.call_on(fd, |c, file| namei::fchown(c, file, uid, gid))
    }

    /// [`chown`](Self::chown) from a directory, with `AT_SYMLINK_NOFOLLOW`, `AT_EMPTY_PATH`.
    ///
    /// # Errors
    /// As `fchownat(2)`.
    pub fn fchownat(
        &self,
        dirfd: i32,
        path: impl AsRef<[u8]>,
        uid: u32,
        gid: u32,
        flags: i32,
    ) -> Result<(), Errno> {
        self.change_at(
            dirfd,
            path.as_ref(),
            flags,
            |c, file| namei::fchown(c, file, uid, gid),
            |c, place| namei::chown(c, place, uid, gid),
        )
    }

    /// Sets the times of access and of change, both to now if there are none given; without a path, of what the descriptor is
    /// open on. `UTIME_NOW` and `UTIME_OMIT` in place of nanoseconds mean what they mean on Linux.
    ///
    /// # Errors
    /// As `utimensat(2)`.
    pub fn utimensat<P: AsRef<[u8]>>(
        &self,
        dirfd: i32,
        path: Option<P>,
        times: Option<[Timespec; 2]>,
        flags: i32,
    ) -> Result<(), Errno> {
        if times.is_some_and(|times| times.iter().all(|time| time.tv_nsec == UTIME_OMIT)) {
            return Ok(());
        }
        let Some(path) = path else {
            if dirfd == AT_FDCWD {
                let known = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
                return Err(if flags & !known != 0 { Errno::INVAL } else { Errno::FAULT });
            }
            return if flags != 0 {
                Err(Errno::INVAL)
            } else {
                self.call_on(dirfd, |c, file| namei::futimens(c, file, times))
            };
        };
        self.change_at(
            dirfd,
            path.as_ref(),
            flags,
            |c, file| namei::futimens(c, file, times),
            |c, place| namei::utimens(c, place, times),
        )
    }

    /// Changes the attributes of the file at a path, or of the pseudo object that an empty path
    /// stands for.
    #[inline]
    fn change_at(
        &self,
        dirfd: i32,
        path: &[u8],
        flags: i32,
        object: impl FnOnce(&Caller<'_, '_>, &FileHandle<'_>) -> Result<(), Errno>,
        change: impl Fn(&Caller<'_, '_>, PathRef<'_, '_>) -> Result<(), Errno> + Copy,
    ) -> Result<(), Errno> {
        if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
            return Err(Errno::INVAL);
        }
        self.call_at_or_on(dirfd, path, flags, object, |c, path, how| {
            change(c, c.place(path, how)?.borrow())
        })
    }

    /// Sets the times of an open file.
    ///
    /// # Errors
    /// As `futimens(3)`.
    pub fn futimens(&self, fd: i32, times: Option<[Timespec; 2]>) -> Result<(), Errno> {
        self.utimensat(fd, None::<&[u8]>, times, 0)
    }

    /// Sets the length of the file at a path.
    ///
    /// # Errors
    /// As `truncate(2)`.
    pub fn truncate(&self, path: impl AsRef<[u8]>, length: i64) -> Result<(), Errno> {
        if length < 0 {
            return Err(Errno::INVAL);
        }
        let truncate = |c: &Caller<'_, '_>, path: &[u8]| namei::truncate(c, path, length);
        self.call_at(AT_FDCWD, path.as_ref(), 0, truncate)
    }

    /// Sets the length of an open file.
    ///
    /// # Errors
    /// As `ftruncate(2)`.
    pub fn ftruncate(&self, fd: i32, length: i64) -> Result<(), Errno> {
        if length < 0 {
            return Err(Errno::INVAL);
        }
        let file = self.file(fd)?;
        let set = |c: &Caller<'_, '_>| quietline_vfs::file::set_length(c, &file, length);
        self.returning(self.call_again(set))
    }
}
