//! The walk that takes no reference: in one read section, writing nothing that is shared.

use super::Start;
use super::mode::{Link, Mode, Stop, Type};
use super::step::{self, Child};
use crate::cred::Cred;
use crate::file::touch_access;
use crate::inode::Content;
use crate::raw::dcache::seen::Section;
use crate::raw::walk_path::Spot;
use crate::vfs::Vfs;

/// A walk in a section. What it finds is looked at again one step later, as `Seen` does: so the name was there at one moment,
/// in the directory that was there at that moment.
pub(crate) struct ByRcu<'g, 'k> {
    pub(crate) vfs: &'k Vfs,
    pub(crate) section: &'g Section,
    pub(crate) start: Start<'g, 'k>,
}

impl<'g, 'k> Mode for ByRcu<'g, 'k> {
    type At = Spot<'g, 'k>;
    type Moment = super::Moment;

    #[inline(always)]
    fn root(&self) -> Result<Self::At, Stop> {
        Ok(self.start.fs.root(self.section))
    }

    #[inline(always)]
    fn start(&self) -> Result<Self::At, Stop> {
        Ok(match self.start.dir {
            Some(dir) => dir.spot(self.section),
            None => self.start.fs.pwd(self.section),
        })
    }

    #[inline(always)]
    fn starts_at_cwd(&self) -> bool {
        self.start.dir.is_none()
    }

    #[inline(always)]
    fn copy(&self, at: &Self::At) -> Self::At {
        *at
    }

    #[inline(always)]
    fn kind(&self, at: &Self::At) -> Type {
        step::kind(&at.seen)
    }

    #[inline(always)]
    fn may_search(&self, at: &Self::At, cred: &Cred) -> Result<(), Stop> {
        if step::has_own_rules(&at.seen) {
            return Err(Stop::Retry);
        }
        step::may_search(&at.seen, cred)
    }

    #[inline(always)]
    fn child(&self, at: &Self::At, name: &[u8], _cred: &Cred) -> Result<Option<Self::At>, Stop> {
        match step::child(self.vfs, *at, name)? {
            Child::Is(child) => Ok(Some(child)),
            Child::None => Ok(None),
            Child::Ask => Err(Stop::Retry),
        }
    }

    #[inline(always)]
    fn maybe_mounted(&self, at: &Self::At) -> bool {
        step::maybe_mounted(&at.seen)
    }

    fn cross(&self, at: Self::At) -> Result<(Self::At, bool), Stop> {
        Ok(step::cross(self.vfs, at, self.section))
    }

    fn parent(&self, at: &Self::At) -> Result<Self::At, Stop> {
        step::parent(*at)
    }

    fn above(&self, at: &Self::At, root: &Self::At) -> Result<Option<Self::At>, Stop> {
        step::above(self.vfs, *at, *root, self.section)
    }

    #[inline(always)]
    fn is_mount_root(&self, at: &Self::At) -> bool {
        at.mount.root().same(&at.seen)
    }

    #[inline(always)]
    fn same(&self, a: &Self::At, b: &Self::At) -> bool {
        step::same(a, b)
    }

    fn same_mount(&self, a: &Self::At, b: &Self::At) -> bool {
        a.mount.same(b.mount)
    }

    fn no_symlinks(&self, at: &Self::At) -> bool {
        super::no_symlinks(at.mount)
    }

    fn link<'b>(&self, at: &'b Self::At, _cred: &Cred) -> Result<Link<'b, Self::At>, Stop> {
        match at.seen.inode().map(|inode| inode.content()) {
            Some(Content::Symlink(body)) => {
                // Seldom a write: once after the link was made, then once a day.
                if let Some(inode) = at.seen.inode() {
                    touch_access(at.mount, self.vfs, inode);
                }
                Ok(Link::Body(body))
            }
            // A node makes it, and may take its time.
            _ => Err(Stop::Retry),
        }
    }

    fn moment(&self) -> Self::Moment {
        super::Moment::now(self.vfs)
    }

    fn has_moved(&self, since: &Self::Moment) -> bool {
        since.is_past(self.vfs)
    }
}
