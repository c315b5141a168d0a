//! Packet buffers.
//!
//! # The problem
//!
//! A forwarder at ten gigabits has 67 ns for each packet, and spends a good part of them on making and freeing two objects: the
//! head, which says what the packet is, and the data. In 2015 the general way of freeing a head took a locked instruction on
//! its slab's word, because by the time the device is done with a packet its slab is long cold.
//!
//! # The contended way
//!
//! `malloc` and `free` for each packet; or a pool that all threads share, which passes buffers through one ring with two
//! locked instructions for each batch.
//!
//! # Our way
//!
//! ```text
//!   Packets ── owns ──> caches of heads, and of data in four sizes
//!     │                        ▲  many at a time
//!     ├── Napi      a poller's own stack: no locked instruction, no per-CPU sequence
//!     ├── Waitlist  an array on the stack: what is done with, freed all at once
//!     └── Skb ── owns a reference ──> head ── owns a reference ──> data ── may have ──> fragments
//!             skb_get: one more to the head     clone: another head, the same data
//! ```
//!
//! A head and its data come from slab caches, in bulk where there is a batch: some tenths of a nanosecond each. Counts are
//! looked at before they are changed, so that what has one owner, as nearly every packet has, needs no locked instruction.
//!
//! # Guarantees
//!
//! * What is shared is never changed: bytes can be written while there is one reference to the head and one to the
//!   data, and lengths while there is one to the head; [`PacketError::Shared`] otherwise.
//! * No offset leaves the buffer: [`PacketError::BadLength`] otherwise.
//! * A reference that is not the last frees nothing. The destructor runs once, before any memory of the packet is given back.
//! * Freeing never fails and needs no memory.
//!
//! # Limits
//!
//! * Linear data up to 16 KiB less the headroom; more goes into fragments, 17 at most. No segmentation offload.
//! * What happens to a packet that is [dropped](Drop) as a value is what [`consume_skb`](Skb::consume_skb) does.
//!
//! # Source
//! `net/core/skbuff.c`, Linux 6.1 and the patches of 2015. Differs in that data comes from caches by size and not from page
//! fragments: see docs/adr/0018-packet-data.md.

mod bulk;
mod defer;
mod frag;
mod listeners;
mod napi;
mod raw;
mod reason;
mod trace;

pub(crate) use bulk::are_none;
pub use bulk::{
    NoBulk, WAITLIST, Waitlist, kfree_skb_bulk, kfree_skb_bulk_heads, kfree_skb_bulk_reason,
    kfree_skb_list, kfree_skb_list_reason,
};
pub use defer::DEFER_MAX;
pub use frag::{Frag, MAX_FRAGS};
pub use listeners::{Event, Listener};
pub use napi::{NAPI_BULK, NAPI_SIZE, Napi};
pub use raw::{Destructor, Packets, Skb};
pub use reason::DropReason;
#[cfg(not(loom))]
pub use trace::listen;

use core::fmt;
use quietline_platform::AllocError;

/// Bytes before a packet's data that [`Packets::alloc_skb`] leaves for headers to come (`NET_SKB_PAD`).
pub const HEADROOM: usize = 64;

/// Why a packet cannot be made or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketError {
    /// Others have references to what would change: make a [copy](Skb::copy), or [unshare](Skb::unshare) it.
    Shared,
    /// A length or an offset that the buffer, or any buffer, has no room for.
    BadLength,
    /// There is no memory.
    NoMemory,
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "the packet is shared; copy or unshare it first",
            Self::BadLength => "the packet's buffer has no room for that",
            Self::NoMemory => "there is no memory for the packet",
        })
    }
}

impl std::error::Error for PacketError {}

impl From<AllocError> for PacketError {
    fn from(_: AllocError) -> Self {
        Self::NoMemory
    }
}
