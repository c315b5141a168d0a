//! Telling those who watch.
//!
//! As long as nobody has ever watched anything in a kernel, what happens to a file costs them who do it one load of a line that
//! nobody writes. After that: the file's pointer to its watches, and the directory's, both null for nearly all.

use crate::dentry::Dentry;
use crate::inode::Inode;
use crate::inotify::{
    Happening, IN_ATTRIB, IN_MOVE_SELF, IN_MOVED_FROM, IN_MOVED_TO, Watches, notify,
};
use crate::raw::dcache::refs::DentryRef;
use crate::raw::listing::parent_and_name;
use crate::vfs::Vfs;
use quietline_platform::AllocError;
use quietline_platform::atomic::Ordering;
use quietline_sync::Shared;

bitflags::bitflags! {
    /// What happened, numbered as inotify does (`IN_*`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Event: u32 {
        /// Read.
        const ACCESS = 1;
        /// Written, or its length changed.
        const MODIFY = 2;
        /// Its attributes changed. (Also beside `MODIFY`, as one event.)
        const ATTRIB = 4;
        /// Closed, and could be written.
        const CLOSE_WRITE = 8;
        /// Closed, and could not be written.
        const CLOSE_NOWRITE = 0x10;
        /// Opened.
        const OPEN = 0x20;
        /// A name was made.
        const CREATE = 0x100;
        /// A name was taken away.
        const DELETE = 0x200;
    }
}

/// Whether anybody has ever watched anything.
#[inline(always)]
pub(crate) fn is_on(vfs: &Vfs) -> bool {
    // Relaxed: who begins to watch beside an operation may miss it.
    vfs.watched.load(Ordering::Relaxed)
}

/// The watches of an inode, made if there are none.
pub(crate) fn watches<'i>(vfs: &Vfs, inode: &'i Inode) -> Result<&'i Shared<Watches>, AllocError> {
    let watches = inode
        .i_watches
        .get_or_make(|| Shared::new(Watches::new(inode.ino(), inode.super_block().s_dev())))?;
    // Relaxed: as in `is_on`.
    if !vfs.watched.load(Ordering::Relaxed) {
        vfs.watched.store(true, Ordering::Relaxed);
    }
    Ok(watches)
}

fn of(inode: Option<&Inode>) -> Option<&Watches> {
    inode?.i_watches.get().map(|watches| &**watches)
}

/// A name came to a directory.
#[inline]
pub(crate) fn name(vfs: &Vfs, dir: &Dentry, name: &[u8], event: Event, is_dir: bool) {
    if is_on(vfs) {
        let parent = of(dir.inode()).map(|watches| (watches, name));
        notify(None, parent, Happening { mask: event.bits(), is_dir, ..Happening::default() });
    }
}

/// Something happened to an inode, by whatever name.
#[inline]
pub(crate) fn inode(vfs: &Vfs, inode: &Inode, event: Event) {
    if is_on(vfs) {
        notify(
            of(Some(inode)),
            None,
            Happening { mask: event.bits(), is_dir: inode.is_dir(), ..Happening::default() },
        );
    }
}

/// Something happened to a file, which its directory hears of too.
#[inline]
pub(crate) fn dentry(vfs: &Vfs, dentry: &Dentry, event: Event) {
    if is_on(vfs) {
        dentry_slow(vfs, dentry, event, false);
    }
}

/// Something was done with an open file, which its directory hears of too: but not who wants no events by way of names that are
/// gone (`IN_EXCL_UNLINK`). That is asked of nothing else.
#[inline]
pub(crate) fn file(vfs: &Vfs, dentry: &Dentry, event: Event) {
    if is_on(vfs) {
        dentry_slow(vfs, dentry, event, !dentry.is_hashed() && !dentry.is_root());
    }
}

/// Something was done with an open file, which its directory does not hear of.
#[inline]
pub(crate) fn file_alone(vfs: &Vfs, dentry: &Dentry, event: Event) {
    if is_on(vfs) {
        let unlinked = !dentry.is_hashed() && !dentry.is_root();
        let happening = Happening { mask: event.bits(), unlinked, ..Happening::default() };
        notify(of(dentry.inode()), None, happening);
    }
}

#[cold]
fn dentry_slow(vfs: &Vfs, dentry: &Dentry, event: Event, unlinked: bool) {
    let is_dir = dentry.inode().is_some_and(|inode| inode.is_dir());
    let happening = Happening { mask: event.bits(), is_dir, unlinked, ..Happening::default() };
    let file = of(dentry.inode());
    // The directory's watches are kept by a reference, and told when the section is over.
    let mut buffer = [0; crate::dcache::name::NAME_MAX];
    let (parent, len) =
        parent_and_name(vfs, dentry, &mut buffer, |parent| parent.i_watches.get().cloned());
    let parent = parent.as_ref().map(|watches| (&**watches, &buffer[..len]));
    notify(file, parent, happening);
}

/// A name was taken away from what is no directory: it has a link less. The directory is told when the file has ended, if that was
/// its last.
#[inline]
pub(crate) fn unlinked(vfs: &Vfs, victim: &DentryRef<'_>) {
    if let Some(victim) = victim.inode() {
        inode(vfs, victim, Event::ATTRIB);
    }
}

/// A file was moved; `over` is what it replaced.
#[inline]
pub(crate) fn moved(
    vfs: &Vfs,
    from: (&Dentry, &[u8]),
    to: (&Dentry, &[u8]),
    source: &DentryRef<'_>,
    over: Option<&DentryRef<'_>>,
) {
    if is_on(vfs) {
        let is_dir = source.inode().is_some_and(|inode| inode.is_dir());
        let cookie = vfs.inotify_limits.cookie();
        for (place, mask) in [(from, IN_MOVED_FROM), (to, IN_MOVED_TO)] {
            let parent = of(place.0.inode()).map(|watches| (watches, place.1));
            notify(None, parent, Happening { mask, cookie, is_dir, ..Happening::default() });
        }
        if let Some(over) = over.and_then(|over| over.inode()) {
            let is_dir = over.is_dir();
            notify(
                of(Some(over)),
                None,
                Happening { mask: IN_ATTRIB, is_dir, ..Happening::default() },
            );
        }
        notify(
            of(source.inode()),
            None,
            Happening { mask: IN_MOVE_SELF, is_dir, ..Happening::default() },
        );
    }
}

/// A dentry of an inode has ended. If the inode has no link left, those who watch it hear that it has ended, too, even if somebody has
/// it open by another name that it had.
#[inline]
pub(crate) fn dentry_ended(inode: &Inode) {
    if !inode.i_watches.is_empty() && inode.nlink() == 0 {
        ended_slow(inode);
    }
}

/// An inode has no reference left.
#[inline]
pub(crate) fn ended(inode: &Inode) {
    if !inode.i_watches.is_empty() {
        ended_slow(inode);
    }
}

#[cold]
#[inline(never)]
fn ended_slow(inode: &Inode) {
    let Some(watches) = inode.i_watches.get() else { return };
    match inode.nlink() {
        0 => watches.deleted(inode.is_dir()),
        _ => watches.unmounted(inode.is_dir()),
    }
}
