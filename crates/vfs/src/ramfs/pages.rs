//! The contents of a regular file: sparse, page by page, read without a lock.
//!
//! # The problem and the contended way
//!
//! Many threads read one file, and some write it. With a lock around the contents every read writes the lock's line, also
//! when nobody writes; with a reference count in each page, the page's.
//!
//! # Our way
//!
//! A [radix tree](PageTree) of 4 KiB pages, found under RCU: a read loads the size, walks one word for each level (none for
//! a file of one page), copies, and looks at the size again. It writes nothing that anybody shares. Writers exclude each
//! other by the tree's lock ([`PageTree::write`]), readers never wait for them.
//!
//! ```text
//!   read_at   size ─ root ─ node ─ page ─ copy ─ size again          under an RCU section
//!   write     lock ─ page there?  copy into it, for all to see
//!                    hole?        room charged, page made, filled, *then* published ─ size
//! ```
//!
//! # What a reader sees beside a writer
//!
//! * Each byte is one that the file had at this place at some time during the read. Bytes written by one call may be seen in
//!   part, also within a page; Linux promises no more.
//! * A page that a write makes is seen with all that the write has put in it, or not at all (as zeros). The pages of a write
//!   appear in their order.
//! * Who sees a size sees all bytes below it that were written before it: a reader that reads up to the size it sees
//!   never finds half of a record that was appended by one call.
//! * Bytes that were cut off are not seen as zeros: the read ends before them, unless the file has grown again.
//! * Never memory that is not the file's, or not any more.
//!
//! # How a file ends
//!
//! Pages that a writer takes out wait for a grace period: readers go on beside it. Whoever has the file for himself gives
//! them back at once, and warm ([`PageTree::clear`], [`PageTree::end`], dropping it): a file of one page that is made,
//! written and ended so costs some 50 ns, and with a grace period 240.
//!
//! # Limits
//!
//! * A section that is open for long keeps memory from being freed: [`PageTree::read`] takes one for each 256 KiB.
//! * `FALLOC_FL_ZERO_RANGE`, `COLLAPSE_RANGE` and `INSERT_RANGE` are not there, as on tmpfs, which answers `EOPNOTSUPP`.
//! * A node (576 bytes) for each 64 pages, and its share of those above it, are not counted against the limit.
//!
//! # Lock order
//!
//! The tree's lock; inside it the quota's, and those of the slab caches' slow paths. Page removal frees by RCU, which may run
//! callbacks: do not hold a lock that they take.

mod caches;
mod change;
mod read;
mod seek;

pub use crate::raw::page_tree::{PageTree, PageWriter};
pub use caches::{PageCaches, Quota};
pub use change::{RESERVE_TURN, Reservation};
pub use quietline_platform::pages::PAGE_SIZE;
use read::{Pieces, page_of};
pub use seek::Seek;

/// The largest size of a file: no offset is above it (`MAX_LFS_FILESIZE`).
pub const MAX_SIZE: u64 = i64::MAX as u64;
