//! The cost ledger: counts of each public operation on a hot path, and the check that none grows
//! unseen.
//!
//! # The problem
//!
//! An operation gets slower by thirty instructions at a time. Times on a shared machine vary by
//! more than that, so no test notices, and after a dozen changes a fifth of the speed is gone.
//!
//! # The usual way
//!
//! A benchmark in the gate, with a limit that is wide enough for the machine's noise; or none.
//!
//! # Our way
//!
//! Counts do not vary. Each operation is counted, and the counts are committed:
//!
//! ```text
//!   operations ──┬── one instruction at a time ── quietline-count ── instructions, locked, fences,
//!                │                                                   system calls, library calls
//!                ├── in a process with checked caches ────────────── bytes allocated and retained
//!                └── on the simulated machine ────── ql-sim costs ── lines touched, shared lines
//!                                                                          │
//!   lab/record/costs/ledger.jsonl ── newest value of each count ──── compared: `ql costs --check`
//!                │       ^
//!                │       └── appended by `ql costs --accept REASON`
//!                └── rendered: docs/costs.md
//! ```
//!
//! * *Instructions* are those of the program's own file: the product, its inlined dependencies, and
//!   the operation's checks of its results. A row is the median of three consecutive operations.
//! * *Library calls* are counted, and library instructions are not: the C library chooses its
//!   functions by CPU.
//! * *Lines touched* and *shared lines* come from the model, with 4 CPUs that share one process or
//!   have a process each.
//! * *Bytes allocated* are those of slab objects, and of memory that the operation requests from
//!   the
//!   C library. *Bytes retained* are the growth of both over 1,000 operations, per operation.
//!
//! # Guarantees
//!
//! * Two runs of one program give the same sheet, byte by byte, whatever the hour, the CPU type,
//!   the
//!   environment and the settings of the C library.
//! * A count that grows by more than its tolerance fails the check, which names operation, column,
//!   and both values; so does a row that is missing or new, and another compiler or profile.
//!
//! # Limits
//!
//! x86_64, with leave to trace a child and restartable sequences. One thread: an operation that
//! waits for another thread has no row, and neither has an operation with a loop over the CPUs.

mod operation;
mod operations;
mod plant;
mod processes;
mod raw;

#[cfg(all(target_arch = "x86_64", not(quietline_sim)))]
mod native;

#[cfg(all(target_arch = "x86_64", not(quietline_sim)))]
pub use native::*;
pub use operation::{Operation, Scene, Sharing, Worker};
pub use operations::operations;
pub use plant::Plant;
