//! The crate vfs: its in-memory filesystem, one hash of whole paths under a lock.
//!
//! It has no descriptors, no numbers of files, no permissions, and a file that is made over another replaces it. Paths begin
//! with a slash.

use std::ffi::CStr;
use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;

use vfs::error::VfsErrorKind;
use vfs::{FileSystem, MemoryFS, SeekAndRead, VfsError};

use super::layout::{Layout, SIZE};
use super::tree::{Facts, Tree, World};
use crate::adapters::probe::failed;
use crate::harness::{Fault, Unfit};

/// A filesystem of the crate's.
pub(super) struct Vfs {
    fs: Arc<MemoryFS>,
}

impl World for Vfs {
    type Tree = View;

    fn new(layout: &Layout) -> Result<Self, Unfit> {
        let fs = MemoryFS::new();
        for directory in &layout.directories {
            fs.create_dir(&format!("/{directory}")).map_err(failed)?;
        }
        for file in &layout.files {
            let mut file = fs.create_file(&format!("/{file}")).map_err(failed)?;
            file.write_all(&[7; SIZE]).map_err(failed)?;
        }
        Ok(Self { fs: Arc::new(fs) })
    }

    fn enter(&self) -> Result<View, Fault> {
        Ok(View(self.fs.clone()))
    }

    /// How many names there are at the top, and in the directories there.
    fn census(&self) -> Result<Vec<i64>, Fault> {
        let mut names = 0;
        let mut left = vec![String::new()];
        while let Some(directory) = left.pop() {
            for name in self.fs.read_dir(&directory).map_err(failed)? {
                names += 1;
                let path = format!("{directory}/{name}");
                if self.fs.metadata(&path).map_err(failed)?.file_type == vfs::VfsFileType::Directory
                {
                    left.push(path);
                }
            }
        }
        Ok(vec![names])
    }
}

/// A thread's view: the same for all.
pub(super) struct View(Arc<MemoryFS>);

/// A path as the crate has it.
#[inline(always)]
fn text(path: &CStr) -> &str {
    // All paths of the layout are ASCII.
    path.to_str().unwrap_or_default()
}

impl Tree for View {
    type Error = VfsError;
    type File<'t> = Box<dyn SeekAndRead + Send>;

    const ROOT: &'static str = "/";
    const EXCLUSIVE: bool = false;

    #[inline(always)]
    fn create(&self, path: &CStr) -> Result<(), VfsError> {
        self.0.create_file(text(path)).map(drop)
    }

    #[inline(always)]
    fn unlink(&self, path: &CStr) -> Result<(), VfsError> {
        self.0.remove_file(text(path))
    }

    #[inline(always)]
    fn stat(&self, path: &CStr) -> Result<Option<Facts>, VfsError> {
        match self.0.metadata(text(path)) {
            Ok(found) => Ok(Some(Facts { ino: 0, size: found.len })),
            Err(error) if matches!(error.kind(), VfsErrorKind::FileNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    #[inline(always)]
    fn open(&self, path: &CStr) -> Result<Self::File<'_>, VfsError> {
        self.0.open_file(text(path))
    }

    fn takes_lowest(&self) -> bool {
        false
    }

    #[inline(always)]
    fn number(file: &Self::File<'_>) -> i32 {
        black_box(file);
        0
    }

    /// It tells of a file only by reading it.
    fn fstat(&self, file: &mut Self::File<'_>) -> Result<Facts, VfsError> {
        let size = std::io::copy(file, &mut std::io::sink())?;
        Ok(Facts { ino: 0, size })
    }

    #[inline(always)]
    fn close(&self, file: Self::File<'_>) -> Result<(), VfsError> {
        drop(file);
        Ok(())
    }
}
