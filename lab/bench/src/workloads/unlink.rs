//! Make files and remove them: what was to show the price of freeing inodes after a grace period.

use super::{Case, Job, Shown, Whose, Workload};

/// The loop of the 2010 thread: each CPU creates a name of its own, closes the file and unlinks it; or a thousand, and then
/// removes the thousand.
///
/// An inode that waits for its grace period is cold when it is used again. With one file at a time that costs most, since the
/// next one could have had the hot memory; in batches the memory is cold anyway.
///
/// `own-watched` is about something else: each thread's directory is watched by an inotify instance of its own, for names that
/// come and go, and both events are read after each file.
pub static UNLINK: Workload = Workload {
    name: "unlink",
    says: "creat(2), close(2) and unlink(2), one file at a time and a thousand, in own and shared directories",
    operation: "file",
    cases: &[
        case("own", Whose::Own, 1),
        case("shared", Whose::Shared, 1),
        case("own-1000", Whose::Own, BATCH),
        case("shared-1000", Whose::Shared, BATCH),
        Case { by_default: false, ..case("own-10000", Whose::Own, 10 * BATCH) },
        Case { name: "own-watched", job: Job::Watched, by_default: true },
    ],
    shown: Shown::Everything,
};

/// Files in a batch.
const BATCH: usize = 1000;

const fn case(name: &'static str, directory: Whose, batch: usize) -> Case {
    Case { name, job: Job::Unlink(Unlink { directory, batch }), by_default: true }
}

/// Files that are made and removed. An operation is one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unlink {
    /// Whose the directory is. Names are always a thread's own.
    pub directory: Whose,
    /// So many are made before the first is removed, in the order in which they were made.
    pub batch: usize,
}
