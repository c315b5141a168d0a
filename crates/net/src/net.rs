//! What a kernel's sockets have in common.

use crate::inet::Inet;
use crate::unix::Unix;
use rustix::io::Errno;

/// What a kernel's sockets have in common: names, ports, what is in flight. One for each kernel, at one address for its
/// life. Who drops it calls [`end`](Self::end) first, while there still are files.
#[derive(Debug)]
pub struct Net {
    pub(crate) unix: Unix,
    pub(crate) inet: Inet,
}

impl Net {
    /// No sockets yet.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self { unix: Unix::new()?, inet: Inet::new()? })
    }

    /// Closes what only messages keep open: no descriptor is left, and no call is being made.
    pub fn end(&self) {
        self.unix.end();
    }
}
