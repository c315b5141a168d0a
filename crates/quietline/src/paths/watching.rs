//! inotify, and files that no path leads to.

use crate::abi::{O_ANYFD, O_CLOEXEC, O_RDWR};
use crate::{Errno, Process};
use quietline_vfs::inotify::Inotify;
use quietline_vfs::{Opening, namei};

/// `memfd_create`: close on exec.
pub const MFD_CLOEXEC: u32 = 1;
/// `memfd_create`: seals may be set; there are none here.
pub const MFD_ALLOW_SEALING: u32 = 2;
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
        let file = self.opened(|| {
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

    /// Makes a file in memory that has no path. Flags: `MFD_CLOEXEC`. Its room is counted against the root filesystem's.
    ///
    /// # Errors
    /// `EINVAL` for an unknown flag (seals are not offered), a name of more than 249 bytes or with a zero in it; `ENOSPC`,
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn memfd_create(&self, name: impl AsRef<[u8]>, flags: u32) -> Result<i32, Errno> {
        let name = name.as_ref();
        if flags & !MFD_CLOEXEC != 0 || name.len() > MFD_NAME_MAX || name.contains(&0) {
            return Err(Errno::INVAL);
        }
        let k = self.inner();
        let section = self.cred.section();
        let start = quietline_vfs::Start::cwd(self.here());
        let caller =
            namei::Caller { vfs: &k.vfs, files: &k.files, start, cred: self.cred.load(&section) };
        let file =
            quietline_vfs::open_unnamed(&caller, &k.namespace.root(), Opening::new(O_RDWR, 0)?)?;
        self.install(file, if flags & MFD_CLOEXEC != 0 { O_CLOEXEC } else { 0 })
    }
}
