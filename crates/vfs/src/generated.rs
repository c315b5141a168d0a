//! Filesystems whose files are made when they are asked for: `proc` and `sys`.
//!
//! # The problem
//!
//! What a kernel knows of itself is to be read, and set, by `open`, `read` and `write`, as if somebody kept files of it.
//!
//! # The contended way
//!
//! Until 2008 such a file was a function that filled a page from an offset: what was longer than a page, or changed between two
//! reads, came out torn. Then came `seq_file`, whose text is kept with the open file.
//!
//! # Our way
//!
//! Three kinds, each around a trait that says what, and leaves how to this module:
//!
//! ```text
//!   Directory<N: Names>   find a name, list names      dentries are made at lookup, unpinned: the LRU has them
//!   TextFile<T: Text>     write the text, take text    the text is made whole and kept with the open file
//!   Link<L: Target>       where to                     for the process that asks
//! ```
//!
//! # Guarantees
//!
//! * A text that is read piece by piece is of one moment: that of the first read, or of the last one at offset 0.
//! * A directory whose names come and go is asked at each lookup: what is gone is not found, and nobody keeps its dentry.
//! * Nothing is cached but dentries and inodes, which a shrink gives back, and the texts of open files.
//!
//! # Limits
//!
//! A walk through such a directory goes by reference, unless its dentries are there and stay right. Open files of one inode
//! share a lock while a read begins or one is closed. Attributes may be changed, as long as the inode is in memory.
//!
//! # Lock order
//!
//! A file's table of open files is a leaf. No lock is held during a request for names or text.
//!
//! # Source
//!
//! `fs/seq_file.c`, `fs/proc/generic.c`, `fs/kernfs`.

mod directory;
mod file;
mod link;

pub use directory::{Directory, Names};
pub use file::{Text, TextBuffer, TextFile};
pub use link::{Link, Target, stand_in};

use crate::abi::StatFs;
use crate::inode::{Changes, Content, NewInode, Node};
use crate::super_block::{SuperOperations, SuperRef};
use crate::vfs::Vfs;
use quietline_platform::heap;
use rustix::io::Errno;

/// What a name in a generated directory stands for, before it has an inode.
#[derive(Debug)]
pub struct Made {
    /// Type and permissions.
    pub mode: u32,
    /// Whose it is.
    pub owner: [u32; 2],
    /// Its number, if it stands for something that has one already.
    pub ino: Option<u64>,
    /// What `stat` says of its size.
    pub size: u64,
    /// What it does.
    pub node: Box<dyn Node>,
}

impl Made {
    /// Root's, with a number of its own, and no size.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(mode: u32, node: impl Node) -> Result<Self, Errno> {
        let node = heap::try_box(node).map_err(|_| Errno::NOMEM)?;
        Ok(Self { mode, owner: [0, 0], ino: None, size: 0, node })
    }

    fn attributes(&self, vfs: &Vfs) -> NewInode {
        let [uid, gid] = self.owner;
        let nlink = if self.mode & crate::abi::S_IFMT == crate::abi::S_IFDIR { 2 } else { 1 };
        NewInode { mode: self.mode, uid, gid, rdev: 0, nlink, time: vfs.clock.now() }
    }
}

/// The number by which `statfs` tells `/proc`.
pub const PROC_SUPER_MAGIC: i64 = 0x9fa0;

/// What such a filesystem says of itself.
#[derive(Debug)]
struct Generated {
    magic: i64,
}

impl SuperOperations for Generated {
    /// `/proc` makes modes and owners anew; those in `/sys` can be changed.
    fn keeps_owners(&self) -> bool {
        self.magic == PROC_SUPER_MAGIC
    }

    fn statfs(&self) -> StatFs {
        StatFs {
            f_type: self.magic,
            f_bsize: 4096,
            f_frsize: 4096,
            f_namelen: crate::NAME_MAX as i64,
            ..StatFs::default()
        }
    }
}

/// A filesystem with this root.
///
/// # Errors
/// `ENOMEM`.
pub fn new_super<'k>(
    vfs: &'k Vfs,
    s_type: &'static str,
    magic: i64,
    dev: u64,
    root: Made,
) -> Result<SuperRef<'k>, Errno> {
    let info = heap::try_box(Generated { magic }).map_err(|_| Errno::NOMEM)?;
    let sb = vfs.new_super(s_type, dev, info, root.attributes(vfs), Content::Node(root.node))?;
    if let Some(inode) = sb.root().inode() {
        inode.init(&Changes { size: Some(root.size), ..Changes::default() });
    }
    Ok(sb)
}
