//! Streams: TCP as two ends of one machine see it, without packets.
//!
//! # The contended way
//!
//! Bytes are cut into segments, which go through a device's queue to a table of connections, to a socket's lock, and come
//! back as acknowledgements the same way.
//!
//! # Our way
//!
//! ```text
//!        End                                      End
//!   Tx { peer ─────────────────────────────────> Rx { bytes }      lock and line: the sender's Tx, the receiver's Rx
//!   Rx { bytes } <───────────────────────────── Tx { peer }
//! ```
//!
//! What is sent goes straight into the receiver's queue: one lock of the sender's own, which keeps his sends in order, and the
//! queue's. Nothing else is written that another connection could see. An end that is closed lets go of its peer, so the
//! circle ends with the first of them.
//!
//! # Guarantees
//!
//! States, errors and what `poll` says are those that Linux shows on its loopback device. Bytes arrive in order, once, before
//! the end of the stream or the reset that followed them.
//!
//! # Limits
//!
//! No urgent data (`EOPNOTSUPP`). A socket's room for what it sends and its peer's room for what it
//! receives are one limit, in bytes; Linux counts the memory around them too. At the limit on the
//! memory of all sockets (`tcp_mem`) a queue with bytes takes no more until they are read. There is
//! no TIME_WAIT: a port is free when its socket is closed. What fits is delivered at once, so
//! `SO_LINGER` with a time never waits. A connection that waits for a place in a full backlog gets
//! it when there is one, not with the next retry a second later.
//!
//! # Lock order
//!
//! `control`, then a listener's queue, then the port tables' buckets. `Tx`, then an `Rx`. `reader`, then the
//! `Rx`; with that held it is only tried. Wait queues inside all of them.

mod close;
mod connect;
mod deferred;
mod listen;
mod options;
mod poll;
mod receive;

pub(super) use deferred::Ticks;
pub(super) use receive::How;

use super::settings::Settings;
use super::stream::{Bytes, LARGE, SMALL};
use crate::memory::Refused;
use crate::options::Options;
use crate::raw::{Named, NetRef, Object};
use core::fmt;
use listen::Listener;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_sync::{SpinLock, SpinLockGuard, WaitQueue};
use quietline_vfs::{Events, Source};
use rustix::io::Errno;

use connect::Control;

/// Takes connections.
const LISTENS: u32 = 1 << 0;
/// Waits for a place in a backlog (`SYN_SENT`).
const CONNECTING: u32 = 1 << 1;
/// Has had a peer.
const ESTABLISHED: u32 = 1 << 2;
/// Had one, and neither sends any more, or was reset (`CLOSE`).
const DEAD: u32 = 1 << 3;
/// Has told its peer that it sends no more.
const SENT_FIN: u32 = 1 << 4;
/// Was told that its peer sends no more.
const GOT_FIN: u32 = 1 << 5;
/// Reads no more (`RCV_SHUTDOWN`).
const SHUT_RD: u32 = 1 << 6;
/// Writes no more (`SEND_SHUTDOWN`).
const SHUT_WR: u32 = 1 << 7;
/// The peer's queue is nearly full.
const FULL: u32 = 1 << 8;
/// The socket is closed.
const CLOSED: u32 = 1 << 9;
/// The peer is [deferred](deferred): it becomes acceptable when this end sends.
const DEFERRED: u32 = 1 << 10;

/// What may be read has come, or will not come.
const READABLE: Events = Events::IN.union(Events::RDNORM);
/// What may be written.
const WRITABLE: Events = Events::OUT.union(Events::WRNORM);

/// `SO_SNDBUF` of a new socket, and of a connected one that was not told otherwise: what the kernel grows it to on loopback.
const SNDBUF: u32 = 16_384;
const SNDBUF_GROWN: u32 = 2_626_560;
/// `SO_RCVBUF` of a new socket. Half of it is the window.
const RCVBUF: u32 = 131_072;

/// The largest segment where there is no connection yet (`TCP_MSS_DEFAULT`).
const SEGMENT: u32 = 536;
/// What each segment has besides its bytes on loopback: time stamps.
const SEGMENT_OPTIONS: u32 = 12;
/// The largest segment that the loopback device carries, of IPv4 and of IPv6.
const SEGMENT_LARGEST: [u32; 2] = [65_483, 65_463];
/// The largest segment of a new connection: half of the first window of the other end. It is less
/// for a connecting end, because a listener's first window has headers of IPv4, or of IPv6, taken
/// off.
const SEGMENT_ACCEPTED: u32 = 32_768;
const SEGMENT_CONNECTED: [u32; 2] = [32_741, 32_732];

/// One end of a stream, or a listener (`struct tcp_sock`).
pub(crate) struct End {
    net: NetRef,
    v6: bool,
    /// Changed by read-modify-writes, all sequentially consistent, so that waiters may look at it.
    flags: AtomicU32,
    /// What went wrong (`sk_err`); 0 is nothing.
    error: AtomicU32,
    /// The user who has bound or connected it.
    uid: AtomicU32,
    /// How often it has asked for a connection: what tells an attempt from one that was given up.
    attempt: AtomicU32,
    /// `TCP_CONGESTION`, as the options number them.
    congestion: AtomicU32,
    /// The largest segment of the connection that it has, or had.
    segment: AtomicU32,
    options: Options,
    settings: Settings,
    readers: WaitQueue,
    writers: WaitQueue,
    control: SpinLock<Control>,
    listener: SpinLock<Option<Box<Listener>>>,
    tx: Tx,
    rx: Rx,
    /// Held by who empties large pieces outside the queue's lock, and taken with that held only if it is free; others who want to
    /// read wait for it.
    reader: SpinLock<()>,
}

impl Named for End {
    const CACHE: &'static str = "tcp_sock";
}

/// The sender's side. On lines of its own.
#[repr(align(64))]
struct Tx(SpinLock<Option<Link>>);

/// A peer, as its socket was when they were connected.
struct Link {
    end: Object<End>,
    epoch: u32,
}

/// The receiver's side. On lines of its own: the peer writes them.
#[repr(align(64))]
struct Rx(SpinLock<Received>);

struct Received {
    bytes: Bytes,
    /// How many bytes may lie here.
    limit: usize,
    /// The peer was told that there is little room, or none; or no memory for more.
    full: bool,
    /// Nobody will read this.
    gone: bool,
    /// Somebody copies outside the lock, and has the end's `reader`.
    is_being_read: bool,
    /// Which connection of the socket this is.
    epoch: u32,
}

impl Received {
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.bytes.len())
    }

    /// So much is taken that a sender is told to wait (a third is free when he is told to go on).
    fn is_nearly_full(&self) -> bool {
        self.bytes.len() * 3 > self.limit * 2
    }
}

impl End {
    /// A socket that is nothing yet.
    pub(super) fn new(net: NetRef, v6: bool) -> Result<Object<Self>, AllocError> {
        let received = Received {
            bytes: Bytes::new(),
            limit: 0,
            full: false,
            gone: false,
            is_being_read: false,
            epoch: 0,
        };
        let end = Self {
            net,
            v6,
            flags: AtomicU32::new(0),
            error: AtomicU32::new(0),
            uid: AtomicU32::new(0),
            attempt: AtomicU32::new(0),
            congestion: AtomicU32::new(0),
            segment: AtomicU32::new(SEGMENT),
            options: Options::with_buffers(SNDBUF, RCVBUF),
            settings: Settings::new(),
            readers: WaitQueue::new(),
            writers: WaitQueue::new(),
            control: SpinLock::new(Control::new()),
            listener: SpinLock::new(None),
            tx: Tx(SpinLock::new(None)),
            rx: Rx(SpinLock::new(received)),
            reader: SpinLock::new(()),
        };
        let [end] = net.get().inet.streams.make(end)?;
        Ok(end)
    }

    #[inline(always)]
    fn flags(&self) -> u32 {
        // ORDERING: Acquire pairs with the exchanges in `set`: who finds a flag finds what was done before it was set.
        self.flags.load(Ordering::Acquire)
    }

    /// Sets flags; those before.
    fn set(&self, flags: u32) -> u32 {
        // ORDERING: SeqCst, as `wake_exchanged` wants it: a waiter looks at the flags after it has entered a queue. In the order of
        // all such exchanges of the two ends of a connection that end of stream is found which comes second.
        self.flags.fetch_or(flags, Ordering::SeqCst)
    }

    /// Takes flags back.
    fn clear(&self, flags: u32) {
        // ORDERING: SeqCst as in `set`.
        self.flags.fetch_and(!flags, Ordering::SeqCst);
    }

    /// Notes what went wrong.
    pub(super) fn fail(&self, errno: Errno) {
        // ORDERING: SeqCst: an exchange, as `wake_exchanged` wants it.
        self.error.swap(errno.raw_os_error() as u32, Ordering::SeqCst);
    }

    /// What went wrong, once (`sock_error`).
    fn take_error(&self) -> Option<Errno> {
        // Relaxed: a look; most often there is nothing.
        if self.error.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // Relaxed: the number is all there is.
        match self.error.swap(0, Ordering::Relaxed) {
            0 => None,
            errno => Some(Errno::from_raw_os_error(errno as i32)),
        }
    }

    /// An error that a call has got, but did not tell, because it had done something before.
    #[cold]
    pub(super) fn keep_error(&self, errno: Errno) {
        if !matches!(
            errno,
            Errno::AGAIN | Errno::INTR | Errno::PIPE | Errno::NOMEM | Errno::NOTCONN
        ) {
            self.fail(errno);
        }
    }

    /// Wakes all who wait for something to read, and for something else. The flags or the error were changed last.
    fn wake_readers(&self, more: Events) {
        self.readers.wake_exchanged((READABLE | more).bits(), WaitQueue::ALL);
    }

    fn wake_writers(&self, more: Events) {
        self.writers.wake_exchanged((WRITABLE | more).bits(), WaitQueue::ALL);
    }

    /// Wakes everybody: the state has changed.
    fn wake_all(&self, more: Events) {
        self.wake_readers(more);
        self.wake_writers(more);
    }

    /// Sends as much as fits: how many bytes (`tcp_sendmsg`, without waiting).
    ///
    /// Writes the lines of the own `Tx` and the peer's `Rx`, and the bytes.
    ///
    /// # Errors
    /// `EAGAIN` when nothing fits; `EPIPE` and what went wrong; `ENOMEM`.
    #[inline]
    pub(super) fn send(&self, from: &mut Source<'_, '_>) -> Result<usize, Errno> {
        let tx = self.tx.0.lock();
        let is_open = self.flags() & (ESTABLISHED | DEAD | SHUT_WR | DEFERRED) == ESTABLISHED;
        // Relaxed: a look, as good as any; it is there again next time.
        let Some(link) = tx.as_ref().filter(|_| is_open && self.error.load(Ordering::Relaxed) == 0)
        else {
            return self.send_slowly(tx, from);
        };
        if from.left() == 0 {
            return Ok(0);
        }
        let sent = link.end.deliver(link.epoch, self, from);
        if matches!(sent, Ok(1..) | Err(NotDelivered::Refused)) {
            // What readers look at is changed and looked at under the queue's lock. Who sleeps in a call wants any part of it, and is not
            // exclusive; of epolls that are one gets it (`sock_def_readable`).
            link.end.readers.wake_ordered(READABLE.bits(), 1);
        }
        let unwilling = matches!(sent, Err(NotDelivered::Unwanted)).then(|| link.end.clone());
        drop(tx);
        match sent {
            Err(NotDelivered::Gone | NotDelivered::Unwanted) => Ok(self.lost(from, unwilling)),
            Err(NotDelivered::NoMemory) => Err(Errno::NOMEM),
            Err(NotDelivered::Refused) => Err(Errno::AGAIN),
            Ok(0) if from.left() > 0 => Err(Errno::AGAIN),
            Ok(n) => Ok(n),
        }
    }

    /// Whether it is connected, and may send.
    pub(super) fn is_open(&self) -> bool {
        // Relaxed: a look, as in `send`.
        self.flags() & (ESTABLISHED | DEAD | SHUT_WR) == ESTABLISHED
            && self.error.load(Ordering::Relaxed) == 0
    }

    /// Sends the first bytes to a deferred peer, or returns what keeps the end from sending.
    #[cold]
    fn send_slowly(
        &self,
        tx: SpinLockGuard<'_, Option<Link>>,
        from: &mut Source<'_, '_>,
    ) -> Result<usize, Errno> {
        // Relaxed: as in `send`.
        let may_send = from.left() > 0 && self.error.load(Ordering::Relaxed) == 0;
        let peer = tx.as_ref().filter(|_| may_send).and_then(|link| self.take_deferred(&link.end));
        drop(tx);
        if let Some(peer) = peer {
            let sent = self.send(from);
            peer.complete();
            return sent;
        }
        if from.left() == 0 && self.is_open() {
            return Ok(0);
        }
        self.cannot_send()
    }

    #[cold]
    fn cannot_send(&self) -> Result<usize, Errno> {
        match self.take_error() {
            Some(errno) => Err(errno),
            None if self.flags() & CONNECTING != 0 => Err(Errno::AGAIN),
            None => Err(Errno::PIPE),
        }
    }

    /// The bytes meet a closed socket, or one that has ended both directions. That is answered with a reset, of which the sender
    /// learns later.
    #[cold]
    fn lost(&self, from: &mut Source<'_, '_>, unwilling: Option<Object<Self>>) -> usize {
        if let Some(end) = unwilling {
            end.reset();
        }
        self.reset();
        let n = from.left();
        from.advance(n);
        n
    }

    /// Takes bytes in, as many as there is room for.
    #[inline]
    fn deliver(
        &self,
        epoch: u32,
        sender: &Self,
        from: &mut Source<'_, '_>,
    ) -> Result<usize, NotDelivered> {
        let mut rx = self.rx.0.lock();
        if rx.gone || rx.epoch != epoch {
            return Err(NotDelivered::Gone);
        }
        if self.flags() & (SENT_FIN | SHUT_RD) == SENT_FIN | SHUT_RD {
            return Err(NotDelivered::Unwanted);
        }
        let left = from.left();
        // One message that lies where the last one lay, or behind it.
        if left <= SMALL && left <= rx.room() {
            let sent = rx.bytes.append(left, &self.net, |memory| from.take(memory));
            if rx.is_nearly_full() {
                rx.tell(sender);
            }
            return sent.or_else(|refused| rx.refused(refused, sender));
        }
        drop(rx);
        self.deliver_large(epoch, sender, from)
    }

    /// Large amounts are copied outside the queue's lock. The sender's own lock, which the caller holds, keeps others out.
    fn deliver_large(
        &self,
        epoch: u32,
        sender: &Self,
        from: &mut Source<'_, '_>,
    ) -> Result<usize, NotDelivered> {
        // At the limit on the memory of sockets, the last chunk is filled under the lock.
        let (mut sent, mut most) = (0, LARGE);
        let failed = loop {
            let mut rx = self.rx.0.lock();
            if rx.gone || rx.epoch != epoch {
                break NotDelivered::Gone;
            }
            let n = from.left().min(rx.room()).min(most);
            if n == 0 {
                if rx.is_nearly_full() {
                    rx.tell(sender);
                }
                return Ok(sent);
            }
            if n <= SMALL {
                match rx.bytes.append(n, &self.net, |memory| from.take(memory)) {
                    Ok(n) => sent += n,
                    Err(refused) => match rx.refused(refused, sender) {
                        Ok(n) => return Ok(sent + n),
                        Err(failed) => break failed,
                    },
                }
                continue;
            }
            let Ok(spare) = rx.bytes.prepare(n) else { break NotDelivered::NoMemory };
            drop(rx);
            let mut chunk = match spare.map_or_else(|| Bytes::allocate(n, self.net), Ok) {
                Ok(chunk) => chunk,
                Err(refused) if refused.stored().is_some() => {
                    most = SMALL;
                    continue;
                }
                Err(_) => break NotDelivered::NoMemory,
            };
            sent += chunk.append(n, |memory| from.take(memory));
            let mut rx = self.rx.0.lock();
            if rx.gone || rx.epoch != epoch {
                // What was taken is lost with the rest.
                break NotDelivered::Gone;
            }
            rx.bytes.add(chunk);
        };
        if sent > 0 { Ok(sent) } else { Err(failed) }
    }

    /// Where those wait who want to read.
    pub(super) fn readers(&self) -> &WaitQueue {
        &self.readers
    }

    /// Where those wait who want to write.
    pub(super) fn writers(&self) -> &WaitQueue {
        &self.writers
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }
}

/// Why bytes did not get there.
enum NotDelivered {
    /// There is no such socket any more.
    Gone,
    /// It neither sends nor receives.
    Unwanted,
    NoMemory,
    /// The queue has reached the limit on the memory of sockets with this call. Its readers are to
    /// be told: its bytes are enough for them, however many they wait for.
    Refused,
}

impl Received {
    /// Tells the sender that there is little room; he is told when there is more.
    #[cold]
    fn tell(&mut self, sender: &End) {
        self.full = true;
        sender.set(FULL);
    }

    /// Takes no more for want of memory. At the limit on the memory of sockets the sender is told
    /// to wait for the reader, as if the queue was full. Returns the number of bytes that were
    /// taken.
    #[cold]
    fn refused(&mut self, refused: Refused, sender: &End) -> Result<usize, NotDelivered> {
        let Some(taken) = refused.stored() else { return Err(NotDelivered::NoMemory) };
        let was_full = self.full;
        self.tell(sender);
        if taken == 0 && !was_full { Err(NotDelivered::Refused) } else { Ok(taken) }
    }

    /// Tells a sender who was told that there is little room that there is more, if there is. Under the lock, as he was told: no
    /// other order than theirs can be what he knows at the end.
    fn tell_of_room(&mut self, sender: &End) {
        if self.full && !self.is_nearly_full() {
            self.full = false;
            sender.clear(FULL);
        }
    }
}

impl fmt::Debug for End {
    /// Without its peer, which points back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End")
            .field("flags", &self.flags())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
