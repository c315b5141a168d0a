//! `accept` takes the descriptor first: whatever runs out, the connection stays where it is, and the next `accept` has it.
//!
//! Beside the host, where there is a host to ask (`story`); with each allocation failing in turn (`faults`); and by threads that are
//! short of memory and of descriptors, and whose listeners are shut and listen anew (`stress`).
#![allow(unsafe_code, reason = "the host's calls")]

mod faults;
mod story;
mod stress;

use quietline::abi::{AF_INET, AF_UNIX};

/// An address to bind to: a name of this kind, or any port.
fn address(family: i32, name: &str) -> Vec<u8> {
    let mut raw = (family as u16).to_ne_bytes().to_vec();
    match family {
        AF_UNIX => raw.extend([b"\0", name.as_bytes()].concat()),
        _ => raw.extend([0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
    }
    raw
}

/// Both families that have listeners.
const FAMILIES: [i32; 2] = [AF_UNIX, AF_INET];
