//! The parts of a report: commands that write JSON.

/// The program that runs a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// `ql`, built in the profile for records.
    Ql,
    /// `ql-sim`, the simulated machine.
    Sim,
}

/// What a part's JSON holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Rows of `ql bench`.
    Bench,
    /// Curves of `ql forecast`.
    Forecast,
    /// Comparisons of `ql-sim seeds`.
    Seeds,
    /// `ql-sim ladder`.
    Ladder,
    /// A sheet of `ql costs`.
    Costs,
}

/// A part of the report.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    /// Its name, and that of its file.
    pub(crate) name: String,
    /// A description in one line.
    pub(crate) about: String,
    pub(crate) kind: Kind,
    pub(crate) program: Program,
    /// Arguments before `--json FILE`.
    pub(crate) arguments: Vec<String>,
}

/// Workloads of `ql bench`.
const WORKLOADS: [&str; 16] = [
    "sockets",
    "pipes",
    "anonfds",
    "primitives",
    "slab",
    "dcache",
    "open",
    "unlink",
    "bytes",
    "epoll-wait",
    "epoll-ctl",
    "nested-epoll",
    "connections",
    "ping-pong",
    "throughput",
    "forward",
];

/// Workloads of `ql bench` that show the ladder of 2008 when they are asked to.
const LADDERS: [&str; 2] = ["pipes", "anonfds"];

/// What stands beside the tables of the thread of 2015: all their sizes, on one CPU. The columns
/// are those that the tables need, and quietline's. On two CPUs they take two minutes together,
/// and half a minute in a quick report.
const OF_2015: [(&str, &str, &[&str]); 2] = [
    (
        "bench-slab-2015",
        "the bulks of the thread of 2015, of all its sizes",
        &[
            "bench",
            "slab",
            "--case",
            "2015-*",
            "--columns",
            "history-*,quietline",
            "-n",
            "1",
            "--cpu-time",
        ],
    ),
    (
        "bench-forward-2015",
        "the forwarding of the thread of 2015",
        &["bench", "forward", "--case", "ring-64", "-n", "1", "--cpu-time"],
    ),
];

/// Forecasts: workload, machine, numbers of CPUs, fewer of them for a quick report, and nanoseconds
/// of other work after each operation.
const FORECASTS: [(&str, &str, &str, &str, &str); 6] = [
    ("sockets", "westmere-8x10", "1,2,4,8,16,40,80", "1,8", "0"),
    ("slab", "epyc-2x64", "1,2,4,16,64,128", "1,16", "0"),
    ("paths", "epyc-2x64", "1,2,4,16,64,128", "1,16", "0"),
    ("dcache", "westmere-8x10", "1,10,20,40,80", "1,10", "0"),
    // The work is the one that the table of 2017 is fitted with.
    ("nested-epoll", "kvm-18", "1,2,4,8,12,18", "1,4", "198"),
    ("forward", "epyc-2x64", "1,2,4,16,64", "1,16", "0"),
];

/// Returns all parts, in the order of the page.
pub(crate) fn parts(quick: bool) -> Vec<Part> {
    let mut parts =
        vec![part("seeds", "the threads' tables beside the model", Kind::Seeds, &["seeds"])];
    let about = "the conclusions from the ladder of 2008, and its contended lines";
    parts.push(part("ladder", about, Kind::Ladder, &["ladder"]));
    for workload in WORKLOADS {
        let mut arguments = vec!["bench", workload];
        // Without it, the kernels of 2008 are shown for sockets only.
        arguments.extend(LADDERS.contains(&workload).then_some("--ladder"));
        arguments.extend(quick.then_some("--quick"));
        let about = format!("`ql bench {workload}` on this machine");
        parts.push(part(&format!("bench-{workload}"), &about, Kind::Bench, &arguments));
    }
    for (name, about, arguments) in OF_2015 {
        let arguments: Vec<&str> =
            arguments.iter().copied().chain(quick.then_some("--quick")).collect();
        parts.push(part(name, about, Kind::Bench, &arguments));
    }
    for (workload, machine, all, few, work) in FORECASTS {
        let cpus = if quick { few } else { all };
        let arguments =
            ["forecast", workload, "--machine", machine, "--cpus", cpus, "--work", work];
        let about = format!("`ql forecast {workload}` on {machine}");
        parts.push(part(&format!("forecast-{workload}"), &about, Kind::Forecast, &arguments));
    }
    parts.push(part("costs", "the cost ledger's operations, counted", Kind::Costs, &["costs"]));
    parts
}

fn part(name: &str, about: &str, kind: Kind, arguments: &[&str]) -> Part {
    let program = match kind {
        Kind::Bench | Kind::Costs => Program::Ql,
        Kind::Forecast | Kind::Seeds | Kind::Ladder => Program::Sim,
    };
    let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    Part { name: name.to_owned(), about: about.to_owned(), kind, program, arguments }
}
