//! Allocate objects and free them, one or many at a time: the loops in which a detached freelist was shown to pay.

use super::{Case, Job, Shown, Workload};

/// The three tests of the bulk series of 2015 (`slab_bulk_test01` to `03`) with all their sizes, and what they leave out:
/// random order, another thread that frees, many threads with objects that stay.
///
/// `2015-*`: the tables of the thread, with its size of objects.
///
/// All threads use one cache. Objects are not written, but for the hash of `test03`, which lives in them.
pub static SLAB: Workload = Workload {
    name: "slab",
    says: "objects of 192 bytes allocated and freed, one or many at a time, from a cache of all threads",
    operation: "object",
    cases: &[
        shown("pair", OBJECT, Pattern::Pair),
        case("pair-64b", 64, Pattern::Pair),
        case("pair-256b", 256, Pattern::Pair),
        case("bulk-1", OBJECT, Pattern::Bulk(1)),
        case("bulk-2", OBJECT, Pattern::Bulk(2)),
        case("bulk-3", OBJECT, Pattern::Bulk(3)),
        case("bulk-4", OBJECT, Pattern::Bulk(4)),
        shown("bulk-8", OBJECT, Pattern::Bulk(8)),
        case("bulk-16", OBJECT, Pattern::Bulk(16)),
        case("bulk-30", OBJECT, Pattern::Bulk(30)),
        shown("bulk-32", OBJECT, Pattern::Bulk(32)),
        case("bulk-32-64b", 64, Pattern::Bulk(32)),
        case("bulk-32-256b", 256, Pattern::Bulk(32)),
        case("bulk-34", OBJECT, Pattern::Bulk(34)),
        case("bulk-48", OBJECT, Pattern::Bulk(48)),
        case("bulk-64", OBJECT, Pattern::Bulk(64)),
        case("bulk-128", OBJECT, Pattern::Bulk(128)),
        case("bulk-158", OBJECT, Pattern::Bulk(158)),
        shown("bulk-250", OBJECT, Pattern::Bulk(250)),
        case("single-1", OBJECT, Pattern::Single(1)),
        case("single-2", OBJECT, Pattern::Single(2)),
        case("single-3", OBJECT, Pattern::Single(3)),
        case("single-4", OBJECT, Pattern::Single(4)),
        case("single-8", OBJECT, Pattern::Single(8)),
        case("single-16", OBJECT, Pattern::Single(16)),
        case("single-30", OBJECT, Pattern::Single(30)),
        shown("single-32", OBJECT, Pattern::Single(32)),
        case("single-34", OBJECT, Pattern::Single(34)),
        case("single-48", OBJECT, Pattern::Single(48)),
        case("single-64", OBJECT, Pattern::Single(64)),
        case("single-128", OBJECT, Pattern::Single(128)),
        case("single-158", OBJECT, Pattern::Single(158)),
        case("single-250", OBJECT, Pattern::Single(250)),
        shown("random-250", OBJECT, Pattern::Random),
        shown("test02", OBJECT, Pattern::Global(16)),
        case("test02-48", OBJECT, Pattern::Global(48)),
        case("test02-144", OBJECT, Pattern::Global(144)),
        case("test02-512", OBJECT, Pattern::Global(512)),
        case("test02-2048", OBJECT, Pattern::Global(2048)),
        shown("test03", LINKED, Pattern::Scattered),
        case("test03-same-1", LINKED, Pattern::EveryNth(1)),
        case("test03-same-2", LINKED, Pattern::EveryNth(2)),
        case("test03-same-3", LINKED, Pattern::EveryNth(3)),
        case("test03-same-4", LINKED, Pattern::EveryNth(4)),
        case("test03-same-5", LINKED, Pattern::EveryNth(5)),
        case("test03-same-6", LINKED, Pattern::EveryNth(6)),
        case("test03-same-10", LINKED, Pattern::EveryNth(10)),
        case("test03-same-65", LINKED, Pattern::EveryNth(65)),
        shown("remote", OBJECT, Pattern::Remote),
        shown("churn", OBJECT, Pattern::Churn),
        case("2015-bulk-1", SK_BUFF, Pattern::Bulk(1)),
        case("2015-bulk-2", SK_BUFF, Pattern::Bulk(2)),
        case("2015-bulk-3", SK_BUFF, Pattern::Bulk(3)),
        case("2015-bulk-4", SK_BUFF, Pattern::Bulk(4)),
        case("2015-bulk-8", SK_BUFF, Pattern::Bulk(8)),
        case("2015-bulk-16", SK_BUFF, Pattern::Bulk(16)),
        case("2015-bulk-30", SK_BUFF, Pattern::Bulk(30)),
        case("2015-bulk-32", SK_BUFF, Pattern::Bulk(32)),
        case("2015-bulk-34", SK_BUFF, Pattern::Bulk(34)),
        case("2015-bulk-48", SK_BUFF, Pattern::Bulk(48)),
        case("2015-bulk-64", SK_BUFF, Pattern::Bulk(64)),
        case("2015-bulk-128", SK_BUFF, Pattern::Bulk(128)),
        case("2015-bulk-158", SK_BUFF, Pattern::Bulk(158)),
        case("2015-bulk-250", SK_BUFF, Pattern::Bulk(250)),
        case("2015-single-1", SK_BUFF, Pattern::Single(1)),
        case("2015-single-2", SK_BUFF, Pattern::Single(2)),
        case("2015-single-3", SK_BUFF, Pattern::Single(3)),
        case("2015-single-4", SK_BUFF, Pattern::Single(4)),
        case("2015-single-8", SK_BUFF, Pattern::Single(8)),
        case("2015-single-16", SK_BUFF, Pattern::Single(16)),
        case("2015-single-30", SK_BUFF, Pattern::Single(30)),
        case("2015-single-32", SK_BUFF, Pattern::Single(32)),
        case("2015-single-34", SK_BUFF, Pattern::Single(34)),
        case("2015-single-48", SK_BUFF, Pattern::Single(48)),
        case("2015-single-64", SK_BUFF, Pattern::Single(64)),
        case("2015-single-128", SK_BUFF, Pattern::Single(128)),
        case("2015-single-158", SK_BUFF, Pattern::Single(158)),
        case("2015-single-250", SK_BUFF, Pattern::Single(250)),
        case("2015-test02-16", SK_BUFF, Pattern::Global(16)),
        case("2015-test02-48", SK_BUFF, Pattern::Global(48)),
        case("2015-test02-144", SK_BUFF, Pattern::Global(144)),
        case("2015-test02-512", SK_BUFF, Pattern::Global(512)),
        case("2015-test02-2048", SK_BUFF, Pattern::Global(2048)),
    ],
    shown: Shown::Everything,
};

/// Bytes of an `sk_buff` without its control block, as of a connection or a packet's head.
const OBJECT: usize = 192;
/// Bytes of an object of `slab_bulk_test01` and `02`: an `sk_buff` of 2015 on lines of its own.
const SK_BUFF: usize = 256;
/// Bytes of an object of `slab_bulk_test03`, its link and its slab's number in it.
const LINKED: usize = 224;

const fn shown(name: &'static str, size: usize, pattern: Pattern) -> Case {
    Case { name, job: Job::Slab(Slab { size, pattern }), by_default: true }
}

const fn case(name: &'static str, size: usize, pattern: Pattern) -> Case {
    Case { name, job: Job::Slab(Slab { size, pattern }), by_default: false }
}

/// Objects of one size in one pattern. An operation is one object, allocated and freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slab {
    /// Bytes of an object.
    pub size: usize,
    /// In which order they come and go.
    pub pattern: Pattern,
}

/// In which order objects come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// One is allocated and freed.
    Pair,
    /// So many are allocated by one call and freed by one call; the array is on the stack.
    Bulk(usize),
    /// The same, by a call for each object: the fallback.
    Single(usize),
    /// 250 are allocated by one call and freed by a call each, in random order.
    Random,
    /// As [`Bulk`](Self::Bulk), the number known only at run time, the array on the heap.
    Global(usize),
    /// 4,096 objects wait in a hash by slab with 16 buckets. 64 are allocated by one call and hashed; 64 are taken from one
    /// bucket after the other, so that neighbours are from different slabs, and freed by one call.
    Scattered,
    /// The same, but that every nth of the 64 is from the slab of the first, as far as the hash soon finds one.
    EveryNth(usize),
    /// Even threads allocate 32 by one call and pass them through a ring to odd ones, which free 32 by one call.
    Remote,
    /// A thread holds 1,000 objects and replaces random ones: free, allocate.
    Churn,
}

/// Objects of [`Pattern::Random`].
pub const RANDOM: usize = 250;
/// Objects that [`Pattern::Scattered`] frees at once.
pub const SCATTERED: usize = 64;
/// Objects in the hash of [`Pattern::Scattered`].
pub const HASHED: usize = 4096;
/// Objects that [`Pattern::Remote`] passes on at once.
pub const PASSED: usize = 32;
/// Objects that a thread of [`Pattern::Churn`] holds.
pub const HELD: usize = 1000;
