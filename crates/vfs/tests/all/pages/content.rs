//! The contents of files: beside a plain model, and beside a file on the host's tmpfs, operation by operation.

use quietline_platform::fault;
use quietline_slab::LazyCache;
use quietline_sync::rcu;
use quietline_vfs::ramfs::pages::{MAX_SIZE, PAGE_SIZE, PageCaches, PageTree, Quota, Seek};
use rustix::fs::{FallocateFlags, MemfdFlags, SeekFrom};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

const PAGE: u64 = PAGE_SIZE as u64;

/// A sequence of numbers that looks random and is always the same.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// At most so many pages.
#[derive(Debug)]
struct Limit {
    used: Cell<u64>,
    max: Cell<u64>,
}

impl Limit {
    fn new(max: u64) -> Self {
        Self { used: Cell::new(0), max: Cell::new(max) }
    }
}

impl Quota for Limit {
    fn charge(&self, pages: u64) -> bool {
        let fits = self.used.get() + pages <= self.max.get();
        if fits {
            self.used.set(self.used.get() + pages);
        }
        fits
    }

    fn uncharge(&self, pages: u64) {
        assert!(pages <= self.used.get(), "more is given back than was taken");
        self.used.set(self.used.get() - pages);
    }

    fn left(&self) -> u64 {
        self.max.get() - self.used.get()
    }
}

/// A file as simple as can be: a page that was only reserved has no bytes.
#[derive(Debug, Clone, Default)]
struct Model {
    size: u64,
    pages: BTreeMap<u64, Option<Box<[u8; PAGE_SIZE]>>>,
}

impl Model {
    fn read(&self, offset: u64, n: usize) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(n as u64));
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < end {
            let (start, stop) = (at % PAGE, (at / PAGE * PAGE + PAGE).min(end));
            match self.pages.get(&(at / PAGE)) {
                Some(Some(page)) => bytes.extend(&page[start as usize..][..(stop - at) as usize]),
                _ => bytes.resize(bytes.len() + (stop - at) as usize, 0),
            }
            at = stop;
        }
        bytes
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (start, n) = (
                (at % PAGE) as usize,
                (PAGE - at % PAGE).min((bytes.len() - done) as u64) as usize,
            );
            let page = self
                .pages
                .entry(at / PAGE)
                .or_default()
                .get_or_insert_with(|| Box::new([0; PAGE_SIZE]));
            page[start..start + n].copy_from_slice(&bytes[done..done + n]);
            done += n;
        }
        if !bytes.is_empty() {
            self.size = self.size.max(offset + bytes.len() as u64);
        }
    }

    fn zero(&mut self, offset: u64, end: u64) {
        for (index, page) in self.pages.range_mut(offset / PAGE..end.div_ceil(PAGE)) {
            let Some(page) = page else { continue };
            let (from, to) = (offset.max(index * PAGE), end.min(index * PAGE + PAGE));
            page[(from - index * PAGE) as usize..(to - index * PAGE) as usize].fill(0);
        }
    }

    fn truncate(&mut self, size: u64) {
        if size <= self.size {
            self.pages.retain(|index, _| index * PAGE < size);
            self.zero(size, size.next_multiple_of(PAGE));
        }
        self.size = size;
    }

    fn punch(&mut self, offset: u64, n: u64) {
        let end = offset + n;
        self.pages.retain(|index, _| index * PAGE < offset || index * PAGE + PAGE > end);
        self.zero(offset, end);
    }

    fn allocate(&mut self, offset: u64, n: u64, keep_size: bool) {
        for index in offset / PAGE..(offset + n).div_ceil(PAGE) {
            // What is reserved again counts as written.
            let again = self.pages.entry(index).and_modify(|page| {
                page.get_or_insert_with(|| Box::new([0; PAGE_SIZE]));
            });
            again.or_default();
        }
        if !keep_size {
            self.size = self.size.max(offset + n);
        }
    }

    fn seek(&self, offset: u64, what: Seek) -> Result<u64, Errno> {
        if offset >= self.size {
            return Err(Errno::NXIO);
        }
        let data = |index: &u64| matches!(self.pages.get(index), Some(Some(_)));
        let first = offset / PAGE;
        let found = match what {
            Seek::Data => {
                self.pages.range(first..).map(|(index, _)| *index).find(|index| data(index))
            }
            Seek::Hole => (first..).find(|index| !data(index)),
        };
        let at = found.map(|index| offset.max(index * PAGE));
        match what {
            Seek::Data => at.filter(|at| *at < self.size).ok_or(Errno::NXIO),
            Seek::Hole => Ok(at.unwrap_or(self.size).min(self.size)),
        }
    }
}

/// One file in three: ours, the model's, and the host's if there is a tmpfs.
struct File<'k> {
    ours: PageTree<'k>,
    model: Model,
    host: Option<OwnedFd>,
}

/// A file of the host's tmpfs that goes away by itself.
fn host_file() -> Option<OwnedFd> {
    rustix::fs::memfd_create("pages", MemfdFlags::CLOEXEC).ok()
}

struct World<'k> {
    files: [File<'k>; 2],
    limit: Limit,
    random: Sequence,
    calls: u64,
}

impl<'k> World<'k> {
    fn new(caches: &'k PageCaches, seed: u64, host: bool) -> Self {
        let file = || File {
            ours: PageTree::new(caches),
            model: Model::default(),
            host: host.then(|| host_file().expect("the host has memory files")),
        };
        Self {
            files: [file(), file()],
            limit: Limit::new(u64::MAX),
            random: Sequence(seed),
            calls: 0,
        }
    }

    /// Often near the start, else near an edge of the tree; at pages' edges more often than not.
    fn offset(&mut self) -> u64 {
        let edges = [64, 64 * 64, 64 * 64 * 64, 1 << 30, (1 << 51) - 40];
        let page = match self.random.below(8) {
            0 => edges[self.random.below(edges.len() as u64) as usize] - 3 + self.random.below(6),
            1..4 => self.random.below(4),
            _ => self.random.below(80),
        };
        let within = [0, 1, 7, 4000, 4095][self.random.below(5) as usize];
        page * PAGE + if self.random.below(3) == 0 { self.random.below(PAGE) } else { within }
    }

    fn length(&mut self) -> usize {
        (match self.random.below(6) {
            0 => 1 + self.random.below(3),
            1 => 1 + self.random.below(64),
            2 => PAGE,
            3 => self.random.below(3 * PAGE),
            4 => 8 * PAGE + self.random.below(10),
            _ => self.random.below(600),
        }) as usize
    }

    fn step(&mut self) {
        self.calls += 1;
        let (which, offset, n) = (self.random.below(2) as usize, self.offset(), self.length());
        let fill = self.random.below(256) as u8;
        let what = self.random.below(100);
        let section = rcu::global().unwrap().read();
        let [first, second] = &mut self.files;
        let (file, other) = if which == 0 { (first, second) } else { (second, first) };
        let mut writer = file.ours.write();
        let host = file.host.as_ref();
        let call = format!("call {}: {what} at {offset:#x}, {n} bytes", self.calls);
        match what {
            0..30 => {
                let bytes: Vec<u8> = (0..n).map(|i| fill.wrapping_add(i as u8)).collect();
                assert_eq!(writer.write_at(&self.limit, offset, &bytes), Ok(n), "{call}");
                file.model.write(offset, &bytes);
                if let Some(host) = host {
                    assert_eq!(rustix::io::pwrite(host, &bytes, offset), Ok(n), "{call}");
                }
            }
            30..60 => {
                let mut bytes = vec![fill; n];
                let got = file.ours.read_at(&section, offset, &mut bytes);
                assert!(
                    bytes[got..].iter().all(|byte| *byte == fill),
                    "{call}: nothing behind the end"
                );
                assert!(bytes[..got] == file.model.read(offset, n), "{call}");
                if let Some(host) = host {
                    let mut there = vec![0; n];
                    assert_eq!(rustix::io::pread(host, &mut there, offset), Ok(got), "{call}");
                    assert!(there[..got] == bytes[..got], "{call}");
                }
            }
            60..66 => {
                let size = if n % 5 == 0 { file.model.size } else { offset };
                assert_eq!(writer.truncate(&self.limit, size), Ok(()));
                file.model.truncate(size);
                if let Some(host) = host {
                    rustix::fs::ftruncate(host, size).unwrap();
                }
            }
            66..72 if n > 0 => {
                writer.punch_hole(&self.limit, offset, n as u64);
                file.model.punch(offset, n as u64);
                if let Some(host) = host {
                    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    rustix::fs::fallocate(host, mode, offset, n as u64).unwrap();
                }
            }
            72..78 if n > 0 => {
                let keep = fill.is_multiple_of(2);
                assert_eq!(writer.allocate(&self.limit, offset, n as u64, keep), Ok(()), "{call}");
                file.model.allocate(offset, n as u64, keep);
                if let Some(host) = host {
                    let mode =
                        if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
                    rustix::fs::fallocate(host, mode, offset, n as u64).unwrap();
                }
            }
            78..90 => {
                let seek = if fill.is_multiple_of(2) { Seek::Data } else { Seek::Hole };
                let got = file.ours.seek(&section, offset, seek);
                assert_eq!(got, file.model.seek(offset, seek), "{call}, {seek:?}");
                if let Some(host) = host {
                    let from = match seek {
                        Seek::Data => SeekFrom::Data(offset),
                        Seek::Hole => SeekFrom::Hole(offset),
                    };
                    assert_eq!(rustix::fs::seek(host, from), got, "{call}, {seek:?}");
                }
            }
            90..96 => {
                let start = u64::from(fill) * 333;
                let source = if fill.is_multiple_of(4) { None } else { Some(&*other) };
                let tree = source.map_or(&file.ours, |file| &file.ours);
                let got = writer.copy_from(&self.limit, tree, &section, start, offset, n);
                let bytes = source.map_or(&file.model, |file| &file.model).read(start, n);
                match got {
                    Ok(copied) => {
                        assert_eq!(copied, bytes.len(), "{call}");
                        file.model.write(offset, &bytes);
                    }
                    Err(errno) => {
                        assert_eq!(errno, Errno::INVAL, "{call}");
                        assert!(
                            source.is_none() && start.abs_diff(offset) < bytes.len() as u64,
                            "{call}"
                        );
                    }
                }
                if let (Some(host), Some(source)) =
                    (host, source.map_or(host, |file| file.host.as_ref()))
                {
                    assert_eq!(host_copy(source, start, host, offset, n), got, "{call}");
                }
            }
            _ => {}
        }
        assert_eq!(file.ours.size(), file.model.size, "{call}");
        assert_eq!(file.ours.page_count(), file.model.pages.len() as u64, "{call}");
        if let Some(host) = host {
            let stat = rustix::fs::fstat(host).unwrap();
            let there = (stat.st_size as u64, stat.st_blocks as u64);
            assert_eq!(there, (file.model.size, 8 * file.ours.page_count()), "{call}");
        }
        drop((writer, section));
        let pages: usize = self.files.iter().map(|file| file.model.pages.len()).sum();
        assert_eq!(self.limit.used.get(), pages as u64, "{call}");
        if what == 99 && n % 16 == 0 {
            self.compare_all();
        }
    }

    /// Each byte of the data.
    fn compare_all(&self) {
        let section = rcu::global().unwrap().read();
        for file in &self.files {
            for index in file.model.pages.keys() {
                let mut bytes = [1; PAGE_SIZE];
                let n = file.ours.read_at(&section, index * PAGE, &mut bytes);
                assert!(bytes[..n] == file.model.read(index * PAGE, PAGE_SIZE), "page {index}");
            }
        }
    }
}

/// `copy_file_range` to what is the end of the source before.
fn host_copy(
    from: &OwnedFd,
    start: u64,
    to: &OwnedFd,
    offset: u64,
    n: usize,
) -> Result<usize, Errno> {
    let size = rustix::fs::fstat(from).unwrap().st_size as u64;
    let n = n.min(size.saturating_sub(start) as usize);
    let mut done = 0;
    while done < n {
        let (mut a, mut b) = (start + done as u64, offset + done as u64);
        match rustix::fs::copy_file_range(from, Some(&mut a), to, Some(&mut b), n - done)? {
            0 => break,
            got => done += got,
        }
    }
    Ok(done)
}

fn check_empty(caches: &PageCaches) {
    caches.flush();
    for stats in caches.caches().map(LazyCache::stats) {
        assert_eq!((stats.active, stats.waiting), (0, 0), "of {} nothing is left", stats.name);
    }
}

#[test]
fn like_a_model_and_like_the_host() {
    quietline_testing::isolated!();
    let host = host_file().is_some();
    if !host {
        eprintln!("no memory files on this host: compared with the model only");
    }
    for seed in 1..=4 {
        let caches = PageCaches::new(rcu::global().unwrap());
        let mut world = World::new(&caches, seed, host);
        (0..30_000).for_each(|_| world.step());
        world.compare_all();
        // One ends by itself, the other is cleared before.
        world.files[0].ours.clear(&world.limit);
        assert_eq!(world.limit.used.get(), world.files[1].ours.page_count());
        drop(world);
        check_empty(&caches);
    }
}

#[test]
fn the_largest_file() {
    quietline_testing::isolated!();
    let caches = PageCaches::new(rcu::global().unwrap());
    let tree = PageTree::new(&caches);
    let mut writer = tree.write();
    assert_eq!(writer.write_at(&(), MAX_SIZE - 2, b"abcdef"), Ok(2), "as much as goes in");
    assert_eq!(writer.write_at(&(), MAX_SIZE, b"a"), Err(Errno::FBIG));
    assert_eq!(writer.append(&(), b"a"), Err(Errno::FBIG));
    assert_eq!(writer.truncate(&(), MAX_SIZE + 1), Err(Errno::FBIG));
    assert_eq!(writer.allocate(&(), MAX_SIZE, 1, true), Err(Errno::FBIG));
    assert_eq!(writer.allocate(&(), 0, 0, true), Err(Errno::INVAL));
    assert_eq!(writer.write_at(&(), MAX_SIZE, b""), Ok(0));
    assert_eq!(tree.size(), MAX_SIZE);
    let section = caches.domain().read();
    let mut bytes = [7; 4];
    assert_eq!(tree.read_at(&section, MAX_SIZE - 3, &mut bytes), 3);
    assert_eq!(bytes, [0, b'a', b'b', 7]);
    assert_eq!(tree.read_at(&section, u64::MAX, &mut bytes), 0);
    assert_eq!(tree.seek(&section, 0, Seek::Data), Ok((MAX_SIZE - 2) / PAGE * PAGE));
    assert_eq!(tree.seek(&section, MAX_SIZE - 2, Seek::Hole), Ok(MAX_SIZE));
    drop(section);
    assert_eq!(caches.caches().map(LazyCache::stats)[1].active, 9, "one node for each level");
    assert_eq!(writer.write_at(&(), 0, b"x"), Ok(1));
    writer.punch_hole(&(), 1, MAX_SIZE);
    assert_eq!((tree.page_count(), tree.size()), (1, MAX_SIZE));
    caches.flush();
    assert_eq!(
        caches.caches().map(LazyCache::stats)[1].active,
        0,
        "a file of one page has no node"
    );
    drop(writer);
    drop(tree);
    check_empty(&caches);
}

#[test]
fn a_full_filesystem() {
    quietline_testing::isolated!();
    let caches = PageCaches::new(rcu::global().unwrap());
    let limit = Limit::new(5);
    let mut tree = PageTree::new(&caches);
    let mut writer = tree.write();
    assert_eq!(writer.write_at(&limit, 100, &[1; 3 * PAGE_SIZE]), Ok(3 * PAGE_SIZE));
    assert_eq!(limit.used.get(), 4);
    assert_eq!(
        writer.write_at(&limit, 10 * PAGE, &[2; 2 * PAGE_SIZE]),
        Ok(PAGE_SIZE),
        "what goes in"
    );
    assert_eq!(writer.write_at(&limit, 20 * PAGE, &[3]), Err(Errno::NOSPC));
    assert_eq!(writer.write_at(&limit, 0, &[4; 10]), Ok(10), "a page that is there");
    assert_eq!(tree.size(), 11 * PAGE);
    writer.punch_hole(&limit, 10 * PAGE, PAGE);
    assert_eq!(writer.allocate(&limit, 4 * PAGE, PAGE, false), Ok(()));
    writer.punch_hole(&limit, 0, PAGE);
    assert_eq!(writer.allocate(&limit, 3 * PAGE, 4 * PAGE, true), Err(Errno::NOSPC), "all or none");
    assert_eq!((limit.used.get(), tree.page_count()), (4, 4));
    assert_eq!(
        writer.allocate(&limit, 3 * PAGE, 3 * PAGE, true),
        Ok(()),
        "one was there, one reserved"
    );
    drop(writer);
    tree.clear(&limit);
    assert_eq!((limit.used.get(), tree.size(), tree.page_count()), (0, 0, 0));
    assert_eq!(tree.write().append(&limit, b"again"), Ok((0, 5)));
    drop(tree);
    check_empty(&caches);
}

/// Every allocation fails once: the call says so, what it did not do is not done, and nothing is lost.
#[test]
fn memory_runs_out() {
    quietline_testing::isolated!();
    let mut failures = 0;
    for nth in 1.. {
        let caches = PageCaches::new(rcu::global().unwrap());
        let limit = Limit::new(u64::MAX);
        let (tree, source) = (PageTree::new(&caches), PageTree::new(&caches));
        source.write().write_at(&(), 0, &[9; 3 * PAGE_SIZE]).unwrap();
        let mut model = Model::default();
        fault::fail_from(nth);
        let section = caches.domain().read();
        let mut writer = tree.write();
        let bytes = vec![5; 40 * PAGE_SIZE];
        let offsets = [0, 70 * PAGE, 5000 * PAGE, 1 << 40, 3 * PAGE + 5];
        for (step, offset) in offsets.into_iter().enumerate() {
            let bytes = &bytes[..if step == 1 { bytes.len() } else { 2 * PAGE_SIZE }];
            match writer.write_at(&limit, offset, bytes) {
                Ok(n) => {
                    failures += usize::from(n < bytes.len());
                    model.write(offset, &bytes[..n]);
                }
                Err(errno) => {
                    assert_eq!(errno, Errno::NOMEM);
                    failures += 1;
                }
            }
            match writer.allocate(&limit, offset + 8 * PAGE, 3 * PAGE, false) {
                Ok(()) => model.allocate(offset + 8 * PAGE, 3 * PAGE, false),
                Err(errno) => {
                    assert_eq!(errno, Errno::NOMEM);
                    failures += 1;
                }
            }
            match writer.copy_from(&limit, &source, &section, 0, offset + 20 * PAGE, 3 * PAGE_SIZE)
            {
                Ok(n) => {
                    failures += usize::from(n < 3 * PAGE_SIZE);
                    model.write(offset + 20 * PAGE, &[9; 3 * PAGE_SIZE][..n]);
                }
                Err(errno) => assert_eq!(errno, Errno::NOMEM),
            }
        }
        let fired = fault_has_fired();
        assert_eq!(tree.size(), model.size, "after failure {nth}");
        assert_eq!(tree.page_count(), model.pages.len() as u64, "after failure {nth}");
        assert_eq!(limit.used.get(), tree.page_count(), "after failure {nth}");
        for index in model.pages.keys() {
            let mut bytes = [1; PAGE_SIZE];
            let n = tree.read_at(&section, index * PAGE, &mut bytes);
            assert!(
                bytes[..n] == model.read(index * PAGE, PAGE_SIZE),
                "page {index} after failure {nth}"
            );
        }
        drop(section);
        drop(writer);
        drop((tree, source));
        check_empty(&caches);
        if !fired {
            assert!(failures > 20, "memory ran out {failures} times");
            return;
        }
    }
}

/// Disarms; whether anything failed. (What was armed by `fail_from` stays so when it fires.)
fn fault_has_fired() -> bool {
    let failed = fault::check().is_err();
    fault::fail_nth(0);
    failed
}

#[test]
#[should_panic(expected = "another domain")]
fn a_section_of_another_domain() {
    let caches = PageCaches::new(rcu::global().unwrap());
    let other = rcu::Domain::new().unwrap();
    PageTree::new(&caches).read_at(&other.read(), 0, &mut [0]);
}

/// What there is not room for takes none from others while it finds that out; and gives all back if memory ends before.
#[test]
fn all_room_is_taken_at_once_or_none() {
    quietline_testing::isolated!();
    /// Remembers how full it was.
    struct Tide(Limit, Cell<u64>);
    impl Quota for Tide {
        fn charge(&self, pages: u64) -> bool {
            let fits = self.0.charge(pages);
            self.1.set(self.1.get().max(self.0.used.get()));
            fits
        }
        fn uncharge(&self, pages: u64) {
            self.0.uncharge(pages);
        }
        fn left(&self) -> u64 {
            self.0.left()
        }
    }
    let caches = PageCaches::new(rcu::global().unwrap());
    let tide = Tide(Limit::new(100), Cell::new(0));
    let mut tree = PageTree::new(&caches);
    let mut writer = tree.write();
    for page in [0, 7, 70, 5000] {
        assert_eq!(writer.write_at(&tide, page * PAGE, b"x"), Ok(1));
    }
    for (first, after) in [(0, 102), (1, 101), (7, 110), (64, 200), (0, 1 << 40)] {
        let refused = writer.allocate(&tide, first * PAGE, (after - first) * PAGE, true);
        assert_eq!(refused, Err(Errno::NOSPC), "{first} to {after}");
        assert_eq!((tide.0.used.get(), tide.1.get()), (4, 4), "{first} to {after}");
    }
    for nth in 1..20 {
        fault::fail_from(nth);
        let made = writer.allocate(&tide, 0, 96 * PAGE, true);
        fault::fail_nth(0);
        match made {
            Ok(()) => break,
            Err(errno) => assert_eq!(errno, Errno::NOMEM),
        }
        assert_eq!((tide.0.used.get(), writer.tree().page_count()), (4, 4), "allocation {nth}");
    }
    // Three of them were there.
    assert_eq!(writer.allocate(&tide, 0, 99 * PAGE, true), Ok(()));
    assert_eq!((tide.0.used.get(), tide.1.get()), (100, 100));
    drop(writer);
    tree.clear(&tide);
    assert_eq!(tide.0.used.get(), 0);
}

/// A reservation whose page another caller has removed and a third has reserved again: taking it
/// back leaves the page of the third.
#[test]
fn taking_a_reservation_back_leaves_pages_of_others() {
    let caches = PageCaches::new(rcu::global().unwrap());
    let (tree, quota) = (PageTree::new(&caches), Limit::new(5));
    let mut writer = tree.write();
    let mut reservation = writer.reserve(&quota, 0, 4 * PAGE).unwrap();
    assert_eq!(writer.reserve_some(&quota, &mut reservation), Ok(true));
    writer.punch_hole(&quota, PAGE, PAGE);
    writer.allocate(&quota, PAGE, PAGE, true).unwrap();
    while !writer.unreserve_some(&quota, &mut reservation) {}
    // The room of the third is its own: others have what is left.
    quota.max.set(quota.used.get());
    assert_eq!(writer.write_at(&quota, PAGE, b"abc"), Ok(3));
    drop(writer);
    assert_eq!(quota.used.get(), tree.page_count());
    // Without such a removal every page is taken back.
    let (tree, quota) = (PageTree::new(&caches), Limit::new(5));
    let mut writer = tree.write();
    let mut reservation = writer.reserve(&quota, 0, 4 * PAGE).unwrap();
    assert_eq!(writer.reserve_some(&quota, &mut reservation), Ok(true));
    while !writer.unreserve_some(&quota, &mut reservation) {}
    assert_eq!((quota.used.get(), tree.page_count()), (0, 0));
}
