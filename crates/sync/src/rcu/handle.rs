//! Handles that own a domain.

use super::Domain;
use crate::Shared;
use core::fmt;
use core::ops::Deref;
use core::pin::Pin;
use core::ptr::NonNull;
use quietline_platform::AllocError;

/// An owner of a domain: a reference to one that lives as long as the process, or a counted
/// reference to one that ends with its last handle.
///
/// A borrow of a domain is enough for a [`Pointer`](super::Pointer), an [`RcuBox`](super::RcuBox)
/// or a [`RetireQueue`](super::RetireQueue). An object that other code can reach until its own end,
/// even if its owner leaks it, needs a handle: a slab cache does, because reclaim finds it in the
/// list of all caches.
///
/// The drop of the last handle ends the domain, which runs all its callbacks in that thread: see
/// [`Domain`]. A queued callback that owns a handle of its own domain keeps the domain alive until
/// the callback runs.
///
/// ```
/// use quietline_sync::rcu::DomainHandle;
/// use std::sync::Arc;
///
/// let tenant = DomainHandle::new()?;
/// let value = Arc::new(7);
/// tenant.retire(value.clone()).expect("memory");
/// let other = tenant.clone();
/// std::thread::spawn(move || drop(other)).join().unwrap();
/// assert_eq!(Arc::strong_count(&value), 2);
/// drop(tenant);
/// assert_eq!(Arc::strong_count(&value), 1);
/// # Ok::<(), quietline_platform::AllocError>(())
/// ```
#[derive(Clone)]
pub struct DomainHandle {
    domain: NonNull<Domain>,
    /// Keeps the domain, unless it lives as long as the process.
    _owner: Option<Shared<Pin<Box<Domain>>>>,
}

// SAFETY: a shared reference to a domain, which is `Sync`, with its owner.
unsafe impl Send for DomainHandle {}
// SAFETY: as above.
unsafe impl Sync for DomainHandle {}

impl DomainHandle {
    /// Returns the first handle of a new domain.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn new() -> Result<Self, AllocError> {
        let owner = Shared::new(Domain::new()?)?;
        Ok(Self { domain: NonNull::from(&**owner), _owner: Some(owner) })
    }
}

impl From<&'static Domain> for DomainHandle {
    fn from(domain: &'static Domain) -> Self {
        Self { domain: NonNull::from(domain), _owner: None }
    }
}

impl Deref for DomainHandle {
    type Target = Domain;

    #[inline(always)]
    fn deref(&self) -> &Domain {
        // SAFETY: the owner keeps it, or it lives as long as the process.
        unsafe { self.domain.as_ref() }
    }
}

impl fmt::Debug for DomainHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
