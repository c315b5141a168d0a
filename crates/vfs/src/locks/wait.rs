//! Those who wait for a lock.

use super::deadlock::Refused;
use super::{FileLocks, LockKind, LockOwner, LockWaits, RecordLock, State, grow};
use core::ptr;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicBool, Ordering};
use quietline_sync::{Shared, Wait, WaitQueue};
use rustix::io::Errno;

/// A lock that somebody wants.
#[derive(Debug, Clone, Copy)]
pub(super) enum Request {
    Record(RecordLock),
    Flock { file: u64, kind: LockKind },
}

impl Request {
    fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Record(a), Self::Record(b)) => {
                a.owner != b.owner && a.kind.excludes(b.kind) && a.range.overlaps(&b.range)
            }
            (Self::Flock { file: a, kind: k }, Self::Flock { file: b, kind: l }) => {
                a != b && k.excludes(*l)
            }
            _ => false,
        }
    }

    /// The process whose wait is watched for deadlocks.
    fn process(&self) -> Option<i32> {
        match self {
            Self::Record(RecordLock { owner: LockOwner::Process(pid), .. }) => Some(*pid),
            _ => None,
        }
    }
}

/// A thread's wait.
#[derive(Debug)]
struct Ticket {
    request: Request,
    /// Try again. Set under the file's lock, when the ticket leaves the queue.
    told: AtomicBool,
    queue: WaitQueue,
}

/// The tickets of a file, oldest first.
#[derive(Debug)]
pub(super) struct Waiting {
    tickets: Vec<Shared<Ticket>>,
    /// Told, and not back yet: younger ones are not to overtake them. Has room for all.
    told: Vec<Told>,
}

#[derive(Debug)]
struct Told {
    ticket: Shared<Ticket>,
    woken: bool,
}

impl Waiting {
    pub(super) const fn new() -> Self {
        Self { tickets: Vec::new(), told: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Makes room, so that a ticket can be queued and told without memory.
    fn reserve(&mut self) -> Result<(), AllocError> {
        grow(&mut self.tickets, 1)?;
        let tickets = self.tickets.len() + 1;
        grow(&mut self.told, tickets)
    }

    /// Whether somebody is to be woken.
    pub(super) fn has_told(&self) -> bool {
        self.told.iter().any(|told| !told.woken)
    }

    /// The next one to be woken.
    fn wake_next(&mut self) -> Option<Shared<Ticket>> {
        let told = self.told.iter_mut().find(|told| !told.woken)?;
        told.woken = true;
        Some(told.ticket.clone())
    }

    /// One who was told is back.
    fn is_back(&mut self, ticket: &Ticket) {
        self.told.retain(|told| !ptr::eq(&*told.ticket, ticket));
    }

    fn position(&self, ticket: &Ticket) -> Option<usize> {
        self.tickets.iter().position(|queued| ptr::eq(&**queued, ticket))
    }
}

/// What is in the way of a request.
#[derive(Debug, Clone, Copy)]
enum InTheWay {
    Record(LockOwner),
    Flock,
}

impl State {
    fn in_the_way(&self, request: &Request) -> Option<InTheWay> {
        match request {
            Request::Record(wanted) => {
                self.records.conflict(wanted).map(|lock| InTheWay::Record(lock.owner))
            }
            Request::Flock { file, kind } => {
                self.flocks.conflict(*file, *kind).then_some(InTheWay::Flock)
            }
        }
    }

    /// Tells those tickets to try again that nothing held is in the way of, nor an older ticket that was told; and those
    /// that now wait for somebody who waits for them, to find that out.
    pub(super) fn tell(&mut self, waits: &LockWaits) {
        let mut at = 0;
        while let Some(ticket) = self.waiting.tickets.get(at) {
            let request = &ticket.request;
            let held = self.in_the_way(request);
            let mut told = self.waiting.told.iter().map(|told| told.ticket.request);
            let older = told.find(|told| told.excludes(request));
            let blocker = match (held, older) {
                (Some(InTheWay::Record(owner)), _) => Some(owner),
                (None, Some(Request::Record(older))) => Some(older.owner),
                _ => None,
            };
            let free = held.is_none() && older.is_none();
            let stuck = match (request.process(), blocker) {
                (Some(pid), Some(blocker)) => !waits.turn(pid, key(ticket), blocker),
                _ => false,
            };
            if free || stuck {
                let ticket = self.waiting.tickets.remove(at);
                if let Some(pid) = ticket.request.process() {
                    waits.leave(pid, key(&ticket));
                }
                // Relaxed: the wake-up that follows has a fence, and the thread goes on to take the lock.
                ticket.told.store(true, Ordering::Relaxed);
                self.waiting.told.push(Told { ticket, woken: false });
                continue;
            }
            at += 1;
        }
    }

    /// Takes the lock, or says what is in the way.
    fn try_acquire(
        &mut self,
        waits: &LockWaits,
        request: &Request,
    ) -> Result<(Option<InTheWay>, bool), AllocError> {
        match *request {
            Request::Record(wanted) => match self.in_the_way(request) {
                Some(blocker) => Ok((Some(blocker), false)),
                None => {
                    let kind = Some(wanted.kind);
                    Ok((None, self.set_record(waits, wanted.owner, kind, wanted.range)?))
                }
            },
            Request::Flock { file, kind } => {
                match self.flocks.of(file) {
                    Some(held) if held == kind => return Ok((None, false)),
                    // A lock in the way comes first, as with record locks.
                    None if self.is_full(waits) && self.in_the_way(request).is_none() => {
                        return Err(AllocError);
                    }
                    _ => {}
                }
                self.flocks.reserve()?;
                let weaker = self.flocks.remove(file);
                let blocker = self.in_the_way(request);
                if blocker.is_none() {
                    self.flocks.push(file, kind);
                }
                Ok((blocker, weaker))
            }
        }
    }

    /// Queues up.
    fn queue(
        &mut self,
        waits: &LockWaits,
        ticket: &mut Option<Shared<Ticket>>,
        request: &Request,
        blocker: &InTheWay,
    ) -> Result<(), Refused> {
        self.waiting.reserve()?;
        let ticket = match ticket {
            Some(ticket) => ticket,
            None => {
                let made = Ticket {
                    request: *request,
                    told: AtomicBool::new(false),
                    queue: WaitQueue::new(),
                };
                ticket.insert(Shared::new(made)?)
            }
        };
        if let (Some(pid), InTheWay::Record(owner)) = (request.process(), blocker) {
            waits.enter(pid, *owner, key(ticket))?;
        }
        self.waiting.tickets.push(ticket.clone());
        Ok(())
    }
}

/// What names a ticket in [`LockWaits`].
fn key(ticket: &Ticket) -> usize {
    ptr::from_ref(ticket).addr()
}

impl State {
    /// Takes the lock, or queues up for it: then true.
    fn take_or_queue(
        &mut self,
        waits: &LockWaits,
        request: &Request,
        ticket: &mut Option<Shared<Ticket>>,
        may_wait: bool,
    ) -> Result<bool, Errno> {
        if let Some(ticket) = ticket {
            self.waiting.is_back(ticket);
        }
        let tried = self.try_acquire(waits, request);
        let weaker = matches!(tried, Ok((_, true)));
        // When this one was told, others were held back for its sake; if it does not get the lock, they may.
        let told_in_vain = ticket.is_some() && !matches!(tried, Ok((None, _)));
        if weaker || told_in_vain {
            self.tell(waits);
        }
        match tried {
            Err(AllocError) => Err(Errno::NOLCK),
            Ok((None, _)) => Ok(false),
            Ok((Some(_), _)) if !may_wait => Err(Errno::AGAIN),
            Ok((Some(blocker), _)) => match self.queue(waits, ticket, request, &blocker) {
                Ok(()) => Ok(true),
                Err(Refused::Deadlock) => Err(Errno::DEADLK),
                Err(Refused::Memory) => Err(Errno::NOLCK),
            },
        }
    }
}

impl FileLocks {
    /// Takes a lock. With `may_wait`, waits for it, until the calling thread is interrupted.
    pub(super) fn acquire(
        &self,
        waits: &LockWaits,
        request: Request,
        may_wait: bool,
    ) -> Result<(), Errno> {
        let mut ticket = None;
        loop {
            let (queued, told) = {
                let mut state = self.state.lock();
                let queued = state.take_or_queue(waits, &request, &mut ticket, may_wait);
                self.count(&state);
                (queued, state.waiting.has_told())
            };
            if told {
                self.wake_told();
            }
            let Some(ticket) = ticket.as_ref().filter(|_| queued == Ok(true)) else {
                return queued.map(|_| ());
            };
            let how = Wait { interruptible: true, ..Wait::default() };
            // Relaxed: what there is to see is seen under the file's lock, in the next turn.
            let is_told = || ticket.told.swap(false, Ordering::Relaxed).then_some(());
            if ticket.queue.wait_until(&how, is_told).is_err() && self.gives_up(waits, ticket) {
                return Err(Errno::INTR);
            }
        }
    }

    /// After an interruption: takes the ticket back. False if it was told meanwhile: then the lock is to be tried.
    fn gives_up(&self, waits: &LockWaits, ticket: &Ticket) -> bool {
        let told = {
            let mut state = self.state.lock();
            let Some(at) = state.waiting.position(ticket) else {
                // Relaxed: set under the lock, which is held.
                ticket.told.store(false, Ordering::Relaxed);
                return false;
            };
            state.waiting.tickets.remove(at);
            if let Some(pid) = ticket.request.process() {
                waits.leave(pid, key(ticket));
            }
            // Those who were held back for the sake of this one need not wait any more.
            state.tell(waits);
            state.waiting.has_told()
        };
        if told {
            self.wake_told();
        }
        true
    }

    /// Wakes those who were told, oldest first, without the lock.
    #[cold]
    pub(super) fn wake_told(&self) {
        loop {
            let Some(ticket) = self.state.lock().waiting.wake_next() else { return };
            ticket.queue.wake_all();
        }
    }
}
