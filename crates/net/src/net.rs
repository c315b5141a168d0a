//! What a kernel's sockets have in common.

use crate::inet::Inet;
use crate::unix::Unix;
#[cfg(not(loom))]
use quietline_slab::LazyCache;
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

    /// The caches of states: of local sockets, of streams and of datagram sockets.
    #[cfg(not(loom))]
    pub fn caches(&self) -> [&LazyCache; 3] {
        let [streams, datagrams] = self.inet.caches();
        [self.unix.cache(), streams, datagrams]
    }

    /// Closes what only messages keep open: no descriptor is left, and no call is being made.
    pub fn end(&self) {
        self.unix.end();
        self.inet.end();
    }
}
