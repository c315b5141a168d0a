//! One primitive at a time, beside what a program uses that has not got it.

use super::{Case, Job, Shown, Workload};

/// What the object layer is made of, each in the smallest loop that uses it. All threads use the same cache, counter,
/// lock or reference count, so that the figures from 2 threads on show what sharing it costs; but each has a process
/// and a descriptor of its own.
pub static PRIMITIVES: Workload = Workload {
    name: "primitives",
    says: "one primitive of all threads, beside what is used otherwise; slab-bulk-N per object",
    operation: "operation",
    cases: &[
        case("slab-pair", Job::Primitive(Primitive::SlabPair)),
        case("slab-bulk-8", Job::Primitive(Primitive::SlabBulk8)),
        case("slab-bulk-32", Job::Primitive(Primitive::SlabBulk32)),
        case("counter", Job::Primitive(Primitive::Counter)),
        case("ids", Job::Primitive(Primitive::Ids)),
        case("rcu-read", Job::Primitive(Primitive::RcuRead)),
        case("rcu-call", Job::Primitive(Primitive::RcuCall)),
        case("lockref", Job::Primitive(Primitive::Lockref)),
        case("file-ref", Job::Primitive(Primitive::FileRef)),
        case("spinlock", Job::Primitive(Primitive::SpinLock)),
        case("dup", Job::Descriptor(Call::Dup)),
        case("getfl", Job::Descriptor(Call::GetFl)),
        case("getfd", Job::Descriptor(Call::GetFd)),
    ],
    shown: Shown::Everything,
};

const fn case(name: &'static str, job: Job) -> Case {
    Case { name, job, by_default: true }
}

/// One use of a primitive that all threads share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Primitive {
    /// Allocate an object of 192 bytes, write its first and last word, read them back, free it.
    SlabPair,
    /// The same with 8 objects at once; an operation is one object.
    SlabBulk8,
    /// The same with 32 objects at once; an operation is one object.
    SlabBulk32,
    /// Add one and subtract one. The count stays near where it is, as that of objects that are made and unmade does;
    /// after each sample the number of operations is added, and the sum must be exact.
    Counter,
    /// Take the next number: never 0, never the one before.
    Ids,
    /// Enter a read section, read a value, leave.
    RcuRead,
    /// Allocate a small object and have it freed after a grace period. What is still due when a sample ends is freed
    /// between the samples, and none may be left.
    RcuCall,
    /// Take a reference to an object that may be locked, and put it; the count is known after putting.
    Lockref,
    /// Take a reference, and put it; whether it was the last is known.
    FileRef,
    /// Lock, add one, unlock.
    SpinLock,
}

/// A system call on a descriptor of the thread's own, that of an eventfd with `FD_CLOEXEC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `dup`, which must give the lowest free number, and `close` of that.
    Dup,
    /// `fcntl(F_GETFL)`.
    GetFl,
    /// `fcntl(F_GETFD)`.
    GetFd,
}
