//! How a kernel shall be.

use quietline_vfs::abi::NR_OPEN;

/// What [`Kernel::boot`](crate::Kernel::boot) is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Files that may be open at once in all processes together (`/proc/sys/fs/file-max`); `ENFILE` beyond.
    /// Default: no limit.
    pub file_max: u64,
    /// Descriptors of a process are below this (`RLIMIT_NOFILE`); `EMFILE` beyond. At most, and by default, 1,048,576.
    pub nofile: usize,
    /// Whether processes have the capabilities of root: raw sockets, clocks that wake the system, no `file_max`.
    /// Default: no.
    pub privileged: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { file_max: u64::MAX, nofile: NR_OPEN, privileged: false }
    }
}

impl Config {
    /// With another [`file_max`](Self::file_max).
    pub fn file_max(self, file_max: u64) -> Self {
        Self { file_max, ..self }
    }

    /// With another [`nofile`](Self::nofile).
    pub fn nofile(self, nofile: usize) -> Self {
        Self { nofile, ..self }
    }

    /// With or without the capabilities of root.
    pub fn privileged(self, privileged: bool) -> Self {
        Self { privileged, ..self }
    }
}
