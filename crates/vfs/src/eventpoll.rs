//! epoll: many files, and one place to wait for what happens to any of them.
//!
//! # The problem
//!
//! A server has ten thousand connections and waits for the few that have something to say. What it is told must not depend on
//! how many it has, no event may be lost between two waits, and threads that wait in different places must not meet.
//!
//! # The contended way
//!
//! Before 4.15 every wake-up of an epoll that is watched by another one was noted in one list of the whole system, under one
//! lock, in case that it came back to itself; so was every poll of such an epoll, in a second list.
//! A customer's dispatcher on 18 cores, with a mesh of pipes and two levels of epolls, spent 83 %
//! of its time in the slow path of spinlocks. Both lists went when it was seen that additions had
//! refused all circles long since. What is left in Linux is one lock in each epoll, which every
//! wake-up takes beside every wait.
//!
//! # Our way
//!
//! ```text
//!   file ── wait queue ──> Item ──number──> one word ──noted or taken──> list ──> looked at, in order ──> events
//!                           │               no lock                       │ under the epoll's lock
//!                           │                                             ├─ level-triggered and ready: to the end again
//!                           └── read only                                 └─ else: off, after the word was taken
//! ```
//!
//! | | lines that others may write, too |
//! |---|---|
//! | a wake-up | the queue of the file; the epoll's word, with the queue of those who poll it; if somebody waits, that queue |
//! | a wait with nothing ready | none: two loads |
//! | a wait that finds something | the epoll's lock; its word, if an item leaves; what a look at the file writes: nothing |
//! | a change, a deletion | the epoll's lock, the item, the queues of the file |
//! | an addition | as a deletion, and the file's count |
//!
//! So a message through a pipe and two epolls takes four lines from its writer to its reader: the pipe's two (one of them with all
//! that a look and a wake-up need) and a word of each epoll; and the line with its bytes. What is left of the items is written by
//! one side only. An epoll gives numbers of a byte to its first 255 items, and up to seven of them are in the word in the order in
//! which they came; where they do not fit, or have none, items are pushed to a stack on top of it, which costs a line of the item.
//!
//! Nothing of it is shared between epolls, at any depth, except that additions that nest come one at a time in a kernel. Epolls
//! that watch one file meet in that file: in its queue, under whose lock a wake-up calls them all, and in the list of its items.
//!
//! Inside one epoll three things are shared, because it is one place: the word, on which each wake-up of an item makes one
//! exchange (two, if its guess of what is there was wrong); the queue of sleepers, if there are any; and the lock, which those
//! who wait and those who add and remove take, and no waker ever does. So a waker never waits for a thread that looks through
//! ten thousand files, nor that thread for a storm of wakers: it reads what they have pushed, or takes it by one exchange. In
//! Linux both take `ep->lock` for each item; that lock's readers were made lock-free once, and it was taken back, because a
//! waiter then spun for wakers that had lost their CPU. Here nobody spins: a push is complete or has not
//! happened. (A second waker of an item that the first is about to push to the stack leaves it, and the news of it, to him.)
//!
//! # Guarantees
//!
//! * Results, errors, events and their order are Linux's: level- and edge-triggered, one-shot, exclusive, nested.
//! * No event is lost across a scan, a change, or an addition: whoever takes an item off says so first and looks once more.
//! * First come, first served: what is left of a scan comes first in the next, then what has come since; what is still ready
//!   goes to the end. (What other threads tell of while a scan goes on may come behind what it has found still ready.)
//! * A file leaves all epolls when its last reference goes, whoever holds which lock; afterwards no event of it is told.
//! * Five epolls in a chain, no circle, and so many paths to a file as Linux allows: see `raw::eventpoll::nesting`.
//!
//! # Limits
//!
//! * Masks of signals, which `epoll_pwait` takes, are the caller's affair: no thread has one here.
//! * Its locks are not held across a `fork` of the host: one that another thread holds at that moment stays locked in the child.
//! * A file has two queues at most in which one waits for it.
//! * The lock is held while files are looked at. Nobody holds it asleep.
//!
//! # Lock order
//!
//! The kernel's lock of nesting; epolls' locks, the outer before the inner; a file's list of items, the inner before the outer; a
//! file's queue, then the queue of the epoll that watches it, and so outwards. Of a file's own locks those that a look takes come
//! last; whoever holds one of them wakes nobody.

pub(crate) mod control;
pub(crate) mod flags;
mod instance;
mod wait;

pub use control::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, check_control, control_add};
pub use flags::*;
pub use instance::{EPOLL_CLOEXEC, EpollEvent, EventPoll, epoll_create1};
pub use wait::{EP_MAX_EVENTS, check_wait};
