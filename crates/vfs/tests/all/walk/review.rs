//! Names that are removed beside those who mount on them.

use quietline_vfs::cred::Cred;
use quietline_vfs::namei::{Caller, New, make, rmdir};
use quietline_vfs::ramfs::new_ramfs;
use quietline_vfs::{Files, FsStruct, Limits, MountFlags, Namespace, Start, UmountFlags, Vfs};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;

const ROUNDS: u32 = if cfg!(debug_assertions) { 3_000 } else { 10_000 };

/// A process in a filesystem in memory.
struct Process<'k> {
    vfs: &'k Vfs,
    files: &'k Files,
    fs: FsStruct<'k>,
    ns: Namespace<'k>,
    cred: Cred,
}

impl<'k> Process<'k> {
    fn new(vfs: &'k Vfs, files: &'k Files) -> Self {
        let sb = new_ramfs(vfs, 1, Limits::new(None, None).unwrap(), 0o755, [0, 0]).unwrap();
        let ns = vfs.new_namespace(vfs.new_mount(sb, MountFlags::empty()).unwrap()).unwrap();
        Self {
            vfs,
            files,
            fs: FsStruct::new(vfs, ns.root(), ns.root()).unwrap(),
            ns,
            cred: Cred::new(0, 0),
        }
    }

    /// A child with a namespace of its own.
    fn unshare(&self) -> Self {
        let fs = self.fs.duplicate().unwrap();
        let ns = self.ns.duplicate(&fs).unwrap();
        Self { vfs: self.vfs, files: self.files, fs, ns, cred: Cred::new(0, 0) }
    }

    fn caller(&self) -> Caller<'_, 'k> {
        Caller { vfs: self.vfs, files: self.files, start: Start::cwd(&self.fs), cred: &self.cred }
    }

    fn mkdir(&self, path: &str) -> Result<(), Errno> {
        make(&self.caller(), path.as_bytes(), New::Directory(0o755))
    }

    fn rmdir(&self, path: &str) -> Result<(), Errno> {
        rmdir(&self.caller(), path.as_bytes())
    }

    fn mount(&self, path: &str) -> Result<(), Errno> {
        let at = self.caller().place(path.as_bytes(), quietline_vfs::How::FOLLOW)?;
        self.ns.attach(crate::walk::support::mount(self.vfs, 7), at)
    }

    fn umount(&self, path: &str) -> Result<(), Errno> {
        let at = self.caller().place(path.as_bytes(), quietline_vfs::How::FOLLOW)?;
        self.ns.umount(at, UmountFlags::DETACH, &self.fs)
    }
}

#[test]
fn what_another_namespace_has_mounted_on_goes_with_its_name() {
    let (vfs, files) = (crate::walk::support::vfs(), Files::new(100).unwrap());
    let one = Process::new(&vfs, &files);
    one.mkdir("d").unwrap();
    let other = one.unshare();
    other.mount("d").unwrap();
    assert_eq!(other.rmdir("d"), Err(Errno::BUSY));
    assert_eq!(one.rmdir("d"), Ok(()));
    assert_eq!(other.ns.mounts().unwrap().len(), 1, "nobody could ever unmount it");
    assert_eq!((vfs.dentry_state().nr_dentry, vfs.nr_inodes()), (1, 1), "the root alone is left");
}

/// Either the name is removed, or something is mounted on it: never both.
#[test]
fn a_directory_is_removed_or_mounted_on() {
    let (vfs, files) = (crate::walk::support::vfs(), Files::new(100).unwrap());
    let one = Process::new(&vfs, &files);
    let (over, mounted, removed) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Relaxed) {
                match one.mount("d") {
                    Ok(()) => {
                        mounted.fetch_add(1, Relaxed);
                        assert_eq!(one.ns.mounts().unwrap().len(), 2, "what is mounted stays");
                        one.umount("d").unwrap();
                    }
                    Err(errno) => assert_eq!(errno, Errno::NOENT),
                }
            }
        });
        s.spawn(|| {
            struct Over<'a>(&'a AtomicBool);
            impl Drop for Over<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Relaxed);
                }
            }
            let _over = Over(&over);
            while removed.load(Relaxed) < ROUNDS || mounted.load(Relaxed) < 100 {
                assert!(matches!(one.mkdir("d"), Ok(()) | Err(Errno::EXIST)));
                match one.rmdir("d") {
                    Ok(()) => {
                        removed.fetch_add(1, Relaxed);
                    }
                    Err(errno) => assert_eq!(errno, Errno::BUSY),
                }
            }
        });
    });
    let _ = one.rmdir("d");
    assert_eq!(one.ns.mounts().unwrap().len(), 1);
    assert_eq!((vfs.dentry_state().nr_dentry, vfs.nr_inodes()), (1, 1));
}
