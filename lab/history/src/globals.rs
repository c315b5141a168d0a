//! The kernel's global variables: the lines that every open and close of 2.6.27 meets on.

use crate::atomic::{AtomicI64, AtomicU32, Ordering};
use crate::build::Build;
use crate::dcache::{Dentry, d_alloc_root};
use crate::errno::Errno;
use crate::fdtable::filled;
use crate::file::File;
use crate::inode::{Inode, new_inode};
use crate::ledger::{Entry, Ledger};
use crate::list::ListHead;
use crate::mount::VfsMount;
use crate::percpu::{Cpu, Current, Line, Syscall};
use crate::percpu_counter::PercpuCounter;
use crate::raw::Link;
use crate::rcupdate::RcuCtrlblk;
use crate::slab::KmemCache;
use crate::superblock::{MS_NOREFCOUNT, SuperBlock};
use crate::ticket::TicketLock;

/// Buckets of the table that `wake_up_inode()` looks into.
const WAIT_TABLE: usize = 256;
const S_IFDIR: u32 = 0o040_000;

/// A pseudo file system and its one mount.
pub(crate) struct FileSystem {
    pub(crate) mnt: VfsMount,
    pub(crate) sb: SuperBlock,
}

/// `struct inodes_stat_t`.
#[repr(C)]
pub(crate) struct InodesStat {
    pub(crate) nr_inodes: AtomicI64,
    nr_unused: AtomicI64,
}

/// `struct dentry_stat_t`.
#[repr(C)]
pub(crate) struct DentryStat {
    pub(crate) nr_dentry: AtomicI64,
    nr_unused: AtomicI64,
}

/// Everything that is global in the kernel, each written word in a line of its own.
pub(crate) struct Globals {
    pub(crate) build: Build,
    pub(crate) cpus: Vec<Cpu>,
    /// The number of the CPU for threads that have none of their own: the last.
    pub(crate) exit_cpu: usize,
    pub(crate) exit_lock: Line<TicketLock>,

    /// Guards `inode_in_use`, every `s_inodes`, and in the base `nr_inodes` and `last_ino`.
    pub(crate) inode_lock: Line<TicketLock>,
    pub(crate) inode_in_use: Line<ListHead>,
    pub(crate) inodes_stat: Line<InodesStat>,
    pub(crate) last_ino: Line<AtomicU32>,
    /// Guards every child and alias list, and in the base `nr_dentry`.
    pub(crate) dcache_lock: Line<TicketLock>,
    pub(crate) dentry_stat: Line<DentryStat>,
    pub(crate) vfsmount_lock: Line<TicketLock>,
    pub(crate) nr_files: PercpuCounter,
    pub(crate) nr_dentry: PercpuCounter,
    pub(crate) nr_inodes: PercpuCounter,
    pub(crate) rcu_ctrlblk: RcuCtrlblk,
    pub(crate) wait_table: Vec<ListHead>,

    pub(crate) sock_fs: FileSystem,
    pub(crate) pipe_fs: FileSystem,
    pub(crate) anon_inode_fs: FileSystem,
    anon_inode_inode: Link<Inode>,

    // The objects' memory.
    pub(crate) filp_cachep: KmemCache<File>,
    pub(crate) dentry_cachep: KmemCache<Dentry>,
    pub(crate) inode_cachep: KmemCache<Inode>,
    pub(crate) ledger: Ledger,
    _entry: Entry,
}

impl Globals {
    /// The globals before [`Globals::boot`].
    ///
    /// # Errors
    ///
    /// `EINVAL` if `cpus` is 0 or the options do not fit each other; `ENOMEM`.
    pub(crate) fn new(build: Build, cpus: usize) -> Result<Self, Errno> {
        if cpus == 0 {
            return Err(Errno::EINVAL);
        }
        build.check()?;
        let all = cpus.checked_add(1).ok_or(Errno::ENOMEM)?;
        let ledger = Ledger::default();
        let counter = |pcount| match build.patches.plain_counters {
            true => PercpuCounter::plain(pcount),
            false => PercpuCounter::new(cpus, pcount),
        };
        let file_system = || FileSystem { mnt: VfsMount::new(), sb: SuperBlock::new() };
        Ok(Self {
            build,
            cpus: numbered(all)?,
            exit_cpu: cpus,
            exit_lock: Line(TicketLock::new()),
            inode_lock: Line(TicketLock::new()),
            inode_in_use: Line(ListHead::new()),
            inodes_stat: Line(InodesStat {
                nr_inodes: AtomicI64::new(0),
                nr_unused: AtomicI64::new(0),
            }),
            last_ino: Line(AtomicU32::new(0)),
            dcache_lock: Line(TicketLock::new()),
            dentry_stat: Line(DentryStat {
                nr_dentry: AtomicI64::new(0),
                nr_unused: AtomicI64::new(0),
            }),
            vfsmount_lock: Line(TicketLock::new()),
            nr_files: PercpuCounter::new(cpus, |cpu| &cpu.nr_files),
            nr_dentry: counter(|cpu| &cpu.nr_dentry),
            nr_inodes: counter(|cpu| &cpu.nr_inodes),
            rcu_ctrlblk: RcuCtrlblk::new(filled(all, || AtomicU32::new(0))?),
            wait_table: filled(WAIT_TABLE, ListHead::new)?,
            sock_fs: file_system(),
            pipe_fs: file_system(),
            anon_inode_fs: file_system(),
            anon_inode_inode: Link::null(),
            filp_cachep: KmemCache::new(
                &build.of_files(),
                cpus,
                build.patches.typesafe_files,
                &ledger,
            )?,
            dentry_cachep: KmemCache::new(&build, cpus, false, &ledger)?,
            inode_cachep: KmemCache::new(&build, cpus, false, &ledger)?,
            _entry: ledger.enter(),
            ledger,
        })
    }

    /// Mounts the pseudo file systems. The globals are at their final address.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn boot(&self) -> Result<(), Errno> {
        self.cpus.iter().for_each(Cpu::name_words);
        let syscall = Syscall::enter_exit(self);
        self.inode_in_use.0.init();
        for queue in &self.wait_table {
            queue.init();
        }
        for fs in self.file_systems() {
            self.kern_mount(syscall.current, fs)?;
        }
        let inode = new_inode(syscall.current, &self.anon_inode_fs.sb, 0o600)?;
        self.anon_inode_inode.store(Some(inode));
        Ok(())
    }

    /// The three pseudo file systems: sockets, pipes, anonymous descriptors.
    pub(crate) fn file_systems(&self) -> [&FileSystem; 3] {
        [&self.sock_fs, &self.pipe_fs, &self.anon_inode_fs]
    }

    /// The inode that all anonymous descriptors share.
    #[inline]
    pub(crate) fn anon_inode_inode(&self) -> &Inode {
        self.anon_inode_inode.load().expect("made at boot")
    }

    /// `kern_mount()` and `get_sb_pseudo()`.
    fn kern_mount<'a>(&'a self, current: Current<'a>, fs: &'a FileSystem) -> Result<(), Errno> {
        let sb = &fs.sb;
        if self.build.patches.norefcount {
            // Relaxed: no other thread is here yet.
            sb.s_flags.store(MS_NOREFCOUNT, Ordering::Relaxed);
        }
        sb.s_inodes.0.init();
        let root = new_inode(current, sb, S_IFDIR | 0o600)?;
        sb.s_root.store(Some(d_alloc_root(current, sb, root)?));
        fs.mnt.mnt_sb.store(Some(sb));
        Ok(())
    }
}

/// CPUs with the numbers from 0 on.
///
/// # Errors
///
/// `ENOMEM`.
fn numbered(count: usize) -> Result<Vec<Cpu>, Errno> {
    let mut numbers = 0..;
    filled(count, || Cpu::new(numbers.next().expect("numbers do not end")))
}
