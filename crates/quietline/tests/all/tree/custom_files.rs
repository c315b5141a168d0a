//! Embedders' files that are written, and their devices.

use crate::support::{Random, spawn_asleep};
use quietline::abi::*;
use quietline::inotify::{IN_ATTRIB, IN_MODIFY, IN_NONBLOCK};
use quietline::{
    Attributes, Caller, Changes, Config, Entry, EpollEvent, Errno, Events, FdSet, FileOps,
    FileSystem, InodeOps, Interrupt, Kernel, PollFd, Process, Readiness, Shared,
};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

/// A directory of fixed names, with their modes.
#[derive(Default)]
struct Flat(BTreeMap<&'static str, (Arc<dyn InodeOps>, u32)>);

impl FileSystem for Flat {
    fn root(self: Arc<Self>, _: &Caller<'_>) -> Result<Entry, Errno> {
        Ok(Entry::new(self, S_IFDIR | 0o755))
    }
}

impl InodeOps for Flat {
    fn lookup(&self, _: &Caller<'_>, name: &[u8]) -> Result<Entry, Errno> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        let (inode, mode) = self.0.get(name).ok_or(Errno::NOENT)?;
        Ok(Entry::new(inode.clone(), *mode))
    }
}

impl FileOps for Flat {}

/// Mounts a directory of fixed names on `/m`.
fn mounted<const N: usize>(names: [(&'static str, Arc<dyn InodeOps>, u32); N]) -> Arc<Process> {
    let kernel = Kernel::boot(Config::default().owner(0, 0)).unwrap();
    let p = Arc::new(kernel.process().unwrap());
    let names = names.map(|(name, inode, mode)| (name, (inode, mode)));
    p.mkdir("/m", 0o755).unwrap();
    p.mount_fs("/m", Arc::new(Flat(names.into())), 0).unwrap();
    p
}

/// A file in memory.
#[derive(Default)]
struct Bytes {
    bytes: Mutex<Vec<u8>>,
    /// Whether it finds its end itself.
    appends: bool,
    synced: Mutex<Vec<bool>>,
}

impl InodeOps for Bytes {
    fn setattr(&self, _: &Caller<'_>, _: &Changes) -> Result<(), Errno> {
        Ok(())
    }
}

impl FileOps for Bytes {
    fn read_at(&self, _: &Caller<'_>, to: &mut [u8], at: u64) -> Result<usize, Errno> {
        let bytes = self.bytes.lock().unwrap();
        let rest = bytes.get(at as usize..).unwrap_or(&[]);
        let n = rest.len().min(to.len());
        to[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn write_at(&self, _: &Caller<'_>, from: &[u8], at: u64) -> Result<usize, Errno> {
        let (mut bytes, at) = (self.bytes.lock().unwrap(), at as usize);
        let end = bytes.len().max(at + from.len());
        bytes.resize(end, 0);
        bytes[at..at + from.len()].copy_from_slice(from);
        Ok(from.len())
    }

    fn append(&self, _: &Caller<'_>, from: &[u8], size: u64) -> Result<(u64, usize), Errno> {
        let mut bytes = self.bytes.lock().unwrap();
        let at = if self.appends { bytes.len() } else { size as usize };
        let end = bytes.len().max(at + from.len());
        bytes.resize(end, 0);
        bytes[at..at + from.len()].copy_from_slice(from);
        Ok((at as u64, from.len()))
    }

    fn fsync(&self, _: &Caller<'_>, datasync: bool) -> Result<(), Errno> {
        self.synced.lock().unwrap().push(datasync);
        if self.appends { Err(Errno::IO) } else { Ok(()) }
    }
}

/// Calls on one file, in a sequence that looks random: their answers.
fn calls(p: &Process, path: &str, seed: u64) -> Vec<String> {
    let (mut random, mut told) = (Random(seed), Vec::new());
    let flags = [O_RDWR, O_RDWR, O_WRONLY | O_APPEND, O_RDWR | O_APPEND, O_RDONLY];
    let fds = flags.map(|flags| p.open(path, flags, 0).unwrap());
    let data: Vec<u8> = (0..).map(|n: u32| n.to_le_bytes()[0]).take(300).collect();
    for _ in 0..150 {
        let (fd, at) = (fds[random.below(fds.len())], random.below(400) as i64 - 5);
        let (one, two) =
            (&data[..random.below(60)], &data[random.below(20)..random.below(80) + 20]);
        let mut read = [[0; 50]; 2];
        let [first, second] = &mut read;
        let done = match random.below(9) {
            0 | 1 => p.write(fd, one),
            2 => p.pwrite(fd, two, at),
            3 => p.writev(fd, &[one, &[], two]),
            4 => p.pwritev(fd, &[two, one], at),
            5 => p.read(fd, first),
            6 => p.preadv(fd, &mut [first, second], at),
            7 => p.lseek(fd, at, SEEK_SET).map(|at| at as usize),
            _ => p.lseek(fd, at, SEEK_END).map(|at| at as usize),
        };
        let stat = p.fstat(fd).unwrap();
        assert_eq!(stat.st_size, p.stat(path).unwrap().st_size);
        let place = p.lseek(fd, 0, SEEK_CUR);
        told.push(format!("{done:?} {read:?} {} {place:?}", stat.st_size));
    }
    let mut all = vec![0; 4096];
    let n = p.pread(fds[0], &mut all, 0).unwrap();
    told.push(format!("{:?}", &all[..n]));
    fds.into_iter().for_each(|fd| p.close(fd).unwrap());
    told
}

#[test]
fn a_file_is_written_as_one_of_tmpfs() {
    for seed in 0..60 {
        let file: Arc<Bytes> = Arc::new(Bytes { appends: seed % 2 == 0, ..Bytes::default() });
        let p = mounted([("file", file, S_IFREG | 0o644)]);
        p.close(p.creat("/file", 0o644).unwrap()).unwrap();
        assert_eq!(calls(&p, "/m/file", seed), calls(&p, "/file", seed), "seed {seed}");
    }
}

#[test]
fn a_write_changes_the_attributes_in_memory() {
    let file = Arc::new(Bytes::default());
    let p = mounted([("file", file.clone(), S_IFREG | 0o6777)]);
    let before = p.stat("/m/file").unwrap();
    assert_eq!((before.st_mtim.tv_sec, before.st_size), (0, 0));
    let watch = p.inotify_init1(IN_NONBLOCK).unwrap();
    p.inotify_add_watch(watch, "/m/file", IN_MODIFY | IN_ATTRIB).unwrap();
    let fd = p.open("/m/file", O_RDWR, 0).unwrap();
    assert_eq!(p.write(fd, b""), Ok(0));
    assert_eq!(p.fstat(fd), Ok(before));
    assert_eq!(p.read(watch, &mut [0; 99]), Err(Errno::AGAIN));
    assert_eq!(p.pwrite(fd, b"four", 6), Ok(4));
    let after = p.fstat(fd).unwrap();
    assert_eq!((after.st_size, after.st_mtim), (10, after.st_ctim));
    assert!(after.st_mtim.tv_sec > 0);
    assert_eq!(after.st_mode, S_IFREG | 0o6777, "a caller with CAP_FSETID");
    assert_eq!(p.read(watch, &mut [0; 99]), Ok(16), "one event");
    p.setresuid(7, 7, 7).unwrap();
    assert_eq!(p.writev(fd, &[b"a", b"b"]), Ok(2));
    assert_eq!(p.fstat(fd).unwrap().st_mode, S_IFREG | 0o777);
    assert_eq!(p.read(watch, &mut [0; 99]), Ok(32), "the mode, too");
    assert_eq!((p.fsync(fd), p.fdatasync(fd)), (Ok(()), Ok(())));
    assert_eq!(*file.synced.lock().unwrap(), [false, true]);
    assert_eq!(*file.bytes.lock().unwrap(), b"ab\0\0\0\0four");
}

#[test]
fn writes_of_many_threads_are_all_there() {
    const EACH: usize = 300;
    let file = Arc::new(Bytes { appends: true, ..Bytes::default() });
    let p = mounted([("file", file.clone(), S_IFREG | 0o644)]);
    // Through one open file, each write goes behind those before; with `O_APPEND`, by the method.
    let shared = p.open("/m/file", O_WRONLY, 0).unwrap();
    for appends in [false, true] {
        file.bytes.lock().unwrap().clear();
        std::thread::scope(|scope| {
            for n in 1..4_u8 {
                let p = &p;
                scope.spawn(move || {
                    let own = p.open("/m/file", O_WRONLY | O_APPEND, 0).unwrap();
                    for _ in 0..EACH {
                        let fd = if appends { own } else { shared };
                        assert_eq!(p.write(fd, &[n; 10]), Ok(10));
                    }
                });
            }
        });
        let bytes = file.bytes.lock().unwrap();
        assert_eq!(bytes.len(), 3 * EACH * 10);
        for record in bytes.chunks(10) {
            assert!(record.iter().all(|&byte| byte == record[0] && byte != 0), "{record:?}");
        }
    }
    assert_eq!(p.fsync(shared), Err(Errno::IO));
}

/// A file that answers writes as given.
#[derive(Default)]
struct Answers(Mutex<VecDeque<Result<(u64, usize), Errno>>>);

impl Answers {
    fn next(&self) -> Result<(u64, usize), Errno> {
        let next = self.0.lock().unwrap().pop_front();
        next.expect("on purpose, or one call too many")
    }
}

impl InodeOps for Answers {}

impl FileOps for Answers {
    fn write_at(&self, _: &Caller<'_>, _: &[u8], _: u64) -> Result<usize, Errno> {
        self.next().map(|(_, n)| n)
    }

    fn append(&self, _: &Caller<'_>, _: &[u8], _: u64) -> Result<(u64, usize), Errno> {
        self.next()
    }

    fn ioctl(&self, _: &Caller<'_>, _: u64, _: &mut [u8]) -> Result<i32, Errno> {
        Err(Errno::from_raw_os_error(512))
    }

    fn fsync(&self, _: &Caller<'_>, _: bool) -> Result<(), Errno> {
        Err(Errno::from_raw_os_error(512))
    }
}

#[test]
fn answers_to_writes_are_checked() {
    const END: u64 = i64::MAX as u64;
    let file = Arc::new(Answers::default());
    let p = mounted([("file", file.clone(), S_IFREG | 0o644)]);
    let [plain, end] = [O_RDWR, O_WRONLY | O_APPEND].map(|f| p.open("/m/file", f, 0).unwrap());
    let give = |answers: &[Result<(u64, usize), Errno>]| {
        file.0.lock().unwrap().extend(answers);
    };
    let state = |fd| (p.fstat(fd).unwrap().st_size, p.lseek(fd, 0, SEEK_CUR).unwrap());
    // Less than was given; an error behind some bytes.
    give(&[Ok((0, 3)), Ok((0, 4)), Err(Errno::NOSPC), Ok((0, 4)), Ok((0, 1)), Ok((0, 0))]);
    assert_eq!(p.write(plain, b"1234"), Ok(3));
    assert_eq!(p.writev(plain, &[b"1234", b"5678"]), Ok(4));
    assert_eq!(p.writev(plain, &[b"1234", b"5678", b"9"]), Ok(5));
    assert_eq!(state(plain), (12, 12));
    assert_eq!(p.write(plain, b"1"), Ok(0));
    // Errors, more than was given, offsets that no file has: nothing changes.
    for errno in [Errno::NOSPC, Errno::AGAIN, Errno::INVAL] {
        give(&[Err(errno), Err(errno)]);
        assert_eq!(p.write(plain, b"1"), Err(errno));
        assert_eq!(p.write(end, b"1"), Err(errno));
    }
    give(&[Ok((0, 5)), Ok((0, usize::MAX)), Err(Errno::from_raw_os_error(512))]);
    give(&[Ok((0, 5)), Ok((END, 1)), Ok((u64::MAX, 1)), Ok((END + 1, 0))]);
    for fd in [plain, plain, plain, end, end, end, end] {
        assert_eq!(p.write(fd, b"1234"), Err(Errno::IO));
    }
    assert_eq!((state(plain), state(end)), ((12, 12), (12, 0)));
    catch_unwind(AssertUnwindSafe(|| p.write(plain, b"1"))).unwrap_err();
    assert_eq!(state(plain), (12, 12), "a panic leaves the offset as it was");
    // The largest size.
    assert_eq!(p.pwrite(plain, b"12", END as i64 - 1), Err(Errno::INVAL));
    give(&[Ok((END - 2, 1)), Ok((END - 1, 1)), Ok((0, 1))]);
    assert_eq!(p.write(end, b"1234"), Ok(1));
    assert_eq!(state(end), (END as i64 - 1, END as i64 - 1));
    p.lseek(end, 0, SEEK_SET).unwrap();
    assert_eq!(p.write(end, b"1234"), Ok(1));
    assert_eq!(p.write(end, b"1234"), Err(Errno::INVAL), "the offset is at the end, too");
    p.lseek(end, 0, SEEK_SET).unwrap();
    assert_eq!(p.write(end, b"1234"), Err(Errno::FBIG));
    assert_eq!(p.write(plain, b"1"), Ok(1));
    assert_eq!(p.ioctl(plain, 1, &mut 0), Err(Errno::IO));
    assert_eq!(p.fsync(plain), Err(Errno::IO));
    assert!(file.0.lock().unwrap().is_empty());
}

/// A file that is asked for its attributes at each walk. One answer waits.
struct Late {
    waits: AtomicBool,
    entered: Barrier,
    go: Barrier,
}

impl FileSystem for Late {
    fn root(self: Arc<Self>, _: &Caller<'_>) -> Result<Entry, Errno> {
        struct Root(Arc<Late>);
        impl FileOps for Root {}
        impl InodeOps for Root {
            fn lookup(&self, _: &Caller<'_>, _: &[u8]) -> Result<Entry, Errno> {
                Ok(Entry::new(self.0.clone(), S_IFREG | 0o644).valid_for(Duration::ZERO))
            }

            fn revalidate(
                &self,
                _: &Caller<'_>,
                _: &[u8],
                _: &dyn InodeOps,
            ) -> Result<bool, Errno> {
                Ok(true)
            }
        }
        Ok(Entry::new(Arc::new(Root(self)), S_IFDIR | 0o755))
    }
}

impl InodeOps for Late {
    fn getattr(&self, _: &Caller<'_>) -> Result<Option<Attributes>, Errno> {
        if !self.waits.swap(false, SeqCst) {
            return Ok(None);
        }
        self.entered.wait();
        self.go.wait();
        Ok(Some(Attributes { mode: S_IFREG | 0o644, nlink: 1, ..Attributes::default() }))
    }
}

impl FileOps for Late {
    fn write_at(&self, _: &Caller<'_>, bytes: &[u8], _: u64) -> Result<usize, Errno> {
        Ok(bytes.len())
    }
}

#[test]
fn an_answer_that_is_older_than_a_write_is_dropped() {
    let kernel = Kernel::boot(Config::default().owner(0, 0)).unwrap();
    let p = kernel.process().unwrap();
    let [entered, go] = [(); 2].map(|()| Barrier::new(2));
    let late = Arc::new(Late { waits: AtomicBool::new(false), entered, go });
    p.mkdir("/m", 0o755).unwrap();
    p.mount_fs("/m", late.clone(), 0).unwrap();
    let fd = p.open("/m/file", O_RDWR, 0).unwrap();
    late.waits.store(true, SeqCst);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| p.access("/m/file", 0));
        late.entered.wait();
        assert_eq!(p.write(fd, b"12345"), Ok(5));
        late.go.wait();
        first.join().unwrap().unwrap();
    });
    // The method has said that the size is 0.
    assert_eq!(p.fstat(fd).unwrap().st_size, 5);
}

#[test]
fn bytes_go_from_and_to_other_files() {
    let file = Arc::new(Bytes::default());
    let p = mounted([("file", file.clone(), S_IFREG | 0o644)]);
    let fd = p.open("/m/file", O_RDWR, 0).unwrap();
    let from = p.memfd_create("from", 0).unwrap();
    let text: Vec<u8> = (0..9000_u32).map(|n| n.to_le_bytes()[0]).collect();
    p.write(from, &text).unwrap();
    assert_eq!(p.sendfile(fd, from, Some(&mut 0), 10_000), Ok(9000));
    assert_eq!(*file.bytes.lock().unwrap(), text);
    let [read, write] = p.pipe2(0).unwrap();
    p.write(write, b"piped").unwrap();
    // The pipe would be locked while the method runs.
    assert_eq!(p.splice(read, None, fd, None, 5, 0), Err(Errno::INVAL));
    assert_eq!(p.splice(read, None, fd, Some(&mut 0), 5, 0), Err(Errno::INVAL));
    assert_eq!(p.read(read, &mut [0; 9]), Ok(5));
    assert_eq!(p.copy_file_range(fd, Some(&mut 0), fd, None, 5, 0), Err(Errno::INVAL));
    assert_eq!(p.fallocate(fd, 0, 0, 5), Err(Errno::OPNOTSUPP));
    assert_eq!(p.fallocate(fd, 0, i64::MAX, 1), Err(Errno::FBIG));
    p.close(fd).unwrap();
    p.mount("none", "/m", "", quietline::MS_REMOUNT | quietline::MS_BIND | 1).unwrap();
    assert_eq!(p.open("/m/file", O_RDWR, 0), Err(Errno::ROFS));
}

/// A device without waiters: a number that a read returns and increments, and a write sets.
#[derive(Default)]
struct Counter(AtomicU64);

impl InodeOps for Counter {}

impl FileOps for Counter {
    fn read_at(&self, _: &Caller<'_>, to: &mut [u8], _: u64) -> Result<usize, Errno> {
        let n = self.0.fetch_add(1, SeqCst).to_ne_bytes();
        to.get_mut(..8).ok_or(Errno::INVAL)?.copy_from_slice(&n);
        Ok(8)
    }

    fn write_at(&self, _: &Caller<'_>, bytes: &[u8], _: u64) -> Result<usize, Errno> {
        let n = u64::from_ne_bytes(*bytes.first_chunk().ok_or(Errno::INVAL)?);
        self.0.store(n, SeqCst);
        Ok(8)
    }

    fn ioctl(&self, _: &Caller<'_>, request: u64, arg: &mut [u8]) -> Result<i32, Errno> {
        match request {
            FIONREAD => {
                arg.first_chunk_mut::<4>().ok_or(Errno::FAULT).map(|n| *n = 8_i32.to_ne_bytes())?;
                Ok(0)
            }
            7 => {
                arg.reverse();
                Ok(arg.len() as i32)
            }
            _ => Err(Errno::NOTTY),
        }
    }
}

#[test]
fn a_device_is_the_embedders() {
    let p = mounted([
        ("counter", Arc::new(Counter::default()), S_IFCHR | 0o666),
        ("none", Arc::new(Bytes::default()), S_IFCHR | 0o444),
        ("disk", Arc::new(Counter::default()), S_IFBLK | 0o666),
    ]);
    assert_eq!(p.stat("/m/counter").unwrap().st_mode, S_IFCHR | 0o666);
    // A device is written also where the mount is read-only, and does not keep it writable.
    let fd = p.open("/m/counter", O_RDWR | O_TRUNC, 0).unwrap();
    p.mount("none", "/m", "", quietline::MS_REMOUNT | quietline::MS_BIND | 1).unwrap();
    p.close(p.open("/m/counter", O_WRONLY, 0).unwrap()).unwrap();
    let mut n = [0; 8];
    let mut read = || p.read(fd, &mut n).map(|_| u64::from_ne_bytes(n));
    assert_eq!([read(), read()], [Ok(0), Ok(1)]);
    assert_eq!(p.write(fd, &70_u64.to_ne_bytes()), Ok(8));
    assert_eq!([read(), read()], [Ok(70), Ok(71)]);
    assert_eq!(p.read(fd, &mut [0; 3]), Err(Errno::INVAL));
    assert_eq!(p.pread(fd, &mut n, 3), Ok(8));
    assert_eq!(p.readv(fd, &mut [&mut n, &mut [0; 8]]), Ok(16));
    assert_eq!(p.fstat(fd).unwrap().st_size, 0);
    // Requests that are the device's, and those that are the kernel's.
    let mut arg = 0;
    assert_eq!((p.ioctl(fd, FIONREAD, &mut arg), arg), (Ok(0), 8));
    assert_eq!(p.ioctl(fd, 8, &mut arg), Err(Errno::NOTTY));
    arg = i32::from_ne_bytes([1, 2, 3, 4]);
    assert_eq!((p.ioctl(fd, 7, &mut arg), arg.to_ne_bytes()), (Ok(4), [4, 3, 2, 1]));
    let mut bytes = [1, 2, 3, 4, 5];
    assert_eq!((p.ioctl_bytes(fd, 7, &mut bytes), bytes), (Ok(5), [5, 4, 3, 2, 1]));
    assert_eq!(p.ioctl_bytes(fd, FIONREAD, &mut [0; 2]), Err(Errno::FAULT));
    assert_eq!(p.ioctl_bytes(fd, FIONBIO, &mut 1_i32.to_ne_bytes()), Ok(0));
    assert_eq!(p.fcntl(fd, F_GETFL, 0).unwrap() & O_NONBLOCK, O_NONBLOCK);
    let [pipe, other] = p.pipe2(0).unwrap();
    p.write(other, b"12").unwrap();
    let mut two = [0; 4];
    assert_eq!((p.ioctl_bytes(pipe, FIONREAD, &mut two), two), (Ok(0), 2_i32.to_ne_bytes()));
    assert_eq!(p.ioctl_bytes(pipe, FIONREAD, &mut [0; 3]), Err(Errno::FAULT));
    // Nothing to wait for.
    let mut fds = [PollFd::new(fd, 1 | 4)];
    assert_eq!((p.poll(&mut fds, 0), fds[0].revents), (Ok(1), 1 | 4));
    let epoll = p.epoll_create1(0).unwrap();
    assert_eq!(p.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &EpollEvent::default()), Err(Errno::PERM));
    // Requests and devices that are missing.
    let none = p.open("/m/none", O_RDONLY, 0).unwrap();
    assert_eq!(p.ioctl(none, 7, &mut 0), Err(Errno::NOTTY));
    assert_eq!(p.open("/m/disk", O_RDONLY, 0), Err(Errno::NXIO));
    assert_eq!(p.open("/m/counter", O_RDONLY | O_DIRECT, 0), Err(Errno::INVAL));
    let path = p.open("/m/counter", O_PATH, 0).unwrap();
    assert_eq!(p.read(path, &mut n), Err(Errno::BADF));
    assert_eq!(p.ioctl(path, 7, &mut 0), Err(Errno::BADF));
    assert_eq!(p.ftruncate(fd, 0), Err(Errno::INVAL));
    assert_eq!(p.fallocate(fd, 0, 0, 1), Err(Errno::NODEV));
    p.mount("none", "/m", "", quietline::MS_REMOUNT | quietline::MS_BIND | 4).unwrap();
    assert_eq!(p.open("/m/counter", O_RDONLY, 0), Err(Errno::ACCESS), "nodev");
    p.setresuid(7, 7, 7).unwrap();
    assert_eq!(p.open("/m/none", O_RDWR, 0), Err(Errno::ACCESS));
}

/// A device that is a queue of bytes, as a pipe without ends.
struct Queue {
    room: usize,
    bytes: Mutex<VecDeque<u8>>,
    readiness: Arc<Readiness>,
}

const READABLE: Events = Events::IN.union(Events::RDNORM);
const WRITABLE: Events = Events::OUT.union(Events::WRNORM);

impl Queue {
    fn new(room: usize) -> Arc<Self> {
        let readiness = Arc::new(Readiness::new(WRITABLE));
        Arc::new(Self { room, bytes: Mutex::default(), readiness })
    }
}

impl InodeOps for Queue {}

impl FileOps for Queue {
    fn read_at(&self, _: &Caller<'_>, to: &mut [u8], _: u64) -> Result<usize, Errno> {
        let mut bytes = self.bytes.lock().unwrap();
        let n = bytes.len().min(to.len());
        if n == 0 {
            return Err(Errno::AGAIN);
        }
        to.iter_mut().zip(bytes.drain(..n)).for_each(|(to, byte)| *to = byte);
        if bytes.is_empty() {
            self.readiness.clear(READABLE);
        }
        self.readiness.set(WRITABLE);
        Ok(n)
    }

    fn write_at(&self, _: &Caller<'_>, from: &[u8], _: u64) -> Result<usize, Errno> {
        let mut bytes = self.bytes.lock().unwrap();
        let n = from.len().min(self.room - bytes.len());
        if n == 0 {
            return Err(Errno::AGAIN);
        }
        bytes.extend(&from[..n]);
        if bytes.len() == self.room {
            self.readiness.clear(WRITABLE);
        }
        self.readiness.set(READABLE);
        Ok(n)
    }

    fn readiness(&self) -> Option<Arc<Readiness>> {
        Some(self.readiness.clone())
    }
}

fn queue(room: usize) -> (Arc<Process>, Arc<Queue>, i32) {
    let queue = Queue::new(room);
    let p = mounted([("queue", queue.clone(), S_IFCHR | 0o666)]);
    let fd = p.open("/m/queue", O_RDWR, 0).unwrap();
    (p, queue, fd)
}

#[test]
fn a_device_lets_its_callers_wait() {
    let (p, queue, fd) = queue(16);
    let other = p.open("/m/queue", O_RDWR | O_NONBLOCK, 0).unwrap();
    let interrupt = Shared::new(Interrupt::new()).unwrap();
    assert_eq!(p.read(other, &mut [0; 4]), Err(Errno::AGAIN));
    std::thread::scope(|scope| {
        let read = spawn_asleep(scope, || {
            let mut bytes = [0; 4];
            p.read(fd, &mut bytes).map(|n| bytes[..n].to_vec())
        });
        // An event of the other direction wakes no thread; a wake-up without bytes is no answer.
        queue.readiness.set(WRITABLE);
        assert!(read.sleeps_on());
        queue.readiness.set(READABLE);
        queue.readiness.clear(READABLE);
        assert!(!read.is_finished());
        assert_eq!(p.write(other, b"ab"), Ok(2));
        assert_eq!(read.join().unwrap(), Ok(b"ab".to_vec()));
        // What does not fit: as much as does, and then not at all.
        assert_eq!(p.write(other, &[1; 20]), Ok(16));
        assert_eq!(p.write(other, &[1; 20]), Err(Errno::AGAIN));
        let write = spawn_asleep(scope, || p.writev(fd, &[&[2; 3], &[3; 40]]));
        assert_eq!(p.read(other, &mut [0; 5]), Ok(5));
        assert_eq!(write.join().unwrap(), Ok(5), "what is left is not waited for");
        // A wait ends by an interrupt.
        p.read(other, &mut [0; 99]).unwrap();
        let read = spawn_asleep(scope, || {
            let _entered = Interrupt::enter(&interrupt);
            p.read(fd, &mut [0; 4])
        });
        interrupt.raise();
        assert_eq!(read.join().unwrap(), Err(Errno::INTR));
    });
}

/// Makes calls on a device or a pipe in a sequence that looks random. Returns the results, and the
/// answers of pollers.
fn polled(p: &Process, [read, write]: [i32; 2], seed: u64) -> Vec<String> {
    let (mut random, mut told) = (Random(seed), Vec::new());
    for fd in [read, write] {
        p.fcntl(fd, F_SETFL, O_NONBLOCK as u64).unwrap();
    }
    let epolls = [0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT].map(|how| {
        let epoll = p.epoll_create1(0).unwrap();
        let event = EpollEvent { events: Events::IN.bits() | how, data: 7 };
        p.epoll_ctl(epoll, EPOLL_CTL_ADD, read, &event).unwrap();
        (epoll, event)
    });
    for _ in 0..80 {
        let did = match random.below(4) {
            0 => p.write(write, &[0; 5][..random.below(3) + 1]).map(|_| 0),
            1 => p.read(read, &mut [0; 2]).map(|_| 1),
            2 => p.read(read, &mut [0; 99]).map(|_| 1),
            _ => {
                let (epoll, event) = &epolls[random.below(4)];
                p.epoll_ctl(*epoll, EPOLL_CTL_MOD, read, event).map(|()| 2)
            }
        };
        let mut fds = [PollFd::new(read, 1)];
        let n = p.poll(&mut fds, 0).unwrap();
        let mut set = FdSet::new();
        set.insert(read).unwrap();
        let selected = p.select(read + 1, Some(&mut set), None, None, Some(Duration::ZERO));
        let events = epolls.map(|(epoll, _)| {
            let mut events = [EpollEvent::default(); 3];
            let n = p.epoll_wait(epoll, &mut events, 0).unwrap();
            events[..n].iter().map(|event| event.events).collect::<Vec<_>>()
        });
        told.push(format!("{did:?} {n} {} {selected:?} {events:?}", fds[0].revents));
    }
    epolls.into_iter().for_each(|(epoll, _)| p.close(epoll).unwrap());
    told
}

#[test]
fn pollers_see_a_device_as_they_see_a_pipe() {
    for seed in 0..40 {
        let (p, _, fd) = queue(1 << 16);
        let write = p.open("/m/queue", O_WRONLY, 0).unwrap();
        let pipe = p.pipe2(0).unwrap();
        assert_eq!(polled(&p, [fd, write], seed), polled(&p, pipe, seed), "seed {seed}");
    }
}

#[test]
fn pollers_sleep_until_a_device_wakes_them() {
    let (p, queue, fd) = queue(16);
    let epoll = p.epoll_create1(0).unwrap();
    let event = EpollEvent { events: (Events::IN | Events::PRI).bits(), data: 5 };
    p.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event).unwrap();
    assert_eq!(p.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), Err(Errno::EXIST));
    std::thread::scope(|scope| {
        let mut waits = [
            spawn_asleep(scope, || p.poll(&mut [PollFd::new(fd, 1)], -1)),
            spawn_asleep(scope, || {
                let mut set = FdSet::new();
                set.insert(fd).unwrap();
                p.select(fd + 1, Some(&mut set), None, None, None)
            }),
            spawn_asleep(scope, || p.epoll_wait(epoll, &mut [EpollEvent::default()], -1)),
        ];
        queue.readiness.set(WRITABLE);
        waits.iter_mut().for_each(|wait| assert!(wait.sleeps_on()));
        p.write(p.open("/m/queue", O_WRONLY, 0).unwrap(), b"x").unwrap();
        assert_eq!(waits.map(|wait| wait.join().unwrap()), [Ok(1); 3]);
    });
    // Other events, and bits that are none.
    queue.readiness.set(Events::from_bits_retain(1 << 31 | 1 << 28 | 0x20) | Events::PRI);
    assert_eq!(queue.readiness.events(), READABLE | WRITABLE | Events::PRI);
    queue.readiness.set(Events::HUP);
    let mut fds = [PollFd::new(fd, 2)];
    assert_eq!((p.poll(&mut fds, 0), fds[0].revents), (Ok(1), 2 | 0x10));
    queue.readiness.clear(Events::all());
    assert_eq!(p.poll(&mut fds, 0), Ok(0));
    // Each open file is in the epoll by itself, and leaves it when it is closed.
    let second = p.open("/m/queue", O_RDONLY, 0).unwrap();
    p.epoll_ctl(epoll, EPOLL_CTL_ADD, second, &event).unwrap();
    queue.readiness.set(READABLE);
    let mut events = [EpollEvent::default(); 4];
    assert_eq!(p.epoll_wait(epoll, &mut events, 0), Ok(2));
    p.close(second).unwrap();
    queue.readiness.set(READABLE);
    assert_eq!(p.epoll_wait(epoll, &mut events, 0), Ok(1));
    p.close(fd).unwrap();
    queue.readiness.set(READABLE);
    assert_eq!(p.epoll_wait(epoll, &mut events, 0), Ok(0));
    // The kernel keeps no reference once a grace period is over.
    p.close_range(0, u32::MAX, 0).unwrap();
    p.umount2("/m", 0).unwrap();
    p.kernel().shrink();
    (0..3).for_each(|_| quietline_sync::rcu::global().unwrap().barrier());
    assert_eq!((Arc::strong_count(&queue.readiness), Arc::strong_count(&queue)), (1, 1));
}

/// Threads that wake, read, poll, open and close at the same time.
#[test]
fn a_device_is_closed_while_it_wakes() {
    let (p, queue, _) = queue(16);
    let left = AtomicU64::new(300);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while left.load(SeqCst) > 0 {
                queue.readiness.set(READABLE);
                queue.readiness.clear(READABLE);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let epoll = p.epoll_create1(0).unwrap();
                let event = EpollEvent { events: Events::IN.bits() | EPOLLET, data: 0 };
                while left.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok() {
                    let fd = p.open("/m/queue", O_RDWR | O_NONBLOCK, 0).unwrap();
                    p.epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event).unwrap();
                    let mut fds = [PollFd::new(fd, 1)];
                    p.ppoll(&mut fds, Some(Duration::from_micros(50))).unwrap();
                    p.epoll_wait(epoll, &mut [EpollEvent::default()], 0).unwrap();
                    assert_eq!(p.read(fd, &mut [0; 1]), Err(Errno::AGAIN));
                    p.close(fd).unwrap();
                }
            });
        }
    });
}
