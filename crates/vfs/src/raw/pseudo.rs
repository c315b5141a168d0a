//! Pseudo objects: what sockets, pipes and anonymous descriptors are made of.
//!
//! # The contended way
//!
//! In 2.6.27 a socket's dentry was a child of its filesystem's root and its inode was on two lists: two global locks
//! taken twice each, and the lines of a dozen neighbours and counters, though nobody can ever look a socket up by
//! name.
//!
//! # Our way
//!
//! A pseudo object is one allocation: the dentry, then, for what has one, the inode, and the state. The dentry is its
//! own parent, in no hash and on no list, so no RCU reader can meet it but by way of a descriptor. One that nobody has
//! used by way of a descriptor is freed at once, others after a grace period: [`Mode`](crate::file::Mode) tells which.
//! Making one touches the CPU's sheaf, nothing else.

use crate::cold_result::ColdResult;
use crate::dentry::PseudoDentry;
use crate::file::{Direction, Ended, Io, Ioctl, Sink, Source};
use crate::inode::{PseudoInode, PseudoStates};
use crate::mount::Mount;
use crate::poll::{Events, PollTable};
use crate::raw::handle::FileHandle;
use crate::{FileMode, Files};
use core::any::TypeId;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::time::Duration;
use quietline_platform::AllocError;
use quietline_platform::atomic::{AtomicBool, Ordering};
use quietline_slab::{Hook, LazyCache, Options, RawCache};
use quietline_sync::{WaitQueue, rcu};
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The state of a kind of pseudo object, and what can be done with it (`file_operations`).
///
/// Methods may be called inside a read section: none sleeps, and none waits for a grace period.
pub trait Payload: Send + Sync + Sized + 'static {
    /// The name of its cache in statistics.
    const CACHE: &'static str;
    /// Whether [`closed`](Self::closed) is to be called.
    const CLOSES: bool = false;
    /// Whether it is to be called also for the last file of an object that nobody can know any more, and that is dropped next.
    const CLOSES_ALONE: bool = true;
    /// Whether a file is freed only after [`closed`](Self::closed) was called for it: other threads
    /// find the file by the object until then. Such a file takes some more nanoseconds to close.
    const ENDS_BEFORE_FILE: bool = false;
    /// Whether `lseek` says 0, and not that there is no position.
    const SEEKS: bool = false;
    /// Whether it can be read at all: else also a read of nothing is `EINVAL`.
    const READS: bool = true;
    /// Whether it can be written at all.
    const WRITES: bool = true;
    /// Type and permissions of a new object's [inode](Self::inode).
    const MODE: u32 = 0;

    /// Returns `true` if neither [`closed`](Self::closed) nor dropping the payload would do
    /// anything. Neither is then called.
    #[inline(always)]
    fn is_idle(&mut self) -> bool {
        !(Self::CLOSES && Self::CLOSES_ALONE || core::mem::needs_drop::<Self>())
    }

    /// The inode, if it has its own.
    fn inode(&self) -> Option<&PseudoInode>;

    /// The name by which `/proc/PID/fd` shows it.
    fn name(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Reads what is there: how many bytes; 0 at the end.
    ///
    /// # Errors
    /// `EAGAIN` where a call that may wait would; `EINVAL` for what is not read; its own.
    fn try_read(&self, _io: Io, _to: &mut Sink<'_, '_>) -> Result<usize, Errno> {
        Err(Errno::INVAL)
    }

    /// Writes as much as fits: how many bytes. A caller that may wait calls again as long as `from` has more.
    ///
    /// # Errors
    /// `EAGAIN` when nothing fits, or not as a whole where it must; `EINVAL` for what is not written; its own.
    fn try_write(&self, _io: Io, _from: &mut Source<'_, '_>) -> Result<usize, Errno> {
        Err(Errno::INVAL)
    }

    /// A write of which something came has failed with `errno` after that: the caller is told how much, and not why.
    fn untold(&self, _errno: Errno, _from: &mut Source<'_, '_>) {}

    /// What can be done now. First shows `table` every queue that is woken when that changes, then looks.
    fn poll(&self, _io: Io, _table: &mut PollTable<'_>) -> Events {
        Events::ALWAYS
    }

    /// Where a call waits that may; its key is the direction's [`Events`]. Without one such a call fails with `EAGAIN`.
    fn waiters(&self, _what: Direction) -> Option<&WaitQueue> {
        None
    }

    /// Whether those who wait in [`waiters`](Self::waiters) are woken one at a time. Not where what is too little for one may be
    /// enough for the next, nor where what is left by one may be enough for the next, but `poll` does not say so.
    fn in_turn(&self, _what: Direction) -> bool {
        true
    }

    /// How long a call waits at most (`SO_RCVTIMEO`, `SO_SNDTIMEO`); then it fails with `EAGAIN`.
    fn timeout(&self, _what: Direction) -> Option<Duration> {
        None
    }

    /// Answers a question about the object.
    ///
    /// # Errors
    /// `ENOTTY` for one that it has no answer to; its own.
    fn ioctl(&self, _io: Io, _request: Ioctl) -> Result<i32, Errno> {
        Err(Errno::NOTTY)
    }

    /// One more file of the object is about to be open, besides those that it was made with.
    fn opened(&self, _mode: FileMode) {}

    /// One open file of the object has ended, which was open for `mode`. What others wait for is to be told them here, and
    /// what is dear is to be given back with the last one: the object itself may last until a grace period is over.
    ///
    /// Called without any lock, on whatever thread lets the file go; must not unwind.
    fn closed(&self, _mode: FileMode) {}
}

/// A pseudo object. The dentry comes first: a pointer to it is a pointer to the object. Objects start on lines of their
/// own, because neighbours in a slab are with other CPUs (two threads with a pipe each, in throw-away runs: 1.5 times
/// one thread's rate without, 2.0 with).
#[repr(C, align(64))]
struct Pseudo<P: Payload> {
    dentry: PseudoDentry,
    fs: NonNull<PseudoFs<P>>,
    payload: P,
}

// SAFETY: the pointer to the filesystem is only followed while the kernel that owns it lives; all parts are shared
// by design.
unsafe impl<P: Payload> Send for Pseudo<P> {}
// SAFETY: as above.
unsafe impl<P: Payload> Sync for Pseudo<P> {}

/// What a file knows of the object it is open on, without knowing its type: a [`Payload`]'s methods.
///
/// Each may be called with the dentry of a living object of this kind.
pub struct Kind {
    payload: TypeId,
    /// Ends a file's part in an object and gives back the file's reference to it.
    ///
    /// # Safety
    /// The reference is the caller's; the object's filesystem lives.
    pub(super) end_file: unsafe fn(NonNull<PseudoDentry>, Ended),
    name: unsafe fn(NonNull<PseudoDentry>, &mut fmt::Formatter<'_>) -> fmt::Result,
    read: unsafe fn(NonNull<PseudoDentry>, Io, &mut Sink<'_, '_>) -> Outcome,
    write: unsafe fn(NonNull<PseudoDentry>, Io, &mut Source<'_, '_>) -> Outcome,
    pub(super) untold: unsafe fn(NonNull<PseudoDentry>, Errno, &mut Source<'_, '_>),
    pub(super) poll: unsafe fn(NonNull<PseudoDentry>, Io, &mut PollTable<'_>) -> Events,
    pub(super) waiters: unsafe fn(NonNull<PseudoDentry>, Direction) -> Option<NonNull<WaitQueue>>,
    pub(super) in_turn: unsafe fn(NonNull<PseudoDentry>, Direction) -> bool,
    pub(super) timeout: unsafe fn(NonNull<PseudoDentry>, Direction) -> Option<Duration>,
    pub(super) ioctl: unsafe fn(NonNull<PseudoDentry>, Io, Ioctl) -> Result<i32, Errno>,
    pub(super) opened: unsafe fn(NonNull<PseudoDentry>, FileMode),
    inode: unsafe fn(NonNull<PseudoDentry>) -> Option<NonNull<PseudoInode>>,
    states: unsafe fn(NonNull<PseudoDentry>) -> NonNull<PseudoStates>,
    pub(super) object_first: bool,
    pub(super) seeks: bool,
    pub(super) reads: bool,
    pub(super) writes: bool,
    pub(super) mode: u32,
}

/// A `Result<usize, Errno>` in a register, where that itself would be returned in memory.
#[derive(Clone, Copy)]
struct Outcome(isize);

impl Outcome {
    #[inline(always)]
    fn of(result: Result<usize, Errno>) -> Self {
        match result {
            Ok(n) => Self(n as isize),
            Err(errno) => Self(-(errno.raw_os_error() as isize)),
        }
    }

    #[inline(always)]
    fn result(self) -> Result<usize, Errno> {
        if self.0 >= 0 {
            Ok(self.0 as usize)
        } else {
            Err(Errno::from_raw_os_error(-self.0 as i32))
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind").finish_non_exhaustive()
    }
}

/// A filesystem of pseudo objects of one kind: their cache and their mount.
///
/// It must stay where it is while objects live: they point to it. Its owner, a kernel, is boxed, and every handle
/// borrows it.
///
/// What the payloads need when they are dropped must outlive it, or stay until it was [flushed](Self::flush).
#[derive(Debug)]
pub struct PseudoFs<P: Payload> {
    cache: LazyCache,
    mount: Mount,
    states: PseudoStates,
    /// Whether an object has been given to wait for a grace period since all were waited for.
    waited: AtomicBool,
    of: PhantomData<fn(P) -> P>,
}

impl<P: Payload> PseudoFs<P> {
    const KIND: &'static Kind = &Kind {
        payload: TypeId::of::<P>(),
        end_file: end_file::<P>,
        name: name::<P>,
        read: read::<P>,
        write: write::<P>,
        untold: untold::<P>,
        poll: poll::<P>,
        waiters: waiters::<P>,
        in_turn: in_turn::<P>,
        timeout: timeout::<P>,
        ioctl: ioctl::<P>,
        opened: opened::<P>,
        inode: inode::<P>,
        states: states::<P>,
        object_first: {
            assert!(!P::ENDS_BEFORE_FILE || P::CLOSES && P::CLOSES_ALONE);
            P::ENDS_BEFORE_FILE
        },
        seeks: P::SEEKS,
        reads: P::READS,
        writes: P::WRITES,
        mode: P::MODE,
    };

    /// A filesystem without objects. Its cache is made with the first one.
    ///
    /// # Errors
    /// [`AllocError`] when there is no memory for the RCU domain.
    pub fn new(s_type: &'static str) -> Result<Self, AllocError> {
        let options = |domain| Options {
            release: Some(Hook::new(end::<P>)),
            rcu: Some(domain),
            ..Options::new(P::CACHE, size_of::<Pseudo<P>>(), align_of::<Pseudo<P>>())
        };
        // SAFETY: the hook is for objects that hold a `Pseudo<P>`, as those do that are given to `free_rcu`; such an object may
        // be dropped on any thread, and the hook does not unwind.
        let cache = unsafe { LazyCache::new(options, rcu::global()?) };
        Ok(Self {
            cache,
            mount: Mount::internal(s_type),
            states: PseudoStates::new(),
            waited: AtomicBool::new(false),
            of: PhantomData,
        })
    }

    /// Waits until all objects that have ended are dropped. Not inside a read section, and not while files of it are closed.
    pub fn flush(&self) {
        // Relaxed, so below: set by those who closed files, which is over.
        if self.waited.load(Ordering::Relaxed) {
            self.waited.store(false, Ordering::Relaxed);
            self.cache.flush_rcu();
        }
    }

    /// Whether [`flush`](Self::flush) would wait, and for what: for who waits for several filesystems at once, by
    /// [`RawCache::flush_rcu_alone`]. Then it has been done.
    pub fn flushed_by_caller(&mut self) -> (bool, Option<&mut RawCache>) {
        let waits = self.waited.load(Ordering::Relaxed);
        self.waited.store(false, Ordering::Relaxed);
        (waits, self.cache.made_mut())
    }

    /// Objects that live; exact when nobody makes or ends one meanwhile.
    ///
    /// Nobody counts them one by one: the cache knows how many it has given out, for all objects that it has are either
    /// in a sheaf or alive. So this costs what [`LazyCache::stats`] costs, some microseconds.
    pub fn live(&self) -> i64 {
        self.cache.made().map_or(0, |cache| cache.stats().active as i64)
    }

    /// The cache of its objects.
    pub fn cache(&self) -> &LazyCache {
        &self.cache
    }

    /// Gives cached objects back to the system.
    pub fn shrink(&self) {
        self.cache.shrink();
    }

    /// An object with one file on it.
    ///
    /// Writes no shared line: the CPU's sheaves, counters, and the new objects.
    ///
    /// # Errors
    /// `ENOMEM`; `ENFILE` at the limit of open files.
    #[inline(always)]
    pub fn open<'k>(
        &'k self,
        files: &'k Files,
        payload: P,
        flags: i32,
        mode: FileMode,
    ) -> Result<FileHandle<'k>, Errno> {
        self.open_with(files, || payload, flags, mode)
    }

    /// As [`open`](Self::open) with a payload that `make` returns, which is built in the object's
    /// memory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[inline(always)]
    pub fn open_with<'k>(
        &'k self,
        files: &'k Files,
        make: impl FnOnce() -> P,
        flags: i32,
        mode: FileMode,
    ) -> Result<FileHandle<'k>, Errno> {
        let Some(memory) = self.cache.try_alloc() else {
            return self.open_slow(files, make(), flags, mode).into_result();
        };
        let dentry = self.init(memory, make, 1);
        // SAFETY: the new dentry's reference is ours to give; it lives in this filesystem, which lives for 'k.
        unsafe { FileHandle::open(files, &self.mount, dentry, Self::KIND, flags, mode) }
    }

    /// [`open_with`](Self::open_with) when the CPU's sheaf has no object.
    #[cold]
    #[inline(never)]
    fn open_slow<'k>(
        &'k self,
        files: &'k Files,
        payload: P,
        flags: i32,
        mode: FileMode,
    ) -> ColdResult<FileHandle<'k>> {
        let Ok(memory) = self.cache.alloc() else { return Err(Errno::NOMEM).into() };
        let dentry = self.init(memory, || payload, 1);
        // SAFETY: as in `open_with`.
        unsafe { FileHandle::open(files, &self.mount, dentry, Self::KIND, flags, mode).into() }
    }

    /// An object with two files on it, as a pipe has.
    ///
    /// # Errors
    /// As [`open`](Self::open); then neither file is open.
    #[inline(always)]
    pub fn open_pair<'k>(
        &'k self,
        files: &'k Files,
        make: impl FnOnce() -> P,
        ends: [(i32, FileMode); 2],
    ) -> Result<[FileHandle<'k>; 2], Errno> {
        let Some(memory) = self.cache.try_alloc() else {
            return self.open_pair_slow(files, make(), ends).into_result();
        };
        let dentry = self.init(memory, make, 2);
        // SAFETY: the new dentry has two references, one for each file; the rest as in `open_with`.
        unsafe { FileHandle::open_pair(files, &self.mount, dentry, Self::KIND, ends) }
    }

    /// [`open_pair`](Self::open_pair) when the CPU's sheaf has no object.
    #[cold]
    #[inline(never)]
    fn open_pair_slow<'k>(
        &'k self,
        files: &'k Files,
        payload: P,
        ends: [(i32, FileMode); 2],
    ) -> ColdResult<[FileHandle<'k>; 2]> {
        let Ok(memory) = self.cache.alloc() else { return Err(Errno::NOMEM).into() };
        let dentry = self.init(memory, || payload, 2);
        // SAFETY: as in `open_pair`.
        unsafe { FileHandle::open_pair(files, &self.mount, dentry, Self::KIND, ends).into() }
    }

    /// Makes an object in fresh memory of the cache.
    #[inline(always)]
    fn init(
        &self,
        memory: NonNull<u8>,
        make: impl FnOnce() -> P,
        references: u32,
    ) -> NonNull<PseudoDentry> {
        let memory = memory.cast::<Pseudo<P>>();
        let at = memory.as_ptr();
        // SAFETY: fresh memory of the object's size and alignment, and ours. Each field is written
        // where it stays: an object that is built elsewhere first is copied, which costs more than
        // to build it.
        let _object = unsafe {
            (&raw mut (*at).dentry).write(PseudoDentry::new(references));
            (&raw mut (*at).fs).write(NonNull::from(self));
            (&raw mut (*at).payload).write(make());
            memory.as_ref()
        };
        quietline_platform::name_words!(*_object => "Pseudo" { fs, payload });
        quietline_platform::name_words!(_object.dentry, "Dentry");
        quietline_platform::name_words!(_object.dentry.d_lockref, "Dentry.d_lockref");
        memory.cast()
    }
}

impl<P: Payload> Drop for PseudoFs<P> {
    fn drop(&mut self) {
        self.flush();
        debug_assert!(self.states.is_empty(), "an object's state ends with the object");
    }
}

/// Drops an object after its grace period.
///
/// # Safety
/// The object is a `Pseudo<P>`, and nobody else uses it.
unsafe fn end<P: Payload>(object: NonNull<u8>) {
    // SAFETY: by contract.
    let end = || unsafe { object.cast::<Pseudo<P>>().drop_in_place() };
    // It has been reported; whoever happens to run this has nothing to do with it.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(end)) {
        // Dropping a payload may panic again.
        core::mem::forget(payload);
    }
}

/// Ends a file's part in an object and gives the file's reference to it back (`dput`). The last one
/// ends the object: at once, unless a reader may have found it by way of a descriptor.
///
/// # Safety
/// The reference is the caller's, on a `Pseudo<P>`, whose filesystem lives.
unsafe fn end_file<P: Payload>(dentry: NonNull<PseudoDentry>, ended: Ended) {
    let mut object = dentry.cast::<Pseudo<P>>();
    // SAFETY: the dentry is the first field of an object of this type, which the caller's reference
    // keeps alive.
    let pseudo = unsafe { object.as_ref() };
    if ended.is_met() {
        pseudo.dentry.meet();
    }
    // A new reference comes only from an old one, and a sole holder has the only one: then there is nobody to
    // agree with, and no need for a locked instruction.
    //
    // ORDERING: `is_sole` loads with acquire, which the last of several holders needs as much as the sole one (it pairs
    // with the release of the puts before, of which the load finds the last): what they did to the object comes before
    // its end.
    //
    // SAFETY: passed on. Calls at the end, which the compiler makes jumps: the usual path saves no
    // register for them.
    unsafe {
        if !pseudo.dentry.d_lockref.is_sole() {
            return put_shared::<P>(object, ended);
        }
        if pseudo.dentry.is_met() {
            return end_met::<P>(object, ended);
        }
        // No other thread can have it any more.
        let pseudo = object.as_mut();
        if !pseudo.payload.is_idle() {
            return end_busy::<P>(object, ended);
        }
        pseudo.fs.as_ref().cache.free(object.cast());
    }
}

/// [`end_file`] of the only file of an object that no reader may look at, but that has something to
/// close or to drop.
///
/// # Safety
/// As [`end_file`].
#[inline(never)]
unsafe fn end_busy<P: Payload>(object: NonNull<Pseudo<P>>, ended: Ended) {
    // SAFETY: alive until its last reference, the caller's, is put: here, when it is dropped.
    unsafe {
        let pseudo = object.as_ref();
        if P::CLOSES && P::CLOSES_ALONE {
            pseudo.payload.closed(FileMode::from_bits_truncate(ended.mode()));
        }
        let cache = &pseudo.fs.as_ref().cache;
        object.drop_in_place();
        cache.free(object.cast());
    }
}

/// [`end_file`] of the only file of an object that readers may look at: it is dropped after a grace
/// period. Those who find it later do so by a file, and there is none.
///
/// # Safety
/// As [`end_file`].
#[inline(never)]
unsafe fn end_met<P: Payload>(object: NonNull<Pseudo<P>>, ended: Ended) {
    // SAFETY: alive until it is given to the cache.
    unsafe {
        let pseudo = object.as_ref();
        if P::CLOSES {
            pseudo.payload.closed(FileMode::from_bits_truncate(ended.mode()));
        }
        let fs = pseudo.fs.as_ref();
        if pseudo.dentry.is_stateful() {
            fs.states.remove(object.addr().get());
        }
        // Relaxed, so above: for who flushes, when all this is over. A look first, not to write a
        // line that all have.
        if !fs.waited.load(Ordering::Relaxed) {
            fs.waited.store(true, Ordering::Relaxed);
        }
        fs.cache.free_rcu(object.cast());
    }
}

/// [`end_file`] of a file that is not the only one of its object.
///
/// # Safety
/// As [`end_file`].
#[inline(never)]
unsafe fn put_shared<P: Payload>(object: NonNull<Pseudo<P>>, ended: Ended) {
    // SAFETY: the caller's reference keeps it alive until it is put.
    unsafe {
        let pseudo = object.as_ref();
        if P::CLOSES {
            pseudo.payload.closed(FileMode::from_bits_truncate(ended.mode()));
        }
        let lockref = &pseudo.dentry.d_lockref;
        // Nobody takes a pseudo dentry's lock, so a put is never told to wait for it. ORDERING: as
        // in `end_file`.
        let last = lockref.is_sole() || {
            let left = lockref.put_return();
            debug_assert!(left.is_some(), "nobody takes a pseudo dentry's lock");
            // Never true here; asked for its acquire.
            left == Some(0) && !lockref.is_sole()
        };
        if last {
            end_last::<P>(object);
        }
    }
}

/// Ends an object whose files have all ended.
///
/// # Safety
/// The caller has put the last reference to a `Pseudo<P>`, whose filesystem lives.
#[cold]
unsafe fn end_last<P: Payload>(object: NonNull<Pseudo<P>>) {
    // SAFETY: nobody else has it, but for readers if it is met; see `end_met`.
    unsafe {
        let fs = object.as_ref().fs.as_ref();
        if object.as_ref().dentry.is_stateful() {
            fs.states.remove(object.addr().get());
        }
        if object.as_ref().dentry.is_met() {
            // Relaxed: as in `end_met`.
            if !fs.waited.load(Ordering::Relaxed) {
                fs.waited.store(true, Ordering::Relaxed);
            }
            fs.cache.free_rcu(object.cast());
        } else {
            object.drop_in_place();
            fs.cache.free(object.cast());
        }
    }
}

/// The state of an object.
///
/// # Safety
/// The dentry is that of an object of this kind, alive for `'a`.
#[inline(always)]
unsafe fn state<'a, P: Payload>(dentry: NonNull<PseudoDentry>) -> &'a P {
    // SAFETY: by contract; the dentry is the object's first field.
    unsafe { &dentry.cast::<Pseudo<P>>().as_ref().payload }
}

/// # Safety
/// As [`Kind`] says, so below.
unsafe fn read<P: Payload>(of: NonNull<PseudoDentry>, io: Io, to: &mut Sink<'_, '_>) -> Outcome {
    // SAFETY: by contract.
    Outcome::of(unsafe { state::<P>(of) }.try_read(io, to))
}

/// # Safety
/// As above.
unsafe fn write<P: Payload>(
    of: NonNull<PseudoDentry>,
    io: Io,
    from: &mut Source<'_, '_>,
) -> Outcome {
    // SAFETY: by contract.
    Outcome::of(unsafe { state::<P>(of) }.try_write(io, from))
}

/// # Safety
/// As above.
unsafe fn untold<P: Payload>(of: NonNull<PseudoDentry>, errno: Errno, from: &mut Source<'_, '_>) {
    // SAFETY: by contract.
    unsafe { state::<P>(of) }.untold(errno, from);
}

/// # Safety
/// As above.
unsafe fn poll<P: Payload>(of: NonNull<PseudoDentry>, io: Io, table: &mut PollTable<'_>) -> Events {
    // SAFETY: by contract.
    unsafe { state::<P>(of) }.poll(io, table)
}

/// # Safety
/// As above.
unsafe fn waiters<P: Payload>(
    of: NonNull<PseudoDentry>,
    what: Direction,
) -> Option<NonNull<WaitQueue>> {
    // SAFETY: by contract.
    unsafe { state::<P>(of) }.waiters(what).map(NonNull::from)
}

/// # Safety
/// As above.
unsafe fn in_turn<P: Payload>(of: NonNull<PseudoDentry>, what: Direction) -> bool {
    // SAFETY: by contract.
    unsafe { state::<P>(of) }.in_turn(what)
}

/// # Safety
/// As above.
unsafe fn timeout<P: Payload>(of: NonNull<PseudoDentry>, what: Direction) -> Option<Duration> {
    // SAFETY: by contract.
    unsafe { state::<P>(of) }.timeout(what)
}

/// # Safety
/// As above.
unsafe fn ioctl<P: Payload>(
    of: NonNull<PseudoDentry>,
    io: Io,
    request: Ioctl,
) -> Result<i32, Errno> {
    // SAFETY: by contract.
    unsafe { state::<P>(of) }.ioctl(io, request)
}

/// # Safety
/// As above.
unsafe fn opened<P: Payload>(of: NonNull<PseudoDentry>, mode: FileMode) {
    // SAFETY: by contract.
    unsafe { state::<P>(of) }.opened(mode);
}

/// # Safety
/// As above.
unsafe fn inode<P: Payload>(of: NonNull<PseudoDentry>) -> Option<NonNull<PseudoInode>> {
    // SAFETY: by contract.
    unsafe { state::<P>(of) }.inode().map(NonNull::from)
}

/// # Safety
/// As above.
unsafe fn states<P: Payload>(of: NonNull<PseudoDentry>) -> NonNull<PseudoStates> {
    // SAFETY: by contract; an object's file system outlives it.
    unsafe { NonNull::from(&of.cast::<Pseudo<P>>().as_ref().fs.as_ref().states) }
}

/// # Safety
/// The dentry is that of a living object of this kind.
unsafe fn name<P: Payload>(
    dentry: NonNull<PseudoDentry>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    // SAFETY: by contract.
    unsafe { dentry.cast::<Pseudo<P>>().as_ref() }.payload.name(f)
}

impl Kind {
    /// # Safety
    /// The dentry is that of a living object of this kind.
    #[inline(always)]
    pub(super) unsafe fn try_read(
        &self,
        of: NonNull<PseudoDentry>,
        io: Io,
        to: &mut Sink<'_, '_>,
    ) -> Result<usize, Errno> {
        // SAFETY: by contract.
        unsafe { (self.read)(of, io, to) }.result()
    }

    /// # Safety
    /// The dentry is that of a living object of this kind.
    #[inline(always)]
    pub(super) unsafe fn try_write(
        &self,
        of: NonNull<PseudoDentry>,
        io: Io,
        from: &mut Source<'_, '_>,
    ) -> Result<usize, Errno> {
        // SAFETY: by contract.
        unsafe { (self.write)(of, io, from) }.result()
    }

    /// # Safety
    /// The dentry is that of a living object of this kind.
    pub(super) unsafe fn name(
        &self,
        dentry: NonNull<PseudoDentry>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        // SAFETY: by contract.
        unsafe { (self.name)(dentry, f) }
    }

    /// The inode of an object, if it has its own.
    ///
    /// # Safety
    /// The dentry is that of an object of this kind, alive for `'a`.
    pub(super) unsafe fn own_inode<'a>(
        &self,
        dentry: NonNull<PseudoDentry>,
    ) -> Option<&'a PseudoInode> {
        // SAFETY: by contract.
        unsafe { (self.inode)(dentry).map(|inode| inode.as_ref()) }
    }

    /// The states of the file system's inodes, and the address by which the object's is found
    /// there; none for an object without an inode of its own.
    ///
    /// # Safety
    /// As [`own_inode`](Self::own_inode).
    pub(super) unsafe fn states<'a>(
        &self,
        dentry: NonNull<PseudoDentry>,
    ) -> Option<(&'a PseudoStates, usize)> {
        // SAFETY: by contract; an object's file system outlives it.
        unsafe {
            self.own_inode(dentry)?;
            Some(((self.states)(dentry).as_ref(), dentry.addr().get()))
        }
    }

    /// The state of an object, if it is of this type.
    ///
    /// # Safety
    /// The dentry is that of an object of this kind, alive for `'a`.
    #[inline(always)]
    pub(super) unsafe fn payload<'a, P: Payload>(
        &self,
        dentry: NonNull<PseudoDentry>,
    ) -> Option<&'a P> {
        // SAFETY: by contract, and the type is the object's.
        (self.payload == TypeId::of::<P>()).then(|| unsafe { state(dentry) })
    }
}
