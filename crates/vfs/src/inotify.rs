//! inotify: who wants to know what happens to a file.
//!
//! # The problem and the contended way
//!
//! Every open, read, write and close has to ask whether anybody watches the file or the directory that it is in, and
//! nearly always nobody does. Linux asks the inode, its superblock and its mount, and keeps a flag in every child
//! of a watched directory.
//!
//! # Our way
//!
//! ```text
//!   inode ──(null until first watched)──> Watches ── list ──> Watch ──> Instance ── queue of events <── read
//!   parent ─(null until first watched)──> Watches ── list ──> Watch ──────┘   └──── wd ──> Watch
//! ```
//!
//! An operation loads one pointer of its inode and one of the parent's: null, and that was all. What has once been
//! watched costs one load more, of the events that anybody wants of it ([`Watches::wants`]).
//!
//! # Guarantees
//!
//! * Events, their order for one file, the merging of an event with an equal one before it, overflow, `IN_IGNORED`, one-shot
//!   watches, numbers of watches and the bytes that `read` gives are Linux's.
//! * An instance may be closed, and a watch removed, while events are raised: both sides hold counted references, and an
//!   event is either queued before the removal's `IN_IGNORED` or not at all.
//! * No memory for an event: as if the queue were full, so the reader learns that something is missing.
//!
//! # Limits
//!
//! A watch does not keep its inode: whoever ends an inode calls [`Watches::deleted`], [`Watches::unmounted`] or
//! [`Watches::forget`] first, without which watches and instances stay in memory.
//!
//! # Lock order
//!
//! An instance's table of watches, a file's list of watches, an instance's queue (a leaf, but for its wait queue). Events
//! are raised without the first. Watches and instances refer to each other, until they are removed or closed.

mod instance;
mod limits;
mod mask;
mod queue;
mod watches;

pub use instance::{Inotify, WatchInfo};
pub use limits::InotifyLimits;
pub use mask::*;
pub use watches::{Happening, Watches, notify};
