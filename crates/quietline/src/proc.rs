//! What `proc` and `sysfs` have in them.
//!
//! ```text
//!   /proc ── self, mounts, filesystems, slabinfo       /sys ── kernel ── slab ── CACHE ── object_size, min_partial, ...
//!     ├── PID ── cwd, root, fd, fdinfo, mounts, status
//!     └── sys ┬─ fs ── dentry-state, inode-nr, inode-state, file-nr, file-max, nr_open, mount-max,
//!             │        pipe-max-size, pipe-user-pages-*, protected_*, epoll/max_*, inotify/max_*
//!             └─ net ── core/wmem_*, core/rmem_*, core/optmem_max, ipv4/tcp_mem
//! ```
//!
//! # Guarantees
//!
//! * Formats, modes and owners are Linux's, and so is what a number may look like that is written.
//! * Nothing here keeps a process, or a file that a process has open: what is gone is `ENOENT`, or `ESRCH` where a file of the
//!   process was opened before.
//! * `fd` lists descriptors in order; one that stays open all the time is listed once, whatever comes and goes.
//!
//! # Limits
//!
//! There are no memory maps, command lines or threads. Access to the links and descriptors of
//! another process follows Linux's `PTRACE_MODE_READ_FSCREDS`, without security modules. `nr_open`
//! and `protected_*` are constant. A link to a pipe or a socket is described by an inode with its
//! number, on this file system's device.
//!
//! # Source
//!
//! `proc(5)`, `fs/proc`, `kernel/sysctl.c`, `mm/slub.c`.

mod fds;
mod fixed;
mod mounts;
mod number;
mod pid;
mod slab;
mod sysctl;

use crate::Errno;
use crate::kernel::Inner;
use crate::raw::KernelRef;
use core::fmt::Write as _;
use fixed::{Entry, Fixed, What};
use quietline_slab::{SLABINFO_HEADER, SlabinfoRow};
use quietline_vfs::abi::{S_IFDIR, S_IFLNK};
use quietline_vfs::generated::{self, Directory, Link, Made, Names, Target, TextBuffer};
use quietline_vfs::{Inode, NodeLink, Path, PathBuffer, Requester, SuperRef, Vfs};

const SYSFS_MAGIC: i64 = 0x6265_6572;

/// What `/proc` has besides processes.
const ROOT: &[Entry] = &[
    Entry { name: "filesystems", mode: 0o444, what: What::Text(filesystems) },
    Entry { name: "mounts", mode: 0o777, what: What::Link("self/mounts") },
    Entry { name: "slabinfo", mode: 0o400, what: What::Text(slabinfo) },
    Entry { name: "sys", mode: 0o555, what: What::Directory(sysctl::SYS) },
];
const SELF: &[u8] = b"self";

/// An instance of `proc`.
pub(crate) fn new_proc(k: &Inner, dev: u64) -> Result<SuperRef<'_>, Errno> {
    let root = Made::new(S_IFDIR | 0o555, Directory(Root { kernel: KernelRef::of(k) }))?;
    generated::new_super(&k.vfs, "proc", generated::PROC_SUPER_MAGIC, dev, root)
}

/// An instance of `sysfs`.
pub(crate) fn new_sysfs(k: &Inner, dev: u64) -> Result<SuperRef<'_>, Errno> {
    let root = Made::new(
        S_IFDIR | 0o555,
        Directory(Fixed { kernel: KernelRef::of(k), entries: slab::SYSFS }),
    )?;
    generated::new_super(&k.vfs, "sysfs", SYSFS_MAGIC, dev, root)
}

fn filesystems(k: &Inner, out: &mut TextBuffer) {
    k.types.each_name(|name| {
        let _ = writeln!(out, "nodev\t{name}");
    });
}

fn slabinfo(k: &Inner, out: &mut TextBuffer) {
    let _ = writeln!(out, "{SLABINFO_HEADER}");
    for stats in &k.slabinfo() {
        let _ = writeln!(out, "{}", SlabinfoRow::from(stats));
    }
}

/// `/proc` itself.
#[derive(Debug)]
struct Root {
    kernel: KernelRef,
}

/// Places of processes begin after those of the fixed names.
const PIDS: u64 = 1 << 16;

impl Names for Root {
    fn find(&self, vfs: &Vfs, name: &[u8]) -> Result<Option<Made>, Errno> {
        if name == SELF {
            return Made::new(S_IFLNK | 0o777, Link(Myself)).map(Some);
        }
        match number::canonical(name) {
            Some(pid) => pid::find(self.kernel, vfs, pid),
            None => fixed::find(self.kernel, ROOT, name, false),
        }
    }

    fn list(
        &self,
        vfs: &Vfs,
        from: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), Errno> {
        let fixed = ROOT.iter().map(|entry| entry.name.as_bytes()).chain([SELF]);
        for (place, name) in (0..).zip(fixed).skip(from.min(PIDS) as usize) {
            if !each(place, name) {
                return Ok(());
            }
        }
        let mut from = from.saturating_sub(PIDS) as i32;
        while let Some(pid) = self.kernel.get(vfs).processes.next(from) {
            if !each(PIDS + pid as u64, number::text(pid, &mut [0; 10])) || pid == i32::MAX {
                break;
            }
            from = pid + 1;
        }
        Ok(())
    }

    fn changes(&self, name: &[u8]) -> bool {
        number::canonical(name).is_some()
    }

    fn still(&self, vfs: &Vfs, name: &[u8], inode: &Inode) -> bool {
        number::canonical(name).is_some_and(|pid| {
            pid::owner(self.kernel, vfs, pid, inode.mode()) == Some([inode.uid(), inode.gid()])
        })
    }
}

/// `/proc/self`: whose place it is that walks.
#[derive(Debug)]
struct Myself;

impl Target for Myself {
    fn follow<'k>(
        &self,
        _link: &Path<'k>,
        requester: &Requester<'_, 'k>,
    ) -> Result<NodeLink<'k>, Errno> {
        let mut digits = [0; 10];
        let text = number::text(
            i32::try_from(requester.fs.owner()).map_err(|_| Errno::NOENT)?,
            &mut digits,
        );
        let mut body = quietline_platform::heap::try_boxed_slice(text.len(), |_| 0)
            .map_err(|_| Errno::NOMEM)?;
        body.copy_from_slice(text);
        Ok(NodeLink::Body(body))
    }

    fn name<'k>(
        &self,
        _link: &Path<'k>,
        requester: &Requester<'_, 'k>,
        path: &mut PathBuffer<'_>,
    ) -> Result<(), Errno> {
        path.prepend(number::text(
            i32::try_from(requester.fs.owner()).map_err(|_| Errno::NOENT)?,
            &mut [0; 10],
        ))
    }
}
