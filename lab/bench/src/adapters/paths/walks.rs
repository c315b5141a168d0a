//! quietline's path walk by reference: what a walk costs if each directory on the way is counted.

use std::fmt::Display;
use std::sync::{Arc, OnceLock};

use quietline::abi::{AT_FDCWD, O_DIRECTORY, O_PATH};
use quietline::{Errno, Kernel, Process};
use quietline_platform::atomic::AtomicBool;
use quietline_vfs::cred::Cred;
use quietline_vfs::namei::stat_of;
use quietline_vfs::{FsStruct, How, Start};

use super::Opened;
use super::layout::{self, Layout, SIZE};
use super::quietline::{boot, census};
use crate::adapters::probe::failed;
use crate::harness::{Arena, Fault, Seat, Unfit, Worker, repeat};
use crate::workloads::{Dcache, Job};

/// The arena of a job that looks up paths.
pub(super) fn open_by_reference(job: Job, threads: usize) -> Opened {
    let Job::Dcache(what) = job else { return Err(Unfit::Missing("it only looks up".to_owned())) };
    let (kernel, _) = boot(&Layout::of(job, threads))?;
    Ok(Arc::new(Walks { kernel, what, start: OnceLock::new() }))
}

struct Walks {
    kernel: Kernel,
    what: Dcache,
    start: OnceLock<Vec<i64>>,
}

impl Arena for Walks {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let (path, there) = match self.what {
            Dcache::Stat(whose, depth) => (layout::path(whose, depth, seat.thread), true),
            _ => (layout::string("nothing".to_owned()), false),
        };
        let process = self.kernel.process().map_err(failed)?;
        let expected = match process.stat(path.to_bytes()) {
            Ok(stat) if there && stat.st_size == SIZE as i64 => Ok(stat),
            Err(Errno::NOENT) if !there => Err(Errno::NOENT),
            other => return Err(Fault::new(format!("{path:?}: {other:?}"))),
        };
        let path = path.into_bytes();
        Ok(Box::new(Walker {
            process,
            path,
            expected: expected.map(|stat| (stat.st_ino, stat.st_size)),
        }))
    }

    fn settle(&self) -> Result<(), Fault> {
        let census = census(&self.kernel);
        let start = self.start.get_or_init(|| census.clone());
        Fault::unless(census == *start, || {
            format!("not as at the start: {start:?} became {census:?}")
        })
    }
}

struct Walker {
    process: Process,
    path: Vec<u8>,
    /// Number and size, or why not.
    expected: Result<(u64, i64), Errno>,
}

impl Worker for Walker {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let Self { process, path, expected } = self;
        let here = process.openat_file(AT_FDCWD, ".", O_PATH | O_DIRECTORY, 0).map_err(failed)?;
        let here = here.place().ok_or_else(|| Fault::new("a directory that is nowhere"))?;
        let root = here.to_path();
        let vfs = root.dentry().vfs();
        let fs = FsStruct::new(vfs, here.to_path(), here.to_path()).map_err(failed)?;
        let cred = Cred::new(1000, 1000);
        repeat("a walk finds the file that stat found", ops, stop, || {
            let found = vfs.path_by_reference(&Start::cwd(&fs), path, How::FOLLOW, &cred);
            let found = found.map(|found| {
                let stat = found.dentry().inode().map(stat_of).unwrap_or_default();
                (stat.st_ino, stat.st_size)
            });
            Ok::<_, &dyn Display>(found == *expected)
        })
    }
}
