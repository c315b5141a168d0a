//! C functions that a cache calls for its objects.

use core::ffi::c_void;
use core::mem;
use quietline_slab::{ContextFn, Hook};

/// Called for an object's memory, with the context of the cache's options, on any thread that uses the cache. It must return:
/// an exception or a longjmp out of it ends the process or worse. It may use any cache.
pub type ql_hook = Option<unsafe extern "C" fn(object: *mut c_void, context: *mut c_void)>;

/// The hook of a cache.
pub(crate) fn hook(hook: ql_hook, context: *mut c_void) -> Option<Hook> {
    // SAFETY: the types differ in that one says that its object is not null, and that it may unwind, which is less to promise
    // for who calls it.
    let function = hook.map(|hook| unsafe {
        mem::transmute::<unsafe extern "C" fn(*mut c_void, *mut c_void), ContextFn>(hook)
    });
    function.map(|function| Hook::with_context(function, context))
}
