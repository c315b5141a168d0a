//! Opening and closing sockets, pipes and anonymous descriptors as Linux 2.6.27 did, and as each patch of the
//! 2008 series changed it. See the [crate] for the story; start reading at [`Process::socket`], which is
//! `sys_socket()`, and [`Process::close`].

use core::fmt;
use std::sync::Arc;

use crate::anon_inodes::anon_inode_getfd;
use crate::atomic::Ordering;
use crate::build::{Build, Patches};
use crate::errno::Errno;
use crate::fdtable::{FilesStruct, NR_OPEN};
use crate::file::{FileOperations, fget, fput};
use crate::globals::Globals;
use crate::ledger::Ledger;
use crate::percpu::Syscall;
use crate::pipe::do_pipe;
use crate::rcupdate::rcu_check_callbacks;
pub use crate::rung::Rung;
use crate::slab::SlabInfo;
use crate::socket::sys_socket;
use crate::words::{Word, cpu_word, file_words, globals_words, process_words};

/// A descriptor of a [`Process`]: the number that the kernel would give.
pub type Fd = i32;

/// A 2.6.27 kernel in miniature, at one rung of the ladder; shared by the threads that run in it.
///
/// It has a fixed number of CPUs. Each thread that calls in says which one it is on, and no two threads may
/// be on one CPU at a time: pin them, or give each thread a number of its own.
pub struct World {
    globals: Arc<Globals>,
}

/// A process of a [`World`]: a descriptor table of its own, which threads may share. Dropping it closes all.
pub struct Process {
    globals: Arc<Globals>,
    files: FilesStruct,
}

/// The elements of the global lists, by address, those that the kernel itself keeps among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    /// `i_list` of every inode on `inode_in_use`.
    pub inode_in_use: Vec<usize>,
    /// `i_sb_list` of every inode on an `s_inodes`, the file systems one after the other.
    pub s_inodes: Vec<usize>,
    /// `d_child` of every child of a root, the file systems one after the other.
    pub d_subdirs: Vec<usize>,
}

impl World {
    /// A kernel at `rung` with CPUs 0 to `cpus - 1`.
    ///
    /// # Panics
    ///
    /// As [`World::try_new`] fails.
    pub fn new(rung: Rung, cpus: usize) -> World {
        World::try_new(rung, cpus).expect("a world needs a CPU and some memory")
    }

    /// A kernel at `rung` with CPUs 0 to `cpus - 1`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `cpus` is 0; `ENOMEM`.
    pub fn try_new(rung: Rung, cpus: usize) -> Result<World, Errno> {
        Self::build(rung.into(), cpus)
    }

    /// Builds a kernel with CPUs 0 to `cpus - 1`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `cpus` is 0 or the options do not fit each other; `ENOMEM`.
    pub fn build(options: Build, cpus: usize) -> Result<World, Errno> {
        let globals = Arc::new(Globals::new(options, cpus)?);
        globals.boot()?;
        Ok(World { globals })
    }

    /// A new process with nothing open.
    ///
    /// # Panics
    ///
    /// If there is no memory; see [`World::try_process`].
    pub fn process(&self) -> Process {
        self.try_process().expect("a process needs some memory")
    }

    /// A new process with nothing open.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn try_process(&self) -> Result<Process, Errno> {
        Ok(Process {
            globals: Arc::clone(&self.globals),
            files: FilesStruct::new(&self.globals.ledger)?,
        })
    }

    /// Returns the patches that this kernel has.
    pub fn patches(&self) -> Patches {
        self.globals.build.patches
    }

    /// Runs RCU's part of the timer tick on a CPU. A world that was built with
    /// [`Tick::Caller`](crate::Tick::Caller) frees files after grace periods only if this is
    /// called.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such CPU.
    pub fn tick(&self, cpu: usize) -> Result<(), Errno> {
        let syscall = Syscall::enter(&self.globals, cpu)?;
        // rcu_pending()
        if syscall.current.cpu.rcu_data.qlen() > 0 {
            rcu_check_callbacks(syscall.current);
        }
        Ok(())
    }

    /// CPUs that threads may be on.
    pub fn cpus(&self) -> usize {
        self.globals.exit_cpu
    }

    /// Dentries in use, the kernel's own among them; exact while no thread is in a system call.
    pub fn nr_dentry(&self) -> i64 {
        if self.patches().nr_dentry {
            self.globals.nr_dentry.sum(&self.globals.cpus)
        } else {
            // Relaxed: exact only when quiescent, and then ordered by whatever made it so.
            self.globals.dentry_stat.0.nr_dentry.load(Ordering::Relaxed)
        }
    }

    /// Inodes in use, the kernel's own among them; exact while no thread is in a system call.
    pub fn nr_inodes(&self) -> i64 {
        if self.patches().nr_inodes {
            self.globals.nr_inodes.sum(&self.globals.cpus)
        } else {
            // Relaxed: as in `nr_dentry`.
            self.globals.inodes_stat.0.nr_inodes.load(Ordering::Relaxed)
        }
    }

    /// Open files; exact while no thread is in a system call.
    pub fn nr_files(&self) -> i64 {
        self.globals.nr_files.sum(&self.globals.cpus)
    }

    /// Sockets in use, counted as `net/socket.c` does; exact while no thread is in a system call.
    pub fn sockets_in_use(&self) -> i64 {
        // Relaxed: as in `nr_dentry`.
        self.globals.cpus.iter().map(|cpu| cpu.sockets_in_use.load(Ordering::Relaxed)).sum()
    }

    /// References to the mounts of sockfs, pipefs and anon_inodefs, the kernel's own among them.
    pub fn mnt_counts(&self) -> [u32; 3] {
        // Relaxed: as in `nr_dentry`.
        self.globals.file_systems().map(|fs| fs.mnt.counted.0.mnt_count.load(Ordering::Relaxed))
    }

    /// RCU callbacks that wait for a grace period or for a tick; exact while no thread is in a system call.
    pub fn rcu_pending(&self) -> u64 {
        self.globals.cpus.iter().map(|cpu| cpu.rcu_data.qlen()).sum()
    }

    /// Waits for grace periods and runs all RCU callbacks, also of CPUs whose thread is gone.
    ///
    /// # Panics
    ///
    /// If another thread is seen in a system call: there must be none.
    pub fn quiesce(&self) {
        let run = |syscall: Syscall<'_>| {
            while syscall.current.cpu.rcu_data.qlen() > 0 {
                rcu_check_callbacks(syscall.current);
            }
        };
        (0..self.cpus()).filter_map(|cpu| Syscall::enter(&self.globals, cpu).ok()).for_each(run);
        run(Syscall::enter_exit(&self.globals));
    }

    /// The elements of the global lists.
    pub fn lists(&self) -> Lists {
        let globals = &self.globals;
        let file_systems = globals.file_systems();
        let (inode_in_use, s_inodes) = {
            let _guard = globals.inode_lock.0.lock();
            (
                globals.inode_in_use.0.elements(),
                file_systems.iter().flat_map(|fs| fs.sb.s_inodes.0.elements()).collect(),
            )
        };
        let _guard = globals.dcache_lock.0.lock();
        let d_subdirs =
            file_systems.iter().flat_map(|fs| fs.sb.root().d_subdirs.elements()).collect();
        Lists { inode_in_use, s_inodes, d_subdirs }
    }

    /// What `/proc/slabinfo` says of files, dentries and inodes; exact while no thread is in a system call.
    pub fn slabinfo(&self) -> [SlabInfo; 3] {
        let cpus = &self.globals.cpus;
        [
            self.globals.filp_cachep.slabinfo(cpus),
            self.globals.dentry_cachep.slabinfo(cpus),
            self.globals.inode_cachep.slabinfo(cpus),
        ]
    }

    /// A count of the memory that this world and its processes hold, which outlives them.
    pub fn ledger(&self) -> Ledger {
        self.globals.ledger.clone()
    }

    #[cfg(test)]
    pub(crate) fn syscall(&self, cpu: usize) -> Syscall<'_> {
        Syscall::enter(&self.globals, cpu).expect("the world has the CPU")
    }

    /// The data of a CPU, which only the thread on it writes.
    pub fn cpu_word(&self, cpu: usize) -> Option<Word> {
        self.globals.cpus.get(cpu).map(|own| cpu_word(cpu, own))
    }

    /// The words that all CPUs share, by their kernel names.
    pub fn words(&self) -> Vec<Word> {
        globals_words(&self.globals)
    }
}

impl Process {
    /// `socket(AF_INET, SOCK_STREAM, 0)`, without what TCP adds: the lowest free descriptor, for a new
    /// socket.
    ///
    /// The shared lines that it writes are in the table of the [crate](crate#what-each-rung-writes).
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`; `EINVAL` if there is no such CPU.
    #[inline]
    pub fn socket(&self, cpu: usize) -> Result<Fd, Errno> {
        let syscall = Syscall::enter(&self.globals, cpu)?;
        sys_socket(syscall.current, &self.files)
    }

    /// `pipe()`: the read end and the write end. Writes the lines that [`Process::socket`] writes, of pipefs.
    ///
    /// # Errors
    ///
    /// As [`Process::socket`].
    #[inline]
    pub fn pipe(&self, cpu: usize) -> Result<[Fd; 2], Errno> {
        let syscall = Syscall::enter(&self.globals, cpu)?;
        do_pipe(syscall.current, &self.files)
    }

    /// `eventfd()`: all of these share one inode, so there is no `new_inode()`, but that inode's count is
    /// written.
    ///
    /// # Errors
    ///
    /// As [`Process::socket`].
    #[inline]
    pub fn eventfd(&self, cpu: usize) -> Result<Fd, Errno> {
        let syscall = Syscall::enter(&self.globals, cpu)?;
        anon_inode_getfd(syscall.current, &self.files, FileOperations::Eventfd)
    }

    /// `close()`: frees the descriptor, and with the last reference the file and what is behind it.
    ///
    /// # Errors
    ///
    /// `EBADF` if it is not open; `EINVAL` if there is no such CPU.
    #[inline]
    pub fn close(&self, cpu: usize, fd: Fd) -> Result<(), Errno> {
        let syscall = Syscall::enter(&self.globals, cpu)?;
        fput(syscall.current, self.files.close_fd(fd)?);
        Ok(())
    }

    /// `fstat()`, of which only the inode number is kept: the file is found without a lock, by RCU.
    ///
    /// # Errors
    ///
    /// `EBADF` if it is not open; `EINVAL` if there is no such CPU.
    pub fn ino(&self, cpu: usize, fd: Fd) -> Result<u32, Errno> {
        let syscall = Syscall::enter(&self.globals, cpu)?;
        let file = fget(syscall.current, &self.files, fd)?;
        let dentry = file.f_dentry.load().expect("an open file has a dentry");
        // Relaxed: the number was set before the file was installed.
        let ino = dentry.inode().i_ino.load(Ordering::Relaxed);
        fput(syscall.current, file);
        Ok(ino)
    }

    /// `setrlimit(RLIMIT_NOFILE)`: descriptors from `descriptors` on are refused by `EMFILE`. At most 2^20,
    /// which is also what a process begins with.
    pub fn set_rlimit_nofile(&mut self, descriptors: usize) {
        self.files.rlimit_nofile = descriptors.min(NR_OPEN);
    }

    /// Descriptors that are open, in order.
    pub fn open_fds(&self) -> Vec<Fd> {
        self.files.open_fds()
    }

    /// The words of this process that its threads share, by their kernel names.
    pub fn words(&self) -> Vec<Word> {
        process_words(&self.files)
    }

    /// The words of the file, dentry and inode behind a descriptor: first those that others may write, by
    /// their kernel names, then each object as a whole.
    ///
    /// # Errors
    ///
    /// `EBADF` if it is not open; `EINVAL` if there is no such CPU.
    pub fn file_words(&self, cpu: usize, fd: Fd) -> Result<Vec<Word>, Errno> {
        let syscall = Syscall::enter(&self.globals, cpu)?;
        let file = fget(syscall.current, &self.files, fd)?;
        let words = file_words(file);
        fput(syscall.current, file);
        Ok(words)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("patches", &self.patches())
            .field("cpus", &self.cpus())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("open_fds", &self.open_fds()).finish_non_exhaustive()
    }
}

impl Drop for Process {
    /// `exit_files()`, on the CPU that is kept for this: the thread that drops a process may be on none.
    fn drop(&mut self) {
        let open_fds = self.files.open_fds();
        if open_fds.is_empty() {
            return;
        }
        let syscall = Syscall::enter_exit(&self.globals);
        for fd in open_fds {
            if let Ok(file) = self.files.close_fd(fd) {
                fput(syscall.current, file);
            }
        }
    }
}
