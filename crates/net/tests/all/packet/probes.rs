//! Tracers of the system find the tracepoints of packets in a program that has the crate in it. (Of
//! `ql` and of the C library the same is tested beside them.)

#[path = "../../probes/notes.rs"]
mod notes;

use quietline_net::packet::{DropReason, Packets};

#[test]
fn a_program_has_tracepoints() {
    // What is never called is not in the program.
    let packets = Packets::new().unwrap();
    packets.alloc_skb(1).unwrap().consume_skb();
    packets.alloc_skb(1).unwrap().kfree_skb(DropReason::NoRoute);
    notes::check(&std::env::current_exe().unwrap(), false);
}
