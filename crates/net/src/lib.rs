//! Sockets.
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
//! AF_UNIX, AF_INET and AF_INET6. Sockets can be made, named and closed; binding, connecting and data come with data
//! transfer. `SOCK_RAW` on the internet families needs a privileged kernel; multipath TCP is not offered.

pub mod abi;
mod family;
mod socket;

pub use socket::{Protocol, Socket, socket};
