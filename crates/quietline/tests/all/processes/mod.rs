//! Parents, process groups, sessions, the end of processes, and signals among them: beside the
//! host's.

mod call;
mod exec;
mod host;
mod limits;
mod namespaces;
mod ours;
mod own;
mod threads;

use call::{Call, Dice, PROCESSES, Pid, Reply, System};
use host::Host;
use ours::Ours;

/// Calls of a program.
const LENGTH: usize = 160;

/// A program that runs on both sides.
struct Both {
    host: Host,
    ours: Ours,
    running: Vec<bool>,
    log: Vec<String>,
}

impl Both {
    fn new() -> Self {
        Self { host: Host::new(), ours: Ours::new(), running: vec![true], log: Vec::new() }
    }

    /// Makes a call on both sides. Returns what both answer.
    #[track_caller]
    fn call(&mut self, caller: usize, call: Call) -> Reply {
        let theirs = self.host.call(caller, call);
        let ours = self.ours.call(caller, call);
        self.log.push(format!("{caller}: {call:?} = {theirs:?}"));
        assert_eq!(ours, theirs, "ours and the host's, after\n{}", self.log.join("\n"));
        match call {
            Call::Fork => self.running.push(true),
            Call::Exit(_) => self.running[caller] = false,
            Call::Kill9(Pid::Of(n)) => self.running[n] = false,
            _ => {}
        }
        ours
    }

    /// Whether a call can be made on both sides, and what instead.
    fn made(&self, caller: usize, call: Call) -> Option<Call> {
        match call {
            Call::Fork if self.running.len() == PROCESSES => None,
            // The first process is the parent of orphans.
            Call::Exit(_) if caller == 0 => None,
            Call::Kill9(Pid::Of(n)) if n == 0 || n == caller || !self.running[n] => None,
            // Its number is 1 here, and -1 stands for all processes.
            Call::KillGroup(Pid::Of(0), _) => None,
            // Its parent is none of ours.
            Call::Parent if caller == 0 => None,
            // The number may be that of a process of another user of the host.
            Call::Kill(Pid::Of(n), _) if self.host.is_reaped(n) => Some(Call::Kill(Pid::Of(n), 0)),
            call => Some(call),
        }
    }
}

#[test]
fn processes_are_related_as_on_the_host() {
    quietline_testing::isolated!();
    let mut answered = [0_u64; 2];
    for seed in 1..=call::programs() {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut both = Both::new();
        for _ in 0..LENGTH {
            let forked = both.running.len();
            let caller = dice.below(forked as u64) as usize;
            let call = dice.call(forked);
            if both.running[caller]
                && let Some(call) = both.made(caller, call)
            {
                let reply = both.call(caller, call);
                answered[usize::from(reply[0] != 0)] += 1;
            }
        }
    }
    println!("{} calls succeed, {} fail, alike", answered[0], answered[1]);
    let least = 10 * call::programs();
    assert!(answered.iter().all(|n| *n > least), "{answered:?}");
}
