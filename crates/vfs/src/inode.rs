//! Inodes.

/// A file's identity and mode (`struct inode`).
///
/// A pseudo inode is part of its pseudo object: it is on no list and in no hash, and ends with its dentry. It has no
/// count of its own, because only that dentry refers to it.
#[derive(Debug)]
pub struct Inode {
    /// The number, unique among the kernel's living inodes until 2^32 have been made.
    pub i_ino: u32,
    /// Type and permissions.
    pub i_mode: u32,
}
