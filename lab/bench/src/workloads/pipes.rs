//! Make a pipe and close both ends: two descriptors and two files on one inode.

use super::{Case, Job, Object, Shown, Workload};

/// The `pipe1` loop: each thread runs `pipe2(0)` and closes the reading end, then the writing end.
pub static PIPES: Workload = Workload {
    name: "pipes",
    says: "pipe2(2) and close(2) of both ends, each thread its own pipe",
    operation: "pipe2+2 closes",
    cases: &[Case { name: "pipe2", job: Job::OpenClose(Object::Pipe), by_default: true }],
    shown: Shown::Summary,
};
