//! A kernel with a tree, for tests of paths and mounts.
#![allow(dead_code)]

use core::pin::Pin;
use quietline_vfs::abi::{S_IFDIR, S_IFLNK, S_IFREG, Timespec};
use quietline_vfs::cred::Cred;
use quietline_vfs::{
    Content, DentryRef, Dirs, FsStruct, How, MountFlags, MountRef, Namespace, NewInode, Path,
    Plain, Start, SuperRef, Vfs,
};
use rustix::io::Errno;

pub(crate) fn vfs() -> Pin<Box<Vfs>> {
    Vfs::new().unwrap()
}

fn inode(mode: u32) -> NewInode {
    NewInode { mode, uid: 0, gid: 0, rdev: 0, nlink: 1, time: Timespec { tv_sec: 1, tv_nsec: 2 } }
}

pub(crate) fn filesystem(vfs: &Vfs, dev: u64) -> SuperRef<'_> {
    vfs.new_super("testfs", dev, Box::new(Plain), inode(S_IFDIR | 0o755), Content::Directory)
        .unwrap()
}

pub(crate) fn mount(vfs: &Vfs, dev: u64) -> MountRef<'_> {
    vfs.new_mount(filesystem(vfs, dev), MountFlags::empty()).unwrap()
}

pub(crate) fn root() -> Cred {
    Cred::new(0, 0)
}

/// A process: where it is, and in which tree.
pub(crate) struct World<'k> {
    pub(crate) vfs: &'k Vfs,
    pub(crate) fs: FsStruct<'k>,
    pub(crate) ns: Namespace<'k>,
    pub(crate) cred: Cred,
}

impl<'k> World<'k> {
    pub(crate) fn new(vfs: &'k Vfs) -> Self {
        let ns = vfs.new_namespace(mount(vfs, 1)).unwrap();
        let fs = FsStruct::new(vfs, ns.root(), ns.root()).unwrap();
        Self { vfs, fs, ns, cred: root() }
    }

    /// With directories (`a/`), files, and links (`a -> b`), in order.
    pub(crate) fn with(vfs: &'k Vfs, tree: &[&str]) -> Self {
        let world = Self::new(vfs);
        tree.iter().for_each(|what| world.make(what));
        world
    }

    pub(crate) fn start(&self) -> Start<'_, 'k> {
        Start::cwd(&self.fs)
    }

    pub(crate) fn make(&self, what: &str) {
        let (name, mode, content) = if let Some((name, body)) = what.split_once(" -> ") {
            (name, S_IFLNK | 0o777, Content::Symlink(body.as_bytes().into()))
        } else if let Some(name) = what.strip_suffix('/') {
            (name, S_IFDIR | 0o755, Content::Directory)
        } else {
            (what, S_IFREG | 0o644, Content::Regular)
        };
        let (parent, last) =
            self.vfs.parent(&self.start(), name.as_bytes(), How::NOFOLLOW, &self.cred).unwrap();
        add(parent.dentry(), last.bytes(), inode(mode), content).unwrap();
    }

    pub(crate) fn make_with(&self, name: &str, mode: u32, uid: u32) {
        let (parent, last) =
            self.vfs.parent(&self.start(), name.as_bytes(), How::NOFOLLOW, &self.cred).unwrap();
        let content = if mode & S_IFDIR == S_IFDIR { Content::Directory } else { Content::Regular };
        add(parent.dentry(), last.bytes(), NewInode { uid, ..inode(mode) }, content).unwrap();
    }

    /// What a path stands for; both ways of walking agree.
    pub(crate) fn try_path(&self, path: &str, how: How) -> Result<Path<'k>, Errno> {
        let seen = self.vfs.look(&self.start(), path.as_bytes(), how, &self.cred, |found| {
            (std::ptr::from_ref(found.dentry()).addr(), found.mount().id())
        });
        let held = self.vfs.path_by_reference(&self.start(), path.as_bytes(), how, &self.cred);
        let place = self.vfs.path(&self.start(), path.as_bytes(), how, &self.cred);
        let of = |path: &Path<'_>| {
            (std::ptr::from_ref::<quietline_vfs::Dentry>(path.dentry()).addr(), path.mount().id())
        };
        assert_eq!(seen, held.as_ref().map(of).map_err(|e| *e), "{path}: by RCU and by reference");
        assert_eq!(seen, place.as_ref().map(of).map_err(|e| *e), "{path}: looked at and taken");
        place
    }

    pub(crate) fn path(&self, path: &str) -> Path<'k> {
        self.try_path(path, How::FOLLOW).unwrap_or_else(|errno| panic!("{path}: {errno}"))
    }

    /// The number of what a path stands for, or why there is none.
    pub(crate) fn ino(&self, path: &str) -> Result<u64, Errno> {
        self.try_path(path, How::FOLLOW).map(|path| path.dentry().inode().unwrap().ino())
    }

    pub(crate) fn ino_how(&self, path: &str, how: How) -> Result<u64, Errno> {
        self.try_path(path, how).map(|path| path.dentry().inode().unwrap().ino())
    }

    pub(crate) fn unlink(&self, path: &str) {
        let (parent, last) =
            self.vfs.parent(&self.start(), path.as_bytes(), How::NOFOLLOW, &self.cred).unwrap();
        unlink(parent.dentry(), last.bytes());
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        let [(old, old_name), (new, new_name)] = [from, to].map(|path| {
            self.vfs.parent(&self.start(), path.as_bytes(), How::NOFOLLOW, &self.cred).unwrap()
        });
        rename(old.dentry(), old_name.bytes(), new.dentry(), new_name.bytes());
    }

    /// As `/proc` shows a place.
    pub(crate) fn shown(&self, place: &Path<'k>) -> (String, quietline_vfs::Reach) {
        let mut buffer = [0; 4096];
        let mut path = quietline_vfs::PathBuffer::new(&mut buffer);
        let reach = self.vfs.d_path(place, &self.fs.root_path(), &mut path).unwrap();
        (String::from_utf8(path.bytes().to_vec()).unwrap(), reach)
    }

    pub(crate) fn getcwd(&self) -> Result<String, Errno> {
        let mut buffer = [0; 4096];
        let mut path = quietline_vfs::PathBuffer::new(&mut buffer);
        self.vfs.getcwd(&self.fs, &mut path)?;
        Ok(String::from_utf8(path.bytes().to_vec()).unwrap())
    }
}

pub(crate) fn add<'k>(
    parent: &DentryRef<'k>,
    name: &[u8],
    inode: NewInode,
    content: Content,
) -> Result<DentryRef<'k>, Errno> {
    let name = parent.vfs().name(name)?;
    let mut new = parent.alloc(&name)?;
    new.instantiate(parent.new_inode(inode, content)?);
    let mut lock = parent.inode().unwrap().lock();
    if parent.lookup(&name).is_some() {
        return Err(Errno::EXIST);
    }
    new.add_pinned(&mut lock)
}

pub(crate) fn mkdir<'k>(parent: &DentryRef<'k>, name: &str) -> DentryRef<'k> {
    add(parent, name.as_bytes(), inode(S_IFDIR | 0o755), Content::Directory).unwrap()
}

pub(crate) fn unlink(parent: &DentryRef<'_>, name: &[u8]) {
    let name = parent.vfs().name(name).unwrap();
    let child = parent.lookup(&name).unwrap();
    let mut lock = parent.inode().unwrap().lock();
    let pin = child.unhash(&mut lock);
    drop(lock);
    assert!(pin.is_some(), "nobody else removes it");
}

pub(crate) fn rename(old: &DentryRef<'_>, old_name: &[u8], new: &DentryRef<'_>, new_name: &[u8]) {
    let vfs = old.vfs();
    let child = old.lookup(&vfs.name(old_name).unwrap()).unwrap();
    let name = child.new_name(&vfs.name(new_name).unwrap()).unwrap();
    let replaced = new.lookup(&vfs.name(new_name).unwrap());
    let _renames = old.super_block().lock_renames();
    let pin = if old.same(new) {
        let mut dir = old.inode().unwrap().lock();
        child.rename(&mut Dirs::Same(&mut dir), new, name, replaced.as_ref()).unwrap()
    } else {
        let [first, second] = if std::ptr::from_ref(&**old) < std::ptr::from_ref(&**new) {
            [old, new]
        } else {
            [new, old]
        };
        let mut a = first.inode().unwrap().lock();
        let mut b = second.inode().unwrap().lock();
        let (from, to) = if first.same(old) { (&mut a, &mut b) } else { (&mut b, &mut a) };
        child.rename(&mut Dirs::Two(from, to), new, name, replaced.as_ref()).unwrap()
    };
    drop(pin);
}
