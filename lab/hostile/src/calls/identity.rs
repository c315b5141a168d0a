//! Processes, their users and their capabilities, and the kernel as a whole.

use super::{Call, calls, nothing};
use crate::guest::{FILES, populate};
use crate::kind::Kind::{Any, Bits, Fd, Id, One, Only, Path, Pid, Seed};
use crate::random::Random;
use quietline::{Capabilities, Config, Errno, Kernel, Rlimit, SigChld};

#[rustfmt::skip] // a table
pub(super) const CALLS: &[Call] = calls! {
    1 getpid() |c, _| Ok(c.p.getpid().into());
    1 kernel() |c, _| Ok(std::ptr::from_ref(c.p.kernel()) as i64);
    // A child takes the place of a process, which ends with its last call.
    3 fork(Seed) |c, a| {
        let child = c.p.fork()?;
        c.guest.replace(a.0[0] as usize, child);
        Ok(0)
    };
    2 fork_as(Pid, Seed) |c, a| {
        let child = c.p.fork_as(a.int(0))?;
        c.guest.replace(a.0[1] as usize, child);
        Ok(0)
    };
    1 process_as(Pid) |c, a| c.p.kernel().process_as(a.int(0)).map(|p| p.getpid().into());
    2 exit(Any) |c, a| c.p.fork().map(|child| { child.exit(a.int(0)); 0 });
    1 exit_by_signal(Only(&[1, 9, 64])) |c, a| {
        c.p.fork().map(|child| { child.exit_by_signal(a.int(0)); 0 })
    };
    1 exec() |c, _| c.p.exec().map(nothing);
    2 getppid() |c, _| Ok(c.p.getppid().into());
    2 getpgid(Pid) |c, a| c.p.getpgid(a.int(0)).map(i64::from);
    2 getsid(Pid) |c, a| c.p.getsid(a.int(0)).map(i64::from);
    3 setpgid(Pid, Pid) |c, a| c.p.setpgid(a.int(0), a.int(1)).map(nothing);
    1 setsid() |c, _| c.p.setsid().map(i64::from);
    2 set_sigchld(One(&[0, 1])) |c, a| {
        c.p.set_sigchld(if a.0[0] == 1 { SigChld::Signal } else { SigChld::Ignore });
        Ok(0)
    };
    6 waitid(One(&[0, 1, 2]), Pid, Bits(&[1, 2, 4, 8, 0x0100_0000])) |c, a| {
        Ok(c.p.waitid(a.int(0), a.int(1), a.int(2))?.map_or(0, |info| info.pid.into()))
    };
    2 waitid(Only(&[3]), Fd, Bits(&[1, 4])) |c, a| {
        Ok(c.p.waitid(a.int(0), a.int(1), a.int(2))?.map_or(0, |info| info.pid.into()))
    };
    3 pidfd_open(Pid, One(&[0, 0, 0o4000])) |c, a| {
        c.descriptor(c.p.pidfd_open(a.int(0), a.int(1))?)
    };
    1 pidfd_file(Pid) |c, a| c.p.pidfd_file(a.int(0), 0).map(|_| 0);
    2 pidfd_send_signal(Fd, One(&[0, 1, 9, 34]), One(&[0, 1, 2, 4])) |c, a| {
        c.p.pidfd_send_signal(a.int(0), a.int(1), a.word(2)).map(nothing)
    };
    2 getrlimit(One(&[7, 11, 0])) |c, a| c.p.getrlimit(a.word(0)).map(|limit| limit.soft as i64);
    1 setrlimit(Only(&[0, 4, 11, 12]), Any, Any) |c, a| {
        c.p.setrlimit(a.word(0), Rlimit { soft: a.0[1] as u64, hard: a.0[2] as u64 }).map(nothing)
    };
    1 prlimit(Pid, Only(&[0, 4, 11, 12]), Any) |c, a| {
        let new = Rlimit { soft: 0, hard: a.0[2] as u64 };
        c.p.prlimit(a.int(0), a.word(1), Some(new)).map(|limit| limit.soft as i64)
    };
    // A new process of user 0 takes the place of a process.
    3 process(Seed) |c, a| {
        let process = c.p.kernel().process()?;
        populate(&process);
        c.guest.replace(a.0[0] as usize, process);
        Ok(0)
    };
    2 getresuid() |c, _| Ok(c.p.getresuid()[0].into());
    2 getresgid() |c, _| Ok(c.p.getresgid()[0].into());
    2 getgroups() |c, _| c.p.getgroups().map(|groups| groups.len() as i64);
    2 capabilities() |c, _| Ok(c.p.capabilities().bits() as i64);
    3 setresuid(Id, Id, Id) |c, a| {
        // Most processes keep their user for a while.
        c.p.setresuid(a.word(0), a.word(1), a.word(2)).map(nothing)
    };
    3 setresgid(Id, Id, Id) |c, a| c.p.setresgid(a.word(0), a.word(1), a.word(2)).map(nothing);
    3 setfsuid(Id) |c, a| c.p.setfsuid(a.word(0)).map(i64::from);
    3 setfsgid(Id) |c, a| c.p.setfsgid(a.word(0)).map(i64::from);
    3 setgroups(One(&[0, 1, 20, 65_537])) |c, a| {
        let groups: Vec<u32> = (0..a.0[0].clamp(0, 65_537) as u32).collect();
        c.p.setgroups(&groups).map(nothing)
    };
    2 set_capabilities(Any, Any) |c, a| {
        let [effective, permitted] =
            [a.0[0], a.0[1]].map(|bits| Capabilities::from_bits_truncate(bits as u64));
        c.p.set_capabilities(effective, permitted).map(nothing)
    };
    2 dumpable() |c, _| Ok(c.p.dumpable().into());
    2 set_dumpable(Any) |c, a| { c.p.set_dumpable(a.0[0] & 1 == 0); Ok(0) };
    6 chdir(Path) |c, a| c.p.chdir(a.path(0)).map(nothing);
    3 fchdir(Fd) |c, a| c.p.fchdir(a.int(0)).map(nothing);
    1 chroot(Path) |c, a| c.p.chroot(a.path(0)).map(nothing);
    1 unshare(One(&[0x2_0000, 0x200])) |c, a| c.p.unshare(a.int(0)).map(nothing);
    1 pivot_root(Path, Path) |c, a| c.p.pivot_root(a.path(0), a.path(1)).map(nothing);
    6 getcwd() |c, _| c.p.getcwd().map(|path| path.len() as i64);
    3 umask(Any) |c, a| Ok(c.p.umask(a.word(0)).into());
    1 shrink() |c, _| { c.p.kernel().shrink(); Ok(0) };
    2 slabinfo() |c, _| Ok(c.p.kernel().slabinfo().len() as i64);
    2 dentries() |c, _| Ok(c.p.kernel().dentries().nr_dentry);
    2 inodes() |c, _| Ok(c.p.kernel().inodes().nr_inodes);
    2 nr_dentry() |c, _| Ok(c.p.kernel().nr_dentry());
    2 nr_inodes() |c, _| Ok(c.p.kernel().nr_inodes());
    1 nr_files() |c, _| Ok(c.p.kernel().nr_files());
    1 file_max() |c, _| Ok(c.p.kernel().file_max() as i64);
    1 set_file_max(One(&[0, 100, 500])) |c, a| {
        // Few calls succeed while there are no files, so that lasts for a moment.
        c.p.kernel().set_file_max(a.0[0] as u64);
        let opened = c.p.eventfd(0, 0);
        c.p.kernel().set_file_max(FILES);
        c.p.close(opened?).map(nothing)
    };
    2 memory() |c, _| Ok(c.p.kernel().memory().slabs as i64);
    1 set_memory_limit(One(&[0, 4096, 1 << 20])) |c, a| {
        // For a moment, as above.
        c.p.kernel().set_memory_limit(Some(a.0[0] as usize));
        let opened = c.p.eventfd(0, 0);
        c.p.kernel().set_memory_limit(None);
        c.p.close(opened?).map(nothing)
    };
    // Another kernel, whose files have no descriptors here.
    1 boot(Seed) |c, a| {
        let kernel = Kernel::boot(Config::default().proc(a.0[0] & 1 == 0))?;
        let process = kernel.process()?;
        let fd = process.eventfd(1, 0)?;
        let installed = c.p.install_file(process.file(fd)?, 0);
        assert_eq!(installed, Err(Errno::INVAL), "a file of another kernel gets a descriptor");
        Ok(0)
    };
    // Makes and ends files of the user whose files no other user may have.
    40 victim(Seed) |c, a| {
        c.guest.victim().turn(&mut Random::new(&[a.0[0] as u64]));
        Ok(0)
    };
};
