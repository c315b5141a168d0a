//! Making files, and changing what is told of them.

use super::{Fd, Server};
use fuser::{INodeNo, Request};
use quietline::abi::{
    AT_EMPTY_PATH, O_EXCL, S_IFREG, S_ISGID, S_ISUID, S_IXGRP, Stat, Timespec, UTIME_OMIT,
};
use quietline::{Errno, FileMode, Process};

impl Server {
    /// Makes a file that belongs to the caller; the host is told of it.
    pub(super) fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &[u8],
        make: impl FnOnce(&Process, i32) -> Result<(), Errno>,
    ) -> Result<Stat, Errno> {
        let dir = self.fd(parent)?;
        if request.uid() == 0 && request.gid() == 0 {
            make(self.base, dir.fd)?;
        } else {
            let maker = self.makers.get(request.uid(), request.gid())?;
            make(&maker, self.fd_of(&maker, parent)?.fd)?;
        }
        self.find(&dir, name)
    }

    /// Makes a regular file, unless it is there and may be.
    pub(super) fn create_file(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &[u8],
        mode: u32,
        flags: i32,
    ) -> Result<Stat, Errno> {
        let mode = mode & 0o7777 | S_IFREG;
        self.make(request, parent, name, |maker, dir| match maker.mknodat(dir, name, mode, 0) {
            Err(Errno::EXIST) if flags & O_EXCL == 0 => Ok(()),
            result => result,
        })
    }

    /// Gives a node another name; the host is told of it once more.
    pub(super) fn link_to(
        &self,
        node: INodeNo,
        newparent: INodeNo,
        newname: &[u8],
    ) -> Result<Stat, Errno> {
        let (file, dir) = (self.fd(node)?, self.fd(newparent)?);
        self.base.linkat(file.fd, "", dir.fd, newname, AT_EMPTY_PATH)?;
        self.find(&dir, newname)
    }

    /// Changes attributes: first the length, which may be refused.
    pub(super) fn set(
        &self,
        node: INodeNo,
        size: Option<u64>,
        [uid, gid]: [u32; 2],
        mode: Option<u32>,
        times: [Timespec; 2],
        root: bool,
    ) -> Result<Stat, Errno> {
        let file = self.fd(node)?;
        if let Some(size) = size {
            self.base.ftruncate(file.fd, i64::try_from(size).map_err(|_| Errno::FBIG)?)?;
            if !root {
                self.lose_set_ids(&file)?;
            }
        }
        if [uid, gid] != [u32::MAX; 2] {
            self.base.fchownat(file.fd, "", uid, gid, AT_EMPTY_PATH)?;
        }
        if let Some(mode) = mode {
            self.base.fchmodat2(file.fd, "", mode & 0o7777, AT_EMPTY_PATH)?;
        }
        if times.iter().any(|time| time.tv_nsec != UTIME_OMIT) {
            self.base.utimensat(file.fd, Some(""), Some(times), AT_EMPTY_PATH)?;
        }
        file.stat()
    }

    /// Takes the bits away by which a program would run as somebody else: somebody has changed it who may not keep them.
    /// (The base process may, so that no call has taken them.)
    pub(super) fn lose_set_ids(&self, file: &Fd<'_>) -> Result<(), Errno> {
        let mode = file.stat()?.st_mode;
        let group = if mode & S_IXGRP != 0 { S_ISGID } else { 0 };
        let lost = mode & (S_ISUID | group);
        if lost == 0 { Ok(()) } else { self.base.fchmod(file.fd, mode & 0o7777 & !lost) }
    }

    /// Calls with a node's descriptor, if it is one that extended attributes are kept for.
    pub(super) fn with_attributes<R>(
        &self,
        node: INodeNo,
        call: impl FnOnce(i32) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let fd = self.fd(node)?;
        if self.base.file(fd.fd)?.mode().contains(FileMode::PATH) {
            return Err(Errno::OPNOTSUPP);
        }
        call(fd.fd)
    }
}
