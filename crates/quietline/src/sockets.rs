//! System calls on sockets.
//!
//! Addresses and options are bytes, as the system calls take and give them, and control messages as 64-bit Linux lays them
//! out. A call that need not wait takes no reference to its file: it works in a read section on what it finds at the
//! descriptor, and only one that is about to sleep takes hold of the file first.

mod connecting;
mod messages;
mod options;

pub use messages::{RecvMsg, SendMsg};

use crate::{Errno, FileHandle, Process, Socket};
use quietline_net::On;

impl Process {
    /// Calls `f` with the socket of a descriptor, whose file is held meanwhile.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`.
    fn on_socket<R>(
        &self,
        fd: i32,
        f: impl FnOnce(&On<'_>, &FileHandle<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let file = self.fget(fd)?;
        let socket = file.payload::<Socket>().ok_or(Errno::NOTSOCK)?;
        f(&On { socket, who: self, flags: file.flags(), may_sleep: true }, &file)
    }

    /// Calls `f` with the socket of a descriptor, inside a read section and without a reference: `f` does not sleep.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`.
    #[inline(always)]
    fn at_socket<R>(
        &self,
        fd: i32,
        f: impl FnOnce(&On<'_>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let section = self.inner().vfs.read();
        let file = self.fdget(fd, &section)?;
        let socket = file.payload::<Socket>().ok_or(Errno::NOTSOCK)?;
        f(&On { socket, who: self, flags: file.flags(), may_sleep: false })
    }
}
