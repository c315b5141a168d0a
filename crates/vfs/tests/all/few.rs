//! A walk through the tree with few objects: short enough for an interpreter (`.ci/miri`), which
//! finds what only the rules of pointers and of the memory model forbid.

use quietline_vfs::abi::{O_CREAT, O_DIRECTORY, O_EXCL, O_RDONLY, O_RDWR};
use quietline_vfs::cred::Cred;
use quietline_vfs::namei::{
    Caller, New, link, link_quickly, make, rename, rename_quickly, rmdir, unlink,
};
use quietline_vfs::ramfs::new_ramfs;
use quietline_vfs::{
    FileHandle, Files, FsStruct, How, Limits, MountFlags, Namespace, OpenHow, OpenResult, Opening,
    Start, Vfs, file,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

/// A process in a file system in memory.
struct Process<'k> {
    vfs: &'k Vfs,
    files: &'k Files,
    fs: FsStruct<'k>,
    _ns: Namespace<'k>,
    cred: Cred,
}

impl<'k> Process<'k> {
    fn new(vfs: &'k Vfs, files: &'k Files) -> Self {
        let sb = new_ramfs(vfs, 1, Limits::new(None, None).unwrap(), 0o755, [0, 0]).unwrap();
        let ns = vfs.new_namespace(vfs.new_mount(sb, MountFlags::empty()).unwrap()).unwrap();
        let fs = FsStruct::new(vfs, ns.root(), ns.root()).unwrap();
        Self { vfs, files, fs, _ns: ns, cred: Cred::new(0, 0) }
    }

    fn caller(&self) -> Caller<'_, 'k> {
        Caller { vfs: self.vfs, files: self.files, start: Start::cwd(&self.fs), cred: &self.cred }
    }

    fn make(&self, path: &str, new: New<'_>) {
        make(&self.caller(), path.as_bytes(), new).unwrap();
    }

    fn open(&self, path: &str, flags: i32) -> Result<FileHandle<'k>, Errno> {
        let mode = if flags & O_CREAT == 0 { 0 } else { 0o644 };
        let opening = Opening::of(OpenHow { flags: flags as u64, mode, resolve: 0 }).unwrap();
        match quietline_vfs::open(&self.caller(), path.as_bytes(), opening)? {
            OpenResult::File(file) => Ok(file),
            OpenResult::Fifo(_) => unreachable!("no test opens a FIFO"),
        }
    }

    /// The number of the inode at a path, by a walk without references and by one with.
    fn ino(&self, path: &str) -> Result<u64, Errno> {
        let start = Start::cwd(&self.fs);
        let path = path.as_bytes();
        let look = |found: &quietline_vfs::Found<'_, '_>| found.inode().ino();
        let seen = self.vfs.look(&start, path, How::FOLLOW, &self.cred, look);
        let held = self.vfs.path_by_reference(&start, path, How::FOLLOW, &self.cred);
        let held = held.map(|path| path.dentry().inode().unwrap().ino());
        assert_eq!(seen, held, "both walks agree");
        seen
    }

    fn names(&self, path: &str) -> BTreeMap<String, u64> {
        let directory = self.open(path, O_RDONLY | O_DIRECTORY).unwrap();
        let (mut buffer, mut names) = ([0; 512], BTreeMap::new());
        loop {
            let n = file::list(&directory, self.vfs, &mut buffer).unwrap();
            if n == 0 {
                return names;
            }
            for entry in file::dirents(&buffer[..n]) {
                names.insert(String::from_utf8(entry.name.to_vec()).unwrap(), entry.ino);
            }
        }
    }

    fn rename(&self, old: &str, new: &str) {
        rename_quickly(&self.caller(), old.as_bytes(), new.as_bytes()).unwrap().unwrap();
    }

    fn unlink(&self, path: &str) -> Result<(), Errno> {
        unlink(&self.caller(), path.as_bytes())
    }
}

#[test]
fn a_small_tree() {
    let (vfs, files) = (Vfs::new().unwrap(), Files::new(100).unwrap());
    let p = Process::new(&vfs, &files);
    for directory in ["a", "b", "a/c"] {
        p.make(directory, New::Directory(0o755));
    }
    p.make("l", New::Symlink(b"b/../a/g"));
    p.make("a/p", New::Node(quietline_vfs::abi::S_IFIFO | 0o600, 0));
    let file = p.open("b/f", O_CREAT | O_EXCL | O_RDWR).unwrap();
    assert_eq!(file::write_on(&file, &vfs, &p.cred, &[b"few ", b"bytes"]), Ok(9));
    let file_again = p.open("b/f", O_CREAT | O_RDWR).unwrap();
    assert_eq!(file_again.opened().inode().map(|inode| inode.size()), Some(9));
    drop(file_again);
    let ino = p.ino("b/f").unwrap();
    assert_eq!(p.ino("l"), Err(Errno::NOENT), "a negative entry is made");
    // A hard link, a rename to a negative entry, and one over a name.
    link_quickly(&p.caller(), b"b/f", b"b/e").unwrap().unwrap();
    let place = vfs.path(&Start::cwd(&p.fs), b"b/e", How::FOLLOW, &p.cred).unwrap();
    link(&p.caller(), &place, b"a/h").unwrap();
    drop(place);
    p.unlink("b/e").unwrap();
    p.rename("b/f", "a/g");
    assert_eq!([p.ino("l"), p.ino("a/h"), p.ino("/b/../a/./g")], [Ok(ino); 3]);
    assert_eq!(p.ino("b/f"), Err(Errno::NOENT));
    let names = p.names("a");
    assert_eq!(names.keys().collect::<Vec<_>>(), [".", "..", "c", "g", "h", "p"]);
    assert_eq!((names["g"], names["h"]), (ino, ino));
    drop(p.open("a/n", O_CREAT | O_EXCL | O_RDWR).unwrap());
    p.rename("a/n", "a/h");
    assert_ne!(p.ino("a/h"), Ok(ino));
    // A directory moves, with the lock of renames.
    let parents = ["a/c", "b/d"].map(|path| {
        let start = Start::cwd(&p.fs);
        vfs.parent(&start, path.as_bytes(), How::NOFOLLOW, &p.cred).unwrap()
    });
    rename(&p.caller(), &parents[0], &parents[1], 0).unwrap();
    drop(parents);
    assert_eq!(p.names("b").keys().collect::<Vec<_>>(), [".", "..", "d"]);
    // The file is open when its last name goes.
    p.unlink("a/g").unwrap();
    let mut bytes = [0; 16];
    let again = file::seek(&file, &vfs, 4, 0);
    assert_eq!((again, file::read_on(&file, &vfs, &mut bytes)), (Ok(4), Ok(5)));
    assert_eq!(&bytes[..5], b"bytes");
    drop(file);
    assert_eq!(rmdir(&p.caller(), b"a"), Err(Errno::NOTEMPTY));
    for name in ["a/h", "a/p", "l"] {
        p.unlink(name).unwrap();
    }
    for directory in [&b"b/d"[..], b"a", b"b"] {
        rmdir(&p.caller(), directory).unwrap();
    }
    vfs.shrink();
    assert_eq!((vfs.dentry_state().nr_dentry, vfs.nr_inodes()), (1, 1), "the root is left");
    assert_eq!(files.nr_files(), 0);
}

/// A file is made, renamed and removed while two threads look it up: without a reference, in memory
/// that is freed after a grace period, and with one.
#[test]
fn a_file_that_ends_beside_its_readers() {
    let rounds = quietline_testing::budget("QUIETLINE_FEW_ROUNDS", 1000);
    let (vfs, files) = (Vfs::new().unwrap(), Files::new(100).unwrap());
    let p = Process::new(&vfs, &files);
    p.make("d", New::Directory(0o755));
    let (over, found) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2]);
    thread::scope(|s| {
        for (n, found) in found.iter().enumerate() {
            let (p, over) = (&p, &over);
            s.spawn(move || {
                let start = Start::cwd(&p.fs);
                while !over.load(Relaxed) {
                    for path in [&b"d/f"[..], b"d/g"] {
                        let size = if n == 0 {
                            let look = |found: &quietline_vfs::Found<'_, '_>| found.inode().size();
                            p.vfs.look(&start, path, How::FOLLOW, &p.cred, look)
                        } else {
                            let held = p.vfs.path_by_reference(&start, path, How::FOLLOW, &p.cred);
                            held.map(|path| path.dentry().inode().map_or(0, |inode| inode.size()))
                        };
                        match size {
                            Ok(size) => {
                                assert!(size == 0 || size == 3);
                                found.fetch_add(1, Relaxed);
                            }
                            Err(errno) => assert_eq!(errno, Errno::NOENT),
                        }
                    }
                }
            });
        }
        let enough = || found.iter().all(|n| n.load(Relaxed) > 0);
        let mut round = 0;
        while round < rounds || !enough() {
            round += 1;
            let file = p.open("d/f", O_CREAT | O_EXCL | O_RDWR).unwrap();
            assert_eq!(file::write_on(&file, &vfs, &p.cred, &[b"few"]), Ok(3));
            drop(file);
            thread::yield_now();
            p.rename("d/f", "d/g");
            thread::yield_now();
            p.unlink("d/g").unwrap();
        }
        over.store(true, Relaxed);
    });
    rmdir(&p.caller(), b"d").unwrap();
    vfs.shrink();
    assert_eq!((vfs.dentry_state().nr_dentry, vfs.nr_inodes()), (1, 1), "the root is left");
}
