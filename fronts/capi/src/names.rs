//! Names from C.

use crate::status::ql_status;
use core::ffi::{CStr, c_char};
use quietline_slab::Name;

/// Bytes of a name, with the zero at its end.
pub const QL_NAME_MAX: usize = 64;

const _: () = assert!(QL_NAME_MAX == Name::MAX + 1);

/// Returns a copy of a name. A null name is empty.
///
/// # Errors
/// [`ql_status::QL_BAD_NAME`].
///
/// # Safety
/// `name` is null or points to a string that ends in a zero.
pub(crate) unsafe fn copy(name: *const c_char) -> Result<Name, ql_status> {
    if name.is_null() {
        return Ok(Name::new(""));
    }
    // SAFETY: by contract.
    let name = unsafe { CStr::from_ptr(name) };
    match name.to_str() {
        Ok(name) if name.len() <= Name::MAX => Ok(Name::new(name)),
        _ => Err(ql_status::QL_BAD_NAME),
    }
}
