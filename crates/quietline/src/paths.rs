//! System calls that take paths, and those on the files of the tree.
//!
//! Paths are bytes: anything that is `AsRef<[u8]>`, such as `&str`. A path with a zero byte in it, which no program could
//! give to Linux, is `EINVAL`. Each `*at` call takes a descriptor of a directory to begin at, or
//! [`AT_FDCWD`](crate::abi::AT_FDCWD); it is not looked at for a path that begins with a slash.

mod attributes;
mod data;
mod describe;
mod locks;
mod names;
mod opening;
mod place;
mod watching;
mod xattr;

pub use watching::{MFD_ALLOW_SEALING, MFD_CLOEXEC, MFD_EXEC};

use crate::abi::{AT_FDCWD, AT_SYMLINK_NOFOLLOW};
use crate::{Errno, FileHandle, Process};
use quietline_vfs::cred::CredCell;
use quietline_vfs::namei::Caller;
use quietline_vfs::operations::RESTART;
use quietline_vfs::{Found, How, Lookup, Start};

/// What a path stands for, as the flags of the `*at` calls ask for it.
fn how(flags: i32, follow: bool) -> How {
    let mut lookup = Lookup::empty();
    lookup.set(Lookup::FOLLOW, follow);
    lookup.set(Lookup::EMPTY, flags & crate::abi::AT_EMPTY_PATH != 0);
    How::of(lookup)
}

/// A path as it was given.
#[inline(always)]
pub(crate) fn checked(path: &[u8]) -> Result<&[u8], Errno> {
    // Before anybody looks at a descriptor.
    if path.len() >= crate::abi::PATH_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    if has_zero(path) { Err(Errno::INVAL) } else { Ok(path) }
}

/// Whether a byte is zero: eight at a time, the last eight perhaps twice.
#[inline(always)]
fn has_zero(path: &[u8]) -> bool {
    /// The highest bit of the lowest byte that is zero, and perhaps others if there is one.
    #[inline(always)]
    fn zeros(word: u64) -> u64 {
        const ONES: u64 = 0x0101_0101_0101_0101;
        word.wrapping_sub(ONES) & !word & (ONES << 7)
    }
    if let Some(last) = path.last_chunk::<8>() {
        let of_last = zeros(u64::from_ne_bytes(*last));
        let eights = path.as_chunks::<8>().0;
        return eights
            .iter()
            .fold(of_last, |found, eight| found | zeros(u64::from_ne_bytes(*eight)))
            != 0;
    }
    match (path.first_chunk::<4>(), path.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let [first, last] = [first, last].map(|four| u64::from(u32::from_ne_bytes(*four)));
            zeros(first | last << 32) != 0
        }
        _ => path.contains(&0),
    }
}

impl Process {
    /// Calls `f` with who calls: paths begin in the working directory.
    #[inline(always)]
    pub(crate) fn call<'k, R>(&'k self, f: impl FnOnce(&Caller<'_, 'k>) -> R) -> R {
        let k = self.inner();
        let section = self.cred.section();
        let cred = self.cred.load(&section);
        f(&Caller { vfs: &k.vfs, files: &k.files, start: Start::cwd(self.here()), cred })
    }

    /// [`call`](Self::call), and once more if `f` needs a method of an embedder's file system:
    /// without the section of the credentials.
    ///
    /// # Errors
    /// Those of `f`; `ENOMEM`.
    #[inline]
    pub(crate) fn call_again<'k, R>(
        &'k self,
        f: impl Fn(&Caller<'_, 'k>) -> Result<R, Errno> + Copy,
    ) -> Result<R, Errno> {
        match self.call(f) {
            Err(RESTART) => self.call_sleeping(f),
            done => done,
        }
    }

    /// Calls `f` with the caller, which may run methods of embedders' file systems: with a copy of
    /// the credentials, in no section. The calling thread holds no lock.
    ///
    /// # Errors
    /// Those of `f`; `ENOMEM`.
    #[cold]
    #[inline(never)]
    pub(crate) fn call_sleeping<'k, R>(
        &'k self,
        f: impl FnOnce(&Caller<'_, 'k>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let k = self.inner();
        let cred = {
            let section = self.cred.section();
            self.cred.load(&section).for_sleeping_call().map_err(|_| Errno::NOMEM)?
        };
        let start = Start::cwd(self.here());
        f(&Caller { vfs: &k.vfs, files: &k.files, start, cred: &cred })
    }

    /// Calls `f` with the caller and with a path; relative paths begin at a descriptor. Then runs
    /// the thread's share of RCU callbacks: a walk may free objects of `/proc`, also where it fails.
    ///
    /// # Errors
    /// `ENOENT` for an empty path, unless the flags allow it; `EBADF`; `ENOTDIR` for a file that is
    /// not in the tree.
    #[inline(always)]
    pub(crate) fn call_at<'k, 'p, R>(
        &'k self,
        dirfd: i32,
        path: &'p [u8],
        flags: i32,
        f: impl Fn(&Caller<'_, 'k>, &'p [u8]) -> Result<R, Errno> + Copy,
    ) -> Result<R, Errno> {
        self.returning(self.walk_at(dirfd, path, flags, f))
    }

    /// [`call_at`](Self::call_at) without the thread's share of callbacks: for a caller that holds
    /// a lock, or that goes on with its call.
    ///
    /// # Errors
    /// As [`call_at`](Self::call_at).
    #[inline(always)]
    pub(crate) fn walk_at<'k, 'p, R>(
        &'k self,
        dirfd: i32,
        path: &'p [u8],
        flags: i32,
        f: impl Fn(&Caller<'_, 'k>, &'p [u8]) -> Result<R, Errno> + Copy,
    ) -> Result<R, Errno> {
        match self.walk_once(dirfd, path, flags, f) {
            Err(RESTART) => self.walk_sleeping(dirfd, path, f),
            done => done,
        }
    }

    /// [`walk_at`](Self::walk_at) once more, for a path that it has checked.
    #[cold]
    #[inline(never)]
    fn walk_sleeping<'k, 'p, R>(
        &'k self,
        dirfd: i32,
        path: &'p [u8],
        f: impl Fn(&Caller<'_, 'k>, &'p [u8]) -> Result<R, Errno> + Copy,
    ) -> Result<R, Errno> {
        if dirfd == AT_FDCWD || path.first() == Some(&b'/') {
            return self.call_sleeping(|caller| f(caller, path));
        }
        self.call_from_again(dirfd, |caller| f(caller, path))
    }

    /// [`walk_at`](Self::walk_at) for a caller that holds a lock, or is in a walk: no method of an
    /// embedder runs.
    ///
    /// # Errors
    /// As [`call_at`](Self::call_at); [`RESTART`] where a method is needed.
    #[inline(always)]
    pub(crate) fn walk_once<'k, 'p, R>(
        &'k self,
        dirfd: i32,
        path: &'p [u8],
        flags: i32,
        f: impl FnOnce(&Caller<'_, 'k>, &'p [u8]) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let path = checked(path)?;
        if path.is_empty() && flags & crate::abi::AT_EMPTY_PATH == 0 {
            return Err(Errno::NOENT);
        }
        if dirfd == AT_FDCWD || path.first() == Some(&b'/') {
            return self.call(|caller| f(caller, path));
        }
        self.call_from(dirfd, |caller| f(caller, path))
    }

    /// Calls `f` with a path's object, inside a read section: [`Caller::look`] with credentials
    /// that are read in the walk's own section, unless the walk must wait or begins at a
    /// descriptor.
    ///
    /// # Errors
    /// As [`call_at`](Self::call_at), and those of a walk.
    #[inline(always)]
    pub(crate) fn look_inside<R>(
        &self,
        dirfd: i32,
        path: &[u8],
        flags: i32,
        how: How,
        f: impl Fn(&Found<'_, '_>) -> R,
    ) -> Result<R, Errno> {
        let path = checked(path)?;
        if path.is_empty() && flags & crate::abi::AT_EMPTY_PATH == 0 {
            return Err(Errno::NOENT);
        }
        if dirfd == AT_FDCWD || path.first() == Some(&b'/') {
            let vfs = &self.inner().vfs;
            let section = vfs.read();
            let cred = self.cred.load_in_walk(&section);
            match vfs.look_fast(Start::cwd(self.here()), path, how, cred, &section) {
                Ok(found) => return Ok(f(&found)),
                Err(Some(errno)) => return Err(errno),
                Err(None) => {}
            }
        }
        self.look_slow(dirfd, path, flags, how, f)
    }

    #[inline(never)]
    fn look_slow<R>(
        &self,
        dirfd: i32,
        path: &[u8],
        flags: i32,
        how: How,
        f: impl Fn(&Found<'_, '_>) -> R,
    ) -> Result<R, Errno> {
        let f = &f;
        self.call_at(dirfd, path, flags, |c, path| c.look(path, how, f))
    }

    /// Calls `f` with who calls and two paths, if both begin in the working directory or at the root, and nothing is wrong with them; none
    /// otherwise, or if `f` says so.
    #[inline]
    pub(crate) fn call_both<'k, R>(
        &'k self,
        dirfds: [i32; 2],
        paths: [&[u8]; 2],
        f: impl FnOnce(&Caller<'_, 'k>, &[u8], &[u8]) -> Option<R>,
    ) -> Option<R> {
        let (old, new) = (checked(paths[0]).ok()?, checked(paths[1]).ok()?);
        let begins = |dirfd, path: &[u8]| dirfd == AT_FDCWD || path.first() == Some(&b'/');
        let both = begins(dirfds[0], old) && begins(dirfds[1], new);
        if both { self.call(|caller| f(caller, old, new)) } else { None }
    }

    #[inline(never)]
    fn call_from<'k, R>(
        &'k self,
        dirfd: i32,
        f: impl FnOnce(&Caller<'_, 'k>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let file = self.file(dirfd)?;
        let place = file.place().ok_or(Errno::NOTDIR)?;
        self.call(|caller| f(&caller.with_start(Start::at(self.here(), place))))
    }

    /// [`call_again`](Self::call_again); relative paths begin at a descriptor.
    #[inline(never)]
    fn call_from_again<'k, R>(
        &'k self,
        dirfd: i32,
        f: impl Fn(&Caller<'_, 'k>) -> Result<R, Errno> + Copy,
    ) -> Result<R, Errno> {
        let file = self.file(dirfd)?;
        let place = file.place().ok_or(Errno::NOTDIR)?;
        self.call_again(|caller| f(&caller.with_start(Start::at(self.here(), place))))
    }

    /// Calls `f` with the caller and with the file of a descriptor.
    ///
    /// # Errors
    /// `EBADF`, also for a file that is open with `O_PATH`.
    #[inline]
    pub(crate) fn call_on<R>(
        &self,
        fd: i32,
        f: impl Fn(&Caller<'_, '_>, &FileHandle<'_>) -> Result<R, Errno> + Copy,
    ) -> Result<R, Errno> {
        let file = self.fget(fd)?;
        self.call_again(|caller| f(caller, &file))
    }

    /// Calls `object` with the file that an empty path stands for, if it is on a pseudo object, or
    /// else `named` with the path and the lookup for `flags`.
    ///
    /// # Errors
    /// As [`call_at`](Self::call_at).
    #[inline]
    fn call_at_or_on<R>(
        &self,
        dirfd: i32,
        path: &[u8],
        flags: i32,
        object: impl FnOnce(&Caller<'_, '_>, &FileHandle<'_>) -> Result<R, Errno>,
        named: impl Fn(&Caller<'_, '_>, &[u8], How) -> Result<R, Errno> + Copy,
    ) -> Result<R, Errno> {
        if let Some(file) = self.object_at(dirfd, path, flags)? {
            return self.call(|caller| object(caller, &file));
        }
        let how = how(flags, flags & AT_SYMLINK_NOFOLLOW == 0);
        self.call_at(dirfd, path, flags, |caller, path| named(caller, path, how))
    }

    /// Returns the file that an empty path stands for, if it is on a pseudo object: a walk begins
    /// at a file of the tree only.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline]
    fn object_at(
        &self,
        dirfd: i32,
        path: &[u8],
        flags: i32,
    ) -> Result<Option<FileHandle<'_>>, Errno> {
        if !path.is_empty() || flags & crate::abi::AT_EMPTY_PATH == 0 || dirfd == AT_FDCWD {
            return Ok(None);
        }
        Ok(Some(self.file(dirfd)?).filter(|file| file.opened().is_object()))
    }
}

#[cfg(test)]
mod tests {
    use super::has_zero;

    #[test]
    fn a_zero_byte_is_found_wherever_it_is() {
        for byte in [1, 0x7f, 0x80, 0x81, 0xff] {
            for len in 0..40 {
                let mut path = vec![byte; len];
                assert!(!has_zero(&path), "{byte} {len}");
                for at in 0..len {
                    path[at] = 0;
                    assert!(has_zero(&path), "{byte} {len} {at}");
                    path[at] = byte;
                }
            }
        }
    }
}
