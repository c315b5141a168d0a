//! Threads that have taken, or are about to take, a collecting sheaf from its CPU and have not yet queued it: who waits for
//! all objects finds those sheaves neither with a CPU nor with the domain.

#[cfg(not(loom))]
use quietline_platform::fork::AtFork;
use quietline_platform::thread;
use quietline_sync::SpinLock;

#[derive(Debug)]
pub(crate) struct Sends {
    turns: SpinLock<Turns>,
}

/// Those who wait do not wait for sends that begin later, which belong to the next turn.
#[derive(Debug)]
struct Turns {
    turn: u64,
    /// Sends of the current turn, and of the one before, by parity.
    running: [u64; 2],
}

/// A send, until dropped. Nothing of a user's is called inside.
pub(crate) struct Send<'a> {
    sends: &'a Sends,
    parity: usize,
}

impl Sends {
    pub(crate) fn new() -> Self {
        Self { turns: SpinLock::new(Turns { turn: 0, running: [0; 2] }) }
    }

    /// To be called before a sheaf is taken. Writes a line of the cache's.
    pub(crate) fn begin(&self) -> Send<'_> {
        let mut turns = self.turns.lock();
        let parity = (turns.turn % 2) as usize;
        turns.running[parity] += 1;
        Send { sends: self, parity }
    }

    /// Waits until all sends that have begun have ended.
    pub(crate) fn wait(&self) {
        let since = self.turns.lock().turn;
        while !self.turns.lock().ended(since) {
            thread::yield_now();
        }
    }
}

impl Turns {
    /// Whether all sends of turn `since` and before have ended. Only two turns can be told apart, so one begins when the one
    /// before the last has ended.
    fn ended(&mut self, since: u64) -> bool {
        if self.turn == since && self.running[(since as usize + 1) % 2] == 0 {
            self.turn += 1;
        }
        self.turn > since + 1 || self.turn == since + 1 && self.running[since as usize % 2] == 0
    }
}

impl Drop for Send<'_> {
    fn drop(&mut self) {
        self.sends.turns.lock().running[self.parity] -= 1;
    }
}

// SAFETY: its only lock is held between the two.
#[cfg(not(loom))]
unsafe impl AtFork for Sends {
    fn before(&self) {
        self.turns.before();
    }

    /// In the child, whoever was sending is gone; this thread was not: a fork is no part of a send.
    fn after(&self, child: bool) {
        self.turns.after(child);
        if child {
            self.turns.lock().running = [0; 2];
        }
    }
}
