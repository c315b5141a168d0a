//! Dentries: what a name stands for.
//!
//! # The problem
//!
//! A path walk visits a dentry for each component. In 2009 it took a lock for each, until 3.10 a lock to count one; today it
//! writes nothing, and most of what is left is lines that miss the cache.
//!
//! # Our way
//!
//! Two lines: the first is all that a walk reads, the second all that references write.
//!
//! ```text
//!   line 0   d_seq  d_state | hash and length of the name | d_inode | d_parent | table of names below | name, 24 bytes
//!   line 1   d_lockref | place on the LRU | d_offset | d_sb
//! ```
//!
//! # Who writes what
//!
//! | | under |
//! |---|---|
//! | name, parent, inode, `d_seq`, UNHASHED, PINNED, UNCOUNTED | the lock of the directory that the dentry is in, and a write section of `d_seq` |
//! | the table of names below | the lock of the dentry's own inode |
//! | the count to 0 and from there to dead, the place on the LRU | `d_lockref`'s lock |
//! | MOUNTED and other flags | whoever the flag belongs to, by indivisible changes |
//!
//! # Lock order
//!
//! Locks of directories; inside them one superblock's lock of directory moves; inside it `d_lockref`, one at a time; inside it
//! the lock of an LRU.

mod pseudo;

pub use crate::raw::dcache::entry::Dentry;
pub use pseudo::PseudoDentry;

bitflags::bitflags! {
    /// What a dentry is (`d_flags`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct DentryFlags: u32 {
        /// In no directory: no lookup finds it.
        const UNHASHED = 1;
        /// Its own parent, part of no tree.
        const DISCONNECTED = 2;
        /// No RCU reader can see it, so that it is freed at once.
        const NORCU = 4;
        /// Its directory keeps a reference to it, so it stays until it is taken out.
        const PINNED = 8;
        /// Something may be mounted on it, in some namespace.
        const MOUNTED = 16;
        /// A lookup asks the filesystem whether it is still right (`DCACHE_OP_REVALIDATE`).
        const REVALIDATE = 32;
        /// What it stands for holds for a limited time: see
        /// [`Node::is_current`](crate::Node::is_current).
        const TIMED = 128;
        /// It has no reference to its parent, which stays because it has this name: see [`LockedDir`](crate::raw::dcache::locked).
        const UNCOUNTED = 64;
    }
}
