//! Paths of dentries, and who is below whom.

use crate::dcache::name::NAME_MAX;
use crate::raw::dcache::refs::DentryRef;
use crate::raw::dcache::seen::Seen;
use rustix::io::Errno;

/// A path that is written from its end.
#[derive(Debug)]
pub struct PathBuffer<'b> {
    buffer: &'b mut [u8],
    start: usize,
}

impl<'b> PathBuffer<'b> {
    /// An empty path.
    pub fn new(buffer: &'b mut [u8]) -> Self {
        let start = buffer.len();
        Self { buffer, start }
    }

    /// Puts text before what is there.
    ///
    /// # Errors
    /// `ENAMETOOLONG` if there is no room.
    pub fn prepend(&mut self, text: &[u8]) -> Result<(), Errno> {
        let start = self.start.checked_sub(text.len()).ok_or(Errno::NAMETOOLONG)?;
        self.buffer[start..self.start].copy_from_slice(text);
        self.start = start;
        Ok(())
    }

    /// What is there.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// How long it is.
    pub fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets what is there.
    pub fn clear(&mut self) {
        self.start = self.buffer.len();
    }

    /// Puts `/` and the name of a dentry before what is there.
    ///
    /// # Errors
    /// As [`prepend`](Self::prepend).
    pub fn prepend_name(&mut self, dentry: Seen<'_, '_>) -> Result<(), Errno> {
        let mut name = [0; NAME_MAX];
        let len = dentry.name(&mut name);
        self.prepend(&name[..len])?;
        self.prepend(b"/")
    }
}

impl DentryRef<'_> {
    /// The path from the root of the filesystem, as it was at one moment: `/` for the root (`dentry_path_raw`). Writes no
    /// shared line.
    ///
    /// # Errors
    /// `ENAMETOOLONG` if there is no room.
    pub fn path_in_filesystem(&self, path: &mut PathBuffer<'_>) -> Result<(), Errno> {
        let section = self.vfs().read();
        let mark = path.start;
        loop {
            path.start = mark;
            let moves = self.super_block().moves_began();
            let begin = self.seen(&section);
            let mut at = begin;
            let result = loop {
                if at.is_root() {
                    break if path.start == mark { path.prepend(b"/") } else { Ok(()) };
                }
                if let Err(errno) = path.prepend_name(at) {
                    break Err(errno);
                }
                let Some(parent) = at.parent() else { break Ok(()) };
                at = parent;
            };
            if begin.valid()
                && at.is_root() | result.is_err()
                && !self.super_block().moved_since(moves)
            {
                return result;
            }
        }
    }

    /// Whether this is `ancestor` or below it, as it was at one moment (`is_subdir`). Writes no shared line.
    pub fn is_below(&self, ancestor: &DentryRef<'_>) -> bool {
        let section = self.vfs().read();
        loop {
            let moves = self.super_block().moves_began();
            let begin = self.seen(&section);
            let mut at = Some(begin);
            let mut found = false;
            while let Some(here) = at {
                found = here.is(ancestor);
                if found || here.is_root() {
                    break;
                }
                at = here.parent();
            }
            if at.is_some() && begin.valid() && !self.super_block().moved_since(moves) {
                return found;
            }
        }
    }
}
