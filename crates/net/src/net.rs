//! What a kernel's sockets have in common.

use crate::inet::Inet;
use crate::memory::SocketMemory;
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
    /// After the sockets, which charge it.
    pub(crate) memory: SocketMemory,
}

impl Net {
    /// No sockets yet.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self { unix: Unix::new()?, inet: Inet::new()?, memory: SocketMemory::new() })
    }

    /// The caches of states: of local sockets, of streams and of datagram sockets.
    #[cfg(not(loom))]
    pub fn caches(&self) -> [&LazyCache; 3] {
        let [streams, datagrams] = self.inet.caches();
        [self.unix.cache(), streams, datagrams]
    }

    /// The memory of socket buffers, and its limits.
    pub fn memory(&self) -> &SocketMemory {
        &self.memory
    }

    /// Closes what only messages keep open: no descriptor is left, and no call is being made.
    pub fn end(&self) {
        self.unix.end();
        self.inet.end();
    }
}
