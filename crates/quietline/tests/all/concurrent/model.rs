//! What a program has open, and who sleeps on what. Which calls have one outcome, [`rules`] says.

mod rules;

use crate::concurrent::call::{Call, Kind, SLOTS, THREADS};

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

impl What {
    /// Whether it is a pipe's end to read from.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Self::Reader | Self::Both)
    }

    /// Whether it is a pipe's end to write to.
    pub(crate) fn is_written(self) -> bool {
        matches!(self, Self::Writer | Self::Both)
    }
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
    /// Whether descriptors are closed on which somebody sleeps.
    closes_beside: bool,
}

/// The fifo's object; its group, and then those of sockets with names.
const FIFO: usize = 0;
const FIRST_GROUP: usize = 6;

fn named(kind: Kind) -> usize {
    1 + kind as usize
}

impl Model {
    pub(crate) fn new() -> Self {
        let fifo = Object { what: What::Both, group: FIFO };
        let closes_beside = crate::concurrent::number("QUIETLINE_CONCURRENT_CLOSES", 1) != 0;
        Self { objects: vec![fifo], groups: FIRST_GROUP, closes_beside, ..Self::default() }
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

    /// Whether the socket there is for datagrams, and one waits to be sent among those of its kind, or from it.
    pub(crate) fn has_dgram_waiting(&self, at: usize) -> bool {
        let is = |object: Object| matches!(object.what, What::Socket(Kind::Dgram));
        let sends = |sleep: &Sleep| {
            sleep
                .on
                .filter(|(_, role)| *role == Role::Send)
                .map(|(object, _)| self.objects[object].group)
        };
        self.object(at).is_some_and(|object| {
            is(object)
                && self.sleeps.iter().flatten().any(|sleep| sends(sleep) == Some(object.group))
        })
    }

    /// The groups that a thread sleeps on.
    pub(crate) fn groups_of(&self, sleep: &Sleep) -> Vec<usize> {
        let mut groups = self.watched(sleep).unwrap_or_default();
        groups.extend(sleep.on.map(|(object, _)| self.objects[object].group));
        groups
    }

    /// In what the thread is asleep that makes the call, if it comes to sleep.
    pub(crate) fn sleep_of(&self, call: &Call) -> Option<Sleep> {
        let on = |at: usize, role| {
            let object = self.slots[at]?.object;
            Some(Sleep { on: Some((object, role)), ..Sleep::default() })
        };
        match call {
            Call::Read { at, .. } | Call::Take { at } | Call::Recv { at, .. } => {
                on(*at, Role::Receive)
            }
            Call::Write { at, .. } | Call::Add { at, .. } | Call::Send { at, .. } => {
                on(*at, Role::Send)
            }
            Call::Accept { at, .. } => on(*at, Role::Accept),
            Call::Connect { at, .. } => on(*at, Role::Connect),
            Call::Wait { ep, .. } => on(*ep, Role::Wait),
            Call::Open { .. } => Some(Sleep { on: Some((FIFO, Role::Open)), ..Sleep::default() }),
            Call::Poll { of, .. } => {
                let until = of.iter().filter_map(|(at, _)| Some(self.slots[*at]?.object)).collect();
                let polled = of.iter().map(|(at, _)| *at).collect();
                Some(Sleep { until, polled, ..Sleep::default() })
            }
            _ => None,
        }
    }

    /// A thread's call has begun.
    pub(crate) fn began(&mut self, thread: usize, call: &Call) {
        call.makes().iter().for_each(|&at| self.promised[at] = true);
        self.sleeps[thread] = Some(self.sleep_of(call).unwrap_or_default());
    }

    /// It has ended, on both with success or on both without, and has made these descriptors.
    pub(crate) fn ended(&mut self, thread: usize, call: &Call, succeeded: bool, fds: &[[i32; 2]]) {
        let sleep = self.sleeps[thread].take();
        if succeeded
            && let Some((object, Role::Connect)) = sleep.as_ref().and_then(|sleep| sleep.on)
        {
            self.connected.push(object);
        }
        let makes = call.makes();
        makes.iter().for_each(|&at| self.promised[at] = false);
        if succeeded {
            match *call {
                Call::Dup { from, at } => {
                    self.put(at, fds[0], self.slots[from].expect("there").object)
                }
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
            Call::Socket { kind, .. } | Call::Bound { kind, .. } => {
                ([What::Socket(kind); 2], named(kind))
            }
            Call::Listener { kind, .. } => ([What::Listener(kind); 2], named(kind)),
            // A file that came with a message is a counter.
            Call::Recv { .. } => ([What::Counter; 2], own()),
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
                let (What::Listener(kind) | What::Socket(kind)) = what else {
                    unreachable!("it accepts")
                };
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
            (watch.epoll, watch.object, watch.descriptor)
                != (epoll.object, slot.object, slot.descriptor)
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
