//! The unsafe part of this crate: counted objects, and promises about who outlives whom.
//!
//! ```text
//!   Kernel ── owns ──> Net, files, sockets' caches
//!     Net ── owns ──> the caches of sockets' states, which outlive sockets
//!     Socket ── refers to ──> Net        a socket is a file's, and files end before their kernel
//!     message ── holds ──> files         messages are sockets'; Net ends what only they hold
//! ```

#![allow(unsafe_code)]

pub(crate) mod caller;
mod object;

pub(crate) use self::object::{Named, Object, Objects};

use self::caller::Caller;
use crate::net::Net;
use core::mem::transmute;
use core::ptr::NonNull;
use quietline_vfs::FileHandle;
use rustix::io::Errno;

/// A kernel's sockets, for one of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NetRef(NonNull<Net>);

// SAFETY: shared by design.
unsafe impl Send for NetRef {}
// SAFETY: as above.
unsafe impl Sync for NetRef {}

impl NetRef {
    /// For sockets of the kernel that `net` is of, and for nobody else.
    #[inline(always)]
    pub(crate) fn of(net: &Net) -> Self {
        Self(NonNull::from(net))
    }

    /// The kernel's sockets.
    #[inline(always)]
    pub(crate) fn get(&self) -> &Net {
        // SAFETY: whoever has a socket keeps its file open or is inside a section in which it was, and a kernel outlives its
        // files; what is freed by RCU does not use this any more.
        unsafe { self.0.as_ref() }
    }
}

/// A file of a caller, as a message keeps it.
pub(crate) fn in_flight(who: &dyn Caller, fd: i32) -> Result<FileHandle<'static>, Errno> {
    let file = who.file(fd)?;
    // SAFETY: only the lifetime changes. The file is of the kernel whose sockets ask, says `Caller`; messages lie in sockets of
    // that kernel, which drop them when they are closed. What only messages keep open, `Net` closes when it is dropped, before
    // the kernel's files are.
    Ok(unsafe { transmute::<FileHandle<'_>, FileHandle<'static>>(file) })
}
