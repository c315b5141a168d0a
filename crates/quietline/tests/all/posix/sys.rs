//! The sides that are compared.

use crate::posix::call::{Call, Step};
use crate::posix::outcome::{Dent, Outcome};

/// A process of a side.
pub(crate) trait Actor {
    /// Makes a system call. (Every call but `Fork`, which is the side's, and those of `composed.rs`.)
    fn call(&mut self, call: &Call) -> Outcome;

    /// One `getdents64`.
    fn dents(&mut self, fd: i32, size: usize) -> Result<Vec<Dent>, i32>;

    /// One `read` of the events, in the bytes that inotify gives. A program's first watch has number 1.
    fn events(&mut self, buffer: &mut [u8]) -> Result<usize, i32>;
}

/// How the world begins. Each program gets a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The filesystem's size in pages.
    pub(crate) pages: u64,
    /// Inodes, the root's included.
    pub(crate) inodes: u64,
    /// Whether processes begin with all of root's rights over several users.
    pub(crate) root: bool,
}

/// Processes of a program are numbered below this. Process 0 is the overseer: root, at the root, and only looks.
pub(crate) const PROCESSES: usize = 4;

/// The descriptor of the instance of inotify, which all processes have: beyond those that programs use.
pub(crate) const WATCHER: i32 = 1001;

/// A side: a filesystem and processes on it.
pub(crate) trait Sys {
    /// Who it is.
    fn name(&self) -> String;

    /// Begins a new world: an empty root directory with mode 0755, processes without descriptors, at the root, with a
    /// umask of 022.
    fn begin(&mut self, setting: Setting);

    /// Makes these calls in the world. The outcomes are as the side says them.
    fn go(&mut self, steps: &[Step]) -> Vec<Outcome>;

    /// Ends the world.
    fn end(&mut self);

    /// Runs a program in a new world.
    fn run(&mut self, setting: Setting, program: &[Step]) -> Vec<Outcome> {
        self.begin(setting);
        let outcomes = self.go(program);
        self.end();
        outcomes
    }

    /// Whether it has the call at all.
    fn offers(&self, _call: &Call) -> bool {
        true
    }

    /// Whether each change of an inode that was looked at gets another time.
    fn fine_times(&self) -> bool;

    /// Whether directories list the newest name first. Else their order is the side's own, and not compared.
    fn newest_first(&self) -> bool;
}

impl<S: Sys + ?Sized> Sys for &mut S {
    fn name(&self) -> String {
        (**self).name()
    }

    fn begin(&mut self, setting: Setting) {
        (**self).begin(setting);
    }

    fn go(&mut self, steps: &[Step]) -> Vec<Outcome> {
        (**self).go(steps)
    }

    fn end(&mut self) {
        (**self).end();
    }

    fn offers(&self, call: &Call) -> bool {
        (**self).offers(call)
    }

    fn fine_times(&self) -> bool {
        (**self).fine_times()
    }

    fn newest_first(&self) -> bool {
        (**self).newest_first()
    }
}
