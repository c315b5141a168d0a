//! Inodes of pseudo objects.

/// Identity and mode of a socket or a pipe.
///
/// It is part of its pseudo object: on no list and in no hash, and it ends with its dentry. It has no count of its own,
/// because only that dentry refers to it.
#[derive(Debug)]
pub struct PseudoInode {
    /// The number, unique among the kernel's living inodes until 2^32 have been made.
    pub i_ino: u32,
    /// Type and permissions.
    pub i_mode: u32,
}
