//! Options of sockets.

use crate::{Errno, Process};

impl Process {
    /// Sets an option: its value is the bytes that the system call takes.
    ///
    /// # Errors
    /// As `setsockopt(2)`.
    pub fn setsockopt(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        self.on_socket(fd, |on, _| on.set_option(level, name, value))
    }

    /// Reads an option, as far as there is room for it: how many bytes.
    ///
    /// # Errors
    /// As `getsockopt(2)`.
    pub fn getsockopt(
        &self,
        fd: i32,
        level: i32,
        name: i32,
        to: &mut [u8],
    ) -> Result<usize, Errno> {
        self.on_socket(fd, |on, _| on.option(level, name, to))
    }
}
