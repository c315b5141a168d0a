//! The host kernel: a directory on a tmpfs that is there anyway, removed at the end.

use std::ffi::{CStr, CString};
use std::fs;
use std::path::PathBuf;

use quietline_platform::atomic::{AtomicU32, Ordering};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::AtFlags;
use rustix::fs::{CWD, Mode, OFlags, openat, statat, statfs, unlinkat};
use rustix::io::Errno;

use super::layout::{Layout, SIZE, string};
use super::tree::{Facts, Tree, World};
use crate::adapters::probe::failed;
use crate::harness::{Fault, Unfit};
use crate::raw;

/// Where Linux systems have a tmpfs that everybody may use.
const TMPFS: &str = "/dev/shm";
/// `statfs` says this of a tmpfs.
const TMPFS_MAGIC: u32 = 0x0102_1994;

/// Tells directories of one program apart.
static LAST: AtomicU32 = AtomicU32::new(0);

/// A directory of the host.
pub(super) struct Host {
    root: PathBuf,
}

impl World for Host {
    type Tree = Place;

    fn new(layout: &Layout) -> Result<Self, Unfit> {
        let is_tmpfs = statfs(TMPFS).is_ok_and(|found| found.f_type as u32 == TMPFS_MAGIC);
        if !is_tmpfs {
            return Err(Unfit::Missing(format!("{TMPFS} is no tmpfs here")));
        }
        // Relaxed: only different numbers are wanted.
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let root =
            PathBuf::from(format!("{TMPFS}/quietline-bench-{}-{number}", std::process::id()));
        fs::create_dir(&root)
            .map_err(|e| Fault::new(format!("cannot make {}: {e}", root.display())))?;
        // From here on it is removed again.
        let host = Self { root };
        for directory in &layout.directories {
            fs::create_dir(host.root.join(directory)).map_err(failed)?;
        }
        for file in &layout.files {
            fs::write(host.root.join(file), [7; SIZE]).map_err(failed)?;
        }
        Ok(host)
    }

    fn enter(&self) -> Result<Place, Fault> {
        raw::own_descriptor_table().map_err(failed)?;
        raw::own_working_directory().map_err(failed)?;
        let root = self.root.to_str().expect("made of such a string");
        let root: CString = string(root.to_owned());
        rustix::process::chdir(root.as_c_str()).map_err(failed)?;
        Ok(Place)
    }

    /// How many names there are: the kernel's own counters are the whole machine's.
    fn census(&self) -> Result<Vec<i64>, Fault> {
        let mut names = 0;
        let mut left = vec![self.root.clone()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(&directory).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                names += 1;
                if entry.file_type().map_err(failed)?.is_dir() {
                    left.push(entry.path());
                }
            }
        }
        Ok(vec![names])
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // What cannot be removed is left; there is nobody to tell.
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// A thread whose working directory is the world's.
pub(super) struct Place;

impl Tree for Place {
    type Error = Errno;
    type File<'t> = OwnedFd;

    #[inline(always)]
    fn create(&self, path: &CStr) -> Result<(), Errno> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        openat(CWD, path, flags, Mode::from_raw_mode(0o644)).map(drop)
    }

    #[inline(always)]
    fn unlink(&self, path: &CStr) -> Result<(), Errno> {
        unlinkat(CWD, path, AtFlags::empty())
    }

    #[inline(always)]
    fn stat(&self, path: &CStr) -> Result<Option<Facts>, Errno> {
        match statat(CWD, path, AtFlags::empty()) {
            Ok(stat) => Ok(Some(Facts { ino: stat.st_ino, size: stat.st_size as u64 })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    #[inline(always)]
    fn open(&self, path: &CStr) -> Result<OwnedFd, Errno> {
        openat(CWD, path, OFlags::RDONLY, Mode::empty())
    }

    fn takes_lowest(&self) -> bool {
        true
    }

    #[inline(always)]
    fn number(file: &OwnedFd) -> i32 {
        file.as_raw_fd()
    }

    fn fstat(&self, file: &mut OwnedFd) -> Result<Facts, Errno> {
        rustix::fs::fstat(file).map(|stat| Facts { ino: stat.st_ino, size: stat.st_size as u64 })
    }

    #[inline(always)]
    fn close(&self, file: OwnedFd) -> Result<(), Errno> {
        drop(file);
        Ok(())
    }
}
