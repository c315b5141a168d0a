//! Files made and removed in the ramfs of 2010, inodes freed in four ways.

use std::sync::Arc;

use quietline_history::inode_rcu::{Failed, FreeWay, Ramfs};
use quietline_platform::atomic::AtomicBool;

use super::{Opened, stopped};
use crate::adapters::probe::failed;
use crate::harness::{Arena, Fault, Seat, Unfit, Worker, repeat};
use crate::workloads::{Job, Unlink, Whose};

/// Freed at once.
pub(super) fn open_immediate(job: Job, threads: usize) -> Opened {
    open(FreeWay::Immediate, job, threads)
}

/// Freed after a grace period.
pub(super) fn open_call_rcu(job: Job, threads: usize) -> Opened {
    open(FreeWay::CallRcu, job, threads)
}

/// Freed at once, for inodes.
pub(super) fn open_typesafe(job: Job, threads: usize) -> Opened {
    open(FreeWay::Typesafe, job, threads)
}

/// Freed after a grace period, by the sheaf.
pub(super) fn open_sheaf(job: Job, threads: usize) -> Opened {
    open(FreeWay::Sheaf, job, threads)
}

fn open(way: FreeWay, job: Job, threads: usize) -> Opened {
    let Job::Unlink(unlink) = job else {
        return Err(Unfit::Missing("it only makes and removes".to_owned()));
    };
    let directories = if unlink.directory == Whose::Own { threads as u32 } else { 1 };
    // Room for a batch, and for more than waits for two ticks, in each thread.
    let files = threads as u32 * (unlink.batch as u32 + 4_000);
    let ramfs = Ramfs::new(way, directories, files).map_err(failed)?;
    Ok(Arc::new(Stand { ramfs: Arc::new(ramfs), unlink }))
}

struct Stand {
    ramfs: Arc<Ramfs>,
    unlink: Unlink,
}

impl Arena for Stand {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let thread = seat.thread as u32;
        let directory = if self.unlink.directory == Whose::Own { thread } else { 0 };
        let names =
            (0..self.unlink.batch as u64).map(|number| u64::from(thread) << 32 | number).collect();
        Ok(Box::new(Files { ramfs: self.ramfs.clone(), directory, names }))
    }

    fn settle(&self) -> Result<(), Fault> {
        let found = (self.ramfs.nr_inodes(), self.ramfs.listed());
        Fault::unless(found == (0, 0), || format!("inodes counted and listed: {found:?}"))
    }
}

struct Files {
    ramfs: Arc<Ramfs>,
    directory: u32,
    names: Vec<u64>,
}

impl Worker for Files {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let Self { ramfs, directory, names } = self;
        let (mut cpu, directory) = (ramfs.cpu(), *directory);
        if let [name] = names[..] {
            return repeat("a call says when it fails", ops, stop, || {
                cpu.create(directory, name)?;
                cpu.unlink(directory, name)?;
                Ok::<_, Failed>(true)
            });
        }
        let mut done = 0;
        while done < ops && !(done != 0 && stopped(stop)) {
            names.iter().try_for_each(|&name| cpu.create(directory, name)).map_err(failed)?;
            names.iter().try_for_each(|&name| cpu.unlink(directory, name)).map_err(failed)?;
            done += names.len() as u64;
        }
        Ok(done)
    }

    fn check(&mut self) -> Result<(), Fault> {
        let mut cpu = self.ramfs.cpu();
        let (directory, name) = (self.directory, self.names[0]);
        let came = cpu.create(directory, name).is_ok()
            && cpu.create(directory, name) == Err(Failed::Exists);
        let went = cpu.unlink(directory, name).is_ok()
            && cpu.unlink(directory, name) == Err(Failed::NoEntry);
        Fault::unless(came && went, || {
            format!("{name} does not come and go with create and unlink")
        })
    }
}
