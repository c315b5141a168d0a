//! What is in an inode.

use super::Inode;
use crate::FileMode;
use crate::cred::Cred;
use crate::dcache::name::Name;
use crate::dcache::path::PathBuffer;
use crate::file::Files;
use crate::operations::ForeignNode;
use crate::permission::{Mask, permission};
use crate::pipe::Fifo;
use crate::poll::{Events, PollTable};
use crate::raw::dcache::refs::DentryRef;
use crate::raw::handle::FileHandle;
use crate::raw::ramfs::FileData;
use crate::raw::walk_fs::FsStruct;
use crate::raw::walk_path::Path;
use crate::vfs::Vfs;
use core::fmt;
use rustix::io::Errno;

/// What an inode is the inode of.
///
/// Shared by everybody who can see the inode: what changes in it changes under the inode's lock, or as it says itself. It is
/// dropped a grace period after the last reference, so a reader inside a section may read what it finds.
#[derive(Debug)]
pub enum Content {
    /// A directory: its names are its dentry's.
    Directory,
    /// A file whose bytes somebody else has.
    Regular,
    /// A file in memory.
    File(FileData),
    /// A symbolic link, and where it leads.
    Symlink(Box<[u8]>),
    /// A named pipe.
    Fifo(Fifo),
    /// A socket's name.
    Socket,
    /// A character or block device.
    Device,
    /// Whatever a filesystem says that it is.
    Node(Box<dyn Node>),
}

/// The process that makes a request of a [`Node`].
#[derive(Debug, Clone, Copy)]
pub struct Requester<'a, 'k> {
    /// Its place in the tree.
    pub fs: &'a FsStruct<'k>,
    /// The credentials of its call.
    pub cred: &'a Cred,
}

/// An inode of a filesystem whose content is made when it is asked for (`proc`).
///
/// Methods are called without any lock but those of the caller that each of them names.
pub trait Node: Send + Sync + fmt::Debug + core::any::Any {
    /// Checks whether a process may do all of `mask` to the file (`inode_operations::permission`).
    ///
    /// A walk in a read section checks the mode alone. So a directory with rules of its own has
    /// [`REVALIDATE`](crate::DentryFlags::REVALIDATE) set on its dentry and on the dentries in it.
    /// A walk does not enter such a directory in a read section, nor begin there.
    ///
    /// # Errors
    /// `EACCES`, or whatever the call is to end with.
    fn permission(
        &self,
        inode: &Inode,
        requester: &Requester<'_, '_>,
        mask: Mask,
    ) -> Result<(), Errno> {
        permission(inode, requester.cred, mask)
    }

    /// The dentry of a name that the directory has not got, whose inode this is; none if there is no such file. It may be put
    /// into the directory, under whose lock is the filesystem's business: the caller has none.
    ///
    /// # Errors
    /// Whatever the walk is to end with.
    fn lookup<'k>(
        &self,
        _dir: &DentryRef<'k>,
        _name: &Name<'_>,
        _requester: &Requester<'_, 'k>,
    ) -> Result<Option<DentryRef<'k>>, Errno> {
        Ok(None)
    }

    /// Whether a dentry of this directory with [`REVALIDATE`](crate::DentryFlags::REVALIDATE) or
    /// [`TIMED`](crate::DentryFlags::TIMED) is still right. Without a requester, if a directory is
    /// listed.
    ///
    /// # Errors
    /// Whatever the walk is to end with.
    fn revalidate(
        &self,
        _child: &DentryRef<'_>,
        _requester: Option<&Requester<'_, '_>>,
    ) -> Result<bool, Errno> {
        Ok(true)
    }

    /// Whether the inode and its name hold without a question. Asked in read sections, for dentries
    /// with [`TIMED`](crate::DentryFlags::TIMED).
    fn is_current(&self) -> bool {
        true
    }

    /// Brings the attributes of the inode up to date, if they are too old.
    ///
    /// # Errors
    /// Whatever the call is to end with.
    fn refresh(&self, _inode: &Inode, _requester: &Requester<'_, '_>) -> Result<(), Errno> {
        Ok(())
    }

    /// Returns the node of an embedder's inode that this is, if it is one.
    fn foreign(&self) -> Option<&ForeignNode> {
        None
    }

    /// Calls `each` with the names of the directory whose inode this is, from a place on, until it says that it has enough. A
    /// place stays a name's as long as there is that name; places are below 2^62.
    ///
    /// # Errors
    /// Whatever `getdents64` is to end with.
    fn entries(
        &self,
        _dir: &DentryRef<'_>,
        _from: u64,
        _each: &mut dyn FnMut(NodeEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        Err(Errno::NOTDIR)
    }

    /// Where the symbolic link leads, whose inode this is, for a process that walks.
    ///
    /// # Errors
    /// Whatever the walk is to end with.
    fn link<'k>(
        &self,
        _link: &Path<'k>,
        _requester: &Requester<'_, 'k>,
    ) -> Result<NodeLink<'k>, Errno> {
        Err(Errno::INVAL)
    }

    /// What `readlink` says of it.
    ///
    /// # Errors
    /// Whatever `readlink` is to end with.
    fn target<'k>(
        &self,
        _link: &Path<'k>,
        _requester: &Requester<'_, 'k>,
        _path: &mut PathBuffer<'_>,
    ) -> Result<(), Errno> {
        Err(Errno::INVAL)
    }

    /// Opens something else than the inode, for who may open that; none: the inode is opened.
    ///
    /// # Errors
    /// Whatever `open` is to end with.
    fn open<'k>(
        &self,
        _place: &Path<'k>,
        _files: &'k Files,
        _flags: i32,
        _mode: FileMode,
        _requester: &Requester<'_, 'k>,
    ) -> Result<Option<FileHandle<'k>>, Errno> {
        Ok(None)
    }

    /// Begins an open file of the inode. Its number is `file` until it has been
    /// [closed](Self::closed).
    ///
    /// # Errors
    /// Whatever `open` is to end with.
    fn opened(
        &self,
        _vfs: &Vfs,
        _file: u64,
        _flags: i32,
        _requester: &Requester<'_, '_>,
    ) -> Result<(), Errno> {
        Ok(())
    }

    /// Whether callers can wait for an open file in `poll` and `epoll`. The answer stays the same
    /// until it is [closed](Self::closed).
    fn polls(&self, _file: u64) -> bool {
        false
    }

    /// What can be done with an open file now. First shows `table` every queue that is woken when
    /// that changes, then looks.
    fn poll(&self, _vfs: &Vfs, _file: u64, _table: &mut PollTable<'_>) -> Events {
        Events::ALWAYS
    }

    /// Reads at an offset, for an open file, whose number is another's when it has been [closed](Self::closed): how many bytes.
    ///
    /// # Errors
    /// Whatever `read` is to end with.
    fn read(&self, _vfs: &Vfs, _file: u64, _at: u64, _to: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::INVAL)
    }

    /// Writes at an offset: how many bytes.
    ///
    /// # Errors
    /// Whatever `write` is to end with.
    fn write(&self, _vfs: &Vfs, _at: u64, _bytes: &[u8]) -> Result<usize, Errno> {
        Err(Errno::INVAL)
    }

    /// An open file is over.
    fn closed(&self, _file: u64) {}
}

/// A name that a [`Node`] lists.
#[derive(Debug, Clone, Copy)]
pub struct NodeEntry<'a> {
    /// Its place.
    pub place: u64,
    /// The number and the mode of what it stands for.
    pub ino: u64,
    /// As above.
    pub mode: u32,
    /// The name.
    pub name: &'a [u8],
}

/// Where a link leads that a [`Node`] makes.
#[derive(Debug)]
pub enum NodeLink<'k> {
    /// Along a path.
    Body(Box<[u8]>),
    /// To this place, whatever its path (`/proc/self/fd/N`).
    Jump(Path<'k>),
}
