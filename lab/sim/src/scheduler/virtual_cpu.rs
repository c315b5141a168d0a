//! A virtual CPU: its clock, and what it does or waits for.

use crate::directory::LineId;
use crate::topology::Ps;

/// What a CPU does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    Running,
    /// Until a line is written.
    Spinning {
        since: Ps,
    },
    /// Until woken.
    Sleeping {
        address: usize,
    },
    /// Until all have warmed up.
    Gathered,
    Ended,
}

/// A CPU.
pub(super) struct Cpu {
    pub(super) clock: Ps,
    pub(super) doing: Doing,
    /// Raised at each wake-up: what waits under an older number is out of date.
    pub(super) turn: u64,
    /// What it has read since its last turn of a spin loop, and in which version.
    pub(super) looked_at: Vec<(LineId, u32)>,
    pub(super) looked_too_far: bool,
    pub(super) in_step: bool,
    pub(super) ops: u64,
    pub(super) last_word: Option<usize>,
    /// When its operation under way began.
    pub(super) began: Ps,
}

impl Cpu {
    /// A CPU that begins at a time.
    pub(super) fn new(clock: Ps) -> Self {
        Self {
            clock,
            doing: Doing::Running,
            turn: 0,
            looked_at: Vec::new(),
            looked_too_far: false,
            in_step: false,
            ops: 0,
            last_word: None,
            began: clock,
        }
    }
}
