//! Names from C: copied, and kept for ever.
//!
//! Statistics and reports name caches that may be gone, so names live as long as the process. Each different one is stored
//! once; how many there can be is bounded.

use crate::status::ql_status;
use core::ffi::{CStr, c_char};
use core::ptr;
use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_platform::fork::{Rank, Registered};
use quietline_platform::{fault, heap};
use quietline_sync::SpinLock;
use std::collections::HashSet;

/// Bytes of a name, with the zero at its end.
pub const QL_NAME_MAX: usize = 64;

/// Different names that can be kept: 4 MiB of them.
pub const QL_NAMES_MAX: usize = 65_536;

type Names = Registered<SpinLock<HashSet<&'static str>>>;

/// The copy of a name that lives as long as the process. A null name is empty. The names' lock, and O(length).
///
/// # Errors
/// [`ql_status::QL_BAD_NAME`], [`ql_status::QL_TOO_MANY`], [`ql_status::QL_NO_MEMORY`].
///
/// # Safety
/// `name` is null or points to a string that ends in a zero.
pub(crate) unsafe fn intern(name: *const c_char) -> Result<&'static str, ql_status> {
    if name.is_null() {
        return Ok("");
    }
    // SAFETY: by contract.
    let name = unsafe { CStr::from_ptr(name) };
    let name = name.to_str().map_err(|_| ql_status::QL_BAD_NAME)?;
    if name.len() >= QL_NAME_MAX {
        return Err(ql_status::QL_BAD_NAME);
    }
    let mut names = names()?.lock();
    if let Some(known) = names.get(name) {
        return Ok(known);
    }
    if names.len() >= QL_NAMES_MAX {
        return Err(ql_status::QL_TOO_MANY);
    }
    fault::check()?;
    names.try_reserve(1).map_err(|_| ql_status::QL_NO_MEMORY)?;
    let bytes = name.as_bytes();
    let copy = Box::leak(heap::try_boxed_slice(bytes.len(), |i| bytes[i])?);
    // SAFETY: a copy of a str's bytes.
    let copy: &'static str = unsafe { str::from_utf8_unchecked(copy) };
    names.insert(copy);
    Ok(copy)
}

/// The names, made by whoever comes first. Nobody waits for another thread: a child that is forked meanwhile would wait for ever.
fn names() -> Result<&'static Names, ql_status> {
    static NAMES: AtomicPtr<Names> = AtomicPtr::new(ptr::null_mut());
    // ORDERING: pairs with the release below: who sees the pointer sees the names. Who does not makes them, too.
    let mut names = NAMES.load(Ordering::Acquire);
    if names.is_null() {
        let fresh = Registered::new(Rank::Object, SpinLock::new(HashSet::new()))?;
        let fresh = Box::into_raw(heap::try_box(fresh)?);
        // ORDERING: release publishes the names; acquire sees those of another thread that was quicker.
        names = match NAMES.compare_exchange(
            ptr::null_mut(),
            fresh,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => fresh,
            Err(quicker) => {
                // SAFETY: made above, and given to nobody.
                drop(unsafe { Box::from_raw(fresh) });
                quicker
            }
        };
    }
    // SAFETY: a box that is never freed once it is in the static.
    Ok(unsafe { &*names })
}
