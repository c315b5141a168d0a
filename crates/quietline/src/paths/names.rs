//! Making, removing and renaming names.

use super::how;
use crate::abi::{AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW};
use crate::{Errno, Process};
use quietline_vfs::cred::Capabilities;
use quietline_vfs::namei::{self, New};

impl Process {
    /// Makes a directory.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    pub fn mkdir(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<(), Errno> {
        self.mkdirat(AT_FDCWD, path, mode)
    }

    /// [`mkdir`](Self::mkdir) from a directory. Writes the lines of the directory and of the new one.
    ///
    /// # Errors
    /// As `mkdirat(2)`.
    pub fn mkdirat(&self, dirfd: i32, path: impl AsRef<[u8]>, mode: u32) -> Result<(), Errno> {
        self.call_at(dirfd, path.as_ref(), 0, |c, path| namei::make(c, path, New::Directory(mode)))
    }

    /// Makes a fifo, a socket, a device node or an empty file, as the type in `mode` says.
    ///
    /// # Errors
    /// As `mknod(2)`.
    pub fn mknod(&self, path: impl AsRef<[u8]>, mode: u32, dev: u64) -> Result<(), Errno> {
        self.mknodat(AT_FDCWD, path, mode, dev)
    }

    /// [`mknod`](Self::mknod) from a directory.
    ///
    /// # Errors
    /// As `mknodat(2)`.
    pub fn mknodat(
        &self,
        dirfd: i32,
        path: impl AsRef<[u8]>,
        mode: u32,
        dev: u64,
    ) -> Result<(), Errno> {
        let new = New::Node(mode, dev);
        new.check()?;
        self.call_at(dirfd, path.as_ref(), 0, |c, path| namei::make(c, path, new))
    }

    /// Makes a symbolic link that leads to `target`.
    ///
    /// # Errors
    /// As `symlink(2)`.
    pub fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.symlinkat(target, AT_FDCWD, path)
    }

    /// [`symlink`](Self::symlink) from a directory.
    ///
    /// # Errors
    /// As `symlinkat(2)`.
    pub fn symlinkat(
        &self,
        target: impl AsRef<[u8]>,
        dirfd: i32,
        path: impl AsRef<[u8]>,
    ) -> Result<(), Errno> {
        let target = super::checked(target.as_ref())?;
        let new = New::Symlink(target);
        new.check()?;
        self.call_at(dirfd, path.as_ref(), 0, |c, path| namei::make(c, path, new))
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// As `link(2)`.
    pub fn link(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.linkat(AT_FDCWD, old, AT_FDCWD, new, 0)
    }

    /// [`link`](Self::link) from two directories; with `AT_SYMLINK_FOLLOW` of what a link leads to, with `AT_EMPTY_PATH` of
    /// what the first descriptor is open on.
    ///
    /// # Errors
    /// As `linkat(2)`.
    pub fn linkat(
        &self,
        olddir: i32,
        old: impl AsRef<[u8]>,
        newdir: i32,
        new: impl AsRef<[u8]>,
        flags: i32,
    ) -> Result<(), Errno> {
        if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
            return Err(Errno::INVAL);
        }
        let (old, new) = (old.as_ref(), new.as_ref());
        if flags == 0
            && let Some(done) = self.call_both([olddir, newdir], [old, new], namei::link_quickly)
        {
            return done;
        }
        if self.object_at(olddir, old, flags)?.is_some() {
            return self.call_at(newdir, new, 0, namei::link_object);
        }
        let how = how(flags, flags & AT_SYMLINK_FOLLOW != 0);
        self.call_at(olddir, old, flags, |c, old| {
            // What a descriptor stands for is for who has opened it, or may look at everything.
            if flags & AT_EMPTY_PATH != 0
                && old.first() != Some(&b'/')
                && olddir != AT_FDCWD
                && !c.cred.has(Capabilities::DAC_READ_SEARCH)
                && !self.file(olddir)?.is_opener(c.cred)
            {
                return Err(Errno::NOENT);
            }
            let old = &c.place(old, how)?;
            // The share of callbacks runs when the outer call has left its section.
            if c.cred.may_sleep() {
                return self.walk_at(newdir, new, 0, |c, new| namei::link(c, old, new));
            }
            self.walk_once(newdir, new, 0, |c, new| namei::link(c, old, new))
        })
    }

    /// Removes a name of what is not a directory.
    ///
    /// # Errors
    /// As `unlink(2)`.
    pub fn unlink(&self, path: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.unlinkat(AT_FDCWD, path, 0)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    pub fn rmdir(&self, path: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.unlinkat(AT_FDCWD, path, AT_REMOVEDIR)
    }

    /// [`unlink`](Self::unlink) from a directory; with `AT_REMOVEDIR`, [`rmdir`](Self::rmdir). Writes the lines of the
    /// directory and of what had the name.
    ///
    /// # Errors
    /// As `unlinkat(2)`.
    pub fn unlinkat(&self, dirfd: i32, path: impl AsRef<[u8]>, flags: i32) -> Result<(), Errno> {
        if flags & !AT_REMOVEDIR != 0 {
            return Err(Errno::INVAL);
        }
        self.call_at(dirfd, path.as_ref(), 0, |c, path| match flags {
            0 => namei::unlink(c, path),
            _ => namei::rmdir(c, path),
        })
    }

    /// Renames a file, over one that is there.
    ///
    /// # Errors
    /// As `rename(2)`.
    pub fn rename(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.renameat2(AT_FDCWD, old, AT_FDCWD, new, 0)
    }

    /// [`rename`](Self::rename) from two directories.
    ///
    /// # Errors
    /// As `renameat(2)`.
    pub fn renameat(
        &self,
        olddir: i32,
        old: impl AsRef<[u8]>,
        newdir: i32,
        new: impl AsRef<[u8]>,
    ) -> Result<(), Errno> {
        self.renameat2(olddir, old, newdir, new, 0)
    }

    /// [`renameat`](Self::renameat) with `RENAME_NOREPLACE`, `RENAME_EXCHANGE` or `RENAME_WHITEOUT`. Writes the lines of the
    /// directories and of the file; of a directory from one directory to another, the filesystem's lock of renames.
    ///
    /// # Errors
    /// As `renameat2(2)`.
    pub fn renameat2(
        &self,
        olddir: i32,
        old: impl AsRef<[u8]>,
        newdir: i32,
        new: impl AsRef<[u8]>,
        flags: u32,
    ) -> Result<(), Errno> {
        namei::check_rename_flags(flags)?;
        let (old, new) = (old.as_ref(), new.as_ref());
        if flags == 0
            && let Some(done) = self.call_both([olddir, newdir], [old, new], namei::rename_quickly)
        {
            return self.returning(done);
        }
        self.rename_slow([olddir, newdir], [old, new], flags)
    }

    #[inline(never)]
    fn rename_slow(
        &self,
        [olddir, newdir]: [i32; 2],
        [old, new]: [&[u8]; 2],
        flags: u32,
    ) -> Result<(), Errno> {
        // In Linux's order: what is wrong with the first path is told before anybody looks at the second.
        let from = self.walk_at(olddir, old, 0, |c, old| c.last_in(old));
        let renamed = from.and_then(|from| {
            let from = &from;
            self.walk_at(newdir, new, 0, |c, new| namei::rename(c, from, &c.last_in(new)?, flags))
        });
        self.returning(renamed)
    }
}
