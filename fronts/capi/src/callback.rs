//! C functions with a context, set once in a while and called from anywhere.

use core::ffi::c_void;
use core::ptr;
use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_platform::{AllocError, heap};

/// A function and what it is called with; none at first. What is replaced is kept for ever, because another thread may be
/// calling it: a few words for each change.
#[derive(Debug)]
pub(crate) struct Callback<F> {
    current: AtomicPtr<Kept<F>>,
}

#[derive(Debug)]
struct Kept<F> {
    pair: Pair<F>,
    /// What it replaced.
    _older: *mut Kept<F>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair<F> {
    pub(crate) function: F,
    pub(crate) context: *mut c_void,
}

impl<F: Copy> Callback<F> {
    pub(crate) const fn new() -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()) }
    }

    /// # Errors
    /// [`AllocError`]; then the old one stays.
    pub(crate) fn set(&self, function: F, context: *mut c_void) -> Result<(), AllocError> {
        let fresh = Kept { pair: Pair { function, context }, _older: ptr::null_mut() };
        let fresh = Box::into_raw(heap::try_box(fresh)?);
        // ORDERING: acquire and release pair with the same in `get` and here: who finds a pair finds what is in it. Who still
        // finds the old one calls that.
        let mut older = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: leaked above, and not yet shared.
            unsafe { (*fresh)._older = older };
            match self.current.compare_exchange(older, fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(other) => older = other,
            }
        }
    }

    pub(crate) fn get(&self) -> Option<Pair<F>> {
        // ORDERING: see `set`.
        let kept = self.current.load(Ordering::Acquire);
        // SAFETY: null, or leaked by `set`.
        unsafe { kept.as_ref() }.map(|kept| kept.pair)
    }
}
