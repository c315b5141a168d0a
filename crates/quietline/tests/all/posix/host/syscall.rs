//! System calls, without the C library's interpretation.

use std::ffi::CString;

/// A system call with integers, or pointers that are valid for the call, as arguments.
macro_rules! sys {
    ($number:expr $(, $arg:expr)*) => {{
        // SAFETY: descriptors are the calling thread's own; pointers are to buffers of the lengths given, and live.
        let value = unsafe { libc::syscall($number $(, $arg)*) };
        // Other negative numbers are what the kernel says: `lseek` beyond the last page.
        if value == -1 { Err($crate::posix::host::syscall::errno()) } else { Ok(value as i64) }
    }};
}
pub(crate) use sys;

/// Why the last call failed.
pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().expect("a system call failed")
}

/// A string for the system.
pub(crate) fn c(bytes: &[u8]) -> CString {
    CString::new(bytes).expect("no zero in paths and names")
}

/// The last argument of `mount` and the like.
pub(crate) fn null() -> *const u8 {
    std::ptr::null()
}
