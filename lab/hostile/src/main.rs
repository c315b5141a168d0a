//! Runs the hostile guest.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use comfy_table::{Table, presets};
use quietline_hostile::calls::{self, Call};
use quietline_hostile::guest::{Guest, Rest};
use quietline_hostile::plant::Plant;
use quietline_hostile::random::Random;
use quietline_hostile::seat::Seat;
use quietline_hostile::supervisor::{self, Bounds};
use quietline_hostile::worker::{Tally, last_calls, work};
use quietline_sync::rcu;
use quietline_testing::heap;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::panic;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// Random calls of a kernel by several threads, processes and users
///
/// Ends with 0 and a table of the calls unless an interrupt does not end a call, a lock is held
/// for long, a call panics, a call hands out another user's file, or something is left at the end
/// of a round. Otherwise it prints the finding and the arguments that repeat the round.
#[derive(Debug, Parser)]
#[command(name = "hostile", args_override_self = true)]
struct Options {
    /// How long the run is: rounds are not cut short
    #[arg(long, value_name = "N", default_value_t = 10)]
    seconds: u64,

    /// Run for a number of calls instead of a time
    #[arg(long, value_name = "N")]
    operations: Option<u64>,

    /// Where the random numbers begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Threads that call
    #[arg(long, value_name = "N", default_value_t = 4)]
    threads: usize,

    /// Calls of a thread in a round, each of which has a kernel of its own
    #[arg(long, value_name = "N", default_value_t = 5000)]
    calls: u64,

    /// The number of the first round
    #[arg(long, value_name = "N", default_value_t = 0)]
    first_round: u64,

    /// Stop after so many rounds, whatever they did
    #[arg(long, value_name = "N")]
    rounds: Option<u64>,

    /// The most memory that the program may have, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    memory: u64,

    /// Seconds after its interrupt after which a call that sleeps is a finding
    #[arg(long, value_name = "N", default_value_t = 60)]
    patience: u64,

    /// Seconds of CPU time after its interrupt after which a call is a finding
    #[arg(long, value_name = "N", default_value_t = 30)]
    cpu: u64,

    /// Calls after which each call must have succeeded once
    #[arg(long, value_name = "N", default_value_t = 3_000_000)]
    complete: u64,

    /// Plant a fault, which the run must report
    #[arg(long, value_name = "FAULT")]
    plant: Option<Plant>,

    /// Wait for a debugger instead of ending with a finding
    #[arg(long)]
    hold: bool,

    /// Print no table
    #[arg(long)]
    quiet: bool,
}

/// The bound on the CPU time of a lock's holder.
#[cfg(feature = "lock-times")]
const HELD: Duration = Duration::from_millis(20);
/// Holds beyond the bound at one place that fail the run. A host that runs other machines can
/// charge a thread for time in which it did not run.
#[cfg(feature = "lock-times")]
const OFTEN: u64 = 3;

/// Bytes of the heap by which a run may end above the lowest of its early rounds: work that waits
/// for a grace period, and caches of threads.
const SLACK: isize = 1 << 20;

/// Of so many rounds, one ends with binding all ports.
const SWEEPS: u64 = 8;

static CALLS: OnceLock<Vec<&'static Call>> = OnceLock::new();
static ROUND: AtomicU64 = AtomicU64::new(0);
static OPTIONS: OnceLock<Options> = OnceLock::new();

fn table() -> &'static [&'static Call] {
    CALLS.get_or_init(|| calls::with(options().plant))
}

fn options() -> &'static Options {
    OPTIONS.get_or_init(Options::parse)
}

/// Ends the program with a finding.
fn found(finding: &str) -> ! {
    let Options { seed, threads, calls, hold, .. } = options();
    let round = ROUND.load(Ordering::Relaxed);
    // In one write: another thread may panic at the same time.
    let text = format!(
        "\nhostile: {finding}\nhostile: repeat this with --seed {seed} --threads {threads} --calls \
         {calls} --first-round {round} --rounds 1\n"
    );
    let _ = io::stderr().write_all(text.as_bytes());
    if *hold {
        eprintln!("hostile: process {} waits for a debugger", process::id());
        loop {
            thread::sleep(Duration::from_secs(3600));
        }
    }
    process::exit(1);
}

fn main() -> Result<()> {
    heap::start();
    let Options { threads, memory, patience, cpu, .. } = options();
    ensure!((1..=64).contains(threads), "give 1 to 64 threads, not {threads}");
    let said = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        said(info);
        found(&format!(
            "a call panics; the thread's last calls, the last one first:\n{}",
            last_calls(table())
        ));
    }));
    #[cfg(feature = "lock-times")]
    quietline_sync::lock_times::set_bound(HELD);

    // The last one is for the end of a round.
    let seats = (0..=*threads).map(|_| Seat::new()).collect::<Result<Vec<_>, _>>()?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let bounds = Bounds {
                asleep: Duration::from_secs(*patience),
                cpu: Duration::from_secs(*cpu),
                memory: memory << 20,
            };
            if let Err(finding) = supervisor::supervise(&seats, table(), bounds, &done) {
                found(&finding);
            }
        });
        let result = play(&seats);
        done.store(true, Ordering::Relaxed);
        result
    })
}

fn play(seats: &[Seat]) -> Result<()> {
    let Options { seconds, operations, seed, calls, first_round, rounds, quiet, complete, .. } =
        options();
    let begun = Instant::now();
    let mut tally = Tally::new(table().len());
    let (before, findings) = Guest::new()?.end(None, true);
    ensure!(findings.is_empty(), "a guest without calls: {}", findings.join("\n"));
    let before = before.context("a root that can be changed")?;
    let (mut round, mut heaps, mut told) = (*first_round, Vec::new(), begun);
    loop {
        let made: u64 = tally.made.iter().sum();
        let over = match operations {
            Some(operations) => made >= *operations,
            None => begun.elapsed() >= Duration::from_secs(*seconds),
        };
        if over && round > *first_round || rounds.is_some_and(|most| round - first_round >= most) {
            break;
        }
        ROUND.store(round, Ordering::Relaxed);
        tally.add(&play_round(seats, [*seed, round], *calls, &before)?);
        heaps.push(heap::bytes());
        round += 1;
        if told.elapsed() > Duration::from_secs(30) {
            told = Instant::now();
            eprintln!(
                "hostile: {} calls after {:.0?}",
                tally.made.iter().sum::<u64>(),
                begun.elapsed()
            );
        }
    }
    grown(&heaps);
    let took = begun.elapsed().as_secs_f64();
    let made: u64 = tally.made.iter().sum();
    if !quiet {
        println!("{}", summary(&tally));
    }
    println!(
        "{made} calls in {took:.1} s ({:.0} a second), {} of them successful; {} rounds of seed \
         {seed}, {} threads",
        made as f64 / took,
        tally.succeeded.iter().sum::<u64>(),
        round - first_round,
        seats.len() - 1,
    );
    lock_times()?;
    let never: Vec<_> = by_name(&tally)
        .into_iter()
        .filter(|(_, (_, good))| *good == 0)
        .map(|(name, _)| name)
        .collect();
    if made >= *complete && !never.is_empty() {
        found(&format!("calls never succeed: {}", never.join(", ")));
    }
    Ok(())
}

/// Lets all threads call one kernel, and compares the objects that remain with those of a guest
/// without calls.
fn play_round(seats: &[Seat], seed: [u64; 2], calls: u64, before: &Rest) -> Result<Tally> {
    let guest = Guest::new()?;
    let mut tally = Tally::new(table().len());
    thread::scope(|scope| {
        let worker = |(n, seat)| {
            let random = Random::new(&[seed[0], seed[1], n as u64]);
            let guest = &guest;
            scope.spawn(move || work(guest, seat, table(), random, calls))
        };
        let workers: Vec<_> =
            seats.iter().take(options().threads).enumerate().map(worker).collect();
        // A panic of a worker ends the program.
        workers
            .into_iter()
            .filter_map(|worker| worker.join().ok())
            .for_each(|done| tally.add(&done));
    });
    let last = &seats[options().threads];
    let sweep = seed[1].is_multiple_of(SWEEPS);
    let (rest, mut findings) = last.watched(|| guest.end(options().plant, sweep));
    findings.extend(rest.map(|rest| rest.more_than(before)).filter(|more| !more.is_empty()));
    if !findings.is_empty() {
        found(&format!("something is left at the end of a round:\n{}", findings.join("\n")));
    }
    rcu::global()?.barrier();
    Ok(tally)
}

/// Fails if the heap has grown from the early rounds to the late ones.
fn grown(heaps: &[isize]) {
    if heaps.len() < 8 {
        return;
    }
    let part = heaps.len() / 4;
    let least = |of: &[isize]| of.iter().copied().min().unwrap_or(0);
    let (early, late) = (least(&heaps[..part]), least(&heaps[heaps.len() - part..]));
    if late > early + SLACK {
        found(&format!(
            "the heap has grown from {early} to {late} bytes in {} rounds",
            heaps.len()
        ));
    }
}

fn by_name(tally: &Tally) -> BTreeMap<&'static str, (u64, u64)> {
    let mut names = BTreeMap::new();
    for ((call, made), good) in table().iter().zip(&tally.made).zip(&tally.succeeded) {
        let entry: &mut (u64, u64) = names.entry(call.name).or_default();
        *entry = (entry.0 + made, entry.1 + good);
    }
    names
}

fn summary(tally: &Tally) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["call", "made", "succeeded"].repeat(3));
    let cells: Vec<_> = by_name(tally)
        .into_iter()
        .map(|(name, (made, good))| [name.to_owned(), made.to_string(), good.to_string()])
        .collect();
    for row in cells.chunks(3) {
        table.add_row(row.concat());
    }
    table
}

/// Prints the locks that were held for long, and fails if one was held beyond the bound.
#[cfg(feature = "lock-times")]
fn lock_times() -> Result<()> {
    let mut places = quietline_sync::lock_times::long_holds();
    places.sort_by_key(|place| std::cmp::Reverse(place.longest));
    let noted = quietline_sync::lock_times::NOTED;
    println!("locks held for {noted:?} of CPU time and more, at {} places", places.len());
    for place in &places {
        println!("  {:?}, {} times: {}", place.longest, place.noted, place.place);
    }
    if let Some(place) = places.iter().find(|place| place.beyond >= OFTEN) {
        found(&format!("a lock is held beyond {HELD:?}, {} times: {}", place.beyond, place.place));
    }
    Ok(())
}

#[cfg(not(feature = "lock-times"))]
fn lock_times() -> Result<()> {
    Ok(())
}
