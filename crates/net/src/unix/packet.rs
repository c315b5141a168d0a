//! Datagrams, and messages in order: each sent and received as a whole.
//!
//! A datagram counts against the room of its sender until it is read; messages between two ends as bytes of a stream do. A
//! receiver who has more than [`QUEUE`] datagrams of senders that he is not connected to takes no more; senders who find it so
//! wait for a place with him, in turn, or leave their states there to be told when there is one.

use super::UnixEnd;
use super::connect::{autobind, find_typed};
use super::control::{Inward, Outward, tells_sender};
use super::flight::Flights;
use super::names::{self, Target};
use super::segment::{Segment, Sender, message_charge};
use super::sock::{DEAD, ESTABLISHED, RCV, READABLE, SEND, Sock, State, WRITABLE};
use crate::abi::{AF_UNSPEC, MSG_OOB, MSG_PEEK, MSG_TRUNC, SOCK_SEQPACKET};
use crate::address::SockAddr;
use crate::caller::Ids;
use crate::message::{Incoming, Outgoing};
use crate::proto::{On, deadline, left, wait};
use crate::raw::Object;
use core::cell::Cell;
use quietline_platform::atomic::Ordering;
use quietline_platform::fault;
use quietline_sync::WaitQueue;
use rustix::io::Errno;

/// Datagrams in a queue when it is full, less one (`net.unix.max_dgram_qlen`).
pub(super) const QUEUE: usize = 10;

/// Whether a socket may send to one in this state: to one that is connected to nobody, or to it.
fn may_send(own: &Sock, theirs: &State) -> bool {
    theirs.peer.as_ref().is_none_or(|peer| peer.is(own))
}

/// Whether a receiver in this state has no room for a message of `own`.
pub(super) fn is_full(own: &Sock, other: &Sock, theirs: &State) -> bool {
    !other.is(own)
        && theirs.peer.as_ref().is_none_or(|peer| !peer.is(own))
        && theirs.queue.len() > QUEUE
}

/// Leaves `own` with a receiver that has no room.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn hope(own: &Object<Sock>, theirs: &mut State) -> Result<(), Errno> {
    if theirs.hopeful.iter().any(|hopeful| hopeful.is(own)) {
        return Ok(());
    }
    fault::check().map_err(|_| Errno::NOMEM)?;
    theirs.hopeful.try_reserve(1).map_err(|_| Errno::NOMEM)?;
    theirs.hopeful.push(own.clone());
    Ok(())
}

/// Ends that: whether it had been left there.
fn no_hope(own: &Sock, theirs: &mut State) -> bool {
    let before = theirs.hopeful.len();
    theirs.hopeful.retain(|hopeful| !hopeful.is(own));
    theirs.hopeful.len() < before
}

/// `connect`, of a socket for datagrams.
pub(super) fn connect(end: &UnixEnd, on: &On<'_>, address: &SockAddr) -> Result<(), Errno> {
    if address.len() < names::FAMILY {
        return Err(Errno::INVAL);
    }
    let own = end.sock_share(on.socket)?;
    let new = if address.family() == AF_UNSPEC {
        None
    } else {
        if matches!(names::target(address)?, Target::Any) {
            return Err(Errno::INVAL);
        }
        autobind(end, on)?;
        let other = find_typed(on, address)?;
        if !may_send(&own, &other.lock()) {
            return Err(Errno::PERM);
        }
        Some(other)
    };
    let old = {
        let mut state = own.lock();
        // For what it writes.
        state.ids = on.who.ids();
        core::mem::replace(&mut state.peer, new.clone())
    };
    let Some(old) = old else { return Ok(()) };
    if no_hope(&own, &mut old.lock()) {
        // The old one's room is not what is waited for any more.
        own.wake(WRITABLE);
    }
    if new.is_none_or(|new| !new.is(&old)) {
        disconnected(&own, &old, &on.net().unix.flights);
    }
    Ok(())
}

/// A socket is not connected to `old` any more: what lies in its queue is lost, and `old` is told if it is connected to it.
fn disconnected(own: &Sock, old: &Sock, flights: &Flights) {
    let (queue, hopeful) = {
        let mut state = flights.lock_thawed(own);
        (core::mem::take(&mut state.queue), core::mem::take(&mut state.hopeful))
    };
    let lost = !queue.is_empty();
    let had_files = flights.purge(queue);
    for hopeful in hopeful {
        hopeful.wake(WRITABLE);
    }
    own.wake_places(WaitQueue::ALL);
    if lost {
        let told = {
            let state = old.lock();
            let told =
                old.shutdown() & DEAD == 0 && state.peer.as_ref().is_some_and(|peer| peer.is(own));
            if told {
                old.set_error(Errno::CONNRESET);
            }
            told
        };
        if told {
            old.wake_all();
        }
    }
    if had_files {
        flights.drop_lost();
        flights.collect();
    }
}

/// A message that is about to be sent.
struct Sending<'a> {
    end: &'a UnixEnd,
    own: Object<Sock>,
    on: &'a On<'a>,
    name: &'a SockAddr,
    ordered: bool,
    charge: u32,
    waits: bool,
    /// The receiver whom the last attempt has sent it to, or with whom it has found no place.
    receiver: Cell<Option<Object<Sock>>>,
}

/// `sendmsg` and `write`.
pub(super) fn send(
    end: &UnixEnd,
    on: &On<'_>,
    message: &mut Outgoing<'_, '_, '_>,
) -> Result<usize, Errno> {
    let ordered = on.socket.ty() == SOCK_SEQPACKET;
    let own = end.sock_share(on.socket)?;
    let mut name = message.name;
    if ordered {
        own.take_error()?;
        if own.phase() != ESTABLISHED {
            return Err(Errno::NOTCONN);
        }
        name = &SockAddr::NONE;
    }
    let flights = &on.net().unix.flights;
    let mut outward = match message.control {
        [] => Outward::none(flights),
        control => {
            on.net().memory().check_control(control)?;
            Outward::new(flights, on.who, control)?
        }
    };
    if message.flags & MSG_OOB != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if !name.is_empty() && matches!(names::target(name)?, Target::Any) {
        return Err(Errno::INVAL);
    }
    autobind(end, on)?;
    let len = message.data.left();
    if len > (own.options.sndbuf() as usize).saturating_sub(32) {
        return Err(Errno::MSGSIZE);
    }
    let (waits, receiver) = (on.waits(message.flags), Cell::new(None));
    let sending =
        Sending { end, own, on, name, ordered, charge: message_charge(len), waits, receiver };
    match sending.attempt(false, message, &mut outward, len) {
        Err(Errno::AGAIN) if waits => sending.wait(message, &mut outward, len),
        sent => sent,
    }
}

impl Sending<'_> {
    /// Sends it when there is room: of its own, and then in the receiver's queue.
    #[cold]
    fn wait(
        &self,
        message: &mut Outgoing<'_, '_, '_>,
        outward: &mut Outward<'_>,
        len: usize,
    ) -> Result<usize, Errno> {
        let own = &self.own;
        let deadline = deadline(own.options.send_timeout());
        loop {
            let left = left(deadline);
            let full = self.receiver.take();
            let has_room = full.is_some();
            // None if it is to wait for something else.
            let again = || match self.attempt(has_room, message, outward, len) {
                Err(Errno::AGAIN) => {
                    let now = self.receiver.take();
                    let same = match (&now, &full) {
                        (Some(now), Some(full)) => now.is(full),
                        (now, full) => now.is_none() && full.is_none(),
                    };
                    if same {
                        // Nothing is kept: the next attempt may come to no receiver, and would be taken for one that has.
                        return Err(Errno::AGAIN);
                    }
                    self.receiver.set(now);
                    Ok(None)
                }
                sent => sent.map(Some),
            };
            let sent = match &full {
                // Not exclusive: one wake-up may be all that comes, and there may be room for several.
                None => wait(&own.waiters, WRITABLE, false, left, again),
                Some(other) => wait(&other.places, WRITABLE, true, left, again),
            };
            // A name may be another socket's meanwhile, and a connection to another.
            let went_to =
                |other: &Sock| self.receiver.take().is_some_and(|receiver| receiver.is(other));
            if let Some(other) = full
                && !(matches!(sent, Ok(Some(_))) && went_to(&other))
            {
                // The place that it may have been woken for is the next one's.
                other.wake_places(1);
            }
            if let Some(sent) = sent? {
                return Ok(sent);
            }
        }
    }

    /// Sends it, if there is room. `has_room`: it has had room of its own, and has waited for a place with the receiver since. What becomes of
    /// the sender meanwhile is then of no matter, as on Linux, be it a shutdown or an error.
    fn attempt(
        &self,
        has_room: bool,
        message: &mut Outgoing<'_, '_, '_>,
        outward: &mut Outward<'_>,
        len: usize,
    ) -> Result<usize, Errno> {
        let own = &self.own;
        if !has_room {
            own.take_error()?;
            if own.shutdown() & SEND != 0 {
                return Err(Errno::PIPE);
            }
        }
        let sndbuf = own.options.sndbuf();
        if self.ordered {
            let peer = self.end.peer.get().ok_or(Errno::NOTCONN)?;
            return self.put(peer, None, message, outward, len, sndbuf);
        }
        // Relaxed: a look; who makes room wakes by an exchange of this word, and the queue's fence comes before the next look.
        if !has_room && own.sent.load(Ordering::Relaxed) >= sndbuf {
            return Err(Errno::AGAIN);
        }
        let (other, ids) = if self.name.is_empty() {
            let state = own.lock();
            (state.peer.clone().ok_or(Errno::NOTCONN)?, state.ids)
        } else {
            (find_typed(self.on, self.name)?, None)
        };
        let sent = self.put(&other, ids, message, outward, len, sndbuf);
        if self.waits && matches!(sent, Ok(_) | Err(Errno::AGAIN)) {
            self.receiver.set(Some(other));
        }
        sent
    }

    /// `ids`: who has connected the socket, if that was not both ends' doing.
    fn put(
        &self,
        other: &Sock,
        ids: Option<Ids>,
        message: &mut Outgoing<'_, '_, '_>,
        outward: &mut Outward<'_>,
        len: usize,
        sndbuf: u32,
    ) -> Result<usize, Errno> {
        let own = &self.own;
        let mut start = *message.data;
        let mut theirs = other.lock();
        if !self.ordered && !may_send(own, &theirs) {
            return Err(Errno::PERM);
        }
        if other.shutdown() & DEAD != 0 {
            drop(theirs);
            return Err(self.gone(other));
        }
        if other.shutdown() & RCV != 0 {
            return Err(Errno::PIPE);
        }
        if self.ordered && theirs.charged >= sndbuf {
            return Err(Errno::AGAIN);
        }
        if !self.ordered && is_full(own, other, &theirs) {
            if !self.waits {
                hope(own, &mut theirs)?;
            }
            return Err(Errno::AGAIN);
        }
        let mut segment = Segment::new(&mut start, len, self.charge)?;
        if let Some(sender) = outward.sender {
            segment.sender = sender;
        } else if tells_sender(own, other) {
            // A `write` does not say who calls: then it is who has made the connection, as the other end knows.
            let ids = self.on.who.ids().or(ids).or(theirs.peer_ids);
            segment.sender = ids.map_or(Sender::UNKNOWN, Sender::of);
        }
        theirs.reserve()?;
        segment.parcel = outward.take();
        let has_sockets = segment.parcel.as_ref().is_some_and(|parcel| parcel.has_sockets());
        if !self.ordered {
            segment.from = Some(own.clone());
        }
        theirs.queue.push_back(segment);
        if self.ordered {
            theirs.charged += self.charge;
        } else {
            // Relaxed: only the sum counts; the lock brings it to whoever reads the message.
            own.sent.fetch_add(self.charge, Ordering::Relaxed);
        }
        let suspicious = has_sockets && other.may_close_loop(&theirs);
        drop(theirs);
        if suspicious {
            outward.suspect();
        }
        *message.data = start;
        message.data.finish();
        other.wake(READABLE);
        Ok(len)
    }

    /// The receiver was closed.
    #[cold]
    fn gone(&self, other: &Sock) -> Errno {
        if self.ordered {
            return Errno::PIPE;
        }
        if self.name.is_empty() {
            let old = self.own.lock().peer.take_if(|peer| peer.is(other));
            if let Some(old) = old {
                disconnected(&self.own, &old, &self.on.net().unix.flights);
            }
        }
        Errno::CONNREFUSED
    }
}

/// A message that has been found.
struct Found {
    copied: usize,
    len: usize,
    name: SockAddr,
    inward: Inward,
}

/// What there was instead of a message.
enum Instead {
    End,
    Failed(Errno),
}

/// `recvmsg` and `read`.
pub(super) fn receive(
    end: &UnixEnd,
    on: &On<'_>,
    message: &mut Incoming<'_, '_, '_>,
) -> Result<usize, Errno> {
    let ordered = on.socket.ty() == SOCK_SEQPACKET;
    let sock = end.sock(on.socket)?;
    if ordered && sock.phase() != ESTABLISHED {
        return Err(Errno::NOTCONN);
    }
    if message.flags & MSG_OOB != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    let waits = on.waits(message.flags);
    let ends = waits || ordered || on.is_trial(message.flags);
    let mut again = || match take(end, sock, on, message, ends) {
        Ok(found) => Ok(Some(found)),
        Err(Instead::End) => Ok(None),
        Err(Instead::Failed(errno)) => Err(errno),
    };
    let found = match again() {
        Err(Errno::AGAIN) if waits => {
            wait(&sock.waiters, READABLE, true, sock.options.receive_timeout(), again)?
        }
        found => found?,
    };
    let Some(found) = found else {
        *message.name = SockAddr::NONE;
        return Ok(0);
    };
    *message.name = found.name;
    if found.copied < found.len {
        message.found |= MSG_TRUNC;
    }
    message.found |= found.inward.deliver(end, on.who, message.control, message.flags);
    Ok(if message.flags & MSG_TRUNC != 0 { found.len } else { found.copied })
}

/// Takes a message, or looks at one. `ends`: whether a shutdown is told by the end rather than by `EAGAIN`.
fn take(
    end: &UnixEnd,
    sock: &Sock,
    on: &On<'_>,
    message: &mut Incoming<'_, '_, '_>,
    ends: bool,
) -> Result<Found, Instead> {
    sock.take_error().map_err(Instead::Failed)?;
    let peek = message.flags & MSG_PEEK != 0;
    let flights = &on.net().unix.flights;
    let mut state = flights.lock_thawed(sock);
    let offset = sock.options.peek_off();
    let (mut at, mut skip) = (0, if peek { offset.unwrap_or(0) as usize } else { 0 });
    while peek && let Some(segment) = state.queue.get(at) {
        let len = segment.bytes().len();
        if offset.is_none() || skip < len || skip == 0 && !segment.peeked {
            break;
        }
        skip -= len;
        at += 1;
    }
    let Some(segment) = state.queue.get_mut(at) else {
        return Err(if ends && sock.shutdown() & RCV != 0 {
            Instead::End
        } else {
            Instead::Failed(Errno::AGAIN)
        });
    };
    let mut inward = Inward { sender: Some(segment.sender), ..Inward::default() };
    inward.take(&mut segment.parcel, peek).map_err(Instead::Failed)?;
    segment.peeked |= peek && segment.bytes().is_empty();
    let bytes = &segment.bytes()[skip..];
    let (copied, len) = (message.data.put(bytes), bytes.len());
    let sender = segment.from.as_deref().or_else(|| end.peer.get());
    let name =
        sender.and_then(|sender| sender.name.get()).map_or(SockAddr::NONE, |name| name.address);
    if let Some(offset) = offset {
        let moved = copied as u32;
        sock.options.set_peek_off(if peek {
            offset.saturating_add(moved)
        } else {
            offset.saturating_sub(bytes.len() as u32)
        });
    }
    // Also by who only looks, as on Linux: somebody may have a place now for another reason, of which nobody has told.
    let hopeful = core::mem::take(&mut state.hopeful);
    if peek {
        drop(state);
    } else {
        let segment = state.queue.pop_front();
        let segment = segment.expect("it was looked at");
        let mut charged = 0;
        if segment.from.is_none() {
            state.charged -= segment.charge;
            charged = state.charged;
        }
        drop(state);
        match (&segment.from, end.peer.get()) {
            (Some(from), _) => from.uncharge(segment.charge),
            (None, Some(peer)) if peer.is_writable(charged) => peer.wake(WRITABLE),
            _ => {}
        }
        inward.arrive(flights);
    }
    for hopeful in hopeful {
        hopeful.wake(WRITABLE);
    }
    sock.wake_places(1);
    Ok(Found { copied, len, name, inward })
}
