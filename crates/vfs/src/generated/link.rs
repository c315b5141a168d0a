//! Symbolic links that lead where they say when they are asked.

use super::Made;
use crate::dcache::path::PathBuffer;
use crate::inode::{Content, Node, NodeLink, Requester};
use crate::raw::walk_path::Path;
use core::fmt;
use rustix::io::Errno;

/// Where a link leads.
pub trait Target: Send + Sync + fmt::Debug + 'static {
    /// Where it leads a process that walks.
    ///
    /// # Errors
    /// Whatever the walk is to end with.
    fn follow<'k>(
        &self,
        link: &Path<'k>,
        requester: &Requester<'_, 'k>,
    ) -> Result<NodeLink<'k>, Errno>;

    /// What `readlink` says of it.
    ///
    /// # Errors
    /// Whatever `readlink` is to end with.
    fn name<'k>(
        &self,
        link: &Path<'k>,
        requester: &Requester<'_, 'k>,
        path: &mut PathBuffer<'_>,
    ) -> Result<(), Errno>;
}

/// The node of a link.
#[derive(Debug)]
pub struct Link<L>(pub L);

impl<L: Target> Node for Link<L> {
    fn link<'k>(
        &self,
        link: &Path<'k>,
        requester: &Requester<'_, 'k>,
    ) -> Result<NodeLink<'k>, Errno> {
        self.0.follow(link, requester)
    }

    fn target<'k>(
        &self,
        link: &Path<'k>,
        requester: &Requester<'_, 'k>,
        path: &mut PathBuffer<'_>,
    ) -> Result<(), Errno> {
        self.0.name(link, requester, path)
    }
}

/// A place that stands for an object that is in no tree (a socket, a pipe), for a link that leads there: nothing else does. It
/// can be described, and opened if the node [does that](Node::open).
///
/// # Errors
/// `ENOMEM`.
pub fn stand_in<'k>(link: &Path<'k>, name: &[u8], made: Made) -> Result<Path<'k>, Errno> {
    let (dentry, vfs) = (link.dentry(), link.dentry().vfs());
    let new = made.attributes(vfs);
    let inode = match made.ino {
        Some(ino) => dentry.new_inode_as(ino, new, Content::Node(made.node))?,
        None => dentry.new_inode(new, Content::Node(made.node))?,
    };
    let mut child = dentry.parent().alloc(&vfs.name(name)?)?;
    child.instantiate(inode);
    Ok(Path::new(link.mount().clone(), child.into_unhashed()))
}
