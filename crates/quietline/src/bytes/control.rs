//! What can be asked of an open file, and set: `ioctl`, and `fcntl` of pipes.

use crate::abi::{
    F_GETPIPE_SZ, FIOCLEX, FIONBIO, FIONCLEX, FIONREAD, O_NONBLOCK, SEEK_CUR, SIOCATMARK, SIOCOUTQ,
};
use crate::{Capabilities, Errno, EventPoll, FileHandle, Process};
use quietline_vfs::{Inode, Ioctl, file, operations};

impl Process {
    /// Asks or tells an open file something: `FIONREAD`, `SIOCOUTQ`, `SIOCATMARK` answer in `arg`; `FIONBIO` looks there;
    /// `FIOCLEX` and `FIONCLEX` do not. An embedder's file gets all other requests, with the bytes
    /// of `arg`.
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
            FIONREAD if file.opened().inode().is_some_and(Inode::is_file) => {
                let at = file::seek(&file, &self.inner().vfs, 0, SEEK_CUR)?;
                let size = file.opened().inode().map_or(0, |inode| inode.size());
                *arg = (size as i64 - at) as i32;
                return Ok(0);
            }
            _ if file.opened().is_foreign() => {
                let mut bytes = arg.to_ne_bytes();
                let answer = self.ioctl_foreign(&file, request, &mut bytes);
                *arg = i32::from_ne_bytes(bytes);
                return answer;
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

    /// As [`ioctl`](Self::ioctl), with an argument of any length, which an embedder's file gets as
    /// it is. Of other files' arguments the first four bytes are the `int`.
    ///
    /// # Errors
    /// As [`ioctl`](Self::ioctl); `EFAULT` for an argument that is shorter than an `int`, if the
    /// file is not an embedder's.
    pub fn ioctl_bytes(&self, fd: i32, request: u64, arg: &mut [u8]) -> Result<i32, Errno> {
        let file = self.fget(fd)?;
        let own = matches!(request, FIOCLEX | FIONCLEX | FIONBIO)
            || request == FIONREAD && file.opened().inode().is_some_and(Inode::is_file);
        if file.opened().is_foreign() && !own {
            return self.ioctl_foreign(&file, request, arg);
        }
        let first = arg.first_chunk_mut().ok_or(Errno::FAULT)?;
        let mut int = i32::from_ne_bytes(*first);
        let answer = self.ioctl(fd, request, &mut int);
        *first = int.to_ne_bytes();
        answer
    }

    #[cold]
    fn ioctl_foreign(
        &self,
        file: &FileHandle<'_>,
        request: u64,
        arg: &mut [u8],
    ) -> Result<i32, Errno> {
        let answer = self.call_sleeping(|c| operations::ioctl(c, file, request, arg));
        self.returning(answer)
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
