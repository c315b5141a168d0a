//! inotify, and files that no path leads to.

use crate::abi::{O_ANYFD, O_CLOEXEC};
use crate::process::opened;
use crate::{Errno, Process};
use quietline_vfs::inotify::Inotify;
use quietline_vfs::namei;

/// `memfd_create`: close on exec.
pub const MFD_CLOEXEC: u32 = 1;
/// `memfd_create`: seals may be set; there are none here.
pub const MFD_ALLOW_SEALING: u32 = 2;
/// `memfd_create`: the file may be executed, as without this flag.
pub const MFD_EXEC: u32 = 16;
/// What `/proc` shows before a memfd's name.
const MFD_PREFIX: &[u8] = b"memfd:";
/// The longest name of a memfd.
const MFD_NAME_MAX: usize = 249;

impl Process {
    /// Makes an instance of inotify. Flags: `O_CLOEXEC`, `O_NONBLOCK`, [`O_ANYFD`]. Its events are read by
    /// [`read`](Self::read).
    ///
    /// # Errors
    /// As `inotify_init1(2)`.
    pub fn inotify_init1(&self, flags: i32) -> Result<i32, Errno> {
        let k = self.inner();
        let [uid, ..] = self.getresuid();
        let file = opened!(self, {
            quietline_vfs::file::inotify_init1(
                &k.inotifies,
                &k.files,
                &k.vfs,
                uid,
                flags & !O_ANYFD,
            )
        })?;
        self.install(file, flags & (O_CLOEXEC | O_ANYFD))
    }

    /// Watches what is at a path: the watch's number.
    ///
    /// # Errors
    /// As `inotify_add_watch(2)`.
    pub fn inotify_add_watch(
        &self,
        fd: i32,
        path: impl AsRef<[u8]>,
        mask: u32,
    ) -> Result<i32, Errno> {
        quietline_vfs::inotify::check_bits(mask)?;
        let file = self.fget(fd)?;
        quietline_vfs::inotify::check_mask(mask)?;
        let inotify = file.payload::<Inotify>().ok_or(Errno::INVAL)?;
        self.call_at(crate::abi::AT_FDCWD, path.as_ref(), 0, |c, path| {
            namei::add_watch(c, path, mask, inotify)
        })
    }

    /// Ends a watch.
    ///
    /// # Errors
    /// As `inotify_rm_watch(2)`.
    pub fn inotify_rm_watch(&self, fd: i32, wd: i32) -> Result<(), Errno> {
        let file = self.fget(fd)?;
        file.payload::<Inotify>().ok_or(Errno::INVAL)?.rm_watch(wd)
    }

    /// Creates a file in memory that has no path. `/proc` shows it as `/memfd:NAME (deleted)`.
    /// Flags: `MFD_CLOEXEC`, `MFD_EXEC`. All such files are in one filesystem that is mounted in no
    /// tree. It has the limits of the root filesystem, and room of its own. Writes no shared line
    /// but those of the file and of that filesystem's root.
    ///
    /// # Errors
    /// `EINVAL` for an unknown flag (seals are not offered), a name of more than 249 bytes or with a zero in it; `ENOSPC`,
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn memfd_create(&self, name: impl AsRef<[u8]>, flags: u32) -> Result<i32, Errno> {
        let name = name.as_ref();
        if flags & !(MFD_CLOEXEC | MFD_EXEC) != 0 || name.len() > MFD_NAME_MAX || name.contains(&0)
        {
            return Err(Errno::INVAL);
        }
        let root = self.inner().memfds.root();
        let mut buffer = [0; MFD_PREFIX.len() + MFD_NAME_MAX];
        let shown = &mut buffer[..MFD_PREFIX.len() + name.len()];
        shown[..MFD_PREFIX.len()].copy_from_slice(MFD_PREFIX);
        shown[MFD_PREFIX.len()..].copy_from_slice(name);
        let opened = opened!(self, self.call(|c| quietline_vfs::open_memfd(c, &root, shown)));
        let flags = if flags & MFD_CLOEXEC != 0 { O_CLOEXEC } else { 0 };
        // A file without a descriptor, or an object without a file, has been freed.
        self.returning(opened.and_then(|file| self.install(file, flags)))
    }
}
