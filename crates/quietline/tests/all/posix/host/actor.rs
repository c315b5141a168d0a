//! The calls of a process: system calls of the calling thread. (Longer than most files: one arm for each call, in the order
//! of `call.rs`.)

use super::syscall::{c, null, sys};
use crate::posix::arg::Text;
use crate::posix::call::Call;
use crate::posix::outcome::{Dent, Lock, Outcome, STATX_BASIC, Stamp, Stat, Statfs, pattern};
use crate::posix::sys::{Actor, WATCHER};
use std::cell::Cell;

/// The calling thread.
#[derive(Debug)]
pub(super) struct Thread;

/// Zeroes, for the system to write to.
fn zeroed<T: Plain>() -> T {
    // SAFETY: `Plain` says that zeroes are a value.
    unsafe { std::mem::zeroed() }
}

/// Structures of numbers alone.
trait Plain {}
impl Plain for libc::stat {}
impl Plain for libc::statx {}
impl Plain for libc::statfs {}
impl Plain for libc::flock {}

/// A call that fills a buffer of `size` bytes, and returns how many it filled. Given none, some calls say how many
/// there are.
fn filled(size: usize, call: impl FnOnce(&mut [u8]) -> Result<i64, i32>) -> Outcome {
    let mut buffer = vec![0u8; size];
    match call(&mut buffer) {
        Ok(length) if size == 0 => Outcome::Done(length),
        Ok(length) => {
            buffer.truncate(length as usize);
            Outcome::Bytes(buffer)
        }
        Err(errno) => Outcome::Failed(errno),
    }
}

/// A buffer in three pieces, of which the second may be empty.
fn pieces(buffer: &mut [u8]) -> [libc::iovec; 3] {
    let (first, rest) = buffer.split_at_mut(buffer.len() / 3);
    let (second, third) = rest.split_at_mut(rest.len() / 7);
    [first, second, third]
        .map(|piece| libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() })
}

fn stamp(seconds: i64, nanos: i64) -> Stamp {
    Stamp::At(seconds, nanos as u32)
}

fn from_stat(stat: &libc::stat) -> Stat {
    Stat {
        dev: stat.st_dev,
        ino: stat.st_ino,
        mode: stat.st_mode,
        #[allow(clippy::unnecessary_cast, reason = "its type differs by machine")]
        nlink: stat.st_nlink as u64,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: (libc::major(stat.st_rdev), libc::minor(stat.st_rdev)),
        size: stat.st_size,
        #[allow(clippy::unnecessary_cast, reason = "its type differs by machine")]
        blksize: stat.st_blksize as i64,
        blocks: stat.st_blocks,
        atime: stamp(stat.st_atime, stat.st_atime_nsec),
        mtime: stamp(stat.st_mtime, stat.st_mtime_nsec),
        ctime: stamp(stat.st_ctime, stat.st_ctime_nsec),
        btime: Stamp::Unknown,
    }
}

fn from_statx(x: &libc::statx) -> Stat {
    let time = |time: libc::statx_timestamp| stamp(time.tv_sec, i64::from(time.tv_nsec));
    Stat {
        dev: libc::makedev(x.stx_dev_major, x.stx_dev_minor),
        ino: x.stx_ino,
        mode: u32::from(x.stx_mode),
        nlink: u64::from(x.stx_nlink),
        uid: x.stx_uid,
        gid: x.stx_gid,
        rdev: (x.stx_rdev_major, x.stx_rdev_minor),
        size: x.stx_size as i64,
        blksize: i64::from(x.stx_blksize),
        blocks: x.stx_blocks as i64,
        atime: time(x.stx_atime),
        mtime: time(x.stx_mtime),
        ctime: time(x.stx_ctime),
        btime: time(x.stx_btime),
    }
}

fn stat_outcome(result: Result<i64, i32>, stat: impl FnOnce() -> Stat) -> Outcome {
    match result {
        Ok(_) => Outcome::Stat(Box::new(stat())),
        Err(errno) => Outcome::Failed(errno),
    }
}

/// A descriptor's time of change.
pub(super) fn ctime(fd: i32) -> Stamp {
    let mut stat = zeroed::<libc::stat>();
    sys!(libc::SYS_fstat, fd, &raw mut stat).expect("fstat");
    from_stat(&stat).ctime
}

fn statfs_outcome(call: impl FnOnce(*mut libc::statfs) -> Result<i64, i32>) -> Outcome {
    let mut s = zeroed::<libc::statfs>();
    match call(&raw mut s) {
        Ok(_) => Outcome::Statfs(Statfs {
            bsize: s.f_bsize,
            blocks: s.f_blocks,
            bfree: s.f_bfree,
            bavail: s.f_bavail,
            files: s.f_files,
            ffree: s.f_ffree,
            namelen: s.f_namelen,
        }),
        Err(errno) => Outcome::Failed(errno),
    }
}

/// A file that no program meets: beyond the descriptors that programs use.
const SCRATCH: i32 = 1000;

/// Makes the scratch file of the calling thread, which its children inherit.
pub(super) fn make_scratch() -> Result<(), i32> {
    let fd = sys!(libc::SYS_memfd_create, c(b"scratch").as_ptr(), 0)?;
    sys!(libc::SYS_dup3, fd, SCRATCH, 0)?;
    sys!(libc::SYS_close, fd).map(|_| ())
}

thread_local! {
    /// The last watch of the programs before: a program's own are numbered from there.
    static WATCHES_BEFORE: Cell<i32> = const { Cell::new(0) };
}

/// The last watch of the programs before.
pub(super) fn watches_before() -> i32 {
    WATCHES_BEFORE.get()
}

/// Tells the calling thread which was the last watch of the programs before.
pub(super) fn set_watches_before(wd: i32) {
    WATCHES_BEFORE.set(wd);
}

/// Makes the instance of inotify of the calling thread, which its children inherit. It stays for all programs: the system
/// takes long to close one.
pub(super) fn make_watcher() -> Result<(), i32> {
    let fd = sys!(libc::SYS_inotify_init1, libc::IN_NONBLOCK)?;
    sys!(libc::SYS_dup3, fd, WATCHER, 0)?;
    sys!(libc::SYS_close, fd).map(|_| ())
}

/// Ends all watches, once the files are gone, and forgets what they saw.
pub(super) fn end_watches() {
    // The numbers go up, so a new one tells the last.
    let path = c"/last";
    sys!(libc::SYS_mkdirat, -1, path.as_ptr(), 0o700).expect("mkdir");
    let all = libc::IN_ALL_EVENTS;
    let last =
        sys!(libc::SYS_inotify_add_watch, WATCHER, path.as_ptr(), all).expect("a watch") as i32;
    sys!(libc::SYS_unlinkat, -1, path.as_ptr(), libc::AT_REMOVEDIR).expect("rmdir");
    for wd in watches_before() + 1..=last {
        // Most have ended with their files.
        let _ = sys!(libc::SYS_inotify_rm_watch, WATCHER, wd);
    }
    set_watches_before(last);
    let mut buffer = vec![0; 65536];
    while sys!(libc::SYS_read, WATCHER, buffer.as_mut_ptr(), buffer.len()).is_ok() {}
}

/// Makes the host's clock of files step. It gives a finer time than its tick only to a file that was looked at and that
/// would else get the time it has; a directory gets the time of its entry. So two changes can bear one time, which then
/// is the one that was given out last: after this, no file bears that.
fn step_clock() {
    for byte in [1u8, 2] {
        ctime(SCRATCH);
        // Whoever has it open may write.
        sys!(libc::SYS_pwrite64, SCRATCH, &raw const byte, 1usize, 0i64).expect("it is there");
    }
}

impl Actor for Thread {
    fn dents(&mut self, fd: i32, size: usize) -> Result<Vec<Dent>, i32> {
        let mut buffer = vec![0u64; size.div_ceil(8)];
        let length = sys!(libc::SYS_getdents64, fd, buffer.as_mut_ptr(), size)? as usize;
        let bytes: Vec<u8> =
            buffer.iter().flat_map(|word| word.to_ne_bytes()).take(length).collect();
        let (mut dents, mut at) = (Vec::new(), 0);
        let word =
            |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        while at < length {
            let record = usize::from(u16::from_ne_bytes([bytes[at + 16], bytes[at + 17]]));
            let name =
                bytes[at + 19..at + record].split(|&b| b == 0).next().unwrap_or_default().to_vec();
            dents.push(Dent {
                name,
                ino: word(at),
                kind: bytes[at + 18],
                next: word(at + 8) as i64,
            });
            at += record;
        }
        Ok(dents)
    }

    fn events(&mut self, buffer: &mut [u8]) -> Result<usize, i32> {
        let length = sys!(libc::SYS_read, WATCHER, buffer.as_mut_ptr(), buffer.len())? as usize;
        let mut at = 0;
        while at < length {
            let word =
                |at: usize| i32::from_ne_bytes(buffer[at..at + 4].try_into().expect("four bytes"));
            let (wd, padded) = (word(at), word(at + 12) as usize);
            // None is of no watch: that of an overflow.
            let wd = if wd > 0 { wd - watches_before() } else { wd };
            buffer[at..at + 4].copy_from_slice(&wd.to_ne_bytes());
            at += 16 + padded;
        }
        Ok(length)
    }

    fn call(&mut self, call: &Call) -> Outcome {
        // A walk that Linux begins again, because somebody on the machine mounted or renamed something, goes on counting links
        // where the first one stopped. What is a loop is one each time.
        let mut outcome = self.once(call);
        for _ in 0..3 {
            if outcome != Outcome::Failed(libc::ELOOP) {
                break;
            }
            outcome = self.once(call);
        }
        outcome
    }
}

impl Thread {
    fn once(&mut self, call: &Call) -> Outcome {
        step_clock();
        let number = match call {
            &Call::Become { uid, gid, group } => sys!(libc::SYS_setgroups, 1, &raw const group)
                .and_then(|_| sys!(libc::SYS_setresgid, gid, gid, gid))
                .and_then(|_| sys!(libc::SYS_setresuid, uid, uid, uid)),
            &Call::Setresuid { real, effective, saved } => {
                sys!(libc::SYS_setresuid, real, effective, saved)
            }
            &Call::Setresgid { real, effective, saved } => {
                sys!(libc::SYS_setresgid, real, effective, saved)
            }
            &Call::Setfsuid { uid } => sys!(libc::SYS_setfsuid, uid),
            &Call::Setfsgid { gid } => sys!(libc::SYS_setfsgid, gid),
            &Call::Setgroups { groups, first } => {
                let list: Vec<u32> = (first..).take(groups as usize).collect();
                sys!(libc::SYS_setgroups, list.len(), list.as_ptr())
            }
            Call::Umask { mask } => sys!(libc::SYS_umask, mask.0),
            Call::Chdir { path } => sys!(libc::SYS_chdir, c(&path.0).as_ptr()),
            Call::Fchdir { fd } => sys!(libc::SYS_fchdir, fd.0),
            Call::Chroot { path } => sys!(libc::SYS_chroot, c(&path.0).as_ptr()),
            &Call::Getcwd { size } => {
                return filled(size, |buffer| {
                    sys!(libc::SYS_getcwd, buffer.as_mut_ptr(), size).map(|length| length - 1)
                });
            }
            Call::Openat { at, path, flags, mode } => {
                sys!(libc::SYS_openat, at.0, c(&path.0).as_ptr(), flags.0 as i32, mode.0)
            }
            Call::Openat2 { at, path, flags, mode, resolve } => {
                let how = [flags.0, u64::from(mode.0), resolve.0];
                let path = c(&path.0);
                let open = || {
                    sys!(libc::SYS_openat2, at.0, path.as_ptr(), how.as_ptr(), size_of_val(&how))
                };
                // With `..` in a confined path, any rename on the machine makes the call give up.
                let confined = resolve.0 & (libc::RESOLVE_BENEATH | libc::RESOLVE_IN_ROOT) != 0;
                let tries =
                    if confined && resolve.0 & libc::RESOLVE_CACHED == 0 { 1000 } else { 1 };
                let mut result = open();
                for _ in 1..tries {
                    if result != Err(libc::EAGAIN) {
                        break;
                    }
                    result = open();
                }
                result
            }
            Call::Close { fd } => sys!(libc::SYS_close, fd.0),
            Call::Dup { fd } => sys!(libc::SYS_dup, fd.0),
            Call::Dup3 { old, new, flags } => sys!(libc::SYS_dup3, old.0, new.0, flags.0 as i32),
            Call::Getfd { fd } => sys!(libc::SYS_fcntl, fd.0, libc::F_GETFD, 0),
            Call::Getfl { fd } => sys!(libc::SYS_fcntl, fd.0, libc::F_GETFL, 0),
            Call::Setfl { fd, flags } => sys!(libc::SYS_fcntl, fd.0, libc::F_SETFL, flags.0),
            _ => return self.data(call),
        };
        Outcome::number(number)
    }
}

impl Thread {
    fn data(&mut self, call: &Call) -> Outcome {
        let number = match *call {
            Call::Read { fd, length } => {
                return filled(length, |b| sys!(libc::SYS_read, fd.0, b.as_mut_ptr(), length));
            }
            Call::Pread { fd, length, offset } => {
                return filled(length, |b| {
                    sys!(libc::SYS_pread64, fd.0, b.as_mut_ptr(), length, offset)
                });
            }
            Call::Readv { fd, length } => {
                return filled(length, |b| {
                    let pieces = pieces(b);
                    sys!(libc::SYS_readv, fd.0, pieces.as_ptr(), pieces.len())
                });
            }
            Call::Preadv { fd, length, offset } => {
                return filled(length, |b| {
                    let pieces = pieces(b);
                    sys!(libc::SYS_preadv, fd.0, pieces.as_ptr(), pieces.len(), offset, 0)
                });
            }
            Call::Write { fd, length, fill } => {
                sys!(libc::SYS_write, fd.0, pattern(length, fill).as_ptr(), length)
            }
            Call::Pwrite { fd, length, fill, offset } => {
                sys!(libc::SYS_pwrite64, fd.0, pattern(length, fill).as_ptr(), length, offset)
            }
            Call::Writev { fd, length, fill } => {
                let mut data = pattern(length, fill);
                let pieces = pieces(&mut data);
                sys!(libc::SYS_writev, fd.0, pieces.as_ptr(), pieces.len())
            }
            Call::Pwritev { fd, length, fill, offset } => {
                let mut data = pattern(length, fill);
                let pieces = pieces(&mut data);
                sys!(libc::SYS_pwritev, fd.0, pieces.as_ptr(), pieces.len(), offset, 0)
            }
            Call::Lseek { fd, offset, whence } => sys!(libc::SYS_lseek, fd.0, offset, whence),
            Call::Truncate { ref path, length } => {
                sys!(libc::SYS_truncate, c(&path.0).as_ptr(), length)
            }
            Call::Ftruncate { fd, length } => sys!(libc::SYS_ftruncate, fd.0, length),
            Call::Fallocate { fd, mode, offset, length } => {
                sys!(libc::SYS_fallocate, fd.0, mode.0 as i32, offset, length)
            }
            Call::CopyFileRange { from, from_offset, to, to_offset, length, flags } => {
                let (mut here, mut there) = (from_offset, to_offset);
                let here = if from_offset == -1 { std::ptr::null_mut() } else { &raw mut here };
                let there = if to_offset == -1 { std::ptr::null_mut() } else { &raw mut there };
                sys!(libc::SYS_copy_file_range, from.0, here, to.0, there, length, flags)
            }
            Call::Fsync { fd } => sys!(libc::SYS_fsync, fd.0),
            Call::Fdatasync { fd } => sys!(libc::SYS_fdatasync, fd.0),
            Call::Syncfs { fd } => sys!(libc::SYS_syncfs, fd.0),
            Call::FlockNb { fd, operation } => sys!(libc::SYS_flock, fd.0, operation.0 as i32),
            Call::Setlk { fd, ofd, ty, whence, start, length } => {
                let lock = lock(ty, whence, start, length);
                let cmd = if ofd { libc::F_OFD_SETLK } else { libc::F_SETLK };
                sys!(libc::SYS_fcntl, fd.0, cmd, &raw const lock)
            }
            Call::Getlk { fd, ofd, ty, whence, start, length } => {
                let mut lock = lock(ty, whence, start, length);
                let cmd = if ofd { libc::F_OFD_GETLK } else { libc::F_GETLK };
                match sys!(libc::SYS_fcntl, fd.0, cmd, &raw mut lock) {
                    Ok(_) => {
                        return Outcome::Lock(Lock {
                            ty: i32::from(lock.l_type),
                            whence: i32::from(lock.l_whence),
                            start: lock.l_start,
                            length: lock.l_len,
                            pid: lock.l_pid,
                        });
                    }
                    failed => failed,
                }
            }
            _ => return self.names(call),
        };
        Outcome::number(number)
    }

    fn names(&mut self, call: &Call) -> Outcome {
        let number = match call {
            Call::Mkdirat { at, path, mode } => {
                sys!(libc::SYS_mkdirat, at.0, c(&path.0).as_ptr(), mode.0)
            }
            Call::Mknodat { at, path, mode, major, minor } => {
                // The call takes 12 bits of major and 20 of minor.
                let device = (major & 0xfff) << 8 | minor & 0xff | (minor & 0xfff00) << 12;
                sys!(libc::SYS_mknodat, at.0, c(&path.0).as_ptr(), mode.0, device)
            }
            Call::Symlinkat { target, at, path } => {
                sys!(libc::SYS_symlinkat, c(&target.0).as_ptr(), at.0, c(&path.0).as_ptr())
            }
            Call::Linkat { from, old, to, new, flags } => {
                let (old, new) = (c(&old.0), c(&new.0));
                sys!(libc::SYS_linkat, from.0, old.as_ptr(), to.0, new.as_ptr(), flags.0 as i32)
            }
            Call::Unlinkat { at, path, flags } => {
                sys!(libc::SYS_unlinkat, at.0, c(&path.0).as_ptr(), flags.0 as i32)
            }
            Call::Renameat2 { from, old, to, new, flags } => {
                let (old, new) = (c(&old.0), c(&new.0));
                sys!(libc::SYS_renameat2, from.0, old.as_ptr(), to.0, new.as_ptr(), flags.0 as u32)
            }
            Call::Readlinkat { at, path, size } => {
                return filled(*size, |b| {
                    sys!(libc::SYS_readlinkat, at.0, c(&path.0).as_ptr(), b.as_mut_ptr(), *size)
                });
            }
            Call::Fstatat { at, path, flags } => {
                let mut stat = zeroed::<libc::stat>();
                let result = sys!(
                    libc::SYS_newfstatat,
                    at.0,
                    c(&path.0).as_ptr(),
                    &raw mut stat,
                    flags.0 as i32
                );
                return stat_outcome(result, || from_stat(&stat).masked(STATX_BASIC));
            }
            Call::Fstat { fd } => {
                let mut stat = zeroed::<libc::stat>();
                let result = sys!(libc::SYS_fstat, fd.0, &raw mut stat);
                return stat_outcome(result, || from_stat(&stat).masked(STATX_BASIC));
            }
            Call::Statx { at, path, flags, mask } => {
                let mut x = zeroed::<libc::statx>();
                let path = c(&path.0);
                let result =
                    sys!(libc::SYS_statx, at.0, path.as_ptr(), flags.0 as i32, *mask, &raw mut x);
                if result.is_ok() {
                    let missing = *mask & (STATX_BASIC | libc::STATX_BTIME) & !x.stx_mask;
                    assert_eq!(missing, 0, "tmpfs gives what it is asked for");
                }
                return stat_outcome(result, || from_statx(&x).masked(*mask));
            }
            Call::Statfs { path } => {
                return statfs_outcome(|s| sys!(libc::SYS_statfs, c(&path.0).as_ptr(), s));
            }
            Call::Fstatfs { fd } => return statfs_outcome(|s| sys!(libc::SYS_fstatfs, fd.0, s)),
            Call::Faccessat2 { at, path, mode, flags } => {
                sys!(libc::SYS_faccessat2, at.0, c(&path.0).as_ptr(), *mode, flags.0 as i32)
            }
            Call::Fchmod { fd, mode } => sys!(libc::SYS_fchmod, fd.0, mode.0),
            Call::Fchmodat2 { at, path, mode, flags } => {
                /// The same on every machine.
                const SYS_FCHMODAT2: libc::c_long = 452;
                sys!(SYS_FCHMODAT2, at.0, c(&path.0).as_ptr(), mode.0, flags.0 as i32)
            }
            Call::Fchown { fd, uid, gid } => sys!(libc::SYS_fchown, fd.0, *uid, *gid),
            Call::Fchownat { at, path, uid, gid, flags } => {
                sys!(libc::SYS_fchownat, at.0, c(&path.0).as_ptr(), *uid, *gid, flags.0 as i32)
            }
            Call::Utimensat { at, path, atime, mtime, flags } => {
                let times =
                    [atime, mtime].map(|t| libc::timespec { tv_sec: t.seconds, tv_nsec: t.nanos });
                sys!(libc::SYS_utimensat, at.0, c(&path.0).as_ptr(), times.as_ptr(), flags.0 as i32)
            }
            Call::Futimens { fd, atime, mtime } => {
                let times =
                    [atime, mtime].map(|t| libc::timespec { tv_sec: t.seconds, tv_nsec: t.nanos });
                sys!(libc::SYS_utimensat, fd.0, null(), times.as_ptr(), 0)
            }
            _ => return self.xattrs(call),
        };
        Outcome::number(number)
    }

    fn xattrs(&mut self, call: &Call) -> Outcome {
        let by = |follow: bool, yes: libc::c_long, no: libc::c_long| if follow { yes } else { no };
        let value = |size: usize, fill: u32| pattern(size, fill);
        let text = |text: &Text| c(&text.0);
        let number = match call {
            Call::Setxattr { path, follow, name, size, fill, flags } => {
                let number = by(*follow, libc::SYS_setxattr, libc::SYS_lsetxattr);
                let (path, name, value) = (text(path), text(name), value(*size, *fill));
                sys!(number, path.as_ptr(), name.as_ptr(), value.as_ptr(), *size, flags.0 as i32)
            }
            Call::Fsetxattr { fd, name, size, fill, flags } => {
                let (name, value) = (text(name), value(*size, *fill));
                sys!(
                    libc::SYS_fsetxattr,
                    fd.0,
                    name.as_ptr(),
                    value.as_ptr(),
                    *size,
                    flags.0 as i32
                )
            }
            Call::Getxattr { path, follow, name, size } => {
                let number = by(*follow, libc::SYS_getxattr, libc::SYS_lgetxattr);
                let (path, name) = (text(path), text(name));
                return filled(*size, |b| {
                    sys!(number, path.as_ptr(), name.as_ptr(), b.as_mut_ptr(), *size)
                });
            }
            Call::Fgetxattr { fd, name, size } => {
                let name = text(name);
                return filled(*size, |b| {
                    sys!(libc::SYS_fgetxattr, fd.0, name.as_ptr(), b.as_mut_ptr(), *size)
                });
            }
            Call::Listxattr { path, follow, size } => {
                let number = by(*follow, libc::SYS_listxattr, libc::SYS_llistxattr);
                return filled(*size, |b| sys!(number, text(path).as_ptr(), b.as_mut_ptr(), *size));
            }
            Call::Flistxattr { fd, size } => {
                return filled(*size, |b| sys!(libc::SYS_flistxattr, fd.0, b.as_mut_ptr(), *size));
            }
            Call::Removexattr { path, follow, name } => {
                let number = by(*follow, libc::SYS_removexattr, libc::SYS_lremovexattr);
                sys!(number, text(path).as_ptr(), text(name).as_ptr())
            }
            Call::Fremovexattr { fd, name } => {
                sys!(libc::SYS_fremovexattr, fd.0, text(name).as_ptr())
            }
            Call::Watch { path, mask } => {
                sys!(libc::SYS_inotify_add_watch, WATCHER, text(path).as_ptr(), mask.0 as u32)
                    .map(|wd| wd - i64::from(watches_before()))
            }
            &Call::Unwatch { wd } => {
                let wd = if wd > 0 { wd + watches_before() } else { wd };
                sys!(libc::SYS_inotify_rm_watch, WATCHER, wd)
            }
            other => panic!("{other:?} is no system call"),
        };
        Outcome::number(number)
    }
}

/// `F_GETLK`'s and `F_SETLK`'s argument.
fn lock(ty: i32, whence: i32, start: i64, length: i64) -> libc::flock {
    let mut lock = zeroed::<libc::flock>();
    (lock.l_type, lock.l_whence) = (ty as i16, whence as i16);
    (lock.l_start, lock.l_len) = (start, length);
    lock
}
