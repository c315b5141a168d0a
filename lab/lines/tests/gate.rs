//! The gate: how many contended lines each hot operation may have to fetch. It fails when one rises, and names the line.
#![cfg(quietline_sim)]

use quietline_lines::Operation;
use quietline_sim::check::verdict;
use quietline_sim::simulation::Plan;
use quietline_sim::topology::Topology;

/// Enough for every batch to come round: 1,024 ids, and sheaves.
fn plan(cpus: usize) -> Plan {
    Plan { cpus, warm_up: 1200, ops: 2400, ..Plan::default() }
}

#[test]
fn hot_operations_keep_to_themselves() {
    let machine = Topology::load("one-socket-16").expect("a machine of our own");
    let mut broken = Vec::new();
    let mut held = 0;
    for operation in Operation::all() {
        let Some(allowed) = operation.allowed else { continue };
        let (_, report) = operation.simulate(&machine, &plan(4)).expect("it runs");
        println!(
            "{:16} {:8.4} of {allowed:.4} contended lines an operation",
            operation.name, report.moved_lines
        );
        broken.extend(verdict(&report, allowed).err());
        held += 1;
    }
    assert!(held >= 18, "the table has shrunk to {held} operations");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// What the gate says of an operation, held to no contended line.
fn complaint(operation: &str) -> String {
    let machine = Topology::load("one-socket-16").expect("a machine of our own");
    let operation = Operation::find(operation).expect("it is known");
    let (_, report) = operation.simulate(&machine, &plan(2)).expect("it runs");
    verdict(&report, 0.0).expect_err("a mistake was planted")
}

#[test]
fn a_global_counter_put_back_is_named() {
    let complaint = complaint("planted-global");
    assert!(complaint.contains("planted nr_sockets"), "{complaint}");
    assert!(complaint.contains("lab/lines/src/kernels.rs"), "{complaint}");
}

#[test]
fn two_hot_fields_on_one_line_are_named() {
    let complaint = complaint("neighbour-counters");
    assert!(complaint.contains("planted counters[0]"), "{complaint}");
    assert!(complaint.contains("planted counters[1]"), "{complaint}");
}

/// The 2.6.27 path would not pass, at any of its contended lines.
#[test]
fn the_base_of_2008_is_refused_by_name() {
    let complaint = complaint("history-base");
    for line in ["inode_lock", "dcache_lock", "nr_dentry", "nr_inodes", "last_ino", "mnt_count", "s_inodes"] {
        assert!(complaint.contains(line), "{line} is not in: {complaint}");
    }
}
