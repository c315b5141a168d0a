//! The unsafe part of this crate: a pointer that is set once, and promises about who outlives whom.
//!
//! ```text
//!   Kernel ── owns ──> Net, files, sockets' caches
//!     Socket ── refers to ──> Net        a socket is a file's, and files end before their kernel
//!     message ── holds ──> files         messages are sockets'; Net ends what only they hold
//! ```

#![allow(unsafe_code)]

pub(crate) mod caller;

use self::caller::Caller;
use crate::net::Net;
use core::fmt;
use core::mem::transmute;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_sync::Shared;
use quietline_vfs::FileHandle;
use rustix::io::Errno;

/// A counted pointer that is set at most once.
pub(crate) struct Once<T> {
    value: AtomicPtr<T>,
}

// SAFETY: owns a share of the value, like the pointer in it.
unsafe impl<T: Send + Sync> Send for Once<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    /// Not set.
    #[inline(always)]
    pub(crate) fn empty() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Set from the beginning.
    pub(crate) fn of(value: Shared<T>) -> Self {
        Self { value: AtomicPtr::new(Shared::into_raw(value).as_ptr()) }
    }

    /// The value, if it is set. One load.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&T> {
        // ORDERING: pairs with the release in `set`: who finds the value finds it made.
        // SAFETY: never replaced, and kept until this is dropped.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// A share of the value, if it is set.
    pub(crate) fn share(&self) -> Option<Shared<T>> {
        // SAFETY: the value is a `Shared`'s, of which this owns a share.
        self.get().map(|value| unsafe { Shared::again(value) })
    }

    /// Sets it; gives the value back if somebody was quicker.
    pub(crate) fn set(&self, value: Shared<T>) -> Result<&T, Shared<T>> {
        let raw = Shared::into_raw(value);
        // ORDERING: release publishes the value. Relaxed: nothing is read of who was quicker.
        let set =
            self.value.compare_exchange(ptr::null_mut(), raw.as_ptr(), Ordering::Release, Ordering::Relaxed);
        // SAFETY: kept by this if it was set, and otherwise made above, and seen by nobody.
        unsafe { if set.is_ok() { Ok(raw.as_ref()) } else { Err(Shared::from_raw(raw)) } }
    }
}

impl<T> Drop for Once<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // Relaxed: nobody else has it.
        if let Some(value) = NonNull::new(self.value.load(Ordering::Relaxed)) {
            // SAFETY: put there by `set` or `of`, once.
            drop(unsafe { Shared::from_raw(value) });
        }
    }
}

impl<T> fmt::Debug for Once<T> {
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
