//! Counts instructions: those that a function is made of, and those that a run of it executes.
//!
//! # The problem
//!
//! "The hit path has no locked instruction" is a claim about machine code. A source line does not show it (a
//! compiler may inline a slow path, or a `SeqCst` store become an `xchg`), a profile shows it only where it is
//! slow, and performance counters are hidden from most virtual machines.
//!
//! # The two ways to look
//!
//! * [`walk`](walk()) decodes a function where it lies in memory and follows every branch inside it: what the
//!   function *could* execute, calls listed but not followed.
//! * [`count`](count()) runs a closure in a forked child, one instruction at a time, and counts what it *did*
//!   execute, through all calls and into the C library: instructions, locked ones, fences, system calls.
//!
//! * [`count_operations`](count_operations()) does that for an operation over and over, with the
//!   counts of each time by itself, in a child whose clocks and random numbers are the tracer's:
//!   two runs give the same counts. Instructions of the program's own file are counted apart from
//!   those of shared libraries, because the C library chooses functions by CPU.
//!
//! ```text
//!     count(f) --- fork ---> child: int3; f(); int3; exit
//!        |                     ^
//!        +-- ptrace: step, decode what comes next, step, ...
//! ```
//!
//! # Restartable sequences under the tracer
//!
//! A stop inside a restartable sequence restarts it: stepping through one would never end. The child has one
//! thread and memory of its own, so nobody can interfere with its per-CPU data, and its sequences need no
//! restarting: the tracer steps *over* the store that arms a sequence without letting it happen (the store is
//! recognised by its address, the `rseq_cs` field of the area that the kernel knows), and counts it. Everything
//! else is executed and counted as it is.
//!
//! # Guarantees
//!
//! Locked instructions, fences and system calls are counted exactly; instructions too, including a handful for
//! calling the closure and coming back.
//!
//! # Limits
//!
//! x86_64 only (elsewhere the crate is empty). One thread: what a closure does on threads that it starts is not
//! counted. Some 20 us per instruction. Needs leave to `ptrace` a child of one's own, which some sandboxes refuse:
//! [`Error::Refused`].

#![cfg(target_arch = "x86_64")]

mod counts;
mod image;
mod instruction;
#[allow(unsafe_code)]
mod raw;
mod stand_in;
mod stepper;
mod trace;
mod walk;

pub use counts::{Counts, OwnCounts, Site};
pub use image::Frame;
pub use instruction::Kind;
pub use trace::{Error, count, count_operations, run_reproducibly};
pub use walk::{Shape, locked_instructions, walk};
