//! Nobody can go on: what is said of it.

use super::state::State;
use super::virtual_cpu::{Cpu, Doing};

/// Nobody can go on.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}\n{}", .cpus.join("\n"))]
pub struct Stuck {
    /// Deadlock or livelock.
    pub what: String,
    /// What each CPU was doing.
    pub cpus: Vec<String>,
}

impl State {
    /// What each CPU was doing when it came to this.
    pub(super) fn stuck(&self, what: &str) -> Stuck {
        let describe = |(number, cpu): (usize, &Cpu)| {
            let word = cpu.last_word.map(|word| crate::label::of_word(&self.ledger.words[word]));
            let doing = match cpu.doing {
                Doing::Ended => "has ended".to_owned(),
                Doing::Running => "runs".to_owned(),
                Doing::Spinning { .. } => "spins".to_owned(),
                Doing::Sleeping { .. } => "sleeps".to_owned(),
                Doing::Gathered => "waits for the others to warm up".to_owned(),
            };
            format!(
                "CPU {number} {doing}; it touched last: {}",
                word.unwrap_or_else(|| "nothing".to_owned())
            )
        };
        Stuck { what: what.to_owned(), cpus: self.cpus.iter().enumerate().map(describe).collect() }
    }
}
