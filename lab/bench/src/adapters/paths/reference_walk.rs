//! The walk by reference of 2.6.37.

use std::convert::Infallible;
use std::sync::Arc;

use quietline_history::path_walk::{Attributes, Nowhere, ROOT, Tree};
use quietline_platform::atomic::AtomicBool;

use super::Opened;
use super::layout::{self, Layout, SIZE};
use crate::adapters::probe::failed;
use crate::harness::{Arena, Fault, Seat, Unfit, Worker, repeat};
use crate::workloads::{Dcache, Job};

/// The arena of a job that looks up paths.
pub(super) fn open(job: Job, threads: usize) -> Opened {
    let Job::Dcache(what) = job else { return Err(Unfit::Missing("it only looks up".to_owned())) };
    let layout = Layout::of(job, threads);
    let names = layout.directories.len() + layout.files.len() + 1;
    let mut tree = Tree::new(names as u32).map_err(failed)?;
    let mut directories = vec![(String::new(), ROOT)];
    let place = |directories: &[(String, u32)], path: &str| {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent =
            directories.iter().find(|(other, _)| other == parent).map(|&(_, number)| number);
        (parent.expect("directories come before what is in them"), name.as_bytes().to_vec())
    };
    for path in layout.directories {
        let (parent, name) = place(&directories, &path);
        directories.push((path, tree.mkdir(parent, &name)));
    }
    for path in layout.files {
        let (parent, name) = place(&directories, &path);
        tree.create(parent, &name, SIZE as u64);
    }
    tree.negative(ROOT, b"nothing");
    let counts = counts(&tree, names);
    Ok(Arc::new(Woods { tree: Arc::new(tree), what, counts }))
}

/// References to all dentries, and to the mount.
fn counts(tree: &Tree, names: usize) -> Vec<u32> {
    (0..=names as u32).map(|dentry| tree.count(dentry)).chain([tree.mounts()]).collect()
}

struct Woods {
    tree: Arc<Tree>,
    what: Dcache,
    counts: Vec<u32>,
}

impl Arena for Woods {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let (path, there) = match self.what {
            Dcache::Stat(whose, depth) => {
                (layout::path(whose, depth, seat.thread).into_bytes(), true)
            }
            _ => (b"nothing".to_vec(), false),
        };
        let expected = self.tree.process().stat(&path);
        let right = match expected {
            Ok(found) => there && found.size == SIZE as u64,
            Err(nowhere) => !there && nowhere == Nowhere::NoEntry,
        };
        Fault::unless(right, || format!("{}: {expected:?}", String::from_utf8_lossy(&path)))?;
        Ok(Box::new(Walker { tree: self.tree.clone(), path, expected }))
    }

    fn settle(&self) -> Result<(), Fault> {
        let counts = counts(&self.tree, self.counts.len() - 2);
        Fault::unless(counts == self.counts, || {
            format!("not as at the start: {:?} became {counts:?}", self.counts)
        })
    }
}

struct Walker {
    tree: Arc<Tree>,
    path: Vec<u8>,
    expected: Result<Attributes, Nowhere>,
}

impl Worker for Walker {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let process = self.tree.process();
        repeat("a walk finds what it found at first", ops, stop, || {
            Ok::<_, Infallible>(process.stat(std::hint::black_box(&self.path)) == self.expected)
        })
    }
}
