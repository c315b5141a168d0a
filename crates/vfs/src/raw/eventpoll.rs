//! The unsafe part of epoll: items, which are in several lists at once.
//!
//! ```text
//!   Poller ── owns ──> table ──> Item ── refers to ──> File, Poller
//!                                  ├── entries in the file's wait queues      left before the item ends
//!                                  ├── on the poller's stack or list          under the poller's lock
//!                                  └── among the items of its file            under the file's lock
//! ```
//!
//! Whoever holds a poller's lock finds its items alive, and their files: a file that ends takes the lock of each of its
//! pollers first, and removes its items. So a look at a file needs no reference to it.
//!
//! Generic in the file, so that the model checker can run it.

mod few;
#[cfg(not(loom))]
mod file;
mod hash;
mod item;
mod list;
mod members;
mod nesting;
mod numbers;
mod poller;
mod ready;

#[cfg(not(loom))]
pub use file::EventPolls;
#[cfg(not(loom))]
pub(crate) use file::{Instance, watched_file_ends};
pub(crate) use item::Item;
pub(crate) use members::{Nesting, Wanted, file_ends};
pub(crate) use poller::Poller;

use quietline_sync::WaitQueue;

/// A file that can be watched.
///
/// Called for files that are open, or are ending and have not gone by [`file_ends`] yet. The last
/// two methods are also called for a poller's own file that has ended, until `Poller::shut`
/// returns.
pub(crate) trait Watchable: Sized + 'static {
    /// The events that it has.
    fn look(&self) -> u32;
    /// Calls `each` for every queue in which one waits for its events, two at most, and then looks.
    fn enter(&self, each: &mut dyn FnMut(&WaitQueue)) -> u32;
    /// The poller that it is, if it is one.
    fn poller(&self) -> Option<&Poller<Self>>;
    /// The line that others write before they wake those who wait for its events, and that whoever finds any will write, too; or
    /// null. A hint.
    fn line(&self) -> *const u8 {
        core::ptr::null()
    }
    /// Whether it has items: a look.
    fn has_items(&self) -> bool;
    /// Calls `f` with the first of its items, under a lock of its own.
    fn with_items<R>(&self, f: impl FnOnce(&mut *mut Item<Self>) -> R) -> R;
}
