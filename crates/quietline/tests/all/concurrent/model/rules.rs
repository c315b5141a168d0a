//! Which calls have one outcome.
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
//!   if nobody is quick enough to see the first. And nobody watches a socket for messages, or a listener, in that way, nor an epoll that
//!   watches one for room: a send that fails tells of the room that it had taken.
//! * In one queue there are several only where Linux wakes them one by one, in the order they came: pipes, accepts, connects,
//!   receivers of datagrams; and epolls, the last of them first, if they watch nothing that a call may tell of twice.
//! * What is written to a pipe on which several readers sleep, or by who does not wait, is small, and so is what is sent to a
//!   stream on which one sleeps or waits for it; what is received from a stream is there when somebody sleeps who goes on to
//!   send. So nobody runs beside the one who was woken.
//! * Nothing is spliced from one pipe to another while a thread waits for both: it would find one ready, or both.
//! * Nothing is sent to a socket in which a send sleeps: Linux looks for room then, of which it has not told yet.
//! * One end of a pair is not connected to a name, or sends to one, and what is connected or listens waits for no connection, nor is
//!   what waits for one connected meanwhile: it would have two groups, or use up a wake-up and fail.
//! * A fifo is not watched for edges: an opening that is interrupted is an edge here, and none there.
//! * No listener is shut down while a connect waits for a place: Linux lets it wait.
//! * Nothing is shut down for sending on which several sleep in a receive: Linux wakes all, and they queue up anew, by chance. Nor for
//!   receiving, while a message is there that one has only looked at: it is the first one's.
//! * No room is made in a pipe in which several writers sleep, one of them the last that it is open for to read: the others find room, or
//!   nobody who reads.
//! * No descriptor is closed or replaced that somebody polls, and none that is filled meanwhile: Linux looks for it again at every
//!   wake-up, and we go on with the file.
//! * No listener and no socket with bytes is closed or replaced while a thread waits until another
//!   socket of its group is ready: Linux reports the end before it frees the bytes, and a thread
//!   that is woken in between does not see the room.
//! * Nothing is made to wait, or not to wait, while a write to it sleeps: Linux looks at that before it looks at signals.

use super::{FIFO, FIRST_GROUP, Model, Object, Role, Sleep, Watch, What, named};
use crate::concurrent::call::{Call, Kind, System};
use crate::concurrent::host::Host;

const EDGE: u32 = 1 << 31;
/// `EPOLLOUT`, `EPOLLWRNORM` and `EPOLLWRBAND`.
const ROOM: u32 = 0x304;
const IN: i16 = 1;
const OUT: i16 = 4;
const BROKEN: i16 = 0x18;
/// What the smallest pipe takes, and what one message of a stream does not exceed.
const PAGE: usize = 4096;
const ONE_PIECE: usize = 36_000;

impl Model {
    /// Whether a thread may make a call now: it sleeps not, the places are as the call needs them, and there is one outcome.
    pub(crate) fn may(&mut self, thread: usize, call: &Call, host: &Host) -> bool {
        if let Call::Interrupt { thread } = call {
            return self.sleeps[*thread].is_some();
        }
        let free =
            |at: &usize| self.slots[*at].is_none() && !self.promised[*at] && !self.is_polled(*at);
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
                from != at
                    && self.slots[from].is_some()
                    && self.slots[at].is_some()
                    && self.may_close(at)
                    && !self.frees_room(at, host)
            }
            Call::Close { at } => self.may_close(at) && !self.frees_room(at, host),
            Call::Shutdown { at, how } => group(at).is_none_or(|group| {
                let waiting =
                    self.sleepers(group, Role::Receive) + self.sleepers(group, Role::Accept);
                let full = self.sleepers(group, Role::Connect);
                // One may have looked at a message and left it there.
                let there = self.slots[at].is_some_and(|slot| {
                    host.poll(&[(slot.fds[0], IN)], 0).is_ok_and(|found| found[0] & IN != 0)
                });
                full == 0 && (waiting < 2 || how != libc::SHUT_WR && !there)
            }),
            Call::Resize { at, .. } => group(at).is_none_or(|group| !self.is_crowded(group)),
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
                        let alone =
                            readers == 1 && self.waits(at, host) && !self.is_ending(object.group);
                        len <= PAGE || readers == 0 || alone
                    }
                    What::Socket(kind) if kind.is_stream() => {
                        len <= ONE_PIECE || !self.is_slept_on(object.group)
                    }
                    _ => true,
                }
            }
            Call::Read { at, len } | Call::Recv { at, len, .. } => {
                match (self.slots[at], self.object(at)) {
                    (Some(slot), Some(Object { what: What::Socket(kind), group }))
                        if kind.is_stream() =>
                    {
                        self.sleepers(group, Role::Send) == 0
                            || host.readable(slot.fds[0]).is_ok_and(|there| len <= there as usize)
                    }
                    (_, Some(Object { what: What::Reader | What::Both, group })) => {
                        !self.is_crowded(group)
                    }
                    _ => true,
                }
            }
            Call::Splice { from, to, len, tee } => {
                let is = |at: usize, end: fn(What) -> bool| {
                    self.object(at).filter(|object| end(object.what))
                };
                let (Some(source), Some(target)) =
                    (is(from, What::is_read), is(to, What::is_written))
                else {
                    return false;
                };
                let both = |sleep: &Sleep| {
                    let groups = self.groups_of(sleep);
                    groups.contains(&source.group) && groups.contains(&target.group)
                };
                source.group != target.group
                    && !self.sleeps.iter().flatten().any(both)
                    && (tee || self.is_determined(&Call::Read { at: from, len }, host))
                    && self.is_determined(&Call::Write { at: to, len }, host)
            }
            Call::Connect { at, kind, waits, .. } => {
                let Some(slot) = self.slots[at] else { return true };
                let group = self.objects[slot.object].group;
                let listens = matches!(self.objects[slot.object].what, What::Listener(_));
                let again = listens || self.connected.contains(&slot.object);
                let mut on = self.sleeps.iter().flatten().filter_map(|sleep| sleep.on);
                let waits_already = on.any(|sleep| sleep == (slot.object, Role::Connect));
                match kind.is_dgram() {
                    true => group == named(kind) && !self.is_slept_on(group),
                    false => !waits_already && (!waits || group == named(kind) && !again),
                }
            }
            _ => true,
        }
    }

    fn may_control(&mut self, ep: usize, op: i32, at: usize, events: u32) -> bool {
        let (Some(epoll), Some(slot)) = (self.slots[ep], self.slots[at]) else { return true };
        if events & EDGE != 0 && self.objects[slot.object].group == FIFO {
            return false;
        }
        let same = |watch: &&Watch| watch.epoll == epoll.object && watch.object == slot.object;
        // One under a number that has been closed, and may be this one's: numbers are not compared.
        let is_open = |watch: &Watch| {
            self.slots.iter().flatten().any(|slot| slot.descriptor == watch.descriptor)
        };
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
        let edges_of_room = self.watches.iter().any(|watch| self.tells_of_room(watch, false, 0));
        let may = self.is_consistent() && !edges_of_room;
        if let Some((at, old)) = old {
            self.watches.push(old);
            let last = self.watches.len() - 1;
            self.watches.swap(at, last);
        }
        self.watches.truncate(before);
        may
    }

    /// Whether an epoll tells by edges, its own or those of one that watches it, of room in a socket for messages or a listener.
    fn tells_of_room(&self, watch: &Watch, edge: bool, depth: usize) -> bool {
        let edge = edge || watch.events & EDGE != 0;
        let by_messages = match self.objects[watch.object].what {
            What::Socket(kind) => !kind.is_stream(),
            What::Listener(_) => true,
            _ => false,
        };
        let mut below = self.watches.iter().filter(|inner| inner.epoll == watch.object);
        edge && by_messages && watch.events & ROOM != 0
            || depth < 5 && below.any(|inner| self.tells_of_room(inner, edge, depth + 1))
    }

    /// Whether a call may come to sleep, as far as can be told.
    fn may_sleep(&self, call: &Call, host: &Host) -> bool {
        let has = |at: usize| {
            self.slots[at]
                .map_or(BROKEN, |slot| host.poll(&[(slot.fds[0], IN | OUT)], 0).unwrap()[0])
        };
        match call {
            Call::Recv { flags, .. } | Call::Send { flags, .. }
                if flags & libc::MSG_DONTWAIT != 0 =>
            {
                false
            }
            Call::Recv { flags, .. } if flags & libc::MSG_WAITALL != 0 => true,
            Call::Read { at, .. }
            | Call::Take { at }
            | Call::Recv { at, .. }
            | Call::Accept { at, .. } => has(*at) & (IN | BROKEN) == 0,
            Call::Write { at, len } => *len > PAGE || has(*at) & (OUT | BROKEN) == 0,
            Call::Send { at, to, len, .. } => {
                to.is_some() || *len > PAGE || has(*at) & (OUT | BROKEN) == 0
            }
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
        sleeps
            .iter()
            .enumerate()
            .all(|(n, one)| sleeps[..n].iter().all(|other| self.may_both(one, other)))
    }

    /// Whether one may sleep beside another, if they do so in one queue.
    fn may_both(&self, one: &Sleep, other: &Sleep) -> bool {
        let (Some((object, role)), Some((same, other_role))) = (one.on, other.on) else {
            return true;
        };
        if object != same {
            return true;
        }
        match self.objects[object].what {
            What::Reader | What::Writer | What::Both | What::Listener(_) => true,
            What::Epoll => !self.has_told_twice(object, 0),
            What::Socket(kind) => kind.is_dgram() && [role, other_role] == [Role::Receive; 2],
            What::Counter => false,
        }
    }

    /// The groups of all that may wake one who sleeps until something is ready, each as often as it may; none if that is
    /// against the rules.
    pub(super) fn watched(&self, sleep: &Sleep) -> Option<Vec<usize>> {
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

    /// Whether an epoll watches something that one call may tell of twice: each time wakes one who waits.
    fn has_told_twice(&self, epoll: usize, depth: usize) -> bool {
        let mut watches = self.watches.iter().filter(|watch| watch.epoll == epoll);
        watches.any(|watch| {
            self.is_told_twice(watch.object, watch.events & ROOM != 0)
                || depth < 5 && self.has_told_twice(watch.object, depth + 1)
        })
    }

    /// Whether somebody sleeps in `poll` who has named that place.
    fn is_polled(&self, at: usize) -> bool {
        self.sleeps.iter().flatten().any(|sleep| sleep.polled.contains(&at))
    }

    fn may_close(&self, at: usize) -> bool {
        let is_used = || {
            let object = self.slots[at].map(|slot| slot.object);
            self.sleeps.iter().flatten().any(|sleep| {
                sleep.on.is_some_and(|(on, _)| Some(on) == object)
                    || sleep.until.iter().any(|until| Some(*until) == object)
            })
        };
        !self.is_polled(at) && (self.closes_beside || !is_used())
    }

    /// Returns whether the place has a socket with bytes, and a thread waits until something of the
    /// socket's group is ready.
    fn frees_room(&self, at: usize, host: &Host) -> bool {
        let Some(slot) = self.slots[at] else { return false };
        let Object { what, group } = self.objects[slot.object];
        let waits = |sleep: &Sleep| self.watched(sleep).is_some_and(|on| on.contains(&group));
        let has_bytes = match what {
            What::Socket(_) => host.readable(slot.fds[0]).is_ok_and(|there| there > 0),
            // Connections that wait to be accepted have bytes, too.
            What::Listener(_) => true,
            _ => false,
        };
        has_bytes && self.sleeps.iter().flatten().any(waits)
    }

    /// How many sleep in a group in that way.
    fn sleepers(&self, group: usize, role: Role) -> usize {
        let on = self.sleeps.iter().flatten().filter_map(|sleep| sleep.on);
        on.filter(|(object, found)| self.objects[*object].group == group && *found == role).count()
    }

    /// Whether anybody sleeps in a group, or until something of it is ready.
    fn is_slept_on(&self, group: usize) -> bool {
        self.sleeps.iter().flatten().any(|sleep| self.groups_of(sleep).contains(&group))
    }

    /// Whether somebody sleeps in a send on another end of the connection.
    fn is_full_elsewhere(&self, at: usize) -> bool {
        let Some(slot) = self.slots[at] else { return false };
        let group = self.objects[slot.object].group;
        // Those with names wait for room at the other's end, if that is not connected to them.
        let named =
            self.objects[slot.object].what == What::Socket(Kind::Dgram) && group < FIRST_GROUP;
        let mut on = self.sleeps.iter().flatten().filter_map(|sleep| sleep.on);
        // Such a one may be connected to itself. Two that are connected to each other take any number of messages: then a send waits
        // for room of its own, as without names.
        if named {
            let connected = |object| self.connected.contains(&object);
            return on.any(|(object, role)| {
                role == Role::Send
                    && (object == slot.object || connected(object) && connected(slot.object))
            });
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

    /// Whether several sleep in a write, and with one of them the last reader may go.
    fn is_crowded(&self, group: usize) -> bool {
        self.is_ending(group) && self.sleepers(group, Role::Send) > 1
    }

    fn waits(&self, at: usize, host: &Host) -> bool {
        let flags =
            self.slots[at].map(|slot| host.fcntl(slot.fds[0], libc::F_GETFL, 0).expect("open"));
        flags.is_some_and(|flags| flags & libc::O_NONBLOCK == 0)
    }
}
