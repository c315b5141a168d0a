//! What a walk needs of the way in which it walks.

use crate::cred::Cred;
use rustix::io::Errno;

/// Why a walk ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// For good.
    Errno(Errno),
    /// Something changed under its feet, or must be asked for where nobody may wait: it starts again, by reference.
    Retry,
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// What a walk tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Directory,
    Symlink,
    Other,
}

/// Where a symbolic link leads.
pub(crate) enum Link<'b, At> {
    /// Along a path.
    Body(&'b [u8]),
    /// Along a path that was made for who asked.
    Made(Box<[u8]>),
    /// To an object.
    Jump(At),
}

/// A way of walking: in one read section without a reference, or with a reference at each step.
pub(crate) trait Mode {
    /// Where a walk is.
    type At;
    /// A point in time, as far as moves and mounts are concerned.
    type Moment;

    /// Where the process's root is.
    fn root(&self) -> Result<Self::At, Stop>;
    /// Where a relative path begins.
    fn start(&self) -> Result<Self::At, Stop>;
    /// Whether that is the working directory.
    fn starts_at_cwd(&self) -> bool;
    /// The same place once more.
    fn copy(&self, at: &Self::At) -> Self::At;
    /// What it is; the name is known to stand for something.
    fn kind(&self, at: &Self::At) -> Type;
    /// `EACCES` unless names may be looked up in a directory.
    fn may_search(&self, at: &Self::At, cred: &Cred) -> Result<(), Stop>;
    /// What a name in a directory stands for; none if nothing.
    fn child(&self, at: &Self::At, name: &[u8], cred: &Cred) -> Result<Option<Self::At>, Stop>;
    /// Whether to ask [`cross`](Self::cross).
    fn maybe_mounted(&self, at: &Self::At) -> bool;
    /// The root of what is mounted on it, if anything is; whether that is so.
    fn cross(&self, at: Self::At) -> Result<(Self::At, bool), Stop>;
    /// The directory that it is in; it is not the root of a mount.
    fn parent(&self, at: &Self::At) -> Result<Self::At, Stop>;
    /// The mountpoint that the root of a mount is on, beneath all that are stacked there; none if it is on none, or on
    /// `root`.
    fn above(&self, at: &Self::At, root: &Self::At) -> Result<Option<Self::At>, Stop>;
    /// Whether it is its mount's root.
    fn is_mount_root(&self, at: &Self::At) -> bool;
    /// Whether both are one place.
    fn same(&self, a: &Self::At, b: &Self::At) -> bool;
    /// Whether both are in one mount.
    fn same_mount(&self, a: &Self::At, b: &Self::At) -> bool;
    /// Whether its mount follows no symbolic links.
    fn no_symlinks(&self, at: &Self::At) -> bool;
    /// Where the link leads.
    fn link<'b>(&self, at: &'b Self::At, cred: &Cred) -> Result<Link<'b, Self::At>, Stop>;
    /// Now.
    fn moment(&self) -> Self::Moment;
    /// Whether anything was moved or mounted since then.
    fn has_moved(&self, since: &Self::Moment) -> bool;
}
