//! Directories whose names are made when they are asked for.

use super::Made;
use crate::dcache::name::{NAME_MAX, Name};
use crate::dentry::DentryFlags;
use crate::inode::{Changes, Content, Inode, Node, NodeEntry, Requester};
use crate::permission::{Mask, permission};
use crate::raw::dcache::refs::DentryRef;
use crate::vfs::Vfs;
use core::fmt;
use quietline_platform::fault;
use rustix::io::Errno;

/// Which names a directory has, and what they stand for.
pub trait Names: Send + Sync + fmt::Debug + 'static {
    /// What a name stands for; none if there is no such name.
    ///
    /// # Errors
    /// Whatever the walk is to end with.
    fn find(&self, vfs: &Vfs, name: &[u8]) -> Result<Option<Made>, Errno>;

    /// Calls `each` with places, which grow, and names, from a place on, until it says that it has enough. Holds no lock meanwhile.
    ///
    /// # Errors
    /// Whatever `getdents64` is to end with.
    fn list(
        &self,
        vfs: &Vfs,
        from: u64,
        each: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), Errno>;

    /// Checks whether a process may do all of `mask` to the directory: see [`Node::permission`].
    ///
    /// # Errors
    /// As there.
    fn permission(
        &self,
        _vfs: &Vfs,
        inode: &Inode,
        requester: &Requester<'_, '_>,
        mask: Mask,
    ) -> Result<(), Errno> {
        permission(inode, requester.cred, mask)
    }

    /// Whether a name comes and goes, or changes what it stands for.
    fn changes(&self, _name: &[u8]) -> bool {
        false
    }

    /// Whether a name still stands for what it stood for, where [`changes`](Self::changes) says that it might not.
    fn still(&self, _vfs: &Vfs, _name: &[u8], _inode: &Inode) -> bool {
        true
    }
}

/// The node of a directory.
#[derive(Debug)]
pub struct Directory<N>(pub N);

/// Names that are listed at a time, between which the filesystem is asked for each one's number.
const BATCH: usize = 32;

/// Places and names, one after the other.
#[derive(Default)]
struct Batch {
    places: Vec<(u64, usize)>,
    names: Vec<u8>,
    failed: bool,
}

impl Batch {
    /// Whether another one is welcome.
    fn push(&mut self, place: u64, name: &[u8]) -> bool {
        let room = fault::check().is_ok()
            && self.places.try_reserve(1).is_ok()
            && self.names.try_reserve(name.len()).is_ok();
        self.failed |= !room;
        if room {
            self.names.extend_from_slice(name);
            self.places.push((place, self.names.len()));
        }
        room && self.places.len() < BATCH
    }

    fn clear(&mut self) {
        self.places.clear();
        self.names.clear();
    }
}

impl<N: Names> Directory<N> {
    /// The dentry of a name: that which is there, or a new one.
    fn dentry<'k>(
        &self,
        dir: &DentryRef<'k>,
        name: &Name<'_>,
    ) -> Result<Option<DentryRef<'k>>, Errno> {
        let vfs = dir.vfs();
        let Some(made) = self.0.find(vfs, name.bytes())? else { return Ok(None) };
        let new = made.attributes(vfs);
        let content = Content::Node(made.node);
        let inode = match made.ino {
            Some(ino) => dir.new_inode_as(ino, new, content)?,
            None => dir.new_inode(new, content)?,
        };
        if made.size != 0 {
            inode.init(&Changes { size: Some(made.size), ..Changes::default() });
        }
        let mut child = dir.alloc(name)?;
        child.instantiate(inode);
        if self.0.changes(name.bytes()) {
            child.dentry().set_flags(DentryFlags::REVALIDATE, DentryFlags::empty());
        }
        let mut guard = dir.inode().ok_or(Errno::NOENT)?.lock();
        // Another thread may have been quicker.
        let (there, not_needed) = match dir.lookup(name) {
            Some(there) => (Ok(there), Some(child)),
            None => (child.add(&mut guard), None),
        };
        drop(guard);
        drop(not_needed);
        there.map(Some)
    }

    /// What a name stands for: its number and mode; none if it has gone meanwhile.
    fn describe(&self, dir: &DentryRef<'_>, name: &[u8]) -> Result<Option<(u64, u32)>, Errno> {
        let name = dir.vfs().name(name)?;
        let child = match dir.lookup(&name) {
            Some(there)
                if !there.flags().contains(DentryFlags::REVALIDATE)
                    || self.revalidate(&there, None)? =>
            {
                Some(there)
            }
            stale => {
                if let Some(stale) = stale {
                    stale.invalidate();
                }
                self.dentry(dir, &name)?
            }
        };
        Ok(child.and_then(|child| child.inode().map(|inode| (inode.ino(), inode.mode()))))
    }
}

impl<N: Names> Node for Directory<N> {
    fn permission(
        &self,
        inode: &Inode,
        requester: &Requester<'_, '_>,
        mask: Mask,
    ) -> Result<(), Errno> {
        self.0.permission(requester.fs.vfs(), inode, requester, mask)
    }

    fn lookup<'k>(
        &self,
        dir: &DentryRef<'k>,
        name: &Name<'_>,
        _requester: &Requester<'_, 'k>,
    ) -> Result<Option<DentryRef<'k>>, Errno> {
        self.dentry(dir, name)
    }

    fn revalidate(
        &self,
        child: &DentryRef<'_>,
        _requester: Option<&Requester<'_, '_>>,
    ) -> Result<bool, Errno> {
        let mut name = [0; NAME_MAX];
        let len = {
            let section = child.vfs().read();
            child.seen(&section).name(&mut name)
        };
        Ok(child.inode().is_some_and(|inode| self.0.still(child.vfs(), &name[..len], inode)))
    }

    fn entries(
        &self,
        dir: &DentryRef<'_>,
        from: u64,
        each: &mut dyn FnMut(NodeEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let (mut batch, mut from) = (Batch::default(), from);
        loop {
            batch.clear();
            self.0.list(dir.vfs(), from, &mut |place, name| batch.push(place, name))?;
            if batch.failed {
                return Err(Errno::NOMEM);
            }
            let mut begin = 0;
            for &(place, end) in &batch.places {
                let name = &batch.names[begin..end];
                begin = end;
                from = place + 1;
                let Some((ino, mode)) = self.describe(dir, name)? else { continue };
                if !each(NodeEntry { place, ino, mode, name }) {
                    return Ok(());
                }
            }
            if batch.places.len() < BATCH {
                return Ok(());
            }
        }
    }
}
