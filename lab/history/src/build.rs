//! Build options of a miniature kernel: its patches, its slab allocator and that one's boot
//! parameters.

use crate::errno::Errno;
use crate::rung::Rung;

/// The largest page order of a slab (`slub_max_order`).
pub(crate) const MAX_ORDER: u32 = 3;

/// The patches that a kernel has, on top of Linux 2.6.27.
///
/// A [`Rung`] is the set of version 3 of the series up to one patch. Versions 1 and 2 applied the
/// patches in other orders, and without that of the file cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patches {
    /// Dentries of pseudo files have no parent: the patch of 21 November 2008, before the series.
    pub no_parent: bool,
    /// `nr_dentry` is a per-CPU counter.
    pub nr_dentry: bool,
    /// `nr_inodes` is a per-CPU counter.
    pub nr_inodes: bool,
    /// A CPU takes 1,024 inode numbers at a time.
    pub last_ino: bool,
    /// Dentries of pseudo files are their own parents, on no list, without `dcache_lock`.
    pub single_dentry: bool,
    /// Inodes of pseudo files are on no list, without `inode_lock`. Needs `single_dentry`.
    pub single_inode: bool,
    /// `struct file` is in a type-safe cache instead of `call_rcu()`.
    pub typesafe_files: bool,
    /// Mounts of pseudo file systems are not counted.
    pub norefcount: bool,
}

impl From<Rung> for Patches {
    fn from(rung: Rung) -> Self {
        Self {
            no_parent: false,
            nr_dentry: rung >= Rung::NrDentry,
            nr_inodes: rung >= Rung::NrInodes,
            last_ino: rung >= Rung::LastIno,
            single_dentry: rung >= Rung::SingleDentry,
            single_inode: rung >= Rung::SingleInode,
            typesafe_files: rung >= Rung::TypesafeFiles,
            norefcount: rung >= Rung::Norefcount,
        }
    }
}

/// The slab allocator of a kernel (`CONFIG_SLUB` or `CONFIG_SLAB`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocator {
    /// SLUB: a freelist for each CPU.
    #[default]
    Slub,
    /// SLAB: an array for each CPU, and an array that all CPUs share.
    Slab,
}

/// What starts RCU's work on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tick {
    /// Every 640th callback of the CPU stands for a tick of its timer.
    #[default]
    Callbacks,
    /// The caller calls [`World::tick`](crate::World::tick).
    Caller,
}

/// Build options of a [`World`](crate::World).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// Patches.
    pub patches: Patches,
    /// The slab allocator.
    pub allocator: Allocator,
    /// `slub_min_order`: the smallest page order of a slab, at most 3. SLUB only.
    pub slub_min_order: u32,
    /// `slub_min_objects`: objects that a slab should hold at least. 0: by the number of CPUs. SLUB
    /// only.
    pub slub_min_objects: usize,
    /// What starts RCU's work.
    pub tick: Tick,
}

impl From<Rung> for Build {
    fn from(rung: Rung) -> Self {
        Self { patches: rung.into(), ..Self::default() }
    }
}

impl Build {
    /// Checks that the options fit each other.
    ///
    /// # Errors
    ///
    /// `EINVAL`.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        let Patches { single_dentry, single_inode, .. } = self.patches;
        if single_inode && !single_dentry || self.slub_min_order > MAX_ORDER {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }
}
