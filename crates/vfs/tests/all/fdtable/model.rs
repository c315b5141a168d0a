//! The descriptor table beside the simplest table that there could be.

use crate::fdtable::support::table_for;
use quietline_vfs::{EventFd, FdFlags, FdTable, FileHandle, Files, PseudoFs, abi, eventfd};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// A sequence of numbers that looks random and is always the same.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

/// What the table should hold: for each descriptor the file's number and whether exec closes it.
#[derive(Debug, Default, Clone)]
struct Model {
    open: BTreeMap<i32, (u64, bool)>,
    limit: usize,
}

impl Model {
    fn lowest(&self, from: usize) -> Result<i32, Errno> {
        let free = (from..self.limit).find(|&fd| !self.open.contains_key(&(fd as i32)));
        free.map(|fd| fd as i32).ok_or(Errno::MFILE)
    }

    fn file(&self, fd: i32) -> Result<u64, Errno> {
        self.open.get(&fd).map(|(file, _)| *file).ok_or(Errno::BADF)
    }
}

struct World<'k> {
    fs: &'k PseudoFs<EventFd>,
    files: &'k Files,
    table: FdTable,
    model: Model,
    random: Sequence,
    made: u64,
}

impl<'k> World<'k> {
    /// A descriptor that is often open.
    fn some_fd(&mut self) -> i32 {
        match self.random.below(8) {
            0 => -1 - self.random.below(3) as i32,
            1 => self.random.below(2 * self.model.limit + 1) as i32,
            _ => {
                let from = self.random.below(self.model.limit) as i32;
                *self.model.open.range(from..).next().map_or(&from, |(fd, _)| fd)
            }
        }
    }

    fn step(&mut self) {
        let Self { fs, files, .. } = *self;
        let cloexec = self.random.below(2) == 0;
        match self.random.below(100) {
            // More opened than closed at some times, fewer at others.
            0..28 => {
                let file = self.new_file();
                let got = self.install(file, FdFlags { cloexec, any: false });
                assert_eq!(got, self.model.lowest(0));
                self.note(got, self.made, cloexec);
            }
            28..50 => {
                let file = self.new_file();
                let got = self.install(file, FdFlags { cloexec, any: true });
                match got {
                    // Any number will do, as long as it is free.
                    Ok(fd) => {
                        assert!(
                            (fd as usize) < self.model.limit && !self.model.open.contains_key(&fd)
                        );
                    }
                    Err(errno) => assert_eq!(Err(errno), self.model.lowest(0)),
                }
                self.note(got, self.made, cloexec);
            }
            50..56 => {
                let (old, from) = (self.some_fd(), self.random.below(self.model.limit + 3));
                let got = self.table.dup(old, from, FdFlags { cloexec, any: false }, files);
                let file = self.model.file(old);
                assert_eq!(
                    got,
                    file.and_then(|_| self.model.lowest(from)),
                    "dup of {old} from {from}"
                );
                self.note(got, file.unwrap_or(0), cloexec);
            }
            56..62 => {
                let (old, new) = (self.some_fd(), self.some_fd());
                if old == new {
                    return;
                }
                let got = self.table.dup_to(old, new, cloexec, files);
                let beyond = new < 0 || new as usize >= self.model.limit;
                let expect =
                    if beyond { Err(Errno::BADF) } else { self.model.file(old).map(|_| new) };
                assert_eq!(got, expect, "dup of {old} to {new}");
                self.note(got, self.model.file(old).unwrap_or(0), cloexec);
            }
            62..88 => {
                let fd = self.some_fd();
                assert_eq!(
                    self.table.close(fd, files).is_ok(),
                    self.model.open.remove(&fd).is_some()
                );
            }
            88..92 => {
                let fd = self.some_fd();
                let entry = self.model.open.get_mut(&fd).map(|entry| entry.1 = cloexec);
                assert_eq!(self.table.set_cloexec(fd, cloexec), entry.ok_or(Errno::BADF));
            }
            92..98 => self.look(),
            98 if self.random.below(20) == 0 => {
                let (first, count) = (self.random.below(self.model.limit), self.random.below(30));
                let (first, last) = (first as u32, (first + count) as u32);
                self.table.for_range(first, last, cloexec, files);
                match cloexec {
                    true => self
                        .model
                        .open
                        .range_mut(first as i32..=last as i32)
                        .for_each(|(_, e)| e.1 = true),
                    false => {
                        self.model.open.retain(|fd, _| !(first as i32..=last as i32).contains(fd))
                    }
                }
            }
            98 if self.random.below(20) == 0 => {
                let limits = [3, 64, 65, 200, 1_500];
                self.model.limit = limits[self.random.below(limits.len())];
                self.table.set_limit(self.model.limit);
            }
            98 if self.random.below(20) == 0 => {
                // The copy goes on as the table, and the original is what ends.
                let mut copy = self.table.duplicate(files).unwrap();
                core::mem::swap(&mut self.table, &mut copy);
                copy.clear(files);
            }
            98 => assert_eq!(self.table.has_free(), self.model.lowest(0).is_ok()),
            _ => {
                let all: Vec<i32> = self.model.open.keys().copied().collect();
                assert_eq!(self.table.open_fds().unwrap(), all);
                let different: std::collections::BTreeSet<u64> =
                    self.model.open.values().map(|e| e.0).collect();
                assert_eq!(
                    files.nr_files(),
                    different.len() as i64,
                    "each file is open as long as it is somewhere"
                );
                if self.random.below(50) == 0 {
                    assert_eq!(fs.live(), files.nr_files());
                }
            }
        }
    }

    fn new_file(&mut self) -> FileHandle<'k> {
        self.made += 1;
        let flags = if self.made.is_multiple_of(2) { abi::O_NONBLOCK } else { 0 };
        eventfd(self.fs, self.files, self.made as u32, flags).unwrap()
    }

    /// A descriptor for the file, whose number is taken with it or before.
    fn install(&mut self, file: FileHandle<'_>, flags: FdFlags) -> Result<i32, Errno> {
        if self.random.below(2) == 0 {
            return self.table.install(file, flags);
        }
        let looks = self.random.below(20) == 0;
        let open = looks.then(|| self.table.open_fds());
        let unused = self.table.get_unused_fd(flags)?;
        // Another one that is taken, and not used, is free again; of neither anything is found.
        let another = self.table.get_unused_fd(FdFlags { any: self.random.below(2) == 0, ..flags });
        assert!(open.is_none_or(|open| self.table.open_fds() == open));
        drop(another);
        Ok(unused.install(file))
    }

    fn note(&mut self, got: Result<i32, Errno>, file: u64, cloexec: bool) {
        if let Ok(fd) = got {
            self.model.open.insert(fd, (file, cloexec));
        }
    }

    fn look(&mut self) {
        let fd = self.some_fd();
        let got = self.table.get(fd, self.files);
        let count = got.map(|file| file.payload::<EventFd>().unwrap().count());
        assert_eq!(count, self.model.file(fd), "the file of {fd}");
        assert_eq!(self.table.cloexec(fd).ok(), self.model.open.get(&fd).map(|e| e.1));
        let flags = self
            .model
            .file(fd)
            .map(|file| abi::O_RDWR | if file.is_multiple_of(2) { abi::O_NONBLOCK } else { 0 });
        assert_eq!(self.table.status(fd, self.files), flags);
    }
}

#[test]
fn like_the_simplest_table() {
    quietline_testing::isolated!();
    for (seed, limit) in [(1, 64), (2, 200), (3, 1_500)] {
        let files = Files::new(1_000_000).unwrap();
        let fs = PseudoFs::<EventFd>::new("anon_inodefs").unwrap();
        let mut world = World {
            fs: &fs,
            files: &files,
            table: table_for(limit),
            model: Model { limit, ..Model::default() },
            random: Sequence(seed),
            made: 0,
        };
        (0..quietline_testing::scaled(20_000)).for_each(|_| world.step());
        world.table.clear(&files);
        assert_eq!((files.nr_files(), fs.live()), (0, 0));
    }
}

/// A table with several hundred thousand descriptors, filled, copied and closed.
#[test]
fn many_descriptors() {
    quietline_testing::isolated!();
    const MANY: usize = 300_000;
    let files = Files::new(1_000_000).unwrap();
    let fs = PseudoFs::<EventFd>::new("anon_inodefs").unwrap();
    let mut table = table_for(abi::NR_OPEN);
    let first = eventfd(&fs, &files, 0, 0).unwrap();
    assert_eq!(table.install(first, FdFlags::default()), Ok(0));
    for fd in 1..MANY {
        assert_eq!(table.dup(0, 0, FdFlags::default(), &files), Ok(fd as i32));
    }
    let any = FdFlags { any: true, ..FdFlags::default() };
    let anywhere = table.install(eventfd(&fs, &files, 1, 0).unwrap(), any).unwrap();
    assert!(anywhere as usize >= MANY);
    let mut copy = table.duplicate(&files).unwrap();
    assert_eq!(copy.open_fds().unwrap().len(), MANY + 1);
    assert!(copy.get(anywhere, &files).unwrap().same_file(&table.get(anywhere, &files).unwrap()));
    table.for_range(1, u32::MAX, false, &files);
    assert_eq!(table.open_fds().unwrap(), [0]);
    assert_eq!(table.install(eventfd(&fs, &files, 2, 0).unwrap(), FdFlags::default()), Ok(1));
    table.clear(&files);
    assert_eq!(files.nr_files(), 2, "the copy has what the original had");
    copy.clear(&files);
    assert_eq!((files.nr_files(), fs.live()), (0, 0));
}

/// Every allocation fails once: the call says so, and nothing is lost.
#[test]
fn memory_runs_out() {
    quietline_testing::isolated!();
    use quietline_platform::fault;
    let files = Files::new(1_000).unwrap();
    let fs = PseudoFs::<EventFd>::new("anon_inodefs").unwrap();
    let mut failures = 0;
    for nth in 1.. {
        let mut table = table_for(1_000);
        let handle = eventfd(&fs, &files, 0, 0).unwrap();
        fault::fail_nth(nth);
        let any = FdFlags { any: true, ..FdFlags::default() };
        let results = [
            table.install(handle.clone(), FdFlags::default()),
            table.install(handle.clone(), any),
            table.install_from(900, handle.clone(), FdFlags::default()),
            table.dup_to(0, 700, false, &files),
            table
                .duplicate(&files)
                .map(|mut copy| copy.clear(&files))
                .map(|()| 0)
                .map_err(|_| Errno::NOMEM),
        ];
        let fired = !fault::armed();
        fault::fail_nth(0);
        for (call, result) in results.iter().enumerate() {
            let bad = *result == Err(Errno::BADF) && results[0].is_err();
            assert!(
                result.is_ok() || bad || *result == Err(Errno::NOMEM),
                "call {call}: {result:?}"
            );
        }
        failures += results.iter().filter(|r| **r == Err(Errno::NOMEM)).count();
        assert_eq!(
            table.open_fds().unwrap().len(),
            results[..4].iter().filter(|r| r.is_ok()).count()
        );
        table.clear(&files);
        drop(handle);
        assert_eq!((files.nr_files(), fs.live()), (0, 0), "after failure {nth}");
        if !fired {
            assert!(failures >= 5, "allocations failed {failures} times");
            return;
        }
    }
}

/// `EBUSY` is for races only: a number in a CPU's store is free to whoever wants exactly it.
#[test]
fn a_number_in_a_store_is_free() {
    quietline_testing::isolated!();
    let files = Files::new(1_000).unwrap();
    let fs = PseudoFs::<EventFd>::new("anon_inodefs").unwrap();
    let mut table = table_for(10);
    let any = FdFlags { any: true, ..FdFlags::default() };
    let file = eventfd(&fs, &files, 0, 0).unwrap();
    let anywhere = table.install(file.clone(), any).unwrap();
    for new in 0..10 {
        assert_eq!(table.dup_to(anywhere, new, false, &files), Ok(new), "all but one are leased");
    }
    assert_eq!(table.install(file.clone(), any), Err(Errno::MFILE));
    assert_eq!(table.install(file, FdFlags::default()), Err(Errno::MFILE));
    assert_eq!(table.dup_to(0, 10, false, &files), Err(Errno::BADF));
    table.close(7, &files).unwrap();
    assert_eq!(table.dup(0, 8, FdFlags::default(), &files), Err(Errno::MFILE));
    assert_eq!(table.dup(0, 3, FdFlags::default(), &files), Ok(7));
    table.clear(&files);
    assert_eq!(files.nr_files(), 0);
}
