//! From a name to a node.

use super::{Fd, Server};
use fuser::INodeNo;
use quietline::abi::{
    AT_SYMLINK_NOFOLLOW, O_DIRECTORY, O_NOATIME, O_NOFOLLOW, O_PATH, O_RDONLY, O_RDWR, S_IFDIR,
    S_IFMT, S_IFREG, Stat,
};
use quietline::{Errno, FileHandle};

impl Server {
    /// Finds a name; the host is told of its node.
    pub(super) fn find_in(&self, parent: INodeNo, name: &[u8]) -> Result<Stat, Errno> {
        self.find(&self.fd(parent)?, name)
    }

    /// [`find_in`](Self::find_in), in a directory that is open.
    pub(super) fn find(&self, dir: &Fd<'static>, name: &[u8]) -> Result<Stat, Errno> {
        loop {
            let stat = self.base.fstatat(dir.fd, name, AT_SYMLINK_NOFOLLOW)?;
            // Which keeps its inode: no other one can have got the number since.
            if stat.st_ino == self.numbers.root
                || self.nodes.tell_again(self.numbers.node(stat.st_ino))
            {
                return Ok(stat);
            }
            match self.open_node(dir, name, stat.st_mode) {
                Ok(file) => {
                    let stat = Fd::new(self.base, file.clone())?.stat()?;
                    self.nodes.tell(self.numbers.node(stat.st_ino), file)?;
                    return Ok(stat);
                }
                // The name is another file's by now.
                Err(Errno::LOOP | Errno::ISDIR | Errno::NOTDIR | Errno::NXIO) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens a file for all that may be done with it.
    fn open_node(
        &self,
        dir: &Fd<'static>,
        name: &[u8],
        mode: u32,
    ) -> Result<FileHandle<'static>, Errno> {
        let atime = if self.noatime { O_NOATIME } else { 0 };
        let flags = match mode & S_IFMT {
            S_IFREG => O_RDWR | atime,
            S_IFDIR => O_RDONLY | O_DIRECTORY | atime,
            _ => O_PATH,
        };
        self.base.openat_file(dir.fd, name, flags | O_NOFOLLOW, 0)
    }
}
