//! Seats: what each thread does at the moment, for the supervisor.

use crate::calls::{ARGUMENTS, Arguments, Call};
use quietline_platform::AllocError;
use quietline_sync::{Interrupt, Shared};
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// What one thread does at the moment.
#[derive(Debug)]
pub struct Seat {
    /// Odd while the thread is in a call.
    number: AtomicU64,
    /// The index of the call.
    call: AtomicUsize,
    arguments: [AtomicI64; ARGUMENTS],
    /// The process that calls.
    pid: AtomicI64,
    /// The thread, as the host numbers it.
    tid: AtomicI64,
    /// Ends what the thread waits for.
    pub(crate) interrupt: Shared<Interrupt>,
}

impl Seat {
    /// A seat in which no thread is.
    ///
    /// # Errors
    ///
    /// [`AllocError`].
    pub fn new() -> Result<Self, AllocError> {
        Ok(Self {
            number: AtomicU64::new(0),
            call: AtomicUsize::new(0),
            arguments: Default::default(),
            pid: AtomicI64::new(0),
            tid: AtomicI64::new(0),
            interrupt: Shared::new(Interrupt::new())?,
        })
    }

    /// Seats the calling thread.
    pub(crate) fn take(&self) {
        // Relaxed, here and below: what the supervisor reads is for people to read, except for the
        // number, which decides nothing but when a thread is interrupted.
        self.tid.store(tid(), Ordering::Relaxed);
    }

    pub(crate) fn begin(&self, call: usize, arguments: &Arguments, pid: i32) {
        self.call.store(call, Ordering::Relaxed);
        self.pid.store(pid.into(), Ordering::Relaxed);
        for (slot, value) in self.arguments.iter().zip(arguments.0) {
            slot.store(value, Ordering::Relaxed);
        }
        // ORDERING: Release pairs with the Acquire in `current`, which so reads the arguments.
        self.number.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn end(&self) {
        // Relaxed: nothing is read because of it.
        self.number.fetch_add(1, Ordering::Relaxed);
        self.interrupt.clear();
    }

    /// Does something that is no call, and may not last either.
    pub fn watched<R>(&self, f: impl FnOnce() -> R) -> R {
        self.take();
        self.begin(usize::MAX, &Arguments::default(), 0);
        let result = f();
        self.end();
        result
    }

    /// Returns the number of the call that the thread is in, if it is in one.
    pub(crate) fn current(&self) -> Option<u64> {
        // ORDERING: as in `begin`.
        Some(self.number.load(Ordering::Acquire)).filter(|number| number % 2 == 1)
    }

    pub(crate) fn tid(&self) -> i64 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Describes the call and its arguments.
    pub(crate) fn describe(&self, calls: &[&Call]) -> String {
        let doing = if self.current().is_some() { "in" } else { "after" };
        let arguments =
            Arguments(std::array::from_fn(|n| self.arguments[n].load(Ordering::Relaxed)));
        let call = calls.get(self.call.load(Ordering::Relaxed));
        let (pid, tid) = (self.pid.load(Ordering::Relaxed), self.tid());
        let call =
            call.map_or_else(|| "the end of a process".to_owned(), |call| show(call, &arguments));
        format!("thread {tid}, process {pid}, {doing} {call}")
    }
}

/// Shows a call with its arguments.
pub fn show(call: &Call, arguments: &Arguments) -> String {
    let mut text = format!("{}(", call.name);
    for (n, (kind, value)) in call.kinds.iter().zip(arguments.0).enumerate() {
        let comma = if n == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}{}", kind.show(value));
    }
    text.push(')');
    text
}

fn tid() -> i64 {
    let path = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    let last = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    last.parse().unwrap_or(0)
}
