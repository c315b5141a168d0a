//! Binding, connecting, and names.

use super::super::address::{self, Local, any, check_bind};
use super::super::names;
use super::super::ports::{Claim, Holding, Tuple};
use super::listen::Place;
use super::{
    CONNECTING, DEAD, DEFERRED, ESTABLISHED, End, FULL, GOT_FIN, LISTENS, Link, RCVBUF,
    SEGMENT_ACCEPTED, SEGMENT_CONNECTED, SEGMENT_LARGEST, SEGMENT_OPTIONS, SENT_FIN, SHUT_RD,
    SHUT_WR, SNDBUF, SNDBUF_GROWN, WRITABLE,
};
use crate::abi::{SO_REUSEADDR, SO_REUSEPORT};
use crate::address::SockAddr;
use crate::proto::{self, On};
use crate::raw::Object;
use core::net::{IpAddr, SocketAddr};
use quietline_platform::atomic::Ordering;
use quietline_vfs::Events;
use rustix::io::Errno;

/// What a socket is to its program (`sock->state`); what its connection is, the flags say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not connected, or a listener.
    Unconnected,
    /// A `connect` was begun that the program has not heard the end of.
    Connecting,
    /// Connected, once.
    Connected,
    /// Shut down before the program had heard of the end of its `connect` (`SS_DISCONNECTING`).
    Disconnecting,
}

/// What changes when a socket is bound and connected.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) phase: Phase,
    /// Where it is in the port table.
    pub(super) holding: Option<Holding>,
    /// The connection that it has made.
    pub(super) tuple: Option<Tuple>,
    /// Its address: as it was bound, or as the connection has it.
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    /// The address that `bind` was given. It stays whatever becomes of the port.
    pub(super) bound: Option<IpAddr>,
    /// Whether `bind` was ever given one, and not only the wildcard (`SOCK_BINDADDR_LOCK`): from then on it keeps the address of a
    /// connection that has gone, as if it had been bound to it.
    pub(super) keeps_address: bool,
    /// Whether the port was asked for by its number: then it stays when the connection goes.
    pub(super) keeps_port: bool,
    /// How often it has begun to listen: what tells a listener from one that was shut down.
    pub(super) listened: u32,
    /// The listener that has deferred this connection; the owner of this reference ends that.
    pub(super) deferred_by: Option<Object<End>>,
}

impl Control {
    pub(super) const fn new() -> Self {
        Self {
            phase: Phase::Unconnected,
            holding: None,
            tuple: None,
            local: None,
            remote: None,
            bound: None,
            keeps_address: false,
            keeps_port: false,
            listened: 0,
            deferred_by: None,
        }
    }
}

impl End {
    /// Its number in the port table.
    pub(super) fn id(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// What it wants of a port.
    pub(super) fn claim(&self, ip: IpAddr) -> Claim {
        Claim {
            local: Local::of(ip, self.settings.is_v6only()),
            v6: self.v6,
            reuse: self.options.is_on(SO_REUSEADDR),
            reuseport: self.options.is_on(SO_REUSEPORT),
            uid: self.uid(),
        }
    }

    /// `bind`.
    ///
    /// # Errors
    /// `EINVAL`, `EAFNOSUPPORT`, `EADDRNOTAVAIL`, `EACCES`, `EADDRINUSE`, `ENOMEM`.
    pub(in super::super) fn bind(&self, on: &On<'_>, address: &SockAddr) -> Result<(), Errno> {
        let address = names::to_bind(address, self.v6)?;
        check_bind(address, self.v6, self.settings.is_v6only(), self.settings.is_free_bind())?;
        if address.port() != 0 && !on.who.may_bind(address.port()) {
            return Err(Errno::ACCESS);
        }
        let mut control = self.control.lock();
        let flags = self.flags();
        if flags & DEAD != 0 && control.remote.is_some() {
            // With the connection its port has gone; the address is as it was.
            self.part(&mut control);
        }
        let is_closed = flags & (LISTENS | CONNECTING | ESTABLISHED) == 0 || flags & DEAD != 0;
        if control.holding.is_some() || !is_closed {
            return Err(Errno::INVAL);
        }
        self.set_uid(on);
        let claim = self.claim(address.ip());
        let holding = match on.net().inet.tcp.bind(address.port(), claim, self.id(), None) {
            Ok(holding) => holding,
            Err(errno) => {
                if errno == Errno::ADDRINUSE {
                    // The address that it had has gone; the number of the port is still shown.
                    control.bound = None;
                    control.local =
                        control.local.map(|local| SocketAddr::new(any(self.v6).ip(), local.port()));
                }
                return Err(errno);
            }
        };
        control.holding = Some(holding);
        control.keeps_port = address.port() != 0;
        control.keeps_address |= !address.ip().is_unspecified();
        if !address.ip().is_unspecified() && address.ip().to_canonical().is_ipv6() {
            self.settings.set_v6only();
        }
        control.bound = Some(address.ip());
        control.local = Some(SocketAddr::new(address.ip(), holding.port()));
        Ok(())
    }

    /// The socket's address, or its peer's.
    ///
    /// # Errors
    /// `ENOTCONN` without a peer.
    pub(in super::super) fn name(&self, peer: bool) -> Result<SockAddr, Errno> {
        let control = self.control.lock();
        if !peer {
            return Ok(match control.local {
                Some(local) => names::shown(local, self.v6),
                None => names::unbound(self.v6, 0),
            });
        }
        let is_connected = self.flags() & (ESTABLISHED | DEAD) == ESTABLISHED;
        match control.remote {
            Some(remote) if is_connected => Ok(names::shown(remote, self.v6)),
            _ => Err(Errno::NOTCONN),
        }
    }

    /// `connect`.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub(in super::super) fn connect(
        this: &Object<Self>,
        on: &On<'_>,
        address: &SockAddr,
    ) -> Result<(), Errno> {
        match Self::begin(this, on, address) {
            Err(Errno::INPROGRESS | Errno::ALREADY) if on.waits(0) => this.wait_connected(),
            // Done or failed, but the caller has not waited for it.
            Ok(Begun::Now) if on.waits(0) => Ok(()),
            Ok(Begun::Now) => Err(Errno::INPROGRESS),
            Ok(Begun::Before) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn wait_connected(&self) -> Result<(), Errno> {
        let timeout = self.options.send_timeout();
        let done = proto::wait(&self.writers, Events::TO_WRITE, false, timeout, || {
            match self.finish(&mut self.control.lock()) {
                Err(Errno::ALREADY) => Err(Errno::AGAIN),
                done => done,
            }
        });
        match done {
            // The connection is still being made.
            Err(Errno::AGAIN) => Err(Errno::INPROGRESS),
            done => done,
        }
    }

    /// What became of a connection that was begun.
    fn finish(&self, control: &mut Control) -> Result<(), Errno> {
        let flags = self.flags();
        if flags & CONNECTING != 0 {
            return Err(Errno::ALREADY);
        }
        if flags & ESTABLISHED != 0 && flags & DEAD == 0 {
            control.phase = Phase::Connected;
            return Ok(());
        }
        let errno = self.take_error().unwrap_or(Errno::CONNABORTED);
        self.hang_up(true);
        self.forget(control);
        // Once more an edge, as of every socket that is parted from a connection (`tcp_disconnect`).
        self.wake_all(Events::ERR);
        Err(errno)
    }

    fn begin(this: &Object<Self>, on: &On<'_>, address: &SockAddr) -> Result<Begun, Errno> {
        let remote = match names::to_connect(address, this.v6, false) {
            Ok(None) => {
                this.disconnect();
                return Ok(Begun::Before);
            }
            Err(errno) if address.len() < 2 => return Err(errno),
            Ok(Some(remote)) => Ok(remote),
            Err(errno) => Err(errno),
        };
        let mut control = this.control.lock();
        // As on Linux, the state of the socket comes before the rest of the address.
        if let Some(answer) = this.answer_by_phase(&mut control) {
            return answer;
        }
        let remote = remote?;
        if this.settings.is_v6only() && remote.ip().to_canonical().is_ipv4() {
            return Err(Errno::NETUNREACH);
        }
        let (to, source) = address::route_from(control.bound, remote.ip())?;
        let remote = SocketAddr::new(to, remote.port());
        let local = this.take_port(on, &mut control, source, remote)?;
        (control.local, control.remote) = (Some(local), Some(remote));
        // What went wrong before is forgotten.
        let _ = this.take_error();
        // Relaxed, so where it is looked at: written under the control; who looks without it may be told of an attempt that is over.
        let attempt = this.attempt.load(Ordering::Relaxed).wrapping_add(1);
        this.attempt.store(attempt, Ordering::Relaxed);
        // (Both ends of a connection to oneself ask each other at the same moment.)
        let is_own = local == remote;
        let listener = if is_own { None } else { on.net().inet.tcp.find(remote, local) };
        let done = match &listener {
            Some(listener) => Self::knock(this, listener, (local, remote), attempt),
            None if is_own => {
                Self::join_self(this);
                Ok(false)
            }
            None => Err(Errno::CONNREFUSED),
        };
        match done {
            Ok(is_offered) => {
                // Who does not wait is told by the next call.
                control.phase = if on.waits(0) { Phase::Connected } else { Phase::Connecting };
                drop(control);
                // Whoever watches the socket learns that it is connected; and then who watches the listener, as on Linux.
                this.wake_all(Events::empty());
                if let (true, Some(listener)) = (is_offered, listener) {
                    listener.offer();
                }
                Ok(Begun::Now)
            }
            Err(Errno::INPROGRESS) => {
                control.phase = Phase::Connecting;
                Err(Errno::INPROGRESS)
            }
            Err(Errno::CONNREFUSED) if !on.waits(0) => {
                control.phase = Phase::Connecting;
                this.refused(&mut control);
                drop(control);
                this.wake_all(Events::ERR | Events::HUP);
                Ok(Begun::Now)
            }
            Err(errno) => {
                this.forget(&mut control);
                drop(control);
                if errno == Errno::CONNREFUSED {
                    // An edge to those who watch it, who would be told of a reset.
                    this.wake_all(Events::ERR | Events::HUP);
                }
                if let (Errno::NOMEM, Some(listener)) = (errno, listener) {
                    // A place may have been promised, for which others began to wait meanwhile. (Not before: their controls are
                    // taken, and none may be while this one is.)
                    listener.call_next();
                }
                Err(errno)
            }
        }
    }

    /// Returns the answer to a `connect` of a socket that has a connection, begins one or listens;
    /// `None` if the socket can begin one.
    fn answer_by_phase(&self, control: &mut Control) -> Option<Result<Begun, Errno>> {
        match control.phase {
            Phase::Connected => Some(Err(Errno::ISCONN)),
            Phase::Connecting => Some(self.finish(control).map(|()| Begun::Before)),
            Phase::Disconnecting => Some(Err(Errno::INVAL)),
            Phase::Unconnected if self.flags() & LISTENS != 0 => Some(Err(Errno::ISCONN)),
            Phase::Unconnected => None,
        }
    }

    /// The address to connect from; enters the connection.
    fn take_port(
        &self,
        on: &On<'_>,
        control: &mut Control,
        source: IpAddr,
        remote: SocketAddr,
    ) -> Result<SocketAddr, Errno> {
        let inet = &on.net().inet;
        let source = match control.bound {
            Some(bound) => address::source(bound, remote.ip(), source)?,
            None => source,
        };
        if let Some(holding) = control.holding {
            let local = SocketAddr::new(source, holding.port());
            // No two ends have the same addresses: not one that was connected from there, nor one that was accepted there.
            if inet.tcp.has((remote, local)) || !inet.tcp.enter((local, remote))? {
                // As if it had been made, and had ended.
                (control.local, control.remote) = (Some(local), Some(remote));
                self.let_go(control);
                return Err(Errno::ADDRNOTAVAIL);
            }
            control.tuple = Some((local, remote));
            return Ok(local);
        }
        self.set_uid(on);
        let claim = self.claim(source);
        let holding = inet.tcp.bind_auto(claim, source, remote)?;
        let local = SocketAddr::new(source, holding.port());
        control.holding = Some(holding);
        control.tuple = Some((local, remote));
        Ok(local)
    }

    /// Asks for a connection. True if there is one that is to be [offered](Self::offer).
    ///
    /// # Errors
    /// `ECONNREFUSED`; `EINPROGRESS` if the backlog is full; `ENOMEM`.
    fn knock(
        this: &Object<Self>,
        listener: &Object<Self>,
        tuple: Tuple,
        attempt: u32,
    ) -> Result<bool, Errno> {
        match Self::place_for(listener, this, tuple, attempt)? {
            Place::Free(promise) => Self::admit(listener, this, tuple, promise),
            Place::Later => Err(Errno::INPROGRESS),
            Place::None => Err(Errno::CONNREFUSED),
        }
    }

    /// Connects an end to itself.
    fn join_self(this: &Object<Self>) {
        Self::join(this, this);
        if this.flags() & SHUT_WR != 0 {
            this.send_fin(this);
        }
    }

    /// Connects the two: each has the other's queue. Nobody else knows `child` yet, or it is the same.
    pub(super) fn join(this: &Object<Self>, child: &Object<Self>) {
        for end in [this, child] {
            if end.options.sndbuf() == SNDBUF {
                end.options.set_buffers(SNDBUF_GROWN, end.options.rcvbuf());
            }
        }
        if [this, child].iter().all(|end| end.has_usual_window()) {
            // Relaxed, so below: numbers that nothing depends on.
            this.segment.store(SEGMENT_CONNECTED[usize::from(this.v6)], Ordering::Relaxed);
            child.segment.store(SEGMENT_ACCEPTED, Ordering::Relaxed);
            for end in [this, child] {
                end.settings.set_window(RCVBUF / 2);
            }
        } else {
            Self::agree(this, child);
        }
        let (own, theirs) = (this.open(child), child.open(this));
        *child.tx.0.lock() = Some(Link { end: this.clone(), epoch: own });
        *this.tx.0.lock() = Some(Link { end: child.clone(), epoch: theirs });
        child.set(ESTABLISHED);
        this.set(ESTABLISHED);
        // Set by who has the control, as the caller has.
        if this.flags() & CONNECTING != 0 {
            this.clear(CONNECTING);
        }
    }

    /// Whether the numbers of a new connection do not depend on options.
    fn has_usual_window(&self) -> bool {
        self.settings.is_plain() && self.options.rcvbuf() == RCVBUF
    }

    /// Sets the largest segments and the windows of a new connection.
    #[cold]
    fn agree(this: &Self, child: &Self) {
        let said = [this, child].into_iter().filter_map(|end| end.settings.max_segment()).min();
        let [own_window, their_window] = [this, child].map(|end| end.first_window());
        let limits = [SEGMENT_CONNECTED[usize::from(this.v6)], SEGMENT_ACCEPTED];
        for (end, most, window) in [(this, limits[0], their_window), (child, limits[1], own_window)]
        {
            let most = most.min(window / 2);
            let segment = said.map_or(most, |said| most.min(said - SEGMENT_OPTIONS));
            // Relaxed: as in `join`.
            end.segment.store(segment, Ordering::Relaxed);
        }
    }

    /// The window of a new connection, by its receive buffer, `TCP_WINDOW_CLAMP` and `TCP_MAXSEG`.
    fn first_window(&self) -> u32 {
        let most = SEGMENT_LARGEST[usize::from(self.v6)];
        let segment = self.settings.max_segment().map_or(most, |said| said - SEGMENT_OPTIONS);
        self.settings.clamp_window(self.options.rcvbuf() / 2, segment)
    }

    /// Opens the queue for a peer.
    fn open(&self, peer: &Self) -> u32 {
        let mut rx = self.rx.0.lock();
        rx.gone = false;
        rx.full = false;
        rx.limit = limit(self, peer);
        rx.epoch
    }

    /// A pending connection has failed; what `connect` says next is what `error` is.
    pub(super) fn refused(&self, control: &mut Control) {
        self.fail(Errno::CONNREFUSED);
        self.set(SHUT_RD | SHUT_WR);
        self.clear(CONNECTING);
        let local = control.local;
        self.let_go(control);
        // The address is shown until the program has heard of it.
        control.local = local;
    }

    /// As before `connect`, but for the number of the port, which is still shown.
    pub(super) fn forget(&self, control: &mut Control) {
        self.let_go(control);
        self.clear(
            CONNECTING
                | ESTABLISHED
                | DEAD
                | SENT_FIN
                | GOT_FIN
                | SHUT_RD
                | SHUT_WR
                | FULL
                | DEFERRED,
        );
        control.phase = Phase::Unconnected;
        self.settings.set_window(0);
    }

    /// Gives back what the connection held, if there was one. A port that was bound by its number stays.
    pub(super) fn let_go(&self, control: &mut Control) {
        self.part(control);
        self.show_bound(control);
    }

    /// As [`let_go`](Self::let_go), but for the address that is shown.
    fn part(&self, control: &mut Control) {
        let (tuple, was_connected) = (control.tuple.take(), control.remote.take().is_some());
        let ports = &self.net.get().inet.tcp;
        match (control.holding.take_if(|_| was_connected && !control.keeps_port), tuple) {
            (Some(holding), tuple) => ports.release(holding, tuple),
            (None, Some(tuple)) => ports.leave(tuple),
            (None, None) => {}
        }
    }

    /// Gives the port back, unless it was bound by its number.
    pub(super) fn release_port(&self, control: &mut Control) {
        if !control.keeps_port
            && let Some(holding) = control.holding.take()
        {
            self.net.get().inet.tcp.release(holding, None);
        }
        self.show_bound(control);
    }

    /// The address is as it was bound; the number of the port is shown, whoever has it now.
    fn show_bound(&self, control: &mut Control) {
        let Some(local) = &mut control.local else { return };
        if control.keeps_address {
            control.bound = Some(local.ip());
        } else {
            local.set_ip(any(self.v6).ip());
        }
    }

    /// The buffers have changed: so has what fits into the queues, and who waits for room looks again.
    pub(in super::super) fn resize(&self) {
        let tx = self.tx.0.lock();
        let Some(link) = tx.as_ref() else { return };
        let peer = link.end.clone();
        {
            let mut rx = self.rx.0.lock();
            rx.limit = limit(self, &peer);
            // If there is little room now, his next send tells him.
            rx.tell_of_room(&peer);
        }
        {
            let mut rx = peer.rx.0.lock();
            if rx.epoch == link.epoch && !rx.gone {
                rx.limit = limit(&peer, self);
                rx.tell_of_room(self);
                if rx.is_nearly_full() {
                    rx.tell(self);
                }
            }
        }
        drop(tx);
        for end in [self, &peer] {
            end.writers.wake(WRITABLE.bits(), 1);
        }
    }
}

/// How much may lie in a queue: what the sender may keep, and the window.
fn limit(reader: &End, writer: &End) -> usize {
    writer.options.sndbuf() as usize + reader.options.rcvbuf() as usize / 2
}

/// How far a `connect` has come.
enum Begun {
    /// It was begun by this call, and there is an end to it.
    Now,
    /// There is nothing more to wait for.
    Before,
}
