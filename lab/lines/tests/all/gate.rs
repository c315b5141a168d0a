//! The gate: how many contended lines each hot operation may have to fetch. It fails when one rises, and names the line.
#![cfg(quietline_sim)]

use quietline_lines::Operation;
use quietline_lines::gate::{self, Gate};
use quietline_sim::check::verdict;
use quietline_sim::simulation::Plan;
use quietline_sim::topology::Topology;

#[test]
fn hot_operations_keep_to_themselves() {
    let gate = Gate::run().expect("it runs");
    println!("{gate}");
    assert!(gate.rows.len() >= 69, "the table has shrunk to {} operations", gate.rows.len());
    let complaints: Vec<_> = gate.complaints().collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// What the gate says of an operation, held to what another one may do.
fn complaint(operation: &str, like: &str) -> String {
    let machine = Topology::load("one-socket-16").expect("a machine of our own");
    let find = |name| Operation::find(name).expect("it is known");
    let (_, report) =
        find(operation).simulate(&machine, &Plan { cpus: 2, ..gate::plan() }).expect("it runs");
    let allowed = find(like).allowance.allowed().expect("the gate holds it to something");
    verdict(&report, allowed).expect_err("a mistake was planted")
}

#[test]
fn a_global_counter_put_back_is_named() {
    let complaint = complaint("planted-global", "sockets");
    assert!(complaint.contains("planted nr_sockets"), "{complaint}");
    assert!(complaint.contains("lab/lines/src/vfs.rs"), "{complaint}");
}

#[test]
fn two_hot_fields_on_one_line_are_named() {
    let complaint = complaint("neighbour-counters", "counter");
    assert!(complaint.contains("planted counters[0]"), "{complaint}");
    assert!(complaint.contains("planted counters[1]"), "{complaint}");
}

/// The 2.6.27 path would not pass, at any of its contended lines.
#[test]
fn the_base_of_2008_is_refused_by_name() {
    let complaint = complaint("history-base", "sockets");
    for line in
        ["inode_lock", "dcache_lock", "nr_dentry", "nr_inodes", "last_ino", "mnt_count", "s_inodes"]
    {
        assert!(complaint.contains(line), "{line} is not in: {complaint}");
    }
}
