//! The model of cache lines: a directory of who has which line, and what it costs to get it.
//!
//! ```text
//!   store, locked:  all others lose the line       M  one CPU, written
//!   load:           the writer keeps a copy        E  one CPU, clean
//!   nobody:         memory                         S  several, clean
//! ```
//!
//! A transfer is a request's way to whoever has the line, and the line's way back. A line serves one at a time: whose request
//! comes while it is on its way waits until it has arrived, and for a moment more. Requests that wait are there already; so
//! a line can change hands once in the time of a way back and that moment, which is what bounds every contended counter
//! and lock.

use crate::cache::Cache;
use crate::cpu_set::CpuSet;
use crate::jitter::Jitter;
use crate::topology::{Level, Ps, Topology};

/// The number of a line, in the order of first touch.
pub type LineId = u32;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A load.
    Load,
    /// A store that waits in the store buffer while the core goes on.
    Store,
    /// A locked instruction: drains the store buffer, has the line, and costs its own time.
    Locked,
    /// A load that nobody waits for.
    Prefetch,
    /// A load that nobody waits for, of a line that the CPU will have alone.
    PrefetchWrite,
}

/// Where the line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The core's own caches, or the chip's where it had been pushed out.
    Here,
    /// Memory: nobody had it.
    Memory,
    /// Another CPU, or all the others that shared it.
    Others,
}

/// What an access did and cost.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// When the core goes on.
    pub done: Ps,
    /// When others can see the effect.
    pub visible: Ps,
    /// Where the line came from.
    pub from: From,
    /// Of the time until `visible`, how long the line or the way was taken by others.
    pub queued: Ps,
    /// Who lost the line.
    pub lost: CpuSet,
}

#[derive(Debug, Default)]
struct Line {
    /// The only one who has it, perhaps written.
    owner: Option<u16>,
    written: bool,
    sharers: CpuSet,
    /// Until when a transfer of it is under way.
    busy: Ps,
    /// When the owner's store or the prefetch gets it, and whose that is.
    arrives: Ps,
    awaited_by: u16,
    /// Has been in some cache since the beginning.
    known: bool,
    /// Who has it when, to write: those who have asked are served one after the other, and each keeps it for a moment.
    turns: Vec<Turn>,
}

/// A CPU's time with a line.
#[derive(Debug, Clone, Copy)]
struct Turn {
    cpu: u16,
    from: Ps,
    until: Ps,
}

impl Line {
    /// When the CPU has the line, if it is its turn or will be next: others have asked for it since, but get it later.
    fn turn(&self, cpu: usize, now: Ps) -> Option<Ps> {
        let mine = |turn: &&Turn| usize::from(turn.cpu) == cpu && now < turn.until;
        self.turns.iter().find(mine).map(|turn| turn.from)
    }
}

#[derive(Debug)]
struct Cpu {
    l1: Cache,
    l2: Cache,
    /// When each store in the buffer is done, oldest first.
    stores: std::collections::VecDeque<Ps>,
}

/// All lines and caches of a machine.
#[derive(Debug)]
pub struct Directory {
    topology: Topology,
    lines: Vec<Line>,
    cpus: Vec<Cpu>,
    /// For each level, until when each group's way is taken.
    ways: Vec<Vec<Ps>>,
    jitter: Jitter,
}

impl Directory {
    /// An empty directory for the first `cpus` CPUs of a machine.
    pub fn new(topology: &Topology, cpus: usize, jitter: Jitter) -> Self {
        let core = &topology.core;
        let cpu = |_| Cpu {
            l1: Cache::new(core.l1_lines),
            l2: Cache::new(core.l2_lines),
            stores: std::collections::VecDeque::new(),
        };
        let groups = |level: &Level| topology.cpus().div_ceil(level.cpus);
        let ways = topology.levels.iter().map(|level| vec![0; groups(level)]).collect();
        Self {
            cpus: (0..cpus).map(cpu).collect(),
            topology: topology.clone(),
            lines: Vec::new(),
            ways,
            jitter,
        }
    }

    /// The machine.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// A line that nobody has touched.
    pub fn new_line(&mut self) -> LineId {
        self.lines.push(Line::default());
        (self.lines.len() - 1) as LineId
    }

    /// Whether the CPU is alone with the line: nothing that it does there concerns others.
    pub fn is_private(&self, cpu: usize, line: LineId) -> bool {
        let line = &self.lines[line as usize];
        line.owner == Some(cpu as u16) || !line.known
    }

    /// When the request of an access that begins at `now` arrives at who has the line: for an access that waits for it, and
    /// finds it with others. What they do until then they do before.
    pub fn request(&self, cpu: usize, line: LineId, kind: Kind, now: Ps) -> Option<Ps> {
        let now = now + self.topology.core.issue;
        let l = &self.lines[line as usize];
        let has = l.owner == Some(cpu as u16) || l.turn(cpu, now).is_some();
        let (level, _) = match kind {
            _ if has => None,
            Kind::Load if l.sharers.contains(cpu) => None,
            Kind::Load => self.others(cpu, l).min(),
            Kind::Locked => self.others(cpu, l).max(),
            Kind::Store | Kind::Prefetch | Kind::PrefetchWrite => None,
        }?;
        let Level { request, load_shared, .. } = self.topology.levels[level];
        let request =
            if kind == Kind::Load && !l.written { request.min(load_shared) } else { request };
        (request > 0).then_some(now + request)
    }

    /// Until when a line is on its way, or kept by who has just got it.
    pub fn kept_until(&self, line: LineId) -> Ps {
        self.lines[line as usize].busy
    }

    /// How long before a line has come to another CPU who loses it can have asked for it anew, without coming sooner.
    pub fn ahead(&self, cpu: usize, line: LineId) -> Ps {
        self.others(cpu, &self.lines[line as usize]).min().map_or(0, |(level, _)| {
            let Level { request, load_modified, .. } = self.topology.levels[level];
            request.min(load_modified - request)
        })
    }

    /// Does one access that begins at time `now`.
    pub fn access(&mut self, cpu: usize, line: LineId, kind: Kind, now: Ps) -> Outcome {
        self.arrive(cpu, line, kind, now, now)
    }

    /// Does one access that began when it was `asked`; its [`request`](Self::request) arrives `now`, if it has one.
    pub fn arrive(&mut self, cpu: usize, line: LineId, kind: Kind, asked: Ps, now: Ps) -> Outcome {
        let asked = asked + self.topology.core.issue;
        let now = now.max(asked);
        match kind {
            Kind::Load => self.load(cpu, line, asked, now),
            Kind::Prefetch => {
                let fetched = self.load(cpu, line, asked, now);
                let l = &mut self.lines[line as usize];
                if fetched.from != From::Here {
                    (l.arrives, l.awaited_by) = (fetched.done, cpu as u16);
                }
                Outcome { done: now, ..fetched }
            }
            Kind::PrefetchWrite => self.prefetch_write(cpu, line, asked, now),
            Kind::Store => self.store(cpu, line, now),
            Kind::Locked => {
                let drained = self.drain(cpu, now);
                // Nothing is asked for before the buffer is empty.
                let asked = if drained > now { drained } else { asked };
                let got = self.own(cpu, line, asked, drained);
                let done = got.visible + self.topology.core.locked;
                let l = &mut self.lines[line as usize];
                l.busy = l.busy.max(done);
                Outcome { done, visible: done, ..got }
            }
        }
    }

    /// A full fence: when it is done.
    pub fn fence(&mut self, cpu: usize, now: Ps) -> Ps {
        self.drain(cpu, now) + self.topology.core.fence
    }

    /// Waits until all stores of a CPU are done: when.
    pub fn drain(&mut self, cpu: usize, now: Ps) -> Ps {
        let last = self.cpus[cpu].stores.back().copied().unwrap_or(0);
        self.cpus[cpu].stores.clear();
        now.max(last)
    }

    /// The other CPUs that have the line, each with the level at which they meet.
    fn others<'l>(
        &'l self,
        cpu: usize,
        line: &'l Line,
    ) -> impl Iterator<Item = (usize, usize)> + 'l {
        let have = line.sharers.iter().chain(line.owner.map(usize::from));
        have.filter(move |other| *other != cpu)
            .map(move |other| (self.topology.distance(cpu, other), other))
    }

    /// When a transfer is done that was asked for at one time and cannot begin before another, and how long it was kept
    /// waiting.
    fn transfer(
        &mut self,
        cpu: usize,
        from: Option<(usize, usize)>,
        asked: Ps,
        ready: Ps,
        cost: Ps,
    ) -> (Ps, Ps) {
        let request = from.map_or(0, |(level, _)| self.topology.levels[level].request.min(cost));
        let arrives = asked + request;
        let start = self.take_way(cpu, from, arrives.max(ready));
        (start + self.jitter.around(cost - request), start - arrives)
    }

    fn load(&mut self, cpu: usize, line: LineId, asked: Ps, now: Ps) -> Outcome {
        let mut outcome = Outcome {
            done: now,
            visible: now,
            from: From::Here,
            queued: 0,
            lost: CpuSet::default(),
        };
        let l = &self.lines[line as usize];
        if l.owner == Some(cpu as u16) || l.sharers.contains(cpu) {
            // A line that a store of ours is still fetching: what was stored is forwarded, the rest is waited for. The
            // model does not tell them apart, and forwards.
            let waits_for = if l.awaited_by == cpu as u16 && !l.written { l.arrives } else { 0 };
            outcome.done = now.max(waits_for) + self.near(cpu, line);
            outcome.visible = outcome.done;
            return outcome;
        }
        if let Some(from) = l.turn(cpu, now) {
            outcome.done = now.max(from) + self.topology.core.l1;
            outcome.visible = outcome.done;
            return outcome;
        }
        let core = self.topology.core;
        let ready = now.max(l.busy);
        let from = self.others(cpu, l).min();
        let exclusive = l.owner.is_some() || from.is_none();
        let cost = match from {
            Some((level, _)) if l.written => self.topology.levels[level].load_modified,
            Some((level, _)) => self.topology.levels[level].load_shared,
            None if l.known => core.llc,
            None => core.dram,
        };
        let (done, queued) = self.transfer(cpu, from, asked, ready, cost);
        let l = &mut self.lines[line as usize];
        if exclusive {
            // Copies of a line that many have are served side by side.
            l.busy = done;
        }
        match l.owner.take() {
            Some(owner) if l.written && core.migratory => {
                // Who reads what another has just written will write it too: it gets all of it.
                outcome.lost.insert(owner.into());
                l.owner = Some(cpu as u16);
            }
            Some(owner) => {
                l.sharers = CpuSet::of(owner.into());
                l.sharers.insert(cpu);
            }
            None if l.sharers.is_empty() => l.owner = Some(cpu as u16),
            None => l.sharers.insert(cpu),
        }
        l.written = false;
        l.known = true;
        l.awaited_by = u16::MAX;
        self.keep(cpu, line);
        outcome.from = if from.is_some() { From::Others } else { From::Memory };
        (outcome.done, outcome.visible, outcome.queued) = (done, done, queued);
        outcome
    }

    fn store(&mut self, cpu: usize, line: LineId, now: Ps) -> Outcome {
        let mut now = now;
        let full = self.cpus[cpu].stores.len() >= self.topology.core.store_buffer;
        if let Some(oldest) = full.then(|| self.cpus[cpu].stores.pop_front()).flatten() {
            now = now.max(oldest);
        }
        while self.cpus[cpu].stores.front().is_some_and(|done| *done <= now) {
            self.cpus[cpu].stores.pop_front();
        }
        let got = self.own(cpu, line, now, now);
        // Stores become visible in their order.
        let visible = got.visible.max(self.cpus[cpu].stores.back().copied().unwrap_or(0));
        if visible > now {
            self.cpus[cpu].stores.push_back(visible);
            let l = &mut self.lines[line as usize];
            l.busy = l.busy.max(visible);
            if l.owner == Some(cpu as u16) {
                (l.arrives, l.awaited_by) = (visible, cpu as u16);
            }
        }
        Outcome { done: now, visible, ..got }
    }

    fn prefetch_write(&mut self, cpu: usize, line: LineId, asked: Ps, now: Ps) -> Outcome {
        let l = &self.lines[line as usize];
        if l.owner == Some(cpu as u16) || l.turn(cpu, now).is_some() {
            let lost = CpuSet::default();
            return Outcome { done: now, visible: now, from: From::Here, queued: 0, lost };
        }
        let fetched = self.own(cpu, line, asked, now);
        let l = &mut self.lines[line as usize];
        // Not yet: a load waits until it has come.
        l.written = false;
        (l.arrives, l.awaited_by) = (fetched.done, cpu as u16);
        Outcome { done: now, ..fetched }
    }

    /// Makes the CPU the line's only holder, writing it. `done` is `visible`: when it has it.
    fn own(&mut self, cpu: usize, line: LineId, asked: Ps, now: Ps) -> Outcome {
        let l = &self.lines[line as usize];
        if l.owner == Some(cpu as u16) {
            let near = self.near(cpu, line);
            // A miss in the own caches is hidden by the store buffer as long as there is room.
            let l = &mut self.lines[line as usize];
            l.written = true;
            let waits_for = if l.awaited_by == cpu as u16 { l.arrives } else { 0 };
            let done = now.max(waits_for) + near;
            return Outcome {
                done,
                visible: done,
                from: From::Here,
                queued: 0,
                lost: CpuSet::default(),
            };
        }
        if let Some(from) = l.turn(cpu, now) {
            let done = now.max(from) + self.topology.core.l1;
            return Outcome {
                done,
                visible: done,
                from: From::Here,
                queued: 0,
                lost: CpuSet::default(),
            };
        }
        let core = self.topology.core;
        let mut lost = l.sharers;
        if let Some(owner) = l.owner {
            lost.insert(owner.into());
        }
        lost.remove(cpu);
        let ready = now.max(l.busy);
        let farthest = self.others(cpu, l).max();
        let cost = match farthest {
            Some((level, _)) => {
                self.topology.levels[level].store + core.sharer * (lost.len() as Ps - 1)
            }
            None if l.sharers.contains(cpu) => core.l1,
            None if l.known => core.llc,
            None => core.dram,
        };
        let (done, queued) = self.transfer(cpu, farthest, asked, ready, cost);
        let l = &mut self.lines[line as usize];
        l.owner = Some(cpu as u16);
        l.written = true;
        l.sharers = CpuSet::default();
        l.known = true;
        l.busy = done;
        if core.hold > 0 && !lost.is_empty() {
            l.busy = done + core.hold;
            l.turns.retain(|turn| turn.until > now);
            l.turns.push(Turn { cpu: cpu as u16, from: done, until: l.busy });
        }
        l.awaited_by = u16::MAX;
        self.keep(cpu, line);
        let from = if lost.is_empty() { From::Memory } else { From::Others };
        Outcome { done, visible: done, from, queued, lost }
    }

    /// When a transfer between CPUs that meet at a level can begin: where the level is a bus, its users take turns.
    fn take_way(&mut self, cpu: usize, met: Option<(usize, usize)>, start: Ps) -> Ps {
        let Some((level, _)) = met else { return start };
        let Level { cpus, occupies: Some(occupies), .. } = &self.topology.levels[level] else {
            return start;
        };
        let free = &mut self.ways[level][self.topology.position(cpu) / cpus];
        let start = start.max(*free);
        *free = start + occupies;
        start
    }

    /// What it costs to reach a line that the CPU may use.
    fn near(&mut self, cpu: usize, line: LineId) -> Ps {
        let (core, caches) = (&self.topology.core, &mut self.cpus[cpu]);
        match (caches.l1.touch(line), caches.l2.touch(line)) {
            (true, _) => core.l1,
            (false, true) => core.l2,
            (false, false) => core.llc,
        }
    }

    fn keep(&mut self, cpu: usize, line: LineId) {
        self.cpus[cpu].l1.touch(line);
        self.cpus[cpu].l2.touch(line);
    }
}
