//! quietline's side: a kernel for each program.

use crate::posix::arg::Time;
use crate::posix::call::{Call, Step};
use crate::posix::composed;
use crate::posix::outcome::{Dent, Lock, Outcome, STATX_BASIC, Stamp, Stat, Statfs, pattern};
use crate::posix::sys::{Actor, PROCESSES, Setting, Sys, WATCHER};
use quietline::abi::{F_GETFD, F_GETFL, F_SETFL, O_NONBLOCK, Timespec};
use quietline::{Config, Errno, Kernel, OpenHow, Process};
use quietline_vfs::locks::Flock;

/// A kernel and its processes, while a program runs.
#[derive(Debug, Default)]
pub(crate) struct Quietline {
    world: Option<World>,
}

#[derive(Debug)]
struct World {
    processes: [Option<Process>; PROCESSES],
    kernel: Kernel,
    /// Inodes and dentries before the program.
    before: (i64, i64),
}

impl Sys for Quietline {
    fn name(&self) -> String {
        "quietline".to_owned()
    }

    fn begin(&mut self, setting: Setting) {
        let config = Config::default()
            .privileged(true)
            .owner(0, 0)
            .fs_size(setting.pages * 4096)
            .fs_inodes(setting.inodes)
            .root_mode(0o755);
        let kernel = Kernel::boot(config).expect("boot");
        let before = (kernel.nr_inodes(), kernel.nr_dentry());
        let overseer = kernel.process().expect("process");
        overseer.umask(0o022);
        let fd = overseer.inotify_init1(O_NONBLOCK).expect("inotify_init1");
        overseer.dup3(fd, WATCHER, 0).expect("dup3");
        overseer.close(fd).expect("close");
        let mut processes: [Option<Process>; PROCESSES] =
            std::array::from_fn(|n| (n > 0).then(|| overseer.fork().expect("fork")));
        processes[0] = Some(overseer);
        self.world = Some(World { processes, kernel, before });
    }

    fn go(&mut self, steps: &[Step]) -> Vec<Outcome> {
        let World { processes, .. } = self.world.as_mut().expect("begun");
        steps
            .iter()
            .map(|step| match step.call {
                Call::Fork { child } => fork(processes, step.who, child as usize),
                ref call => {
                    composed::call(&mut Mine(processes[step.who].as_ref().expect("it lives")), call)
                }
            })
            .collect()
    }

    /// Ends the processes, removes all files, and looks for what is left.
    fn end(&mut self) {
        let World { mut processes, kernel, before } = self.world.take().expect("begun");
        let overseer = processes[0].take().expect("it lives");
        drop(processes);
        composed::empty(&mut Mine(&overseer));
        drop(overseer);
        let left = (kernel.nr_files(), kernel.nr_inodes(), kernel.nr_dentry());
        assert_eq!(
            left,
            (0, before.0, before.1),
            "files, inodes and dentries that are left after all is removed"
        );
    }

    fn fine_times(&self) -> bool {
        true
    }

    fn newest_first(&self) -> bool {
        true
    }
}

fn fork(processes: &mut [Option<Process>; PROCESSES], who: usize, child: usize) -> Outcome {
    if who == child || child == 0 || child >= PROCESSES {
        return Outcome::Failed(libc::EINVAL);
    }
    // Who was it before ends first.
    processes[child] = None;
    processes[child] = Some(processes[who].as_ref().expect("it lives").fork().expect("fork"));
    Outcome::Done(0)
}

/// A process of quietline's.
struct Mine<'a>(&'a Process);

fn unit(result: Result<(), Errno>) -> Outcome {
    Outcome::number(result.map(|()| 0).map_err(Errno::raw_os_error))
}

fn number<N: TryInto<i64>>(result: Result<N, Errno>) -> Outcome {
    let widened =
        result.map(|n| n.try_into().unwrap_or_else(|_| panic!("a result beyond 63 bits")));
    Outcome::number(widened.map_err(Errno::raw_os_error))
}

/// A call that fills a buffer, as on the host's side.
fn filled(size: usize, call: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Outcome {
    let mut buffer = vec![0u8; size];
    match call(&mut buffer) {
        Ok(length) if size == 0 => Outcome::Done(length as i64),
        Ok(length) => {
            buffer.truncate(length);
            Outcome::Bytes(buffer)
        }
        Err(errno) => Outcome::Failed(errno.raw_os_error()),
    }
}

/// In three pieces, as on the host's side.
fn pieces(buffer: &mut [u8]) -> [&mut [u8]; 3] {
    let (first, rest) = buffer.split_at_mut(buffer.len() / 3);
    let (second, third) = rest.split_at_mut(rest.len() / 7);
    [first, second, third]
}

fn stamp(time: Timespec) -> Stamp {
    Stamp::At(time.tv_sec, time.tv_nsec as u32)
}

fn timespec(time: Time) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanos }
}

fn from_stat(stat: &quietline::abi::Stat) -> Stat {
    Stat {
        dev: stat.st_dev,
        ino: stat.st_ino,
        mode: stat.st_mode,
        nlink: stat.st_nlink,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: (libc::major(stat.st_rdev), libc::minor(stat.st_rdev)),
        size: stat.st_size,
        blksize: stat.st_blksize.into(),
        blocks: stat.st_blocks as i64,
        atime: stamp(stat.st_atim),
        mtime: stamp(stat.st_mtim),
        ctime: stamp(stat.st_ctim),
        btime: Stamp::Unknown,
    }
}

fn stat(result: Result<quietline::abi::Stat, Errno>) -> Outcome {
    match result {
        Ok(stat) => Outcome::Stat(Box::new(from_stat(&stat).masked(STATX_BASIC))),
        Err(errno) => Outcome::Failed(errno.raw_os_error()),
    }
}

fn statx(result: Result<quietline::abi::Statx, Errno>, mask: u32) -> Outcome {
    match result {
        Ok(statx) => {
            let missing = mask & (STATX_BASIC | libc::STATX_BTIME) & !statx.stx_mask;
            assert_eq!(missing, 0, "all that is asked for is told");
            let stat = Stat { btime: stamp(statx.stx_btime), ..from_stat(&statx.stat) };
            Outcome::Stat(Box::new(stat.masked(mask)))
        }
        Err(errno) => Outcome::Failed(errno.raw_os_error()),
    }
}

fn statfs(result: Result<quietline::abi::StatFs, Errno>) -> Outcome {
    match result {
        Ok(s) => Outcome::Statfs(Statfs {
            bsize: s.f_bsize,
            blocks: s.f_blocks,
            bfree: s.f_bfree,
            bavail: s.f_bavail,
            files: s.f_files,
            ffree: s.f_ffree,
            namelen: s.f_namelen,
        }),
        Err(errno) => Outcome::Failed(errno.raw_os_error()),
    }
}

impl Actor for Mine<'_> {
    fn dents(&mut self, fd: i32, size: usize) -> Result<Vec<Dent>, i32> {
        let mut buffer = vec![0u8; size];
        let length = self.0.getdents64(fd, &mut buffer).map_err(Errno::raw_os_error)?;
        let dents = quietline::dirents(&buffer[..length]);
        Ok(dents
            .map(|d| Dent { name: d.name.to_vec(), ino: d.ino, kind: d.kind, next: d.next })
            .collect())
    }

    fn events(&mut self, buffer: &mut [u8]) -> Result<usize, i32> {
        self.0.read(WATCHER, buffer).map_err(Errno::raw_os_error)
    }

    fn call(&mut self, call: &Call) -> Outcome {
        let p = self.0;
        match call {
            &Call::Become { uid, gid, group } => {
                let all = p.setgroups(&[group]).and_then(|()| p.setresgid(gid, gid, gid));
                unit(all.and_then(|()| p.setresuid(uid, uid, uid)))
            }
            &Call::Setresuid { real, effective, saved } => {
                unit(p.setresuid(real, effective, saved))
            }
            &Call::Setresgid { real, effective, saved } => {
                unit(p.setresgid(real, effective, saved))
            }
            &Call::Setfsuid { uid } => number(p.setfsuid(uid)),
            &Call::Setfsgid { gid } => number(p.setfsgid(gid)),
            &Call::Setgroups { groups, first } => {
                unit(p.setgroups(&(first..).take(groups as usize).collect::<Vec<u32>>()))
            }
            Call::Umask { mask } => number(Ok(p.umask(mask.0))),
            Call::Chdir { path } => unit(p.chdir(&path.0)),
            Call::Fchdir { fd } => unit(p.fchdir(fd.0)),
            Call::Chroot { path } => unit(p.chroot(&path.0)),
            &Call::Getcwd { size } => match p.getcwd() {
                Ok(path) if path.len() >= size => Outcome::Failed(libc::ERANGE),
                Ok(path) => Outcome::Bytes(path),
                Err(errno) => Outcome::Failed(errno.raw_os_error()),
            },
            Call::Openat { at, path, flags, mode } => {
                number(p.openat(at.0, &path.0, flags.0 as i32, mode.0))
            }
            Call::Openat2 { at, path, flags, mode, resolve } => {
                let how = OpenHow { flags: flags.0, mode: mode.0.into(), resolve: resolve.0 };
                number(p.openat2(at.0, &path.0, &how))
            }
            Call::Close { fd } => unit(p.close(fd.0)),
            Call::Dup { fd } => number(p.dup(fd.0)),
            Call::Dup3 { old, new, flags } => number(p.dup3(old.0, new.0, flags.0 as i32)),
            Call::Getfd { fd } => number(p.fcntl(fd.0, F_GETFD, 0)),
            Call::Getfl { fd } => number(p.fcntl(fd.0, F_GETFL, 0)),
            Call::Setfl { fd, flags } => number(p.fcntl(fd.0, F_SETFL, flags.0)),
            _ => self.data(call),
        }
    }
}

impl Mine<'_> {
    fn data(&self, call: &Call) -> Outcome {
        let p = self.0;
        match *call {
            Call::Read { fd, length } => filled(length, |b| p.read(fd.0, b)),
            Call::Pread { fd, length, offset } => filled(length, |b| p.pread(fd.0, b, offset)),
            Call::Readv { fd, length } => filled(length, |b| p.readv(fd.0, &mut pieces(b))),
            Call::Preadv { fd, length, offset } => {
                filled(length, |b| p.preadv(fd.0, &mut pieces(b), offset))
            }
            Call::Write { fd, length, fill } => number(p.write(fd.0, &pattern(length, fill))),
            Call::Pwrite { fd, length, fill, offset } => {
                number(p.pwrite(fd.0, &pattern(length, fill), offset))
            }
            Call::Writev { fd, length, fill } => {
                number(p.writev(fd.0, &pieces(&mut pattern(length, fill)).map(|piece| &*piece)))
            }
            Call::Pwritev { fd, length, fill, offset } => number(p.pwritev(
                fd.0,
                &pieces(&mut pattern(length, fill)).map(|piece| &*piece),
                offset,
            )),
            Call::Lseek { fd, offset, whence } => number(p.lseek(fd.0, offset, whence)),
            Call::Truncate { ref path, length } => unit(p.truncate(&path.0, length)),
            Call::Ftruncate { fd, length } => unit(p.ftruncate(fd.0, length)),
            Call::Fallocate { fd, mode, offset, length } => {
                unit(p.fallocate(fd.0, mode.0 as i32, offset, length))
            }
            Call::CopyFileRange { from, from_offset, to, to_offset, length, flags } => {
                let (mut here, mut there) = (from_offset, to_offset);
                let here = (from_offset != -1).then_some(&mut here);
                let there = (to_offset != -1).then_some(&mut there);
                number(p.copy_file_range(from.0, here, to.0, there, length, flags))
            }
            Call::Fsync { fd } => unit(p.fsync(fd.0)),
            Call::Fdatasync { fd } => unit(p.fdatasync(fd.0)),
            Call::Syncfs { fd } => unit(p.syncfs(fd.0)),
            _ => self.names(call),
        }
    }

    fn names(&self, call: &Call) -> Outcome {
        let p = self.0;
        match call {
            Call::Mkdirat { at, path, mode } => unit(p.mkdirat(at.0, &path.0, mode.0)),
            Call::Mknodat { at, path, mode, major, minor } => {
                unit(p.mknodat(at.0, &path.0, mode.0, libc::makedev(*major, *minor)))
            }
            Call::Symlinkat { target, at, path } => unit(p.symlinkat(&target.0, at.0, &path.0)),
            Call::Linkat { from, old, to, new, flags } => {
                unit(p.linkat(from.0, &old.0, to.0, &new.0, flags.0 as i32))
            }
            Call::Unlinkat { at, path, flags } => unit(p.unlinkat(at.0, &path.0, flags.0 as i32)),
            Call::Renameat2 { from, old, to, new, flags } => {
                unit(p.renameat2(from.0, &old.0, to.0, &new.0, flags.0 as u32))
            }
            Call::Readlinkat { at, path, size } => {
                filled(*size, |b| p.readlinkat(at.0, &path.0, b))
            }
            Call::Fstatat { at, path, flags } => stat(p.fstatat(at.0, &path.0, flags.0 as i32)),
            Call::Fstat { fd } => stat(p.fstat(fd.0)),
            Call::Statx { at, path, flags, mask } => {
                statx(p.statx(at.0, &path.0, flags.0 as i32, *mask), *mask)
            }
            Call::Statfs { path } => statfs(p.statfs(&path.0)),
            Call::Fstatfs { fd } => statfs(p.fstatfs(fd.0)),
            Call::Faccessat2 { at, path, mode, flags } => {
                unit(p.faccessat2(at.0, &path.0, *mode, flags.0 as i32))
            }
            Call::Fchmod { fd, mode } => unit(p.fchmod(fd.0, mode.0)),
            Call::Fchmodat2 { at, path, mode, flags } => {
                unit(p.fchmodat2(at.0, &path.0, mode.0, flags.0 as i32))
            }
            Call::Fchown { fd, uid, gid } => unit(p.fchown(fd.0, *uid, *gid)),
            Call::Fchownat { at, path, uid, gid, flags } => {
                unit(p.fchownat(at.0, &path.0, *uid, *gid, flags.0 as i32))
            }
            Call::Utimensat { at, path, atime, mtime, flags } => {
                let times = [*atime, *mtime].map(timespec);
                unit(p.utimensat(at.0, Some(&path.0), Some(times), flags.0 as i32))
            }
            Call::Futimens { fd, atime, mtime } => {
                unit(p.futimens(fd.0, Some([*atime, *mtime].map(timespec))))
            }
            _ => self.xattrs(call),
        }
    }

    fn xattrs(&self, call: &Call) -> Outcome {
        let p = self.0;
        match call {
            Call::Setxattr { path, follow, name, size, fill, flags } => {
                let value = pattern(*size, *fill);
                let set = if *follow { Process::setxattr } else { Process::lsetxattr };
                unit(set(p, &path.0, &name.0, &value, flags.0 as i32))
            }
            Call::Fsetxattr { fd, name, size, fill, flags } => {
                unit(p.fsetxattr(fd.0, &name.0, &pattern(*size, *fill), flags.0 as i32))
            }
            Call::Getxattr { path, follow, name, size } => {
                let get = if *follow { Process::getxattr } else { Process::lgetxattr };
                filled(*size, |b| get(p, &path.0, &name.0, b))
            }
            Call::Fgetxattr { fd, name, size } => filled(*size, |b| p.fgetxattr(fd.0, &name.0, b)),
            Call::Listxattr { path, follow, size } => {
                let list = if *follow { Process::listxattr } else { Process::llistxattr };
                filled(*size, |b| list(p, &path.0, b))
            }
            Call::Flistxattr { fd, size } => filled(*size, |b| p.flistxattr(fd.0, b)),
            Call::Removexattr { path, follow, name } => {
                let remove = if *follow { Process::removexattr } else { Process::lremovexattr };
                unit(remove(p, &path.0, &name.0))
            }
            Call::Fremovexattr { fd, name } => unit(p.fremovexattr(fd.0, &name.0)),
            Call::Watch { path, mask } => {
                number(p.inotify_add_watch(WATCHER, &path.0, mask.0 as u32))
            }
            Call::Unwatch { wd } => unit(p.inotify_rm_watch(WATCHER, *wd)),
            _ => self.locks(call),
        }
    }

    fn locks(&self, call: &Call) -> Outcome {
        let p = self.0;
        let flock = |ty: i32, whence: i32, start: i64, length: i64| Flock {
            l_type: ty as i16,
            l_whence: whence as i16,
            l_start: start,
            l_len: length,
            l_pid: 0,
        };
        match *call {
            Call::FlockNb { fd, operation } => unit(p.flock(fd.0, operation.0 as i32)),
            Call::Setlk { fd, ofd, ty, whence, start, length } => {
                let cmd = if ofd { libc::F_OFD_SETLK } else { libc::F_SETLK };
                unit(p.fcntl_lock(fd.0, cmd, &mut flock(ty, whence, start, length)))
            }
            Call::Getlk { fd, ofd, ty, whence, start, length } => {
                let cmd = if ofd { libc::F_OFD_GETLK } else { libc::F_GETLK };
                let mut lock = flock(ty, whence, start, length);
                match p.fcntl_lock(fd.0, cmd, &mut lock) {
                    Ok(()) => Outcome::Lock(Lock {
                        ty: lock.l_type.into(),
                        whence: lock.l_whence.into(),
                        start: lock.l_start,
                        length: lock.l_len,
                        pid: lock.l_pid,
                    }),
                    Err(errno) => Outcome::Failed(errno.raw_os_error()),
                }
            }
            ref other => panic!("{other:?} is no system call"),
        }
    }
}
