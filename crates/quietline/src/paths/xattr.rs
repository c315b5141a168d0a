//! Extended attributes.

use super::how;
use crate::abi::{AT_EMPTY_PATH, AT_FDCWD};
use crate::{Errno, Process, Socket};
use core::cell::RefCell;
use quietline_vfs::namei;

impl Process {
    /// Sets an extended attribute of what is at a path.
    ///
    /// # Errors
    /// As `setxattr(2)`.
    pub fn setxattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        value: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        self.set_at(path.as_ref(), name.as_ref(), value, flags, true)
    }

    /// [`setxattr`](Self::setxattr) of a symbolic link itself.
    ///
    /// # Errors
    /// As `lsetxattr(2)`.
    pub fn lsetxattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        value: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        self.set_at(path.as_ref(), name.as_ref(), value, flags, false)
    }

    fn set_at(
        &self,
        path: &[u8],
        name: &[u8],
        value: &[u8],
        flags: i32,
        follow: bool,
    ) -> Result<(), Errno> {
        namei::check_xattr(name, value, flags)?;
        self.call_at(AT_FDCWD, path, 0, |c, path| {
            namei::setxattr(c, c.place(path, how(0, follow))?.borrow(), name, value, flags)
        })
    }

    /// [`setxattr`](Self::setxattr) of an open file.
    ///
    /// # Errors
    /// As `fsetxattr(2)`.
    pub fn fsetxattr(
        &self,
        fd: i32,
        name: impl AsRef<[u8]>,
        value: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        let name = name.as_ref();
        namei::check_xattr(name, value, flags)?;
        // Linux takes the working directory where a value is read or set (since 6.13), though not
        // where it is removed or names are listed.
        if fd == AT_FDCWD {
            return self.call_again(|c| {
                let own = c.place(b"", how(AT_EMPTY_PATH, true))?;
                namei::setxattr(c, own.borrow(), name, value, flags)
            });
        }
        self.call_on(fd, |c, file| namei::fsetxattr(c, file, name, value, flags))
    }

    /// Reads an extended attribute of what is at a path: how many bytes; into nothing, only how many there are.
    ///
    /// # Errors
    /// As `getxattr(2)`.
    pub fn getxattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        to: &mut [u8],
    ) -> Result<usize, Errno> {
        self.get_at(path.as_ref(), name.as_ref(), to, true)
    }

    /// [`getxattr`](Self::getxattr) of a symbolic link itself.
    ///
    /// # Errors
    /// As `lgetxattr(2)`.
    pub fn lgetxattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        to: &mut [u8],
    ) -> Result<usize, Errno> {
        self.get_at(path.as_ref(), name.as_ref(), to, false)
    }

    fn get_at(
        &self,
        path: &[u8],
        name: &[u8],
        to: &mut [u8],
        follow: bool,
    ) -> Result<usize, Errno> {
        namei::check_xattr_name(name)?;
        let to = RefCell::new(to);
        self.call_at(AT_FDCWD, path, 0, |c, path| {
            let place = c.place(path, how(0, follow))?;
            namei::getxattr(c, place.borrow(), name, &mut to.borrow_mut())
        })
    }

    /// [`getxattr`](Self::getxattr) of an open file.
    ///
    /// # Errors
    /// As `fgetxattr(2)`.
    pub fn fgetxattr(
        &self,
        fd: i32,
        name: impl AsRef<[u8]>,
        to: &mut [u8],
    ) -> Result<usize, Errno> {
        let name = name.as_ref();
        namei::check_xattr_name(name)?;
        let to = RefCell::new(to);
        // As in `fsetxattr`.
        if fd == AT_FDCWD {
            return self.call_again(|c| {
                let own = c.place(b"", how(AT_EMPTY_PATH, true))?;
                namei::getxattr(c, own.borrow(), name, &mut to.borrow_mut())
            });
        }
        self.call_on(fd, |c, file| {
            let protocol = file.payload::<Socket>().map(Socket::protocol_name);
            namei::fgetxattr(c, file, protocol, name, &mut to.borrow_mut())
        })
    }

    /// Lists the names of the extended attributes of what is at a path, each with a zero behind it: how many bytes.
    ///
    /// # Errors
    /// As `listxattr(2)`.
    pub fn listxattr(&self, path: impl AsRef<[u8]>, to: &mut [u8]) -> Result<usize, Errno> {
        let to = RefCell::new(to);
        self.call_at(AT_FDCWD, path.as_ref(), 0, |c, path| {
            let place = c.place(path, how(0, true))?;
            namei::listxattr(c, place.borrow(), &mut to.borrow_mut())
        })
    }

    /// [`listxattr`](Self::listxattr) of a symbolic link itself.
    ///
    /// # Errors
    /// As `llistxattr(2)`.
    pub fn llistxattr(&self, path: impl AsRef<[u8]>, to: &mut [u8]) -> Result<usize, Errno> {
        let to = RefCell::new(to);
        self.call_at(AT_FDCWD, path.as_ref(), 0, |c, path| {
            let place = c.place(path, how(0, false))?;
            namei::listxattr(c, place.borrow(), &mut to.borrow_mut())
        })
    }

    /// [`listxattr`](Self::listxattr) of an open file.
    ///
    /// # Errors
    /// As `flistxattr(2)`.
    pub fn flistxattr(&self, fd: i32, to: &mut [u8]) -> Result<usize, Errno> {
        let to = RefCell::new(to);
        self.call_on(fd, |c, file| namei::flistxattr(c, file, &mut to.borrow_mut()))
    }

    /// Removes an extended attribute of what is at a path.
    ///
    /// # Errors
    /// As `removexattr(2)`.
    pub fn removexattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.remove_at(path.as_ref(), name.as_ref(), true)
    }

    /// [`removexattr`](Self::removexattr) of a symbolic link itself.
    ///
    /// # Errors
    /// As `lremovexattr(2)`.
    pub fn lremovexattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
    ) -> Result<(), Errno> {
        self.remove_at(path.as_ref(), name.as_ref(), false)
    }

    fn remove_at(&self, path: &[u8], name: &[u8], follow: bool) -> Result<(), Errno> {
        namei::check_xattr_name(name)?;
        self.call_at(AT_FDCWD, path, 0, |c, path| {
            namei::removexattr(c, c.place(path, how(0, follow))?.borrow(), name)
        })
    }

    /// [`removexattr`](Self::removexattr) of an open file.
    ///
    /// # Errors
    /// As `fremovexattr(2)`.
    pub fn fremovexattr(&self, fd: i32, name: impl AsRef<[u8]>) -> Result<(), Errno> {
        let name = name.as_ref();
        namei::check_xattr_name(name)?;
        self.call_on(fd, |c, file| namei::fremovexattr(c, file, name))
    }
}
