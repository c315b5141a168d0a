//! A hostile guest: random calls of a kernel's public interface.
//!
//! Several threads call one kernel by several processes of several users, with random arguments and
//! those at the edges of what is allowed. A run fails
//!
//! * if an interrupt does not end a call ([`supervisor`]),
//! * if a lock is held beyond a bound of CPU time (feature `lock-times`),
//! * if a call panics, or returns more than it may ([`calls`]),
//! * if a call returns a file or bytes of the user whose files no other user may have, or succeeds
//!   on a path of that user ([`victim`]),
//! * if anything is left when all processes have ended and the tree is empty: objects, and also
//!   descriptors, process numbers, ports, and counts of limits ([`guest`]).
//!
//! Each of these checks has planted faults that it must report ([`plant`]).
//!
//! # Limits
//!
//! The calls of a round follow from the seed. With more than one thread their order does not.

pub mod calls;
mod custom;
pub mod guest;
pub mod kind;
mod leftovers;
pub mod plant;
pub mod random;
pub mod seat;
pub mod supervisor;
pub mod victim;
pub mod worker;
