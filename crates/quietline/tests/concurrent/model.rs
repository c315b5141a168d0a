//! What a program has open, who sleeps on what, and which calls have one outcome.
//!
//! Linux leaves some outcomes to chance: which of two readers of a counter gets what is written, whether one who polls sees the bytes
//! that another takes. Calls that could come to that are passed over, by these rules. A *group* is what belongs together: a
//! pipe, the two ends of a connection, the sockets of a kind that have names.
//!
//! * A group has either threads that sleep in a read, a write or the like, or threads that sleep until it is ready, not both: who
//!   polls may or may not see what another then takes.
//! * Who sleeps until one of several things is ready waits for one thing of a group: what happens to two is found together or
//!   one after the other.
//! * Not by edges for room in a socket, or for anything of an internet socket: a call may tell of that twice, which is told once
//!   if nobody is quick enough to see the first. And nobody watches a socket for messages, or a listener, in that way: a send that fails tells of the room that it had taken.
//! * In one queue there are several only where Linux wakes them one by one, in the order they came: pipes, accepts, connects,
//!   receivers of datagrams. And epolls, where Linux wakes who came last, and we who came first: there they must wait with the same
//!   room and time, and count as one another.
//! * What is written to a pipe on which several readers sleep, or by who does not wait, is small, and so is what is sent to a
//!   stream on which one sleeps or waits for it; what is received from a stream is there when somebody sleeps who goes on to
//!   send. So nobody runs beside the one who was woken.
//! * Nothing is sent to a socket in which a send sleeps: Linux looks for room then, of which it has not told yet.
//! * One end of a pair is not connected to a name, or sends to one, and what is connected waits for no other connection: it would
//!   have two groups, or use up a wake-up and fail.
//! * A fifo is not watched for edges: an opening that is interrupted is an edge here, and none there.
//! * No listener is shut down while a connect waits for a place, nor a socket whose datagram waits for one: Linux lets them wait.
//! * Nothing is shut down for sending on which several sleep in a receive: Linux wakes all, and they queue up anew, by chance.
//! * No descriptor is closed or replaced that somebody polls, and none that is filled meanwhile: Linux looks for it again at every
//!   wake-up, and we go on with the file.
//! * Nothing is made to wait, or not to wait, while a write to it sleeps: Linux looks at that before it looks at signals.

use crate::call::{Call, Kind, SLOTS, System, THREADS};
use crate::host::Host;

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum What {
    Reader,
    Writer,
    /// A fifo that is open for both.
    Both,
    Counter,
    Epoll,
    Socket(Kind),
    Listener(Kind),
}

/// An open file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Object {
    pub(crate) what: What,
    pub(crate) group: usize,
}

/// A descriptor: on the host, and here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) fds: [i32; 2],
    pub(crate) object: usize,
    /// No other has this number.
    descriptor: u64,
}

/// What an epoll watches.
#[derive(Debug, Clone, Copy)]
struct Watch {
    epoll: usize,
    object: usize,
    descriptor: u64,
    events: u32,
}

/// What a thread sleeps in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Role {
    Receive,
    Send,
    Accept,
    Connect,
    Open,
    Wait,
}

/// Who sleeps on what.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sleep {
    /// In whose queue, to do something with it.
    pub(crate) on: Option<(usize, Role)>,
    /// Until one of these has what is wanted.
    pub(crate) until: Vec<usize>,
    /// By which places.
    polled: Vec<usize>,
    /// For how many events of an epoll there is room, and for how long.
    room: (usize, i32),
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) objects: Vec<Object>,
    pub(crate) slots: [Option<Slot>; SLOTS],
    /// Places that calls are to fill that have not ended.
    pub(crate) promised: [bool; SLOTS],
    watches: Vec<Watch>,
    /// Sockets that are, or were, connected.
    connected: Vec<usize>,
    pub(crate) sleeps: [Option<Sleep>; THREADS],
    descriptors: u64,
    groups: usize,
}

/// The fifo's object; its group, and then those of sockets with names.
const FIFO: usize = 0;
const FIRST_GROUP: usize = 6;

const EDGE: u32 = 1 << 31;
/// `EPOLLOUT`, `EPOLLWRNORM` and `EPOLLWRBAND`.
const ROOM: u32 = 0x304;
const IN: i16 = 1;
const OUT: i16 = 4;
const BROKEN: i16 = 0x18;
/// What the smallest pipe takes, and what one message of a stream does not exceed.
const PAGE: usize = 4096;
const ONE_PIECE: usize = 36_000;

fn named(kind: Kind) -> usize {
    1 + kind as usize
}

impl Model {
    pub(crate) fn new() -> Self {
        let fifo = Object { what: What::Both, group: FIFO };
        Self { objects: vec![fifo], groups: FIRST_GROUP, ..Self::default() }
    }

    pub(crate) fn object(&self, at: usize) -> Option<Object> {
        self.slots[at].map(|slot| self.objects[slot.object])
    }

    /// Whether what is there is a socket that could be connected.
    pub(crate) fn is_fresh(&self, at: usize) -> bool {
        self.slots[at].is_some_and(|slot| {
            matches!(self.objects[slot.object].what, What::Socket(kind) if !kind.is_dgram())
                && !self.connected.contains(&slot.object)
        })
    }

    /// The groups that a thread sleeps on.
    pub(crate) fn groups_of(&self, sleep: &Sleep) -> Vec<usize> {
        let mut groups = self.watched(sleep).unwrap_or_default();
        groups.extend(sleep.on.map(|(object, _)| self.objects[object].group));
        groups
    }

    /// The groups of all that may wake one who sleeps until something is ready, each as often as it may; none if that is
    /// against the rules.
    fn watched(&self, sleep: &Sleep) -> Option<Vec<usize>> {
        let mut groups = Vec::new();
        for &object in &sleep.until {
            groups.push(self.objects[object].group);
            self.below(object, false, 0, &mut groups)?;
        }
        if let Some((epoll, Role::Wait)) = sleep.on {
            self.below(epoll, false, 0, &mut groups)?;
        }
        Some(groups)
    }

    fn below(&self, epoll: usize, edge: bool, depth: usize, groups: &mut Vec<usize>) -> Option<()> {
        for watch in self.watches.iter().filter(|watch| watch.epoll == epoll) {
            let group = self.objects[watch.object].group;
            let edge = edge || watch.events & EDGE != 0;
            let room = watch.events & ROOM != 0;
            if depth > 5 || edge && self.is_told_twice(watch.object, room) {
                return None;
            }
            groups.push(group);
            self.below(watch.object, edge, depth + 1, groups)?;
        }
        Some(())
    }

    /// Whether one call may tell of an object twice.
    fn is_told_twice(&self, object: usize, room: bool) -> bool {
        match self.objects[object].what {
            What::Socket(kind) | What::Listener(kind) => room || kind.is_inet(),
            _ => false,
        }
    }

    /// Whether what sleeps has one outcome.
    fn is_consistent(&self) -> bool {
        let sleeps: Vec<_> = self.sleeps.iter().flatten().collect();
        let watched: Option<Vec<_>> = sleeps.iter().map(|sleep| self.watched(sleep)).collect();
        let Some(watched) = watched else { return false };
        for (n, groups) in watched.iter().enumerate() {
            let twice = groups.iter().enumerate().any(|(at, group)| groups[..at].contains(group));
            let others = sleeps.iter().enumerate().filter(|(other, _)| *other != n);
            let taken = others
                .filter_map(|(_, other)| other.on)
                .any(|(object, _)| groups.contains(&self.objects[object].group));
            if twice || taken {
                return false;
            }
        }
        sleeps.iter().enumerate().all(|(n, one)| sleeps[..n].iter().all(|other| self.may_both(one, other)))
    }

    /// Whether one may sleep beside another, if they do so in one queue.
    fn may_both(&self, one: &Sleep, other: &Sleep) -> bool {
        let (Some((object, role)), Some((same, other_role))) = (one.on, other.on) else { return true };
        if object != same {
            return true;
        }
        match self.objects[object].what {
            What::Reader | What::Writer | What::Both | What::Listener(_) => true,
            What::Epoll => one.room == other.room,
            What::Socket(kind) => kind.is_dgram() && [role, other_role] == [Role::Receive; 2],
            What::Counter => false,
        }
    }

    /// Whether it is all one which of two threads is woken.
    pub(crate) fn are_alike(&self, one: usize, other: usize) -> bool {
        match (&self.sleeps[one], &self.sleeps[other]) {
            (Some(one), Some(other)) => {
                one.on == other.on && one.room == other.room && matches!(one.on, Some((_, Role::Wait)))
            }
            _ => false,
        }
    }

    /// How many sleep in a group in that way.
    fn sleepers(&self, group: usize, role: Role) -> usize {
        let on = self.sleeps.iter().flatten().filter_map(|sleep| sleep.on);
        on.filter(|(object, found)| self.objects[*object].group == group && *found == role).count()
    }

    /// How many sleep in a send of a datagram.
    fn dgram_senders(&self, group: usize) -> usize {
        if group == named(Kind::Dgram) { self.sleepers(group, Role::Send) } else { 0 }
    }

    /// Whether anybody sleeps in a group, or until something of it is ready.
    fn is_slept_on(&self, group: usize) -> bool {
        self.sleeps.iter().flatten().any(|sleep| self.groups_of(sleep).contains(&group))
    }

    /// Whether somebody sleeps in a send on another end of the connection.
    fn is_full_elsewhere(&self, at: usize) -> bool {
        let Some(slot) = self.slots[at] else { return false };
        let group = self.objects[slot.object].group;
        // Those with names wait for room at the other's end only.
        let named = self.objects[slot.object].what == What::Socket(Kind::Dgram) && group < FIRST_GROUP;
        let mut on = self.sleeps.iter().flatten().filter_map(|sleep| sleep.on);
        // Such a one may be connected to itself.
        if named {
            return on.any(|sleep| sleep == (slot.object, Role::Send));
        }
        on.any(|(object, role)| {
            role == Role::Send && object != slot.object && self.objects[object].group == group
        })
    }

    /// Whether somebody sleeps on an open file that has no descriptor any more, and ends when he wakes.
    fn is_ending(&self, group: usize) -> bool {
        let on = self.sleeps.iter().flatten().filter_map(|sleep| sleep.on);
        on.into_iter().any(|(object, _)| {
            self.objects[object].group == group
                && !self.slots.iter().flatten().any(|slot| slot.object == object)
        })
    }

    fn waits(&self, at: usize, host: &Host) -> bool {
        let flags = self.slots[at].map(|slot| host.fcntl(slot.fds[0], libc::F_GETFL, 0).expect("open"));
        flags.is_some_and(|flags| flags & libc::O_NONBLOCK == 0)
    }

    /// Whether somebody sleeps in `poll` who has named that place.
    fn is_polled(&self, at: usize) -> bool {
        self.sleeps.iter().flatten().any(|sleep| sleep.polled.contains(&at))
    }

    /// In what the thread is asleep that makes the call, if it comes to sleep.
    pub(crate) fn sleep_of(&self, call: &Call) -> Option<Sleep> {
        let on = |at: usize, role| {
            let object = self.slots[at]?.object;
            Some(Sleep { on: Some((object, role)), ..Sleep::default() })
        };
        match call {
            Call::Read { at, .. } | Call::Take { at } | Call::Recv { at, .. } => on(*at, Role::Receive),
            Call::Write { at, .. } | Call::Add { at, .. } | Call::Send { at, .. } => on(*at, Role::Send),
            Call::Accept { at, .. } => on(*at, Role::Accept),
            Call::Connect { at, .. } => on(*at, Role::Connect),
            Call::Wait { ep, max, timeout } => Some(Sleep { room: (*max, *timeout), ..on(*ep, Role::Wait)? }),
            Call::Open { .. } => Some(Sleep { on: Some((FIFO, Role::Open)), ..Sleep::default() }),
            Call::Poll { of, .. } => {
                let until = of.iter().filter_map(|(at, _)| Some(self.slots[*at]?.object)).collect();
                let polled = of.iter().map(|(at, _)| *at).collect();
                Some(Sleep { until, polled, ..Sleep::default() })
            }
            _ => None,
        }
    }

    /// Whether a call may come to sleep, as far as can be told.
    fn may_sleep(&self, call: &Call, host: &Host) -> bool {
        let has = |at: usize| {
            self.slots[at].map_or(BROKEN, |slot| host.poll(&[(slot.fds[0], IN | OUT)], 0).unwrap()[0])
        };
        match call {
            Call::Recv { flags, .. } | Call::Send { flags, .. } if flags & libc::MSG_DONTWAIT != 0 => false,
            Call::Recv { flags, .. } if flags & libc::MSG_WAITALL != 0 => true,
            Call::Read { at, .. } | Call::Take { at } | Call::Recv { at, .. } | Call::Accept { at, .. } => {
                has(*at) & (IN | BROKEN) == 0
            }
            Call::Write { at, len } => *len > PAGE || has(*at) & (OUT | BROKEN) == 0,
            Call::Send { at, to, len, .. } => to.is_some() || *len > PAGE || has(*at) & (OUT | BROKEN) == 0,
            Call::Add { at, n } => *n > 1 || has(*at) & OUT == 0,
            Call::Connect { kind, waits, .. } => *waits && !kind.is_dgram() && !kind.is_inet(),
            Call::Open { flags, .. } => flags & (libc::O_NONBLOCK | libc::O_RDWR) == 0,
            Call::Wait { ep, timeout, .. } => {
                *timeout != 0 && !call.expires() && has(*ep) & (IN | BROKEN) == 0
            }
            Call::Poll { timeout, .. } => *timeout != 0 && !call.expires(),
            _ => false,
        }
    }

    /// Whether a thread may make a call now: it sleeps not, the places are as the call needs them, and there is one outcome.
    pub(crate) fn may(&mut self, thread: usize, call: &Call, host: &Host) -> bool {
        if let Call::Interrupt { thread } = call {
            return self.sleeps[*thread].is_some();
        }
        let free = |at: &usize| self.slots[*at].is_none() && !self.promised[*at] && !self.is_polled(*at);
        let makes = call.makes();
        if self.sleeps[thread].is_some()
            || !makes.iter().all(free)
            || makes.len() == 2 && makes[0] == makes[1]
        {
            return false;
        }
        if !self.is_determined(call, host) {
            return false;
        }
        if let &Call::Control { ep, op, at, events, .. } = call {
            return self.may_control(ep, op, at, events);
        }
        if !self.may_sleep(call, host) {
            return true;
        }
        self.sleeps[thread] = self.sleep_of(call);
        let may = self.is_consistent();
        self.sleeps[thread] = None;
        may
    }

    /// Whether nobody runs beside whom a call wakes, in a way that could be told.
    fn is_determined(&self, call: &Call, host: &Host) -> bool {
        let group = |at: usize| self.object(at).map(|object| object.group);
        match *call {
            Call::Send { at, to: Some((kind, _)), .. }
                if group(at).is_some_and(|group| group != named(kind)) =>
            {
                false
            }
            // What is there must be there.
            Call::Replace { from, at } => {
                from != at && self.slots[from].is_some() && self.slots[at].is_some() && !self.is_polled(at)
            }
            Call::Close { at } => !self.is_polled(at),
            Call::Shutdown { at, how } => group(at).is_none_or(|group| {
                let waiting = self.sleepers(group, Role::Receive) + self.sleepers(group, Role::Accept);
                let full = self.sleepers(group, Role::Connect) + self.dgram_senders(group);
                full == 0 && (how != libc::SHUT_WR || waiting < 2)
            }),
            Call::NonBlocking { at, .. } => {
                group(at).is_none_or(|group| self.sleepers(group, Role::Send) == 0)
            }
            Call::Dup { from, .. } => self.slots[from].is_some(),
            Call::Fill { at, .. } => group(at).is_some_and(|group| !self.is_slept_on(group)),
            Call::Write { at, len } | Call::Send { at, len, .. } => {
                let Some(object) = self.object(at) else { return true };
                let readers = self.sleepers(object.group, Role::Receive);
                if matches!(object.what, What::Socket(_)) && self.is_full_elsewhere(at) {
                    return false;
                }
                match object.what {
                    What::Writer | What::Both => {
                        let alone = readers == 1 && self.waits(at, host) && !self.is_ending(object.group);
                        len <= PAGE || readers == 0 || alone
                    }
                    What::Socket(kind) if kind.is_stream() => {
                        len <= ONE_PIECE || !self.is_slept_on(object.group)
                    }
                    _ => true,
                }
            }
            Call::Read { at, len } | Call::Recv { at, len, .. } => match (self.slots[at], self.object(at)) {
                (Some(slot), Some(Object { what: What::Socket(kind), group })) if kind.is_stream() => {
                    self.sleepers(group, Role::Send) == 0
                        || host.readable(slot.fds[0]).is_ok_and(|there| len <= there as usize)
                }
                _ => true,
            },
            Call::Connect { at, kind, waits, .. } => {
                let Some(slot) = self.slots[at] else { return true };
                let group = self.objects[slot.object].group;
                let again = self.connected.contains(&slot.object);
                match kind.is_dgram() {
                    true => group == named(kind) && !self.is_slept_on(group),
                    false => !waits || group == named(kind) && !again,
                }
            }
            _ => true,
        }
    }

    fn may_control(&mut self, ep: usize, op: i32, at: usize, events: u32) -> bool {
        let (Some(epoll), Some(slot)) = (self.slots[ep], self.slots[at]) else { return true };
        let by_messages = match self.objects[slot.object].what {
            What::Socket(kind) => !kind.is_stream(),
            What::Listener(_) => true,
            _ => false,
        };
        let fifo = self.objects[slot.object].group == FIFO;
        if events & EDGE != 0 && (fifo || by_messages && events & ROOM != 0) {
            return false;
        }
        let same = |watch: &&Watch| watch.epoll == epoll.object && watch.object == slot.object;
        // One under a number that has been closed, and may be this one's: numbers are not compared.
        let is_open =
            |watch: &Watch| self.slots.iter().flatten().any(|slot| slot.descriptor == watch.descriptor);
        if self.watches.iter().filter(same).any(|watch| !is_open(watch)) {
            return false;
        }
        let before = self.watches.len();
        if op != libc::EPOLL_CTL_DEL {
            self.watches.push(Watch {
                epoll: epoll.object,
                object: slot.object,
                descriptor: slot.descriptor,
                events,
            });
        }
        // A change stands beside what it changes, unless that is the same to the rules.
        let old = self.watches[..before]
            .iter()
            .position(|watch| same(&watch) && watch.descriptor == slot.descriptor)
            .map(|old| (old, self.watches.swap_remove(old)));
        let may = self.is_consistent();
        if let Some((at, old)) = old {
            self.watches.push(old);
            let last = self.watches.len() - 1;
            self.watches.swap(at, last);
        }
        self.watches.truncate(before);
        may
    }

    /// A thread's call has begun.
    pub(crate) fn began(&mut self, thread: usize, call: &Call) {
        call.makes().iter().for_each(|&at| self.promised[at] = true);
        self.sleeps[thread] = Some(self.sleep_of(call).unwrap_or_default());
    }

    /// It has ended, on both with success or on both without, and has made these descriptors.
    pub(crate) fn ended(&mut self, thread: usize, call: &Call, succeeded: bool, fds: &[[i32; 2]]) {
        let sleep = self.sleeps[thread].take();
        if succeeded && let Some((object, Role::Connect)) = sleep.as_ref().and_then(|sleep| sleep.on) {
            self.connected.push(object);
        }
        let makes = call.makes();
        makes.iter().for_each(|&at| self.promised[at] = false);
        if succeeded {
            match *call {
                Call::Dup { from, at } => self.put(at, fds[0], self.slots[from].expect("there").object),
                Call::Replace { from, at } => {
                    let object = self.slots[from].expect("there").object;
                    let fds = self.slots[at].expect("there").fds;
                    self.take(at);
                    self.put(at, fds, object);
                }
                Call::Close { at } => self.take(at),
                Call::Control { ep, op, at, events, .. } => self.control(ep, op, at, events),
                _ if makes.is_empty() => {}
                _ => self.made(call, makes, fds, sleep),
            }
        }
        self.forget();
    }

    fn put(&mut self, at: usize, fds: [i32; 2], object: usize) {
        self.descriptors += 1;
        self.slots[at] = Some(Slot { fds, object, descriptor: self.descriptors });
    }

    fn take(&mut self, at: usize) {
        self.slots[at] = None;
    }

    fn made(&mut self, call: &Call, makes: &[usize], fds: &[[i32; 2]], sleep: Option<Sleep>) {
        let mut own = || {
            self.groups += 1;
            self.groups
        };
        let (whats, group) = match *call {
            Call::Pipe { .. } => ([What::Reader, What::Writer], own()),
            Call::Counter { .. } => ([What::Counter; 2], own()),
            Call::Epoll { .. } => ([What::Epoll; 2], own()),
            Call::Pair { kind, .. } => ([What::Socket(kind); 2], own()),
            Call::Socket { kind, .. } | Call::Bound { kind, .. } => ([What::Socket(kind); 2], named(kind)),
            Call::Listener { kind, .. } => ([What::Listener(kind); 2], named(kind)),
            Call::Open { flags, .. } => {
                let what = match flags & libc::O_ACCMODE {
                    libc::O_RDONLY => What::Reader,
                    libc::O_WRONLY => What::Writer,
                    _ => What::Both,
                };
                ([what; 2], FIFO)
            }
            Call::Accept { .. } => {
                let (listener, _) = sleep.and_then(|sleep| sleep.on).expect("a listener");
                let Object { what, group } = self.objects[listener];
                let (What::Listener(kind) | What::Socket(kind)) = what else { unreachable!("it accepts") };
                ([What::Socket(kind); 2], group)
            }
            _ => unreachable!("makes nothing"),
        };
        for ((&at, &fds), what) in makes.iter().zip(fds).zip(whats) {
            self.objects.push(Object { what, group });
            if matches!(call, Call::Accept { .. } | Call::Pair { .. }) {
                self.connected.push(self.objects.len() - 1);
            }
            self.put(at, fds, self.objects.len() - 1);
        }
    }

    fn control(&mut self, ep: usize, op: i32, at: usize, events: u32) {
        let (Some(epoll), Some(slot)) = (self.slots[ep], self.slots[at]) else { return };
        self.watches.retain(|watch| {
            (watch.epoll, watch.object, watch.descriptor) != (epoll.object, slot.object, slot.descriptor)
        });
        if op != libc::EPOLL_CTL_DEL {
            let Slot { object, descriptor, .. } = slot;
            self.watches.push(Watch { epoll: epoll.object, object, descriptor, events });
        }
    }

    /// Nothing watches what is not open any more, and nothing is watched by it.
    fn forget(&mut self) {
        let open = |object: usize| {
            let sleeps = self.sleeps.iter().flatten();
            self.slots.iter().flatten().any(|slot| slot.object == object)
                || sleeps.clone().any(|sleep| sleep.on.is_some_and(|(on, _)| on == object))
                || sleeps.clone().any(|sleep| sleep.until.contains(&object))
        };
        self.watches.retain(|watch| open(watch.epoll) && open(watch.object));
    }
}
