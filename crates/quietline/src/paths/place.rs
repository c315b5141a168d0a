//! Where a process is.

use crate::abi::{AT_FDCWD, PATH_MAX};
use crate::{Errno, Process};
use quietline_platform::heap;
use quietline_vfs::cred::Capabilities;
use quietline_vfs::permission::Mask;
use quietline_vfs::{How, Lookup, PathBuffer};

const DIRECTORY: How = How::of(Lookup::FOLLOW.union(Lookup::DIRECTORY));

impl Process {
    /// Changes the working directory.
    ///
    /// # Errors
    /// As `chdir(2)`.
    pub fn chdir(&self, path: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.call_at(AT_FDCWD, path.as_ref(), 0, |c, path| {
            let place = c.place(path, DIRECTORY)?;
            c.may(place.dentry().inode().ok_or(Errno::NOENT)?, Mask::EXEC)?;
            c.set_cwd(place);
            Ok(())
        })
    }

    /// Makes the directory that a descriptor is open on the working directory.
    ///
    /// # Errors
    /// As `fchdir(2)`.
    pub fn fchdir(&self, fd: i32) -> Result<(), Errno> {
        let file = self.file(fd)?;
        let place = file.place().ok_or(Errno::NOTDIR)?;
        let inode = place.dentry().inode().ok_or(Errno::NOTDIR)?;
        if !inode.is_dir() {
            return Err(Errno::NOTDIR);
        }
        self.call(|c| {
            c.may(inode, Mask::EXEC)?;
            c.set_cwd(place.to_path());
            Ok(())
        })
    }

    /// Changes the root directory.
    ///
    /// # Errors
    /// As `chroot(2)`; `EPERM` without `CAP_SYS_CHROOT`.
    pub fn chroot(&self, path: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.call_at(AT_FDCWD, path.as_ref(), 0, |c, path| {
            let place = c.place(path, DIRECTORY)?;
            c.may(place.dentry().inode().ok_or(Errno::NOENT)?, Mask::EXEC)?;
            if !c.cred.has(Capabilities::SYS_CHROOT) {
                return Err(Errno::PERM);
            }
            c.set_root(place);
            Ok(())
        })
    }

    /// The path of the working directory.
    ///
    /// # Errors
    /// As `getcwd(2)`; `ENOMEM`.
    pub fn getcwd(&self) -> Result<Vec<u8>, Errno> {
        let mut buffer = [0; PATH_MAX];
        let mut path = PathBuffer::new(&mut buffer);
        self.call(|c| c.getcwd(&mut path))?;
        let bytes = path.bytes();
        let copy = heap::try_boxed_slice(bytes.len(), |n| bytes[n]).map_err(|_| Errno::NOMEM)?;
        Ok(copy.into_vec())
    }

    /// Sets the permissions that new files do not get; those before.
    pub fn umask(&self, mask: u32) -> u32 {
        self.fs.set_umask(mask)
    }
}
