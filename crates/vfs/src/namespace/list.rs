//! What is mounted where.

use super::{MountFlags, Namespace};
use crate::raw::mount::MountRef;
use crate::raw::mount_book::On;
use crate::raw::walk_path::Path;
use quietline_platform::atomic::Ordering;
use quietline_platform::heap;
use rustix::io::Errno;

/// A line of `/proc/mounts`, or of `mountinfo`.
#[derive(Debug)]
pub struct MountInfo<'k> {
    /// The mount.
    pub mount: MountRef<'k>,
    /// The mountpoint, in the mount below; none for the root of the namespace.
    pub on: Option<Path<'k>>,
    /// What is forbidden in it.
    pub flags: MountFlags,
}

pub(super) fn mounts<'k>(namespace: &Namespace<'k>) -> Result<Vec<MountInfo<'k>>, Errno> {
    let mut list: Vec<MountInfo<'k>> = Vec::new();
    loop {
        let book = namespace.vfs.mounts.lock();
        // Relaxed: under the lock.
        let ours = book
            .entries()
            .iter()
            .filter(|e| e.mount().namespace.load(Ordering::Relaxed) == namespace.id);
        if ours.clone().count() > list.capacity() {
            let wanted = ours.count();
            drop(book);
            heap::try_reserve(&mut list, wanted).map_err(|_| Errno::NOMEM)?;
            continue;
        }
        list.extend(ours.map(|entry| {
            let place = |on: &On<'static>| Path::new(on.mount.clone(), on.dentry.clone());
            MountInfo {
                mount: entry.mount().clone(),
                on: entry.on().map(place),
                flags: entry.mount().flags(),
            }
        }));
        return Ok(list);
    }
}
