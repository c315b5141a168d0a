//! From a place to its path.

use super::step;
use crate::dcache::path::PathBuffer;
use crate::dentry::Dentry;
use crate::raw::dcache::seen::Section;
use crate::raw::walk_fs::FsStruct;
use crate::raw::walk_path::{Path, Spot};
use crate::vfs::Vfs;
use rustix::io::Errno;

/// How far up a path goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// To the root that was given.
    Root,
    /// To the root of a tree of mounts that the given root is not above.
    Tree,
    /// To the root of a mount that is mounted nowhere.
    Detached,
    /// To the root of a filesystem of which only another part is mounted there.
    Escaped,
}

/// Whether it has been removed: no directory has it, and it never had none.
fn is_removed(dentry: &Dentry) -> bool {
    !dentry.is_hashed() && !dentry.is_root()
}

impl Vfs {
    /// Puts the path of a place before what is in the buffer, as it is seen from `root`, at one moment (`prepend_path`).
    /// Writes no shared line.
    ///
    /// # Errors
    /// `ENAMETOOLONG` if there is no room.
    fn prepend_path<'k>(
        &'k self,
        place: &Path<'k>,
        root: &Path<'k>,
        path: &mut PathBuffer<'_>,
        suffix: &[u8],
    ) -> Result<Reach, Errno> {
        let section = self.read();
        loop {
            path.clear();
            path.prepend(suffix)?;
            let began = self.mounts.seq().read_begin();
            let reach = self.climb(place.spot(&section), root.spot(&section), path, &section);
            if let Some(reach) = reach
                && !self.mounts.seq().read_retry(began)
            {
                if path.len() == suffix.len() {
                    path.prepend(b"/")?;
                }
                return reach;
            }
        }
    }

    /// None if something moved.
    fn climb<'g, 'k>(
        &'k self,
        place: Spot<'g, 'k>,
        root: Spot<'g, 'k>,
        path: &mut PathBuffer<'_>,
        section: &'g Section,
    ) -> Option<Result<Reach, Errno>> {
        let mut at = place;
        loop {
            let begin = at.seen;
            let sb = begin.dentry().super_block();
            let moves = sb.moves_began();
            // Up to the root of the mount.
            let top = loop {
                if step::same(&at, &root) {
                    break Some(Reach::Root);
                }
                if at.mount.root().same(&at.seen) {
                    break None;
                }
                if at.seen.is_root() {
                    break Some(Reach::Escaped);
                }
                if let Err(errno) = path.prepend_name(at.seen) {
                    return Some(Err(errno));
                }
                at.seen = at.seen.parent()?;
            };
            if sb.moved_since(moves) || !begin.valid() {
                return None;
            }
            if let Some(reach) = top {
                return Some(Ok(reach));
            }
            match Spot::place_of(at.mount, self, section) {
                Some(place) => at = place,
                None if at.mount.is_mounted() => return Some(Ok(Reach::Tree)),
                None => return Some(Ok(Reach::Detached)),
            }
        }
    }

    /// The path of a place as `/proc` shows it: with ` (deleted)` behind it if it was removed (`d_path`). How far up it goes.
    ///
    /// # Errors
    /// `ENAMETOOLONG` if there is no room.
    pub fn d_path<'k>(
        &'k self,
        place: &Path<'k>,
        root: &Path<'k>,
        path: &mut PathBuffer<'_>,
    ) -> Result<Reach, Errno> {
        let suffix: &[u8] = if is_removed(place.dentry()) { b" (deleted)" } else { b"" };
        self.prepend_path(place, root, path, suffix)
    }

    /// The path of the working directory, with `(unreachable)` before it if it is not below the root (`getcwd`).
    ///
    /// # Errors
    /// `ENOENT` if it was removed; `ENAMETOOLONG` if there is no room.
    pub fn getcwd<'k>(&'k self, fs: &FsStruct<'k>, path: &mut PathBuffer<'_>) -> Result<(), Errno> {
        let [root, pwd] = fs.both();
        if is_removed(pwd.dentry()) {
            return Err(Errno::NOENT);
        }
        match self.prepend_path(&pwd, &root, path, b"")? {
            Reach::Root => Ok(()),
            _ => path.prepend(b"(unreachable)"),
        }
    }
}
