//! A kernel's tree of files under random calls, held against a tree that is a few maps.
//!
//! The model walks paths by splitting strings, and knows what Linux answers to each call here: which file is found, or which error comes
//! first. It has one lock, the borrow checker's, and no cache. Calls are made by a process with all capabilities, from a
//! working directory that moves and may be removed, and from descriptors of directories.
//!
//! What is held against it: the number, type, count of names and name of everything that is found; each error; what
//! `openat2` makes of its flags; and reading of directories: an entry that stays is returned once, whatever changes between
//! two reads, also after a seek to any place where the directory has been.
//!
//! Permissions, mounts, data, times and threads are not in it: for those there are the tests against the host.

mod calls;
mod cursor;
mod model;
mod walk;

use crate::input::Input;
use calls::Player;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls.
    pub operations: u64,
    /// Calls that the model, and the kernel, refused.
    pub refused: u64,
    /// Entries of directories that were read.
    pub entries: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.refused += other.refused;
        self.entries += other.entries;
    }
}

/// Does what the bytes say, until there are none left.
///
/// # Panics
/// When the kernel differs from the model.
pub fn run(bytes: &[u8]) -> Tally {
    let mut input = Input::new(bytes);
    let kernel = quietline::Kernel::boot(quietline::Config::default().privileged(true).proc(false));
    let kernel = kernel.expect("there is memory");
    let process = kernel.process().expect("there is memory");
    let mut player = Player::new(&process);
    while !input.is_empty() {
        player.step(&mut input);
    }
    player.end()
}
