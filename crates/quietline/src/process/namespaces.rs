//! Mount namespaces of processes.

use super::Task;
use crate::abi::{AT_FDCWD, CLONE_FILES, CLONE_FS, CLONE_NEWNS};
use crate::kernel::Inner;
use crate::paths::checked;
use crate::{Errno, Process};
use core::ops::Deref;
use quietline_sync::{Shared, SpinLock};
use quietline_vfs::cred::Capabilities;
use quietline_vfs::{How, Lookup, Namespace};

const DIRECTORY: How = How::of(Lookup::FOLLOW.union(Lookup::DIRECTORY));

/// A namespace that processes own; none before it is made.
type Own = Shared<Option<Namespace<'static>>>;

/// The mount namespace of a process: none of its own is the kernel's first.
#[derive(Debug, Default)]
pub(crate) struct NamespaceCell(SpinLock<Option<Own>>);

/// The namespace of a process, for a call. It lasts as long.
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
    /// One with the same namespace, for a child.
    pub(super) fn duplicate(&self) -> Self {
        Self(SpinLock::new(self.0.lock().clone()))
    }
}

impl Task {
    /// The mount namespace, which a call of another thread may replace meanwhile.
    pub(crate) fn namespace<'k>(&self, k: &'k Inner) -> NamespaceOf<'k> {
        match &*self.namespace.0.lock() {
            None => NamespaceOf::First(&k.namespace),
            Some(own) => NamespaceOf::Own(own.clone()),
        }
    }
}

impl Process {
    /// Gives the process a mount namespace of its own, a copy of the one that it was in
    /// (`CLONE_NEWNS`). Children are in their parent's. `CLONE_FS` and `CLONE_FILES` change
    /// nothing: a process shares neither its place nor its descriptors.
    ///
    /// # Errors
    /// `EINVAL` for another flag; `EPERM` without `CAP_SYS_ADMIN`; `ENOMEM`.
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
        let mut new: Own = Shared::new(None).map_err(|_| Errno::NOMEM)?;
        let made = Shared::get_mut(&mut new).expect("no other thread has seen it");
        // Moves the process into it: nothing may fail after this.
        *made = Some(self.task.namespace(self.inner()).duplicate(&self.fs)?);
        let old = self.namespace.0.lock().replace(new);
        drop(old);
        self.returning(Ok(()))
    }

    /// Makes the mount at `new_root` the root of the mount tree, and mounts the one that was at
    /// `put_old`. Processes whose root or working directory was the old root are then in the new
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
