//! Open a file by its path and close it: will-it-scale's open1 to open3.

use super::{Case, Job, Shown, Whose, Workload};

/// Each thread opens a file that is there, for reading, and closes it.
///
/// Where files are a thread's own, so are all directories on the way but the first, the working directory. A file that all
/// open is the hard case: each open file has a reference to its dentry.
pub static OPEN: Workload = Workload {
    name: "open",
    says: "open(2) of a file by its path and close(2), each thread its own file, or all the same",
    operation: "open+close",
    cases: &[
        case("own-1", Whose::Own, 1),
        case("own-3", Whose::Own, 3),
        case("own-8", Whose::Own, 8),
        case("shared", Whose::Shared, 1),
    ],
    shown: Shown::Everything,
};

const fn case(name: &'static str, whose: Whose, depth: usize) -> Case {
    Case { name, job: Job::Open(OpenFile { whose, depth }), by_default: true }
}

/// A file to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpenFile {
    /// Whose it is.
    pub whose: Whose,
    /// Components of its path.
    pub depth: usize,
}
