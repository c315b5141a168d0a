//! Copies of mounts: bind mounts, and namespaces for children.

use super::{MountFlags, Namespace};
use crate::raw::mount::MountRef;
use crate::raw::mount_book::{Book, On};
use crate::raw::walk_fs::FsStruct;
use crate::raw::walk_path::Path;
use quietline_platform::heap;
use rustix::io::Errno;

/// A tree of mounts before it is mounted: each with the place that it is to be on, in the tree's order.
struct Tree<'k> {
    /// What was copied, its copy, and where that goes: the number of the parent in this list, and the mountpoint.
    mounts: Vec<Copied<'k>>,
}

struct Copied<'k> {
    from: MountRef<'k>,
    on: Option<(usize, On<'k>)>,
}

impl<'k> Namespace<'k> {
    /// Mounts what is at `from` at `at` as well (`MS_BIND`), with all that is mounted below it if `recursive` (`MS_REC`).
    ///
    /// Mounts below `from` that are unbindable are left out, with all that is on them.
    ///
    /// # Errors
    /// `EINVAL` if `from` is not in this namespace, or unbindable; those of
    /// [`attach`](Self::attach) but `EBUSY`.
    pub fn bind(&self, from: &Path<'k>, at: Path<'k>, recursive: bool) -> Result<(), Errno> {
        if !self.has(from.mount()) || from.mount().is_unbindable() {
            return Err(Errno::INVAL);
        }
        let tree = self.collect(from.mount(), Some(from), recursive)?;
        let copies = self.copy_all(&tree, Some(from))?;
        let top = copies.first().expect("a tree has a top").clone();
        self.put(top.clone(), at, false, copies.len())?;
        self.enter_below(&tree, &copies, self.id).inspect_err(|_| self.detach(&top))
    }

    /// A copy of the namespace, for a child that is to have its own (`CLONE_NEWNS`). `fs`, the child's, moves into it.
    ///
    /// # Errors
    /// `ENOMEM`; `ENOSPC` if there are as many mounts as there may be.
    pub fn duplicate(&self, fs: &FsStruct<'k>) -> Result<Namespace<'k>, Errno> {
        let tree = self.collect(&self.root, None, true)?;
        let copies = self.copy_all(&tree, None)?;
        let new = self.vfs.new_namespace(copies.first().expect("a tree has a top").clone())?;
        self.enter_below(&tree, &copies, new.id)?;
        let [root, pwd] = fs.both();
        let moved = |path: &Path<'k>| {
            let at = tree.mounts.iter().position(|copied| copied.from.same(path.mount()))?;
            Some(Path::new(copies[at].clone(), path.dentry().clone()))
        };
        if let Some(root) = moved(&root) {
            fs.set_root(root);
        }
        if let Some(pwd) = moved(&pwd) {
            fs.set_pwd(pwd);
        }
        Ok(new)
    }

    /// The mounts of the tree whose top is `top`; of those on it, only those below `part`.
    fn collect(
        &self,
        top: &MountRef<'k>,
        part: Option<&Path<'k>>,
        recursive: bool,
    ) -> Result<Tree<'k>, Errno> {
        let mut tree = Tree { mounts: Vec::new() };
        tree.push(Copied { from: top.clone(), on: None })?;
        if recursive {
            let book = self.vfs.mounts.lock();
            let mut at = 0;
            while let Some(parent) = tree.mounts.get(at) {
                let parent = parent.from.clone();
                let below = part.filter(|_| at == 0);
                let pushed = tree.push_all_on(&book, at, &parent, below, part.is_none());
                if let Err(errno) = pushed {
                    // Before what was collected is dropped.
                    drop(book);
                    return Err(errno);
                }
                at += 1;
            }
        }
        Ok(tree)
    }

    fn copy_all(
        &self,
        tree: &Tree<'k>,
        part: Option<&Path<'k>>,
    ) -> Result<Vec<MountRef<'k>>, Errno> {
        let mut copies = Vec::new();
        heap::try_reserve(&mut copies, tree.mounts.len()).map_err(|_| Errno::NOMEM)?;
        for (i, Copied { from, .. }) in tree.mounts.iter().enumerate() {
            let id = self.vfs.mounts.lock().mount_id();
            let root = match part {
                Some(part) if i == 0 => part.dentry().clone(),
                _ => from.root_ref().clone(),
            };
            let (sb, flags): (_, MountFlags) = (from.sb_ref().clone(), from.own_flags());
            copies.push(MountRef::new(self.vfs, sb, root, flags, id).map_err(|_| Errno::NOMEM)?);
        }
        Ok(copies)
    }

    /// Mounts the copies of all but the top, which is mounted. Others see that already: what they have unmounted meanwhile
    /// takes what was to be on it along, and what they have mounted is mounted upon.
    fn enter_below(
        &self,
        tree: &Tree<'k>,
        copies: &[MountRef<'k>],
        namespace: u64,
    ) -> Result<(), Errno> {
        for (copied, copy) in tree.mounts.iter().zip(copies).skip(1) {
            let (parent, on) = copied.on.as_ref().expect("all but the top are on something");
            let on = On { mount: copies[*parent].clone(), dentry: on.dentry.clone() };
            let mut book = self.vfs.mounts.lock();
            let entered = match top_of(&book, on) {
                Some(on) => book.enter(self.vfs.mounts.seq(), copy.clone(), Some(on), namespace),
                None => Ok(()),
            };
            drop(book);
            entered.map_err(|(errno, ..)| errno)?;
        }
        Ok(())
    }
}

/// The mountpoint, or the root of what is mounted uppermost there; none if its mount is mounted no more, or if it was removed.
/// Under the lock of the book, in which nothing ends by what this drops: it is in the book, or the caller's.
fn top_of<'k>(book: &Book, on: On<'k>) -> Option<On<'k>> {
    let mut at = on;
    while let Some(over) = at.mount.on_locked(&at.dentry) {
        let over: MountRef<'k> = book.find(over)?.mount().clone();
        at = On { dentry: over.root_ref().clone(), mount: over };
    }
    let there = at.dentry.is_hashed() || at.dentry.is_root();
    (at.mount.is_mounted() && there).then_some(at)
}

impl<'k> Tree<'k> {
    fn push(&mut self, copied: Copied<'k>) -> Result<(), Errno> {
        heap::try_reserve(&mut self.mounts, 1).map_err(|_| Errno::NOMEM)?;
        self.mounts.push(copied);
        Ok(())
    }

    fn push_all_on(
        &mut self,
        book: &Book,
        at: usize,
        parent: &MountRef<'k>,
        part: Option<&Path<'k>>,
        unbindable: bool,
    ) -> Result<(), Errno> {
        for over in parent.all_on().filter(|over| unbindable || !over.is_unbindable()) {
            let Some(entry) = book.find(over) else { continue };
            let Some(on) = entry.on() else { continue };
            if part.is_none_or(|part| on.dentry.is_below(part.dentry())) {
                self.push(Copied { from: entry.mount().clone(), on: Some((at, on.clone())) })?;
            }
        }
        Ok(())
    }
}
