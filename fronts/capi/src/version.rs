//! Which library this is.

use core::ffi::c_char;

/// The interface that this header describes: major << 16 | minor << 8 | patch. Compare with ql_version().
pub const QL_VERSION: u32 = 0x0000_0100;

/// The interface that the library was built with. Programs work with any library of the same major version that is not older
/// than their header.
#[unsafe(no_mangle)]
pub extern "C" fn ql_version() -> u32 {
    QL_VERSION
}

/// The version of the package as text. Never NULL; lives as long as the process.
#[unsafe(no_mangle)]
pub extern "C" fn ql_version_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
