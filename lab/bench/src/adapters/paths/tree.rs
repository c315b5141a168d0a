//! The jobs that take paths, once for all who do them.

use std::ffi::{CStr, CString};
use std::fmt::Display;
use std::sync::{Arc, OnceLock};

use quietline_platform::atomic::AtomicBool;

use super::Opened;
use super::layout::{self, Layout, SIZE};
use crate::adapters::probe::{self, failed};
use crate::adapters::table::{Numbers, RULE};
use crate::harness::{Arena, Fault, Seat, Unfit, Worker, looped, repeat};
use crate::workloads::{Dcache, Job};

/// A filesystem as one thread sees it.
pub(super) trait Tree: 'static {
    /// What a failed call says.
    type Error: Display;
    /// An open file.
    type File<'t>;

    /// What a path from the working directory begins with.
    const ROOT: &'static str = "";
    /// Whether a file that is there cannot be made.
    const EXCLUSIVE: bool = true;

    /// Makes a file that must not be there, and closes it.
    fn create(&self, path: &CStr) -> Result<(), Self::Error>;
    /// Removes a file.
    fn unlink(&self, path: &CStr) -> Result<(), Self::Error>;
    /// What `stat` tells of a file, or none if there is no such name.
    fn stat(&self, path: &CStr) -> Result<Option<Facts>, Self::Error>;
    /// Opens a file for reading.
    fn open(&self, path: &CStr) -> Result<Self::File<'_>, Self::Error>;
    /// Whether each file has the lowest free number.
    fn takes_lowest(&self) -> bool;
    /// An open file's number.
    fn number(file: &Self::File<'_>) -> i32;
    /// What `fstat` tells.
    fn fstat(&self, file: &mut Self::File<'_>) -> Result<Facts, Self::Error>;
    /// Closes.
    fn close(&self, file: Self::File<'_>) -> Result<(), Self::Error>;
}

/// What a file is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) ino: u64,
    pub(super) size: u64,
}

/// A filesystem with the files of a layout in it.
pub(super) trait World: Send + Sync + Sized + 'static {
    /// What a thread sees.
    type Tree: Tree;

    /// A world of its own.
    fn new(layout: &Layout) -> Result<Self, Unfit>;
    /// Makes the calling thread one of its users. Called on threads made for that alone.
    fn enter(&self) -> Result<Self::Tree, Fault>;
    /// What there is: the same before and after any number of whole operations.
    fn census(&self) -> Result<Vec<i64>, Fault>;
}

/// The arena of a job that takes paths.
pub(super) fn open<W: World>(job: Job, threads: usize) -> Opened {
    let world = W::new(&Layout::of(job, threads))?;
    Ok(Arc::new(Stand { world, job, start: OnceLock::new() }))
}

struct Stand<W> {
    world: W,
    job: Job,
    /// What there was when all workers were ready.
    start: OnceLock<Vec<i64>>,
}

impl<W: World> Arena for Stand<W> {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let tree = self.world.enter()?;
        let at = |path: CString| {
            let path = [W::Tree::ROOT.as_bytes(), path.as_bytes()].concat();
            CString::new(path).map_err(failed)
        };
        match self.job {
            Job::Dcache(Dcache::Stat(whose, depth)) => {
                stat(tree, at(layout::path(whose, depth, seat.thread))?)
            }
            Job::Dcache(Dcache::Missing) => {
                let path = at(layout::string("nothing".to_owned()))?;
                Ok(looped("nothing is found", move || {
                    Ok::<_, <W::Tree as Tree>::Error>(tree.stat(&path)?.is_none())
                }))
            }
            Job::Open(open) => {
                open_close(tree, at(layout::path(open.whose, open.depth, seat.thread))?)
            }
            Job::Unlink(unlink) => {
                let names = layout::names(unlink, seat.thread).into_iter().map(at);
                create_unlink(tree, names.collect::<Result<_, _>>()?)
            }
            _ => Err(Fault::new("no job that takes paths")),
        }
    }

    fn settle(&self) -> Result<(), Fault> {
        let census = self.world.census()?;
        let start = self.start.get_or_init(|| census.clone());
        Fault::unless(census == *start, || {
            format!("not as at the start: {start:?} became {census:?}")
        })
    }
}

fn stat<T: Tree>(tree: T, path: CString) -> Result<Box<dyn Worker>, Fault> {
    let first = found(&tree, &path)?;
    Ok(looped("stat finds the file that it found at first", move || {
        Ok::<_, T::Error>(tree.stat(&path)? == Some(first))
    }))
}

/// The facts of a file of the layout.
fn found<T: Tree>(tree: &T, path: &CStr) -> Result<Facts, Fault> {
    let facts = tree.stat(path).map_err(failed)?;
    let facts = facts.ok_or_else(|| Fault::new(format!("{path:?} is not there")))?;
    Fault::unless(facts.size == SIZE as u64, || format!("{path:?} is {} bytes long", facts.size))?;
    Ok(facts)
}

fn open_close<T: Tree>(tree: T, path: CString) -> Result<Box<dyn Worker>, Fault> {
    let facts = found(&tree, &path)?;
    let numbers = if tree.takes_lowest() {
        Numbers::exactly(probe::lowest(|| tree.open(&path), T::number, |file| tree.close(file))?)
    } else {
        Numbers::up_to(i32::MAX)
    };
    let tree = Arc::new(tree);
    let (probed, probed_path) = (tree.clone(), path.clone());
    let inner = looped(RULE, move || {
        let file = tree.open(&path)?;
        let right = numbers.hold(&[T::number(&file)]);
        tree.close(file)?;
        Ok::<_, T::Error>(right)
    });
    let check = move || {
        let mut file = probed.open(&probed_path).map_err(failed)?;
        let now = probed.fstat(&mut file).map_err(failed)?;
        probed.close(file).map_err(failed)?;
        Fault::unless(now == facts, || format!("opened {now:?}, expected {facts:?}"))
    };
    checked(inner, check)
}

fn create_unlink<T: Tree>(tree: T, names: Vec<CString>) -> Result<Box<dyn Worker>, Fault> {
    let tree = Arc::new(tree);
    let (probed, name) = (tree.clone(), names[0].clone());
    let check = move || {
        let there = || probed.stat(&name).map_err(failed).map(|facts| facts.is_some());
        let before = there()?;
        probed.create(&name).map_err(failed)?;
        let between = there()?;
        let again = T::EXCLUSIVE && probed.create(&name).is_ok();
        probed.unlink(&name).map_err(failed)?;
        Fault::unless((before, between, again, there()?) == (false, true, false, false), || {
            format!("{name:?} does not come and go with create and unlink")
        })
    };
    checked(Box::new(Files { tree, names }), check)
}

/// Makes all names and removes them. Each call is its own check: a name that is there cannot be made (but in the peer for which
/// that is no error), one that is not there cannot be removed.
struct Files<T> {
    tree: Arc<T>,
    names: Vec<CString>,
}

impl<T: Tree> Worker for Files<T> {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let Self { tree, names } = self;
        if let [name] = &names[..] {
            return repeat("a call says when it fails", ops, stop, || {
                tree.create(name)?;
                tree.unlink(name)?;
                Ok::<_, T::Error>(true)
            });
        }
        let batch = names.len() as u64;
        let mut done = 0;
        while done < ops && !(done != 0 && super::stopped(stop)) {
            names.iter().try_for_each(|name| tree.create(name)).map_err(failed)?;
            names.iter().try_for_each(|name| tree.unlink(name)).map_err(failed)?;
            done += batch;
        }
        Ok(done)
    }
}

/// A worker with a check of its own, which is made now and after each sample.
pub(super) fn checked<C>(worker: Box<dyn Worker>, mut check: C) -> Result<Box<dyn Worker>, Fault>
where
    C: FnMut() -> Result<(), Fault> + 'static,
{
    check()?;
    Ok(Box::new(Checked { worker, check }))
}

struct Checked<C> {
    worker: Box<dyn Worker>,
    check: C,
}

impl<C: FnMut() -> Result<(), Fault>> Worker for Checked<C> {
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        self.worker.run(ops, stop)
    }

    fn check(&mut self) -> Result<(), Fault> {
        self.worker.check()?;
        (self.check)()
    }
}
