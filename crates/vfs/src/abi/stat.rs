//! What is told of files and filesystems.

/// A moment: seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timespec {
    /// Seconds.
    pub tv_sec: i64,
    /// Nanoseconds, below a thousand million; where times are set also [`UTIME_NOW`](super::UTIME_NOW) and
    /// [`UTIME_OMIT`](super::UTIME_OMIT).
    pub tv_nsec: i64,
}

/// What `stat` tells of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stat {
    /// The filesystem's number.
    pub st_dev: u64,
    /// The file's number in it.
    pub st_ino: u64,
    /// Type and permissions.
    pub st_mode: u32,
    /// Hard links.
    pub st_nlink: u64,
    /// Owner.
    pub st_uid: u32,
    /// Group.
    pub st_gid: u32,
    /// The number of the device, if it is one.
    pub st_rdev: u64,
    /// Length in bytes.
    pub st_size: i64,
    /// The size in which to read and write.
    pub st_blksize: u32,
    /// Blocks of 512 bytes that it takes.
    pub st_blocks: u64,
    /// Last read.
    pub st_atim: Timespec,
    /// Last change of what is in it.
    pub st_mtim: Timespec,
    /// Last change of it or of what is told here.
    pub st_ctim: Timespec,
}

/// What `statx` tells of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statx {
    /// Which fields are filled: `STATX_*`.
    pub stx_mask: u32,
    /// What else it is: `STATX_ATTR_*`.
    pub stx_attributes: u64,
    /// Which of these this filesystem knows.
    pub stx_attributes_mask: u64,
    /// What `stat` tells.
    pub stat: Stat,
    /// When it was made.
    pub stx_btime: Timespec,
    /// The number of the mount that it was found on.
    pub stx_mnt_id: u64,
}

/// `statx`: all that `stat` tells.
pub const STATX_BASIC_STATS: u32 = 0x7ff;
/// `statx`: when it was made.
pub const STATX_BTIME: u32 = 0x800;
/// `statx`: the number of the mount.
pub const STATX_MNT_ID: u32 = 0x1000;
/// `statx`: reserved; asking for it is an error.
pub const STATX__RESERVED: u32 = 0x8000_0000;
/// `statx`: it is the root of a mount.
pub const STATX_ATTR_MOUNT_ROOT: u64 = 0x2000;

/// What `statfs` tells of a filesystem.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Which filesystem: [`TMPFS_MAGIC`].
    pub f_type: i64,
    /// The size of a block.
    pub f_bsize: i64,
    /// Blocks that there may be; 0 for no limit.
    pub f_blocks: u64,
    /// Blocks that are free.
    pub f_bfree: u64,
    /// Blocks that are free for anybody.
    pub f_bavail: u64,
    /// Files that there may be; 0 for no limit.
    pub f_files: u64,
    /// Files that may yet be made.
    pub f_ffree: u64,
    /// The filesystem's number, which no other filesystem of the kernel has.
    pub f_fsid: [i32; 2],
    /// The longest name.
    pub f_namelen: i64,
    /// The size of a fragment.
    pub f_frsize: i64,
    /// How it is mounted: `ST_*`.
    pub f_flags: i64,
}

/// `statfs`: a filesystem in memory.
pub const TMPFS_MAGIC: i64 = 0x0102_1994;
/// `statfs`: pipes.
pub const PIPEFS_MAGIC: i64 = 0x5049_5045;
/// `statfs`: sockets.
pub const SOCKFS_MAGIC: i64 = 0x534f_434b;
/// `statfs`: anonymous descriptors.
pub const ANON_INODE_FS_MAGIC: i64 = 0x0904_1934;
/// `statfs`: mounted read-only.
pub const ST_RDONLY: i64 = 1;
/// `statfs`: set-id bits mean nothing.
pub const ST_NOSUID: i64 = 2;
/// `statfs`: devices mean nothing.
pub const ST_NODEV: i64 = 4;
/// `statfs`: nothing is executed.
pub const ST_NOEXEC: i64 = 8;
/// `statfs`: the flags are filled in.
pub const ST_VALID: i64 = 0x20;
/// `statfs`: reading leaves no time.
pub const ST_NOATIME: i64 = 0x400;
/// `statfs`: reading a directory leaves no time.
pub const ST_NODIRATIME: i64 = 0x800;
/// `statfs`: reading leaves a time now and then.
pub const ST_RELATIME: i64 = 0x1000;
/// `statfs`: no symbolic link is followed.
pub const ST_NOSYMFOLLOW: i64 = 0x2000;
