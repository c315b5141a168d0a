//! Numbers of the calls that take paths, and of those on the files of a tree.

/// Make the file if it is not there.
pub const O_CREAT: i32 = 0o100;
/// With `O_CREAT`: it must not be there.
pub const O_EXCL: i32 = 0o200;
/// No controlling terminal; there are none here.
pub const O_NOCTTY: i32 = 0o400;
/// Empty the file.
pub const O_TRUNC: i32 = 0o1000;
/// Each write is on the medium before it returns.
pub const O_DSYNC: i32 = 0o10000;
/// Large files; all are.
pub const O_LARGEFILE: i32 = 0o100000;
/// It must be a directory.
pub const O_DIRECTORY: i32 = 0o200000;
/// The last name must not be a symbolic link.
pub const O_NOFOLLOW: i32 = 0o400000;
/// As `O_DSYNC`, with all metadata.
pub const O_SYNC: i32 = 0o4000000 | O_DSYNC;
/// Only the place in the tree; the file is not opened.
pub const O_PATH: i32 = 0o10000000;
/// A file without a name, in the directory that is named.
pub const O_TMPFILE: i32 = 0o20000000 | O_DIRECTORY;

/// In place of a descriptor: the working directory.
pub const AT_FDCWD: i32 = -100;
/// The last name is not followed if it is a symbolic link.
pub const AT_SYMLINK_NOFOLLOW: i32 = 0x100;
/// With `faccessat2`: by the effective ids.
pub const AT_EACCESS: i32 = 0x200;
/// With `unlinkat`: remove a directory.
pub const AT_REMOVEDIR: i32 = 0x200;
/// With `linkat`: the last name is followed.
pub const AT_SYMLINK_FOLLOW: i32 = 0x400;
/// Do not mount what an automount point stands for; nothing here does.
pub const AT_NO_AUTOMOUNT: i32 = 0x800;
/// An empty path names what the descriptor is open on.
pub const AT_EMPTY_PATH: i32 = 0x1000;
/// With `statx`: make sure that it is current.
pub const AT_STATX_FORCE_SYNC: i32 = 0x2000;
/// With `statx`: what is cached will do.
pub const AT_STATX_DONT_SYNC: i32 = 0x4000;
/// The bits of the two.
pub const AT_STATX_SYNC_TYPE: i32 = 0x6000;

/// `openat2`: do not cross mounts.
pub const RESOLVE_NO_XDEV: u64 = 0x01;
/// `openat2`: do not follow magic links.
pub const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
/// `openat2`: do not follow symbolic links.
pub const RESOLVE_NO_SYMLINKS: u64 = 0x04;
/// `openat2`: stay beneath the starting directory.
pub const RESOLVE_BENEATH: u64 = 0x08;
/// `openat2`: the starting directory is the root.
pub const RESOLVE_IN_ROOT: u64 = 0x10;
/// `openat2`: only if that needs no waiting.
pub const RESOLVE_CACHED: u64 = 0x20;

/// `renameat2`: not over a file that is there.
pub const RENAME_NOREPLACE: u32 = 1;
/// `renameat2`: the two change places.
pub const RENAME_EXCHANGE: u32 = 2;
/// `renameat2`: leave a whiteout; not offered.
pub const RENAME_WHITEOUT: u32 = 4;

/// The bits of the file's type, in an inode's mode.
pub const S_IFMT: u32 = 0o170000;
/// File type of a character device.
pub const S_IFCHR: u32 = 0o020000;
/// File type of a directory.
pub const S_IFDIR: u32 = 0o040000;
/// File type of a block device.
pub const S_IFBLK: u32 = 0o060000;
/// File type of a regular file.
pub const S_IFREG: u32 = 0o100000;
/// File type of a symbolic link.
pub const S_IFLNK: u32 = 0o120000;
/// Runs with the rights of the owner.
pub const S_ISUID: u32 = 0o4000;
/// Runs with the rights of the group; of a directory: its children are of its group.
pub const S_ISGID: u32 = 0o2000;
/// Of a directory: children are removed by their owners alone.
pub const S_ISVTX: u32 = 0o1000;
/// The group may execute.
pub const S_IXGRP: u32 = 0o010;
/// Others may write.
pub const S_IWOTH: u32 = 0o002;

/// `access`: that it is there.
pub const F_OK: i32 = 0;
/// `access`: execute.
pub const X_OK: i32 = 1;
/// `access`: write.
pub const W_OK: i32 = 2;
/// `access`: read.
pub const R_OK: i32 = 4;

/// `lseek`: from the beginning.
pub const SEEK_SET: i32 = 0;
/// `lseek`: from where the file stands.
pub const SEEK_CUR: i32 = 1;
/// `lseek`: from the end.
pub const SEEK_END: i32 = 2;
/// `lseek`: to the next data.
pub const SEEK_DATA: i32 = 3;
/// `lseek`: to the next hole.
pub const SEEK_HOLE: i32 = 4;

/// `fallocate`: the length stays.
pub const FALLOC_FL_KEEP_SIZE: i32 = 0x01;
/// `fallocate`: make a hole.
pub const FALLOC_FL_PUNCH_HOLE: i32 = 0x02;
/// `fallocate`: take a range out.
pub const FALLOC_FL_COLLAPSE_RANGE: i32 = 0x08;
/// `fallocate`: make a range read as zeros.
pub const FALLOC_FL_ZERO_RANGE: i32 = 0x10;
/// `fallocate`: put a hole in.
pub const FALLOC_FL_INSERT_RANGE: i32 = 0x20;
/// `fallocate`: end the sharing of blocks.
pub const FALLOC_FL_UNSHARE_RANGE: i32 = 0x40;

/// `fallocate`: write zeros.
pub const FALLOC_FL_WRITE_ZEROES: i32 = 0x80;

/// `utimensat`, in place of nanoseconds: the time now.
pub const UTIME_NOW: i64 = (1 << 30) - 1;
/// `utimensat`, in place of nanoseconds: leave it.
pub const UTIME_OMIT: i64 = (1 << 30) - 2;

/// `setxattr`: it must not be there.
pub const XATTR_CREATE: i32 = 1;
/// `setxattr`: it must be there.
pub const XATTR_REPLACE: i32 = 2;

/// Directory entry: of a type that is not known.
pub const DT_UNKNOWN: u8 = 0;
/// Directory entry: fifo.
pub const DT_FIFO: u8 = 1;
/// Directory entry: character device.
pub const DT_CHR: u8 = 2;
/// Directory entry: directory.
pub const DT_DIR: u8 = 4;
/// Directory entry: block device.
pub const DT_BLK: u8 = 6;
/// Directory entry: regular file.
pub const DT_REG: u8 = 8;
/// Directory entry: symbolic link.
pub const DT_LNK: u8 = 10;
/// Directory entry: socket.
pub const DT_SOCK: u8 = 12;

/// The longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// The longest path, in bytes, with the zero at its end.
pub const PATH_MAX: usize = 4096;
/// The most hard links of one file.
pub const LINK_MAX: u32 = u32::MAX;
/// The most that one read or write moves.
pub const MAX_RW_COUNT: usize = 0x7fff_f000;
/// Buffers of a vectored read or write, at most.
pub const UIO_MAXIOV: usize = 1024;
