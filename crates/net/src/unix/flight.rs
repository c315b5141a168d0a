//! Open files in messages, and the end of those that only messages keep open (`net/unix/garbage.c`).
//!
//! # The problem
//!
//! A message may hold the open file of a socket in whose queue it lies, or of one whose queue holds the file of the first. When
//! their last descriptors are closed, nobody can receive the messages any more, and no count becomes zero.
//!
//! # The contended way
//!
//! One lock for the graph of what is in flight, taken by whoever sends a socket and whoever receives one.
//!
//! # Our way
//!
//! A socket counts, under its own lock, the messages that hold it. One that is sent for the first time is entered in a register,
//! the part of it that is its sender's CPU's, and stays there until it is closed, or until a search finds it in no message:
//!
//! ```text
//!   register   CPU 0: a, b, c      CPU 1: d      ...         one lock each: to enter, and to leave
//!                     |
//!                    Sock: held by so many messages; frozen           its own lock: to be sent, and to be received
//! ```
//!
//! The message that closes a loop goes to a socket that is in flight already; since there was one, whoever closes a local socket
//! looks for the lost, and so does a sender who finds his part of the register twice as long as his last such search had left it:
//!
//! ```text
//!   1. freeze all that is in the register: what holds sockets stays in the queues
//!   2. how many of the messages in those queues hold each socket, and how many references has its file after that?
//!   3. a socket that something else refers to can be reached
//!   4. what lies in the queue of a socket that can be reached can be reached
//!   5. of the others, those that hold one another in a loop, and that nobody else holds, have their queues emptied, which ends
//!      them, and whom else they hold, unless that is in a loop as well: the next search is for that; the rest thaws
//! ```
//!
//! It takes time in proportion to the sockets that are in messages or were since the last search, and allocates nothing. A process that
//! passes no sockets never comes here: files of other kinds are in no register, for they hold no messages.
//!
//! # Why nothing is lost that somebody can reach
//!
//! Whoever wants to take a message with files out of a frozen queue, or to look at it, or to accept a connection from a frozen
//! listener, or closes either, waits until the search is over. So what was counted in step 2 stays where it is until step 5. A message that is put
//! into a queue meanwhile was made by somebody who had a reference of his own, and is a reference more than was counted. If a file
//! has as many references as messages were counted, at a moment after the counting, then there is nobody to make another one:
//! that can be done with a descriptor, which is a reference, or by receiving one of these messages.
//!
//! What is entered in the register during a search takes no part in it, and what lies there can be reached until the next one.
//!
//! # Why nothing that is lost is forgotten
//!
//! Who puts a message with sockets into a queue finds out under the same lock whether its owner is in flight, and says so
//! afterwards; a search takes note of that before it begins, and says so again if it leaves such a queue behind. Of two messages
//! that close a loop together the one that is put into its queue later finds the owner in flight: the other's sender had counted it
//! before.
//!
//! # Limits
//!
//! As on Linux, a loop whose descriptors are all closed while another message still holds its sockets, or while a call still
//! refers to them, stays until the next local socket is closed, or the kernel ends.
//!
//! # Lock order
//!
//! The search; a part of the register; a listener's state; another socket's. Files are closed when no lock is held.

mod lost;
mod search;

use super::parcel::{Parcel, sock_of};
use super::segment::Segment;
use super::sock::{Sock, State};
use crate::raw::Object;
use crate::socket::Socket;
use quietline_platform::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use quietline_platform::{cpu, fault};
use quietline_sync::{Counter, LazyBox, PerCpu, SpinLock, SpinLockGuard};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;

/// What a socket's state says of it as one that messages hold.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// Messages that hold it.
    held: u32,
    /// Whether it is in the register. Changed under the lock of its part, too.
    entered: bool,
    /// Whether a search wants everything to stay where it is.
    frozen: bool,
}

impl Traffic {
    /// Whether it is in the register.
    pub(super) fn is_entered(&self) -> bool {
        self.entered
    }
}

/// What the register and the searches note of a socket.
///
/// Relaxed, all of it: the place is under the lock of its part, and the rest is the search's, under its lock.
#[derive(Debug)]
pub(super) struct Flight {
    /// The part of the register, and the place there, counted from 1; 0 if it is nowhere.
    place: AtomicU64,
    /// Messages in frozen queues that hold it.
    found: AtomicU32,
    /// References to its file, as they were counted after that.
    references: AtomicU64,
    mark: AtomicU32,
    /// The next to be looked at by a [`flood`](Flights::flood). Nobody takes another lock under this one.
    next: SpinLock<Option<Object<Sock>>>,
}

/// It can be reached, or takes no part in the search.
const DONE: u32 = 0;
/// Nothing is known yet; after the search for what can be reached: it cannot.
const UNKNOWN: u32 = 1;
/// It can be reached; its queue is still to be looked at.
const REACHED: u32 = 2;

impl Flight {
    /// Of a socket that is in no message.
    #[inline(always)]
    pub(super) fn none() -> Self {
        Self {
            place: AtomicU64::new(0),
            found: AtomicU32::new(0),
            references: AtomicU64::new(0),
            mark: AtomicU32::new(DONE),
            next: SpinLock::new(None),
        }
    }

    fn mark(&self) -> u32 {
        self.mark.load(Ordering::Relaxed)
    }

    fn set_mark(&self, mark: u32) {
        self.mark.store(mark, Ordering::Relaxed);
    }
}

/// A part of the register.
#[derive(Default)]
struct Part {
    socks: Vec<Object<Sock>>,
    /// With how many a sender searches himself: who only loses sockets closes none.
    search_at: usize,
}

/// The least of that.
const SEARCH_AT: usize = 1_000;

/// What is in flight in a kernel.
pub(super) struct Flights {
    /// Made when the first socket is entered.
    parts: LazyBox<PerCpu<SpinLock<Part>>>,
    /// Whether there may be a loop: looked at by whoever closes a local socket, seldom written.
    suspicious: AtomicBool,
    /// Files in messages.
    files: Counter,
    /// Held by who looks for the lost.
    search: SpinLock<()>,
}

impl Flights {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            parts: LazyBox::new(),
            suspicious: AtomicBool::new(false),
            files: Counter::new().map_err(|_| Errno::NOMEM)?,
            search: SpinLock::new(()),
        })
    }

    /// Files in messages, more or less.
    pub(super) fn files(&self) -> usize {
        self.files.read().max(0) as usize
    }

    /// A message is about to have these files. Writes the lines of those that are sockets.
    ///
    /// # Errors
    /// `ENOMEM`: nothing has happened.
    pub(super) fn enter(&self, parcel: &mut Parcel) -> Result<(), Errno> {
        let mut sockets = 0;
        let entered = parcel.files().filter_map(sock_of).try_for_each(|socket| {
            sockets += 1;
            self.hold(socket).inspect_err(|_| sockets -= 1)
        });
        parcel.sockets = sockets;
        entered.inspect_err(|_| release(parcel))?;
        self.files.add(parcel.len() as i64);
        parcel.counted = true;
        Ok(())
    }

    /// One more message holds a socket.
    fn hold(&self, socket: &Socket) -> Result<(), Errno> {
        // One that has no state yet may have messages later.
        let sock = socket.unix.sock(socket)?;
        let mut state = sock.lock();
        if !state.traffic.entered {
            drop(state);
            return self.register(socket.unix.sock_share(socket)?);
        }
        state.traffic.held += 1;
        Ok(())
    }

    /// The same, of one that was in no message for a while.
    #[cold]
    fn register(&self, sock: Object<Sock>) -> Result<(), Errno> {
        let cpu = cpu::current();
        let make = || PerCpu::new(|_| SpinLock::new(Part::default()));
        let parts = self.parts.get_or_make(make).map_err(|_| Errno::NOMEM)?;
        let mut part = parts[cpu].lock();
        fault::check().map_err(|_| Errno::NOMEM)?;
        part.socks.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        let mut state = sock.lock();
        state.traffic.held += 1;
        if state.traffic.entered {
            return Ok(());
        }
        state.traffic.entered = true;
        drop(state);
        part.push(cpu, sock);
        // Relaxed: as in `collect`.
        if part.socks.len() > part.search_at.max(SEARCH_AT)
            && self.suspicious.load(Ordering::Relaxed)
        {
            drop(part);
            self.collect_slow();
            let mut part = parts[cpu].lock();
            // Twice what is left, so that a search is for as many as were entered here since the last.
            part.search_at = 2 * part.socks.len();
        }
        Ok(())
    }

    /// The parts of the register.
    fn parts(&self) -> impl DoubleEndedIterator<Item = &SpinLock<Part>> {
        self.parts.get().into_iter().flat_map(PerCpu::iter)
    }

    /// These files are in no message any more, if they were in one. No lock is held by the caller.
    pub(super) fn leave(&self, parcel: &mut Parcel) {
        if core::mem::take(&mut parcel.counted) {
            self.files.add(-(parcel.len() as i64));
            release(parcel);
        }
    }

    /// A message with sockets was put into the queue of a socket that is in flight itself, or of a connection that nobody has
    /// accepted, whose listener may be.
    pub(super) fn suspect(&self) {
        // ORDERING: Release pairs with the acquire in `end_lost`: the search that takes note of this finds the message.
        self.suspicious.store(true, Ordering::Release);
    }

    /// The lock of a socket out of whose queue something is to be taken: not while it is frozen.
    #[inline]
    pub(super) fn lock_thawed<'s>(&self, sock: &'s Sock) -> SpinLockGuard<'s, State> {
        let state = sock.lock();
        if !state.traffic.frozen {
            return state;
        }
        drop(state);
        // While this is held nothing is frozen: the next search is after this.
        let _search = self.search.lock();
        sock.lock()
    }

    /// A local socket was closed: ends what cannot be reached any more. Not while the thread [drops](Self::drop_lost) what was lost,
    /// after which it searches once for all of it.
    #[inline]
    pub(super) fn collect(&self) {
        // Relaxed: who misses it leaves the search to whoever closes the next.
        if self.suspicious.load(Ordering::Relaxed) && !BUSY.with(Cell::get) {
            self.collect_slow();
        }
    }

    /// A socket is closed that [was entered](Traffic::is_entered).
    #[cold]
    pub(super) fn forget(&self, sock: &Sock) {
        // Relaxed: the part was noted before the state said so, under its lock, and is that of a socket that nobody enters any more.
        let place = sock.flight.place.load(Ordering::Relaxed);
        let part = self.parts.get().and_then(|parts| parts.get((place >> 32) as usize));
        let Some(part) = part else { return };
        let mut part = part.lock();
        // A search may have been quicker.
        let place = sock.flight.place.load(Ordering::Relaxed) as u32 as usize;
        let gone = (place != 0).then(|| part.remove(place - 1));
        drop(part);
        drop(gone);
    }

    /// Nobody will receive what was in this queue: whether there were files in it, which are dropped by
    /// [`drop_lost`](Self::drop_lost).
    #[inline]
    pub(super) fn purge(&self, queue: VecDeque<Segment>) -> bool {
        if queue.is_empty() { false } else { self.purge_slow(queue) }
    }

    #[cold]
    fn purge_slow(&self, queue: VecDeque<Segment>) -> bool {
        let mut any = false;
        for mut segment in queue {
            if let Some(parcel) = segment.parcel.take() {
                drop_later(parcel);
                any = true;
            }
            if let Some(from) = segment.from.take() {
                from.uncharge(segment.charge);
            }
        }
        any
    }

    /// Drops what the thread is to drop. No lock is held by the caller. Files whose end leaves more to drop add to the list, which is
    /// worked off by the outermost call: what is deep in another is no recursion.
    ///
    /// Each thread drops what it has found. If one did it for all, others could lose more than it can drop.
    pub(super) fn drop_lost(&self) {
        let Some(_busy) = Busy::enter() else { return };
        while let Some(mut parcel) = first_lost() {
            self.leave(&mut parcel);
            drop(parcel);
        }
    }
}

/// What a thread is to drop. It drops all of it before it goes on; that there is no destructor lets threads close sockets while
/// their storage is torn down.
type Lost = ManuallyDrop<RefCell<Option<Box<Parcel>>>>;

#[cfg(not(loom))]
quietline_platform::thread_local! {
    static LOST: Lost = const { ManuallyDrop::new(RefCell::new(None)) };
    /// Whether the thread is about it.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}
#[cfg(loom)]
quietline_platform::thread_local! {
    static LOST: Lost = ManuallyDrop::new(RefCell::new(None));
    static BUSY: Cell<bool> = Cell::new(false);
}

/// While this lives, the thread drops what is lost.
struct Busy;

impl Busy {
    /// None if the thread is about it already.
    fn enter() -> Option<Self> {
        (!BUSY.with(|busy| busy.replace(true))).then(|| Self)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.with(|busy| busy.set(false));
    }
}

/// Adds a parcel to those that the thread is to drop.
fn drop_later(mut parcel: Box<Parcel>) {
    LOST.with(|lost| {
        let mut lost = lost.borrow_mut();
        parcel.next = lost.take();
        *lost = Some(parcel);
    });
}

fn first_lost() -> Option<Box<Parcel>> {
    LOST.with(|lost| {
        let mut lost = lost.borrow_mut();
        let mut first = lost.take()?;
        *lost = first.next.take();
        Some(first)
    })
}

/// One message fewer holds these sockets.
fn release(parcel: &mut Parcel) {
    let sockets = core::mem::take(&mut parcel.sockets);
    for socket in parcel.files().filter_map(sock_of).take(sockets as usize) {
        let sock = socket.unix.get().expect("it was entered");
        sock.lock().traffic.held -= 1;
    }
}

impl Part {
    /// Adds a socket. There is room for it.
    fn push(&mut self, cpu: usize, sock: Object<Sock>) {
        self.socks.push(sock);
        self.note(cpu, self.socks.len() - 1);
    }

    /// Takes out the one at this place.
    fn remove(&mut self, at: usize) -> Object<Sock> {
        let gone = self.socks.swap_remove(at);
        let place = gone.flight.place.load(Ordering::Relaxed);
        gone.flight.place.store(0, Ordering::Relaxed);
        if at < self.socks.len() {
            self.note((place >> 32) as usize, at);
        }
        gone
    }

    fn note(&self, cpu: usize, at: usize) {
        self.socks[at].flight.place.store((cpu as u64) << 32 | (at as u64 + 1), Ordering::Relaxed);
    }
}

impl Sock {
    /// Whether a message that was just put into the queue, under whose lock this is asked, may close a loop.
    #[inline]
    pub(super) fn may_close_loop(&self, state: &State) -> bool {
        state.traffic.held != 0 || self.is_embryo()
    }
}

impl core::fmt::Debug for Flights {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Flights")
            .field("suspicious", &self.suspicious)
            .field("files", &self.files())
            .finish()
    }
}

impl Drop for Flights {
    fn drop(&mut self) {
        debug_assert!(
            self.parts().all(|part| part.lock().socks.is_empty()),
            "the kernel ends: nothing can be reached"
        );
    }
}
