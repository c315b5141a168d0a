//! Fragments: data that a packet has besides its linear part.

use super::PacketError;
use core::fmt;
use quietline_platform::{AllocError, heap};
use quietline_sync::Shared;

/// Fragments that a packet may have (`MAX_SKB_FRAGS`).
pub const MAX_FRAGS: usize = 17;

/// Bytes that several packets may refer to: a part of a block that nobody changes any more.
///
/// Cloning counts one more reference to the block: one locked instruction on its line.
#[derive(Clone)]
pub struct Frag {
    block: Shared<Box<[u8]>>,
    offset: u32,
    len: u32,
}

impl Frag {
    /// A fragment with a copy of some bytes, 4 GiB at most.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn copy_of(bytes: &[u8]) -> Result<Self, AllocError> {
        let len = u32::try_from(bytes.len()).map_err(|_| AllocError)?;
        let block = heap::try_boxed_slice(bytes.len(), |i| bytes[i])?;
        Ok(Self { block: Shared::new(block)?, offset: 0, len })
    }

    /// A part of this one, from `offset` on.
    ///
    /// # Errors
    /// [`PacketError::BadLength`].
    pub fn part(&self, offset: usize, len: usize) -> Result<Self, PacketError> {
        let end = offset.checked_add(len).ok_or(PacketError::BadLength)?;
        if end > self.len() {
            return Err(PacketError::BadLength);
        }
        Ok(Self { block: self.block.clone(), offset: self.offset + offset as u32, len: len as u32 })
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        let start = self.offset as usize;
        &self.block[start..start + self.len as usize]
    }
}

impl fmt::Debug for Frag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frag").field("len", &self.len).finish_non_exhaustive()
    }
}
