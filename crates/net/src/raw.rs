//! The unsafe part of this crate: counted objects, a pointer that is set once, and promises about who outlives whom.
//!
//! ```text
//!   Kernel ── owns ──> Net, files, sockets' caches
//!     Net ── owns ──> the caches of sockets' states, which outlive sockets
//!     Socket ── refers to ──> Net        a socket is a file's, and files end before their kernel
//!     message ── holds ──> files         messages are sockets'; Net ends what only they hold
//! ```

#![allow(unsafe_code)]

pub(crate) mod caller;
mod object;

pub(crate) use self::object::{Object, Objects};

use self::caller::Caller;
use self::object::Counted;
use crate::net::Net;
use core::fmt;
use core::mem::transmute;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_vfs::FileHandle;
use rustix::io::Errno;

/// A counted pointer that is set at most once.
pub(crate) struct Once<P: Counted> {
    value: AtomicPtr<P::Target>,
}

// SAFETY: owns a share of the value, like the pointer in it.
unsafe impl<P: Counted + Send> Send for Once<P> {}
// SAFETY: as above; what is given out are references to the value, and shares.
unsafe impl<P: Counted + Send + Sync> Sync for Once<P> {}

impl<P: Counted> Once<P> {
    /// Not set.
    #[inline(always)]
    pub(crate) fn empty() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Set from the beginning.
    #[inline(always)]
    pub(crate) fn of(value: P) -> Self {
        Self { value: AtomicPtr::new(P::into_raw(value).as_ptr()) }
    }

    /// The value, if it is set. One load.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&P::Target> {
        // ORDERING: pairs with the release in `set`: who finds the value finds it made.
        // SAFETY: never replaced, and kept until this is dropped.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the value's address, or 0 if it is not set: for a look that orders nothing.
    #[inline(always)]
    pub(crate) fn bits(&self) -> usize {
        // Relaxed: only compared.
        self.value.load(Ordering::Relaxed).addr()
    }

    /// A share of the value, if it is set.
    pub(crate) fn share(&self) -> Option<P> {
        // SAFETY: the value is such a pointer's, of which this owns a share.
        self.get().map(|value| unsafe { P::again(value) })
    }

    /// Sets it; gives the value back if somebody was quicker.
    pub(crate) fn set(&self, value: P) -> Result<&P::Target, P> {
        let raw = P::into_raw(value);
        // ORDERING: release publishes the value. Relaxed: nothing is read of who was quicker.
        let set = self.value.compare_exchange(
            ptr::null_mut(),
            raw.as_ptr(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        // SAFETY: kept by this if it was set, and otherwise made above, and seen by nobody.
        unsafe { if set.is_ok() { Ok(raw.as_ref()) } else { Err(P::from_raw(raw)) } }
    }

    /// Sets it, where nobody can have set it and nobody else does: no locked instruction. (What somebody has set all the same would
    /// never be given back.)
    pub(crate) fn give(&self, value: P) {
        debug_assert!(self.get().is_none(), "set once");
        // ORDERING: Release publishes the value, as in `set`.
        self.value.store(P::into_raw(value).as_ptr(), Ordering::Release);
    }
}

impl<P: Counted> Drop for Once<P> {
    #[inline(always)]
    fn drop(&mut self) {
        // Relaxed: nobody else has it.
        if let Some(value) = NonNull::new(self.value.load(Ordering::Relaxed)) {
            // SAFETY: put there by `set` or `of`, once.
            drop(unsafe { P::from_raw(value) });
        }
    }
}

impl<P: Counted> fmt::Debug for Once<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Once").field(&self.get().is_some()).finish()
    }
}

/// A kernel's sockets, for one of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NetRef(NonNull<Net>);

// SAFETY: shared by design.
unsafe impl Send for NetRef {}
// SAFETY: as above.
unsafe impl Sync for NetRef {}

impl NetRef {
    /// For sockets of the kernel that `net` is of, and for nobody else.
    #[inline(always)]
    pub(crate) fn of(net: &Net) -> Self {
        Self(NonNull::from(net))
    }

    /// The kernel's sockets.
    #[inline(always)]
    pub(crate) fn get(&self) -> &Net {
        // SAFETY: whoever has a socket keeps its file open or is inside a section in which it was, and a kernel outlives its
        // files; what is freed by RCU does not use this any more.
        unsafe { self.0.as_ref() }
    }
}

/// A file of a caller, as a message keeps it.
pub(crate) fn in_flight(who: &dyn Caller, fd: i32) -> Result<FileHandle<'static>, Errno> {
    let file = who.file(fd)?;
    // SAFETY: only the lifetime changes. The file is of the kernel whose sockets ask, says `Caller`; messages lie in sockets of
    // that kernel, which drop them when they are closed. What only messages keep open, `Net` closes when it is dropped, before
    // the kernel's files are.
    Ok(unsafe { transmute::<FileHandle<'_>, FileHandle<'static>>(file) })
}
