//! Machines, as files: how far CPUs are from each other, what each distance costs, and who says so.

use crate::cpu_set::MAX_CPUS;
use serde::Deserialize;

/// Time in the model, in picoseconds.
pub type Ps = u64;

/// A latency with its source: in nanoseconds, or in cycles of the core's clock.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    ns: Option<f64>,
    cycles: Option<f64>,
    /// Who measured it; or `estimate:` and the reason.
    pub source: String,
}

/// Who says that something is so; or `estimate:` and the reason.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Why {
    /// As in [`Figure`].
    pub source: String,
}

/// A level of the machine: CPUs whose numbers agree when divided by `cpus` are this near.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelFile {
    /// What the level is called.
    pub name: String,
    /// CPUs in one group of it; a multiple of the level before.
    pub cpus: usize,
    /// A load of a line that another CPU of the group has written.
    pub load_modified: Figure,
    /// A load of a line that others of the group share.
    pub load_shared: Figure,
    /// A store, or a locked instruction, to a line that another CPU of the group holds.
    pub store: Figure,
    /// Of each of these, the request's way to whoever has the line: others use the line meanwhile, and requests that have to
    /// wait wait there. None: the way counts with the transfer, and nothing overlaps with it.
    pub request: Option<Figure>,
    /// How long a transfer at this level keeps others at the same level from theirs: a bus. None: they do not meet.
    pub occupies: Option<Figure>,
}

/// What a core costs by itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreFile {
    /// Cycles in a nanosecond.
    pub ghz: f64,
    /// Each access: its own issue, and the instructions around it that are not seen.
    pub issue: Figure,
    /// A load that hits the first level, as far as it is not hidden.
    pub l1: Figure,
    /// One that hits the second level.
    pub l2: Figure,
    /// One whose line has left the core's own caches.
    pub llc: Figure,
    /// One that goes to memory.
    pub dram: Figure,
    /// What a locked instruction costs on a line that is at hand.
    pub locked: Figure,
    /// How long a core keeps a line that it has just got to write before others get it.
    pub hold: Figure,
    /// A full fence with an empty store buffer.
    pub fence: Figure,
    /// A turn of a spin loop.
    pub pause: Figure,
    /// Invalidating one more sharer.
    pub sharer: Figure,
    /// A barrier on another CPU by interrupt (`membarrier`), for each CPU.
    pub barrier: Figure,
    /// A system call that puts a thread to sleep or wakes one.
    pub futex: Figure,
    /// Whether a load of a line that another CPU has written takes it away from there, and why it is thought so. None: both
    /// have it then.
    pub migratory: Option<Why>,
    /// Lines of the first level.
    pub l1_lines: usize,
    /// Lines of the second level.
    pub l2_lines: usize,
    /// Stores that wait for their lines before the core does.
    pub store_buffer: usize,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    title: String,
    core: CoreFile,
    level: Vec<LevelFile>,
}

/// Costs of a core, in picoseconds. Fields as in [`CoreFile`].
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Core {
    /// A cycle of the core's clock.
    pub cycle: Ps,
    pub issue: Ps,
    pub l1: Ps,
    pub l2: Ps,
    pub llc: Ps,
    pub dram: Ps,
    pub locked: Ps,
    pub hold: Ps,
    pub fence: Ps,
    pub pause: Ps,
    pub sharer: Ps,
    pub barrier: Ps,
    pub futex: Ps,
    pub migratory: bool,
    pub l1_lines: usize,
    pub l2_lines: usize,
    pub store_buffer: usize,
}

/// A level, its costs in picoseconds. Fields as in [`LevelFile`].
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Level {
    pub name: String,
    pub cpus: usize,
    pub load_modified: Ps,
    pub load_shared: Ps,
    pub store: Ps,
    pub request: Ps,
    pub occupies: Option<Ps>,
}

/// A machine.
#[derive(Debug, Clone)]
pub struct Topology {
    /// As `--machine` takes it.
    pub name: String,
    /// As people call it.
    pub title: String,
    /// A core's own costs.
    pub core: Core,
    /// Nearest first.
    pub levels: Vec<Level>,
    /// What each figure is and where it comes from, in order.
    pub sources: Vec<(String, String)>,
    /// Innermost groups that successive CPUs are dealt to in turn.
    dealt_to: usize,
}

/// Why a file is no machine.
#[derive(Debug, thiserror::Error)]
pub enum BadTopology {
    /// It is not of the form.
    #[error("{0}")]
    Form(#[from] toml::de::Error),
    /// It contradicts itself.
    #[error("{0}")]
    Sense(String),
    /// It cannot be read.
    #[error("{path}: {error}; known machines: {known}")]
    Unreadable {
        /// The path.
        path: String,
        /// Why.
        error: std::io::Error,
        /// The machines that need no file.
        known: String,
    },
}

macro_rules! machines {
    ($($name:literal),* $(,)?) => {
        const KNOWN: &[(&str, &str)] = &[$(($name, include_str!(concat!("../machines/", $name, ".toml")))),*];
    };
}

machines!(
    "one-socket-2",
    "one-socket-8",
    "one-socket-16",
    "core2-2x4",
    "westmere-8x10",
    "nehalem-4",
    "haswell-4",
    "kvm-18",
    "epyc-2x64",
    "xeon-2x60",
    "arm-flat-64",
);

impl Topology {
    /// The names of the machines that need no file.
    pub fn known() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|(name, _)| *name)
    }

    /// A known machine, or that of a file.
    ///
    /// # Errors
    /// [`BadTopology`].
    pub fn load(name_or_path: &str) -> Result<Self, BadTopology> {
        match KNOWN.iter().find(|(name, _)| *name == name_or_path) {
            Some((_, text)) => Self::parse(text),
            None => {
                let text = std::fs::read_to_string(name_or_path).map_err(|error| {
                    BadTopology::Unreadable {
                        path: name_or_path.to_owned(),
                        error,
                        known: Self::known().collect::<Vec<_>>().join(", "),
                    }
                })?;
                Self::parse(&text)
            }
        }
    }

    /// The machine of a file's text.
    ///
    /// # Errors
    /// [`BadTopology`].
    pub fn parse(text: &str) -> Result<Self, BadTopology> {
        let file: File = toml::from_str(text)?;
        let mut reader = Reader { ghz: file.core.ghz, sources: Vec::new() };
        let c = &file.core;
        let core = Core {
            cycle: (1000.0 / c.ghz).round() as Ps,
            issue: reader.ps("issue", &c.issue)?,
            l1: reader.ps("l1", &c.l1)?,
            l2: reader.ps("l2", &c.l2)?,
            llc: reader.ps("llc", &c.llc)?,
            dram: reader.ps("dram", &c.dram)?,
            locked: reader.ps("locked", &c.locked)?,
            hold: reader.ps("hold", &c.hold)?,
            fence: reader.ps("fence", &c.fence)?,
            pause: reader.ps("pause", &c.pause)?,
            sharer: reader.ps("sharer", &c.sharer)?,
            barrier: reader.ps("barrier", &c.barrier)?,
            futex: reader.ps("futex", &c.futex)?,
            migratory: reader.holds("migratory", c.migratory.as_ref())?,
            l1_lines: c.l1_lines,
            l2_lines: c.l2_lines,
            store_buffer: c.store_buffer.max(1),
        };
        let mut levels: Vec<Level> = Vec::new();
        for level in &file.level {
            let name = &level.name;
            let whole = levels.last().is_none_or(|inner| level.cpus.is_multiple_of(inner.cpus));
            if level.cpus < 2 || !whole {
                return Err(BadTopology::Sense(format!(
                    "level {name}: groups must be made of whole inner groups"
                )));
            }
            let level = Level {
                cpus: level.cpus,
                load_modified: reader
                    .ps(&format!("{name}: load_modified"), &level.load_modified)?,
                load_shared: reader.ps(&format!("{name}: load_shared"), &level.load_shared)?,
                store: reader.ps(&format!("{name}: store"), &level.store)?,
                request: match &level.request {
                    Some(figure) => reader.ps(&format!("{name}: request"), figure)?,
                    None => 0,
                },
                occupies: match &level.occupies {
                    Some(figure) => Some(reader.ps(&format!("{name}: occupies"), figure)?),
                    None => None,
                },
                name: name.clone(),
            };
            if level.request > level.load_modified.min(level.store) {
                return Err(BadTopology::Sense(format!(
                    "level {name}: request: it is a part of a transfer"
                )));
            }
            levels.push(level);
        }
        let topology = Self {
            name: file.name,
            title: file.title,
            core,
            levels,
            sources: reader.sources,
            dealt_to: 1,
        };
        if !(1..=MAX_CPUS).contains(&topology.cpus()) {
            return Err(BadTopology::Sense(format!("a machine has 2 to {MAX_CPUS} CPUs")));
        }
        Ok(topology)
    }

    /// CPUs of the machine.
    pub fn cpus(&self) -> usize {
        self.levels.last().map_or(0, |level| level.cpus)
    }

    /// The number of the level at which two CPUs meet.
    ///
    /// # Panics
    /// When a CPU is not of the machine.
    pub fn distance(&self, a: usize, b: usize) -> usize {
        let (a, b) = (self.position(a), self.position(b));
        let level = self.levels.iter().position(|level| a / level.cpus == b / level.cpus);
        level.expect("both CPUs are of the machine")
    }

    /// Returns the number of a CPU when all CPUs are counted through group by group.
    pub(crate) fn position(&self, cpu: usize) -> usize {
        let inner = self.levels.first().map_or(1, |level| level.cpus);
        cpu % self.dealt_to * inner + cpu / self.dealt_to
    }

    /// Returns the machine with successive CPUs dealt in turn to the first `groups` innermost
    /// groups, as an operating system places processes.
    ///
    /// # Panics
    /// If the machine has no such groups.
    pub fn dealt_to(&self, groups: usize) -> Self {
        let inner = self.levels.first().map_or(1, |level| level.cpus);
        assert!((1..=self.cpus() / inner).contains(&groups), "{} has fewer groups", self.name);
        Self { dealt_to: groups, ..self.clone() }
    }

    /// The machine with all latencies between CPUs, and to memory, times `factor`: to see which conclusions depend on
    /// them.
    pub fn scaled(&self, factor: f64) -> Self {
        let times = |ps: Ps| (ps as f64 * factor).round() as Ps;
        let mut scaled = self.clone();
        scaled.core.dram = times(scaled.core.dram);
        scaled.core.llc = times(scaled.core.llc);
        scaled.core.sharer = times(scaled.core.sharer);
        for level in &mut scaled.levels {
            level.load_modified = times(level.load_modified);
            level.load_shared = times(level.load_shared);
            level.store = times(level.store);
            level.request = times(level.request);
            level.occupies = level.occupies.map(times);
        }
        scaled
    }
}

/// Turns figures into picoseconds and keeps their sources.
struct Reader {
    ghz: f64,
    sources: Vec<(String, String)>,
}

impl Reader {
    fn ps(&mut self, what: &str, figure: &Figure) -> Result<Ps, BadTopology> {
        let ns = match (figure.ns, figure.cycles) {
            (Some(ns), None) => ns,
            (None, Some(cycles)) => cycles / self.ghz,
            _ => return Err(BadTopology::Sense(format!("{what}: say ns or cycles, one of them"))),
        };
        if !(0.0..1e9).contains(&ns) {
            return Err(BadTopology::Sense(format!("{what}: {ns} ns is no latency")));
        }
        self.keep(what, format!("{what}: {ns:.1} ns"), &figure.source)?;
        Ok((ns * 1000.0).round() as Ps)
    }

    fn holds(&mut self, what: &str, why: Option<&Why>) -> Result<bool, BadTopology> {
        let Some(why) = why else { return Ok(false) };
        self.keep(what, what.to_owned(), &why.source)?;
        Ok(true)
    }

    fn keep(&mut self, what: &str, said: String, source: &str) -> Result<(), BadTopology> {
        if source.trim().is_empty() {
            return Err(BadTopology::Sense(format!("{what}: a figure needs its source")));
        }
        self.sources.push((said, source.to_owned()));
        Ok(())
    }
}
