//! What only a filesystem knows: names and links that it makes when it is asked.

use super::mode::{Link, Stop};
use crate::dentry::DentryFlags;
use crate::inode::{Content, NodeLink, Requester};
use crate::raw::walk_path::Path;
use crate::vfs::Vfs;
use rustix::io::Errno;

/// What a name in a directory stands for, where the dentries do not say.
pub(crate) fn ask<'k>(
    dir: &Path<'k>,
    bytes: &[u8],
    requester: &Requester<'_, 'k>,
) -> Result<Option<Path<'k>>, Errno> {
    let name = dir.dentry().vfs().name(bytes)?;
    let Some(Content::Node(node)) = dir.dentry().inode().map(|inode| inode.content()) else {
        return Ok(None);
    };
    let cached = dir.dentry().lookup(&name);
    let asked = DentryFlags::REVALIDATE | DentryFlags::TIMED;
    let child = match cached {
        Some(child)
            if !child.flags().intersects(asked) || node.revalidate(&child, Some(requester))? =>
        {
            Some(child)
        }
        Some(stale) => {
            stale.invalidate();
            node.lookup(dir.dentry(), &name, requester)?
        }
        None => node.lookup(dir.dentry(), &name, requester)?,
    };
    Ok(child
        .filter(|child| !child.is_negative())
        .map(|child| Path::new(dir.mount().clone(), child)))
}

/// Asks the filesystem for the attributes of what a walk has led to, if those in memory are too
/// old.
pub(super) fn refresh(place: &Path<'_>, requester: &Requester<'_, '_>) -> Result<(), Errno> {
    match place.dentry().inode() {
        Some(inode) if super::step::is_timed(place.dentry()) => match inode.node() {
            Some(node) => node.refresh(inode, requester),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Where a link leads that a filesystem makes.
pub(super) fn ask_link<'b, 'k>(
    link: &Path<'k>,
    requester: &Requester<'_, 'k>,
) -> Result<Link<'b, Path<'k>>, Stop> {
    match link.dentry().inode().map(|inode| inode.content()) {
        Some(Content::Node(node)) => Ok(match node.link(link, requester)? {
            NodeLink::Body(path) => Link::Made(path),
            NodeLink::Jump(to) => Link::Jump(to),
        }),
        _ => Err(Stop::Errno(Errno::INVAL)),
    }
}

/// Moves of directories so far, begun and ended.
pub(super) fn moves(vfs: &Vfs) -> u64 {
    let mut sum = 0;
    vfs.supers.each(|sb| sum += u64::from(sb.move_seq.read_begin()));
    sum
}
