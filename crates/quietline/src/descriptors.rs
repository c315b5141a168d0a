//! System calls on descriptors.

use crate::abi::{
    CLOSE_RANGE_CLOEXEC, CLOSE_RANGE_UNSHARE, F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL,
    F_GETPIPE_SZ, F_SETFD, F_SETFL, F_SETPIPE_SZ, FD_CLOEXEC, O_APPEND, O_ASYNC, O_CLOEXEC,
    O_DIRECT, O_NOATIME, O_NONBLOCK,
};
use crate::{Errno, FileHandle, FileMode, Process, Socket};
use core::fmt::Write;
use quietline_vfs::generated::TextBuffer;
use quietline_vfs::inotify::Inotify;
use quietline_vfs::{Content, FdFlags, Opened, Section};

impl Process {
    /// Closes a descriptor.
    ///
    /// Writes the table's lock line, unless the descriptor was made with [`O_ANYFD`](crate::abi::O_ANYFD); then only
    /// lines of the object and its CPU.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline(always)]
    pub fn close(&self, fd: i32) -> Result<(), Errno> {
        self.run_share();
        if self.has_locked() {
            self.drop_locks(&self.file(fd)?);
        }
        self.table.close(fd, &self.inner().files)
    }

    /// Closes all descriptors from `first` to `last`, the last first; with `CLOSE_RANGE_CLOEXEC`, marks them to be closed on exec
    /// instead. `CLOSE_RANGE_UNSHARE` is accepted: no other process shares this one's table.
    ///
    /// # Errors
    /// `EINVAL` when `first` is above `last`, or a flag is unknown.
    pub fn close_range(&self, first: u32, last: u32, flags: u32) -> Result<(), Errno> {
        if flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) != 0 || first > last {
            return Err(Errno::INVAL);
        }
        if self.has_locked() && flags & CLOSE_RANGE_CLOEXEC == 0 {
            let mut end = (last as usize).saturating_add(1);
            while let Some(fd) = self.table.last_fd(end).filter(|&fd| fd as u32 >= first) {
                // Another thread may have closed it in the meantime, which is as good.
                let _ = self.close(fd);
                end = fd as usize;
            }
        }
        self.table.for_range(first, last, flags & CLOSE_RANGE_CLOEXEC != 0, &self.inner().files);
        self.returning(Ok(()))
    }

    /// Another descriptor for the same open file: the lowest free one.
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`, `ENOMEM`.
    #[inline(always)]
    pub fn dup(&self, fd: i32) -> Result<i32, Errno> {
        self.table.dup(fd, 0, FdFlags::default(), &self.inner().files)
    }

    /// Makes `new` a descriptor for the file of `old`, closing what it was; nothing if they are the same.
    ///
    /// # Errors
    /// `EBADF` when `old` is not open, or `new` is not below the limit; `EBUSY` when another thread is opening `new`
    /// at this moment; `ENOMEM`.
    pub fn dup2(&self, old: i32, new: i32) -> Result<i32, Errno> {
        if old == new {
            return self.table.cloexec(old).map(|_| new);
        }
        self.run_share();
        self.before_replaced(old, new);
        self.table.dup_to(old, new, false, &self.inner().files)
    }

    /// As [`dup2`](Self::dup2), with `O_CLOEXEC` or nothing as flags, and an error if both are the same.
    ///
    /// # Errors
    /// As [`dup2`](Self::dup2); `EINVAL` for another flag, or when `old` is `new`.
    pub fn dup3(&self, old: i32, new: i32, flags: i32) -> Result<i32, Errno> {
        if flags & !O_CLOEXEC != 0 || old == new {
            return Err(Errno::INVAL);
        }
        self.run_share();
        self.before_replaced(old, new);
        self.table.dup_to(old, new, flags & O_CLOEXEC != 0, &self.inner().files)
    }

    /// `new` is about to be closed, if `old` can take its place: then the process's locks on its file go.
    fn before_replaced(&self, old: i32, new: i32) {
        if self.has_locked()
            && self.file(old).is_ok()
            && let Ok(file) = self.file(new)
        {
            self.drop_locks(&file);
        }
    }

    /// `F_DUPFD`, `F_DUPFD_CLOEXEC`, `F_GETFD`, `F_SETFD`, `F_GETFL`, `F_SETFL`, `F_GETPIPE_SZ`, `F_SETPIPE_SZ`.
    ///
    /// `F_GETFD` and `F_GETFL` write no shared line.
    ///
    /// # Errors
    /// `EBADF`; `EINVAL` for another command, for a duplicate at or above the limit, or for `O_DIRECT` on a file that
    /// cannot; `EMFILE`; for the size of a pipe as
    /// [`PipeCore::set_capacity`](quietline_vfs::PipeCore::set_capacity); `EPERM` for `O_NOATIME`
    /// on an anonymous descriptor, unless the caller is user 0 or has
    /// `CAP_FOWNER`.
    #[inline(always)]
    pub fn fcntl(&self, fd: i32, cmd: i32, arg: u64) -> Result<i32, Errno> {
        match cmd {
            F_GETFL => self.table.status(fd, &self.inner().files),
            F_GETFD => self.table.cloexec(fd).map(|set| if set { FD_CLOEXEC } else { 0 }),
            _ => self.fcntl_other(fd, cmd, arg),
        }
    }

    fn fcntl_other(&self, fd: i32, cmd: i32, arg: u64) -> Result<i32, Errno> {
        let files = &self.inner().files;
        // The kernel looks at the lower half.
        let arg = arg as u32;
        match cmd {
            F_SETFD => self.table.set_cloexec(fd, arg as i32 & FD_CLOEXEC != 0).map(|()| 0),
            F_DUPFD | F_DUPFD_CLOEXEC if arg as usize >= self.table.limit() => {
                self.table.cloexec(fd).and(Err(Errno::INVAL))
            }
            F_DUPFD | F_DUPFD_CLOEXEC => {
                let flags = FdFlags { cloexec: cmd == F_DUPFD_CLOEXEC, any: false };
                self.table.dup(fd, arg as usize, flags, files)
            }
            F_GETPIPE_SZ | F_SETPIPE_SZ => self.pipe_size(&self.fget(fd)?, cmd, arg),
            F_SETFL => self.set_status(&self.fget(fd)?, arg as i32),
            _ => self.fget(fd).and(Err(Errno::INVAL)),
        }
    }

    fn set_status(&self, file: &FileHandle<'_>, flags: i32) -> Result<i32, Errno> {
        const ALWAYS: i32 = O_APPEND | O_NONBLOCK;
        // The kind of the file matters to the other flags only.
        let mask = match (flags | file.flags()) & (O_DIRECT | O_NOATIME | O_ASYNC) {
            0 => ALWAYS,
            _ => ALWAYS | self.status_of_kind(file, flags)?,
        };
        file.set_flags(flags, mask);
        Ok(0)
    }

    /// Returns the flags beside `O_APPEND` and `O_NONBLOCK` that `F_SETFL` changes in a file of
    /// this kind.
    #[cold]
    #[inline(never)]
    fn status_of_kind(&self, file: &FileHandle<'_>, flags: i32) -> Result<i32, Errno> {
        let inode = file.opened().inode();
        let pipe = file.opened().pipe().is_some();
        let socket = file.payload::<Socket>().is_some();
        // User 0 owns the inode that all anonymous descriptors share.
        let owner = || {
            let uid = inode.map_or(0, quietline_vfs::Inode::uid);
            (inode.is_none() && (pipe || socket))
                || self.call(|c| c.cred.fsuid() == uid || c.cred.has(crate::Capabilities::FOWNER))
        };
        if flags & !file.flags() & O_NOATIME != 0 && !owner() {
            return Err(Errno::PERM);
        }
        let direct = pipe || inode.is_some_and(|i| matches!(i.content(), Content::File(_)));
        if flags & O_DIRECT != 0 && !direct {
            return Err(Errno::INVAL);
        }
        // A file that can tell of input by a signal keeps the flag.
        let signals = pipe || socket || file.payload::<Inotify>().is_some();
        Ok(O_DIRECT | O_NOATIME | if signals { O_ASYNC } else { 0 })
    }

    /// The open file of a descriptor, as a handle that keeps it open.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline(always)]
    pub fn file(&self, fd: i32) -> Result<FileHandle<'_>, Errno> {
        self.table.get(fd, &self.inner().files)
    }

    /// As [`file`](Self::file), for a call that wants more of a file than its place in the tree (`fget`, where that is `fget_raw`).
    ///
    /// # Errors
    /// `EBADF`, also for what was opened with `O_PATH`.
    #[inline(always)]
    pub(crate) fn fget(&self, fd: i32) -> Result<FileHandle<'_>, Errno> {
        let file = self.file(fd)?;
        if file.mode().contains(FileMode::PATH) { Err(Errno::BADF) } else { Ok(file) }
    }

    /// As [`fget`](Self::fget), inside a read section and without a reference (`fdget`).
    ///
    /// # Errors
    /// As [`fget`](Self::fget).
    #[inline(always)]
    pub(crate) fn fdget<'g>(&self, fd: i32, section: &'g Section) -> Result<Opened<'g>, Errno> {
        let file = self.table.look(fd, section)?;
        if file.mode().contains(FileMode::PATH) { Err(Errno::BADF) } else { Ok(file) }
    }

    /// Gives a file that was opened without a descriptor one. `flags`: `O_CLOEXEC`,
    /// [`O_ANYFD`](crate::abi::O_ANYFD).
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`: the handle is dropped. `EINVAL` when the file belongs to another kernel.
    pub fn install_file(&self, file: FileHandle<'_>, flags: i32) -> Result<i32, Errno> {
        if !file.is_of(&self.inner().files) {
            return Err(Errno::INVAL);
        }
        self.table.install(file, FdFlags::of(flags))
    }

    /// What `/proc/PID/fd/N` links to: `socket:[INO]`, `pipe:[INO]`, `anon_inode:[eventfd]`, or a path.
    ///
    /// # Errors
    /// `EBADF`, `ENAMETOOLONG`, `ENOMEM`.
    pub fn fd_name(&self, fd: i32) -> Result<String, Errno> {
        let file = self.file(fd)?;
        let mut name = TextBuffer::default();
        if let Some(place) = file.place() {
            let mut buffer = [0; crate::abi::PATH_MAX];
            let mut path = quietline_vfs::PathBuffer::new(&mut buffer);
            self.inner().vfs.d_path(&place.to_path(), &self.fs.root_path(), &mut path)?;
            for chunk in path.bytes().utf8_chunks() {
                name.push(chunk.valid().as_bytes());
                if !chunk.invalid().is_empty() {
                    name.push("\u{fffd}".as_bytes());
                }
            }
        } else {
            // The buffer tells at its end.
            let _ = write!(name, "{}", file.name());
        }
        Ok(String::from_utf8(name.finish()?).expect("what is no text has been replaced"))
    }

    /// Descriptors that are open, lowest first (`/proc/PID/fd`).
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn open_fds(&self) -> Result<Vec<i32>, Errno> {
        self.table.open_fds().map_err(|_| Errno::NOMEM)
    }

    /// Descriptors are below this (`RLIMIT_NOFILE`).
    pub fn nofile(&self) -> usize {
        self.table.limit()
    }
}
