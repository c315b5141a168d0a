//! The next call of a program, by chance, from what there is.

use crate::concurrent::call::{Call, Kind, NAMES, SLOTS, THREADS};
use crate::concurrent::model::{Model, What};
use crate::support::Random;

/// What a program is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Theme {
    /// Kinds of sockets.
    pub(crate) kinds: &'static [Kind],
    /// Of a hundred things that are made: pipes, openings of the fifo, counters, epolls, and the rest are sockets.
    pub(crate) making: [usize; 4],
}

const LOCAL: &[Kind] = &[Kind::Stream, Kind::Dgram, Kind::Seqpacket];
pub(crate) const INET: &[Kind] = &[Kind::Tcp, Kind::Udp];

pub(crate) fn theme(dice: &mut Random, kinds: Option<&'static [Kind]>) -> Theme {
    let kinds = kinds
        .unwrap_or_else(|| pick(dice, &[LOCAL, LOCAL, &LOCAL[..1], &LOCAL[1..2], &LOCAL[2..]]));
    let making = if kinds == INET {
        [5, 0, 5, 20]
    } else {
        pick(
            dice,
            &[
                [20, 10, 15, 20],
                [60, 0, 0, 20],
                [10, 60, 0, 15],
                [0, 0, 50, 40],
                [0, 0, 0, 15],
                [5, 0, 5, 10],
            ],
        )
    };
    Theme { kinds, making }
}

fn pick<T: Copy>(dice: &mut Random, of: &[T]) -> T {
    of[dice.below(of.len())]
}

/// Who makes which call next.
pub(crate) fn next(dice: &mut Random, model: &Model, theme: &Theme) -> (usize, Call) {
    let of =
        |asleep: bool| (0..THREADS).filter(move |&thread| model.sleeps[thread].is_some() == asleep);
    let (asleep, awake): (Vec<_>, Vec<_>) = (of(true).collect(), of(false).collect());
    if awake.is_empty() || !asleep.is_empty() && dice.below(20) == 0 {
        let thread = pick(dice, &asleep);
        return (thread, Call::Interrupt { thread });
    }
    let thread = pick(dice, &awake);
    let full: Vec<_> = (0..SLOTS).filter(|&at| model.slots[at].is_some()).collect();
    // Often something that those may have to do with who sleep.
    let near: Vec<_> = if asleep.is_empty() || dice.below(5) < 2 {
        Vec::new()
    } else {
        let sleep = model.sleeps[pick(dice, &asleep)].as_ref().expect("asleep");
        let groups = model.groups_of(sleep);
        full.iter()
            .copied()
            .filter(|&at| model.object(at).is_some_and(|object| groups.contains(&object.group)))
            .collect()
    };
    if near.is_empty() && (full.len() < 4 || dice.below(100) < if full.len() < 8 { 18 } else { 3 })
    {
        return (thread, make(dice, theme));
    }
    let at = if near.is_empty() { pick(dice, &full) } else { pick(dice, &near) };
    (thread, with(dice, model, theme, at))
}

fn make(dice: &mut Random, theme: &Theme) -> Call {
    let at = [dice.below(SLOTS), dice.below(SLOTS)];
    let (mut n, mut kind_of_thing) = (dice.below(100), 4);
    for (thing, share) in theme.making.iter().enumerate() {
        if n < *share {
            kind_of_thing = thing;
            break;
        }
        n -= share;
    }
    match kind_of_thing {
        0 => Call::Pipe { at, packets: dice.below(6) == 0 },
        1 => open(dice, at[0]),
        2 => Call::Counter { at: at[0], semaphore: dice.below(2) == 0 },
        3 => Call::Epoll { at: at[0] },
        _ => {
            let (at, kind) = (at[0], pick(dice, theme.kinds));
            let name = dice.below(NAMES);
            match (dice.below(6), kind) {
                (0 | 1, Kind::Udp) => Call::Bound { at, kind, name },
                (0 | 1, _) => Call::Pair { at: [at, dice.below(SLOTS)], kind },
                (2 | 3, _) => Call::Socket { at, kind },
                (_, Kind::Dgram | Kind::Udp) => Call::Bound { at, kind, name },
                (_, Kind::Tcp) => Call::Listener { at, kind, name, backlog: 16 },
                _ => Call::Listener { at, kind, name, backlog: pick(dice, &[0, 0, 1, 5]) },
            }
        }
    }
}

fn open(dice: &mut Random, at: usize) -> Call {
    let wait = pick(dice, &[0, 0, 0, libc::O_NONBLOCK]);
    Call::Open {
        at,
        flags: pick(
            dice,
            &[libc::O_RDONLY, libc::O_RDONLY, libc::O_WRONLY, libc::O_WRONLY, libc::O_RDWR],
        ) | wait,
    }
}

fn timeout(dice: &mut Random) -> i32 {
    pick(dice, &[-1, -1, -1, -1, 1_000_000, 1_000_000, 0, 0, 0, 1])
}

fn wanted(dice: &mut Random) -> u32 {
    let mut events = pick(dice, &[1, 1, 1, 4, 5, 0x2001, 0x2005, 0, 0x41]);
    for (bit, n) in [(31, 3), (30, 6), (28, 12)] {
        if dice.below(n) == 0 {
            events |= 1 << bit;
        }
    }
    events
}

/// A call on what is at a place.
fn with(dice: &mut Random, model: &Model, theme: &Theme, at: usize) -> Call {
    let Some(object) = model.object(at) else { return make(dice, theme) };
    match dice.below(100) {
        0..5 => return Call::Close { at },
        5..8 => return Call::Dup { from: at, at: dice.below(SLOTS) },
        8 => return Call::Replace { from: dice.below(SLOTS), at },
        9 | 10 => return Call::NonBlocking { at, on: dice.below(2) == 0 },
        11..19 => {
            let mut of = vec![(at, pick(dice, &[1, 1, 4, 5, 0x2001, 0]))];
            if dice.below(2) == 0 {
                of.push((dice.below(SLOTS), pick(dice, &[1, 1, 4, 5, 0x2001])));
            }
            return Call::Poll { of, timeout: timeout(dice) };
        }
        19..33 => {
            let epolls =
                (0..SLOTS).filter(|&ep| model.object(ep).is_some_and(|ep| ep.what == What::Epoll));
            let epolls: Vec<_> = epolls.collect();
            if !epolls.is_empty() {
                let ep = pick(dice, &epolls);
                return control(dice, ep, at);
            }
        }
        _ => {}
    }
    match object.what {
        What::Reader | What::Writer | What::Both if dice.below(3) == 0 => splice(dice, model, at),
        What::Reader => read(dice, at),
        What::Writer => write(dice, at),
        What::Both if dice.below(2) == 0 => read(dice, at),
        What::Both => write(dice, at),
        What::Counter => {
            if dice.below(2) == 0 {
                Call::Take { at }
            } else {
                Call::Add {
                    at,
                    n: pick(
                        dice,
                        &[1, 1, 1, 2, 5, u64::MAX - 1, u64::MAX - 1, u64::MAX - 3, 0, u64::MAX],
                    ),
                }
            }
        }
        What::Epoll => {
            if dice.below(3) == 0 {
                let of = dice.below(SLOTS);
                control(dice, at, of)
            } else {
                Call::Wait { ep: at, max: pick(dice, &[1, 1, 2, 8]), timeout: timeout(dice) }
            }
        }
        What::Listener(kind) => match dice.below(20) {
            0 => Call::Shutdown { at, how: pick(dice, &[0, 1, 2]) },
            1..7 => connect(dice, dice_slot(at), kind),
            _ => Call::Accept { at, to: dice.below(SLOTS) },
        },
        What::Socket(kind) if model.is_fresh(at) && dice.below(3) != 0 => connect(dice, at, kind),
        What::Socket(kind) => socket(dice, model, at, kind),
    }
}

/// Another place than this.
fn dice_slot(at: usize) -> usize {
    (at + 1) % SLOTS
}

fn control(dice: &mut Random, ep: usize, at: usize) -> Call {
    let op = pick(dice, &[1, 1, 1, 1, 3, 3, 2]);
    Call::Control { ep, op, at, events: wanted(dice), data: dice.below(1000) as u64 }
}

fn read(dice: &mut Random, at: usize) -> Call {
    match dice.below(8) {
        0 => resize(dice, at),
        _ => Call::Read { at, len: pick(dice, &[1, 10, 10, 4_096, 5_000, 70_000, 300_000]) },
    }
}

fn write(dice: &mut Random, at: usize) -> Call {
    match dice.below(8) {
        0 => resize(dice, at),
        _ => Call::Write {
            at,
            len: pick(dice, &[1, 10, 10, 3_000, 4_096, 5_000, 65_536, 65_536, 70_000, 150_000]),
        },
    }
}

/// Between a pipe and another one, if there is one.
fn splice(dice: &mut Random, model: &Model, at: usize) -> Call {
    let object = model.object(at).expect("a pipe");
    let others = |end: fn(What) -> bool| {
        let is = move |&other: &usize| {
            model.object(other).is_some_and(|other| end(other.what) && other.group != object.group)
        };
        (0..SLOTS).filter(is).collect::<Vec<_>>()
    };
    let other = |dice: &mut Random, others: Vec<usize>| {
        if others.is_empty() { at } else { pick(dice, &others) }
    };
    let [from, to] = match object.what {
        What::Writer => [other(dice, others(What::is_read)), at],
        _ => [at, other(dice, others(What::is_written))],
    };
    Call::Splice { from, to, len: pick(dice, &[1, 10, 4_096]), tee: dice.below(3) == 0 }
}

fn resize(dice: &mut Random, at: usize) -> Call {
    Call::Resize { at, bytes: pick(dice, &[1, 4_096, 8_192, 65_536, 131_072, 262_144]) }
}

fn connect(dice: &mut Random, at: usize, kind: Kind) -> Call {
    let waits = kind == Kind::Tcp || dice.below(3) != 0;
    Call::Connect { at, kind, name: dice.below(NAMES), waits }
}

fn socket(dice: &mut Random, model: &Model, at: usize, kind: Kind) -> Call {
    let inet = kind.is_inet();
    if model.has_dgram_waiting(at) && dice.below(4) == 0 {
        return Call::Shutdown { at, how: pick(dice, &[0, 1, 1, 2]) };
    }
    match dice.below(100) {
        0..6 => Call::Shutdown { at, how: pick(dice, &[0, 1, 1, 2]) },
        6..24 => connect(dice, at, kind),
        24..34 if !inet => Call::Fill {
            at,
            len: if kind == Kind::Dgram {
                pick(dice, &[1, 100, 3_000])
            } else {
                pick(dice, &[1, 100, 3_000, 30_000])
            },
        },
        24..60 => {
            let to = (kind.is_dgram() && dice.below(2) == 0).then(|| (kind, dice.below(NAMES)));
            let len = match kind {
                _ if inet => pick(dice, &[1, 2, 10, 100, 1_000]),
                Kind::Stream => {
                    pick(dice, &[1, 2, 10, 100, 1_000, 10_000, 50_000, 250_000, 400_000])
                }
                Kind::Dgram => pick(dice, &[0, 1, 2, 10, 100, 1_000, 5_000]),
                _ => pick(dice, &[0, 1, 2, 10, 100, 1_000, 10_000, 100_000]),
            };
            let flags = pick(dice, &[0, 0, 0, 0, 0, libc::MSG_DONTWAIT]);
            Call::Send { at, to, len, flags, file: !inet && dice.below(2) == 0 }
        }
        60..66 => Call::Read { at, len: pick(dice, &[1, 10, 1_000, 50_000]) },
        66..70 => Call::Write { at, len: pick(dice, &[1, 10, 100, 1_000]) },
        _ => {
            let len = pick(dice, &[1, 2, 10, 10, 100, 1_000, 30_000, 110_000, 300_000]);
            let all = libc::MSG_WAITALL;
            let flags = pick(
                dice,
                &[0, 0, 0, 0, libc::MSG_DONTWAIT, libc::MSG_PEEK, all, all, libc::MSG_TRUNC],
            );
            // Who looks at a file has it as well as who takes it: it would be one thing at two places.
            let has_room = !inet && flags != libc::MSG_PEEK && dice.below(2) == 0;
            let free: Vec<_> = (0..SLOTS).filter(|&at| model.slots[at].is_none()).collect();
            Call::Recv {
                at,
                len,
                flags,
                file: (has_room && !free.is_empty()).then(|| pick(dice, &free)),
            }
        }
    }
}
