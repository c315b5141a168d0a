//! How ends are named, connected, shut down and closed.

use super::UnixEnd;
use super::flight::Flights;
use super::names::{self, Key, Name, Target, no_name};
use super::sock::{
    CHANGED, CLOSE, DEAD, ESTABLISHED, Embryo, LISTEN, Listener, RCV, READABLE, SEND, Sock, State,
    WRITABLE,
};
use crate::abi::{SHUT_RD, SHUT_WR, SO_PASSCRED, SOCK_DGRAM};
use crate::address::SockAddr;
use crate::caller::Caller;
use crate::proto::{On, deadline, left, wait};
use crate::raw::Object;
use crate::socket::Socket;
use quietline_platform::{fault, heap};
use quietline_sync::Once;
use rustix::io::Errno;
use std::collections::VecDeque;

/// `bind`.
pub(super) fn bind(end: &UnixEnd, on: &On<'_>, address: &SockAddr) -> Result<(), Errno> {
    let names = &on.net().unix.names;
    let ty = on.socket.ty();
    match names::target(address)? {
        Target::Any => names.choose(&end.sock_share(on.socket)?, ty),
        Target::Abstract => {
            let name = Name { address: *address, key: names.abstract_key(address, ty) };
            names.bind(&end.sock_share(on.socket)?, name)
        }
        Target::Path(path) => {
            let sock = end.sock_share(on.socket)?;
            let address = names::path_address(path);
            let mut bind = |node| names.bind(&sock, Name { address, key: Key::Node(node) });
            on.who.make_node(path, &mut bind).map_err(|errno| match errno {
                Errno::EXIST => Errno::ADDRINUSE,
                errno => errno,
            })
        }
    }
}

/// A socket that has no name gets one, if it wants to know who writes to it.
pub(super) fn autobind(end: &UnixEnd, on: &On<'_>) -> Result<(), Errno> {
    let sock = end.sock(on.socket)?;
    if sock.options.is_on(SO_PASSCRED) && sock.name.get().is_none() {
        let sock = end.sock_share(on.socket)?;
        // A send does not hold its file: under the lock, so that who closes it finds the name or has left this note.
        let _state = sock.lock();
        if sock.shutdown() & DEAD != 0 {
            return Err(Errno::BADF);
        }
        on.net().unix.names.choose(&sock, on.socket.ty())?;
    }
    Ok(())
}

/// The socket at an address (`unix_find_other`).
pub(super) fn find(on: &On<'_>, address: &SockAddr) -> Result<Object<Sock>, Errno> {
    let names = &on.net().unix.names;
    let key = match names::target(address)? {
        Target::Any => return Err(Errno::INVAL),
        Target::Abstract => names.abstract_key(address, on.socket.ty()),
        Target::Path(path) => Key::Node(on.who.find_node(path)?),
    };
    names.find(key, address).ok_or(Errno::CONNREFUSED)
}

/// Two ends of a connection, of sockets that nobody else has seen.
pub(super) fn pair(one: &mut Socket, two: &mut Socket, who: &dyn Caller) -> Result<(), Errno> {
    let (ids, ty) = (who.ids(), one.ty());
    let all = &one.net().unix.socks;
    let [a, peer_of_b] = Sock::connected(all, ty, ids)?;
    let [b, peer_of_a] = Sock::connected(all, ty, ids)?;
    let (one, two) = (&mut one.unix, &mut two.unix);
    if ty == SOCK_DGRAM {
        a.lock().peer = Some(peer_of_a);
        b.lock().peer = Some(peer_of_b);
    } else {
        (one.peer, two.peer) = (Once::of(peer_of_a), Once::of(peer_of_b));
    }
    (one.sock, two.sock) = (Once::of(a), Once::of(b));
    Ok(())
}

/// Parts two sockets that [`pair`] has made and that never got files, by one of them.
pub(super) fn unpair(one: &UnixEnd) {
    let peer = one.get().and_then(|sock| sock.lock().peer.take());
    drop(peer);
}

/// `listen`.
pub(super) fn listen(end: &UnixEnd, on: &On<'_>, backlog: u32) -> Result<(), Errno> {
    if on.socket.ty() == SOCK_DGRAM {
        return Err(Errno::OPNOTSUPP);
    }
    let sock = end.sock(on.socket)?;
    if sock.name.get().is_none() {
        return Err(Errno::INVAL);
    }
    let mut state = sock.lock();
    match (sock.phase(), &mut state.listener) {
        (LISTEN, Some(listener)) => listener.backlog = backlog,
        (CLOSE, _) => {
            let new = heap::try_box(Listener { backlog, queue: VecDeque::new() });
            state.listener = Some(new.map_err(|_| Errno::NOMEM)?);
            sock.set_phase(LISTEN);
        }
        _ => return Err(Errno::INVAL),
    }
    state.ids = on.who.ids();
    drop(state);
    // There may be more room.
    sock.waiters.wake_ordered(WRITABLE.bits(), quietline_sync::WaitQueue::ALL);
    Ok(())
}

/// `connect`, of a stream or of messages in order.
pub(super) fn connect(end: &UnixEnd, on: &On<'_>, address: &SockAddr) -> Result<(), Errno> {
    if matches!(names::target(address)?, Target::Any) {
        return Err(Errno::INVAL);
    }
    autobind(end, on)?;
    let connected = connect_named(end, on, address);
    if connected.is_err() {
        // The end that was made for it is closed; and so, as on Linux, what nobody can reach is looked for.
        on.net().unix.flights.collect();
    }
    connected
}

fn connect_named(end: &UnixEnd, on: &On<'_>, address: &SockAddr) -> Result<(), Errno> {
    let peer = end.sock_share(on.socket)?;
    let [sock] = Sock::new(&on.net().unix.socks, on.socket.ty())?;
    let mut embryo = Embryo { sock, peer };
    let mut offered = Offered(None);
    // Since the first of its waits.
    let mut ends = None;
    loop {
        let listener = find_typed(on, address)?;
        let (why, unused) = match knock(end, embryo, &listener, on) {
            Ok(()) => {
                offered.used_up(&listener);
                listener.wake(READABLE);
                return Ok(());
            }
            Err(failed) => failed,
        };
        embryo = unused;
        match why {
            Knock::Again => {}
            Knock::Full if on.waits(0) => {
                // Somebody was faster; and another listener's place is not kept for a sleep.
                offered.used_up(&listener);
                drop(offered);
                let full = || match listener.lock().listener.as_deref() {
                    Some(full) if listener.shutdown() & (RCV | DEAD) == 0 && full.is_full() => {
                        Err(Errno::AGAIN)
                    }
                    _ => Ok(()),
                };
                let ends =
                    *ends.get_or_insert_with(|| deadline(embryo.peer.options.send_timeout()));
                wait(&listener.waiters, WRITABLE, true, left(ends), full)?;
                offered = Offered(Some(listener));
            }
            Knock::Full => return Err(Errno::AGAIN),
            Knock::Failed(errno) => return Err(errno),
        }
    }
}

/// The listener whose place a connect was woken for. One place wakes one who waits: if that one does not take it, because
/// something else is wrong or the address is another's by now, the next is woken.
struct Offered(Option<Object<Sock>>);

impl Offered {
    /// `listener` has no such place any more.
    fn used_up(&mut self, listener: &Sock) {
        self.0.take_if(|offered| offered.is(listener));
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        if let Some(listener) = &self.0 {
            listener.wake(WRITABLE);
        }
    }
}

/// The socket at an address, of this type.
pub(super) fn find_typed(on: &On<'_>, address: &SockAddr) -> Result<Object<Sock>, Errno> {
    let other = find(on, address)?;
    if other.ty != on.socket.ty() {
        return Err(Errno::PROTOTYPE);
    }
    Ok(other)
}

enum Knock {
    /// It was closed at this moment: there may be another.
    Again,
    Full,
    Failed(Errno),
}

impl Listener {
    fn is_full(&self) -> bool {
        self.queue.len() > self.backlog as usize
    }
}

/// Puts a connection into a listener's queue, or gives it back. `end` is the connection's client; its other end is new, and nobody
/// else's.
fn knock(
    end: &UnixEnd,
    mut embryo: Embryo,
    other: &Sock,
    on: &On<'_>,
) -> Result<(), (Knock, Embryo)> {
    let mut theirs = other.lock();
    if let Err(why) = establish(end, &mut embryo, other, &mut theirs, on) {
        return Err((why, embryo));
    }
    let listener = theirs.listener.as_deref_mut().expect("it was there, and its lock is held");
    // There is room for it.
    listener.queue.push_back(embryo);
    Ok(())
}

/// Makes the two ends each other's, if the listener has room.
fn establish(
    end: &UnixEnd,
    embryo: &mut Embryo,
    other: &Sock,
    theirs: &mut State,
    on: &On<'_>,
) -> Result<(), Knock> {
    use Knock::{Again, Failed, Full};
    let own = &*embryo.peer;
    if other.shutdown() & DEAD != 0 {
        return Err(Again);
    }
    let ids = theirs.ids;
    let Some(listener) = theirs.listener.as_deref_mut() else {
        return Err(Failed(Errno::CONNREFUSED));
    };
    if other.shutdown() & RCV != 0 {
        return Err(Failed(Errno::CONNREFUSED));
    }
    if listener.is_full() {
        return Err(Full);
    }
    let not_now = |phase| Failed(if phase == ESTABLISHED { Errno::ISCONN } else { Errno::INVAL });
    // Before the second lock: a listener's lock is taken before that of what is none, and who listens once always does.
    if own.phase() != CLOSE {
        return Err(not_now(own.phase()));
    }
    let mut ours = own.lock();
    if own.phase() != CLOSE {
        return Err(not_now(own.phase()));
    }
    if fault::check().is_err() || listener.queue.try_reserve(1).is_err() {
        return Err(Failed(Errno::NOMEM));
    }
    ours.ids = on.who.ids();
    ours.peer_ids = ids;
    Object::get_mut(&mut embryo.sock).expect("new").accepted(other, ids, ours.ids);
    // Nobody else does: only who finds the phase so, under the lock.
    end.peer.give(embryo.sock.clone());
    own.set_phase(ESTABLISHED);
    Ok(())
}

/// `accept`.
pub(super) fn accept(end: &UnixEnd, on: &On<'_>, new: &UnixEnd) -> Result<SockAddr, Errno> {
    if on.socket.ty() == SOCK_DGRAM {
        return Err(Errno::OPNOTSUPP);
    }
    let sock = end.get().filter(|sock| sock.phase() == LISTEN).ok_or(Errno::INVAL)?;
    let flights = &on.net().unix.flights;
    let take = |waits: bool| {
        let mut state = flights.lock_thawed(sock);
        let listener = state.listener.as_deref_mut().ok_or(Errno::INVAL)?;
        listener.queue.pop_front().ok_or_else(|| match sock.shutdown() & RCV {
            RCV if waits => Errno::INVAL,
            _ => Errno::AGAIN,
        })
    };
    let embryo = match take(on.waits(0)) {
        Err(Errno::AGAIN) if on.waits(0) => {
            wait(&sock.waiters, READABLE, true, sock.options.receive_timeout(), || take(true))?
        }
        done => done?,
    };
    // There is room for another.
    sock.wake(WRITABLE);
    let address = name_of(&embryo.peer);
    embryo.sock.set_embryo(false);
    // Nobody else knows the new socket.
    new.sock.give(embryo.sock);
    new.peer.give(embryo.peer);
    Ok(address)
}

/// What a socket is bound to.
pub(super) fn name_of(sock: &Sock) -> SockAddr {
    sock.name.get().map_or_else(no_name, |name| name.address)
}

/// `getsockname` and `getpeername`.
pub(super) fn name(end: &UnixEnd, ty: i32, peer: bool) -> Result<SockAddr, Errno> {
    if !peer {
        return Ok(end.get().map_or_else(no_name, name_of));
    }
    if ty == SOCK_DGRAM {
        let other = end.get().and_then(|sock| sock.lock().peer.clone()).ok_or(Errno::NOTCONN)?;
        return Ok(name_of(&other));
    }
    end.peer.get().map(name_of).ok_or(Errno::NOTCONN)
}

/// `shutdown`.
pub(super) fn shutdown(end: &UnixEnd, socket: &Socket, how: i32) -> Result<(), Errno> {
    let (own, theirs) = match how {
        SHUT_RD => (RCV, SEND),
        SHUT_WR => (SEND, RCV),
        _ => (RCV | SEND, RCV | SEND),
    };
    let sock = end.sock(socket)?;
    {
        let _state = sock.lock();
        sock.shut(own);
    }
    // The own end first: an epoll that watches both tells of them in this order.
    sock.wake_all();
    if socket.ty() != SOCK_DGRAM
        && let Some(peer) = end.peer.get()
    {
        {
            let _state = peer.lock();
            peer.shut(theirs);
        }
        peer.wake_all();
    }
    Ok(())
}

/// The last open file of a socket has ended (`unix_release_sock`).
pub(super) fn closed(end: &UnixEnd, socket: &Socket) {
    let Some(sock) = end.get() else { return };
    let unix = &socket.net().unix;
    // Before it is dead, so that who looks for it does not find it again and again; and after, for a send at this moment that has
    // given it a name.
    unix.names.forget(sock);
    let buried = bury(sock, &unix.flights);
    unix.names.forget(sock);
    if let Some(peer) = end.peer.get() {
        hang_up(peer, buried.unread);
    }
    let mut files = buried.files;
    for embryo in buried.list {
        files |= bury(&embryo.sock, &unix.flights).files;
        hang_up(&embryo.peer, true);
    }
    for hopeful in buried.hopeful {
        hopeful.wake(WRITABLE);
    }
    sock.wake_places(quietline_sync::WaitQueue::ALL);
    // Who is about to connect looks under the lock. Nobody else waits here: he would hold the file.
    sock.waiters.wake_ordered(CHANGED.bits(), quietline_sync::WaitQueue::ALL);
    if buried.entered {
        unix.flights.forget(sock);
    }
    if files {
        unix.flights.drop_lost();
    }
    unix.flights.collect();
}

/// What a socket leaves behind.
struct Buried {
    list: VecDeque<Embryo>,
    hopeful: Vec<Object<Sock>>,
    /// Whether there was something in its queue.
    unread: bool,
    /// Whether there were files.
    files: bool,
    /// Whether it is in the register of what is in flight.
    entered: bool,
    /// Dropped without a lock.
    _peer: Option<Object<Sock>>,
}

/// Ends a state: nothing is received any more, and what was is lost.
fn bury(sock: &Sock, flights: &Flights) -> Buried {
    let mut state = flights.lock_thawed(sock);
    sock.shut(RCV | SEND | DEAD);
    let queue = core::mem::take(&mut state.queue);
    state.charged = 0;
    let mut buried = Buried {
        files: false,
        entered: state.traffic.is_entered(),
        list: state
            .listener
            .as_deref_mut()
            .map(|listener| core::mem::take(&mut listener.queue))
            .unwrap_or_default(),
        hopeful: core::mem::take(&mut state.hopeful),
        // An empty message at the front does not count, as on Linux 6.18.
        unread: queue.front().is_some_and(|first| !first.rest().is_empty() || queue.len() > 1),
        _peer: state.peer.take(),
    };
    drop(state);
    buried.files = flights.purge(queue);
    buried
}

/// Tells the other end that this one is gone.
fn hang_up(peer: &Sock, unread: bool) {
    // An end that is gone itself stays so: nobody asks it anything.
    if peer.shutdown() & DEAD != 0 {
        return;
    }
    {
        let _state = peer.lock();
        peer.shut(RCV | SEND);
        if unread {
            peer.set_error(Errno::CONNRESET);
        }
    }
    // Readers and pollers look under this lock. A writer looks at some of it without; but the end that is gone he looks at under the
    // lock with which it was buried, and finds no want of room there.
    peer.waiters.wake_ordered(CHANGED.bits(), quietline_sync::WaitQueue::ALL);
}
