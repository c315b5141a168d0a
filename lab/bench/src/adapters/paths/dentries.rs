//! References to dentries: quietline's, and those of 3.10 with the patch of 2013 and without it.

use std::convert::Infallible;
use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use quietline::abi::{AT_FDCWD, O_PATH};
use quietline::{Kernel, Process};
use quietline_history::dentry_count::{CountWay, Forest, Put};
use quietline_platform::atomic::AtomicBool;
use quietline_vfs::DentryRef;

use super::Opened;
use super::layout::{self, Layout};
use super::quietline::{boot, census};
use crate::adapters::probe::failed;
use crate::harness::{Arena, Fault, Seat, Unfit, Worker, repeat};
use crate::workloads::dcache::{PARENTS, STEPS};
use crate::workloads::{Dcache, Job, Whose};

const RULE: &str = "a reference is to the dentry that was meant, and not the last";

/// Dentries whose references are counted.
trait Dentries {
    /// A reference.
    type Ref;

    /// Another one to the same dentry.
    fn get(&self, dentry: &Self::Ref) -> Self::Ref;
    /// One to its parent.
    fn parent(&self, dentry: &Self::Ref) -> Self::Ref;
    /// Puts it; false if it was the last.
    fn put(&self, dentry: Self::Ref) -> bool;
    /// Whether they are to the same dentry.
    fn same(a: &Self::Ref, b: &Self::Ref) -> bool;
}

/// What a thread has references to.
struct Subjects<R> {
    /// For [`Dcache::Get`] the dentry; for [`Dcache::GetParent`] and [`Dcache::Short`] the directory of the file.
    dentry: R,
    /// The thread's own file in it.
    child: R,
    /// The other directory that users share, the terminal and the program.
    others: [R; 3],
}

/// Jobs that a user runs before the next one starts.
const JOBS: u64 = 100;

/// The loop of a job, compiled for each kind of dentry.
#[inline(always)]
fn work<D: Dentries>(
    on: &D,
    subjects: &Subjects<D::Ref>,
    what: Dcache,
    seat: Seat,
    ops: u64,
    stop: &AtomicBool,
) -> Result<u64, Fault> {
    let Subjects { dentry, child, others } = subjects;
    match what {
        Dcache::Get(_) => repeat(RULE, ops, stop, || {
            let copy = black_box(on.get(dentry));
            Ok::<_, Infallible>(D::same(&copy, dentry) & on.put(copy))
        }),
        Dcache::GetParent(_) => repeat(RULE, ops, stop, || {
            let parent = black_box(on.parent(child));
            Ok::<_, Infallible>(D::same(&parent, dentry) & on.put(parent))
        }),
        Dcache::Short(users) => {
            // The users that are a thread's; where there are more threads than users, each thread has one.
            let users =
                (users / seat.threads + usize::from(seat.thread < users % seat.threads)).max(1);
            let fork =
                || [on.get(dentry), on.get(&others[0]), on.get(&others[1]), on.get(&others[2])];
            let exit =
                |user: [D::Ref; 4]| user.into_iter().fold(true, |right, held| right & on.put(held));
            let mut waiting: Vec<_> = (0..users).map(|_| fork()).collect();
            let (mut job, mut state) = (0, seat.thread as u64 + 1);
            let done = repeat(RULE, ops, stop, || {
                let mut right = true;
                if job % JOBS == 0
                    && let Some(user) = waiting.pop()
                {
                    right &= exit(user);
                    waiting.push(fork());
                }
                job += 1;
                let places = [on.get(&others[0]), on.get(dentry)];
                for _ in 0..PARENTS {
                    let parent = black_box(on.parent(child));
                    right &= D::same(&parent, dentry) & on.put(parent);
                }
                state = compute(state);
                Ok::<_, Infallible>(
                    places.into_iter().fold(right, |right, place| right & on.put(place)),
                )
            })?;
            black_box(state);
            let right = waiting.into_iter().fold(true, |right, user| right & exit(user));
            Fault::unless(right, || RULE.to_owned()).map(|()| done)
        }
        Dcache::Stat(..) | Dcache::Missing => Err(Fault::new("no job of references")),
    }
}

/// What a job of the mix does besides.
fn compute(mut state: u64) -> u64 {
    for _ in 0..STEPS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    state
}

fn is_of(job: Job) -> Result<Dcache, Unfit> {
    match job {
        Job::Dcache(what) => Ok(what),
        _ => Err(Unfit::Missing("it only counts".to_owned())),
    }
}

/// quietline's dentries, found by opening their paths.
pub(super) fn open_quietline(job: Job, threads: usize) -> Opened {
    let what = is_of(job)?;
    let layout = Layout::of(job, threads);
    let (kernel, process) = boot(&layout)?;
    let paths = layout.directories.into_iter().chain(layout.files).collect();
    Ok(Arc::new(Tree { kernel, process, what, paths, start: OnceLock::new() }))
}

struct Tree {
    kernel: Kernel,
    process: Process,
    what: Dcache,
    paths: Vec<String>,
    /// What there was when all workers were ready.
    start: OnceLock<Vec<i64>>,
}

impl Arena for Tree {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let process = self.kernel.process().map_err(failed)?;
        Ok(Box::new(Holder { process, what: self.what, seat }))
    }

    fn settle(&self) -> Result<(), Fault> {
        let mut found = census(&self.kernel);
        for path in &self.paths {
            found.push(dentry_at(&self.process, path)?.count().into());
        }
        let start = self.start.get_or_init(|| found.clone());
        Fault::unless(found == *start, || {
            format!("not as at the start: {start:?} became {found:?}")
        })
    }
}

fn dentry_at<'p>(process: &'p Process, path: &str) -> Result<DentryRef<'p>, Fault> {
    let file = process.openat_file(AT_FDCWD, path, O_PATH, 0).map_err(failed)?;
    let place = file.place().ok_or_else(|| Fault::new(format!("{path} is nowhere")))?;
    Ok(place.to_path().into_parts().1)
}

struct Holder {
    process: Process,
    what: Dcache,
    seat: Seat,
}

impl Worker for Holder {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let at = |path: &str| dentry_at(&self.process, path);
        let own = |whose| layout::inside(whose, self.seat.thread);
        let (dentry, child) = match self.what {
            Dcache::Get(whose) => {
                let path = layout::path(whose, 1, self.seat.thread);
                let dentry = at(&path.to_string_lossy())?;
                (dentry.clone(), dentry)
            }
            Dcache::GetParent(whose) => {
                let child = at(&own(whose))?;
                (child.parent(), child)
            }
            _ => {
                let child = at(&own(Whose::Shared))?;
                (child.parent(), child)
            }
        };
        let others = match self.what {
            Dcache::Short(_) => [at("/")?, at(layout::TERMINAL)?, at(layout::PROGRAM)?],
            _ => [dentry.clone(), dentry.clone(), dentry.clone()],
        };
        work(
            &InTree(PhantomData),
            &Subjects { dentry, child, others },
            self.what,
            self.seat,
            ops,
            stop,
        )
    }
}

/// References as quietline has them. Whether one was the last is not told; the counts are looked at after each sample.
struct InTree<'k>(PhantomData<&'k ()>);

impl<'k> Dentries for InTree<'k> {
    type Ref = DentryRef<'k>;

    #[inline(always)]
    fn get(&self, dentry: &DentryRef<'k>) -> DentryRef<'k> {
        dentry.clone()
    }

    #[inline(always)]
    fn parent(&self, dentry: &DentryRef<'k>) -> DentryRef<'k> {
        dentry.parent()
    }

    #[inline(always)]
    fn put(&self, dentry: DentryRef<'k>) -> bool {
        drop(dentry);
        true
    }

    #[inline(always)]
    fn same(a: &DentryRef<'k>, b: &DentryRef<'k>) -> bool {
        a.same(b)
    }
}

/// Linux 3.10-rc1.
pub(super) fn open_3_10(job: Job, threads: usize) -> Opened {
    open_history(CountWay::DLock, job, threads)
}

/// The patch of 2013.
pub(super) fn open_cmpxchg(job: Job, threads: usize) -> Opened {
    open_history(CountWay::Cmpxchg, job, threads)
}

/// Dentries of all threads in a forest: a directory or file, the root directory, the terminal, the program.
const SHARED: u32 = 4;

fn open_history(way: CountWay, job: Job, threads: usize) -> Opened {
    let what = is_of(job)?;
    let count = SHARED + 2 * threads as u32;
    let forest = Forest::new(way, count).map_err(failed)?;
    // A dentry of quietline's ramfs has a reference for being there, as this has, and one of the file's that is open.
    (0..count).for_each(|dentry| forest.dget(dentry));
    for thread in 0..threads as u32 {
        let parent = if matches!(what, Dcache::GetParent(Whose::Own)) { own(thread) } else { 0 };
        forest.d_move(own(thread) + 1, parent);
    }
    let counts = (0..count).map(|dentry| forest.count(dentry)).collect();
    Ok(Arc::new(Woods { forest: Arc::new(forest), what, counts }))
}

/// A thread's own directory or file; its own file in a directory follows.
fn own(thread: u32) -> u32 {
    SHARED + 2 * thread
}

struct Woods {
    forest: Arc<Forest>,
    what: Dcache,
    /// References to each while no worker runs.
    counts: Vec<u32>,
}

impl Arena for Woods {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let own = own(seat.thread as u32);
        let dentry = if matches!(self.what, Dcache::Get(Whose::Own) | Dcache::GetParent(Whose::Own))
        {
            own
        } else {
            0
        };
        let subjects = Subjects { dentry, child: own + 1, others: [1, 2, 3] };
        Ok(Box::new(Woodman { forest: self.forest.clone(), subjects, what: self.what, seat }))
    }

    fn settle(&self) -> Result<(), Fault> {
        let counts: Vec<u32> =
            (0..).take(self.counts.len()).map(|dentry| self.forest.count(dentry)).collect();
        Fault::unless(counts == self.counts, || {
            format!("not as at the start: {:?} became {counts:?}", self.counts)
        })?;
        let dead = self.forest.dead_parents();
        Fault::unless(dead == 0, || {
            format!("{dead} references to dead parents, and nothing was ever killed")
        })
    }
}

struct Woodman {
    forest: Arc<Forest>,
    subjects: Subjects<u32>,
    what: Dcache,
    seat: Seat,
}

impl Worker for Woodman {
    #[inline(never)]
    fn run(&mut self, ops: u64, stop: &AtomicBool) -> Result<u64, Fault> {
        let forest = &*self.forest;
        // As the references that a thread of quietline's has for as long as it runs.
        forest.dget(self.subjects.dentry);
        let done = work(forest, &self.subjects, self.what, self.seat, ops, stop);
        Fault::unless(forest.dput(self.subjects.dentry) == Put::Used, || RULE.to_owned())?;
        done
    }
}

impl Dentries for Forest {
    type Ref = u32;

    #[inline(always)]
    fn get(&self, dentry: &u32) -> u32 {
        self.dget(*dentry);
        *dentry
    }

    #[inline(always)]
    fn parent(&self, dentry: &u32) -> u32 {
        self.dget_parent(*dentry)
    }

    #[inline(always)]
    fn put(&self, dentry: u32) -> bool {
        self.dput(dentry) == Put::Used
    }

    #[inline(always)]
    fn same(a: &u32, b: &u32) -> bool {
        a == b
    }
}
