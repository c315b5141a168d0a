//! quietline: with descriptors of each kind, and by handle.

use std::ffi::CStr;
use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::Arc;

use quietline::abi::{AT_FDCWD, O_ANYFD, O_CREAT, O_EXCL, O_RDONLY, O_WRONLY};
use quietline::{Config, Errno, FileHandle, Kernel, Process};

use super::layout::{Layout, SIZE};
use super::tree::{Facts, Tree, World as Filesystem};
use crate::adapters::probe::failed;
use crate::harness::{Fault, Unfit};

const NEW: i32 = O_CREAT | O_EXCL | O_WRONLY;

/// How a thread comes by its files.
pub(super) trait Way: Send + Sync + 'static {
    /// What a thread has.
    type Tree: Tree;
    /// Whether all threads are one process.
    const ONE_PROCESS: bool;
    /// A thread of a process.
    fn tree(process: Arc<Process>) -> Self::Tree;
}

/// A kernel, its filesystem filled.
pub(super) struct World<W> {
    kernel: Kernel,
    process: Arc<Process>,
    way: PhantomData<W>,
}

/// A kernel with the files of a layout in it, and the process that made them, which has nothing open.
pub(super) fn boot(layout: &Layout) -> Result<(Kernel, Process), Fault> {
    let kernel = Kernel::boot(Config::default()).map_err(failed)?;
    let process = kernel.process().map_err(failed)?;
    for directory in &layout.directories {
        process.mkdir(directory, 0o755).map_err(failed)?;
    }
    for file in &layout.files {
        let fd = process.open(file, NEW, 0o644).map_err(failed)?;
        let written = process.write(fd, &[7; SIZE]).map_err(failed)?;
        Fault::unless(written == SIZE, || format!("{written} bytes of {SIZE} written"))?;
        process.close(fd).map_err(failed)?;
    }
    Ok((kernel, process))
}

/// Counters of a kernel, by exact sums.
pub(super) fn census(kernel: &Kernel) -> Vec<i64> {
    vec![kernel.nr_files(), kernel.nr_dentry(), kernel.nr_inodes()]
}

impl<W: Way> Filesystem for World<W> {
    type Tree = W::Tree;

    fn new(layout: &Layout) -> Result<Self, Unfit> {
        let (kernel, process) = boot(layout)?;
        Ok(Self { kernel, process: Arc::new(process), way: PhantomData })
    }

    fn enter(&self) -> Result<W::Tree, Fault> {
        let process = if W::ONE_PROCESS {
            self.process.clone()
        } else {
            Arc::new(self.kernel.process().map_err(failed)?)
        };
        Ok(W::tree(process))
    }

    fn census(&self) -> Result<Vec<i64>, Fault> {
        Ok(census(&self.kernel))
    }
}

/// The lowest free descriptor of a table of its own.
pub(super) struct LowestFd;

impl Way for LowestFd {
    type Tree = ByNumber;
    const ONE_PROCESS: bool = false;

    fn tree(process: Arc<Process>) -> ByNumber {
        ByNumber { process, flags: 0 }
    }
}

/// Any free descriptor of the table of all threads.
pub(super) struct AnyFd;

impl Way for AnyFd {
    type Tree = ByNumber;
    const ONE_PROCESS: bool = true;

    fn tree(process: Arc<Process>) -> ByNumber {
        ByNumber { process, flags: O_ANYFD }
    }
}

/// A process, and the flags that each open has.
pub(super) struct ByNumber {
    process: Arc<Process>,
    flags: i32,
}

impl ByNumber {
    pub(super) fn process(&self) -> &Arc<Process> {
        &self.process
    }

    pub(super) fn flags(&self) -> i32 {
        self.flags
    }
}

impl Tree for ByNumber {
    type Error = Errno;
    type File<'t> = i32;

    #[inline(always)]
    fn create(&self, path: &CStr) -> Result<(), Errno> {
        self.process.close(self.process.open(path.to_bytes(), NEW | self.flags, 0o644)?)
    }

    #[inline(always)]
    fn unlink(&self, path: &CStr) -> Result<(), Errno> {
        self.process.unlink(path.to_bytes())
    }

    #[inline(always)]
    fn stat(&self, path: &CStr) -> Result<Option<Facts>, Errno> {
        stat(&self.process, path)
    }

    #[inline(always)]
    fn open(&self, path: &CStr) -> Result<i32, Errno> {
        self.process.open(path.to_bytes(), O_RDONLY | self.flags, 0)
    }

    fn takes_lowest(&self) -> bool {
        self.flags & O_ANYFD == 0
    }

    #[inline(always)]
    fn number(file: &i32) -> i32 {
        *file
    }

    fn fstat(&self, file: &mut i32) -> Result<Facts, Errno> {
        self.process.fstat(*file).map(|stat| Facts { ino: stat.st_ino, size: stat.st_size as u64 })
    }

    #[inline(always)]
    fn close(&self, file: i32) -> Result<(), Errno> {
        self.process.close(file)
    }
}

#[inline(always)]
fn stat(process: &Process, path: &CStr) -> Result<Option<Facts>, Errno> {
    match process.stat(path.to_bytes()) {
        Ok(stat) => Ok(Some(Facts { ino: stat.st_ino, size: stat.st_size as u64 })),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// No descriptor.
pub(super) struct Handle;

impl Way for Handle {
    type Tree = ByHandle;
    const ONE_PROCESS: bool = true;

    fn tree(process: Arc<Process>) -> ByHandle {
        ByHandle(process)
    }
}

/// A process of which a thread uses no descriptor.
pub(super) struct ByHandle(Arc<Process>);

impl ByHandle {
    pub(super) fn process(&self) -> &Arc<Process> {
        &self.0
    }
}

impl Tree for ByHandle {
    type Error = Errno;
    type File<'t> = FileHandle<'t>;

    #[inline(always)]
    fn create(&self, path: &CStr) -> Result<(), Errno> {
        // Nothing of a handle is used, and the compiler must not notice.
        black_box(&self.0.openat_file(AT_FDCWD, path.to_bytes(), NEW, 0o644)?);
        Ok(())
    }

    #[inline(always)]
    fn unlink(&self, path: &CStr) -> Result<(), Errno> {
        self.0.unlink(path.to_bytes())
    }

    #[inline(always)]
    fn stat(&self, path: &CStr) -> Result<Option<Facts>, Errno> {
        stat(&self.0, path)
    }

    #[inline(always)]
    fn open(&self, path: &CStr) -> Result<FileHandle<'_>, Errno> {
        self.0.openat_file(AT_FDCWD, path.to_bytes(), O_RDONLY, 0)
    }

    fn takes_lowest(&self) -> bool {
        false
    }

    #[inline(always)]
    fn number(file: &FileHandle<'_>) -> i32 {
        black_box(file);
        0
    }

    fn fstat(&self, file: &mut FileHandle<'_>) -> Result<Facts, Errno> {
        let inode = file.place().and_then(|place| place.dentry().inode()).ok_or(Errno::BADF)?;
        Ok(Facts { ino: inode.ino(), size: inode.size() })
    }

    #[inline(always)]
    fn close(&self, file: FileHandle<'_>) -> Result<(), Errno> {
        drop(file);
        Ok(())
    }
}
