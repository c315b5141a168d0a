//! No restartable sequences on this architecture: the fallback is all there is, and no body here can be reached.

use core::hint::unreachable_unchecked;

macro_rules! unreachable_bodies {
    ($($name:ident($($arg:ty),*) -> $out:ty;)*) => { $(
        /// # Safety
        /// Never called: there is no area here.
        pub(crate) unsafe fn $name($(_: $arg),*) -> $out {
            // SAFETY: by contract.
            unsafe { unreachable_unchecked() }
        }
    )* };
}

unreachable_bodies! {
    cpu(isize) -> usize;
    add(isize, *mut u64, u64) -> ();
    add_within(isize, *mut u64, i64, i64) -> bool;
    increment_unless(isize, *mut u64, u64) -> Option<u64>;
    compare_store(isize, *mut u64, u64, u64) -> bool;
    swap(isize, *mut u64, u64) -> u64;
    swap_unless(isize, *mut u64, *const u64, u64) -> Option<u64>;
    increment_selected(isize, *mut u64, *const u64) -> usize;
    list_push(isize, *mut u64, *mut u64) -> ();
    list_push_selected(isize, *mut u64, *const u64, *mut u64) -> ();
    list_pop(isize, *mut u64) -> *mut u64;
    sheaf_pop(isize, *mut u64) -> usize;
    sheaf_push(isize, *mut u64, usize) -> bool;
    sheaf_pop_many(isize, *mut u64, *mut usize, usize) -> usize;
    sheaf_push_many(isize, *mut u64, *const usize, usize) -> usize;
    sheaf_replace(isize, *mut u64, *const u64, *mut u64, bool) -> *mut u64;
}
