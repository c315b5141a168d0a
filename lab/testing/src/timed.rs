//! Loops that run for a time and until they have seen something.

use std::time::{Duration, Instant};

/// How long a loop waits for its goal.
const PATIENCE: Duration = Duration::from_secs(300);

/// A loop that runs for a given time, and longer if its goal is not met by then. On a busy machine
/// a fixed time alone leaves to chance what the loop sees.
pub struct TimedLoop {
    ends: Instant,
    gives_up: Instant,
}

impl TimedLoop {
    /// Begins a loop that runs for `time`.
    pub fn new(time: Duration) -> Self {
        let now = Instant::now();
        Self { ends: now + time, gives_up: now + time + PATIENCE }
    }

    /// Returns whether the loop goes on: the time is not over, or `goal_met` is false.
    ///
    /// # Panics
    ///
    /// If the goal is not met five minutes after the time is over.
    #[track_caller]
    pub fn goes_on(&self, goal_met: bool) -> bool {
        let now = Instant::now();
        assert!(goal_met || now < self.gives_up, "the loop does not meet its goal");
        !goal_met || now < self.ends
    }
}
