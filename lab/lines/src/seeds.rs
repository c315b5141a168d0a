//! The tables of the threads that the model has an answer to, point by point.
//!
//! Each comparison names the points that a parameter was fitted to. All others are predictions, and
//! their errors are errors of the model.

mod dentries;
mod epolls;
mod inodes;
mod sockets;

use crate::ladder::Model;
use quietline_seeds::Comparison;
use quietline_sim::simulation::Failed;
use quietline_sim::topology::Topology;

/// The threads with tables that the model can compute.
pub const MODELLED: [&str; 4] = ["sockets-2008", "inodes-2010", "dentries-2013", "epoll-2017"];

/// Returns a thread's tables with the model's values beside them.
///
/// # Errors
/// [`Failed`].
///
/// # Panics
/// If the thread is not one of [`MODELLED`].
pub fn comparisons(seed: &str) -> Result<Vec<Comparison>, Failed> {
    let machine = |name| Topology::load(name).expect("a machine of our own");
    match seed {
        "sockets-2008" => sockets::comparisons(&Model::fitted(&machine("core2-2x4"), 1.0, 1)?),
        "inodes-2010" => inodes::comparisons(&machine("nehalem-4"), 1),
        "dentries-2013" => dentries::comparisons(&machine("westmere-8x10"), 1),
        "epoll-2017" => epolls::comparisons(&machine("kvm-18"), 1),
        _ => panic!("{seed} is not modelled"),
    }
}
