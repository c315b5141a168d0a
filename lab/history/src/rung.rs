//! The rungs of the ladder: one for each patch of the series, each with all those before it.

/// How much of the series is applied. Each rung has all patches up to its own, in the order of version 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Rung {
    /// The path after the sources of 2.6.27, without any patch.
    Base,
    /// Patch 1: a per-CPU `nr_dentry`.
    NrDentry,
    /// Patch 2: a per-CPU `nr_inodes`.
    NrInodes,
    /// Patch 3: inode numbers handed to CPUs 1,024 at a time.
    LastIno,
    /// Patch 4: dentries of pseudo files have no parent, no alias list and no `dcache_lock`.
    SingleDentry,
    /// Patch 5: inodes of pseudo files are on no list and need no `inode_lock`.
    SingleInode,
    /// Patch 6: `struct file` in a type-safe cache instead of `call_rcu()`, by Christoph
    /// Lameter.
    TypesafeFiles,
    /// Patch 7: mounts wired into the kernel are not counted.
    Norefcount,
}

impl Rung {
    /// All rungs, lowest first.
    pub const ALL: [Rung; 8] = [
        Rung::Base,
        Rung::NrDentry,
        Rung::NrInodes,
        Rung::LastIno,
        Rung::SingleDentry,
        Rung::SingleInode,
        Rung::TypesafeFiles,
        Rung::Norefcount,
    ];

    /// The rung's name in tables and files; a bench column is `history-` and this.
    pub fn name(self) -> &'static str {
        match self {
            Rung::Base => "base",
            Rung::NrDentry => "nr_dentry",
            Rung::NrInodes => "nr_inodes",
            Rung::LastIno => "last_ino",
            Rung::SingleDentry => "single-dentry",
            Rung::SingleInode => "single-inode",
            Rung::TypesafeFiles => "typesafe-files",
            Rung::Norefcount => "norefcount",
        }
    }

    /// One line: what the rung's patch does, and the seconds that 8 CPUs took with it. The seconds
    /// are of net-next-2.6 and linux-2.6 of November and December 2008, not of 2.6.27.
    pub fn says(self) -> &'static str {
        match self {
            Rung::Base => {
                "Linux 2.6.27: inode_lock, dcache_lock, lists, counters (net-next-2.6: 27.5 s)"
            }
            Rung::NrDentry => "nr_dentry becomes a per-CPU counter, outside dcache_lock (25 s)",
            Rung::NrInodes => "nr_inodes becomes a per-CPU counter, outside inode_lock (25 s)",
            Rung::LastIno => "each CPU takes 1,024 inode numbers at a time (25 s)",
            Rung::SingleDentry => {
                "pseudo dentries: own parent, no alias list, no dcache_lock (19.9 s)"
            }
            Rung::SingleInode => "pseudo inodes: on no list, no inode_lock (3.01 s)",
            Rung::TypesafeFiles => "Lameter's: files from a type-safe cache, no call_rcu (2.20 s)",
            Rung::Norefcount => "no reference count on the kernel's own mounts (1.64 s)",
        }
    }
}
