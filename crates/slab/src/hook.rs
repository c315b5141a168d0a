//! Functions that a cache calls for its objects.

use core::ffi::c_void;
use core::mem;
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind};

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

    /// A hook that drops the `T` in an object. A panic of the drop is reported as panics are and
    /// ends there: the thread that happens to call the hook has nothing to do with the object.
    /// `None` if a `T` needs no drop.
    ///
    /// The hook's contract: the object holds a `T` that nobody uses any more, and that may be
    /// dropped on any thread.
    pub(crate) fn drop_of<T>() -> Option<Self> {
        unsafe fn drop_contained<T>(object: NonNull<u8>) {
            // SAFETY: by the hook's contract.
            let end = || unsafe { object.cast::<T>().drop_in_place() };
            // Nobody can see the value half dropped: it is gone.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(end)) {
                // Dropping a payload may panic again.
                mem::forget(payload);
            }
        }
        mem::needs_drop::<T>().then_some(Self::new(drop_contained::<T>))
    }

    /// # Safety
    /// The contract of the function: see [`RawCache::with_hooks`](crate::RawCache::with_hooks).
    pub(crate) unsafe fn call(self, object: NonNull<u8>) {
        // SAFETY: by contract.
        unsafe { (self.function)(object, self.context) }
    }
}
