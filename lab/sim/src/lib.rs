//! A model of cache lines on machines of many CPUs, and a scheduler that runs product code on it.
//!
//! # The problem
//!
//! Which line an operation dirties, who else wants it, and what that costs on 80 CPUs: a benchmark does not say, and the
//! machine that would is seldom at hand.
//!
//! # The usual way
//!
//! Count events with hardware counters on a large machine; or trace all memory accesses and count conflicts, without time.
//!
//! # Our way
//!
//! Product code, built on the simulated platform, runs on virtual CPUs, fibres of one thread. Each access to a word that CPUs
//! may share is an event: the directory says what it costs and who loses the line, the scheduler lets the earliest CPU go
//! on, the ledger counts.
//!
//! ```text
//!   machines/*.toml --> topology      label (names)
//!                          |            |
//!   product code --> scheduler --> directory --> ledger --> report (text, JSON, page)
//!    (platform::sim)   raw (fibres)   cache, jitter             |
//!                          \------- simulation ------- check (a test for users)
//! ```
//!
//! # Guarantees
//!
//! * The same seed and the same scene give the same result, to the last digit, wherever the system puts a process's memory:
//!   lines are numbered in the order of first touch, a scene's heap and pages lie at addresses of their own. What scenes a
//!   process has played before counts, as far as they left something behind. A program whose statics' addresses matter
//!   too calls `simulation::fix_addresses`.
//! * Execution is sequentially consistent, and real: results can be checked as anywhere.
//! * A deadlock or livelock is reported, with what each CPU touched last.
//! * Every latency has its source beside it; a file without is refused.
//!
//! # Limits
//!
//! * Simple: constants for what is not an access, no prefetchers, no bandwidth but a bus's, no hyper-threads. For ranking,
//!   knees and names, not for absolute times.
//! * Up to 256 CPUs. Simulations of one process take turns. Many spinning waiters cost time: each hand-over of a lock that all
//!   watch is an event for each.
//! * A core waits for each load. A real one has independent loads under way at once; which are independent nobody says.
//! * A lock of the standard library that is held across an access stops the simulation.
//! * A program that simulates has this crate's global allocator, and can have no other.
#![cfg_attr(not(quietline_sim), allow(dead_code))]

pub mod cache;
#[cfg(quietline_sim)]
pub mod check;
pub mod cpu_set;
pub mod directory;
pub mod footprint;
pub mod jitter;
mod label;
pub mod ledger;
#[cfg(quietline_sim)]
mod raw;
pub mod report;
#[cfg(quietline_sim)]
mod scheduler;
#[cfg(quietline_sim)]
pub mod simulation;
pub mod topology;
