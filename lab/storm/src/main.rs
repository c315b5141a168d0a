//! Random operations by the billion, from a seed.
//!
//! The operations come in rounds, each with two caches of its own. A round's bytes follow from the seed and the round's number,
//! so that the one in which something went wrong can be repeated alone.

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use quietline_storm::{arguments, device, forward, packets, paths, routes, slab};
use std::io::{self, Write};
use std::panic;
use std::time::{Duration, Instant};

/// Random operations on two slab caches, a tree of files, routes, a forwarder, what devices read, packets or arguments, held against a model
///
/// Ends with 0 when all results were as the model says, and prints operations, time and seed. Otherwise it prints what
/// differed and the arguments that repeat it.
#[derive(Debug, Parser)]
#[command(name = "storm")]
struct Arguments {
    /// On what
    #[arg(long, value_enum, default_value_t = On::Slab)]
    on: On,

    /// How many operations, at least: rounds are not cut short
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    operations: u64,

    /// Where the random numbers begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Threads that use the same two caches; with more than one, a round is not exactly repeatable. One on all but slab caches
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,

    /// The number of the first round
    #[arg(long, value_name = "N", default_value_t = 0)]
    first_round: u64,

    /// Stop after so many rounds, whatever they did
    #[arg(long, value_name = "N")]
    rounds: Option<u64>,
}

/// What is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum On {
    /// Slab caches
    Slab,
    /// A kernel's tree of files, by calls on paths
    Paths,
    /// Tables of routes
    Routes,
    /// A forwarder, by frames
    Forward,
    /// Checksums that devices finish, and packets that end in a sink
    Device,
    /// Packets that are made, shared, changed and ended
    Packets,
    /// What `ql forward` is told of devices and routes
    Arguments,
}

/// What was done: of whatever kind.
#[derive(Debug, Default)]
struct Tally {
    operations: u64,
    slab: slab::Tally,
    paths: paths::Tally,
    routes: routes::Tally,
    forward: forward::Tally,
    device: device::Tally,
    packets: packets::Tally,
    arguments: arguments::Tally,
}

impl Tally {
    fn play(on: On, bytes: &[&[u8]]) -> Self {
        let first = bytes.first().copied().unwrap_or_default();
        match on {
            On::Slab => {
                let slab = slab::run_together(bytes);
                Self { operations: slab.operations, slab, ..Self::default() }
            }
            On::Paths => {
                let paths = paths::run(first);
                Self { operations: paths.operations, paths, ..Self::default() }
            }
            On::Routes => {
                let routes = routes::run(first);
                Self { operations: routes.operations, routes, ..Self::default() }
            }
            On::Forward => {
                let forward = forward::run(first);
                Self { operations: forward.operations, forward, ..Self::default() }
            }
            On::Device => {
                let device = device::run(first);
                Self { operations: device.operations, device, ..Self::default() }
            }
            On::Packets => {
                let packets = packets::run(first);
                Self { operations: packets.operations, packets, ..Self::default() }
            }
            On::Arguments => {
                let arguments = arguments::run(first);
                Self { operations: arguments.operations, arguments, ..Self::default() }
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.slab += other.slab;
        self.paths += other.paths;
        self.routes += other.routes;
        self.forward += other.forward;
        self.device += other.device;
        self.packets += other.packets;
        self.arguments += other.arguments;
    }

    fn says(&self, on: On) -> String {
        match on {
            On::Slab => format!(
                "{} objects allocated and freed, {} operations besides, {} injected failures met",
                HumanCount(self.slab.objects),
                HumanCount(self.slab.rare),
                HumanCount(self.slab.failed),
            ),
            On::Paths => format!(
                "{} calls on paths, {} of them refused, {} entries read",
                HumanCount(self.paths.operations),
                HumanCount(self.paths.refused),
                HumanCount(self.paths.entries),
            ),
            On::Routes => format!(
                "{} changes and lookups, {} routes entered, {} times without memory",
                HumanCount(self.routes.operations),
                HumanCount(self.routes.entered),
                HumanCount(self.routes.failed),
            ),
            On::Forward => format!(
                "{} frames in, {} packets sent on, {} frames out",
                HumanCount(self.forward.operations),
                HumanCount(self.forward.forwarded),
                HumanCount(self.forward.sent),
            ),
            On::Device => format!(
                "{} frames, {} checksums finished, {} packets understood in the sink",
                HumanCount(self.device.operations),
                HumanCount(self.device.finished),
                HumanCount(self.device.understood),
            ),
            On::Packets => format!(
                "{} operations, {} heads made, {} operations refused",
                HumanCount(self.packets.operations),
                HumanCount(self.packets.made),
                HumanCount(self.packets.refused),
            ),
            On::Arguments => format!(
                "{} arguments, {} of them understood",
                HumanCount(self.arguments.operations),
                HumanCount(self.arguments.understood),
            ),
        }
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(
        arguments.on == On::Slab || arguments.threads == 1,
        "several threads use slab caches only"
    );
    ensure!(
        (1..=64).contains(&arguments.threads),
        "give 1 to 64 threads, not {}",
        arguments.threads
    );
    let progress = ProgressBar::new(arguments.operations);
    progress.set_style(ProgressStyle::with_template(
        "{wide_bar} {human_pos} of {human_len} operations, {eta} left",
    )?);

    let begun = Instant::now();
    let (mut tally, mut round, mut told) = (Tally::default(), arguments.first_round, begun);
    while tally.operations < arguments.operations {
        let bytes: Vec<Vec<u8>> =
            (0..arguments.threads).map(|thread| bytes(arguments.seed, round, thread)).collect();
        let slices: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        match panic::catch_unwind(|| Tally::play(arguments.on, &slices)) {
            Ok(done) => tally.add(done),
            Err(difference) => {
                let Arguments { seed, threads, .. } = arguments;
                let on = match arguments.on {
                    On::Slab => "",
                    On::Paths => "--on paths ",
                    On::Routes => "--on routes ",
                    On::Forward => "--on forward ",
                    On::Device => "--on device ",
                    On::Packets => "--on packets ",
                    On::Arguments => "--on arguments ",
                };
                progress.abandon();
                eprintln!(
                    "storm: repeat this with {on}--seed {seed} --threads {threads} --first-round {round} --rounds 1"
                );
                panic::resume_unwind(difference);
            }
        }
        round += 1;
        progress.set_position(tally.operations);
        if progress.is_hidden() && told.elapsed() > Duration::from_secs(30) {
            told = Instant::now();
            eprintln!(
                "storm: {} operations after {:.0?}",
                HumanCount(tally.operations),
                begun.elapsed()
            );
        }
        if arguments.rounds.is_some_and(|rounds| round - arguments.first_round >= rounds) {
            break;
        }
    }
    progress.finish_and_clear();
    let took = begun.elapsed();
    writeln!(
        io::stdout(),
        "{} operations without a difference in {:.1} s ({:.0} ns each): {}; {} rounds of seed {}, {} thread(s)",
        HumanCount(tally.operations),
        took.as_secs_f64(),
        took.as_nanos() as f64 / tally.operations.max(1) as f64,
        tally.says(arguments.on),
        HumanCount(round - arguments.first_round),
        arguments.seed,
        arguments.threads,
    )?;
    Ok(())
}

/// The bytes of a thread in a round: from a handful up to 128 KiB of them (SplitMix64).
fn bytes(seed: u64, round: u64, thread: usize) -> Vec<u8> {
    let mut state = mix(mix(mix(seed) ^ round) ^ thread as u64);
    let mut next = || {
        state = state.wrapping_add(GOLDEN);
        mix(state)
    };
    let words = 1usize << (5 + next() % 10);
    (0..words).flat_map(|_| next().to_le_bytes()).collect()
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(GOLDEN);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}
