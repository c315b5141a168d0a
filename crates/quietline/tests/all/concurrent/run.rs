//! Runs a program on both systems, one call at a time.

use crate::concurrent::call::{
    Call, Given, Kind, NAMES, Outcome, SLOTS, System, THREADS, loopback, make,
};
use crate::concurrent::generate::{self, Theme};
use crate::concurrent::host::Host;
use crate::concurrent::model::Model;
use crate::concurrent::ours::{self, Ours};
use crate::concurrent::worker::{Worker, rest};
use crate::support::Random;
use quietline::Kernel;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who makes which call.
pub(crate) type Step = (usize, Call);

/// The threads of both systems, for one program after another.
pub(crate) struct Team {
    workers: [[Worker; THREADS]; 2],
    kernel: Kernel,
    /// Whether packets go over the loopback device, which takes its time.
    inet: bool,
    /// How long one system may take to do what the other has done.
    pub(crate) late: Duration,
    pub(crate) seen: Seen,
    programs: u64,
}

/// What the programs have come to.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    pub(crate) programs: u64,
    pub(crate) calls: u64,
    /// Calls that slept, and that were ended by an interrupt, by another's call.
    pub(crate) slept: u64,
    pub(crate) interrupted: u64,
    pub(crate) woken: u64,
    /// Steps in which several were woken.
    pub(crate) together: u64,
    /// Steps after which the host, or we, had to be waited for.
    pub(crate) late: u64,
    /// Bytes that went from pipe to pipe, and files that came with messages: in how many calls.
    pub(crate) spliced: u64,
    pub(crate) files: u64,
    /// Shutdowns of a socket, or its receiver, whose datagram waits.
    pub(crate) shut: u64,
    /// By the kind of call: how many slept.
    pub(crate) kinds: std::collections::BTreeMap<String, u64>,
}

const HOST: usize = 0;
const OURS: usize = 1;

/// A program that was run.
pub(crate) struct Run {
    pub(crate) steps: Vec<Step>,
    /// What happened, for people.
    pub(crate) told: String,
    pub(crate) difference: Option<String>,
}

impl Team {
    pub(crate) fn new(inet: bool) -> Self {
        let worker = || std::array::from_fn(|_| Worker::new());
        // For a busy machine.
        let late = Duration::from_secs(60);
        Self {
            inet,
            workers: [worker(), worker()],
            kernel: ours::boot(),
            late,
            seen: Seen::default(),
            programs: 0,
        }
    }

    /// Makes a program as it goes.
    pub(crate) fn generate(&mut self, dice: &mut Random, theme: &Theme, length: usize) -> Run {
        let mut left = length;
        self.run(|model, host| {
            left = left.checked_sub(1)?;
            // Calls that are against the rules are passed over; there is always another.
            for _ in 0..200 {
                let (thread, call) = generate::next(dice, model, theme);
                if model.may(thread, &call, host) {
                    return Some((thread, call));
                }
            }
            None
        })
    }

    /// Runs a program again: calls that cannot be made now are passed over.
    pub(crate) fn replay(&mut self, steps: &[Step]) -> Run {
        let mut steps = steps.iter();
        self.run(|model, host| steps.find(|(thread, call)| model.may(*thread, call, host)).cloned())
    }

    fn run(&mut self, next: impl FnMut(&mut Model, &Host) -> Option<Step>) -> Run {
        self.programs += 1;
        let tag = self.programs;
        let sides = (Arc::new(Host::new(tag)), Arc::new(Ours::new(&self.kernel, tag)));
        let mut program = Program {
            team: self,
            host: sides.0,
            ours: sides.1,
            tag,
            model: Model::new(),
            calls: [const { None }; THREADS],
            names: Default::default(),
            run: Run { steps: Vec::new(), told: String::new(), difference: None },
        };
        program.run.difference = program.all(next).err();
        let run = program.end();
        let files = self.kernel.nr_files();
        assert!(run.difference.is_some() || files == 0, "{files} files are left by:\n{}", run.told);
        self.seen.programs += 1;
        run
    }
}

struct Program<'a> {
    team: &'a mut Team,
    host: Arc<Host>,
    ours: Arc<Ours>,
    tag: u64,
    model: Model,
    /// What each thread is at.
    calls: [Option<Call>; THREADS],
    /// Names that sockets of the loopback device were given, by kind and number.
    names: [[[Vec<u8>; 2]; NAMES]; 2],
    run: Run,
}

impl Program<'_> {
    fn all(
        &mut self,
        mut next: impl FnMut(&mut Model, &Host) -> Option<Step>,
    ) -> Result<(), String> {
        while let Some((thread, call)) = next(&mut self.model, &self.host) {
            self.step(thread, call)?;
        }
        // Whoever sleeps still is waked.
        while let Some(thread) = (0..THREADS).find(|&thread| self.calls[thread].is_some()) {
            self.step(thread, Call::Interrupt { thread })?;
        }
        Ok(())
    }

    /// One call, and all that comes of it.
    fn step(&mut self, thread: usize, call: Call) -> Result<(), String> {
        let n = self.run.steps.len();
        self.run.steps.push((thread, call.clone()));
        writeln!(self.run.told, "    {n:3} thread {thread}: {call:?}").unwrap();
        self.team.seen.calls += 1;
        let expires = call.expires();
        let signalled = matches!(call, Call::Interrupt { .. });
        if signalled {
            if self.team.inet {
                // What is on its way is to arrive before.
                std::thread::sleep(Duration::from_millis(1));
            }
            self.worker(HOST, thread).signal();
            self.worker(OURS, thread).interrupt();
        } else {
            self.begin(n, thread, call);
        }
        let ended = self.rest((expires || signalled).then_some(thread))?;
        self.team.seen.together += u64::from(ended.iter().filter(|ended| **ended).count() > 2);
        let mut difference = None;
        for other in (0..THREADS).filter(|&other| ended[other]) {
            let outcomes = [HOST, OURS].map(|side| self.worker(side, other).outcome());
            let call = self.calls[other].take().expect("it was at one");
            let seen = &mut self.team.seen;
            if other != thread || signalled {
                *(if signalled && other == thread {
                    &mut seen.interrupted
                } else {
                    &mut seen.woken
                }) += 1;
            }
            writeln!(self.run.told, "          {other} ends: {}", short(&outcomes[HOST])).unwrap();
            if outcomes[HOST] != outcomes[OURS] {
                writeln!(self.run.told, "             here: {}", short(&outcomes[OURS])).unwrap();
                difference = Some(format!("call {n}: thread {other} in {call:?}"));
                continue;
            }
            self.ended(other, &call, outcomes);
        }
        if let Some(call) = &self.calls[thread] {
            self.team.seen.slept += 1;
            let name = format!("{call:?}");
            let name = name.split(' ').next().unwrap_or_default().to_owned();
            *self.team.seen.kinds.entry(name).or_default() += 1;
            writeln!(self.run.told, "          sleeps").unwrap();
        }
        difference.map_or(Ok(()), Err)?;
        self.same_state(n)
    }

    fn worker(&mut self, side: usize, thread: usize) -> &mut Worker {
        &mut self.team.workers[side][thread]
    }

    fn begin(&mut self, n: usize, thread: usize, call: Call) {
        let names = self.names_for(&call);
        for side in [HOST, OURS] {
            let fds = self.model.slots.map(|slot| slot.map_or(-1, |slot| slot.fds[side]));
            let given = Given { fds, byte: (n as u8).wrapping_mul(37), name: names[side].clone() };
            let call = call.clone();
            let job: Box<dyn FnOnce() -> Outcome + Send> = if side == HOST {
                let host = self.host.clone();
                Box::new(move || make(&call, &*host, &given))
            } else {
                let ours = self.ours.clone();
                Box::new(move || make(&call, &*ours, &given))
            };
            self.worker(side, thread).start(job);
        }
        self.model.began(thread, &call);
        self.calls[thread] = Some(call);
    }

    /// The name that a call means, on each side.
    fn names_for(&self, call: &Call) -> [Vec<u8>; 2] {
        let (kind, name, binds) = match *call {
            Call::Bound { kind, name, .. } | Call::Listener { kind, name, .. } => {
                (kind, name, true)
            }
            Call::Connect { kind, name, .. } | Call::Send { to: Some((kind, name)), .. } => {
                (kind, name, false)
            }
            _ => return Default::default(),
        };
        if !kind.is_inet() {
            let text = format!(
                "\0ql-concurrent-{}-{}-{}-{name}",
                std::process::id(),
                self.tag,
                kind as u8
            );
            let mut bytes = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
            bytes.extend(text.into_bytes());
            return [bytes.clone(), bytes];
        }
        let known = self.names[usize::from(kind == Kind::Udp)][name].clone();
        if binds || known[HOST].is_empty() {
            [HOST, OURS].map(|_| loopback(u8::from(!binds)))
        } else {
            known
        }
    }

    /// Notes that a call has come to the same on both.
    fn ended(&mut self, thread: usize, call: &Call, outcomes: [Outcome; 2]) {
        let [host, ours] = outcomes;
        let fds: Vec<_> =
            host.fds.iter().zip(&ours.fds).map(|(host, ours)| [*host, *ours]).collect();
        if let Call::Bound { kind, name, .. } | Call::Listener { kind, name, .. } = *call
            && kind.is_inet()
            && host.result.is_ok()
        {
            self.names[usize::from(kind == Kind::Udp)][name] = [host.name, ours.name];
        }
        let seen = &mut self.team.seen;
        match call {
            Call::Splice { .. } => seen.spliced += u64::from(host.result.is_ok_and(|n| n > 0)),
            Call::Recv { .. } => seen.files += fds.len() as u64,
            Call::Shutdown { at, .. } => seen.shut += u64::from(self.model.has_dgram_waiting(*at)),
            _ => {}
        }
        self.model.ended(thread, call, host.result.is_ok(), &fds);
    }

    /// Waits until all sleep or have ended their calls: which have, on both the same, and that one among them.
    fn rest(&mut self, must: Option<usize>) -> Result<[bool; THREADS], String> {
        let busy: Vec<usize> =
            (0..THREADS).filter(|&thread| self.calls[thread].is_some()).collect();
        let (mut since, mut late) = (None, false);
        loop {
            let workers: Vec<&Worker> = [HOST, OURS]
                .iter()
                .flat_map(|&side| busy.iter().map(move |&thread| (side, thread)))
                .map(|(side, thread)| &self.team.workers[side][thread])
                .collect();
            if !rest(&workers) {
                return Err("calls take too long".to_owned());
            }
            let ended: [[bool; THREADS]; 2] = [HOST, OURS].map(|side| {
                std::array::from_fn(|thread| {
                    busy.contains(&thread) && self.worker(side, thread).has_ended()
                })
            });
            if ended[HOST] == ended[OURS] && must.is_none_or(|thread| ended[HOST][thread]) {
                self.team.seen.late += u64::from(late);
                return Ok(ended[HOST]);
            }
            let since = *since.get_or_insert_with(Instant::now);
            if since.elapsed() > self.team.late {
                let n = self.run.steps.len() - 1;
                return Err(format!(
                    "call {n}: ended on the host {:?}, here {:?}",
                    ended[HOST], ended[OURS]
                ));
            }
            late = must.is_none();
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Whether all files have the same for `poll`, and as many bytes.
    fn same_state(&mut self, n: usize) -> Result<(), String> {
        const ALL: i16 = 0x37ff;
        let (since, mut late) = (Instant::now(), false);
        loop {
            let states = [HOST, OURS].map(|side| {
                let fds = self.model.slots.map(|slot| slot.map_or(-1, |slot| slot.fds[side]));
                if side == HOST {
                    state(&*self.host, fds, ALL)
                } else {
                    state(&*self.ours, fds, ALL)
                }
            });
            if states[HOST] == states[OURS] {
                self.team.seen.late += u64::from(late);
                return Ok(());
            }
            if since.elapsed() > self.team.late {
                return Err(format!(
                    "after call {n}: host {:x?}\n{:31}here {:x?}",
                    states[HOST], "", states[OURS]
                ));
            }
            late = true;
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Ends what there is, also after a difference.
    fn end(mut self) -> Run {
        let since = Instant::now();
        for side in [HOST, OURS] {
            let busy: Vec<_> =
                (0..THREADS).filter(|&thread| self.calls[thread].is_some()).collect();
            for thread in busy {
                while !self.worker(side, thread).has_ended() {
                    let worker = self.worker(side, thread);
                    if side == HOST {
                        worker.signal()
                    } else {
                        worker.interrupt()
                    }
                    std::thread::sleep(Duration::from_micros(200));
                    assert!(
                        since.elapsed() < Duration::from_secs(180),
                        "no end:\n{}",
                        self.run.told
                    );
                }
                let outcome = self.worker(side, thread).outcome();
                for fd in outcome.fds {
                    let closed =
                        if side == HOST { self.host.close(fd) } else { self.ours.close(fd) };
                    assert_eq!(closed, Ok(()));
                }
            }
        }
        for slot in self.model.slots.into_iter().flatten() {
            assert_eq!(self.host.close(slot.fds[HOST]), Ok(()));
            assert_eq!(self.ours.close(slot.fds[OURS]), Ok(()));
        }
        if self.run.difference.is_none() {
            assert_eq!(self.ours.open(), Vec::<i32>::new(), "left open by:\n{}", self.run.told);
        } else {
            self.ours.open().into_iter().for_each(|fd| _ = self.ours.close(fd));
        }
        self.run
    }
}

/// What each file has for `poll`, and how many bytes.
fn state(
    on: &impl System,
    fds: [i32; SLOTS],
    all: i16,
) -> Vec<(i16, crate::concurrent::call::Result<i32>)> {
    let of = fds.map(|fd| (fd, all));
    let found = on.poll(&of, 0).expect("it does not wait");
    let readable = fds.iter().map(|&fd| if fd < 0 { Ok(0) } else { on.readable(fd) });
    found.into_iter().zip(readable).collect()
}

fn short(outcome: &Outcome) -> String {
    let mut text = format!("{:?}", outcome.result);
    if !outcome.bytes.is_empty() {
        let sum = outcome
            .bytes
            .iter()
            .fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
        write!(
            text,
            ", {} bytes from {:?}, sum {sum:x}",
            outcome.bytes.len(),
            &outcome.bytes[..outcome.bytes.len().min(4)]
        )
        .unwrap();
    }
    if !outcome.events.is_empty() {
        write!(text, ", events {:x?}", outcome.events).unwrap();
    }
    text
}
