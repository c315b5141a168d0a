//! Unsafe parts: a type whose memory stays typed while readers look at it.

#![allow(unsafe_code)]

use quietline_slab::{Counted, Typesafe};
use quietline_sync::FileRef;

/// Reference-counted object of 192 bytes for a typesafe cache.
pub(crate) struct Session {
    references: FileRef,
    _bytes: [u64; 23],
}

// SAFETY: there is no LINK_OFFSET.
unsafe impl Typesafe for Session {
    fn construct() -> Self {
        Self { references: FileRef::dead(), _bytes: [7; 23] }
    }
}

// SAFETY: the count is dead until the first life, and nothing but the cache's handles changes it.
unsafe impl Counted for Session {
    fn references(&self) -> &FileRef {
        &self.references
    }
}
