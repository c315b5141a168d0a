//! inotify beside the host kernel's: a script of operations runs on a directory of /dev/shm, and
//! the same happenings are raised here in the order in which Linux raises them; then both queues
//! are read, with buffers of all sizes.
//!
//! So the order of the happenings below is also the reference for whoever raises them.
#![allow(unsafe_code)]

use quietline_sync::Shared;
use quietline_vfs::inotify::*;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

mod host {
    use std::ffi::{c_char, c_ulong};
    unsafe extern "C" {
        pub(crate) safe fn inotify_init1(flags: i32) -> i32;
        pub(crate) fn inotify_add_watch(fd: i32, path: *const c_char, mask: u32) -> i32;
        pub(crate) safe fn inotify_rm_watch(fd: i32, wd: i32) -> i32;
        pub(crate) fn read(fd: i32, buffer: *mut u8, size: usize) -> isize;
        pub(crate) safe fn close(fd: i32) -> i32;
        pub(crate) fn ioctl(fd: i32, request: c_ulong, ...) -> i32;
        fn __errno_location() -> *mut i32;
    }

    /// The call's result, or its error.
    pub(crate) fn checked(result: i32) -> Result<i32, i32> {
        // SAFETY: the thread's own word.
        if result < 0 { Err(unsafe { *__errno_location() }) } else { Ok(result) }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// A file or directory that exists, as we know it.
#[derive(Clone)]
struct Known {
    watches: Shared<Watches>,
    size: u64,
}

impl Known {
    fn new() -> Self {
        Self { watches: Shared::new(Watches::new(1, 1)).unwrap(), size: 0 }
    }
}

/// Names in the directory; the last is a directory's.
const NAMES: [&str; 5] = ["a", "bb", "a-name-of-15-byt", "a-name-that-needs-two-heads", "sub"];
const FILES: usize = 4;
const SUB: usize = 4;
const INSTANCES: usize = 2;

struct Pair {
    path: PathBuf,
    root: Known,
    names: [Option<Known>; 5],
    limits: Shared<InotifyLimits>,
    ours: [Option<Inotify>; INSTANCES],
    theirs: [i32; INSTANCES],
    /// The host's cookies and ours.
    cookies: HashMap<u32, u32>,
    /// Masks of all events that were compared, and how many.
    seen: (u32, usize),
}

impl Pair {
    fn new(name: &str) -> Self {
        let path =
            PathBuf::from(format!("/dev/shm/quietline-inotify-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        let limits = Shared::new(InotifyLimits::new()).unwrap();
        let ours = [0; INSTANCES].map(|_| Some(Inotify::new(&limits, 0).unwrap()));
        let theirs = [0; INSTANCES]
            .map(|_| host::checked(host::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)).unwrap());
        let names = [const { None }; 5];
        Self {
            path,
            root: Known::new(),
            names,
            limits,
            ours,
            theirs,
            cookies: HashMap::new(),
            seen: (0, 0),
        }
    }

    fn at(&self, n: usize) -> PathBuf {
        self.path.join(NAMES[n])
    }

    /// Something happened to a file that the directory names.
    fn file(&self, n: usize, mask: u32) {
        let file = self.names[n].as_ref().unwrap();
        self.raise(Some(file), n, Happening { mask, is_dir: n == SUB, ..Happening::default() });
    }

    /// Something happened to a name.
    fn name(&self, n: usize, mask: u32, cookie: u32) {
        self.raise(None, n, Happening { mask, cookie, is_dir: n == SUB, ..Happening::default() });
    }

    fn raise(&self, file: Option<&Known>, n: usize, happening: Happening) {
        notify(
            file.map(|file| &*file.watches),
            Some((&*self.root.watches, NAMES[n].as_bytes())),
            happening,
        );
    }

    fn itself(file: &Known, mask: u32, is_dir: bool) {
        notify(Some(&*file.watches), None, Happening { mask, is_dir, ..Happening::default() });
    }

    fn create(&mut self, n: usize) {
        if n == SUB {
            fs::create_dir(self.at(n)).unwrap();
            self.names[n] = Some(Known::new());
            self.name(n, IN_CREATE, 0);
        } else {
            drop(OpenOptions::new().write(true).create_new(true).open(self.at(n)).unwrap());
            self.names[n] = Some(Known::new());
            self.name(n, IN_CREATE, 0);
            self.file(n, IN_OPEN);
            self.file(n, IN_CLOSE_WRITE);
        }
    }

    fn remove(&mut self, n: usize) {
        let known = self.names[n].take().unwrap();
        if n == SUB {
            fs::remove_dir(self.at(n)).unwrap();
        } else {
            fs::remove_file(self.at(n)).unwrap();
            Self::itself(&known, IN_ATTRIB, false);
        }
        // The inode goes before the name's event.
        known.watches.deleted(n == SUB);
        self.name(n, IN_DELETE, 0);
    }

    /// Removed while it is open: it lives on, without a name.
    fn remove_open(&mut self, n: usize) {
        let mut open = OpenOptions::new().write(true).open(self.at(n)).unwrap();
        self.file(n, IN_OPEN);
        fs::remove_file(self.at(n)).unwrap();
        let known = self.names[n].take().unwrap();
        Self::itself(&known, IN_ATTRIB, false);
        self.name(n, IN_DELETE, 0);
        let unlinked = |mask| Happening { mask, unlinked: true, ..Happening::default() };
        open.write_all(b"x").unwrap();
        self.raise(Some(&known), n, unlinked(IN_MODIFY));
        drop(open);
        self.raise(Some(&known), n, unlinked(IN_CLOSE_WRITE));
        known.watches.deleted(false);
    }

    fn rename(&mut self, from: usize, to: usize) {
        fs::rename(self.at(from), self.at(to)).unwrap();
        let source = self.names[from].take().unwrap();
        let target = self.names[to].replace(source.clone());
        let cookie = self.limits.cookie();
        self.name(from, IN_MOVED_FROM, cookie);
        self.name(to, IN_MOVED_TO, cookie);
        if let Some(target) = &target {
            Self::itself(target, IN_ATTRIB, false);
        }
        Self::itself(&source, IN_MOVE_SELF, false);
        if let Some(target) = target {
            target.watches.deleted(false);
        }
    }

    fn touch(&mut self, n: usize, random: &mut Random) {
        let path = self.at(n);
        match (random.below(3), n) {
            (0, _) => {
                fs::set_permissions(
                    &path,
                    fs::Permissions::from_mode(0o700 + random.below(7) as u32),
                )
                .unwrap();
                self.file(n, IN_ATTRIB);
            }
            (_, SUB) => {
                drop(File::open(&path).unwrap());
                self.file(n, IN_OPEN);
                self.file(n, IN_CLOSE_NOWRITE);
            }
            (1, _) => {
                let mut file = File::open(&path).unwrap();
                self.file(n, IN_OPEN);
                let read = file.read(&mut [0; 1]).unwrap();
                assert_eq!(read as u64, self.names[n].as_ref().unwrap().size.min(1));
                if read > 0 {
                    self.file(n, IN_ACCESS);
                }
                drop(file);
                self.file(n, IN_CLOSE_NOWRITE);
            }
            _ => {
                let mut file = OpenOptions::new().write(true).open(&path).unwrap();
                self.file(n, IN_OPEN);
                for _ in 0..=random.below(3) {
                    file.write_all(b"x").unwrap();
                    self.file(n, IN_MODIFY);
                }
                self.names[n].as_mut().unwrap().size = 1;
                drop(file);
                self.file(n, IN_CLOSE_WRITE);
            }
        }
    }

    fn add_watch(&self, instance: usize, path: &Path, known: &Known, is_dir: bool, mask: u32) {
        let text = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a string that lives.
        let theirs = unsafe { host::inotify_add_watch(self.theirs[instance], text.as_ptr(), mask) };
        let theirs = host::checked(theirs);
        let ours = check_mask(mask)
            .and(if mask & IN_ONLYDIR != 0 && !is_dir { Err(Errno::NOTDIR) } else { Ok(()) })
            .and_then(|()| self.ours[instance].as_ref().unwrap().add_watch(&known.watches, mask));
        assert_eq!(ours.map_err(Errno::raw_os_error), theirs, "mask {mask:#x}");
    }

    fn rm_watch(&self, instance: usize, wd: i32) {
        let theirs = host::checked(host::inotify_rm_watch(self.theirs[instance], wd)).map(|_| ());
        let ours = self.ours[instance].as_ref().unwrap().rm_watch(wd);
        assert_eq!(ours.map_err(Errno::raw_os_error), theirs);
    }

    /// One `read` of both, compared byte by byte, the cookies by which belong together.
    fn read(&mut self, instance: usize, size: usize) -> bool {
        let (mut theirs, mut ours) = (vec![0xff; size], vec![0xff; size]);
        // SAFETY: a buffer of this size.
        let got = unsafe { host::read(self.theirs[instance], theirs.as_mut_ptr(), size) };
        let got = host::checked(got as i32);
        let inotify = self.ours[instance].as_ref().unwrap();
        let own = inotify.read(&mut ours, true).map(|n| n as i32);
        assert_eq!(own.map_err(Errno::raw_os_error), got, "of {size} bytes");
        let Ok(got) = got else { return false };
        let mut at = 0;
        while at < got as usize {
            let word = |buffer: &[u8], n: usize| {
                u32::from_ne_bytes(buffer[at + 4 * n..at + 4 * n + 4].try_into().unwrap())
            };
            let (cookie, own) = (word(&theirs, 2), word(&ours, 2));
            assert_eq!(*self.cookies.entry(cookie).or_insert(own), own);
            theirs[at + 8..at + 12].copy_from_slice(&own.to_ne_bytes());
            self.seen = (self.seen.0 | word(&theirs, 1), self.seen.1 + 1);
            at += 16 + word(&theirs, 3) as usize;
        }
        assert_eq!(ours, theirs);
        true
    }

    fn check_readable_bytes(&self, instance: usize) {
        const FIONREAD: u64 = 0x541b;
        let mut bytes = 0i32;
        // SAFETY: room for the number.
        assert_eq!(unsafe { host::ioctl(self.theirs[instance], FIONREAD, &raw mut bytes) }, 0);
        assert_eq!(self.ours[instance].as_ref().unwrap().readable_bytes(), bytes as usize);
    }

    fn reopen(&mut self, instance: usize) {
        self.ours[instance] = None;
        host::close(self.theirs[instance]);
        self.ours[instance] = Some(Inotify::new(&self.limits, 0).unwrap());
        self.theirs[instance] = host::checked(host::inotify_init1(IN_NONBLOCK)).unwrap();
    }

    fn step(&mut self, random: &mut Random) {
        let n = random.below(5);
        let instance = random.below(INSTANCES);
        match random.below(100) {
            0..25 => match self.names[n] {
                Some(_) => self.touch(n, random),
                None => self.create(n),
            },
            25..33 if self.names[n].is_some() => self.remove(n),
            33..37 if n < FILES && self.names[n].is_some() => self.remove_open(n),
            37..47 if n < FILES && self.names[n].is_some() => {
                let to = (n + 1 + random.below(FILES - 1)) % FILES;
                self.rename(n, to);
            }
            47..50 => {
                drop(File::open(&self.path).unwrap());
                Self::itself(&self.root, IN_OPEN, true);
                Self::itself(&self.root, IN_CLOSE_NOWRITE, true);
            }
            50..68 => {
                let (one, several) = (1 << random.below(32), random.below(0x1000) as u32);
                let some = random.of(&[IN_ALL_EVENTS, IN_ALL_EVENTS, one, several]);
                let option = random.of(&[
                    0,
                    0,
                    IN_ONESHOT,
                    IN_EXCL_UNLINK,
                    IN_MASK_ADD,
                    IN_MASK_CREATE,
                    IN_ONLYDIR,
                    IN_DONT_FOLLOW,
                    IN_MASK_ADD | IN_MASK_CREATE,
                ]);
                match (random.below(3), &self.names[n]) {
                    (0, _) => self.add_watch(instance, &self.path, &self.root, true, some | option),
                    (_, Some(known)) => {
                        self.add_watch(instance, &self.at(n), known, n == SUB, some | option)
                    }
                    _ => {}
                }
            }
            68..72 => {
                let wd = random.below(40) as i32 - 1;
                self.rm_watch(instance, wd);
            }
            72..97 => {
                let size = random.of(&[0, 15, 16, 20, 31, 32, 47, 48, 64, 100, 272, 4096]);
                self.read(instance, size);
            }
            97 => self.check_readable_bytes(instance),
            98 if random.below(10) == 0 => self.reopen(instance),
            _ => {}
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for fd in self.theirs {
            host::close(fd);
        }
        let _ = fs::remove_dir_all(&self.path);
        for known in self.names.iter().flatten() {
            known.watches.forget();
        }
        self.root.watches.forget();
    }
}

/// Random operations, watches and reads: every byte is the host's.
#[test]
fn random_scripts() {
    quietline_testing::isolated!();
    let steps = quietline_testing::budget("QUIETLINE_INOTIFY_STEPS", 20_000) as usize;
    let mut pair = Pair::new("random");
    let mut random = Random(11);
    for _ in 0..steps {
        pair.step(&mut random);
    }
    for instance in 0..INSTANCES {
        while pair.read(instance, 4096) {}
        pair.check_readable_bytes(instance);
    }
    let (masks, events) = pair.seen;
    assert_eq!(masks, IN_ALL_EVENTS | IN_IGNORED | IN_ISDIR, "every kind of event was seen");
    assert!(events > steps / 4, "{events} events");
}

/// More events than a queue takes, read in part, and more again.
#[test]
fn overflow() {
    quietline_testing::isolated!();
    let mut pair = Pair::new("overflow");
    pair.create(0);
    pair.create(1);
    pair.add_watch(0, &pair.path, &pair.root, true, IN_ATTRIB);
    let mut random = Random(5);
    let touch = |pair: &mut Pair, times: usize| {
        for n in 0..times {
            fs::set_permissions(pair.at(n % 2), fs::Permissions::from_mode(0o600)).unwrap();
            pair.file(n % 2, IN_ATTRIB);
        }
    };
    touch(&mut pair, 16_384 + 3);
    pair.check_readable_bytes(0);
    for _ in 0..20 {
        pair.read(0, 16 * (1 + random.below(6)));
        touch(&mut pair, 4);
    }
    pair.check_readable_bytes(0);
    while pair.read(0, 1000) {}
    assert_eq!(pair.seen.0, IN_ATTRIB | IN_Q_OVERFLOW);
    assert!(pair.seen.1 > 16_384);
    touch(&mut pair, 4);
    assert!(pair.read(0, 1000));
}
