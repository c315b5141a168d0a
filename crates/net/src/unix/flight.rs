//! Open files in messages, and the end of those that only messages keep open (`net/unix/garbage.c`).
//!
//! # The problem
//!
//! A message may hold the open file of a socket in whose queue it lies, or of one whose queue holds the file of the first. When
//! their last descriptors are closed, nobody can receive the messages any more, and no count becomes zero.
//!
//! # Our way
//!
//! Sockets in flight, and only those, are entered in a table, each with the number of messages that hold it. The message that
//! closes a loop goes to a socket that is in flight already; since there was one, whoever closes a local socket looks for the
//! lost:
//!
//! ```text
//!   1. look into the queues of all sockets in the table: how many of the messages that hold a socket lie there?
//!   2. a socket that is held by more messages than that, or by more than messages, can be reached
//!   3. what lies in the queue of a socket that can be reached can be reached
//!   4. of the others, those that hold one another in a loop, and that nobody else holds, have their queues emptied,
//!      which ends them, and whom else they hold, unless that is in a loop as well: the next search is for that
//! ```
//!
//! It takes time in proportion to what is in flight, and allocates nothing. A process that passes no sockets never comes here:
//! files of other kinds are in no table, for they hold no messages.
//!
//! # Why nothing is lost that somebody can reach
//!
//! A socket is entered before its message is in a queue, and a message that holds sockets is taken out of a queue, or looked at,
//! only under the table's lock. So while the table is locked a message that is counted in step 1 stays where it is, one that is
//! on its way is counted in the table and in no queue, and a socket that a thread has just received has a reference that is
//! no message's.
//!
//! # Limits
//!
//! As on Linux, a loop whose descriptors are all closed while another message still holds its sockets stays until the next
//! local socket is closed, or the kernel ends.
//!
//! # Lock order
//!
//! The table, then a listener's state, then another socket's. Files are closed when no lock is held.

use super::segment::Segment;
use super::sock::{Sock, State};
use crate::abi::AF_UNIX;
use crate::raw::Object;
use crate::socket::Socket;
use quietline_platform::atomic::{AtomicBool, Ordering};
use quietline_platform::{fault, heap};
use quietline_sync::{Counter, SpinLock, SpinLockGuard};
use quietline_vfs::FileHandle;
use rustix::io::Errno;
use std::collections::VecDeque;

/// The open files in a message.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) files: Vec<FileHandle<'static>>,
    /// How many of them are entered in the table.
    sockets: u32,
    /// The next to be dropped.
    next: Option<Box<Parcel>>,
}

/// The local socket that a file is.
fn sock_of<'f>(file: &'f FileHandle<'_>) -> Option<&'f Socket> {
    file.payload::<Socket>().filter(|socket| socket.family() == AF_UNIX)
}

impl Parcel {
    /// These files.
    pub(super) fn new(files: Vec<FileHandle<'static>>) -> Result<Box<Self>, Errno> {
        heap::try_box(Self { files, sockets: 0, next: None }).map_err(|_| Errno::NOMEM)
    }

    /// Whether a message with it is to be touched only under the table's lock.
    #[inline(always)]
    pub(super) fn has_sockets(&self) -> bool {
        self.sockets != 0
    }

    /// Another one with the same files, in no message.
    pub(super) fn copy(&self) -> Result<Vec<FileHandle<'static>>, Errno> {
        let mut files = Vec::new();
        fault::check().map_err(|_| Errno::NOMEM)?;
        files.try_reserve_exact(self.files.len()).map_err(|_| Errno::NOMEM)?;
        files.extend(self.files.iter().cloned());
        Ok(files)
    }
}

/// A socket in flight.
pub(super) struct Entry {
    pub(super) sock: Object<Sock>,
    /// Messages that hold it; how many of these were found in queues of sockets in flight.
    held: u32,
    found: u32,
    /// References to its file, as they were counted.
    references: u64,
    pub(super) mark: Mark,
    /// The next one to be looked at: its place and one.
    pub(super) next: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Unknown,
    /// Can be reached; its queue is still to be looked at.
    Reached,
    Done,
    /// Cannot be reached: see [`find_lost`](Table::find_lost).
    First,
    Held,
    Below,
    /// To be emptied.
    Lost,
}

/// The sockets in flight.
#[derive(Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Entry>,
    /// Those that no message holds stay: they are being gone through.
    keeps: bool,
}

/// What is in flight in a kernel.
pub(super) struct Flights {
    table: SpinLock<Table>,
    /// Whether there may be a loop: looked at by whoever closes a local socket, seldom written.
    suspicious: AtomicBool,
    /// Files in messages.
    files: Counter,
    /// What is to be dropped, and whether somebody is about it: files whose end ends more files are no recursion.
    lost: SpinLock<Option<Box<Parcel>>>,
    busy: AtomicBool,
}

impl Flights {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            table: SpinLock::new(Table::default()),
            suspicious: AtomicBool::new(false),
            files: Counter::new().map_err(|_| Errno::NOMEM)?,
            lost: SpinLock::new(None),
            busy: AtomicBool::new(false),
        })
    }

    /// The table, locked.
    pub(super) fn lock(&self) -> SpinLockGuard<'_, Table> {
        self.table.lock()
    }

    /// Files in messages, more or less.
    pub(super) fn files(&self) -> usize {
        self.files.read_positive() as usize
    }

    /// A message is about to have these files.
    ///
    /// # Errors
    /// `ENOMEM`: nothing has happened.
    pub(super) fn enter(&self, parcel: &mut Parcel) -> Result<(), Errno> {
        let sockets = parcel.files.iter().filter(|file| sock_of(file).is_some()).count();
        if sockets != 0 {
            // One that has no state yet may have messages later.
            for socket in parcel.files.iter().filter_map(sock_of) {
                socket.unix.sock(socket)?;
            }
            let mut table = self.lock();
            fault::check().map_err(|_| Errno::NOMEM)?;
            table.entries.try_reserve(sockets).map_err(|_| Errno::NOMEM)?;
            for socket in parcel.files.iter().filter_map(sock_of) {
                table.hold(socket.unix.share().expect("made above"));
            }
        }
        parcel.sockets = sockets as u32;
        self.files.add(parcel.files.len() as i64);
        Ok(())
    }

    /// A message with these files has been taken out of its queue, under the table's lock if there are sockets among them.
    pub(super) fn leave(&self, parcel: &mut Parcel, table: Option<&mut Table>) {
        self.files.add(-(parcel.files.len() as i64));
        if parcel.sockets != 0 {
            let table = table.expect("the caller has locked it");
            for socket in parcel.files.iter().filter_map(sock_of) {
                table.release(socket.unix.get().expect("it was entered"));
            }
            parcel.sockets = 0;
        }
    }

    /// A message with sockets is being put into the queue of `into`. A loop is closed by a message to a socket that is in flight
    /// itself, or to a connection that nobody has accepted, whose listener may be.
    ///
    /// Of two messages that close a loop together, the one whose sockets were entered later finds the other's entered.
    pub(super) fn put(&self, into: &Sock) {
        // Relaxed: `enter` has had the table's lock since, which orders the entries. The flag is looked at without it: who closes
        // a socket and misses it leaves the search to whoever closes the next.
        if into.flight.load(Ordering::Relaxed) != 0 || into.is_embryo() {
            self.suspicious.store(true, Ordering::Relaxed);
        }
    }

    /// A local socket was closed: ends what cannot be reached any more.
    pub(super) fn collect(&self) {
        // Relaxed: see `put`.
        if self.suspicious.load(Ordering::Relaxed) {
            self.collect_slow();
        }
    }

    #[cold]
    fn collect_slow(&self) {
        // What those that were ended held may be in a loop itself.
        while self.end_lost() {
            self.drop_lost();
        }
    }

    /// Empties the queues of what is lost: whether anything was.
    fn end_lost(&self) -> bool {
        let mut table = self.lock();
        table.find();
        table.find_lost();
        table.keeps = true;
        let mut any = false;
        for at in 0..table.entries.len() {
            if table.entries[at].mark != Mark::Lost {
                continue;
            }
            any = true;
            let sock = table.entries[at].sock.clone();
            // All messages, also those without files: who is connected to it is told of an end, and not that something was lost.
            let mut last = VecDeque::new();
            sock.each_state(|state| {
                state.charged = 0;
                let queue = core::mem::replace(&mut last, core::mem::take(&mut state.queue));
                self.purge(queue, Some(&mut table));
            });
            self.purge(last, Some(&mut table));
        }
        table.sweep();
        // Relaxed: under the table's lock, by which whoever enters a socket comes before this or after.
        if table.entries.is_empty() {
            self.suspicious.store(false, Ordering::Relaxed);
        }
        any
    }

    /// Nobody will receive what was in this queue: whether there were files in it, which are dropped by
    /// [`drop_lost`](Self::drop_lost).
    #[inline]
    pub(super) fn purge(&self, queue: VecDeque<Segment>, table: Option<&mut Table>) -> bool {
        if queue.is_empty() { false } else { self.purge_slow(queue, table) }
    }

    #[cold]
    fn purge_slow(&self, queue: VecDeque<Segment>, mut table: Option<&mut Table>) -> bool {
        let mut any = false;
        for mut segment in queue {
            if let Some(mut parcel) = segment.parcel.take() {
                self.leave(&mut parcel, table.as_deref_mut());
                self.drop_later(parcel);
                any = true;
            }
            if let Some(from) = segment.from.take() {
                from.uncharge(segment.charge);
            }
        }
        any
    }

    /// Whether a state has messages that are to be touched only under the table's lock.
    pub(super) fn needs_table(state: &State) -> bool {
        state.queue.iter().any(|segment| segment.parcel.as_ref().is_some_and(|parcel| parcel.has_sockets()))
    }

    /// Adds a parcel to those to be dropped.
    fn drop_later(&self, mut parcel: Box<Parcel>) {
        let mut lost = self.lost.lock();
        parcel.next = lost.take();
        *lost = Some(parcel);
    }

    /// Drops what is to be dropped. No lock is held by the caller. Files whose end leaves more to drop add to the list, which
    /// whoever is here first works off.
    pub(super) fn drop_lost(&self) {
        loop {
            // ORDERING: Acquire, with the release below: the emptying is handed from one thread to the next. What is on the list is
            // under its lock.
            if self.busy.swap(true, Ordering::Acquire) {
                return;
            }
            while let Some(mut parcel) = {
                let mut lost = self.lost.lock();
                lost.take().map(|mut first| {
                    *lost = first.next.take();
                    first
                })
            } {
                parcel.files.clear();
            }
            // ORDERING: Release, for the swap above. Who adds something has the list's lock before he looks whether we are busy, and
            // we have it once more now: we find what he has added, or he has the lock after us and finds us done. A store would
            // do; but the model checker takes one for unordered beside an exchange that has found the flag set.
            self.busy.swap(false, Ordering::Release);
            if self.lost.lock().is_none() {
                return;
            }
        }
    }
}

impl Table {
    /// One more message holds a socket. There is room for an entry.
    fn hold(&mut self, sock: Object<Sock>) {
        // Relaxed, here and below: under the table's lock.
        match sock.flight.load(Ordering::Relaxed) {
            0 => {
                sock.flight.store(self.entries.len() as u32 + 1, Ordering::Relaxed);
                self.entries.push(Entry {
                    sock,
                    held: 1,
                    found: 0,
                    references: 0,
                    mark: Mark::Unknown,
                    next: 0,
                });
            }
            at => self.entries[at as usize - 1].held += 1,
        }
    }

    /// One message fewer does.
    fn release(&mut self, sock: &Sock) {
        let at = sock.flight.load(Ordering::Relaxed) as usize - 1;
        let entry = &mut self.entries[at];
        entry.held -= 1;
        if entry.held == 0 && !self.keeps {
            self.remove(at);
        }
    }

    /// Takes out the entry of a socket that no message holds.
    fn remove(&mut self, at: usize) {
        self.entries.swap_remove(at).sock.flight.store(0, Ordering::Relaxed);
        if let Some(moved) = self.entries.get(at) {
            moved.sock.flight.store(at as u32 + 1, Ordering::Relaxed);
        }
    }

    /// Takes out those that no message holds any more.
    fn sweep(&mut self) {
        self.keeps = false;
        for at in (0..self.entries.len()).rev() {
            if self.entries[at].held == 0 {
                self.remove(at);
            }
        }
    }

    /// Marks what can be reached.
    fn find(&mut self) {
        for entry in &mut self.entries {
            (entry.found, entry.references, entry.mark) = (0, 0, Mark::Unknown);
        }
        for at in 0..self.entries.len() {
            self.each_held(at, |held, references| {
                held.found += 1;
                held.references = references;
            });
        }
        for entry in &mut self.entries {
            if entry.found < entry.held || entry.references > u64::from(entry.held) {
                entry.mark = Mark::Reached;
            }
        }
        loop {
            let mut again = false;
            for at in 0..self.entries.len() {
                if self.entries[at].mark == Mark::Reached {
                    self.entries[at].mark = Mark::Done;
                    self.each_held(at, |held, _| {
                        if held.mark == Mark::Unknown {
                            held.mark = Mark::Reached;
                            again = true;
                        }
                    });
                }
            }
            if !again {
                return;
            }
        }
    }

    /// Calls `f` for each socket that a message holds in the queue of an entry's socket, or of a connection that it has not
    /// accepted: with its entry, and the references to its file.
    pub(super) fn each_held(&mut self, at: usize, mut f: impl FnMut(&mut Entry, u64)) {
        let sock = self.entries[at].sock.clone();
        sock.each_state(|state| {
            let parcels = state.queue.iter().filter_map(|segment: &Segment| segment.parcel.as_ref());
            for file in parcels.filter(|parcel| parcel.has_sockets()).flat_map(|parcel| &parcel.files) {
                if let Some(held) = sock_of(file).and_then(|socket| socket.unix.get()) {
                    let at = held.flight.load(Ordering::Relaxed) as usize - 1;
                    f(&mut self.entries[at], file.references());
                }
            }
        });
    }
}

impl Sock {
    /// Calls `f` with the state of the socket, and with those of the connections that it has not accepted.
    fn each_state(&self, mut f: impl FnMut(&mut State)) {
        let mut state = self.lock();
        f(&mut state);
        if let Some(listener) = &state.listener {
            for embryo in &listener.queue {
                f(&mut embryo.sock.lock());
            }
        }
    }
}

impl core::fmt::Debug for Flights {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Flights").field("suspicious", &self.suspicious).field("files", &self.files()).finish()
    }
}

impl Drop for Flights {
    fn drop(&mut self) {
        debug_assert!(self.table.get_mut().entries.is_empty(), "the kernel ends: nothing can be reached");
    }
}
