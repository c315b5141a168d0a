//! Directories, read.

use super::{Fd, GENERATION, Server};
use crate::answer::LONG;
use fuser::{FileAttr, INodeNo, ReplyDirectoryPlus};
use quietline::abi::{O_ANYFD, O_DIRECTORY, O_NOATIME, O_RDONLY, S_IFDIR, SEEK_SET, Stat};
use quietline::{Dirent, Errno, dirents};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Bytes of entries that are read at once.
const BATCH: usize = 16 << 10;

impl Server {
    /// Hands on the entries of a directory from a place on, until there are no more or one is refused.
    ///
    /// The file is open for this request alone: requests that read the same directory do not wait for each other.
    pub(super) fn list(
        &self,
        node: INodeNo,
        from: u64,
        mut take: impl FnMut(&Fd<'static>, Dirent<'_>) -> bool,
    ) -> Result<(), Errno> {
        let node = self.fd(node)?;
        let atime = if self.noatime { O_NOATIME } else { 0 };
        let flags = O_RDONLY | O_DIRECTORY | O_ANYFD | atime;
        let dir = Fd { process: self.base, fd: self.base.openat(node.fd, ".", flags, 0)? };
        if from != 0 {
            self.base.lseek(dir.fd, i64::try_from(from).map_err(|_| Errno::INVAL)?, SEEK_SET)?;
        }
        let mut buffer = [0; BATCH];
        loop {
            let n = self.base.getdents64(dir.fd, &mut buffer)?;
            if n == 0 {
                return Ok(());
            }
            for entry in dirents(&buffer[..n]) {
                if !take(&node, entry) {
                    return Ok(());
                }
            }
        }
    }

    /// Adds an entry with all that is told of it; the host is told of its node. False, and it is not, if there is no room.
    pub(super) fn add_told(
        &self,
        dir: &Fd<'static>,
        entry: &Dirent<'_>,
        reply: &mut ReplyDirectoryPlus,
    ) -> bool {
        let dots = matches!(entry.name, b"." | b"..");
        let attr = if dots {
            self.unasked(entry)
        } else {
            match self.find(dir, entry.name) {
                Ok(stat) => self.numbers.attr(&stat),
                // It is gone by now.
                Err(_) => return true,
            }
        };
        let name = OsStr::from_bytes(entry.name);
        let full = reply.add(attr.ino, entry.next as u64, name, &LONG, &attr, GENERATION);
        if full && !dots {
            self.nodes.forget(attr.ino.0, 1);
        }
        !full
    }

    /// What the host reads of `.` and `..`: number and type.
    fn unasked(&self, entry: &Dirent<'_>) -> FileAttr {
        self.numbers.attr(&Stat { st_ino: entry.ino, st_mode: S_IFDIR, ..Stat::default() })
    }
}
