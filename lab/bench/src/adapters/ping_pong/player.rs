//! The two sides of the game, by whatever way the byte goes.
//!
//! The byte is a number, which goes round, and a bit that says that it is the last of the sample: so both sides end after the
//! same round trip, whoever is told to stop.

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::sync::Arc;

use parking_lot::Mutex;
use quietline_platform::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::adapters::implementation::Opened;
use crate::harness::{Arena, Fault, Seat, Unfit, Worker};

/// A thread's end of a way for bytes.
pub(super) trait Lane: Send + 'static {
    /// What a failed call says.
    type Error: Display;

    /// Sends a byte; whether it went.
    fn send(&self, byte: u8) -> Result<bool, Self::Error>;
    /// Waits for a byte; none if the other side has gone.
    fn receive(&self) -> Result<Option<u8>, Self::Error>;
}

/// The arena: a pair of lanes for each two threads.
pub(super) struct Pairs<L> {
    /// By seat, until the thread that sits there takes it.
    lanes: Mutex<Vec<Option<L>>>,
    tally: Arc<Tally>,
}

/// Round trips of all samples, as each side has counted them.
#[derive(Default)]
struct Tally {
    begun: AtomicU64,
    answered: AtomicU64,
}

const LAST: u8 = 0x80;

/// Round trips between two looks at the stop flag.
const BETWEEN_LOOKS: u64 = 16;

impl<L: Lane> Pairs<L> {
    /// An arena whose lanes are made by `pair`.
    pub(super) fn open(threads: usize, mut pair: impl FnMut() -> Result<[L; 2], Fault>) -> Opened {
        if !threads.is_multiple_of(2) {
            return Err(Unfit::Missing("it takes pairs of threads".to_owned()));
        }
        let mut lanes = Vec::with_capacity(threads);
        for _ in 0..threads / 2 {
            lanes.extend(pair()?.map(Some));
        }
        Ok(Arc::new(Self { lanes: Mutex::new(lanes), tally: Arc::default() }))
    }
}

impl<L: Lane> Arena for Pairs<L> {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let lane = self.lanes.lock()[seat.thread].take();
        let lane = Some(lane.ok_or_else(|| Fault::new("somebody sits there already"))?);
        let serves = seat.thread.is_multiple_of(2);
        Ok(Box::new(Player { lane, serves, number: 0, done: 0, tally: self.tally.clone() }))
    }

    fn settle(&self) -> Result<(), Fault> {
        // Relaxed, so below: no worker runs.
        let [begun, answered] =
            [&self.tally.begun, &self.tally.answered].map(|count| count.load(Ordering::Relaxed));
        Fault::unless(begun == answered, || format!("{begun} round trips, and {answered} answers"))
    }
}

struct Player<L> {
    /// None once something went wrong: the other side, which waits, is told by that.
    lane: Option<L>,
    /// Whether this side begins.
    serves: bool,
    number: u8,
    /// Round trips not in the tally yet.
    done: u64,
    tally: Arc<Tally>,
}

impl<L: Lane> Worker for Player<L> {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let Some(lane) = self.lane.take() else { return Err(Fault::new("the way is broken")) };
        let done = if self.serves { self.serve(&lane, ops, stop) } else { self.answer(&lane) }?;
        // A lane that failed is dropped instead.
        self.lane = Some(lane);
        self.done += done;
        Ok(done)
    }

    fn check(&mut self) -> Result<(), Fault> {
        let count = if self.serves { &self.tally.begun } else { &self.tally.answered };
        // Relaxed: read when no worker runs.
        count.fetch_add(core::mem::take(&mut self.done), Ordering::Relaxed);
        Ok(())
    }
}

impl<L: Lane> Player<L> {
    #[inline(always)]
    fn serve(&mut self, lane: &L, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let mut done = 0;
        loop {
            done += 1;
            // Relaxed: nothing is ordered by the flag; a late look costs some operations more.
            let last = done == ops || (done % BETWEEN_LOOKS == 0 && stop.load(Ordering::Relaxed));
            self.number = self.number.wrapping_add(1) & !LAST;
            let byte = if last { self.number | LAST } else { self.number };
            send(lane, byte)?;
            let back = receive(lane)?;
            Fault::unless(back == byte, || format!("{byte} was sent, and {back} came back"))?;
            if last {
                return Ok(done);
            }
        }
    }

    #[inline(always)]
    fn answer(&mut self, lane: &L) -> Result<u64, Fault> {
        let mut done = 0;
        loop {
            done += 1;
            let byte = receive(lane)?;
            self.number = self.number.wrapping_add(1) & !LAST;
            let number = self.number;
            Fault::unless(byte & !LAST == number, || {
                format!("{byte} came after {}", number.wrapping_sub(1))
            })?;
            send(lane, byte)?;
            if byte & LAST != 0 {
                return Ok(done);
            }
        }
    }
}

#[inline(always)]
fn send<L: Lane>(lane: &L, byte: u8) -> Result<(), Fault> {
    let sent = lane.send(byte).map_err(|error| Fault::new(format!("cannot send: {error}")))?;
    Fault::unless(sent, || "the byte did not go".to_owned())
}

#[inline(always)]
fn receive<L: Lane>(lane: &L) -> Result<u8, Fault> {
    let received =
        lane.receive().map_err(|error| Fault::new(format!("cannot receive: {error}")))?;
    received.ok_or_else(|| Fault::new("the other side has gone"))
}
