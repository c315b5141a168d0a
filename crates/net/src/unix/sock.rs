//! The state of a local socket (`struct unix_sock`).

use super::flight::{Flight, Traffic};
use super::names::Name;
use super::segment::{Segment, Sender};
use crate::abi::SO_PASSCRED;
use crate::caller::Ids;
use crate::options::Options;
use crate::raw::{Named, Object, Objects};
use core::fmt;
use quietline_platform::atomic::{AtomicBool, AtomicU32, Ordering};
use quietline_platform::fault;
use quietline_sync::Once;
use quietline_sync::{Shared, SpinLock, SpinLockGuard, WaitQueue};
use quietline_vfs::Events;
use rustix::io::Errno;
use std::collections::VecDeque;

/// What readers are woken by.
pub(super) const READABLE: Events =
    Events::IN.union(Events::PRI).union(Events::RDNORM).union(Events::RDBAND);
/// What writers are woken by.
pub(super) const WRITABLE: Events = Events::OUT.union(Events::WRNORM).union(Events::WRBAND);
/// What everybody is woken by.
pub(super) const CHANGED: Events =
    READABLE.union(WRITABLE).union(Events::HUP).union(Events::RDHUP).union(Events::ERR);

/// Nothing more is received; nothing more is sent; its file is gone.
pub(super) const RCV: u32 = 1;
pub(super) const SEND: u32 = 2;
pub(super) const DEAD: u32 = 4;

/// Neither listening nor connected.
pub(super) const CLOSE: u32 = 0;
/// Listening.
pub(super) const LISTEN: u32 = 1;
/// Connected.
pub(super) const ESTABLISHED: u32 = 2;

/// The state of a local socket.
///
/// Whoever sends to it takes its lock and puts a segment into its queue; whoever reads takes the lock and takes one out. What
/// the one side of a stream does touches no line of another pair.
pub(crate) struct Sock {
    state: SpinLock<State>,
    /// `SOCK_STREAM` and so on.
    pub(super) ty: i32,
    /// Readers, writers and pollers, by keys.
    pub(super) waiters: WaitQueue,
    /// Who waits for a place in the queue of a socket for datagrams, in turn: one is woken for each.
    pub(super) places: WaitQueue,
    /// [`RCV`], [`SEND`], [`DEAD`]. Written under the lock.
    shutdown: AtomicU32,
    /// [`CLOSE`], [`LISTEN`], [`ESTABLISHED`]. Written under the lock.
    phase: AtomicU32,
    /// What is to be told once (`sk_err`).
    error: AtomicU32,
    /// What its messages count that nobody has read (`sk_wmem_alloc`): of a socket for datagrams. What a stream's count is in
    /// the other end's state.
    pub(super) sent: AtomicU32,
    /// As one that messages may hold.
    pub(super) flight: Flight,
    pub(super) name: Once<Shared<Name>>,
    /// Whether it is found by its name.
    bound: AtomicBool,
    embryo: AtomicBool,
    pub(super) options: Options,
}

impl Named for Sock {
    const CACHE: &'static str = "unix_sock";
}

/// What a socket's lock is for.
pub(super) struct State {
    pub(super) queue: VecDeque<Segment>,
    /// What is in the queue counts this against the other end's room: of a stream.
    pub(super) charged: u32,
    pub(super) listener: Option<Box<Listener>>,
    /// Whom a socket for datagrams is connected to.
    pub(super) peer: Option<Object<Sock>>,
    /// Senders that have found the queue full in a call that does not wait, and are to be told when it is not. Those who sleep wait for
    /// [`Sock::places`]; of them, those are here too whose call first looked whether it has to.
    pub(super) hopeful: Vec<Object<Sock>>,
    /// Who has connected or listened: what the other end learns.
    pub(super) ids: Option<Ids>,
    /// What the other end was.
    pub(super) peer_ids: Option<Ids>,
    /// As one that messages hold.
    pub(super) traffic: Traffic,
}

/// What a socket has that listens. On a line of its own: every connection to it writes it.
#[repr(align(64))]
pub(super) struct Listener {
    pub(super) backlog: u32,
    /// Connections that nobody has accepted.
    pub(super) queue: VecDeque<Embryo>,
}

/// A connection that nobody has accepted.
pub(super) struct Embryo {
    pub(super) sock: Object<Sock>,
    /// Its other end.
    pub(super) peer: Object<Sock>,
}

impl Sock {
    /// A socket that is nothing yet, for so many owners.
    pub(super) fn new<const N: usize>(
        all: &Objects<Self>,
        ty: i32,
    ) -> Result<[Object<Self>; N], Errno> {
        Self::made(all, ty, CLOSE, None)
    }

    /// An end of a connection that somebody has made both ends of, for each of them.
    pub(super) fn connected(
        all: &Objects<Self>,
        ty: i32,
        ids: Option<Ids>,
    ) -> Result<[Object<Self>; 2], Errno> {
        Self::made(all, ty, ESTABLISHED, ids)
    }

    #[inline]
    fn made<const N: usize>(
        all: &Objects<Self>,
        ty: i32,
        phase: u32,
        ids: Option<Ids>,
    ) -> Result<[Object<Self>; N], Errno> {
        all.make_with(|| Self {
            state: SpinLock::new(State {
                queue: VecDeque::new(),
                charged: 0,
                listener: None,
                peer: None,
                hopeful: Vec::new(),
                ids,
                peer_ids: ids,
                traffic: Traffic::default(),
            }),
            ty,
            waiters: WaitQueue::new(),
            places: WaitQueue::new(),
            shutdown: AtomicU32::new(0),
            phase: AtomicU32::new(phase),
            error: AtomicU32::new(0),
            sent: AtomicU32::new(0),
            flight: Flight::none(),
            name: Once::empty(),
            bound: AtomicBool::new(false),
            embryo: AtomicBool::new(false),
            options: Options::new(),
        })
        .map_err(|_| Errno::NOMEM)
    }

    /// Makes a new one the end of a connection to a listener: with its name, and told of senders if it is. No other options.
    pub(super) fn accepted(&mut self, listener: &Sock, ids: Option<Ids>, peer_ids: Option<Ids>) {
        let state = self.state.get_mut();
        (state.ids, state.peer_ids) = (ids, peer_ids);
        // (It is new: all are off.)
        if listener.options.is_on(SO_PASSCRED) {
            self.options.switch(SO_PASSCRED, true);
        }
        self.name = listener.name.share().map_or_else(Once::empty, Once::of);
        self.set_phase(ESTABLISHED);
        self.set_embryo(true);
    }

    #[inline(always)]
    pub(super) fn lock(&self) -> SpinLockGuard<'_, State> {
        self.state.lock()
    }

    /// Whether it is found by its name.
    pub(super) fn is_bound(&self) -> bool {
        // Relaxed: asked when the last file is closed, and every call that might have bound it is over.
        self.bound.load(Ordering::Relaxed)
    }

    /// It is found by its name from now on.
    pub(super) fn set_bound(&self) {
        // Relaxed: as above.
        self.bound.store(true, Ordering::Relaxed);
    }

    /// Whether nobody has accepted it yet.
    pub(super) fn is_embryo(&self) -> bool {
        // Relaxed: set before anybody else sees the socket, and cleared once; who still finds it set is only too careful.
        self.embryo.load(Ordering::Relaxed)
    }

    /// A listener's queue has it; or no more.
    pub(super) fn set_embryo(&self, embryo: bool) {
        // Relaxed: as above.
        self.embryo.store(embryo, Ordering::Relaxed);
    }

    /// Whether both are one.
    pub(super) fn is(&self, other: &Sock) -> bool {
        core::ptr::eq(self, other)
    }

    /// What is shut down. Relaxed: written under the lock; who looks without it sees what was so at some moment, and who must
    /// know takes it, or has entered the queue of waiters: [`wake_all`](Self::wake_all) comes after the change.
    #[inline(always)]
    pub(super) fn shutdown(&self) -> u32 {
        self.shutdown.load(Ordering::Relaxed)
    }

    /// Shuts down; the caller holds the lock.
    pub(super) fn shut(&self, what: u32) {
        // Relaxed: under the lock.
        self.shutdown.store(self.shutdown() | what, Ordering::Relaxed);
    }

    /// Relaxed, as [`shutdown`](Self::shutdown).
    #[inline(always)]
    pub(super) fn phase(&self) -> u32 {
        self.phase.load(Ordering::Relaxed)
    }

    /// The caller holds the lock, or nobody else has seen the socket.
    pub(super) fn set_phase(&self, phase: u32) {
        // Relaxed: under the lock.
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// What went wrong, once.
    #[inline(always)]
    pub(super) fn take_error(&self) -> Result<(), Errno> {
        // Relaxed: an independent word; `wake_all`, which follows it, brings it to those who wait.
        if self.error.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        match self.error.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            code => Err(Errno::from_raw_os_error(code as i32)),
        }
    }

    /// Whether something went wrong that nobody was told.
    pub(super) fn has_error(&self) -> bool {
        // Relaxed: as above.
        self.error.load(Ordering::Relaxed) != 0
    }

    /// To be told at the next call.
    pub(super) fn set_error(&self, errno: Errno) {
        // Relaxed: as above.
        self.error.store(errno.raw_os_error() as u32, Ordering::Relaxed);
    }

    /// Wakes those who wait for `events`; what has changed is changed and looked at under the lock.
    #[inline(always)]
    pub(super) fn wake(&self, events: Events) {
        self.waiters.wake_ordered(events.bits(), 1);
    }

    /// Wakes so many who wait for a place in the queue. That it is there was changed under the lock, under which they look.
    #[inline(always)]
    pub(super) fn wake_places(&self, most: u32) {
        self.places.wake_ordered(WRITABLE.bits(), most);
    }

    /// Wakes everybody: a word has changed that is looked at without the lock, too.
    pub(super) fn wake_all(&self) {
        self.waiters.wake(CHANGED.bits(), WaitQueue::ALL);
    }

    /// A message of a socket for datagrams was read, or lost: what it counted is room again.
    pub(super) fn uncharge(&self, charge: u32) {
        // ORDERING: SeqCst: a read-modify-write before `wake_exchanged`, as that wants it.
        let left = self.sent.fetch_sub(charge, Ordering::SeqCst) - charge;
        if self.is_writable(left) {
            self.waiters.wake_exchanged(WRITABLE.bits(), 1);
        }
    }

    /// Whether as much as this leaves room for more (`unix_writable`).
    #[inline(always)]
    pub(super) fn is_writable(&self, charged: u32) -> bool {
        // The host's count begins at 1.
        (u64::from(charged) + 1) << 2 <= u64::from(self.options.sndbuf())
    }
}

impl State {
    /// Makes room for one more segment.
    ///
    /// # Errors
    /// `ENOMEM`.
    #[inline]
    pub(super) fn reserve(&mut self) -> Result<(), Errno> {
        if self.queue.len() == self.queue.capacity()
            && (fault::check().is_err() || self.queue.try_reserve(1).is_err())
        {
            return Err(Errno::NOMEM);
        }
        Ok(())
    }
}

impl Sender {
    /// As a message notes it: the real ids.
    pub(super) fn of(ids: Ids) -> Self {
        Self { pid: ids.pid, uid: ids.real[0], gid: ids.real[1] }
    }
}

impl fmt::Debug for Sock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shutdown, phase, name, .. } = self;
        f.debug_struct("Sock")
            .field("shutdown", shutdown)
            .field("phase", phase)
            .field("name", name)
            .finish()
    }
}
