//! The walk that holds where it is: one read section for each step, a reference at its end.
//!
//! Each step is that of the other walk. What it found is taken hold of while the section is open; if it changed meanwhile,
//! the step is taken again, and after some attempts under the lock that keeps it from changing.

use super::Start;
use super::mode::{Link, Mode, Stop, Type};
use super::step::{self, Child};
use crate::cred::Cred;
use crate::file::touch_access;
use crate::inode::{Content, Requester};
use crate::permission::{Mask, may};
use crate::raw::dcache::seen::Section;
use crate::raw::walk_path::{Debris, Path, Spot};
use crate::vfs::Vfs;
use quietline_platform::thread;
use rustix::io::Errno;

/// Attempts at a step before it is taken under a lock.
const TRIES: u32 = 20;

/// A walk by reference.
pub(crate) struct ByReference<'s, 'k> {
    pub(crate) vfs: &'k Vfs,
    pub(crate) start: Start<'s, 'k>,
}

impl<'s, 'k> ByReference<'s, 'k> {
    fn requester<'c>(&self, cred: &'c Cred) -> Requester<'c, 'k>
    where
        's: 'c,
    {
        Requester { fs: self.start.fs, cred }
    }

    /// Takes a step from `at`, which may look at `root` too, and holds on to where it leads.
    fn settle<T>(
        &self,
        at: &Path<'k>,
        root: &Path<'k>,
        step: impl for<'g> Fn(
            Spot<'g, 'k>,
            Spot<'g, 'k>,
            &'g Section,
        ) -> Result<(Option<Spot<'g, 'k>>, T), Stop>,
    ) -> Result<(Option<Path<'k>>, T), Stop> {
        let mut tries = 0;
        loop {
            let mut debris = Debris::default();
            let section = self.vfs.read();
            match step(at.spot(&section), root.spot(&section), &section) {
                Ok((None, other)) => return Ok((None, other)),
                Ok((Some(spot), other)) => {
                    let path = if at.mount().same(spot.mount) {
                        spot.acquire_within(at.mount())
                    } else {
                        spot.acquire(self.vfs, &section, &mut debris)
                    };
                    if let Some(path) = path {
                        return Ok((Some(path), other));
                    }
                }
                Err(Stop::Retry) => {}
                Err(errno) => return Err(errno),
            }
            drop(section);
            drop(debris);
            tries += 1;
            if tries > TRIES {
                // Whoever mounts or unmounts has the lock, and is done when we have had it.
                self.vfs.mounts.wait();
                thread::yield_now();
            }
        }
    }

    /// As [`settle`](Self::settle), for a step that leads somewhere.
    fn place(
        &self,
        at: &Path<'k>,
        step: impl for<'g> Fn(Spot<'g, 'k>) -> Result<Spot<'g, 'k>, Stop>,
    ) -> Result<Path<'k>, Stop> {
        let (path, ()) = self.settle(at, at, |at, _, _| Ok((Some(step(at)?), ())))?;
        Ok(path.expect("the step leads somewhere"))
    }
}

impl<'k> Mode for ByReference<'_, 'k> {
    type At = Path<'k>;
    type Moment = super::Moment;

    fn root(&self) -> Result<Self::At, Stop> {
        Ok(self.start.fs.root_path())
    }

    fn start(&self) -> Result<Self::At, Stop> {
        Ok(match self.start.dir {
            Some(dir) => dir.to_path(),
            None => self.start.fs.pwd_path(),
        })
    }

    fn starts_at_cwd(&self) -> bool {
        self.start.dir.is_none()
    }

    fn copy(&self, at: &Self::At) -> Self::At {
        at.clone()
    }

    fn kind(&self, at: &Self::At) -> Type {
        step::kind(at.dentry())
    }

    fn may_search(&self, at: &Self::At, cred: &Cred) -> Result<(), Stop> {
        match at.dentry().inode() {
            Some(inode) if inode.node().is_some() => {
                Ok(may(inode, &self.requester(cred), Mask::EXEC)?)
            }
            _ => step::may_search(at.dentry(), cred),
        }
    }

    fn child(&self, at: &Self::At, name: &[u8], cred: &Cred) -> Result<Option<Self::At>, Stop> {
        let (path, asks) =
            self.settle(at, at, |at, _, _| match step::child(self.vfs, at, name)? {
                Child::Is(spot) => Ok((Some(spot), false)),
                Child::None => Ok((None, false)),
                Child::Ask => Ok((None, true)),
            })?;
        if asks { Ok(super::ask::ask(at, name, &self.requester(cred))?) } else { Ok(path) }
    }

    fn maybe_mounted(&self, at: &Self::At) -> bool {
        step::maybe_mounted(at.dentry())
    }

    fn cross(&self, at: Self::At) -> Result<(Self::At, bool), Stop> {
        let (over, ()) = self.settle(&at, &at, |at, _, section| {
            let (spot, crossed) = step::cross(self.vfs, at, section);
            Ok((crossed.then_some(spot), ()))
        })?;
        Ok(match over {
            Some(over) => (over, true),
            None => (at, false),
        })
    }

    fn parent(&self, at: &Self::At) -> Result<Self::At, Stop> {
        self.place(at, step::parent)
    }

    fn above(&self, at: &Self::At, root: &Self::At) -> Result<Option<Self::At>, Stop> {
        let (above, ()) = self.settle(at, root, |at, root, section| {
            Ok((step::above(self.vfs, at, root, section)?, ()))
        })?;
        Ok(above)
    }

    fn is_mount_root(&self, at: &Self::At) -> bool {
        at.is_mount_root()
    }

    fn same(&self, a: &Self::At, b: &Self::At) -> bool {
        a.same(b)
    }

    fn same_mount(&self, a: &Self::At, b: &Self::At) -> bool {
        a.mount().same(b.mount())
    }

    fn no_symlinks(&self, at: &Self::At) -> bool {
        super::no_symlinks(at.mount())
    }

    fn link<'b>(&self, at: &'b Self::At, cred: &Cred) -> Result<Link<'b, Self::At>, Stop> {
        match at.dentry().inode().map(|inode| inode.content()) {
            Some(Content::Symlink(body)) => {
                if let Some(inode) = at.dentry().inode() {
                    touch_access(at.mount(), self.vfs, inode);
                }
                Ok(Link::Body(body))
            }
            Some(Content::Node(_)) => super::ask::ask_link(at, &self.requester(cred)),
            _ => Err(Stop::Errno(Errno::INVAL)),
        }
    }

    fn moment(&self) -> Self::Moment {
        super::Moment::now(self.vfs)
    }

    fn has_moved(&self, since: &Self::Moment) -> bool {
        since.is_past(self.vfs)
    }
}
