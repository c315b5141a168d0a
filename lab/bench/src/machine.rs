//! The facts about the machine that belong beside every figure.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::harness::pin;

/// The machine on which a bench ran. A fact that could not be learnt is `unknown`.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor as it names itself.
    pub cpu_model: String,
    /// CPUs that are online.
    pub cpus: usize,
    /// CPUs on which this process may run, by number.
    pub cpus_allowed: Vec<usize>,
    /// Name and release of the kernel.
    pub kernel: String,
    /// The instruction set.
    pub arch: String,
    /// The C library, which registers restartable sequences.
    pub libc: String,
    /// The frequency governor of CPU 0.
    pub governor: String,
    /// Load averages over 1, 5 and 15 minutes when the run began.
    pub load_average: [f64; 3],
    /// The compiler that built the bench.
    pub rustc: String,
    /// Whether the bench is a debug build, which makes its figures worthless.
    pub debug_assertions: bool,
}

impl Machine {
    /// Asks the machine.
    pub fn observe() -> Self {
        let uname = rustix::system::uname();
        Self {
            cpu_model: cpu_model(&read("/proc/cpuinfo")),
            cpus: cpu_list(&read("/sys/devices/system/cpu/online")).max(1),
            cpus_allowed: pin::allowed_cpus(),
            kernel: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            arch: uname.machine().to_string_lossy().into_owned(),
            libc: said_by("getconf", &["GNU_LIBC_VERSION"]),
            governor: known(&read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
            load_average: load_average(&read("/proc/loadavg")),
            rustc: env!("QUIETLINE_RUSTC").to_owned(),
            debug_assertions: cfg!(debug_assertions),
        }
    }
}

/// The CPU time that was used until a moment, by this process and by all.
#[derive(Clone, Copy, Debug)]
pub struct CpuTimes {
    at: Instant,
    own: Duration,
    all: Duration,
}

impl CpuTimes {
    /// Returns the times until now; `None` if the system does not tell them.
    pub fn now() -> Option<Self> {
        let ticks = u32::try_from(rustix::param::clock_ticks_per_second()).ok()?;
        let time = |count: u64| Duration::from_secs(count).checked_div(ticks);
        let own = time(own_ticks(&read("/proc/self/stat"))?)?;
        let all = time(busy_ticks(&read("/proc/stat"))?)?;
        Some(Self { at: Instant::now(), own, all })
    }

    /// Returns how many CPUs others kept busy since then, on average: other programs, interrupts,
    /// and other machines that share the CPUs.
    pub fn others_since(&self) -> Option<f64> {
        let now = Self::now()?;
        let others = (now.all - self.all).saturating_sub(now.own - self.own);
        Some(others.as_secs_f64() / now.at.duration_since(self.at).as_secs_f64())
    }
}

/// Returns the clock ticks in `/proc/self/stat`: of this process, and of its children that have
/// ended.
fn own_ticks(stat: &str) -> Option<u64> {
    // The name of the program, in brackets, may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    // utime, stime, cutime and cstime are fields 14 to 17, and the first one here is the third.
    let of_process = fields.split_whitespace().skip(11).take(4);
    of_process.map(|field| field.parse::<u64>().ok()).sum()
}

/// Returns the clock ticks in `/proc/stat` in which CPUs were not idle.
fn busy_ticks(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    // user, nice, system, idle, iowait, irq, softirq, steal. Time of guests is in user and nice.
    let busy = fields.take(8).enumerate().filter(|(place, _)| !matches!(place, 3 | 4));
    busy.map(|(_, field)| field.parse::<u64>().ok()).sum()
}

/// The commit of the source tree from which the bench was built, `-dirty` added if it has changes; `unknown`
/// if the tree or git is not there.
pub fn commit() -> String {
    let tree = env!("CARGO_MANIFEST_DIR");
    if !Path::new(tree).is_dir() {
        return known("");
    }
    let head = said_by("git", &["-C", tree, "rev-parse", "HEAD"]);
    let changes = said_by("git", &["-C", tree, "status", "--porcelain", "--untracked-files=no"]);
    if head != "unknown" && changes != "unknown" { format!("{head}-dirty") } else { head }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn known(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() { "unknown".to_owned() } else { text.to_owned() }
}

/// What a command prints, or `unknown` if it fails or prints nothing.
fn said_by(program: &str, arguments: &[&str]) -> String {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => known(&String::from_utf8_lossy(&output.stdout)),
        _ => known(""),
    }
}

/// The first line that names the processor: `model name` on x86, `CPU part` on Arm.
fn cpu_model(cpuinfo: &str) -> String {
    let value = |key: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(key))?;
        Some(known(line.split_once(':')?.1))
    };
    value("model name").or_else(|| value("CPU part")).unwrap_or_else(|| known(""))
}

/// How many CPUs a list such as `0-3,8` has.
fn cpu_list(list: &str) -> usize {
    let count = |range: &str| -> Option<usize> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()? + 1 - first.parse::<usize>().ok()?)
    };
    list.trim().split(',').filter_map(count).sum()
}

fn load_average(text: &str) -> [f64; 3] {
    let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap_or(0.0));
    [(); 3].map(|()| numbers.next().unwrap_or(0.0))
}

#[cfg(test)]
mod tests;
