//! How large a pipe may be.

use super::core::PipeCore;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::pages::PAGE_SIZE;
use rustix::io::Errno;

/// The limits that a kernel sets to its pipes.
#[derive(Debug)]
pub struct PipeLimits {
    max_size: AtomicU32,
}

/// Bytes of the largest pipe that there can be at all.
const LARGEST: u32 = 1 << 31;

/// The bytes that a pipe has room for which is asked for `bytes`: a power of two, at least a page; none above what can be.
fn rounded(bytes: u32) -> Option<u32> {
    (bytes <= LARGEST).then(|| bytes.max(PAGE_SIZE as u32).next_power_of_two())
}

impl PipeLimits {
    /// Linux's defaults.
    pub(crate) fn new() -> Self {
        Self { max_size: AtomicU32::new(1 << 20) }
    }

    /// Bytes that an unprivileged caller may give a pipe room for (`/proc/sys/fs/pipe-max-size`).
    pub fn max_size(&self) -> u32 {
        // Relaxed: a tunable.
        self.max_size.load(Ordering::Relaxed)
    }

    /// Changes that; it is rounded up as a pipe's size is. Pipes stay as they are.
    ///
    /// # Errors
    /// `EINVAL` for more than a pipe can have.
    pub fn set_max_size(&self, bytes: u32) -> Result<(), Errno> {
        let max = rounded(bytes).ok_or(Errno::INVAL)?;
        // Relaxed: a tunable.
        self.max_size.store(max, Ordering::Relaxed);
        Ok(())
    }
}

impl PipeCore {
    /// Gives the pipe room for at least so many bytes (`F_SETPIPE_SZ`): for how many.
    ///
    /// # Errors
    /// `EINVAL` for more than there can be; `EPERM` above the limit, unless `privileged` (`CAP_SYS_RESOURCE`) or less than it
    /// has; `EBUSY` when more pages are full; `ENOMEM`.
    pub fn set_capacity(
        &self,
        bytes: u32,
        limits: &PipeLimits,
        privileged: bool,
    ) -> Result<usize, Errno> {
        let size = rounded(bytes).ok_or(Errno::INVAL)?;
        if size as usize > self.capacity() && size > limits.max_size() && !privileged {
            return Err(Errno::PERM);
        }
        self.resize(size as usize / PAGE_SIZE)?;
        Ok(size as usize)
    }
}
