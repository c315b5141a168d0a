//! Which lines the operations of quietline, and of its history, touch: simulated, named, forecast and held to.
//!
//! # The problem
//!
//! "No contended line on the hot path" is a claim about every operation and about machines that are not there. A benchmark
//! on two CPUs cannot show it, and nobody notices when one new counter breaks it.
//!
//! # The usual way
//!
//! `perf c2c` on a machine with hardware counters and many sockets, by somebody who can read its report, now and then.
//!
//! # Our way
//!
//! The product's own code, built on the simulated platform, runs on the model of `quietline-sim`. Each operation is an
//! `Operation`: a scene, and what each CPU does in it. Everything else is the same for all of them: the report
//! (`ql lines`), the forecast (`ql forecast`), the ladder of 2008 (`docs/seeds.md`) beside its author's seconds and with the contended lines
//! of each rung, the gate.
//!
//! # Guarantees
//!
//! * The same seed gives the same result, to the last digit, in a process of its own.
//! * Every operation checks its results while it is simulated.
//!
//! # Limits
//!
//! Those of the model (`docs/lines.md`): ranking, knees and the names of bottlenecks, not absolute times.
#![cfg(quietline_sim)]

mod children;
pub mod conflicts;
pub mod costs;
mod dcache;
mod epoll;
pub mod forecast;
mod forward;
pub mod gate;
mod kernels;
pub mod ladder;
pub mod operation;
mod paths;
mod product;
mod rungs;
pub mod seeds;
pub mod sensitivity;
mod slab;
mod sockets;
pub mod validation;
mod vfs;

pub use operation::{Allowance, Operation, Period, Worker};
