//! A file system of an embedder that answers whatever a seed says.

use crate::random::Random;
use crate::victim::find_marker;
use libc::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};
use quietline::{
    Caller, Changes, Entry, Errno, Events, FileOps, FileSystem, InodeOps, NewFile, NodeEntry,
    Readiness,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A file system, and each of its inodes and open files.
#[derive(Debug)]
pub(crate) struct Custom {
    /// Counts answers, so that the same question may get another one.
    answers: AtomicU64,
    readiness: Arc<Readiness>,
}

impl Custom {
    /// Returns a file system whose answers follow from a seed.
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { answers: AtomicU64::new(seed), readiness: Arc::default() })
    }

    fn random(&self) -> Random {
        let mut random = Random::new(&[self.answers.fetch_add(1, Ordering::Relaxed)]);
        // Pollers are woken now and then, and readers that wait.
        match random.below(8) {
            0 => self.readiness.clear(Events::all()),
            1..4 => self.readiness.set(Events::from_bits_retain(random.word() as u32)),
            _ => {}
        }
        random
    }

    /// Returns what a change says, mostly that it has been made.
    fn changed(&self) -> Result<(), Errno> {
        let errors = [Errno::IO, Errno::NOENT, Errno::EXIST, Errno::NOTEMPTY, Errno::AGAIN];
        let mut random = self.random();
        if random.below(3) == 0 { Err(random.pick(&errors)) } else { Ok(()) }
    }

    /// As [`changed`](Self::changed), for a name that may be made.
    fn named(&self, name: &[u8]) -> Result<(), Errno> {
        if is_of_victim(name) { Err(Errno::PERM) } else { self.changed() }
    }

    /// Returns an inode with attributes of which some are wrong.
    fn entry(&self) -> Entry {
        let mut random = self.random();
        let kinds =
            [S_IFDIR, S_IFDIR, S_IFREG, S_IFREG, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK, 0];
        let kind = random.pick(&kinds);
        let mut entry = Entry::new(Self::new(random.word()), kind | 0o755);
        entry.attributes.size = random.word() >> random.below(64);
        entry.attributes.ino = random.word() & random.word();
        if random.below(2) == 0 {
            entry = entry.valid_for(Duration::from_micros(random.below(100)));
        }
        entry
    }
}

/// Returns whether a name is one of the victim's paths. A call with such a path must fail, also
/// where this file system is mounted above it.
fn is_of_victim(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 7] = [b"v", b"1", b"x", b"fd", b"fdinfo", b"cwd", b"root"];
    NAMES.contains(&name) || matches!(name, [b'0'..=b'9']) || find_marker(name).is_some()
}

impl FileSystem for Custom {
    fn root(self: Arc<Self>, _caller: &Caller<'_>) -> Result<Entry, Errno> {
        Ok(Entry::new(self, S_IFDIR | 0o755))
    }
}

impl InodeOps for Custom {
    fn lookup(&self, _caller: &Caller<'_>, name: &[u8]) -> Result<Entry, Errno> {
        let is_missing = is_of_victim(name) || self.random().below(4) == 0;
        if is_missing { Err(Errno::NOENT) } else { Ok(self.entry()) }
    }

    fn revalidate(
        &self,
        _caller: &Caller<'_>,
        _name: &[u8],
        _child: &dyn InodeOps,
    ) -> Result<bool, Errno> {
        match self.random().below(4) {
            0 => Err(Errno::STALE),
            answer => Ok(answer == 1),
        }
    }

    fn getattr(&self, _caller: &Caller<'_>) -> Result<Option<quietline::Attributes>, Errno> {
        Ok((self.random().below(2) == 0).then(|| self.entry().attributes))
    }

    fn readlink(&self, _caller: &Caller<'_>) -> Result<Box<[u8]>, Errno> {
        let mut random = self.random();
        let length = random.below(5000) as usize;
        Ok((0..length).map(|_| random.pick(b"/.aaaaaaaaaaaa\0")).collect())
    }

    fn open(&self, _caller: &Caller<'_>, _flags: i32) -> Result<Option<Arc<dyn FileOps>>, Errno> {
        let mut random = self.random();
        match random.below(4) {
            0 => Err(Errno::IO),
            1 => Ok(Some(Self::new(random.word()))),
            _ => Ok(None),
        }
    }

    fn create(&self, _caller: &Caller<'_>, name: &[u8], new: &NewFile<'_>) -> Result<Entry, Errno> {
        self.named(name)?;
        let mut entry = self.entry();
        if self.random().below(4) != 0 {
            entry.attributes.mode = new.attributes.mode;
        }
        Ok(entry)
    }

    fn link(&self, _caller: &Caller<'_>, name: &[u8], _target: &dyn InodeOps) -> Result<(), Errno> {
        self.named(name)
    }

    fn unlink(&self, _caller: &Caller<'_>, _name: &[u8]) -> Result<(), Errno> {
        self.changed()
    }

    fn rmdir(&self, _caller: &Caller<'_>, _name: &[u8]) -> Result<(), Errno> {
        self.changed()
    }

    fn rename(
        &self,
        _caller: &Caller<'_>,
        name: &[u8],
        _to: &dyn InodeOps,
        new_name: &[u8],
        _flags: u32,
    ) -> Result<(), Errno> {
        self.named(name)?;
        self.named(new_name)
    }

    fn setattr(&self, _caller: &Caller<'_>, _changes: &Changes) -> Result<(), Errno> {
        self.changed()
    }

    fn getxattr(&self, _caller: &Caller<'_>, _name: &[u8]) -> Result<Box<[u8]>, Errno> {
        let mut random = self.random();
        let most = random.pick(&[10, 10, 70_000]);
        Ok(vec![b'a'; random.below(most) as usize].into())
    }

    fn setxattr(
        &self,
        _caller: &Caller<'_>,
        _name: &[u8],
        _value: &[u8],
        _flags: i32,
    ) -> Result<(), Errno> {
        self.changed()
    }

    fn removexattr(&self, _caller: &Caller<'_>, _name: &[u8]) -> Result<(), Errno> {
        self.changed()
    }

    fn listxattr(&self, _caller: &Caller<'_>, each: &mut dyn FnMut(&[u8])) -> Result<(), Errno> {
        let mut random = self.random();
        let (name, most) = ([b'a'; 300], random.pick(&[20, 20, 300]));
        for _ in 0..random.below(most) {
            each(&name[..random.below(most) as usize]);
        }
        Ok(())
    }
}

impl FileOps for Custom {
    fn read_at(&self, _caller: &Caller<'_>, to: &mut [u8], _at: u64) -> Result<usize, Errno> {
        // Now and then more than there is room for.
        Ok(self.random().below(to.len() as u64 + 2) as usize)
    }

    fn write_at(&self, _caller: &Caller<'_>, bytes: &[u8], _at: u64) -> Result<usize, Errno> {
        let mut random = self.random();
        match random.below(8) {
            // With a readiness: until it is woken.
            0 => Err(Errno::AGAIN),
            _ => Ok(random.below(bytes.len() as u64 + 2) as usize),
        }
    }

    fn append(&self, caller: &Caller<'_>, bytes: &[u8], size: u64) -> Result<(u64, usize), Errno> {
        let mut random = self.random();
        let at = random.pick(&[size, size, 0, 1 << 63, u64::MAX]);
        self.write_at(caller, bytes, size).map(|n| (at, n))
    }

    fn fsync(&self, _caller: &Caller<'_>, _datasync: bool) -> Result<(), Errno> {
        self.changed()
    }

    fn ioctl(&self, _caller: &Caller<'_>, _request: u64, arg: &mut [u8]) -> Result<i32, Errno> {
        let mut random = self.random();
        arg.fill(random.word() as u8);
        self.changed().map(|()| random.below(9) as i32)
    }

    fn readiness(&self) -> Option<Arc<Readiness>> {
        (self.random().below(3) == 0).then(|| self.readiness.clone())
    }

    fn read_dir(
        &self,
        _caller: &Caller<'_>,
        from: u64,
        each: &mut dyn FnMut(NodeEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let mut random = self.random();
        for place in 0..random.below(20) {
            let name = [b'a'; 300];
            let most = random.pick(&[20, 20, 20, 20, 20, 300]);
            let length = random.below(most) as usize;
            let place = if random.below(16) == 0 { random.word() } else { from + place };
            let (ino, name) = (random.below(3), &name[..length]);
            each(NodeEntry { place, ino, mode: S_IFREG, name });
        }
        Ok(())
    }
}
