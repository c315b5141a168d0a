//! Mount namespaces of processes.

use super::Task;
use crate::abi::{AT_FDCWD, CLONE_FILES, CLONE_FS, CLONE_NEWNS};
use crate::kernel::Inner;
use crate::paths::checked;
use crate::{Errno, Process};
use core::ops::Deref;
use quietline_platform::fork::{Rank, Registered};
use quietline_sync::{LazyBox, Shared, SpinLock};
use quietline_vfs::cred::Capabilities;
use quietline_vfs::{How, Lookup, Namespace};

const DIRECTORY: How = How::of(Lookup::FOLLOW.union(Lookup::DIRECTORY));

/// A mount namespace of processes. `None` until it is made.
type Own = Shared<Option<Namespace<'static>>>;

/// The mount namespace of a process. A process without one of its own is in the kernel's first. The
/// lock is held across forks of the host.
#[derive(Debug, Default)]
pub(crate) struct NamespaceCell(LazyBox<Registered<SpinLock<Option<Own>>>>);

/// A reference to the mount namespace of a process.
pub(crate) enum NamespaceOf<'k> {
    First(&'k Namespace<'static>),
    Own(Own),
}

impl Deref for NamespaceOf<'_> {
    type Target = Namespace<'static>;

    fn deref(&self) -> &Namespace<'static> {
        match self {
            Self::First(namespace) => namespace,
            Self::Own(own) => own.as_ref().expect("made before it is found"),
        }
    }
}

impl NamespaceCell {
    fn own(&self) -> Option<Own> {
        self.0.get()?.lock().clone()
    }

    /// Returns the place of the process's own namespace.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn place(&self) -> Result<&SpinLock<Option<Own>>, Errno> {
        let make = || Registered::new(Rank::Object, SpinLock::new(None));
        self.0.get_or_make(make).map(|own| &**own).map_err(|_| Errno::NOMEM)
    }

    /// Returns a cell with the same namespace, for a child.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn duplicate(&self) -> Result<Self, Errno> {
        let copy = Self::default();
        if let Some(own) = self.own() {
            *copy.place()?.lock() = Some(own);
        }
        Ok(copy)
    }
}

impl Task {
    /// Returns the mount namespace. A call of another thread may replace it meanwhile.
    pub(crate) fn namespace<'k>(&self, k: &'k Inner) -> NamespaceOf<'k> {
        self.namespace.own().map_or(NamespaceOf::First(&k.namespace), NamespaceOf::Own)
    }
}

impl Process {
    /// Gives the process a mount namespace of its own, a copy of the one that it was in
    /// (`CLONE_NEWNS`). Children are in their parent's. `CLONE_FS` and `CLONE_FILES` change
    /// nothing: a process shares neither its place nor its descriptors.
    ///
    /// Calls of other threads meanwhile, among them `fork`, may find the old namespace with the new
    /// root and working directory.
    ///
    /// # Errors
    /// `EINVAL` for another flag; `EPERM` without `CAP_SYS_ADMIN`; `ENOMEM`, and nothing has
    /// changed.
    pub fn unshare(&self, flags: i32) -> Result<(), Errno> {
        if flags & !(CLONE_NEWNS | CLONE_FS | CLONE_FILES) != 0 {
            return Err(Errno::INVAL);
        }
        if flags & CLONE_NEWNS == 0 {
            return Ok(());
        }
        if !self.capabilities().contains(Capabilities::SYS_ADMIN) {
            return Err(Errno::PERM);
        }
        let place = self.namespace.place()?;
        let mut new: Own = Shared::new(None).map_err(|_| Errno::NOMEM)?;
        let made = Shared::get_mut(&mut new).expect("no other thread has seen it");
        // Moves the process into it: nothing may fail after this.
        *made = Some(self.task.namespace(self.inner()).duplicate(&self.fs)?);
        let old = place.lock().replace(new);
        drop(old);
        self.returning(Ok(()))
    }

    /// Makes the mount at `new_root` the root of the mount tree, and mounts the one that was at
    /// `put_old`. A process with the old root as its root or working directory is then in the new
    /// one.
    ///
    /// The first root of a kernel is mounted on nothing and cannot be replaced: a process that
    /// calls this has a root of its own ([`chroot`](Self::chroot)) that is a mount.
    ///
    /// # Errors
    /// As `pivot_root(2)`: `EPERM` without `CAP_SYS_ADMIN`, `EBUSY`, `EINVAL`, `ENOTDIR`, `ENOMEM`,
    /// and those of walks.
    pub fn pivot_root(
        &self,
        new_root: impl AsRef<[u8]>,
        put_old: impl AsRef<[u8]>,
    ) -> Result<(), Errno> {
        if !self.capabilities().contains(Capabilities::SYS_ADMIN) {
            return Err(Errno::PERM);
        }
        let put_old = put_old.as_ref();
        let places = self.walk_at(AT_FDCWD, new_root.as_ref(), 0, |c, new_root| {
            Ok((c.place(new_root, DIRECTORY)?, c.place(checked(put_old)?, DIRECTORY)?))
        });
        self.returning(places.and_then(|(new, old)| {
            let k = self.inner();
            let was = self.task.namespace(k).pivot_root(&new, old, self.here())?;
            // The caller has the old root, so none of the references that are put is the last.
            k.processes.each(|task| task.here().replace(&was, &new));
            Ok(())
        }))
    }
}
