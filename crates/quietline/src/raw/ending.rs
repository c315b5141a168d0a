//! The end of a process.

use crate::Process;
use core::mem::ManuallyDrop;
use quietline_platform::atomic::Ordering;
use quietline_sync::Shared;

impl Drop for Process {
    /// Ends the process: its files are closed and its places put before its parent is told.
    fn drop(&mut self) {
        if self.has_locked() {
            let mut end = usize::MAX;
            while let Some(fd) = self.table.last_fd(end) {
                // The others are closed below.
                let _ = self.close(fd);
                end = fd as usize;
            }
        }
        let k = self.kernel.inner();
        let pid = self.task.pid;
        // Relaxed: set by an owner before.
        let status = self.task.status.load(Ordering::Relaxed);
        k.processes.begin_exit(pid, status as i32);
        let task = Shared::get_mut(&mut self.task).expect("no one else keeps a process that ends");
        task.table.clear(&k.files);
        task.cred.run_share();
        // SAFETY: dropped here and nowhere else, and not used after this.
        unsafe { ManuallyDrop::drop(&mut self.task) };
        k.processes.finish_exit(pid);
    }
}
