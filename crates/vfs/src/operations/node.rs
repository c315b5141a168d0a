//! The inodes and superblocks of embedders' file systems, as the kernel sees them.

use super::{Caller, Entry, FileOps, FileSystem, InodeOps, RESTART, Readiness, foreign};
use crate::abi::{
    PATH_MAX, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, Timespec,
};
use crate::dcache::name::{NAME_MAX, Name};
use crate::dcache::path::PathBuffer;
use crate::dentry::DentryFlags;
use crate::file::{FileMode, Files};
use crate::inode::{
    Attributes, Changes, Content, Inode, InodeFlags, InodeGuard, InodeRef, NewInode, Node,
    NodeEntry, NodeLink, Requester,
};
use crate::namei;
use crate::pipe::Fifo;
use crate::poll::{Events, PollTable};
use crate::raw::dcache::refs::DentryRef;
use crate::raw::handle::FileHandle;
use crate::raw::walk_path::Path;
use crate::super_block::{SuperOperations, SuperRef};
use crate::vfs::Vfs;
use core::fmt;
use core::time::Duration;
use quietline_platform::atomic::{AtomicU32, AtomicU64, Ordering};
use quietline_platform::{clock, fault, heap};
use quietline_sync::SpinLock;
use quietline_sync::rcu::RcuBox;
use rustix::io::Errno;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A reference to an embedder's object. Its end contains a panic of the object's `Drop`.
struct ForeignRef<T: ?Sized>(Option<Arc<T>>);

impl<T: ?Sized> ForeignRef<T> {
    fn new(object: Arc<T>) -> Self {
        Self(Some(object))
    }

    fn get(&self) -> &Arc<T> {
        self.0.as_ref().expect("taken at the end alone")
    }
}

impl<T: ?Sized> Drop for ForeignRef<T> {
    fn drop(&mut self) {
        let object = self.0.take();
        // It has been reported; the thread that runs this has nothing to do with it.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(object))) {
            // Dropping a payload may panic again.
            core::mem::forget(payload);
        }
    }
}

/// What an open file of an inode has of its own.
struct OpenFile {
    /// Its object; `None`: the inode's.
    ops: Option<ForeignRef<dyn FileOps>>,
    /// Its readiness. It stays until the file has left the queues of all pollers.
    readiness: Option<Arc<Readiness>>,
}

/// The open files of an inode that have something of their own, by the numbers of the files. Each
/// is dropped after a grace period: a close may happen where no foreign code may run.
type OpenFiles = HashMap<u64, RcuBox<'static, OpenFile>>;

/// The node of an embedder's inode.
pub struct ForeignNode {
    ops: ForeignRef<dyn InodeOps>,
    valid: Option<Duration>,
    /// The end of the validity time, in nanoseconds of the monotonic clock. Set under the inode's
    /// lock.
    expires: AtomicU64,
    /// The number of the last question for attributes.
    asked: AtomicU64,
    /// The number of the question whose answer the attributes are; 0: those of the lookup. Changed
    /// under the inode's lock.
    told: AtomicU64,
    /// Of a directory: for the names with each remainder of the hash, a number that is incremented,
    /// under the inode's lock, when one of them has gone or stands for something else.
    names: [AtomicU32; NAME_SLOTS],
    open: SpinLock<OpenFiles>,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The end of a validity time. It begins before the method that answers: what the answer says may
/// be as old as that.
fn expiry(since: Duration, valid: Option<Duration>) -> u64 {
    valid.map_or(u64::MAX, |valid| nanos(since.saturating_add(valid)))
}

/// Checks attributes that a method has returned.
///
/// # Errors
/// `EIO`.
pub(super) fn check(attributes: &Attributes) -> Result<(), Errno> {
    let kind = attributes.mode & S_IFMT;
    let known =
        matches!(kind, S_IFREG | S_IFDIR | S_IFLNK | S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK);
    let Attributes { atime, mtime, ctime, btime, .. } = *attributes;
    let is_time = |time: Timespec| (0..1_000_000_000).contains(&time.tv_nsec);
    let right = known
        && attributes.mode & !(S_IFMT | 0o7777) == 0
        && i64::try_from(attributes.size).is_ok()
        && [atime, mtime, ctime, btime].into_iter().all(is_time);
    if right { Ok(()) } else { Err(Errno::IO) }
}

/// The attributes that can change.
fn changes(of: &Attributes) -> Changes {
    Changes {
        mode: Some(of.mode),
        uid: Some(of.uid),
        gid: Some(of.gid),
        nlink: Some(of.nlink),
        size: Some(of.size),
        blocks: Some(of.blocks),
        atime: Some(of.atime),
        mtime: Some(of.mtime),
        ctime: Some(of.ctime),
    }
}

/// Returns the parts of the kernel's inode for an entry that was asked for at a time.
///
/// # Errors
/// `EIO`, `ENOMEM`.
fn parts(entry: Entry, since: Duration) -> Result<(NewInode, Content), Errno> {
    let Entry { inode, attributes: of, valid } = entry;
    check(&of)?;
    let new = NewInode {
        mode: of.mode,
        uid: of.uid,
        gid: of.gid,
        rdev: of.rdev,
        nlink: of.nlink,
        time: of.btime,
    };
    let content = match of.mode & S_IFMT {
        S_IFIFO => Content::Fifo(Fifo::new()),
        S_IFSOCK => Content::Socket,
        S_IFBLK => Content::Device,
        _ => {
            let node = ForeignNode {
                ops: ForeignRef::new(inode),
                valid,
                expires: AtomicU64::new(expiry(since, valid)),
                asked: AtomicU64::new(0),
                told: AtomicU64::new(0),
                names: [const { AtomicU32::new(0) }; NAME_SLOTS],
                open: SpinLock::new(OpenFiles::new()),
            };
            Content::Node(heap::try_box(node).map_err(|_| Errno::NOMEM)?)
        }
    };
    Ok((new, content))
}

/// The superblock's part of an embedder's file system.
struct ForeignSuper(ForeignRef<dyn FileSystem>);

impl SuperOperations for ForeignSuper {
    fn foreign(&self) -> Option<&dyn FileSystem> {
        Some(&**self.0.get())
    }

    fn keeps_owners(&self) -> bool {
        true
    }
}

impl fmt::Debug for ForeignSuper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ForeignSuper")
    }
}

/// Creates the superblock of an embedder's file system, which `make` returns. Its type is `name`,
/// or what the file system says.
///
/// # Errors
/// Those of `make` and the file system's; `ENOTDIR` if its root is no directory; `EIO`, `ENOMEM`;
/// [`RESTART`].
pub fn new_super<'k>(
    caller: &namei::Caller<'_, 'k>,
    dev: u64,
    name: Option<&'static str>,
    make: impl FnOnce(&Caller<'_>) -> Result<Arc<dyn FileSystem>, Errno>,
) -> Result<SuperRef<'k>, Errno> {
    let requester = caller.requester();
    let fs = ForeignRef::new(foreign(make(&requester.caller()?))?);
    let since = clock::monotonic();
    let root = foreign(fs.get().clone().root(&requester.caller()?))?;
    let attributes = root.attributes;
    if attributes.mode & S_IFMT != S_IFDIR {
        return Err(Errno::NOTDIR);
    }
    let (new, content) = parts(root, since)?;
    let s_type = name.unwrap_or_else(|| fs.get().name());
    let info = heap::try_box(ForeignSuper(fs)).map_err(|_| Errno::NOMEM)?;
    let sb = caller.vfs.new_super(s_type, dev, info, new, content)?;
    let root = sb.root();
    if let Some(inode) = root.inode() {
        inode.init(&changes(&attributes));
        mark_timed(&root, inode);
    }
    Ok(sb)
}

/// Sets [`DentryFlags::TIMED`] on a new dentry whose inode holds for a limited time.
fn mark_timed(dentry: &crate::dentry::Dentry, inode: &Inode) {
    if inode.node().and_then(Node::foreign).is_some_and(|node| node.valid.is_some()) {
        dentry.set_flags(DentryFlags::TIMED, DentryFlags::empty());
    }
}

/// Counts of changed names for each directory. More of them mean fewer questions that are asked
/// twice.
const NAME_SLOTS: usize = 8;

/// How often a name is looked up that may have changed meanwhile.
const LOOKUPS: u32 = 8;

/// When a directory was asked about a name: its answer may be as old as that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    since: Duration,
    names: u32,
}

impl ForeignNode {
    /// The object of the inode.
    pub(super) fn ops(&self) -> &dyn InodeOps {
        &**self.ops.get()
    }

    /// The number of changes of names like this one.
    fn changes_of(&self, name: &Name<'_>) -> &AtomicU32 {
        &self.names[name.hash() as usize % NAME_SLOTS]
    }

    /// Begins a question about a name of the directory.
    pub(super) fn begin_question(&self, name: &Name<'_>) -> Asked {
        // ORDERING: pairs with the release in `name_changed`: a method that is called after this
        // answers as after that change.
        let names = self.changes_of(name).load(Ordering::Acquire);
        Asked { since: clock::monotonic(), names }
    }

    /// Notes that a name of the directory, which the caller has locked, has gone or stands for
    /// something else. Answers to earlier questions do not hold.
    pub(super) fn name_changed(&self, _locked: &InodeGuard<'_>, name: &Name<'_>) {
        // ORDERING: pairs with the acquire in `begin_question`.
        self.changes_of(name).fetch_add(1, Ordering::Release);
    }

    /// Puts the answer to a question about a name into the dentry cache. Returns the dentry, and
    /// whether it is new: another thread may have been quicker.
    ///
    /// # Errors
    /// `EIO`; `ENOENT` if the directory has been removed; `ENOMEM`.
    pub(super) fn enter<'k>(
        &self,
        dir: &DentryRef<'k>,
        name: &Name<'_>,
        entry: Entry,
        asked: Asked,
    ) -> Result<(DentryRef<'k>, bool), Errno> {
        let attributes = entry.attributes;
        let (new, content) = parts(entry, asked.since)?;
        let inode = match attributes.ino {
            0 => dir.new_inode(new, content)?,
            ino => dir.new_inode_as(ino, new, content)?,
        };
        inode.init(&changes(&attributes));
        self.enter_inode(dir, name, inode, asked)
    }

    /// [`enter`](Self::enter) of an inode that there is.
    ///
    /// # Errors
    /// `ENOENT`, `ENOMEM`.
    pub(super) fn enter_inode<'k>(
        &self,
        dir: &DentryRef<'k>,
        name: &Name<'_>,
        inode: InodeRef<'k>,
        asked: Asked,
    ) -> Result<(DentryRef<'k>, bool), Errno> {
        let mut child = dir.alloc(name)?;
        mark_timed(child.dentry(), &inode);
        child.instantiate(inode);
        let mut guard = dir.inode().ok_or(Errno::NOENT)?.lock();
        if let Some(there) = dir.lookup(name) {
            drop(guard);
            drop(child);
            return Ok((there, false));
        }
        // Relaxed: under the lock.
        if self.changes_of(name).load(Ordering::Relaxed) != asked.names {
            // The name may have gone since. The next walk asks again.
            let Some(node) = child.inode().and_then(Inode::node).and_then(Node::foreign) else {
                drop(guard);
                return Ok((child.into_unhashed(), true));
            };
            // ORDERING: as in `getattr`.
            node.expires.store(0, Ordering::Release);
            child.dentry().set_flags(DentryFlags::TIMED, DentryFlags::empty());
        }
        let child = child.add(&mut guard);
        drop(guard);
        child.map(|child| (child, true))
    }

    /// Takes a name out of the dentry cache that a method has taken away. Returns its dentry, if
    /// there was one.
    pub(super) fn forget<'k>(&self, dir: &DentryRef<'k>, name: &Name<'_>) -> Option<DentryRef<'k>> {
        self.name_changed(&dir.inode()?.lock(), name);
        let child = dir.lookup(name)?;
        child.invalidate();
        Some(child)
    }

    /// Calls `f` with the object of an open file and with its readiness.
    pub(super) fn with_file<R>(
        &self,
        file: u64,
        f: impl FnOnce(&dyn FileOps, Option<&Readiness>) -> R,
    ) -> R {
        let found = self.open.lock().get(&file).map(|own| {
            let ops = own.ops.as_ref().map(|ops| ops.get().clone());
            (ops, own.readiness.clone())
        });
        let (own, readiness) = found.unwrap_or_default();
        match own {
            Some(own) => f(&*own, readiness.as_deref()),
            None => {
                let ops: &dyn FileOps = &**self.ops.get();
                f(ops, readiness.as_deref())
            }
        }
    }

    /// Changes attributes in memory after a method has changed the file. Answers of `getattr` to
    /// earlier questions are dropped.
    pub(super) fn changed(
        &self,
        inode: &Inode,
        change: impl FnOnce(&mut InodeGuard<'_>) -> Changes,
    ) {
        let mut locked = inode.lock();
        // Relaxed, both: as in `getattr`.
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        self.told.store(number, Ordering::Relaxed);
        let changes = change(&mut locked);
        locked.change(&changes);
    }

    fn readiness(&self, file: u64) -> Option<Arc<Readiness>> {
        self.open.lock().get(&file)?.readiness.clone()
    }

    /// Asks for the attributes, and begins the validity time anew. An answer that comes after that
    /// to a later question is dropped.
    fn getattr(&self, inode: &Inode, requester: &Requester<'_, '_>) -> Result<(), Errno> {
        let caller = requester.caller()?;
        // Relaxed: a number, different for each question.
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let since = clock::monotonic();
        let told = foreign(self.ops.get().getattr(&caller))?;
        if let Some(told) = &told {
            check(told)?;
            if told.mode & S_IFMT != inode.mode() & S_IFMT {
                return Err(Errno::IO);
            }
        }
        let mut locked = inode.lock();
        // Relaxed, here and below: under the inode's lock.
        if number <= self.told.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.told.store(number, Ordering::Relaxed);
        if let Some(told) = told {
            locked.change(&changes(&told));
        }
        // ORDERING: pairs with the acquire in `is_current`: a thread that sees the new time sees
        // the attributes for which it holds.
        self.expires.store(expiry(since, self.valid), Ordering::Release);
        Ok(())
    }
}

impl Node for ForeignNode {
    fn lookup<'k>(
        &self,
        dir: &DentryRef<'k>,
        name: &Name<'_>,
        requester: &Requester<'_, 'k>,
    ) -> Result<Option<DentryRef<'k>>, Errno> {
        let caller = requester.caller()?;
        if dir.inode().is_none_or(|dir| dir.flags().contains(InodeFlags::DEAD)) {
            return Ok(None);
        }
        for left in (0..LOOKUPS).rev() {
            let asked = self.begin_question(name);
            let entry = match foreign(self.ops().lookup(&caller, name.bytes())) {
                Err(Errno::NOENT) => return Ok(None),
                entry => entry?,
            };
            // Relaxed: a guess. `enter` looks again.
            let is_old = self.changes_of(name).load(Ordering::Relaxed) != asked.names;
            if !is_old || left == 0 {
                return self.enter(dir, name, entry, asked).map(|(child, _)| Some(child));
            }
        }
        Ok(None)
    }

    fn is_current(&self) -> bool {
        // ORDERING: pairs with the release in `getattr`.
        nanos(clock::monotonic()) < self.expires.load(Ordering::Acquire)
    }

    fn revalidate(
        &self,
        child: &DentryRef<'_>,
        requester: Option<&Requester<'_, '_>>,
    ) -> Result<bool, Errno> {
        let Some(inode) = child.inode() else { return Ok(false) };
        let Some(node) = inode.node().and_then(Node::foreign) else { return Ok(true) };
        let Some(requester) = requester.filter(|_| !node.is_current()) else { return Ok(true) };
        let caller = requester.caller()?;
        let mut name = [0; NAME_MAX];
        let len = child.seen(&child.vfs().read()).name(&mut name);
        let ops = node.ops.get();
        Ok(foreign(self.ops.get().revalidate(&caller, &name[..len], &**ops))?
            && node.getattr(inode, requester).map(|()| true)?)
    }

    fn refresh(&self, inode: &Inode, requester: &Requester<'_, '_>) -> Result<(), Errno> {
        if self.is_current() { Ok(()) } else { self.getattr(inode, requester) }
    }

    fn foreign(&self) -> Option<&ForeignNode> {
        Some(self)
    }

    fn entries(
        &self,
        _dir: &DentryRef<'_>,
        _from: u64,
        _each: &mut dyn FnMut(NodeEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        Err(RESTART)
    }

    fn link<'k>(
        &self,
        _link: &Path<'k>,
        requester: &Requester<'_, 'k>,
    ) -> Result<NodeLink<'k>, Errno> {
        let body = foreign(self.ops.get().readlink(&requester.caller()?))?;
        match body.len() {
            0 => Err(Errno::NOENT),
            PATH_MAX.. => Err(Errno::NAMETOOLONG),
            _ if body.contains(&0) => Err(Errno::IO),
            _ => Ok(NodeLink::Body(body)),
        }
    }

    fn target<'k>(
        &self,
        link: &Path<'k>,
        requester: &Requester<'_, 'k>,
        path: &mut PathBuffer<'_>,
    ) -> Result<(), Errno> {
        match self.link(link, requester)? {
            NodeLink::Body(body) => path.prepend(&body),
            NodeLink::Jump(_) => Err(Errno::INVAL),
        }
    }

    fn open<'k>(
        &self,
        _place: &Path<'k>,
        _files: &'k Files,
        _flags: i32,
        _mode: FileMode,
        requester: &Requester<'_, 'k>,
    ) -> Result<Option<FileHandle<'k>>, Errno> {
        // Before anything has been done.
        requester.caller().map(|_| None)
    }

    fn opened(
        &self,
        vfs: &Vfs,
        file: u64,
        flags: i32,
        requester: &Requester<'_, '_>,
    ) -> Result<(), Errno> {
        let ops = foreign(self.ops.get().open(&requester.caller()?, flags))?.map(ForeignRef::new);
        let readiness = match &ops {
            Some(ops) => ops.get().readiness(),
            None => self.ops.get().readiness(),
        };
        if ops.is_none() && readiness.is_none() {
            return Ok(());
        }
        let own = OpenFile { ops, readiness };
        let own = RcuBox::new(vfs.domain, own).map_err(|_| Errno::NOMEM)?;
        let mut open = self.open.lock();
        let room = fault::check().is_ok() && open.try_reserve(1).is_ok();
        if room {
            open.insert(file, own);
        }
        if room { Ok(()) } else { Err(Errno::NOMEM) }
    }

    fn polls(&self, file: u64) -> bool {
        self.open.lock().get(&file).is_some_and(|own| own.readiness.is_some())
    }

    fn poll(&self, _vfs: &Vfs, file: u64, table: &mut PollTable<'_>) -> Events {
        self.readiness(file).map_or(Events::ALWAYS, |readiness| readiness.poll(table))
    }

    fn read(&self, _vfs: &Vfs, _file: u64, _at: u64, _to: &mut [u8]) -> Result<usize, Errno> {
        Err(RESTART)
    }

    fn write(&self, _vfs: &Vfs, _at: u64, _bytes: &[u8]) -> Result<usize, Errno> {
        Err(RESTART)
    }

    fn closed(&self, file: u64) {
        let ended = self.open.lock().remove(&file);
        if let Some(ended) = ended {
            ended.retire();
        }
    }
}

impl fmt::Debug for ForeignNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForeignNode").field("valid", &self.valid).finish_non_exhaustive()
    }
}
