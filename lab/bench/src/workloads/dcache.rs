//! References to dentries, and looking up paths: where 80 CPUs once spent four fifths of their time.

use super::{Case, Job, Shown, Workload};

/// What the seed of 2013 changed, what it left, and what it was measured by.
///
/// `get`: a reference to a dentry, taken and put. `get-parent`: the same to the parent of a dentry, found on the way; half
/// of the seed's time went there. `stat`: a path looked up from the working directory. `short`: the AIM7 mix of that name,
/// as far as the dcache sees it.
pub static DCACHE: Workload = Workload {
    name: "dcache",
    says: "references to dentries, shared and own; stat of shared and own paths; the AIM7 short mix",
    operation: "operation",
    cases: &[
        shown("get-shared", Dcache::Get(Whose::Shared)),
        shown("get-own", Dcache::Get(Whose::Own)),
        shown("get-parent-shared", Dcache::GetParent(Whose::Shared)),
        shown("get-parent-own", Dcache::GetParent(Whose::Own)),
        case("stat-shared-1", Dcache::Stat(Whose::Shared, 1)),
        shown("stat-shared-3", Dcache::Stat(Whose::Shared, 3)),
        case("stat-shared-8", Dcache::Stat(Whose::Shared, 8)),
        shown("stat-own-1", Dcache::Stat(Whose::Own, 1)),
        shown("stat-own-3", Dcache::Stat(Whose::Own, 3)),
        shown("stat-own-8", Dcache::Stat(Whose::Own, 8)),
        shown("stat-missing", Dcache::Missing),
        case("short-10", Dcache::Short(10)),
        shown("short-100", Dcache::Short(100)),
        case("short-500", Dcache::Short(500)),
        case("short-1000", Dcache::Short(1000)),
        case("short-2000", Dcache::Short(2000)),
    ],
    shown: Shown::Everything,
};

const fn shown(name: &'static str, what: Dcache) -> Case {
    Case { name, job: Job::Dcache(what), by_default: true }
}

const fn case(name: &'static str, what: Dcache) -> Case {
    Case { name, job: Job::Dcache(what), by_default: false }
}

/// What is done with dentries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dcache {
    /// A reference to a dentry that is in use, taken and put (`dget`, `dput`).
    Get(Whose),
    /// A reference to the parent of a thread's own dentry, taken and put (`dget_parent`, `dput`). It says whose the parent
    /// is.
    GetParent(Whose),
    /// `stat` of a path with so many components.
    Stat(Whose, usize),
    /// `stat` of a name that is not there.
    Missing,
    /// One job of the AIM7 short mix, run by so many users, who are divided among the threads.
    ///
    /// Users share root directory, working directory, terminal and program, and have references to them. A job takes and puts
    /// one to each of the two directories, [`PARENTS`] times one to the parent of a file there, and computes.
    Short(usize),
}

/// Whose a file, a path or a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// Each thread has one for itself.
    Own,
    /// All threads have the same.
    Shared,
}

/// References to parents in a job of [`Dcache::Short`].
///
/// At the seed's 1.06 million jobs a minute on 80 CPUs, four fifths of the time in ticket locks that each hand-over keeps for
/// about a microsecond, a job waits for about this many pairs of `dget_parent` and `dput`.
pub const PARENTS: usize = 30;

/// Steps of the computation in a job of [`Dcache::Short`], each waiting for the last: some 20 microseconds. The mix's own jobs
/// took 250; they are shortened so that what is measured is not only arithmetic.
pub const STEPS: usize = 10_000;
