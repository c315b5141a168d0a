//! A process's root, working directory and umask.
//!
//! # The contended way
//!
//! Threads of a process that look up paths all count up and down the dentry of its working directory, under a lock that the
//! `fs_struct` had until 2.6.38.
//!
//! # Our way
//!
//! Walkers read the pair of pointers under a sequence count and take no reference. Who changes directory takes a lock, and gives
//! the old references back when all is done.

use super::walk_path::{Debris, Path, PathCell, PathRef, Spot};
use crate::raw::dcache::seen::Section;
use crate::vfs::Vfs;
use core::fmt;
use core::marker::PhantomData;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::fork::{Rank, Registered};
use quietline_sync::{Seqcount, SpinLock};

/// Where a process is in the tree (`struct fs_struct`).
///
/// Places that are put there must live as long as those that were there at first, so a shorter `'k` will not do:
///
/// ```compile_fail
/// use quietline_vfs::{FsStruct, Path};
///
/// fn keeps<'long, 'short>(fs: &FsStruct<'long>, path: Path<'short>)
/// where
///     'long: 'short,
/// {
///     fs.set_pwd(path); // `fs` is no `FsStruct<'short>`
/// }
/// ```
///
/// ```
/// # use quietline_vfs::{FsStruct, Path};
/// fn keeps<'long>(fs: &FsStruct<'long>, path: Path<'long>) {
///     fs.set_pwd(path);
/// }
/// ```
#[repr(align(64))]
pub struct FsStruct<'k> {
    seq: Seqcount,
    umask: AtomicU32,
    /// The process whose place it is, for those who ask who walks; 0: nobody's.
    owner: AtomicU32,
    root: PathCell,
    pwd: PathCell,
    vfs: &'k Vfs,
    /// Held by those who change it, and across every `fork` of the host.
    lock: Registered<SpinLock<()>>,
    /// It takes paths and gives them back: no subtyping.
    of: PhantomData<fn(&'k Vfs) -> &'k Vfs>,
}

// SAFETY: what it has is shared by design, and changed under the lock.
unsafe impl Send for FsStruct<'_> {}
// SAFETY: as above.
unsafe impl Sync for FsStruct<'_> {}

impl<'k> FsStruct<'k> {
    /// With these places, and the umask 022.
    ///
    /// # Errors
    /// [`AllocError`]; the places are given back.
    pub fn new(vfs: &'k Vfs, root: Path<'k>, pwd: Path<'k>) -> Result<Self, AllocError> {
        let lock = Registered::new(Rank::Object, SpinLock::new(()))?;
        Ok(Self {
            seq: Seqcount::new(),
            umask: AtomicU32::new(0o022),
            owner: AtomicU32::new(0),
            root: PathCell::new(root),
            pwd: PathCell::new(pwd),
            vfs,
            lock,
            of: PhantomData,
        })
    }

    /// The kernel's file systems.
    #[inline(always)]
    pub fn vfs(&self) -> &'k Vfs {
        self.vfs
    }

    /// The root, for a walk inside a section. Writes nothing.
    #[inline]
    pub fn root<'g>(&self, section: &'g Section) -> Spot<'g, 'k> {
        self.look(&self.root, section)
    }

    /// The working directory, for a walk inside a section. Writes nothing.
    #[inline]
    pub fn pwd<'g>(&self, section: &'g Section) -> Spot<'g, 'k> {
        self.look(&self.pwd, section)
    }

    #[inline(always)]
    fn look<'g>(&self, cell: &PathCell, section: &'g Section) -> Spot<'g, 'k> {
        loop {
            let began = self.seq.read_begin();
            let halves = cell.halves();
            if !self.seq.read_retry(began) {
                // SAFETY: a pair, at a moment inside the section.
                return unsafe { PathCell::spot(halves, section) };
            }
        }
    }

    /// References to the root. Writes the dentry's second line, and no other that is shared.
    pub fn root_path(&self) -> Path<'k> {
        self.take(&self.root)
    }

    /// References to the working directory. Writes the dentry's second line, and no other that is shared.
    pub fn pwd_path(&self) -> Path<'k> {
        self.take(&self.pwd)
    }

    fn take(&self, cell: &PathCell) -> Path<'k> {
        let mut debris = Debris::default();
        {
            let section = self.vfs.read();
            if let Some(path) = self.look(cell, &section).acquire(self.vfs, &section, &mut debris) {
                return path;
            }
        }
        drop(debris);
        // It was changed meanwhile, or the process is in a mount that is not mounted any more.
        let _locked = self.lock.lock();
        // SAFETY: no other thread replaces it under the lock.
        unsafe { cell.path() }.to_path()
    }

    /// References to both, as they were at one moment.
    pub fn both(&self) -> [Path<'k>; 2] {
        let _locked = self.lock.lock();
        // SAFETY: under the lock nobody replaces them.
        unsafe { [self.root.path().to_path(), self.pwd.path().to_path()] }
    }

    /// Another root (`chroot`).
    pub fn set_root(&self, path: Path<'k>) {
        self.set(&self.root, path);
    }

    /// Another working directory (`chdir`).
    pub fn set_pwd(&self, path: Path<'k>) {
        self.set(&self.pwd, path);
    }

    fn set(&self, cell: &PathCell, path: Path<'k>) {
        let locked = self.lock.lock();
        let old = {
            let _section = self.seq.write();
            // SAFETY: we hold the lock, and the count is odd.
            unsafe { cell.replace(path) }
        };
        drop(locked);
        drop(old);
    }

    /// Another place for each that is `old` (`pivot_root`). Puts no reference but to that, which
    /// the
    /// caller has.
    pub fn replace(&self, old: &Path<'k>, new: &Path<'k>) {
        for cell in [&self.root, &self.pwd] {
            let locked = self.lock.lock();
            // SAFETY: no other thread replaces it under the lock.
            let place: PathRef<'_, 'k> = unsafe { cell.path() };
            let is_old = core::ptr::eq(place.mount(), &**old.mount())
                && core::ptr::eq(place.dentry(), &**old.dentry());
            let replaced = is_old.then(|| {
                let _section = self.seq.write();
                // SAFETY: we hold the lock, and the count is odd.
                unsafe { cell.replace(new.clone()) }
            });
            drop(locked);
            drop(replaced);
        }
    }

    /// The number of the process whose place it is; 0 if nobody has said.
    pub fn owner(&self) -> u32 {
        // Relaxed: a word of its own.
        self.owner.load(Ordering::Relaxed)
    }

    /// Says whose place it is. (A [duplicate](Self::duplicate) is nobody's at first.)
    pub fn set_owner(&self, pid: u32) {
        // Relaxed: as above.
        self.owner.store(pid, Ordering::Relaxed);
    }

    /// The bits that new files do not get.
    #[inline]
    pub fn umask(&self) -> u32 {
        // Relaxed: a word of its own.
        self.umask.load(Ordering::Relaxed)
    }

    /// Sets them; those before.
    pub fn set_umask(&self, mask: u32) -> u32 {
        // Relaxed: as above.
        self.umask.swap(mask & 0o777, Ordering::Relaxed)
    }

    /// A copy, for a child process.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn duplicate(&self) -> Result<Self, AllocError> {
        let [root, pwd] = self.both();
        let copy = Self::new(self.vfs, root, pwd)?;
        copy.set_umask(self.umask());
        Ok(copy)
    }
}

impl Drop for FsStruct<'_> {
    fn drop(&mut self) {
        // SAFETY: nobody has it any more, and the kernel is borrowed.
        unsafe {
            self.pwd.end();
            self.root.end();
        }
    }
}

impl fmt::Debug for FsStruct<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [root, pwd] = self.both();
        f.debug_struct("FsStruct")
            .field("root", &root)
            .field("pwd", &pwd)
            .field("umask", &format_args!("{:#o}", self.umask()))
            .finish()
    }
}
