//! `/proc/PID`.

use super::{fds, mounts};
use crate::Errno;
use crate::process::Task;
use crate::raw::KernelRef;
use core::fmt::Write as _;
use quietline_platform::atomic::Ordering;
use quietline_vfs::abi::{S_IFDIR, S_IFLNK, S_IFREG};
use quietline_vfs::generated::{Directory, Link, Made, Names, Target, Text, TextBuffer, TextFile};
use quietline_vfs::{Inode, NodeLink, Path, PathBuffer, Requester, Vfs};

/// The directory of a process, if there is one of this number.
pub(super) fn find(kernel: KernelRef, vfs: &Vfs, pid: i32) -> Result<Option<Made>, Errno> {
    let Some(owner) = owner(kernel, vfs, pid, DIRECTORY) else { return Ok(None) };
    let made = Made::new(DIRECTORY, Directory(Process { kernel, pid }))?;
    Ok(Some(Made { owner, ..made }))
}

/// The mode of a directory that every process may read.
pub(super) const DIRECTORY: u32 = S_IFDIR | 0o555;

/// Returns the owner of a file with this mode in a process's directory (`task_dump_owner`): the
/// user and group of the process, or root if the process is not dumpable. `None` if there is no
/// such process.
pub(super) fn owner(kernel: KernelRef, vfs: &Vfs, pid: i32, mode: u32) -> Option<[u32; 2]> {
    kernel.get(vfs).processes.with(pid, |task| {
        let section = task.cred.section();
        let cred = task.cred.load(&section);
        // Relaxed: published with the credentials.
        if mode == DIRECTORY || task.dumpable.load(Ordering::Relaxed) {
            [cred.uids()[1], cred.gids()[1]]
        } else {
            [0, 0]
        }
    })
}

/// Checks whether a process may inspect another one.
///
/// # Errors
/// `EACCES`; `ENOENT` if there is no such process.
pub(super) fn may_inspect(
    kernel: KernelRef,
    vfs: &Vfs,
    pid: i32,
    requester: &Requester<'_, '_>,
) -> Result<(), Errno> {
    let permitted = kernel.get(vfs).processes.with(pid, |task| {
        let section = task.cred.section();
        let cred = task.cred.load(&section);
        // Relaxed: published with the credentials.
        is_own(pid, requester)
            || requester.cred.may_inspect(cred, task.dumpable.load(Ordering::Relaxed))
    });
    match permitted {
        Some(true) => Ok(()),
        Some(false) => Err(Errno::ACCESS),
        None => Err(Errno::NOENT),
    }
}

/// Whether a process asks for itself.
pub(super) fn is_own(pid: i32, requester: &Requester<'_, '_>) -> bool {
    i32::try_from(requester.fs.owner()) == Ok(pid)
}

#[derive(Debug)]
struct Process {
    kernel: KernelRef,
    pid: i32,
}

const NAMES: [&str; 6] = ["cwd", "fd", "fdinfo", "mounts", "root", "status"];

impl Names for Process {
    fn find(&self, vfs: &Vfs, name: &[u8]) -> Result<Option<Made>, Errno> {
        let Self { kernel, pid } = *self;
        let made = match name {
            b"cwd" => Made::new(
                S_IFLNK | 0o777,
                Link(Place { kernel, pid, of: |task| task.fs.pwd_path() }),
            ),
            b"root" => Made::new(
                S_IFLNK | 0o777,
                Link(Place { kernel, pid, of: |task| task.fs.root_path() }),
            ),
            b"fd" => Made::new(S_IFDIR | 0o500, Directory(fds::Fds { kernel, pid })),
            b"fdinfo" => Made::new(S_IFDIR | 0o555, Directory(fds::FdInfos { kernel, pid })),
            b"mounts" => Made::new(S_IFREG | 0o444, TextFile::new(mounts::Mounts { kernel, pid })),
            b"status" => Made::new(S_IFREG | 0o444, TextFile::new(Status { kernel, pid })),
            _ => return Ok(None),
        }?;
        let Some(owner) = owner(kernel, vfs, pid, made.mode) else { return Ok(None) };
        Ok(Some(Made { owner, ..made }))
    }

    fn list(
        &self,
        vfs: &Vfs,
        from: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), Errno> {
        owner(self.kernel, vfs, self.pid, DIRECTORY).ok_or(Errno::NOENT)?;
        for (place, name) in (0..).zip(NAMES).skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            if !each(place, name.as_bytes()) {
                break;
            }
        }
        Ok(())
    }

    fn changes(&self, _name: &[u8]) -> bool {
        true
    }

    /// Whether the process exists and the inode still has the right owner.
    fn still(&self, vfs: &Vfs, _name: &[u8], inode: &Inode) -> bool {
        owner(self.kernel, vfs, self.pid, inode.mode()) == Some([inode.uid(), inode.gid()])
    }
}

/// A place that a process has.
#[derive(Debug)]
struct Place {
    kernel: KernelRef,
    pid: i32,
    of: fn(&Task) -> Path<'static>,
}

impl Place {
    /// The path, for a process that may inspect the one it belongs to.
    fn path<'k>(&self, vfs: &'k Vfs, requester: &Requester<'_, 'k>) -> Result<Path<'k>, Errno> {
        may_inspect(self.kernel, vfs, self.pid, requester)?;
        self.kernel.get(vfs).processes.with(self.pid, self.of).ok_or(Errno::NOENT)
    }
}

impl Target for Place {
    fn follow<'k>(
        &self,
        link: &Path<'k>,
        requester: &Requester<'_, 'k>,
    ) -> Result<NodeLink<'k>, Errno> {
        self.path(link.dentry().vfs(), requester).map(NodeLink::Jump)
    }

    fn name<'k>(
        &self,
        link: &Path<'k>,
        requester: &Requester<'_, 'k>,
        path: &mut PathBuffer<'_>,
    ) -> Result<(), Errno> {
        let vfs = link.dentry().vfs();
        vfs.d_path(&self.path(vfs, requester)?, &requester.fs.root_path(), path).map(drop)
    }
}

#[derive(Debug)]
struct Status {
    kernel: KernelRef,
    pid: i32,
}

impl Text for Status {
    fn show(&self, vfs: &Vfs, out: &mut TextBuffer) -> Result<(), Errno> {
        let (pid, processes) = (self.pid, &self.kernel.get(vfs).processes);
        let parent = processes.parent(pid);
        let told = processes.with(pid, |task| {
            let section = task.cred.section();
            let cred = task.cred.load(&section);
            let _ = write!(out, "Umask:\t{:04o}\nTgid:\t{pid}\n", task.fs.umask());
            let _ = write!(out, "Pid:\t{pid}\nPPid:\t{parent}\n");
            for (name, [real, effective, saved], fs) in
                [("Uid", cred.uids(), cred.fsuid()), ("Gid", cred.gids(), cred.fsgid())]
            {
                let _ = writeln!(out, "{name}:\t{real}\t{effective}\t{saved}\t{fs}");
            }
            let _ = write!(out, "Groups:\t");
            for group in cred.groups() {
                let _ = write!(out, "{group} ");
            }
            let _ = writeln!(out, "\nCapEff:\t{:016x}", cred.capabilities().bits());
        });
        told.ok_or(Errno::SRCH)
    }
}
