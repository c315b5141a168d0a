//! Descriptors of processes.
//!
//! # Limits
//!
//! A pidfd has no inode of its own. All of them share the one of anonymous descriptors.
//!
//! # Source
//!
//! `kernel/pid.c`, `fs/pidfs.c`; `pidfd_open(2)`.

use crate::abi::{O_NONBLOCK, O_RDWR};
use crate::file::{FileMode, Files, Io};
use crate::inode::PseudoInode;
use crate::poll::{Events, PollTable};
use crate::raw::handle::FileHandle;
use crate::raw::pseudo::{Payload, PseudoFs};
use crate::signalfd::Signals;
use core::fmt;
use quietline_sync::Shared;
use rustix::io::Errno;

/// A descriptor of a process. It stays that process's also when the number is another's.
#[derive(Debug)]
pub struct PidFd {
    of: Shared<Signals>,
    pid: i32,
}

impl PidFd {
    /// The number that the process has, or had.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The signals of the process, which tell it from a later one with its number.
    pub fn signals(&self) -> &Signals {
        &self.of
    }
}

impl Payload for PidFd {
    const CACHE: &'static str = "pidfd";
    const READS: bool = false;
    const WRITES: bool = false;

    fn inode(&self) -> Option<&PseudoInode> {
        None
    }

    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anon_inode:[pidfd]")
    }

    fn poll(&self, _io: Io, table: &mut PollTable<'_>) -> Events {
        self.of.poll_end(table)
    }
}

/// Opens a descriptor of the process with these signals. Flags: `O_NONBLOCK`.
///
/// # Errors
/// `ENFILE`, `ENOMEM`.
pub fn pidfd<'k>(
    fs: &'k PseudoFs<PidFd>,
    files: &'k Files,
    of: Shared<Signals>,
    pid: i32,
    flags: i32,
) -> Result<FileHandle<'k>, Errno> {
    let mode = FileMode::READ.union(FileMode::WRITE);
    fs.open(files, PidFd { of, pid }, O_RDWR | (flags & O_NONBLOCK), mode)
}
