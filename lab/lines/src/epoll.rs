//! Nested epolls: the dispatcher of 2017, a message at a time.

use crate::operation::{Allowance, Operation, Period, Scene};
use quietline_history::NestedWay;
use quietline_history::eventpoll::Mesh;
use std::sync::Arc;

/// Inner epolls of each process.
const GROUPS: usize = 2;

pub(crate) fn operations() -> Vec<Operation> {
    let says = |way| match way {
        NestedWay::Global => {
            "a message through two levels of epoll as in Linux 4.13: one list of nested calls"
        }
        NestedWay::Dlock => "the same with the patch of 2017: a list for each CPU",
        NestedWay::Removed => "the same without lists, as from Linux 4.15 on",
    };
    let history = NestedWay::ALL.map(|way| Operation {
        period: Period::Short,
        name: format!("history-{}", way.name()).into(),
        ..Operation::new("", says(way), Allowance::Any, move |cpus| history(way, cpus))
    });
    history.into()
}

/// Whom a process writes to next: all others and itself, in an order of its own.
pub(crate) struct Peers {
    state: u64,
    processes: usize,
}

impl Peers {
    pub(crate) fn new(process: usize, processes: usize) -> Self {
        Self { state: process as u64 + 1, processes }
    }

    pub(crate) fn next(&mut self) -> usize {
        // The numbers of Numerical Recipes' quick generator of 64 bits.
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % self.processes
    }
}

fn history(way: NestedWay, processes: usize) -> Scene {
    let mesh = Arc::new(Mesh::new(way, processes, GROUPS).expect("memory for it"));
    Box::new(move |process| {
        let (mesh, mut peers) = (Arc::clone(&mesh), Peers::new(process, processes));
        Box::new(move || {
            mesh.turn(process, peers.next());
        })
    })
}
