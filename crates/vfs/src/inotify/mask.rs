//! Bits of inotify's masks.

use rustix::io::Errno;

/// Read.
pub const IN_ACCESS: u32 = 1;
/// Written or truncated.
pub const IN_MODIFY: u32 = 2;
/// Mode, owner, times, links or extended attributes changed.
pub const IN_ATTRIB: u32 = 4;
/// Closed, having been open for writing.
pub const IN_CLOSE_WRITE: u32 = 8;
/// Closed, not having been open for writing.
pub const IN_CLOSE_NOWRITE: u32 = 0x10;
/// Opened.
pub const IN_OPEN: u32 = 0x20;
/// A name moved out of the directory.
pub const IN_MOVED_FROM: u32 = 0x40;
/// A name moved into the directory.
pub const IN_MOVED_TO: u32 = 0x80;
/// A name was made in the directory.
pub const IN_CREATE: u32 = 0x100;
/// A name was removed from the directory.
pub const IN_DELETE: u32 = 0x200;
/// The watched file itself has ended.
pub const IN_DELETE_SELF: u32 = 0x400;
/// The watched file itself was moved.
pub const IN_MOVE_SELF: u32 = 0x800;
/// All events that can be asked for.
pub const IN_ALL_EVENTS: u32 = 0xfff;
/// Event: the filesystem was unmounted.
pub const IN_UNMOUNT: u32 = 0x2000;
/// Event: some are missing.
pub const IN_Q_OVERFLOW: u32 = 0x4000;
/// Event: the watch is gone.
pub const IN_IGNORED: u32 = 0x8000;
/// Watch only if it is a directory.
pub const IN_ONLYDIR: u32 = 0x0100_0000;
/// Watch a symbolic link itself.
pub const IN_DONT_FOLLOW: u32 = 0x0200_0000;
/// No events by way of names that were unlinked.
pub const IN_EXCL_UNLINK: u32 = 0x0400_0000;
/// Only if not watched yet.
pub const IN_MASK_CREATE: u32 = 0x1000_0000;
/// Add to the mask of the watch that there is.
pub const IN_MASK_ADD: u32 = 0x2000_0000;
/// Event: of a directory.
pub const IN_ISDIR: u32 = 0x4000_0000;
/// Remove the watch after its first event.
pub const IN_ONESHOT: u32 = 0x8000_0000;
/// `inotify_init1`: as `O_CLOEXEC`.
pub const IN_CLOEXEC: i32 = 0o2000000;
/// `inotify_init1`: as `O_NONBLOCK`.
pub const IN_NONBLOCK: i32 = 0o4000;

/// What a watch keeps of the mask that it was asked for.
pub(super) const KEPT: u32 = IN_ALL_EVENTS | IN_EXCL_UNLINK | IN_ONESHOT;
/// What a reader is told of an event.
pub(super) const TOLD: u32 = IN_ALL_EVENTS | IN_ISDIR | IN_UNMOUNT | IN_IGNORED | IN_Q_OVERFLOW;
/// What `inotify_add_watch` knows.
const KNOWN: u32 = TOLD | KEPT | IN_ONLYDIR | IN_DONT_FOLLOW | IN_MASK_ADD | IN_MASK_CREATE;

/// What `inotify_init1` says to its flags.
///
/// # Errors
/// `EINVAL` for one that is unknown.
pub fn check_init_flags(flags: i32) -> Result<(), Errno> {
    if flags & !(IN_CLOEXEC | IN_NONBLOCK) != 0 { Err(Errno::INVAL) } else { Ok(()) }
}

/// What `inotify_add_watch` says to its mask before it looks at anything else, also at its descriptor.
///
/// # Errors
/// `EINVAL` for a bit that is unknown, and for no bits.
pub fn check_bits(mask: u32) -> Result<(), Errno> {
    if mask & !KNOWN != 0 || mask == 0 { Err(Errno::INVAL) } else { Ok(()) }
}

/// What `inotify_add_watch` says to its mask.
///
/// # Errors
/// As [`check_bits`]; `EINVAL` for adding only what is new.
pub fn check_mask(mask: u32) -> Result<(), Errno> {
    let contradiction = IN_MASK_ADD | IN_MASK_CREATE;
    if mask & contradiction == contradiction { Err(Errno::INVAL) } else { check_bits(mask) }
}
