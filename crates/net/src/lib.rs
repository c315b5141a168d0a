//! Sockets, and [packets](packet).
//!
//! # The problem
//!
//! A server makes and ends sockets by the million; each is a file, and in 2008 each paid for being one in eight
//! contended cache lines. `quietline-vfs` removes those. What is left is to keep the protocol side as quiet.
//!
//! # Our way
//!
//! A socket's state is part of its pseudo object: one allocation with its dentry and inode, one constructor, no list
//! of sockets, no protocol lock, no global count of sockets that anybody waits for.
//!
//! # Guarantees
//!
//! Which family, type and protocol make a socket, and which error they give otherwise, is as in Linux.
//!
//! # Limits
//!
//! AF_UNIX, AF_INET and AF_INET6. `SOCK_RAW` on the internet families needs a privileged kernel; multipath TCP is not offered.
//! What each family does and does not is in its module.

// Files are native; what the model checker can see, its tests take in by path.
#![cfg(not(loom))]

pub mod abi;
mod address;
mod calls;
pub mod device;
mod family;
pub mod forward;
mod inet;
mod message;
mod net;
mod options;
pub mod packet;
mod proto;
mod raw;
mod socket;
mod unix;

pub use address::SockAddr;
pub use caller::{Caller, Ids, Node, Right};
pub use message::{Control, Incoming, Outgoing};
pub use net::Net;
pub use proto::On;
use raw::caller;
pub use socket::{Maker, Protocol, Socket};
