//! Tests of the crate in one program, a module for each concept. With `--cfg loom` it has the
//! models only.

mod account;
mod batch;
mod bulk;
mod control;
mod creation;
mod debug;
mod debug_cost;
mod debug_default;
mod debug_rcu;
mod debug_switch;
mod exhaustion;
mod faults;
mod fence;
#[cfg(not(loom))]
mod foreign;
mod fork;
/// Part of the model, where its files expect it.
#[cfg(not(loom))]
#[path = "../../../../lab/storm/src/input.rs"]
#[allow(dead_code, unreachable_pub, reason = "public for lab/storm, which use more of it")]
mod input;
mod layout;
mod lazy;
mod locked_instructions;
mod memory;
mod merge;
mod model;
mod names;
mod percpu_memory;
mod rcu;
mod rcu_cache;
mod reclaim;
mod registry;
mod shrink_beside;
mod slabinfo;
mod slots;
#[cfg(not(loom))]
mod support;
mod typed;
mod typesafe;
mod walk;
mod wide_registers;

mod loom_freelist;
mod loom_rcu;
mod loom_reclaim;
mod loom_sheaves;
mod loom_typesafe;
