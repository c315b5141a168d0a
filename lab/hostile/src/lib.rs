//! A hostile guest: random calls of a kernel's public interface.
//!
//! Several threads call one kernel by several processes of several users, with random arguments and
//! those at the edges of what is allowed. A run fails
//!
//! * if an interrupt does not end a call ([`supervisor`]),
//! * if a lock is held beyond a bound of CPU time (feature `lock-times`),
//! * if a call panics, or returns more than it may ([`calls`]),
//! * if anything is left when all processes have ended and the tree is empty ([`guest`]).
//!
//! # Limits
//!
//! The calls of a round follow from the seed. With more than one thread their order does not.

pub mod calls;
pub mod guest;
pub mod kind;
pub mod random;
pub mod seat;
pub mod supervisor;
pub mod worker;
