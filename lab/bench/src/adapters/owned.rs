//! A descriptor of quietline's, as `OwnedFd` is one of the host's.

use std::sync::Arc;

use quietline::Process;

/// A descriptor, closed when it is dropped.
pub(super) struct Owned {
    pub(super) process: Arc<Process>,
    pub(super) fd: i32,
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.process.close(self.fd).expect("it is open");
    }
}
