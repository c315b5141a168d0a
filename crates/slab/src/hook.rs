//! Functions that a cache calls for its objects.

use core::ffi::c_void;
use core::mem;
use core::ptr::NonNull;

/// Called for an object's memory: to construct it, or to end it. With a context if it needs one; in a form that other languages
/// can give, too.
#[derive(Debug, Clone, Copy)]
pub struct Hook {
    function: ContextFn,
    context: *mut c_void,
}

/// A hook that is called with a context.
pub type ContextFn = unsafe extern "C-unwind" fn(object: NonNull<u8>, context: *mut c_void);

// SAFETY: a hook does nothing by itself; who makes a cache with it answers for its being called on any thread.
unsafe impl Send for Hook {}
// SAFETY: as above.
unsafe impl Sync for Hook {}

impl Hook {
    /// A function that needs no context.
    pub const fn new(function: unsafe fn(NonNull<u8>)) -> Self {
        unsafe extern "C-unwind" fn call(object: NonNull<u8>, function: *mut c_void) {
            // SAFETY: stored below; who calls a hook keeps its function's contract.
            unsafe { mem::transmute::<*mut c_void, unsafe fn(NonNull<u8>)>(function)(object) }
        }
        Self { function: call, context: function as *mut c_void }
    }

    /// A function, and what it is called with.
    pub const fn with_context(function: ContextFn, context: *mut c_void) -> Self {
        Self { function, context }
    }

    /// # Safety
    /// The contract of the function: see [`RawCache::with_hooks`](crate::RawCache::with_hooks).
    pub(crate) unsafe fn call(self, object: NonNull<u8>) {
        // SAFETY: by contract.
        unsafe { (self.function)(object, self.context) }
    }
}
