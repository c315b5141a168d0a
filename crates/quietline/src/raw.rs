//! The unsafe part of this crate: a few promises about who outlives whom.
//!
//! ```text
//!   Process ── owns ──> Kernel ── Inner ── owns ──> Vfs, Files, caches       at one address for their lives
//!      ├── FdTable, FsStruct ── refer to what is in Inner; they go first
//!      └── (Inner) Namespace ── refers to Vfs; it goes first
//! ```

#![allow(unsafe_code)]

mod caller;
mod ending;

use crate::Errno;
use crate::kernel::Inner;
use core::mem::transmute;
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicPtr, Ordering};
use quietline_platform::heap;
use quietline_sync::rcu::{self, Domain, DomainSet, Guard, Head, StaticDomain};
use quietline_vfs::cred::{Cred, CredCell};
use quietline_vfs::{FdTable, FsStruct, Namespace, Section, Vfs};

/// A table for a [`Process`](crate::Process), and for nobody else.
pub(crate) fn table(limit: usize) -> Result<FdTable, Errno> {
    // SAFETY: a process owns its kernel, in which all of the kernel's files and filesystems lie at one address, and
    // clears its table before it lets go of the kernel. It installs only files that its own methods have opened on
    // that kernel, or that `install_file` has found to be of the kernel's `Files`; and only a kernel opens files on its
    // `Files`, on its own filesystems.
    unsafe { FdTable::new(limit) }.map_err(|_| Errno::NOMEM)
}

/// A namespace for the kernel whose [`Vfs`] it is of, which drops it before that.
pub(crate) fn namespace(of: Namespace<'_>) -> Namespace<'static> {
    // SAFETY: only the lifetime changes: the kernel keeps the file systems, boxed, until the namespace is gone.
    unsafe { transmute::<Namespace<'_>, Namespace<'static>>(of) }
}

/// The place in the tree of a process, which drops it before its kernel.
pub(crate) fn place(of: FsStruct<'_>) -> FsStruct<'static> {
    // SAFETY: only the lifetime changes: the process keeps the kernel until its place is gone, and methods put only paths
    // there that they have found in that kernel.
    unsafe { transmute::<FsStruct<'_>, FsStruct<'static>>(of) }
}

/// A process's place in the tree, for a call of it.
#[inline(always)]
pub(crate) fn here<'k>(of: &'k FsStruct<'static>) -> &'k FsStruct<'k> {
    // SAFETY: only the lifetime changes. What is put there by way of this is a path that a method has found in the process's
    // own kernel, which the process keeps until its place is gone.
    unsafe { transmute::<&'k FsStruct<'static>, &'k FsStruct<'k>>(of) }
}

/// A kernel's file systems, for a namespace or a place in them.
pub(crate) fn vfs(of: &Vfs) -> &'static Vfs {
    // SAFETY: as for those.
    unsafe { transmute::<&Vfs, &'static Vfs>(of) }
}

/// A kernel, for what is in its own file systems: those are gone when it is, but for memory that waits for a grace period, in which
/// this is not followed any more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelRef(NonNull<Inner>);

// SAFETY: a kernel is shared by design.
unsafe impl Send for KernelRef {}
// SAFETY: as above.
unsafe impl Sync for KernelRef {}

impl KernelRef {
    /// For nodes of a filesystem on the kernel's own [`Vfs`], and for nobody else.
    pub(crate) fn of(kernel: &Inner) -> Self {
        Self(NonNull::from(kernel))
    }

    /// The kernel, whose file systems the caller has.
    pub(crate) fn get(self, vfs: &Vfs) -> &Inner {
        // SAFETY: who asks a node has borrowed the file systems that it is on, and so the kernel that they are a field of, which is
        // at one address for its life.
        let kernel = unsafe { self.0.as_ref() };
        assert!(core::ptr::eq(&*kernel.vfs, vfs), "a node is asked on its own kernel");
        kernel
    }
}

/// A process's credentials: read by its calls while other threads change them.
///
/// Replaced credentials stay for two grace periods in a row: that of the calls that may wait, then
/// that of the walks.
#[derive(Debug)]
pub(crate) struct CredPlace {
    now: AtomicPtr<Somebody>,
    /// The domain of the calls that may wait.
    domain: &'static Domain,
    /// The domain of the walks.
    walks: &'static Domain,
    /// Both.
    domains: DomainSet,
}

#[repr(C)]
struct Somebody {
    head: Head,
    /// The domain of the walks.
    walks: &'static Domain,
    cred: Cred,
}

impl CredPlace {
    pub(crate) fn new(cred: Cred) -> Result<Self, Errno> {
        let domain = cred_domain()?;
        let walks = rcu::global().map_err(|_| Errno::NOMEM)?;
        let somebody =
            heap::try_box(Somebody { head: Head::new(), walks, cred }).map_err(|_| Errno::NOMEM)?;
        let domains = DomainSet::new(&[domain, walks]);
        Ok(Self { now: AtomicPtr::new(Box::into_raw(somebody)), domain, walks, domains })
    }

    /// Opens a section, for as long as somebody's credentials are looked at.
    #[inline(always)]
    pub(crate) fn section(&self) -> Guard<'static> {
        self.domain.read()
    }

    /// Passes credentials that no call reads any more on to the domain of the walks.
    pub(crate) fn pass_on_replaced(&self) {
        self.domain.poll();
    }

    /// Runs the thread's share of the callbacks that free what calls have retired.
    #[inline(always)]
    pub(crate) fn run_share(&self) {
        if self.domains.is_pending() {
            rcu::run_pending(&[self.domain, self.walks]);
        }
    }

    /// Who it is now.
    #[inline(always)]
    pub(crate) fn load<'g>(&'g self, section: &'g Guard<'static>) -> &'g Cred {
        debug_assert!(core::ptr::eq(section.domain(), self.domain));
        // ORDERING: pairs with the release in `replace`: who finds somebody finds him made.
        // SAFETY: never null; what is replaced is freed when the sections are over that might have found it.
        unsafe { &(*self.now.load(Ordering::Acquire)).cred }
    }

    /// Puts `new` in the place of `current`, which the section has found, if it is there still; whether it was.
    pub(crate) fn replace(
        &self,
        current: &Cred,
        new: Cred,
        _section: &Guard<'static>,
    ) -> Result<bool, Errno> {
        unsafe fn free(head: NonNull<Head>) {
            // SAFETY: the head is the first field of a box, and nobody can see it any more.
            drop(unsafe { Box::from_raw(head.cast::<Somebody>().as_ptr()) });
        }
        unsafe fn wait_for_walks(head: NonNull<Head>) {
            // SAFETY: the head is the first field of a box that no call sees any more and no walk
            // finds; it is unqueued.
            unsafe { head.cast::<Somebody>().as_ref().walks.call(head, free) };
        }
        let new = heap::try_box(Somebody { head: Head::new(), walks: self.walks, cred: new })
            .map_err(|_| Errno::NOMEM)?;
        let new = Box::into_raw(new);
        let now = self.now.load(Ordering::Relaxed);
        // SAFETY: it was there in the section, so it is not freed.
        let same = unsafe { core::ptr::eq(&(*now).cred, current) };
        // ORDERING: release publishes the new one; acquire sees the old one's head made.
        if !same
            || self.now.compare_exchange(now, new, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            // SAFETY: made above, and nobody has seen it.
            drop(unsafe { Box::from_raw(new) });
            return Ok(false);
        }
        // SAFETY: never null, and a section that begins later does not find it.
        unsafe { self.domain.call(NonNull::new_unchecked(now).cast(), wait_for_walks) };
        Ok(true)
    }
}

impl CredCell for CredPlace {
    #[inline(always)]
    fn load_in_walk<'g>(&'g self, section: &'g Section) -> &'g Cred {
        debug_assert!(core::ptr::eq(section.guard().domain(), self.walks));
        // ORDERING: as in `load`.
        // SAFETY: never null; replaced credentials are freed when the walks are over that might
        // have found them.
        unsafe { &(*self.now.load(Ordering::Acquire)).cred }
    }
}

impl Drop for CredPlace {
    fn drop(&mut self) {
        // SAFETY: nobody else has it: a box that was never replaced.
        drop(unsafe { Box::from_raw(self.now.load(Ordering::Relaxed)) });
    }
}

impl core::fmt::Debug for Somebody {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.cred.fmt(f)
    }
}

/// The domain of those who look at credentials: a domain of its own, because a call does so from its beginning to its end,
/// and waits for locks meanwhile.
///
/// # Errors
/// `ENOMEM`.
fn cred_domain() -> Result<&'static Domain, Errno> {
    static DOMAIN: StaticDomain = StaticDomain::new();
    DOMAIN.get().map_err(|_| Errno::NOMEM)
}
