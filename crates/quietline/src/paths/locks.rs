//! Locks on files.

use crate::{Errno, FileHandle, Process};
use quietline_platform::atomic::Ordering;
use quietline_vfs::file;
use quietline_vfs::locks::{
    F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_SETLK, F_SETLKW, F_UNLCK, Flock,
};
use quietline_vfs::locks::{LOCK_EX, LOCK_MAND, LOCK_NB, LOCK_SH, LOCK_UN};

impl Process {
    /// Locks a whole file for this open file: `LOCK_SH`, `LOCK_EX`, `LOCK_UN`, with `LOCK_NB`.
    ///
    /// # Errors
    /// As `flock(2)`; `EINTR` if the thread's [`Interrupt`](crate::Interrupt) is raised.
    pub fn flock(&self, fd: i32, operation: i32) -> Result<(), Errno> {
        if operation & LOCK_MAND != 0 {
            // What has no meaning any more succeeds, whatever the descriptor.
            return Ok(());
        }
        if !matches!(operation & !LOCK_NB, LOCK_SH | LOCK_EX | LOCK_UN) {
            return Err(Errno::INVAL);
        }
        file::flock(&self.file(fd)?, &self.inner().vfs, operation)
    }

    /// `F_GETLK`, `F_SETLK`, `F_SETLKW`, `F_OFD_GETLK`, `F_OFD_SETLK`, `F_OFD_SETLKW`: locks bytes of a file for the process, or
    /// for the open file, or says who has them.
    ///
    /// # Errors
    /// As `fcntl(2)`; `EINTR` if the thread's [`Interrupt`](crate::Interrupt) is raised.
    pub fn fcntl_lock(&self, fd: i32, cmd: i32, flock: &mut Flock) -> Result<(), Errno> {
        let file = self.fget(fd)?;
        if !matches!(cmd, F_GETLK | F_SETLK | F_SETLKW | F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW) {
            return Err(Errno::INVAL);
        }
        // Relaxed: a close by another thread beside this call may come before it.
        if matches!(cmd, F_SETLK | F_SETLKW) {
            self.locks.store(true, Ordering::Relaxed);
        }
        file::lock_bytes(&file, &self.inner().vfs, cmd, flock, self.pid)?;
        // Whoever closed the descriptor meanwhile has dropped the process's locks before there was this one.
        let closed = || !self.file(fd).is_ok_and(|now| now.same_file(&file));
        if matches!(cmd, F_SETLK | F_SETLKW) && flock.l_type != F_UNLCK && closed() {
            self.drop_locks(&file);
            return Err(Errno::BADF);
        }
        Ok(())
    }

    /// Whether the process has ever locked bytes of a file: then its closes look for locks to drop.
    #[inline(always)]
    pub(crate) fn has_locked(&self) -> bool {
        // Relaxed: as above.
        self.locks.load(Ordering::Relaxed)
    }

    /// The process is about to close a descriptor for a file.
    pub(crate) fn drop_locks(&self, file: &FileHandle<'_>) {
        file::process_closes(file, &self.inner().vfs, self.pid);
    }
}
