//! Opening.

use super::checked;
use crate::abi::{AT_FDCWD, O_ANYFD, O_CLOEXEC, O_CREAT, O_TRUNC, O_WRONLY, RESOLVE_IN_ROOT};
use crate::process::opened;
use crate::{Errno, FileHandle, Process};
use quietline_vfs::namei::Caller;
use quietline_vfs::{ColdResult, OpenHow, OpenResult, Opening, Start};

impl Process {
    /// Opens, and with `O_CREAT` makes, the file at a path.
    ///
    /// Writes the table's lock line (not with [`O_ANYFD`]) and the dentry's; what making a file writes, if one is made.
    ///
    /// # Errors
    /// As `open(2)`. Sockets, and devices that are not an embedder's: `ENXIO`. `EINVAL` for a path
    /// with a zero byte.
    #[inline]
    pub fn open(&self, path: impl AsRef<[u8]>, flags: i32, mode: u32) -> Result<i32, Errno> {
        self.openat(AT_FDCWD, path, flags, mode)
    }

    /// [`open`](Self::open) from a directory.
    ///
    /// # Errors
    /// As [`open`](Self::open); `EBADF`, `ENOTDIR` for the descriptor.
    #[inline]
    pub fn openat(
        &self,
        dirfd: i32,
        path: impl AsRef<[u8]>,
        flags: i32,
        mode: u32,
    ) -> Result<i32, Errno> {
        let file = self.openat_file(dirfd, path, flags & !O_ANYFD, mode)?;
        self.install(file, flags & (O_CLOEXEC | O_ANYFD))
    }

    /// [`openat`](Self::openat) without a descriptor.
    ///
    /// # Errors
    /// As [`openat`](Self::openat), but for `EMFILE`.
    #[inline]
    pub fn openat_file(
        &self,
        dirfd: i32,
        path: impl AsRef<[u8]>,
        flags: i32,
        mode: u32,
    ) -> Result<FileHandle<'_>, Errno> {
        let opening = Opening::new(flags, mode)?;
        // Callbacks run outside the second try, which is exempt from a limit.
        self.returning(opened!(self, self.open_as(dirfd, path.as_ref(), opening).into_result()))
    }

    /// [`open_checked`](Self::open_checked), called: `opened` evaluates it in two places.
    fn open_as(&self, dirfd: i32, path: &[u8], opening: Opening) -> ColdResult<FileHandle<'_>> {
        self.open_checked(dirfd, path, opening).into()
    }

    #[inline(always)]
    fn open_checked(
        &self,
        dirfd: i32,
        path: &[u8],
        opening: Opening,
    ) -> Result<FileHandle<'_>, Errno> {
        let path = checked(path)?;
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let k = self.inner();
        if opening.resolve != 0 || (dirfd != AT_FDCWD && path[0] != b'/') {
            return self.open_slow(dirfd, path, opening);
        }
        let opened = if opening.has(O_CREAT) {
            let section = self.cred.section();
            let cred = self.cred.load(&section);
            let start = Start::cwd(self.here());
            let caller = Caller { vfs: &k.vfs, files: &k.files, start, cred };
            quietline_vfs::open_or_create(&caller, path, opening)
        } else {
            let start = Start::cwd(self.here());
            quietline_vfs::open_fast(&k.vfs, &k.files, start, &self.cred, path, opening)
        };
        match opened {
            Some(opened) => opened,
            None => self.open_slow(dirfd, path, opening),
        }
    }

    #[inline(never)]
    fn open_slow(
        &self,
        dirfd: i32,
        path: &[u8],
        opening: Opening,
    ) -> Result<FileHandle<'_>, Errno> {
        let relative = opening.resolve & RESOLVE_IN_ROOT != 0 || path[0] != b'/';
        let dirfd = if relative { dirfd } else { AT_FDCWD };
        let opened = if dirfd == AT_FDCWD {
            self.call_again(|caller| quietline_vfs::open(caller, path, opening))
        } else {
            self.call_from_again(dirfd, |caller| quietline_vfs::open(caller, path, opening))
        };
        match opened? {
            OpenResult::File(file) => Ok(file),
            // Outside the read section of the credentials: it may wait.
            OpenResult::Fifo(fifo) => {
                fifo.finish(&self.inner().vfs, &self.inner().files, self.owner.load().uid())
            }
        }
    }

    /// [`openat`](Self::openat) that says how far a path may lead, and takes no flag that it does not know.
    ///
    /// # Errors
    /// As [`openat`](Self::openat) and `openat2(2)`.
    pub fn openat2(&self, dirfd: i32, path: impl AsRef<[u8]>, how: &OpenHow) -> Result<i32, Errno> {
        let any = how.flags & O_ANYFD as u64;
        let opening = Opening::of(OpenHow { flags: how.flags & !any, ..*how })?;
        let opened = opened!(self, self.open_as(dirfd, path.as_ref(), opening).into_result());
        let file = self.returning(opened)?;
        self.install(file, opening.flags & O_CLOEXEC | any as i32)
    }

    /// Makes and opens a file, or empties the one that is there (`creat`).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn creat(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<i32, Errno> {
        self.open(path, O_CREAT | O_WRONLY | O_TRUNC, mode)
    }
}
