//! What can be asked of an open file, and set: `ioctl`, and `fcntl` of pipes.

use crate::abi::{
    F_GETPIPE_SZ, FIOCLEX, FIONBIO, FIONCLEX, FIONREAD, O_NONBLOCK, SEEK_CUR, SIOCATMARK, SIOCOUTQ,
};
use crate::{Capabilities, Errno, EventPoll, FileHandle, Process};
use quietline_vfs::{Ioctl, file};

impl Process {
    /// Asks or tells an open file something: `FIONREAD`, `SIOCOUTQ`, `SIOCATMARK` answer in `arg`; `FIONBIO` looks there;
    /// `FIOCLEX` and `FIONCLEX` do not.
    ///
    /// # Errors
    /// `EBADF`; `ENOTTY` for what the file has no answer to; the object's own.
    pub fn ioctl(&self, fd: i32, request: u64, arg: &mut i32) -> Result<i32, Errno> {
        let file = self.fget(fd)?;
        let question = match request {
            FIOCLEX | FIONCLEX => {
                return self.table.set_cloexec(fd, request == FIOCLEX).map(|()| 0);
            }
            FIONBIO => {
                file.set_flags(if *arg != 0 { O_NONBLOCK } else { 0 }, O_NONBLOCK);
                return Ok(0);
            }
            FIONREAD if file.opened().inode().is_some_and(quietline_vfs::Inode::is_file) => {
                let at = file::seek(&file, &self.inner().vfs, 0, SEEK_CUR)?;
                let size = file.opened().inode().map_or(0, |inode| inode.size());
                *arg = (size as i64 - at) as i32;
                return Ok(0);
            }
            FIONREAD => Ioctl::Readable,
            SIOCOUTQ => Ioctl::Unread,
            SIOCATMARK => Ioctl::AtMark,
            // An epoll has commands of its own, of which this is none.
            _ if file.payload::<EventPoll>().is_some() => return Err(Errno::INVAL),
            _ => return Err(Errno::NOTTY),
        };
        *arg = file.opened().ioctl(question)?;
        Ok(0)
    }

    /// `F_SETPIPE_SZ`, `F_GETPIPE_SZ`.
    pub(crate) fn pipe_size(
        &self,
        file: &FileHandle<'_>,
        cmd: i32,
        bytes: u32,
    ) -> Result<i32, Errno> {
        let pipe = file.opened().pipe().ok_or(Errno::BADF)?;
        if cmd == F_GETPIPE_SZ {
            return Ok(pipe.capacity() as i32);
        }
        let [resource, admin] = self.call(|c| {
            [Capabilities::SYS_RESOURCE, Capabilities::SYS_ADMIN].map(|one| c.cred.has(one))
        });
        pipe.set_capacity(bytes, resource, admin).map(|size| size as i32)
    }
}
