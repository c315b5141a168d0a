//! What `quietline_inline.h` knows of the library, besides the first word of a cache: part of the interface. A library whose
//! sheaves lie otherwise stores 0 in that word.

/// log2 of the distance between two CPUs' words: for quietline_inline.h.
pub const QL_INLINE_CPU_SHIFT: usize = 16;

/// Offset of a sheaf's capacity; its length is at 0. For quietline_inline.h.
pub const QL_INLINE_CAPACITY: usize = 8;

/// Offset of a sheaf's first object: for quietline_inline.h.
pub const QL_INLINE_SLOTS: usize = 48;
