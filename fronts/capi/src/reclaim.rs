//! Idle memory, given back; and how much there is.

use core::time::Duration;
use quietline_slab as slab;

/// Shrinks every cache of the process, as ql_cache_shrink() does one; how many bytes of slabs less are in use afterwards.
/// Destructors run here.
#[unsafe(no_mangle)]
pub extern "C" fn ql_shrink_all() -> usize {
    slab::shrink_all()
}

/// Gives back what is idle and due in all caches; how many bytes of slabs less are in use afterwards. For event loops and programs
/// that go to sleep; threads that use caches do the same now and then on their own. Destructors of idle objects run here.
#[unsafe(no_mangle)]
pub extern "C" fn ql_decay() -> usize {
    slab::decay()
}

/// How long after one cache the next one's idle memory is looked for, in nanoseconds; a tenth of a second at first, 0 for never.
#[unsafe(no_mangle)]
pub extern "C" fn ql_set_decay_interval(nanoseconds: u64) {
    slab::set_decay_interval(Duration::from_nanos(nanoseconds));
}

/// The bytes of slabs that all caches of the process may use before they give up what they keep; 0 for no limit, as at first. It
/// is soft: when there is nothing to give back, use goes on growing.
#[unsafe(no_mangle)]
pub extern "C" fn ql_set_memory_limit(bytes: usize) {
    slab::set_memory_limit((bytes != 0).then_some(bytes));
}

/// Bytes of slabs in use in this process.
#[unsafe(no_mangle)]
pub extern "C" fn ql_memory_used() -> usize {
    slab::memory_used()
}
