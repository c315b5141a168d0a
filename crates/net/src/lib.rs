//! Sockets, and [packets](packet) with [devices](device) and a [router's path](forward).
//!
//! Sockets are used through the crate `quietline`, as descriptors of a process. Packets are used from here. A thousand of them, through a
//! router between two links:
//!
//! ```
//! use quietline_net::device::{BUDGET, Batch, Generator, NetDevice, Sink, Traffic};
//! use quietline_net::forward::{Forwarder, Interface};
//! use quietline_net::packet::Packets;
//! use std::time::Instant;
//!
//! let packets = Packets::new().expect("there is memory");
//! let link = |n, address: [u8; 4]| Interface::new([2, 0, 0, 0, 0, n], 1500).v4(address.into(), 16);
//! let router = Forwarder::new(&packets, vec![link(2, [198, 18, 255, 254]), link(3, [198, 19, 255, 254])])?;
//! router.set_neighbour4(1, [198, 19, 0, 1].into(), [2, 0, 0, 0, 0, 4])?;
//! let (mut lane, start) = (router.lane()?, Instant::now()); // a lane for each thread that forwards
//!
//! // From 198.18.0.1 to 198.19.0.1, to the router's first link address; the sink knows packets of one flow by their numbers.
//! let mut from = Generator::new(&packets, &Traffic { count: Some(1000), ..Traffic::default() })?;
//! let mut to = Sink::new(512, 1)?;
//! let mut batch = Batch::new();
//! while !from.is_done() {
//!     from.poll(BUDGET, &mut batch)?;
//!     batch.hand_over(|came| {
//!         router.handle(&mut lane, 0, came, start.elapsed(), &mut |_interface, ready| {
//!             let mut going = Batch::new();
//!             going.take_from(ready);
//!             to.send(&mut going);
//!         })
//!     });
//!     to.complete(BUDGET); // frees what is sent, in bulk
//! }
//! assert!(to.tally().is_exactly(1000)); // each once, in order, as it was made
//! # Ok::<(), rustix::io::Errno>(())
//! ```
//!
//! [`device::Tap`] and [`device::PacketSocket`] in the places of generator and sink make it a router of the host's: that is
//! what `ql forward` does.
//!
//! # The problem
//!
//! A server makes and ends sockets by the million. Each is a file, and in 2008 each paid for being one in contended
//! cache lines and locks. `quietline-vfs` removes those. What is left is to keep the protocol side as quiet.
//!
//! # Our way
//!
//! A socket's dentry and inode are one allocation. Its state is made by the first call that needs it, from a slab cache whose
//! objects have lines of their own: one that is only opened and closed has none. There is no list of sockets, no protocol lock,
//! no global count of sockets that anybody waits for; ports and names that are bound lie in buckets with a lock each, and ports
//! that nobody asked for by number come from the CPU's own.
//!
//! A packet's head and data come from slab caches and are freed in bulk; a device belongs to the thread that polls it; the router's
//! tables are read without a lock. Each of the three modules says it at length.
//!
//! # Guarantees
//!
//! Which family, type and protocol make a socket, and which error they give otherwise, is as in Linux. What differs after that is in
//! `docs/differences.md`. What holds for packets, devices and forwarding is in their modules.
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
mod memory;
mod message;
mod net;
mod options;
pub mod packet;
mod proto;
mod raw;
mod socket;
mod unix;

pub use address::SockAddr;
pub use caller::{Caller, FIRST_UNPRIVILEGED, Ids, Node, Right};
pub use memory::SocketMemory;
pub use message::{Control, Incoming, Outgoing, Undelivered};
pub use net::Net;
pub use proto::On;
use raw::caller;
pub use socket::{Maker, Protocol, Socket};
