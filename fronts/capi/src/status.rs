//! What a function says when it has not done what it was asked.

use core::ffi::{c_char, c_uint};
use quietline_net::packet::PacketError;
use quietline_platform::{AllocError, FenceError};
use quietline_slab::CacheError;
use rustix::io::Errno;

/// The result of a function that can fail.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ql_status {
    /// Done.
    QL_OK = 0,
    /// A pointer was NULL that must not be, a structure's struct_size is none that this library knows, a flag is unknown, or a
    /// text cannot be understood.
    QL_INVALID = 1,
    /// The system gave no memory. Nothing was changed.
    QL_NO_MEMORY = 2,
    /// Objects of this size or alignment are too large for a slab cache.
    QL_TOO_LARGE = 3,
    /// The alignment is no power of two, or link_offset is no multiple of 4 inside the object.
    QL_BAD_LAYOUT = 4,
    /// A name is longer than QL_NAME_MAX - 1 bytes, or no UTF-8.
    QL_BAD_NAME = 5,
    /// Others have references to the packet or to its data: make a copy first.
    QL_SHARED = 7,
    /// The packet's buffer, or any buffer, has no room for that.
    QL_BAD_LENGTH = 8,
    /// The kernel refuses membarrier to the calling thread. Nothing was changed.
    QL_REFUSED = 9,
}

/// A sentence in English for a status; a sentence that says so for a number that is none. Never NULL; lives as long as the
/// process. Takes a number, so that any may be asked for.
#[unsafe(no_mangle)]
pub extern "C" fn ql_status_message(status: c_uint) -> *const c_char {
    let message = match status {
        0 => c"success",
        1 => c"an argument is NULL or has a value that this library does not know",
        2 => c"out of memory",
        3 => c"the object is too large for a slab cache",
        4 => c"the alignment must be a power of two, and link_offset a multiple of 4 inside the object",
        5 => c"a name must be UTF-8 and shorter than QL_NAME_MAX bytes",
        7 => c"the packet is shared; copy it first",
        8 => c"the packet's buffer has no room for that",
        9 => c"the kernel refuses membarrier to the calling thread",
        _ => c"not a status of this library",
    };
    message.as_ptr()
}

impl From<AllocError> for ql_status {
    fn from(_: AllocError) -> Self {
        Self::QL_NO_MEMORY
    }
}

impl From<FenceError> for ql_status {
    fn from(_: FenceError) -> Self {
        Self::QL_REFUSED
    }
}

impl From<CacheError> for ql_status {
    fn from(error: CacheError) -> Self {
        match error {
            CacheError::TooLarge { .. } => Self::QL_TOO_LARGE,
            CacheError::BadLayout => Self::QL_BAD_LAYOUT,
            CacheError::Alloc(AllocError) => Self::QL_NO_MEMORY,
            CacheError::Hooks
            | CacheError::WrongType { .. }
            | CacheError::Domain
            | CacheError::Account => {
                unreachable!("no typed cache is made here, and no account is charged")
            }
        }
    }
}

impl From<PacketError> for ql_status {
    fn from(error: PacketError) -> Self {
        match error {
            PacketError::Shared => Self::QL_SHARED,
            PacketError::BadLength => Self::QL_BAD_LENGTH,
            PacketError::NoMemory => Self::QL_NO_MEMORY,
        }
    }
}

impl From<Errno> for ql_status {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOMEM => Self::QL_NO_MEMORY,
            _ => Self::QL_INVALID,
        }
    }
}

/// The status of a function's body.
pub(crate) fn status(body: impl FnOnce() -> Result<(), ql_status>) -> ql_status {
    match body() {
        Ok(()) => ql_status::QL_OK,
        Err(status) => status,
    }
}
