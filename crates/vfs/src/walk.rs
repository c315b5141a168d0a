//! Path walk: from a path to what it stands for.
//!
//! # The problem
//!
//! Every system call that takes a path looks at a directory for each component. Whoever locks or counts each of them writes
//! the lines of `/`, of `/usr`, of the working directory: lines that all threads of a machine need.
//!
//! # The contended way
//!
//! Until 2010 each component took `dcache_lock`, or the dentry's own lock, and a reference: six locked instructions for
//! a path of three components, on lines that everybody else writes too.
//!
//! # Our way
//!
//! The walk goes through in one read section and writes nothing. Each directory is looked at again after its child has been
//! found, by its sequence count, so that each step was right at one moment. Only what the caller wants to keep is counted, at
//! the end, and looked at once more when it is. If anything moved, the walk starts again and holds on to each step; both ways
//! of walking are one description ([`run`](run::Walk)) over one set of steps. What nearly all walks are made of, names of
//! directories that may be searched, a third one goes through before, [`fast`], which leaves all that is not ordinary to `run`.
//!
//! ```text
//!   look  ── by RCU ──> closure in the section                      stat, access, readlink
//!     │ something moved, or must be asked for
//!     └── by reference ──> closure in a section of its own
//!   path  ── by RCU ──> mount: get, still mounted? ──> dentry: get unless dead, still there? ──> Path      open, chdir
//!     └── by reference ──> Path
//!   parent: the same, to the directory of the last component                                  rename
//!   quick_parent: to that by RCU ── leave, mounted? ── its lock, still there? ──> closure     unlink, mkdir
//!   quick_keeping: the same, with a reference to the mount                                    creat
//!   quick_parents: the same for two paths, of which the second is not walked if it is like the first    rename, link
//! ```
//!
//! # Guarantees
//!
//! * Errors are Linux's, in Linux's order: `ENOENT`, `ENOTDIR`, `ELOOP` (40 links), `EACCES`, `ENAMETOOLONG`, `EXDEV`, `EAGAIN`.
//! * A walk by RCU executes no locked instruction and writes no shared line; it holds no reference when it fails. A symbolic
//!   link that is followed gets its time of access when that is due (`relatime`): once after a change, then once a day.
//! * What [`path`](Vfs::path) returns was there, mounted and by its name, after its references had been taken.
//!
//! # Limits
//!
//! A path is not walked in one moment but in as many as it has components, as in the kernel.
//!
//! # Source
//!
//! `fs/namei.c`, `Documentation/filesystems/path-lookup.rst`; `path_resolution(7)`, `openat2(2)`.

mod ask;
mod by_rcu;
mod by_reference;
mod component;
mod d_path;
mod fast;
mod how;
mod last;
mod mode;
mod quick;
mod run;
mod step;

pub(crate) use ask::ask;
pub use component::{MAXSYMLINKS, PATH_MAX};
pub use d_path::Reach;
pub use how::{How, Lookup, Resolve};
pub use last::{Last, LastKind};
pub(crate) use step::maybe_mounted;

use crate::cred::Cred;
use crate::dentry::Dentry;
use crate::inode::{Inode, Requester};
use crate::namespace::MountFlags;
use crate::raw::dcache::seen::Section;
use crate::raw::mount::TreeMount;
use crate::raw::walk_fs::FsStruct;
use crate::raw::walk_path::{Debris, Path, PathRef, Spot};
use crate::vfs::Vfs;
use by_rcu::ByRcu;
use by_reference::ByReference;
use fast::{Quickly, Until};
use mode::Stop;
use run::Walk;
use rustix::io::Errno;

/// Where a walk begins: at a process's root for a path that begins with a slash, else in a directory.
#[derive(Debug, Clone, Copy)]
pub struct Start<'s, 'k> {
    pub(crate) fs: &'s FsStruct<'k>,
    /// None: the working directory.
    dir: Option<PathRef<'s, 'k>>,
}

impl<'s, 'k> Start<'s, 'k> {
    /// In the working directory (`AT_FDCWD`).
    #[inline]
    pub fn cwd(fs: &'s FsStruct<'k>) -> Self {
        Self { fs, dir: None }
    }

    /// At a directory that is open.
    #[inline]
    pub fn at(fs: &'s FsStruct<'k>, dir: PathRef<'s, 'k>) -> Self {
        Self { fs, dir: Some(dir) }
    }
}

/// What a walk found, for as long as the closure that it is given to runs.
#[derive(Debug, Clone, Copy)]
pub struct Found<'g, 'k> {
    spot: Spot<'g, 'k>,
    inode: &'g Inode,
}

impl<'g, 'k> Found<'g, 'k> {
    #[inline]
    fn new(spot: Spot<'g, 'k>) -> Result<Self, Stop> {
        // What a walk has found stands for something, and does so to its end.
        let inode = spot.seen.inode().ok_or(Stop::Errno(Errno::NOENT))?;
        Ok(Self { spot, inode })
    }

    /// The mount.
    #[inline]
    pub fn mount(&self) -> &'g TreeMount {
        self.spot.mount
    }

    /// The dentry.
    #[inline]
    pub fn dentry(&self) -> &'g Dentry {
        self.spot.seen.dentry()
    }

    /// The inode.
    #[inline]
    pub fn inode(&self) -> &'g Inode {
        self.inode
    }

    /// Whether it is the root of its mount.
    pub fn is_mount_root(&self) -> bool {
        self.spot.mount.root().same(&self.spot.seen)
    }
}

impl Vfs {
    /// Walks to what a path stands for, and calls `f` with it, once, inside a read section: for calls that need it no longer.
    /// `f` must be short, and must not wait.
    ///
    /// Writes no shared line, unless something moves meanwhile or a filesystem must be asked.
    ///
    /// # Errors
    /// Those of a walk: see the module.
    #[inline]
    pub fn look<'k, R>(
        &'k self,
        start: &Start<'_, 'k>,
        path: &[u8],
        how: How,
        cred: &Cred,
        f: impl FnOnce(&Found<'_, 'k>) -> R,
    ) -> Result<R, Errno> {
        component::check(path)?;
        {
            let section = self.read();
            match self.by_rcu(*start, path, how, cred, &section).and_then(Found::new) {
                Ok(found) => return Ok(f(&found)),
                Err(Stop::Errno(errno)) => return Err(errno),
                Err(Stop::Retry) => {}
            }
        }
        let place = self.by_reference(*start, path, how, cred)?;
        let section = self.read();
        match Found::new(place.spot(&section)) {
            Ok(found) => Ok(f(&found)),
            Err(_) => Err(Errno::NOENT),
        }
    }

    /// [`look`](Self::look) inside a read section that is open.
    ///
    /// Writes no shared line.
    ///
    /// # Errors
    /// Those of a walk, or `None` if the walk must start again by reference, outside the section.
    #[inline(always)]
    pub fn look_fast<'g, 'k>(
        &'k self,
        start: Start<'g, 'k>,
        path: &[u8],
        how: How,
        cred: &Cred,
        section: &'g Section,
    ) -> Result<Found<'g, 'k>, Option<Errno>> {
        let spot = self.walk_fast(start, path, how, cred, section)?;
        // The inode of what a walk has found stays to the end of the section.
        match spot.seen.inode() {
            Some(inode) => Ok(Found { spot, inode }),
            None => Err(Some(Errno::NOENT)),
        }
    }

    /// Walks to a path's object inside a read section that is open.
    ///
    /// # Errors
    /// As [`look_fast`](Self::look_fast).
    #[inline(always)]
    pub(crate) fn walk_fast<'g, 'k>(
        &'k self,
        start: Start<'g, 'k>,
        path: &[u8],
        how: How,
        cred: &Cred,
        section: &'g Section,
    ) -> Result<Spot<'g, 'k>, Option<Errno>> {
        component::check(path).map_err(Some)?;
        match self.by_rcu(start, path, how, cred, section) {
            Ok(spot) => Ok(spot),
            Err(Stop::Errno(errno)) => Err(Some(errno)),
            Err(Stop::Retry) => Err(None),
        }
    }

    /// Walks to what a path stands for, and takes references to it: two, of which that to the mount is to the CPU's own line.
    ///
    /// # Errors
    /// Those of a walk: see the module.
    pub fn path<'k>(
        &'k self,
        start: &Start<'_, 'k>,
        path: &[u8],
        how: How,
        cred: &Cred,
    ) -> Result<Path<'k>, Errno> {
        component::check(path)?;
        let mut debris = Debris::default();
        {
            let section = self.read();
            match self.by_rcu(*start, path, how, cred, &section) {
                Ok(spot) => {
                    if let Some(place) = spot.acquire(self, &section, &mut debris) {
                        return Ok(place);
                    }
                }
                Err(Stop::Errno(errno)) => return Err(errno),
                Err(Stop::Retry) => {}
            }
        }
        drop(debris);
        self.by_reference(*start, path, how, cred)
    }

    /// Walks to the directory of a path's last component, for those who make, remove or rename what it names; with
    /// [`Lookup::FOLLOW`] through a symbolic link in the last place, to where it leads. References to the directory, and the
    /// component.
    ///
    /// The component is not looked up (but for being a link): whoever locks the directory does that.
    ///
    /// # Errors
    /// Those of a walk: see the module.
    pub fn parent<'k, 'p>(
        &'k self,
        start: &Start<'_, 'k>,
        path: &'p [u8],
        how: How,
        cred: &Cred,
    ) -> Result<(Path<'k>, Last<'p>), Errno> {
        component::check(path)?;
        let mut debris = Debris::default();
        {
            let section = self.read();
            match self.parent_by_rcu(*start, path, how, cred, &section) {
                Ok((spot, last)) => {
                    if let Some(place) = spot.acquire(self, &section, &mut debris) {
                        return Ok((place, last));
                    }
                }
                Err(Stop::Errno(errno)) => return Err(errno),
                Err(Stop::Retry) => {}
            }
        }
        drop(debris);
        if how.resolve.contains(Resolve::CACHED) {
            return Err(Errno::AGAIN);
        }
        let mode = ByReference { vfs: self, start: *start };
        finish(Walk::new(mode, cred, how).parent(path))
    }

    #[inline(always)]
    fn by_rcu<'g, 'k>(
        &'k self,
        start: Start<'g, 'k>,
        path: &[u8],
        how: How,
        cred: &Cred,
        section: &'g Section,
    ) -> Result<Spot<'g, 'k>, Stop> {
        let follow = how.lookup.contains(Lookup::FOLLOW);
        match self.quickly(&start, path, how, cred, section, Until::Object { follow }) {
            Quickly::There(spot)
                if how.lookup.contains(Lookup::DIRECTORY) && !step::is_directory(&spot.seen) =>
            {
                Err(Stop::Errno(Errno::NOTDIR))
            }
            Quickly::There(spot) => Ok(spot),
            Quickly::Nothing => Err(Stop::Errno(Errno::NOENT)),
            Quickly::Onwards(at, pos) => {
                self.onwards(start, at, path.get(pos..).unwrap_or(&[]), how, cred, section)
            }
            // Only until the parent.
            Quickly::Short(..) | Quickly::No => self.by_the_rules(start, path, how, cred, section),
        }
    }

    /// Walks as far as nothing is out of the ordinary.
    #[inline(always)]
    fn quickly<'g, 'k>(
        &'k self,
        start: &Start<'g, 'k>,
        path: &[u8],
        how: How,
        cred: &Cred,
        section: &'g Section,
        until: Until,
    ) -> Quickly<'g, 'k> {
        let at = match (path.first(), start.dir) {
            (None, _) => return Quickly::No,
            _ if !how.resolve.is_empty() => return Quickly::No,
            (Some(b'/'), _) => start.fs.root(section),
            (_, Some(dir)) => dir.spot(section),
            _ => start.fs.pwd(section),
        };
        fast::quickly(self, section, cred, at, path, until)
    }

    #[inline(never)]
    fn onwards<'g, 'k>(
        &'k self,
        start: Start<'g, 'k>,
        at: Spot<'g, 'k>,
        rest: &[u8],
        how: How,
        cred: &Cred,
        section: &'g Section,
    ) -> Result<Spot<'g, 'k>, Stop> {
        let walk = Walk::new(ByRcu { vfs: self, section, start }, cred, how).object_from(at, rest);
        walk.and_then(step::current)
    }

    #[inline(never)]
    fn by_the_rules<'g, 'k>(
        &'k self,
        start: Start<'g, 'k>,
        path: &[u8],
        how: How,
        cred: &Cred,
        section: &'g Section,
    ) -> Result<Spot<'g, 'k>, Stop> {
        Walk::new(ByRcu { vfs: self, section, start }, cred, how)
            .object(path)
            .and_then(step::current)
    }

    #[inline(always)]
    fn parent_by_rcu<'g, 'k, 'p>(
        &'k self,
        start: Start<'g, 'k>,
        path: &'p [u8],
        how: How,
        cred: &Cred,
        section: &'g Section,
    ) -> Result<(Spot<'g, 'k>, Last<'p>), Stop> {
        match self.quickly(&start, path, how, cred, section, Until::Parent) {
            Quickly::Nothing => Err(Stop::Errno(Errno::NOENT)),
            Quickly::Onwards(at, pos) => {
                let rest = path.get(pos..).unwrap_or(&[]);
                if !how.lookup.contains(Lookup::FOLLOW)
                    && !step::has_own_rules(&at.seen)
                    && let Some(last) = last::alone(rest)
                {
                    return Ok((at, Last::of_path(last)));
                }
                self.parent_onwards(start, Some(at), rest, how, cred, section)
            }
            Quickly::Short(at, begin, end)
                if !how.lookup.contains(Lookup::FOLLOW) && !step::has_own_rules(&at.seen) =>
            {
                Ok((at, Last::of_path((&path[begin..end], end != path.len()))))
            }
            Quickly::Short(at, begin, ..) => {
                let rest = path.get(begin..).unwrap_or(&[]);
                self.parent_onwards(start, Some(at), rest, how, cred, section)
            }
            Quickly::There(_) | Quickly::No => {
                self.parent_onwards(start, None, path, how, cred, section)
            }
        }
    }

    #[inline(never)]
    fn parent_onwards<'g, 'k, 'p>(
        &'k self,
        start: Start<'g, 'k>,
        at: Option<Spot<'g, 'k>>,
        rest: &'p [u8],
        how: How,
        cred: &Cred,
        section: &'g Section,
    ) -> Result<(Spot<'g, 'k>, Last<'p>), Stop> {
        let mut walk = Walk::new(ByRcu { vfs: self, section, start }, cred, how);
        match at {
            Some(at) => walk.parent_from(at, rest),
            None => walk.parent(rest),
        }
    }

    #[cold]
    #[inline(never)]
    fn by_reference<'k>(
        &'k self,
        start: Start<'_, 'k>,
        path: &[u8],
        how: How,
        cred: &Cred,
    ) -> Result<Path<'k>, Errno> {
        if how.resolve.contains(Resolve::CACHED) {
            return Err(Errno::AGAIN);
        }
        let place = finish(Walk::new(ByReference { vfs: self, start }, cred, how).object(path))?;
        ask::refresh(&place, &Requester { fs: start.fs, cred })?;
        Ok(place)
    }

    /// [`path`](Self::path) by reference from the beginning, for tests and to compare.
    ///
    /// # Errors
    /// As [`path`](Self::path).
    pub fn path_by_reference<'k>(
        &'k self,
        start: &Start<'_, 'k>,
        path: &[u8],
        how: How,
        cred: &Cred,
    ) -> Result<Path<'k>, Errno> {
        component::check(path)?;
        self.by_reference(*start, path, how, cred)
    }
}

fn finish<T>(walked: Result<T, Stop>) -> Result<T, Errno> {
    walked.map_err(|stop| match stop {
        Stop::Errno(errno) => errno,
        // A walk by reference takes its steps until they hold.
        Stop::Retry => Errno::AGAIN,
    })
}

/// Whether a mount follows no symbolic links.
fn no_symlinks(mount: &TreeMount) -> bool {
    mount.flags().contains(MountFlags::NOSYMFOLLOW)
}

/// A point in time, as far as moves of mounts and of directories are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    mounts: u32,
    moves: u64,
}

impl Moment {
    fn now(vfs: &Vfs) -> Self {
        Self { mounts: vfs.mounts.seq().read_begin(), moves: ask::moves(vfs) }
    }

    fn is_past(self, vfs: &Vfs) -> bool {
        vfs.mounts.seq().read_retry(self.mounts) || ask::moves(vfs) != self.moves
    }
}
