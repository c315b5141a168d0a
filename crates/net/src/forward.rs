//! Forwarding: packets in by one interface and out by another.
//!
//! # The problem
//!
//! A router looks at a packet for some tens of nanoseconds: is it whole, where does it go, who is next. All CPUs do that at the
//! same time with the same tables, which change meanwhile.
//!
//! # The contended way
//!
//! Locks around the tables of routes and neighbours, or counts of their users; and statistics in words that all CPUs write.
//!
//! # Our way
//!
//! ```text
//!   handle(batch) ── step by step ──> header right? ── route ── time to live, size ── neighbour ──> queue of an interface
//!     │ one read section                  │ no              │ none       │ passed          │ unknown           │ full, or at the end
//!     v                                   v                 v            v                 v                   v
//!   counts to the CPU's own words       dropped       ICMP error (token bucket per CPU)  waits, asked for     out(interface, batch)
//! ```
//!
//! * Usual packets, IPv4 without options or IPv6 to a neighbour who is known, take each step together, up to [`BATCH`] of them at a
//!   time; all others one by one. Either way packets that came in after each other go out so.
//! * [Routes](routes) and neighbours are tables that readers walk without a lock, and whose writers wait for readers. A route to a
//!   gateway remembers where its neighbour lies, who says himself whether he is still there.
//! * Counts are kept in the thread's [`Lane`] while a batch lasts, and then added to words of the CPU.
//! * [`Forwarder`] knows no devices: packets come as a batch and the number of an [`Interface`], and go out as such.
//!
//! # Guarantees
//!
//! * A packet that goes on writes no shared line but its own, and no locked instruction is executed for it.
//! * Whatever bytes come in: no panic, and what is not right is dropped with a [reason](crate::packet::DropReason) that is counted. What goes
//!   out has the checksum that follows from the one that came in (RFC 1624), so that a fault on the way in is not made right.
//! * A packet that came in is [counted](Counts) as one thing only: sent on, taken, or dropped, and why.
//! * What waits for neighbours is bounded, for each interface: a flood is dropped, not stored. A
//!   sweep over addresses without stations, spoofed senders and stations that answer for whole
//!   networks keep no known neighbour from being reached and take no room of other interfaces.
//!   Questions for new neighbours are limited: beside a sweep of more than [`QUESTIONS`] addresses
//!   a second, packets to new neighbours share that limit with the sweep's.
//! * The errors that are sent are limited, but for those that path MTU discovery needs: as on
//!   Linux, each packet that is too big is told of.
//! * An error is never sent about an error, a fragment but the first, or what came to more than one station (RFC 1812, RFC 4443).
//!
//! # Limits
//!
//! * Ethernet without VLAN tags; interfaces do not change after they were given. No multicast is forwarded, nothing is put together
//!   from fragments, no redirect is sent, and sources are not looked up (no reverse path filter; but from an own address of
//!   IPv4 nothing comes in).
//! * Of IPv4's options, Record Route is filled in, and source routes are refused; time stamps go on as they came (RFC 1812, section 5.3.13).
//! * Of what is for its own addresses, it answers echoes, ARP and neighbour discovery; all else is refused.
//!
//! # Lock order
//!
//! The lock of a link's pending neighbours, then the lock of the neighbour table's writers. Inside
//! the latter, and inside the locks of routes, only locks of the RCU domain are taken.
//!
//! # Source
//! `net/ipv4/ip_forward.c`, `net/ipv6/ip6_output.c`, `net/core/neighbour.c`, Linux 6.1, for what is done in which order;
//! RFC 791, 792, 826, 1812, 4443, 4861, 8200.

mod address;
mod arp;
pub mod checksum;
mod discovery;
mod ends;
mod forwarder;
pub mod header;
mod icmp4;
mod icmp6;
mod interface;
mod ipv4;
mod ipv6;
mod limiter;
mod neighbour;
mod next;
mod options;
mod own;
mod pool;
pub mod routes;
mod statistics;
mod usual;
mod words;

pub use address::Address;
pub use forwarder::{BATCH, Forwarder, Lane, NEIGHBOURS, Transmit};
pub use interface::{Interface, LEAST_MTU6};
pub use limiter::{BURST, INTERVAL};
pub use neighbour::{ASKED, QUESTION_BURST, QUESTIONS, REACHABLE, TRIES, WAITING};
pub use routes::{NextHop, Prefix, Routes, Routes4, Routes6, Via};
pub use statistics::{Count, Counts};
