//! The same simulation in two processes, whose memory the system lays out differently: the same report, byte for byte.
#![cfg(quietline_sim)]

use quietline_lines::Operation;
use quietline_sim::simulation::Plan;
use quietline_sim::topology::Topology;
use std::process::Command;

/// Set in the child: the operation to report on, and how much else is in its heap.
const REPORT: &str = "QUIETLINE_REPORT_OF";
const CLUTTER: &str = "QUIETLINE_CLUTTER";

/// Operations and how long they are simulated. What the base of 2008 frees late, and looks up by a hash of its address, needs
/// its time.
const OPERATIONS: [(&str, u64); 5] = [
    ("history-base", 2500),
    ("sockets", 700),
    ("pipes-anyfd", 700),
    ("slab-burst", 700),
    ("lockref-shared", 700),
];

fn report(operation: &str) -> String {
    let machine = Topology::load("core2-2x4").expect("a machine of our own");
    let warm_up = OPERATIONS.iter().find(|(name, _)| *name == operation).expect("one of these").1;
    let plan = Plan { cpus: 8, warm_up, ops: warm_up / 2, ..Plan::default() };
    let operation = Operation::find(operation).expect("it is known");
    let (run, report) = operation.simulate(&machine, &plan).expect("it runs");
    let report = serde_json::to_string_pretty(&report).expect("it is text");
    format!("{} ps, {} accesses\n{report}\n", run.window, run.accesses)
}

/// What a child prints, and nothing in any other run of the tests.
#[test]
fn child() {
    if let Ok(operation) = std::env::var(REPORT) {
        let clutter: usize = std::env::var(CLUTTER).expect("a number").parse().expect("a number");
        let clutter: Vec<_> = (0..clutter).map(|n| vec![1u8; n * 24 + 8]).collect();
        print!("\n{}", report(&operation));
        assert!(clutter.iter().flatten().all(|byte| *byte == 1));
    }
}

fn in_a_process_of_its_own(operation: &str, clutter: usize) -> String {
    let program = std::env::current_exe().expect("this program");
    let arguments = ["determinism::child", "--exact", "--nocapture", "--test-threads", "1"];
    let mut child = Command::new(program);
    child.args(arguments).env(REPORT, operation).env(CLUTTER, clutter.to_string());
    let output = child.output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("it is text");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // Without what the test harness says, which has times in it.
    let begin = text.find(" ps, ").and_then(|at| text[..at].rfind('\n')).expect("a report") + 1;
    let end = text.rfind("\n}").expect("a report") + 2;
    text[begin..end].to_owned()
}

#[test]
fn two_processes_report_the_same() {
    for (operation, _) in OPERATIONS {
        let [first, second] = [0, 39].map(|clutter| in_a_process_of_its_own(operation, clutter));
        assert!(first.len() > 500 && first.contains(operation), "{first}");
        let differs = first.lines().zip(second.lines()).find(|(a, b)| a != b);
        assert!(first == second, "{operation}: {differs:?}");
    }
}
