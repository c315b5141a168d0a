//! Make an anonymous descriptor and close it: the files that have no inode of their own.

use super::{Case, Job, Object, Shown, Workload};

/// The third kind of file that the 2008 series is about: eventfd, timerfd and signalfd share one inode, so
/// what is left is a file, a dentry and the object behind.
pub static ANONFDS: Workload = Workload {
    name: "anonfds",
    says: "eventfd(2), timerfd_create(2) or signalfd(2), and close(2)",
    operation: "open+close",
    cases: &[
        Case { name: "eventfd", job: Job::OpenClose(Object::Eventfd), by_default: true },
        Case { name: "timerfd", job: Job::OpenClose(Object::Timerfd), by_default: true },
        Case { name: "signalfd", job: Job::OpenClose(Object::Signalfd), by_default: true },
    ],
    shown: Shown::Summary,
};
