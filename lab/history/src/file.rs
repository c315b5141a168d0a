//! `struct file` (`fs/file_table.c` of 2.6.27, and the series' patch 6).
//!
//! A file found in a descriptor table without the table's lock may be freed at that moment. 2.6.27 frees it
//! by `call_rcu()`: safe, but each close queues a callback and each open gets memory that went cold. Patch 6
//! frees at once into a cache whose slabs wait for a grace period, so that whoever looks finds a file, if
//! perhaps another: it takes a reference and then looks again.

use core::array;

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::dcache::{Dentry, dput};
use crate::errno::Errno;
use crate::fdtable::FilesStruct;
use crate::list::ListHead;
use crate::mount::{VfsMount, mntget, mntput};
use crate::percpu::{Cpu, Current};
use crate::pipe::pipe_release;
use crate::raw::Link;
use crate::rcupdate::{Callback, RcuHead, call_rcu, rcu_read_lock};
use crate::slab::{KmemCacheCpu, Object, Page, Slot};
use crate::socket::sock_close;
use crate::ticket::{TicketLock, atomic_dec_and_test};

/// `files_stat.max_files`: open files of a world, as far as an approximate count can tell.
pub(crate) const MAX_FILES: i64 = 1 << 22;

/// Which operations a file has: `f_op`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum FileOperations {
    /// `socket_file_ops`
    Socket = 1,
    /// `read_pipe_fops`
    ReadPipe,
    /// `write_pipe_fops`
    WritePipe,
    /// `eventfd_fops`
    Eventfd,
}

/// `struct file`: three lines, all cleared at every open, as `kmem_cache_zalloc()` did.
#[repr(C, align(64))]
pub(crate) struct File {
    fu_rcuhead: RcuHead,
    pub(crate) f_dentry: Link<Dentry>,
    f_vfsmnt: Link<VfsMount>,
    f_op: AtomicU32,
    f_flags: AtomicU32,
    pub(crate) f_count: AtomicU32,
    f_mode: AtomicU32,

    fu_list: ListHead,
    slot: Slot<File>,
    f_lock: TicketLock,
    f_uid: AtomicU32,
    f_pos: AtomicU64,
    private_data: AtomicU64,
    /// `f_owner`, `f_ra`, `f_version`, `f_security`, `f_ep_links`, `f_mapping`.
    rest: [AtomicU64; 9],
}

impl Object for File {
    const NAME: &'static str = "filp";

    fn new() -> Self {
        Self {
            fu_rcuhead: RcuHead::new(),
            f_dentry: Link::null(),
            f_vfsmnt: Link::null(),
            f_op: AtomicU32::new(0),
            f_flags: AtomicU32::new(0),
            f_count: AtomicU32::new(0),
            f_mode: AtomicU32::new(0),
            fu_list: ListHead::new(),
            slot: Slot::new(),
            f_lock: TicketLock::new(),
            f_uid: AtomicU32::new(0),
            f_pos: AtomicU64::new(0),
            private_data: AtomicU64::new(0),
            rest: array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn name_words(&self) {
        quietline_platform::name_words!(*self => "file" { fu_rcuhead, f_dentry, f_vfsmnt, f_op, f_flags, f_count });
        quietline_platform::name_words!(*self => "file" { f_mode, fu_list, slot, f_lock, f_uid, f_pos });
        quietline_platform::name_words!(*self => "file" { private_data, rest });
    }

    #[inline(always)]
    fn slot(&self) -> &Slot<Self> {
        &self.slot
    }

    #[inline(always)]
    fn cpu_slab(cpu: &Cpu) -> &KmemCacheCpu<Self> {
        &cpu.filp
    }

    fn rcu_free_slab<'a>(current: Current<'a>, page: &'a Page<Self>) {
        call_rcu(current, &page.rcu_head, Callback::Slab(page));
    }
}

/// `get_empty_filp()`: a file with one reference and nothing behind it. Writes the CPU's own lines and the
/// file.
///
/// # Errors
///
/// `ENFILE` past [`MAX_FILES`]; `ENOMEM`.
#[inline]
pub(crate) fn get_empty_filp(current: Current<'_>) -> Result<&File, Errno> {
    let globals = current.globals;
    if globals.nr_files.read_positive() >= MAX_FILES {
        return Err(Errno::ENFILE);
    }
    let file = globals.filp_cachep.alloc(current)?;
    globals.nr_files.add(current.cpu, 1);
    // Relaxed: the file is not published yet; `f_count` is 0, so a reader that still finds a recycled file in
    // a slot it came from gets no reference.
    file.f_dentry.store(None);
    file.f_vfsmnt.store(None);
    for word in [&file.f_op, &file.f_flags, &file.f_mode, &file.f_uid] {
        word.store(0, Ordering::Relaxed);
    }
    for word in file.rest.iter().chain([&file.f_pos, &file.private_data]) {
        word.store(0, Ordering::Relaxed);
    }
    file.fu_list.init();
    // ORDERING: Release pairs with the acquire in `fget`: a reader that gets a reference sees a file that is
    // cleared, not the one before; a reader that comes earlier sees 0 and gets none.
    file.f_count.store(1, Ordering::Release);
    Ok(file)
}

/// `init_file()`: ties the file to its dentry, whose reference it takes over, and to its mount.
/// Writes the file, and the mount's counted line by one locked instruction below
/// [`Rung::Norefcount`](crate::Rung::Norefcount).
#[inline]
pub(crate) fn init_file<'a>(
    file: &'a File,
    mnt: &'a VfsMount,
    dentry: &'a Dentry,
    f_op: FileOperations,
) {
    file.f_dentry.store(Some(dentry));
    file.f_vfsmnt.store(Some(mntget(mnt)));
    // Relaxed: `fd_install` publishes the file.
    file.f_mode.store(3, Ordering::Relaxed);
    file.f_op.store(f_op as u32, Ordering::Relaxed);
}

/// `alloc_file()`: both of the above.
///
/// # Errors
///
/// As [`get_empty_filp`]; then the dentry's reference is still the caller's.
#[inline]
pub(crate) fn alloc_file<'a>(
    current: Current<'a>,
    mnt: &'a VfsMount,
    dentry: &'a Dentry,
    f_op: FileOperations,
) -> Result<&'a File, Errno> {
    let file = get_empty_filp(current)?;
    init_file(file, mnt, dentry, f_op);
    Ok(file)
}

/// `fget()`: the file of a descriptor, with a reference, found without the table's lock. Writes the CPU's own
/// line and the file's count.
///
/// # Errors
///
/// `EBADF` if the descriptor is not open.
pub(crate) fn fget<'a>(
    current: Current<'a>,
    files: &'a FilesStruct,
    fd: i32,
) -> Result<&'a File, Errno> {
    let _rcu = rcu_read_lock(current.cpu);
    loop {
        let file = files.fcheck(fd).ok_or(Errno::EBADF)?;
        if !atomic_inc_not_zero(&file.f_count) {
            if current.globals.build.patches.typesafe_files {
                // Closed a moment ago: the slot is empty by now, or holds another.
                continue;
            }
            return Err(Errno::EBADF);
        }
        if current.globals.build.patches.typesafe_files
            && !files.fcheck(fd).is_some_and(|now| core::ptr::eq(now, file))
        {
            // The memory has become another file: not ours to hold.
            fput(current, file);
            continue;
        }
        return Ok(file);
    }
}

/// `fput()`: gives up a reference. Writes the count's line, by one locked instruction.
#[inline]
pub(crate) fn fput<'a>(current: Current<'a>, file: &'a File) {
    if atomic_dec_and_test(&file.f_count) {
        fput_last(current, file);
    }
}

/// `__fput()`: closes what is behind the file and frees it.
fn fput_last<'a>(current: Current<'a>, file: &'a File) {
    let dentry = file.f_dentry.load().expect("an open file has a dentry");
    let mnt = file.f_vfsmnt.load().expect("an open file has a mount");
    // Relaxed: no one else has the file any more.
    let f_op = file.f_op.load(Ordering::Relaxed);
    if f_op == FileOperations::Socket as u32 {
        sock_close(current);
    } else if f_op == FileOperations::ReadPipe as u32 {
        pipe_release(dentry.inode(), FileOperations::ReadPipe);
    } else if f_op == FileOperations::WritePipe as u32 {
        pipe_release(dentry.inode(), FileOperations::WritePipe);
    }
    // file_kill(): only files of real file systems are on a list.
    if !file.fu_list.is_empty() {
        file.fu_list.del_init();
    }
    file.f_dentry.store(None);
    file.f_vfsmnt.store(None);
    file_free(current, file);
    dput(current, dentry);
    mntput(current.globals, mnt);
}

/// `put_filp()`: gives back a file that was never installed and has nothing behind it.
#[cold]
pub(crate) fn put_filp<'a>(current: Current<'a>, file: &'a File) {
    if atomic_dec_and_test(&file.f_count) {
        file_free(current, file);
    }
}

/// `file_free()`: by a callback in the base, at once from
/// [`Rung::TypesafeFiles`](crate::Rung::TypesafeFiles) on.
#[inline]
fn file_free<'a>(current: Current<'a>, file: &'a File) {
    current.globals.nr_files.add(current.cpu, -1);
    if current.globals.build.patches.typesafe_files {
        current.globals.filp_cachep.free(current, file);
    } else {
        call_rcu(current, &file.fu_rcuhead, Callback::File(file));
    }
}

/// `file_free_rcu()`: the callback.
pub(crate) fn file_free_rcu<'a>(current: Current<'a>, file: &'a File) {
    current.globals.filp_cachep.free(current, file);
}

fn atomic_inc_not_zero(count: &AtomicU32) -> bool {
    // Relaxed: confirmed by the compare-exchange.
    let mut seen = count.load(Ordering::Relaxed);
    while seen != 0 {
        // ORDERING: Acquire pairs with the release in `get_empty_filp`, which see. Relaxed on failure: only
        // the value is used, to try again.
        match count.compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}
