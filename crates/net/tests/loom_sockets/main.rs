//! Property 13 of sockets, in every interleaving: no byte is lost, no connection, no wake-up, and no file in a message.
//!
//! What is modelled is the library's own source, all of it but packets, on files that are a count and a socket (`files.rs`). A
//! wake-up that is lost leaves a thread parked for ever, which the model reports as a deadlock. The tables of names, ports and
//! connections have one bucket each here.
//!
//! All models are bounded: forced switches per execution are in each.
#![cfg(loom)]
// As in the crate's `raw`; and what no model uses.
#![allow(
    unsafe_code,
    dead_code,
    unused_imports,
    unreachable_pub,
    unreachable_patterns,
    missing_docs,
    clippy::all
)]

// To the sockets, this is the crate that files come from, and their own.
extern crate self as quietline_vfs;

mod dgram;
mod files;
mod flight;
mod listener;
mod stream;
mod tcp;
mod world;

#[path = "../../src"]
mod sources {
    pub mod abi;
    pub mod address;
    pub mod calls;
    pub mod family;
    pub mod inet;
    pub mod memory;
    pub mod message;
    pub mod net;
    pub mod options;
    pub mod proto;
    pub mod raw;
    pub mod socket;
    pub mod unix;
}

#[path = "../../../vfs/src"]
mod of_files {
    #[path = "file/iov.rs"]
    pub mod iov;
    pub mod poll;
}

pub mod abi {
    pub use crate::sources::abi::*;
    pub const MAX_RW_COUNT: usize = 0x7fff_f000;
    pub const O_RDWR: i32 = 2;
    pub const O_NONBLOCK: i32 = 0o4000;
    pub const O_CLOEXEC: i32 = 0o2_000_000;
    pub const S_IFSOCK: u32 = 0o140_000;
}

pub use files::{
    Direction, FdFlags, FileHandle, FileMode, Files, Io, Ioctl, NameKeys, Owner, Payload, PseudoFs,
    PseudoInode,
};
pub use of_files::iov::{Sink, Source};
pub use of_files::poll::{Events, PollTable};
use raw::caller;
pub use sources::address::SockAddr;
pub use sources::message::{Control, Incoming, Outgoing};
pub use sources::net::Net;
pub use sources::proto::On;
use sources::raw;
pub use sources::raw::caller::{Caller, Ids, Node, Right};
pub use sources::socket::{Maker, Protocol, Socket};
pub use sources::{
    address, calls, family, inet, memory, message, net, options, proto, socket, unix,
};
