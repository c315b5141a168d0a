//! Listeners: the connections that wait to be accepted, and those that wait for a place among them.

use super::super::address::any;
use super::super::names;
use super::super::ports::Tuple;
use super::connect::{Control, Phase};
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
    backlog: usize,
    /// Whether it was told an address: its connections go on as if they had been.
    keeps_address: bool,
    /// Ends of connections, oldest first.
    ready: VecDeque<Object<End>>,
    /// Places among them that are promised.
    promised: usize,
    /// Sockets that wait for a place.
    waiting: VecDeque<Waiting>,
}

/// A socket that waits for a place, or did.
#[derive(Debug)]
pub(super) struct Waiting {
    client: Object<End>,
    /// The connection that it has asked for, seen from there: by now it may wait for another one somewhere else.
    tuple: Tuple,
}

impl Waiting {
    /// Whether it still waits for this connection. The caller has the client's control.
    fn still(&self, control: &Control) -> bool {
        self.client.flags() & (CONNECTING | CLOSED) == CONNECTING
            && (control.local, control.remote) == (Some(self.tuple.0), Some(self.tuple.1))
    }
}

/// Whether a listener has a place.
pub(super) enum Place {
    /// Yes, and it is promised.
    Free,
    /// When one is free.
    Later,
    /// It listens no more.
    None,
}

impl Listener {
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// One more than the backlog says, as on Linux.
    fn has_place(&self) -> bool {
        self.ready.len() + self.promised <= self.backlog
    }

    /// Promises a place, with memory for it.
    fn promise(&mut self) -> Result<(), Errno> {
        reserve(&mut self.ready, self.promised + 1)?;
        self.promised += 1;
        Ok(())
    }

    /// The next of those that wait, if there is a place for it.
    fn next_waiting(&mut self) -> Option<Waiting> {
        if !self.has_place() || self.waiting.is_empty() || self.promise().is_err() {
            return None;
        }
        self.waiting.pop_front()
    }
}

fn reserve<T>(list: &mut VecDeque<T>, more: usize) -> Result<(), Errno> {
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
    pub(in super::super) fn listen(this: &Object<Self>, on: &On<'_>, backlog: u32) -> Result<(), Errno> {
        let mut control = this.control.lock();
        if control.phase != Phase::Unconnected {
            return Err(Errno::INVAL);
        }
        let backlog = backlog as usize;
        if this.flags() & LISTENS != 0 {
            drop(control);
            let waiting = this.listener.lock().as_mut().and_then(|listener| {
                listener.backlog = backlog;
                listener.next_waiting()
            });
            if let Some(waiting) = waiting {
                this.call_in(waiting);
            }
            return Ok(());
        }
        let inet = &on.net().inet;
        let fresh = Listener {
            backlog,
            keeps_address: control.keeps_address,
            ready: VecDeque::new(),
            promised: 0,
            waiting: VecDeque::new(),
        };
        let fresh = heap::try_box(fresh).map_err(|_| Errno::NOMEM)?;
        if control.holding.is_none() {
            this.set_uid(on);
            let ip = control.bound.unwrap_or_else(|| any(this.v6).ip());
            let holding = inet.tcp.bind(0, this.claim(ip), this.id(), None)?;
            control.holding = Some(holding);
            control.local = Some(SocketAddr::new(ip, holding.port()));
        }
        let (Some(holding), Some(local)) = (control.holding, control.local) else { return Err(Errno::INVAL) };
        *this.listener.lock() = Some(fresh);
        this.set(LISTENS);
        let claim = this.claim(local.ip());
        let found = inet.tcp.change(holding, claim, None, Some(this), true);
        if found.is_err() {
            this.clear(LISTENS);
            *this.listener.lock() = None;
        }
        found
    }

    /// Asks a listener for a place, or to be called when there is one. The caller has the client's control.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn place_for(&self, client: &Object<Self>, tuple: Tuple) -> Result<Place, Errno> {
        let mut listener = self.listener.lock();
        let Some(listener) = listener.as_mut() else { return Ok(Place::None) };
        if listener.has_place() {
            listener.promise()?;
            return Ok(Place::Free);
        }
        if listener.waiting.len() == listener.waiting.capacity() {
            // Those who have given up are not kept for ever.
            listener.waiting.retain(|other| other.client.flags() & (CONNECTING | CLOSED) == CONNECTING);
        }
        reserve(&mut listener.waiting, 1)?;
        client.set(CONNECTING);
        listener.waiting.push_back(Waiting { client: client.clone(), tuple });
        Ok(Place::Later)
    }

    /// Makes the other end of a connection to this listener, which has promised a place. The caller has the client's
    /// control.
    ///
    /// # Errors
    /// `ENOMEM`; `ECONNREFUSED` if it listens no more.
    pub(super) fn admit(&self, client: &Object<Self>, from: SocketAddr, to: SocketAddr) -> Result<(), Errno> {
        let child = match self.child(from, to) {
            Ok(child) => child,
            Err(errno) => {
                if let Some(listener) = self.listener.lock().as_mut() {
                    listener.promised -= 1;
                }
                return Err(errno);
            }
        };
        // Before it is offered: it may be accepted at once.
        Self::join(client, &child);
        // A listener that was shut down before it listened makes connections that are.
        let shut = self.flags() & (SHUT_RD | SHUT_WR);
        if shut != 0 {
            child.set(shut);
        }
        if shut & SHUT_WR != 0 {
            child.send_fin(client);
        }
        let refused = match self.listener.lock().as_mut() {
            Some(listener) => {
                listener.promised -= 1;
                // There is memory for it: it was promised.
                listener.ready.push_back(child);
                None
            }
            None => Some(child),
        };
        match refused {
            None => {
                // One for one: each that waits to accept gets another connection.
                self.readers.wake_ordered(READABLE.bits(), 1);
            }
            // As if it had been accepted and closed.
            Some(child) => child.abort(),
        }
        Ok(())
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
        let keeps =
            self.listener.with(|listener| listener.as_ref().is_some_and(|listener| listener.keeps_address));
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
        let remote = child.control.lock().remote;
        let name = match remote {
            Some(remote) => names::shown(remote, self.v6),
            None => names::unbound(self.v6, 0),
        };
        Ok((child, name))
    }

    fn try_accept(&self) -> Result<Object<Self>, Errno> {
        let (child, waiting) = {
            let mut listener = self.listener.lock();
            let listener = listener.as_mut().ok_or(Errno::INVAL)?;
            let child = listener.ready.pop_front().ok_or(Errno::AGAIN)?;
            (child, listener.next_waiting())
        };
        if let Some(waiting) = waiting {
            self.call_in(waiting);
        }
        Ok(child)
    }

    /// There is a place for one that waits. If it does not wait any more, or cannot be let in, the next one gets it; and so do
    /// others, as long as there are places.
    #[cold]
    fn call_in(&self, first: Waiting) {
        let mut next = Some(first);
        while let Some(waiting) = next {
            let client = &waiting.client;
            let mut control = client.control.lock();
            let called = waiting.still(&control);
            if called && self.admit(client, waiting.tuple.0, waiting.tuple.1).is_err() {
                client.refused(&mut control);
            }
            drop(control);
            if called {
                client.wake_all(Events::ERR | Events::HUP);
            }
            next = match self.listener.lock().as_mut() {
                Some(listener) => {
                    // `admit` has given the promise back, or made it good.
                    listener.promised -= usize::from(!called);
                    listener.next_waiting()
                }
                None => None,
            };
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
            let _ = self.net.get().inet.tcp.change(holding, self.claim(local.ip()), None, None, false);
        }
        for child in listener.ready {
            child.abort();
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
