//! Build options of a miniature kernel: its patches, its slab allocator and that one's boot
//! parameters.

use crate::errno::Errno;
use crate::file::File;
use crate::rung::Rung;
use crate::slab::slub_order;

/// The largest page order of a slab (`slub_max_order`).
pub(crate) const MAX_ORDER: u32 = 3;

/// The patches that a kernel has, on top of Linux 2.6.27.
///
/// A [`Rung`] is the set of version 3 of the series up to one patch. Version 2 is the first five
/// patches of version 3, in the same order. Version 1 has another order, and has neither the patch
/// of the file cache nor `percpu_counter` for its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patches {
    /// Dentries of pseudo files are not children of the root: the patch of 21 November 2008, before
    /// the series. The patch leaves `d_parent` NULL. Here the dentry is its own parent, as
    /// Christoph Hellwig answered.
    pub no_parent: bool,
    /// `nr_dentry` is a per-CPU counter.
    pub nr_dentry: bool,
    /// `nr_inodes` is a per-CPU counter.
    pub nr_inodes: bool,
    /// Version 1: these two counters are plain per-CPU variables that are summed when read. In the
    /// other versions each is a `percpu_counter`, which adds to a shared part once in a batch. An
    /// open and a close at once cancel in the CPU's part, so that both kinds cost the same there.
    pub plain_counters: bool,
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
            plain_counters: false,
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
    /// The smallest page order of a slab of files, at most 3. SLUB only. It stands for an order
    /// that is known from a measured kernel and that the rule of `slub_min_objects` does not give.
    pub filp_min_order: u32,
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
        let order = self.slub_min_order.max(self.filp_min_order);
        if single_inode && !single_dentry || order > MAX_ORDER {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// Returns the options that the cache of files is made with.
    pub(crate) fn of_files(self) -> Self {
        Self { slub_min_order: self.slub_min_order.max(self.filp_min_order), ..self }
    }

    /// Returns the page order of a slab of files on a machine of so many CPUs:
    /// `/sys/kernel/slab/filp/order`. SLUB only.
    pub fn filp_order(&self, cpus: usize) -> u32 {
        slub_order(size_of::<File>(), cpus, &self.of_files())
    }
}
