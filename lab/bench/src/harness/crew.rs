//! The threads of one arena: made once, pinned, parked between samples.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use quietline_platform::atomic::{AtomicBool, Ordering};
use quietline_platform::thread::{self, JoinHandle};

use super::clock::{Lap, Stopwatch};
use super::start_line::StartLine;
use super::{Arena, Fault, Plan, Seat, pin};

/// The threads of one arena, ready for samples. Dropping it ends and joins them.
pub struct Crew {
    arena: Arc<dyn Arena>,
    hands: Vec<Hand>,
    field: Arc<Field>,
    samples: u64,
    /// After this time a sample is stopped.
    limit: Duration,
    /// Whether there are more threads than CPUs.
    crowded: bool,
}

/// What the threads of a crew share.
struct Field {
    line: StartLine,
    /// Set when a sample has taken too long.
    stop: AtomicBool,
}

/// A sample may take this many times as long as planned before it is stopped. That happens where threads wait
/// for one that is off its CPU: the same loop may then be a thousand times slower than when it was
/// calibrated.
const PATIENCE: u32 = 8;

/// One thread, as the crew sees it. A thread answers every order once; a channel that closes without an
/// answer means that it panicked.
struct Hand {
    orders: Option<Sender<Order>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

/// Nothing when the thread is ready, then a lap and its number of operations for each sample.
type Answer = Result<Option<(Lap, u64)>, Fault>;

/// One sample to take: how many operations, and the number of the sample.
struct Order {
    ops: u64,
    sample: u64,
}

/// One sample: what each thread needed for an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Wall ns per operation of each thread.
    pub wall: Vec<f64>,
    /// CPU ns per operation of each thread.
    pub cpu: Vec<f64>,
    /// Operations of each thread: the same number, unless the sample was stopped.
    pub ops: Vec<u64>,
    /// From the first start to the last end, in ns.
    pub span_ns: u64,
    /// Whether there were more threads than CPUs.
    pub crowded: bool,
}

impl Sample {
    /// Wall ns per operation of a thread: the mean of the threads' own times, or, with more threads than
    /// CPUs, the time of the whole sample, because a thread's own time leaves out how long it waited for a
    /// CPU to begin.
    pub fn wall_ns(&self) -> f64 {
        let threads = self.wall.len() as f64;
        match self.crowded {
            false => self.wall.iter().sum::<f64>() / threads,
            true => self.span_ns as f64 / (self.ops.iter().sum::<u64>() as f64 / threads),
        }
    }

    /// CPU ns per operation, the mean of the threads.
    pub fn cpu_ns(&self) -> f64 {
        self.cpu.iter().sum::<f64>() / self.cpu.len() as f64
    }
}

impl Crew {
    /// Starts `threads` threads in `arena` and waits until every one has its worker.
    ///
    /// # Errors
    ///
    /// If a thread could not be pinned or its worker not be made.
    pub fn muster(arena: Arc<dyn Arena>, threads: usize, plan: &Plan) -> Result<Self, Fault> {
        let field = Arc::new(Field { line: StartLine::new(threads), stop: AtomicBool::new(false) });
        let hands = (0..threads).map(|number| {
            let seat = Seat { thread: number, threads };
            let cpu = plan.pinned.then(|| pin::cpu_of(number, &plan.cpus));
            Hand::hire(arena.clone(), field.clone(), seat, cpu)
        });
        let hands = hands.collect();
        let (limit, crowded) = (plan.sample * PATIENCE, threads > plan.cpus.len());
        let crew = Self { hands, arena, field, samples: 0, limit, crowded };
        for hand in &crew.hands {
            hand.answer()?;
        }
        crew.arena.settle()?;
        Ok(crew)
    }

    /// Takes one sample: every thread does `ops` operations, all starting together, or fewer if that takes
    /// too long; then the arena is settled.
    ///
    /// # Errors
    ///
    /// If an operation failed, a result was wrong or something was left behind. The crew is then of no more
    /// use.
    pub fn sample(&mut self, ops: u64) -> Result<Sample, Fault> {
        let sample = self.samples;
        self.samples += 1;
        let until = Instant::now() + self.limit;
        // Relaxed: the orders, sent after this, carry it to the threads.
        self.field.stop.store(false, Ordering::Relaxed);
        for hand in &self.hands {
            let orders = hand.orders.as_ref().expect("open until the crew is dropped");
            orders
                .send(Order { ops, sample })
                .map_err(|_| Fault::new("a worker thread has ended"))?;
        }
        let answers: Vec<_> =
            self.hands.iter().map(|hand| hand.answer_by(until, &self.field.stop)).collect();
        let laps = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.arena.settle()?;
        Ok(summary(&laps.into_iter().flatten().collect::<Vec<_>>(), self.crowded))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for hand in &mut self.hands {
            hand.orders = None;
        }
        for hand in &mut self.hands {
            if let Some(thread) = hand.thread.take() {
                // A panic was already reported as a missing answer.
                let _ = thread.join();
            }
        }
    }
}

impl Hand {
    fn hire(arena: Arc<dyn Arena>, field: Arc<Field>, seat: Seat, cpu: Option<usize>) -> Self {
        let (orders, inbox) = mpsc::channel();
        let (outbox, answers) = mpsc::channel();
        let thread = thread::spawn(move || serve(&*arena, &field, seat, cpu, &inbox, &outbox));
        Self { orders: Some(orders), answers, thread: Some(thread) }
    }

    fn answer(&self) -> Answer {
        self.answers.recv().unwrap_or_else(|_| Err(Fault::new("a worker thread panicked")))
    }

    /// The answer; if it is not there at `until`, everyone is told to stop.
    fn answer_by(&self, until: Instant, stop: &AtomicBool) -> Answer {
        match self.answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                // Relaxed: nothing is ordered by it, the threads only leave their loops.
                stop.store(true, Ordering::Relaxed);
                self.answer()
            }
            Err(RecvTimeoutError::Disconnected) => self.answer(),
        }
    }
}

/// The life of a worker thread.
fn serve(
    arena: &dyn Arena,
    field: &Field,
    seat: Seat,
    cpu: Option<usize>,
    inbox: &Receiver<Order>,
    outbox: &Sender<Answer>,
) {
    let pinned = match cpu {
        Some(cpu) => pin::pin_to(cpu)
            .map_err(|e| Fault::new(format!("cannot pin a thread to CPU {cpu}: {e}"))),
        None => Ok(()),
    };
    let mut worker = match pinned.and_then(|()| arena.worker(seat)) {
        Ok(worker) => worker,
        Err(fault) => {
            let _ = outbox.send(Err(fault));
            return;
        }
    };
    let mut answer = Ok(None);
    // Sending fails only when the crew is gone, and then there are no more orders either.
    while outbox.send(answer).is_ok() {
        let Ok(Order { ops, sample }) = inbox.recv() else { break };
        field.line.wait(sample);
        let watch = Stopwatch::start();
        let done = worker.run(ops, &field.stop);
        let lap = watch.stop();
        answer = done.and_then(|done| worker.check().map(|()| Some((lap, done))));
    }
}

fn summary(laps: &[(Lap, u64)], crowded: bool) -> Sample {
    let now = Instant::now();
    let started = laps.iter().map(|(lap, _)| lap.started).min().unwrap_or(now);
    let stopped = laps.iter().map(|(lap, _)| lap.stopped).max().unwrap_or(now);
    Sample {
        wall: laps.iter().map(|(lap, ops)| lap.wall_ns() as f64 / *ops as f64).collect(),
        cpu: laps.iter().map(|(lap, ops)| lap.cpu_ns as f64 / *ops as f64).collect(),
        ops: laps.iter().map(|&(_, ops)| ops).collect(),
        span_ns: u64::try_from(stopped.duration_since(started).as_nanos()).unwrap_or(u64::MAX),
        crowded,
    }
}
