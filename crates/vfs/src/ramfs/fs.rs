//! An instance of the filesystem.

use super::xattr::Xattrs;
use super::{Limits, PAGE};
use crate::abi::S_IFDIR;
use crate::inode::{Changes, Content, Inode, NewInode};
use crate::super_block::{SuperOperations, SuperRef};
use crate::vfs::Vfs;
use core::fmt;
use quietline_platform::heap;
use quietline_sync::SpinLock;
use rustix::io::Errno;

/// Links up to this length, the zero at their end included, take no page.
const SHORT_LINK: usize = 128;
/// What a directory's size grows by with each name, as tmpfs has it.
pub(crate) const DIRENT_SIZE: u64 = 20;
/// The size of an empty directory.
pub(crate) const EMPTY_DIR_SIZE: u64 = 2 * DIRENT_SIZE;
/// Blocks of 512 bytes in a page.
pub(crate) const BLOCKS_PER_PAGE: u64 = PAGE / 512;

/// A filesystem in memory: what it may hold. (Where its pages come from is the kernel's.)
#[derive(Debug)]
pub struct RamFs {
    limits: Limits,
    /// As the root was made, to be shown: permissions, user, group.
    root: [u32; 3],
}

impl RamFs {
    /// Nothing in it yet.
    fn new(limits: Limits, mode: u32, [uid, gid]: [u32; 2]) -> Self {
        Self { limits, root: [mode, uid, gid] }
    }

    /// What it may hold, and what it does.
    #[inline(always)]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Pages that a symbolic link of this length takes.
    pub(crate) fn link_pages(len: usize) -> u64 {
        u64::from(len + 1 > SHORT_LINK)
    }
}

#[cold]
#[inline(never)]
fn clear_xattrs(xattrs: &SpinLock<Xattrs>, limits: &Limits) {
    xattrs.lock().clear(limits);
}

impl SuperOperations for RamFs {
    fn evict(&self, inode: &Inode) {
        match inode.content() {
            Content::File(data) => data.end(),
            Content::Symlink(body) => self.limits.uncharge_pages(Self::link_pages(body.len())),
            _ => {}
        }
        if let Some(xattrs) = inode.i_xattrs.get() {
            clear_xattrs(xattrs, &self.limits);
        }
        self.limits.uncharge_inode();
    }

    /// As tmpfs does (`shmem_show_options`), but for sizes of a part of the machine's memory, which
    /// are no default here.
    fn show_options(&self, out: &mut dyn fmt::Write) {
        let [mode, uid, gid] = self.root;
        // The text never fails: it notes that there is no memory.
        if let Some(pages) = self.limits.max_pages() {
            let _ = write!(out, ",size={}k", pages.saturating_mul(PAGE / 1024));
        }
        if let Some(inodes) = self.limits.max_inodes() {
            let _ = write!(out, ",nr_inodes={inodes}");
        }
        if mode != 0o1777 {
            let _ = write!(out, ",mode={mode:03o}");
        }
        if uid != 0 {
            let _ = write!(out, ",uid={uid}");
        }
        if gid != 0 {
            let _ = write!(out, ",gid={gid}");
        }
    }
}

/// A filesystem in memory, with a root directory of this mode and these owners.
///
/// # Errors
/// `ENOMEM`; `ENOSPC` where there may be no file at all.
pub fn new_ramfs(
    vfs: &Vfs,
    dev: u64,
    limits: Limits,
    mode: u32,
    owner: [u32; 2],
) -> Result<SuperRef<'_>, Errno> {
    if !limits.charge_inode() {
        return Err(Errno::NOSPC);
    }
    let info = RamFs::new(limits, mode & 0o7777, owner);
    let info = heap::try_box(info).map_err(|_| Errno::NOMEM)?;
    let (mode, [uid, gid], time) = (S_IFDIR | mode & 0o7777, owner, vfs.clock.now());
    let root = NewInode { mode, uid, gid, rdev: 0, nlink: 2, time };
    let sb = vfs.new_super("tmpfs", dev, info, root, Content::Directory)?;
    if let Some(inode) = sb.root().inode() {
        inode.init(&Changes { size: Some(EMPTY_DIR_SIZE), ..Changes::default() });
    }
    Ok(sb)
}
