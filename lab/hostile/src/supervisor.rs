//! The supervisor: it interrupts calls that last, and reports calls that an interrupt does not end.

use crate::calls::Call;
use crate::seat::Seat;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The time between two looks at the seats.
const LOOK: Duration = Duration::from_millis(1);
/// Looks during which a call lasts before it is interrupted.
const PATIENCE: u32 = 2;
/// Looks at a call after its interrupt before it counts as stuck.
const LOOKS: u32 = 2000;
/// Samples of a thread's state that must all find it asleep.
const SAMPLES: u32 = 20;

/// What a run may use.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The time after its interrupt after which a call that sleeps is a finding.
    pub asleep: Duration,
    /// CPU time of a call after its interrupt that is a finding in any case.
    pub cpu: Duration,
    /// Bytes of memory of the program.
    pub memory: u64,
}

/// What the supervisor knows of one seat.
#[derive(Debug, Default)]
struct Watch {
    call: u64,
    looks: u32,
    interrupted: Option<(Instant, Duration)>,
}

/// Watches the seats until `done`.
///
/// # Errors
///
/// A description of a call that an interrupt does not end, or of too much memory in use.
pub fn supervise(
    seats: &[Seat],
    calls: &[&Call],
    bounds: Bounds,
    done: &AtomicBool,
) -> Result<(), String> {
    let mut watches: Vec<Watch> = seats.iter().map(|_| Watch::default()).collect();
    let mut looks = 0u64;
    // Relaxed: a flag that ends the loop, no more.
    while !done.load(Ordering::Relaxed) {
        thread::sleep(LOOK);
        for (seat, watch) in seats.iter().zip(&mut watches) {
            if let Some(number) = seat.current() {
                look(seats, seat, watch, number, calls, bounds)?;
            } else {
                *watch = Watch::default();
            }
        }
        looks += 1;
        if looks.is_multiple_of(100) && resident() > bounds.memory {
            let doing: Vec<_> = seats.iter().map(|seat| seat.describe(calls)).collect();
            let used = resident() >> 20;
            return Err(format!("{used} MiB of memory are in use:\n{}", doing.join("\n")));
        }
    }
    Ok(())
}

fn look(
    seats: &[Seat],
    seat: &Seat,
    watch: &mut Watch,
    number: u64,
    calls: &[&Call],
    bounds: Bounds,
) -> Result<(), String> {
    if watch.call != number {
        *watch = Watch { call: number, ..Watch::default() };
    }
    watch.looks += 1;
    let Some((since, cpu)) = watch.interrupted else {
        if watch.looks >= PATIENCE {
            watch.interrupted = Some((Instant::now(), cpu_time(seat.tid())));
            watch.looks = 0;
            seat.interrupt.raise();
        }
        return Ok(());
    };
    if watch.looks < LOOKS || !watch.looks.is_multiple_of(500) {
        return Ok(());
    }
    let used = cpu_time(seat.tid()).saturating_sub(cpu);
    let stuck = used > bounds.cpu || since.elapsed() > bounds.asleep && sleeps(seat, number);
    if !stuck {
        return Ok(());
    }
    let status = fs::read_to_string(format!("/proc/self/task/{}/status", seat.tid()));
    let state = status.unwrap_or_default();
    let state = state.lines().find(|line| line.starts_with("State")).unwrap_or_default();
    Err(format!(
        "an interrupt does not end a call: {:?} after it, with {used:?} of CPU time, {state}:\n{}\n\
         all threads:\n{}",
        since.elapsed(),
        seat.describe(calls),
        seats.iter().map(|seat| seat.describe(calls)).collect::<Vec<_>>().join("\n")
    ))
}

/// Returns whether the thread sleeps in the same call for a while. A thread that waits for a CPU
/// does not sleep.
fn sleeps(seat: &Seat, number: u64) -> bool {
    (0..SAMPLES).all(|_| {
        thread::sleep(Duration::from_millis(50));
        let fields = stat(seat.tid());
        seat.current() == Some(number) && fields.first().is_some_and(|state| state == "S")
    })
}

/// Returns the fields of a thread's `stat` from its state on.
fn stat(tid: i64) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields).unwrap_or_default();
    fields.split(' ').map(str::to_owned).collect()
}

/// Returns the CPU time that a thread has used.
fn cpu_time(tid: i64) -> Duration {
    let fields = stat(tid);
    let ticks = |at: usize| fields.get(at).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    // Linux tells all programs of 100 ticks a second.
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// Returns the bytes of memory that the program has.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    // `statm` counts in pages, of 4 KiB on most machines.
    pages.unwrap_or(0) * 4096
}
