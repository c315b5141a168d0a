//! Listeners: the connections that wait to be accepted, and those that wait for a place among them.

use super::super::address::any;
use super::super::names;
use super::super::ports::Tuple;
use super::connect::{Control, Phase};
use super::deferred::Deferrals;
use super::{CLOSED, CONNECTING, ESTABLISHED, End, LISTENS, READABLE, SHUT_RD, SHUT_WR};
use crate::address::SockAddr;
use crate::proto::{self, On};
use crate::raw::Object;
use core::net::SocketAddr;
use quietline_platform::atomic::Ordering;
use quietline_platform::{fault, heap};
use quietline_sync::WaitQueue;
use quietline_vfs::Events;
use rustix::io::Errno;
use std::collections::VecDeque;

/// What a listener has. On lines of its own: every connection to it writes them.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Listener {
    /// How often its socket has begun to listen. What was promised before the last `shutdown` is not owed by who listens now.
    generation: u32,
    /// Where it listens.
    local: SocketAddr,
    backlog: usize,
    /// Whether it was told an address: its connections go on as if they had been.
    keeps_address: bool,
    /// Ends of connections, oldest first.
    ready: VecDeque<Object<End>>,
    /// Places among them that are promised.
    promised: usize,
    /// Sockets that wait for a place.
    waiting: VecDeque<Waiting>,
    /// Connections that wait for their first byte, if there ever were any.
    pub(super) deferred: Option<Box<Deferrals>>,
}

/// A socket that waits for a place, or did.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The listener, which keeps this until it listens no more.
    listener: Object<End>,
    client: Object<End>,
    /// The connection that it has asked for, seen from there.
    tuple: Tuple,
    /// Which attempt of the client's that was: by now it may wait for another one, here or somewhere else.
    attempt: u32,
}

impl Waiting {
    /// Whether it still waits for this connection, for as long as the caller has the client's control.
    fn still(&self, _control: &Control) -> bool {
        self.seems_to_wait()
    }

    /// The same as a look: what is over does not come back.
    fn seems_to_wait(&self) -> bool {
        // Relaxed: written under the control.
        let attempt = self.client.attempt.load(Ordering::Relaxed);
        self.client.flags() & (CONNECTING | CLOSED) == CONNECTING && attempt == self.attempt
    }
}

/// A place that a listener has promised. It is made good or given back, to that listener and to none that its socket became after a
/// `shutdown`.
#[derive(Debug)]
#[must_use]
pub(super) struct Promise {
    generation: u32,
}

/// Whether a listener has a place.
pub(super) enum Place {
    /// Yes, and it is promised.
    Free(Promise),
    /// When one is free.
    Later,
    /// It listens no more.
    None,
}

impl Listener {
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether it is to be found at an address: who has found its socket may come when that listens anew, somewhere else.
    fn is_at(&self, address: SocketAddr) -> bool {
        let own = self.local.ip().to_canonical();
        self.local.port() == address.port()
            && (own.is_unspecified() || own == address.ip().to_canonical())
    }

    /// One more than the backlog says, as on Linux.
    pub(super) fn has_place(&self) -> bool {
        self.ready.len() + self.promised <= self.backlog
    }

    pub(super) fn backlog(&self) -> usize {
        self.backlog
    }

    /// Makes memory for one more connection in the accept queue.
    pub(super) fn reserve_ready(&mut self) -> Result<(), Errno> {
        reserve(&mut self.ready, self.promised + 1)
    }

    /// Appends a connection to the accept queue, which has [memory](Self::reserve_ready) for it.
    pub(super) fn push_ready(&mut self, child: Object<End>) {
        self.ready.push_back(child);
    }

    /// Promises a place, with memory for it.
    fn promise(&mut self) -> Result<Promise, Errno> {
        self.reserve_ready()?;
        self.promised += 1;
        Ok(Promise { generation: self.generation })
    }

    /// Takes a promise back; false if it was not this listener's, who then owes nothing.
    fn redeem(&mut self, promise: Promise) -> bool {
        let own = promise.generation == self.generation;
        self.promised -= usize::from(own);
        own
    }

    /// The next of those that wait, if there is a place for it.
    fn next_waiting(&mut self) -> Option<(Waiting, Promise)> {
        if !self.has_place() || self.waiting.is_empty() {
            return None;
        }
        // Without memory nobody is left asleep: another place is taken or promised then, and whoever empties that one comes here.
        let promise = self.promise().ok()?;
        self.waiting.pop_front().map(|waiting| (waiting, promise))
    }
}

pub(super) fn reserve<T>(list: &mut VecDeque<T>, more: usize) -> Result<(), Errno> {
    if list.capacity() - list.len() < more {
        fault::check().map_err(|_| Errno::NOMEM)?;
        list.try_reserve(more).map_err(|_| Errno::NOMEM)?;
    }
    Ok(())
}

impl End {
    /// `listen`.
    ///
    /// # Errors
    /// `EINVAL`; `EADDRINUSE`; `ENOMEM`.
    pub(in super::super) fn listen(
        this: &Object<Self>,
        on: &On<'_>,
        backlog: u32,
    ) -> Result<(), Errno> {
        let mut control = this.control.lock();
        if control.phase != Phase::Unconnected {
            return Err(Errno::INVAL);
        }
        let backlog = backlog as usize;
        if this.flags() & LISTENS != 0 {
            drop(control);
            if let Some(listener) = this.listener.lock().as_mut() {
                listener.backlog = backlog;
            }
            this.call_next();
            return Ok(());
        }
        let inet = &on.net().inet;
        control.listened = control.listened.wrapping_add(1);
        let fresh = Listener {
            generation: control.listened,
            local: any(this.v6),
            backlog,
            keeps_address: control.keeps_address,
            ready: VecDeque::new(),
            promised: 0,
            waiting: VecDeque::new(),
            deferred: None,
        };
        let mut fresh = heap::try_box(fresh).map_err(|_| Errno::NOMEM)?;
        if control.holding.is_none() {
            this.set_uid(on);
            let ip = control.bound.unwrap_or_else(|| any(this.v6).ip());
            let holding = inet.tcp.bind(0, this.claim(ip), this.id(), None)?;
            control.holding = Some(holding);
            control.local = Some(SocketAddr::new(ip, holding.port()));
        }
        let (Some(holding), Some(local)) = (control.holding, control.local) else {
            return Err(Errno::INVAL);
        };
        fresh.local = local;
        *this.listener.lock() = Some(fresh);
        this.set(LISTENS);
        let claim = this.claim(local.ip());
        let found = inet.tcp.change(holding, claim, None, Some(this), true);
        if found.is_err() {
            // Who had found it before it was shut may have been let in, or wait, by now.
            this.stop_listening(&control);
        }
        found
    }

    /// Asks a listener for a place, or to be called when there is one. The caller has the client's control, and says which of its
    /// attempts this is.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn place_for(
        this: &Object<Self>,
        client: &Object<Self>,
        tuple: Tuple,
        attempt: u32,
    ) -> Result<Place, Errno> {
        let mut listener = this.listener.lock();
        let Some(listener) = listener.as_mut().filter(|listener| listener.is_at(tuple.1)) else {
            return Ok(Place::None);
        };
        if listener.has_place() {
            return listener.promise().map(Place::Free);
        }
        if listener.waiting.len() == listener.waiting.capacity() {
            // Those who have given up are not kept for ever.
            listener.waiting.retain(Waiting::seems_to_wait);
        }
        reserve(&mut listener.waiting, 1)?;
        client.set(CONNECTING);
        let (own, client) = (this.clone(), client.clone());
        listener.waiting.push_back(Waiting { listener: own, client, tuple, attempt });
        Ok(Place::Later)
    }

    /// Makes the other end of a connection to this listener, which has promised a place. The caller has the client's
    /// control. If the listener listens no more, or anew, the connection ends as if it had been accepted and closed.
    ///
    /// Returns `true` if the connection is in the accept queue: then an acceptor has to be
    /// [woken](Self::offer). It is not if it is [deferred](super::deferred).
    ///
    /// # Errors
    /// `ENOMEM`: the place is free again, which is to be told to [who waits for one](Self::call_next).
    pub(super) fn admit(
        this: &Object<Self>,
        client: &Object<Self>,
        (from, to): Tuple,
        promise: Promise,
    ) -> Result<bool, Errno> {
        let mut child = match this.child(from, to) {
            Ok(child) => child,
            Err(errno) => {
                this.give_back(promise);
                return Err(errno);
            }
        };
        let defers = this.settings.defer_accept() != 0;
        if defers {
            Self::prepare_deferral(this, client, &mut child);
        }
        // Before it is offered: it may be accepted at once.
        Self::join(client, &child);
        // A listener that was shut down before it listened makes connections that are.
        let shut = this.flags() & (SHUT_RD | SHUT_WR);
        if shut != 0 {
            child.set(shut);
        }
        if shut & SHUT_WR != 0 {
            child.send_fin(client);
        }
        let (refused, is_queued) = this.listener.with(|listener| {
            let Some(listener) = listener else { return (Some(child), false) };
            if !listener.redeem(promise) {
                return (Some(child), false);
            }
            if defers && Self::admit_deferred(this, listener, client, &child) {
                return (None, false);
            }
            // There is memory for it: it was promised.
            listener.ready.push_back(child);
            (None, true)
        });
        let Some(child) = refused else { return Ok(is_queued) };
        // As if it had been accepted and closed.
        child.abort();
        Ok(false)
    }

    /// Wakes one who waits to accept. One for one: each gets another connection.
    pub(super) fn offer(&self) {
        self.readers.wake_ordered(READABLE.bits(), 1);
    }

    /// A socket that is connected before it is accepted: the listener's options, and a share of its port.
    fn child(&self, from: SocketAddr, to: SocketAddr) -> Result<Object<Self>, Errno> {
        let mut child = Self::new(self.net, self.v6).map_err(|_| Errno::NOMEM)?;
        child.options.inherit(&self.options);
        child.settings.inherit(&self.settings);
        // Relaxed: tunables, in effect.
        child.uid.store(self.uid(), Ordering::Relaxed);
        child.congestion.store(self.congestion.load(Ordering::Relaxed), Ordering::Relaxed);
        let holding = self.net.get().inet.tcp.join(to.port(), child.claim(to.ip()))?;
        let keeps = self
            .listener
            .with(|listener| listener.as_ref().is_some_and(|listener| listener.keeps_address));
        *Object::get_mut(&mut child).expect("new").control.get_mut() = Control {
            phase: Phase::Connected,
            keeps_address: keeps,
            holding: Some(holding),
            local: Some(to),
            remote: Some(from),
            ..Control::new()
        };
        Ok(child)
    }

    /// Takes the next connection (`accept`).
    ///
    /// # Errors
    /// `EINVAL` for what does not listen; `EAGAIN`, `EINTR`.
    pub(in super::super) fn accept(&self, on: &On<'_>) -> Result<(Object<Self>, SockAddr), Errno> {
        let child = match self.try_accept() {
            Err(Errno::AGAIN) if on.waits(0) => {
                let timeout = self.options.receive_timeout();
                proto::wait(&self.readers, Events::TO_READ, true, timeout, || self.try_accept())?
            }
            done => done?,
        };
        let (remote, deferred_by) = {
            let mut control = child.control.lock();
            (control.remote, control.deferred_by.take())
        };
        drop(deferred_by);
        let name = match remote {
            Some(remote) => names::shown(remote, self.v6),
            None => names::unbound(self.v6, 0),
        };
        Ok((child, name))
    }

    fn try_accept(&self) -> Result<Object<Self>, Errno> {
        let (child, waiting, defers) = {
            let mut listener = self.listener.lock();
            let listener = listener.as_mut().ok_or(Errno::INVAL)?;
            let defers = listener.deferred.is_some();
            let child = listener.ready.pop_front().ok_or(Errno::AGAIN)?;
            (child, if defers { None } else { listener.next_waiting() }, defers)
        };
        if let Some(waiting) = waiting {
            self.call_in(waiting);
        }
        if defers {
            self.call_next();
        }
        Ok(child)
    }

    /// A place that was promised is not wanted.
    #[cold]
    fn give_back(&self, promise: Promise) {
        if let Some(listener) = self.listener.lock().as_mut() {
            listener.redeem(promise);
        }
        self.queue_complete();
    }

    /// Moves deferred connections that are complete to the accept queue and wakes acceptors.
    #[cold]
    fn queue_complete(&self) {
        let queued = self
            .listener
            .with(|listener| listener.as_mut().map_or(0, |listener| listener.queue_complete()));
        self.offer_many(queued);
    }

    /// There may be a place for one that waits, and not because of an [`accept`](Self::accept). The caller has nobody's control.
    #[cold]
    pub(super) fn call_next(&self) {
        self.queue_complete();
        let next = self.listener.lock().as_mut().and_then(|listener| listener.next_waiting());
        if let Some(next) = next {
            self.call_in(next);
        }
    }

    /// There is a place for one that waits. If it does not wait any more, or cannot be let in, the next one gets it; and so do
    /// others, as long as there are places.
    #[cold]
    fn call_in(&self, first: (Waiting, Promise)) {
        let mut next = Some(first);
        while let Some((waiting, promise)) = next {
            let client = &waiting.client;
            let mut control = client.control.lock();
            if waiting.still(&control) {
                let offered = Self::admit(&waiting.listener, client, waiting.tuple, promise);
                if offered.is_err() {
                    client.refused(&mut control);
                }
                drop(control);
                client.wake_all(Events::ERR | Events::HUP);
                if offered == Ok(true) {
                    self.offer();
                }
            } else {
                drop(control);
                self.give_back(promise);
            }
            next = self.listener.lock().as_mut().and_then(|listener| listener.next_waiting());
        }
    }

    /// Listens no more: what waits is reset or refused. The port stays its.
    pub(super) fn stop_listening(&self, control: &Control) {
        // Set by who has the control, as the caller has; and where it is not set there is none.
        if self.flags() & LISTENS == 0 {
            return;
        }
        let Some(listener) = self.listener.lock().take() else { return };
        self.clear(LISTENS);
        if let (Some(holding), Some(local)) = (control.holding, control.local) {
            // Without a check there is no error.
            let _ =
                self.net.get().inet.tcp.change(holding, self.claim(local.ip()), None, None, false);
        }
        for child in listener.ready {
            child.abort();
        }
        if let Some(deferred) = listener.deferred {
            self.net.get().inet.ticks.remove(self);
            for (child, is_complete) in deferred.into_all() {
                if is_complete { child.abort() } else { child.vanish() }
            }
        }
        for waiting in listener.waiting {
            let client = &waiting.client;
            let mut control = client.control.lock();
            if waiting.still(&control) {
                client.refused(&mut control);
            }
            drop(control);
            client.wake_all(Events::ERR | Events::HUP);
        }
        // Those who wait to accept learn that there is nothing to wait for.
        self.readers.wake_exchanged(WaitQueue::ANY, WaitQueue::ALL);
    }

    /// Whether it takes connections (`SO_ACCEPTCONN`).
    pub(in super::super) fn listens(&self) -> bool {
        self.flags() & LISTENS != 0
    }

    /// What `TCP_INFO` calls the state.
    pub(super) fn state(&self) -> u8 {
        use super::{DEAD, GOT_FIN, SENT_FIN};
        match self.flags() {
            flags if flags & LISTENS != 0 => 10,
            flags if flags & CONNECTING != 0 => 2,
            flags if flags & ESTABLISHED == 0 || flags & DEAD != 0 => 7,
            flags if flags & SENT_FIN != 0 => 5,
            flags if flags & GOT_FIN != 0 => 8,
            _ => 1,
        }
    }

    /// Whose port it holds.
    pub(super) fn uid(&self) -> u32 {
        // Relaxed: written before the socket is in any table, and by those who have its control.
        self.uid.load(Ordering::Relaxed)
    }

    pub(super) fn set_uid(&self, on: &On<'_>) {
        // Relaxed: as above.
        self.uid.store(on.who.ids().map_or(0, |ids| ids.effective[0]), Ordering::Relaxed);
    }
}
