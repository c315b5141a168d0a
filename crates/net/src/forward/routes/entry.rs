//! What a word of a routes' table says.

/// A word of a table: the two upper bits say which of three things it is.
///
/// ```text
///   leaf    00 | depth: 8 | next hop: 22      the longest prefix for all addresses that come here; next hop 0: none
///   chunk   01 | number: 30                   look at more bits, there
///   tail    10 | number: 30                   one prefix is left here: compare
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(pub(super) u32);

const INDEX: u32 = (1 << 30) - 1;
const CHUNK: u32 = 1 << 30;
const TAIL: u32 = 2 << 30;
const HOP: u32 = (1 << HOP_BITS) - 1;
const HOP_BITS: u32 = 22;

/// Next hops that a table may name, and one that is none.
pub(super) const MOST_HOPS: u32 = if cfg!(loom) { 4 } else { 1 << HOP_BITS };

/// What an [`Entry`] is.
pub(super) enum Kind {
    Leaf,
    Chunk(u32),
    Tail(u32),
}

impl Entry {
    /// No route.
    pub(super) const NONE: Self = Self(0);

    /// The end of a prefix of length `depth`, 128 at most.
    pub(super) fn leaf(depth: u32, hop: u32) -> Self {
        debug_assert!(depth <= 128 && hop < MOST_HOPS);
        Self(depth << HOP_BITS | hop)
    }

    pub(super) fn chunk(number: u32) -> Self {
        debug_assert!(number <= INDEX);
        Self(CHUNK | number)
    }

    pub(super) fn tail(number: u32) -> Self {
        debug_assert!(number <= INDEX);
        Self(TAIL | number)
    }

    #[inline(always)]
    pub(super) fn kind(self) -> Kind {
        match self.0 {
            ..CHUNK => Kind::Leaf,
            CHUNK..TAIL => Kind::Chunk(self.0 & INDEX),
            TAIL.. => Kind::Tail(self.0 & INDEX),
        }
    }

    /// The length of a leaf's prefix.
    pub(super) fn depth(self) -> u32 {
        (self.0 & INDEX) >> HOP_BITS
    }

    /// A leaf's next hop; 0 for none.
    #[inline(always)]
    pub(super) fn hop(self) -> u32 {
        self.0 & HOP
    }
}
