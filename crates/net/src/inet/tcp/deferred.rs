//! Deferred connections (`TCP_DEFER_ACCEPT`): connections that become acceptable at their first
//! byte, at the end of their stream, or after a time.
//!
//! # Design
//!
//! ```text
//!   client ── DEFERRED ──> child ── Control::deferred_by ──> listener ── Deferrals ──> child
//!      │ send, shutdown, close: complete                                  │ its ticks
//!      └────────────────────────────────────> accept queue <──────────────┘
//! ```
//!
//! A child is connected at once, so the client's calls do not differ from those of any other
//! connection. The client's flag sends its first byte to a slow path. That path takes the child's
//! reference to the listener, which ends the deferral, and queues the child.
//!
//! A child has ticks, at the times at which Linux retransmits its SYN-ACK: after 1, 3, 7 seconds
//! and so on. At the first tick that is not before the listener's `TCP_DEFER_ACCEPT` the child is
//! queued. A thread of the kernel, started by the first deferral, waits for the ticks.
//!
//! # Limits
//!
//! A listener defers one connection more than its backlog. Further ones are queued at once, as by
//! Linux with SYN cookies. In a child of a `fork` of the host no thread waits for ticks: there a
//! connection becomes acceptable only when its client sends or ends its stream.

use super::listen::Listener;
use super::{DEAD, DEFERRED, ESTABLISHED, End, SHUT_WR};
use crate::raw::Object;
use core::fmt;
use core::time::Duration;
use quietline_platform::atomic::{AtomicBool, AtomicU32, Ordering};
#[cfg(not(loom))]
use quietline_platform::clock;
use quietline_platform::{AllocError, fault, heap};
use quietline_sync::{Shared, SpinLock};
use std::collections::HashMap;

/// From the beginning of a connection to its first tick, and between two ticks at most.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(120);
/// The shortest sleep of the thread: ticks are late by this at most.
const SHORTEST: Duration = Duration::from_millis(10);

/// The time of the monotonic clock. In a model it stands still.
fn now() -> Duration {
    #[cfg(not(loom))]
    return clock::monotonic();
    #[cfg(loom)]
    Duration::ZERO
}

/// A deferred connection of a listener.
#[derive(Debug)]
struct Deferred {
    child: Object<End>,
    begun: Duration,
    /// From the beginning to the next tick, and from that to the one after it.
    tick: Duration,
    interval: Duration,
    /// It waits for room in the accept queue only.
    is_complete: bool,
}

/// The deferred connections of a listener, oldest first.
#[derive(Debug, Default)]
pub(super) struct Deferrals(Vec<Deferred>);

impl Deferrals {
    /// Removes all connections, and says of each whether it is complete.
    pub(super) fn into_all(self) -> impl Iterator<Item = (Object<End>, bool)> {
        self.0.into_iter().map(|deferred| (deferred.child, deferred.is_complete))
    }

    fn position(&self, child: &End) -> Option<usize> {
        self.0.iter().position(|deferred| deferred.child.id() == child.id())
    }

    /// Advances the ticks of all connections. Returns the time of the next one.
    fn tick(&mut self, now: Duration, least: Duration) -> Option<Duration> {
        for deferred in self.0.iter_mut().filter(|deferred| !deferred.is_complete) {
            while !deferred.is_complete && deferred.begun + deferred.tick <= now {
                deferred.is_complete = deferred.tick >= least;
                deferred.interval = (deferred.interval * 2).min(LONGEST);
                deferred.tick += deferred.interval;
            }
        }
        let open = self.0.iter().filter(|deferred| !deferred.is_complete);
        open.map(|deferred| deferred.begun + deferred.tick).min()
    }
}

impl Listener {
    /// Defers a connection, if there is memory and fewer are deferred than may be. `enter` enters
    /// the time of its first tick.
    fn defer(
        &mut self,
        child: &Object<End>,
        enter: impl FnOnce(Duration) -> Result<(), AllocError>,
    ) -> Result<bool, AllocError> {
        let backlog = self.backlog();
        if self.deferred.is_none() {
            self.deferred = Some(heap::try_box(Deferrals::default())?);
        }
        let Some(Deferrals(list)) = self.deferred.as_deref_mut() else { return Err(AllocError) };
        if list.len() > backlog {
            return Ok(false);
        }
        heap::try_reserve(list, 1)?;
        let begun = now();
        enter(begun + FIRST)?;
        list.push(Deferred {
            child: child.clone(),
            begun,
            tick: FIRST,
            interval: FIRST,
            is_complete: false,
        });
        Ok(true)
    }

    /// Moves complete connections to the accept queue, as long as there is room and memory.
    /// Returns their number.
    #[cold]
    pub(super) fn queue_complete(&mut self) -> u32 {
        let mut queued = 0;
        while let Some(child) = self.take_complete() {
            self.push_ready(child);
            queued += 1;
        }
        queued
    }

    /// Takes the oldest connection that is complete, if the accept queue has room for it.
    fn take_complete(&mut self) -> Option<Object<End>> {
        let Deferrals(list) = self.deferred.as_deref()?;
        let at = list.iter().position(|deferred| deferred.is_complete)?;
        if !self.has_place() {
            return None;
        }
        self.reserve_ready().ok()?;
        Some(self.deferred.as_deref_mut()?.0.remove(at).child)
    }
}

impl End {
    /// Defers a connection if there is memory for it. The caller has made the child and has the
    /// client's control; [`admit_deferred`](Self::admit_deferred) follows when the two are
    /// connected.
    #[cold]
    pub(super) fn prepare_deferral(this: &Object<Self>, client: &Self, child: &mut Object<Self>) {
        if this.net.get().inet.ticks.start().is_err() {
            return;
        }
        Object::get_mut(child).expect("new").control.get_mut().deferred_by = Some(this.clone());
        client.set(DEFERRED);
    }

    /// Decides, under the listener's lock, whether a connection that is
    /// [prepared](Self::prepare_deferral) is deferred. A client that has already sent is not.
    pub(super) fn admit_deferred(
        this: &Object<Self>,
        listener: &mut Listener,
        client: &Self,
        child: &Object<Self>,
    ) -> bool {
        // The thread of the ticks takes the two locks one after the other.
        let enter = |at| this.net.get().inet.ticks.enter(this, at);
        client.flags() & DEFERRED != 0 && matches!(listener.defer(child, enter), Ok(true))
    }

    /// Ends the deferral of this child: its client has sent, or has ended its stream.
    #[cold]
    pub(super) fn complete(&self) {
        let listener = self.control.lock().deferred_by.take();
        let Some(listener) = listener else { return };
        let queued = listener.listener.with(|own| {
            let own = own.as_mut()?;
            let list = own.deferred.as_deref_mut()?;
            let at = list.position(self)?;
            list.0[at].is_complete = true;
            Some(own.queue_complete())
        });
        listener.offer_many(queued.unwrap_or(0));
    }

    /// Ends the deferral of this child without queueing it: its client has reset the
    /// connection.
    #[cold]
    pub(super) fn withdraw(&self) {
        let listener = self.control.lock().deferred_by.take();
        let Some(listener) = listener else { return };
        let removed = listener.listener.with(|own| {
            let list = own.as_mut()?.deferred.as_deref_mut()?;
            list.position(self).map(|at| list.0.remove(at).child)
        });
        if let Some(child) = removed {
            child.abort();
        }
    }

    /// Closes this deferred child without a word to the client, which learns of it when it sends:
    /// its listener listens no more.
    #[cold]
    pub(super) fn vanish(&self) {
        let peer = self.tx.0.with(|tx| tx.as_ref().map(|link| (link.end.clone(), link.epoch)));
        // Of a connection that is over the client is not told.
        self.set(DEAD);
        self.abort();
        let Some((client, epoch)) = peer else { return };
        let _control = client.control.lock();
        // What the client has sent before the queue was closed met a socket that is gone.
        let is_same = client.rx.0.with(|rx| !rx.gone && rx.epoch == epoch);
        if is_same && client.flags() & (DEFERRED | ESTABLISHED) == ESTABLISHED {
            client.reset();
        }
    }

    /// Clears the flag of a client with a deferred peer, for its first byte. Returns the peer,
    /// which the caller [completes](Self::complete) when the byte is there.
    #[cold]
    pub(super) fn take_deferred(&self, peer: &Object<Self>) -> Option<Object<Self>> {
        // ORDERING: in `clear`, before the bytes are in the queue: `vanish` looks after it has
        // closed the queue.
        if self.flags() & (ESTABLISHED | DEAD | SHUT_WR | DEFERRED) != ESTABLISHED | DEFERRED {
            return None;
        }
        self.clear(DEFERRED);
        Some(peer.clone())
    }

    /// Wakes so many acceptors.
    pub(super) fn offer_many(&self, connections: u32) {
        for _ in 0..connections {
            self.offer();
        }
    }

    /// Queues connections that are complete or due. Returns the time of the listener's next tick.
    #[cold]
    pub(super) fn tick(&self, now: Duration) -> Option<Duration> {
        let least = Duration::from_secs(self.settings.defer_accept().into());
        let (next, queued) = self.listener.with(|own| {
            let own = own.as_mut()?;
            let next = own.deferred.as_deref_mut()?.tick(now, least);
            Some((next, own.queue_complete()))
        })?;
        self.offer_many(queued);
        next
    }
}

/// The ticks of a kernel's listeners, and the thread that waits for them.
pub(crate) struct Ticks {
    shared: Shared<SharedTicks>,
    #[cfg(not(loom))]
    thread: SpinLock<Option<TickThread>>,
}

struct SharedTicks {
    table: SpinLock<TickTable>,
    /// Changes when the thread has to look again.
    bell: AtomicU32,
    stop: AtomicBool,
}

struct TickTable {
    /// Each listener's next tick, by the listener's number.
    listeners: HashMap<usize, (Duration, Object<End>)>,
    /// The time at which the thread looks next.
    until: Duration,
}

impl TickTable {
    /// Enters a listener's next tick, unless it has an earlier one. Returns whether the thread
    /// sleeps for too long.
    fn enter(&mut self, listener: &Object<End>, at: Duration) -> Result<bool, AllocError> {
        if self.listeners.len() == self.listeners.capacity() {
            fault::check()?;
            self.listeners.try_reserve(1).map_err(|_| AllocError)?;
        }
        let entry = self.listeners.entry(listener.id()).or_insert_with(|| (at, listener.clone()));
        entry.0 = entry.0.min(at);
        Ok(at < self.until)
    }
}

/// The thread, and the process of the host in which it runs.
#[cfg(not(loom))]
struct TickThread {
    thread: quietline_platform::thread::JoinHandle<()>,
    process: u32,
}

impl Ticks {
    /// No ticks, and no thread.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(crate) fn new() -> Result<Self, AllocError> {
        let shared = Shared::new(SharedTicks {
            table: SpinLock::new(TickTable { listeners: HashMap::new(), until: Duration::MAX }),
            bell: AtomicU32::new(0),
            stop: AtomicBool::new(false),
        })?;
        Ok(Self {
            shared,
            #[cfg(not(loom))]
            thread: SpinLock::new(None),
        })
    }

    /// Enters a listener's next tick, unless it has an earlier one. The thread was
    /// [started](Self::start).
    ///
    /// # Errors
    /// [`AllocError`].
    fn enter(&self, listener: &Object<End>, at: Duration) -> Result<(), AllocError> {
        if self.shared.table.with(|table| table.enter(listener, at))? {
            self.shared.ring();
        }
        Ok(())
    }

    /// Forgets a listener.
    pub(super) fn remove(&self, listener: &End) {
        // The lock is free before the reference is dropped.
        let removed = self.shared.table.with(|table| table.listeners.remove(&listener.id()));
        drop(removed);
    }

    /// Starts the thread, once. A model has none: no time passes there.
    fn start(&self) -> Result<(), AllocError> {
        #[cfg(not(loom))]
        {
            use std::panic::{AssertUnwindSafe, catch_unwind};
            let mut thread = self.thread.lock();
            if thread.is_none() {
                let shared = self.shared.clone();
                let run =
                    AssertUnwindSafe(|| quietline_platform::thread::spawn(move || shared.run()));
                // The host's own `spawn` panics without a thread.
                let started = catch_unwind(run).map_err(|_| AllocError)?;
                *thread = Some(TickThread { thread: started, process: std::process::id() });
            }
        }
        Ok(())
    }

    /// Ends the thread and forgets all listeners. No call is being made.
    pub(crate) fn end(&self) {
        #[cfg(not(loom))]
        if let Some(TickThread { thread, process }) = self.thread.lock().take() {
            // Relaxed: the bell orders it.
            self.shared.stop.store(true, Ordering::Relaxed);
            self.shared.ring();
            if process == std::process::id() {
                // It has reported a panic of its own.
                let _ = thread.join();
            } else {
                // A forked child has no such thread: to join it is not defined.
                core::mem::forget(thread);
            }
        }
        let listeners = self.shared.table.with(|table| core::mem::take(&mut table.listeners));
        drop(listeners);
    }
}

impl SharedTicks {
    fn ring(&self) {
        // ORDERING: Release pairs with the acquire in `run`: a thread that sees the new number
        // sees the end, or takes the lock and sees the entry.
        self.bell.fetch_add(1, Ordering::Release);
        #[cfg(not(loom))]
        quietline_platform::futex::wake(&self.bell, 1);
    }

    #[cfg(not(loom))]
    fn run(&self) {
        loop {
            // ORDERING: Acquire pairs with the release in `ring`.
            let bell = self.bell.load(Ordering::Acquire);
            // Relaxed: the bell orders it.
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let now = now();
            for listener in self.due(now) {
                if let Some(at) = listener.tick(now) {
                    // Without memory the listener's next connection enters it.
                    let _ = self.table.with(|table| table.enter(&listener, at));
                }
            }
            let until = self.table.with(|table| {
                let next = table.listeners.values().map(|(at, _)| *at).min();
                // Between two looks is a pause, however many ticks there are.
                table.until = next.map_or(Duration::MAX, |next| next.max(now + SHORTEST));
                table.until
            });
            let left = until.saturating_sub(self::now());
            if left > Duration::ZERO {
                let left = Some(left).filter(|_| until != Duration::MAX);
                quietline_platform::futex::wait(&self.bell, bell, left);
            }
        }
    }

    /// Takes listeners with a tick that has come out of the table, as far as memory allows.
    #[cfg(not(loom))]
    fn due(&self, now: Duration) -> Vec<Object<End>> {
        let mut due = Vec::new();
        self.table.with(|table| {
            // Without memory the next look comes soon.
            let _ = heap::try_reserve(&mut due, table.listeners.len());
            let room = due.capacity();
            table.listeners.retain(|_, (at, listener)| {
                let is_due = *at <= now && due.len() < room;
                if is_due {
                    due.push(listener.clone());
                }
                !is_due
            });
        });
        due
    }
}

impl fmt::Debug for Ticks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticks").finish_non_exhaustive()
    }
}
