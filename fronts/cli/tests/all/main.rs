//! Tests of the command in one program, a module for each subcommand.

mod commands;
mod forward;
mod forward_capture;
mod forward_floods;
mod forward_load;
mod forward_many;
mod memory;
mod mount;
mod probes;
mod slabtop;
mod wire;
