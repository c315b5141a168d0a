//! Who looks up, opens, makes and removes files: the host kernel's tmpfs, old kernels, quietline; and who counts references
//! to dentries.
//!
//! All paths are relative to a working directory, which is the root of a filesystem that nobody else uses.

mod dentries;
mod host;
mod inodes;
mod layout;
#[cfg(feature = "peer-vfs")]
mod peer_vfs;
mod quietline;
mod reference_walk;
mod tree;
mod walks;
mod watched;

use std::sync::Arc;

use quietline_platform::atomic::{AtomicBool, Ordering};

use super::implementation::{Implementation, Opened};
use crate::harness::{Column, Shape};
use crate::workloads::{Dcache, Job};

/// The host kernel, old kernels, quietline.
pub fn columns() -> Vec<Arc<dyn Column>> {
    let all = vec![
        Implementation {
            name: "host",
            says: "tmpfs of the kernel of this machine, by system calls, each thread with descriptors and directory of its own",
            shape: Shape::Processes,
            does: |job| is_of_files(job) || is_stat(job) || is_watched(job),
            open: open::<host::Host>,
        },
        Implementation {
            name: "history-2.6.37",
            says: "Linux 2.6.37: a path walk that locks and counts each dentry on the way",
            shape: Shape::NoTable,
            does: is_stat,
            open: reference_walk::open,
        },
        Implementation {
            name: "history-inode-immediate",
            says: "a ramfs of Linux 2.6.36, without files and paths: an inode is free at once",
            shape: Shape::NoTable,
            does: is_unlink,
            open: inodes::open_immediate,
        },
        Implementation {
            name: "history-inode-call_rcu",
            says: "the same, an inode is free after a grace period, with a callback for each",
            shape: Shape::NoTable,
            does: is_unlink,
            open: inodes::open_call_rcu,
        },
        Implementation {
            name: "history-inode-typesafe",
            says: "the same, an inode is free at once for other inodes",
            shape: Shape::NoTable,
            does: is_unlink,
            open: inodes::open_typesafe,
        },
        Implementation {
            name: "history-inode-sheaf",
            says: "the same, an inode is free after a grace period, by the sheaf, as quietline's are",
            shape: Shape::NoTable,
            does: is_unlink,
            open: inodes::open_sheaf,
        },
        Implementation {
            name: "history-3.10",
            says: "Linux 3.10-rc1: a dentry's count is changed under its ticket lock",
            shape: Shape::NoTable,
            does: counts,
            open: dentries::open_3_10,
        },
        Implementation {
            name: "history-cmpxchg",
            says: "the patch of 2013: by compare-exchange twice, then under the lock",
            shape: Shape::NoTable,
            does: counts,
            open: dentries::open_cmpxchg,
        },
        #[cfg(feature = "peer-vfs")]
        Implementation {
            name: "peer-vfs",
            says: "the crate vfs: a hash of whole paths under a lock, without permissions, links and descriptors",
            shape: Shape::NoTable,
            does: |job| is_of_files(job) || is_stat(job),
            open: tree::open::<peer_vfs::Vfs>,
        },
        Implementation {
            name: "quietline-by-reference",
            says: "quietline's path walk with a reference to each directory on the way",
            shape: Shape::Processes,
            does: is_stat,
            open: walks::open_by_reference,
        },
        Implementation {
            name: "quietline",
            says: "quietline, each thread a process",
            shape: Shape::Processes,
            does: |job| counts(job) || is_stat(job),
            open: |job, threads| {
                if counts(job) {
                    dentries::open_quietline(job, threads)
                } else {
                    tree::open::<quietline::World<quietline::LowestFd>>(job, threads)
                }
            },
        },
        Implementation {
            name: "quietline-lowestfd",
            says: "quietline, the lowest free descriptor, each thread a process",
            shape: Shape::Processes,
            does: |job| is_of_files(job) || is_watched(job),
            open: open::<quietline::World<quietline::LowestFd>>,
        },
        Implementation {
            name: "quietline-anyfd",
            says: "quietline, any free descriptor (O_ANYFD), all threads one process",
            shape: Shape::OneProcess,
            does: |job| is_of_files(job) || is_watched(job),
            open: open::<quietline::World<quietline::AnyFd>>,
        },
        Implementation {
            name: "quietline-handle",
            says: "quietline, the file by handle, without a descriptor, all threads one process",
            shape: Shape::NoTable,
            does: |job| is_of_files(job) || is_watched(job),
            open: open::<quietline::World<quietline::Handle>>,
        },
    ];
    all.into_iter().map(|column| Arc::new(column) as Arc<dyn Column>).collect()
}

/// Jobs on references to dentries alone.
fn counts(job: Job) -> bool {
    matches!(job, Job::Dcache(Dcache::Get(_) | Dcache::GetParent(_) | Dcache::Short(_)))
}

fn is_stat(job: Job) -> bool {
    matches!(job, Job::Dcache(Dcache::Stat(..) | Dcache::Missing))
}

fn is_unlink(job: Job) -> bool {
    matches!(job, Job::Unlink(_))
}

/// Jobs that open files.
fn is_of_files(job: Job) -> bool {
    matches!(job, Job::Open(_) | Job::Unlink(_))
}

/// Files that come and go in a directory that is watched.
fn is_watched(job: Job) -> bool {
    job == Job::Watched
}

/// The arena of somebody who has all jobs of files.
fn open<W: tree::World<Tree: watched::Watches>>(job: Job, threads: usize) -> Opened {
    if is_watched(job) { watched::open::<W>(job, threads) } else { tree::open::<W>(job, threads) }
}

/// Whether a sample is to end.
fn stopped(stop: &AtomicBool) -> bool {
    // Relaxed: nothing is ordered by the flag; a late look costs some operations more.
    stop.load(Ordering::Relaxed)
}
