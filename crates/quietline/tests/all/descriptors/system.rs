//! The two systems behind one interface: system calls by number, with addresses in a room of
//! memory.

use super::room::Room;
use quietline::abi::O_NONBLOCK;

/// The outcome of a system call: its value, or the number of its error.
pub(crate) type Outcome = Result<i64, i32>;

/// A descriptor number at which nothing is open.
pub(crate) const CLOSED: i32 = 900;

/// The limit on descriptors on both systems.
pub(crate) const NOFILE: usize = 1024;

/// A system that is compared: the host's kernel, or the library.
pub(crate) trait System {
    /// The memory that calls read and write.
    fn room(&self) -> &Room;

    /// Makes a system call. Addresses lie in the room.
    fn call(&self, number: i64, args: &[i64]) -> Outcome;

    /// Makes a system call that must succeed.
    ///
    /// # Panics
    /// If the call fails.
    fn must(&self, number: i64, args: &[i64]) -> i64 {
        self.call(number, args).unwrap_or_else(|errno| panic!("call {number} {args:?}: {errno}"))
    }

    /// Opens a path relative to the working directory.
    fn open(&self, path: &str, flags: i32) -> i32 {
        let path = self.room().text(0, path);
        let mode = if flags & libc::O_CREAT != 0 { 0o644 } else { 0 };
        self.must(libc::SYS_openat, &[libc::AT_FDCWD.into(), path, flags.into(), mode]) as i32
    }

    /// Makes a non-blocking socket.
    fn socket(&self, family: i32, ty: i32) -> i32 {
        let ty = ty | O_NONBLOCK;
        self.must(libc::SYS_socket, &[family.into(), ty.into(), 0]) as i32
    }

    /// Makes a non-blocking pair of local sockets.
    fn pair(&self, ty: i32) -> [i32; 2] {
        let at = self.room().words(&[0]);
        let ty = i64::from(ty | O_NONBLOCK);
        self.must(libc::SYS_socketpair, &[libc::AF_UNIX.into(), ty, 0, at]);
        self.room().ints(at)
    }

    /// Makes a non-blocking pipe.
    fn pipe(&self) -> [i32; 2] {
        let at = self.room().words(&[0]);
        self.must(libc::SYS_pipe2, &[at, O_NONBLOCK.into()]);
        self.room().ints(at)
    }

    /// Writes bytes that are the same on both systems.
    fn write(&self, fd: i32, len: usize) {
        let done = self.must(libc::SYS_write, &[fd.into(), self.room().source(), len as i64]);
        assert_eq!(done, len as i64);
    }

    fn close(&self, fd: i32) {
        self.must(libc::SYS_close, &[fd.into()]);
    }
}
