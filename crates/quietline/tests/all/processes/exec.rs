//! What `execve` changes in a process, beside the host's.
#![allow(unsafe_code, reason = "system calls of the host, in children")]

use quietline::abi::*;
use quietline::locks::{F_SETLK, F_WRLCK, Flock};
use quietline::{Config, Errno, Kernel, Process};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// "No change", where an id is set.
const KEEP: u32 = u32::MAX;
/// The first descriptor that is looked at.
const FIRST: i32 = 50;
/// Those that are looked at.
const FDS: std::ops::Range<i32> = FIRST..FIRST + 6;

/// The ids before the call.
#[derive(Debug, Clone, Copy)]
struct Ids {
    uids: [u32; 3],
    gids: [u32; 3],
    fsuid: u32,
}

const CASES: [Ids; 7] = [
    Ids { uids: [0; 3], gids: [0; 3], fsuid: KEEP },
    Ids { uids: [1000; 3], gids: [1000; 3], fsuid: KEEP },
    Ids { uids: [0, 1000, 0], gids: [0; 3], fsuid: KEEP },
    Ids { uids: [1000, 0, 0], gids: [0; 3], fsuid: KEEP },
    Ids { uids: [1000, 1000, 0], gids: [0, 1000, 0], fsuid: KEEP },
    Ids { uids: [0; 3], gids: [1000, 1000, 7], fsuid: 1000 },
    Ids { uids: [1000, 1001, 0], gids: [0; 3], fsuid: 1000 },
];

/// The state after the call.
#[derive(Debug, PartialEq, Eq, Default)]
struct ProcessView {
    fds: Vec<i32>,
    ids: String,
    has_capabilities: bool,
    pending: u64,
    /// The owner of a file in its directory of `/proc`.
    owner: String,
}

impl ProcessView {
    /// Notes what the text of `/proc/PID/status` has, but for signals.
    fn read_status(&mut self, status: &str) {
        for line in status.lines() {
            match line.split_once(":\t") {
                Some(("Uid" | "Gid", _)) => self.ids += line,
                Some(("CapEff", set)) => {
                    self.has_capabilities = u64::from_str_radix(set, 16).unwrap() != 0;
                }
                Some(("ShdPnd", set)) => self.pending = u64::from_str_radix(set, 16).unwrap(),
                _ => {}
            }
        }
    }
}

/// Returns the output of a command that a process with these ids executes.
fn output(ids: Ids, command: &[&str]) -> String {
    let mut child = Command::new(command[0]);
    child.args(&command[1..]).stdout(Stdio::piped()).env_clear();
    // SAFETY: system calls only, on the child.
    unsafe {
        child.pre_exec(move || {
            let set = 1_u64;
            let none = std::ptr::null_mut::<u64>();
            let how = libc::SIG_SETMASK;
            libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const set, none, 8_usize);
            libc::kill(libc::getpid(), libc::SIGHUP);
            for fd in 0..6 {
                let flags = if fd % 3 == 0 { F_DUPFD_CLOEXEC } else { F_DUPFD };
                assert_eq!(libc::fcntl(0, flags, FIRST + fd), FIRST + fd);
            }
            let ([r, e, s], [gr, ge, gs]) = (ids.uids, ids.gids);
            assert_eq!(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()), 0);
            assert_eq!(libc::syscall(libc::SYS_setresgid, gr, ge, gs), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, r, e, s), 0);
            if ids.fsuid != KEEP {
                libc::syscall(libc::SYS_setfsuid, ids.fsuid);
            }
            Ok(())
        });
    }
    let output = child.output().expect("a command of the host");
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn host(ids: Ids) -> ProcessView {
    let mut seen = ProcessView::default();
    let fds = output(ids, &["/bin/ls", "/proc/self/fd"]);
    seen.fds = fds.lines().map(|fd| fd.parse().unwrap()).filter(|fd| FDS.contains(fd)).collect();
    seen.fds.sort_unstable();
    seen.read_status(&output(ids, &["/bin/cat", "/proc/self/status"]));
    let owner = output(ids, &["/usr/bin/stat", "-c", "%u %g", "/proc/self/fd"]);
    seen.owner = owner.trim().to_owned();
    seen
}

fn ours(ids: Ids) -> ProcessView {
    let kernel = Kernel::boot(Config::default().privileged(true).proc(true)).unwrap();
    let root = kernel.process().unwrap();
    let p = root.fork().unwrap();
    p.kill(p.getpid(), libc::SIGHUP).unwrap();
    let zero = p.eventfd(0, 0).unwrap();
    for fd in 0..6 {
        let flags = if fd % 3 == 0 { F_DUPFD_CLOEXEC } else { F_DUPFD };
        assert_eq!(p.fcntl(zero, flags, (FIRST + fd) as u64), Ok(FIRST + fd));
    }
    let ([r, e, s], [gr, ge, gs]) = (ids.uids, ids.gids);
    p.setgroups(&[]).unwrap();
    p.setresgid(gr, ge, gs).unwrap();
    p.setresuid(r, e, s).unwrap();
    if ids.fsuid != KEEP {
        p.setfsuid(ids.fsuid).unwrap();
    }
    assert_eq!(root.setpgid(p.getpid(), 0), Ok(()));
    p.exec().unwrap();
    assert_eq!(root.setpgid(p.getpid(), root.getpid()), Err(Errno::ACCESS));
    // A child that is forked later has not called it.
    let child = p.fork().unwrap();
    assert_eq!(p.setpgid(child.getpid(), 0), Ok(()));
    drop(child);
    let fds = p.open_fds().unwrap().into_iter().filter(|fd| FDS.contains(fd)).collect();
    let mut seen = ProcessView { fds, pending: p.sigpending(), ..ProcessView::default() };
    let mut text = [0; 1000];
    let status = p.open("/proc/self/status", O_RDONLY, 0).unwrap();
    let n = p.read(status, &mut text).unwrap();
    seen.read_status(str::from_utf8(&text[..n]).unwrap());
    let stat = p.stat("/proc/self/fd").unwrap();
    seen.owner = format!("{} {}", stat.st_uid, stat.st_gid);
    seen
}

#[test]
fn exec_changes_what_it_changes_on_the_host() {
    quietline_testing::isolated!();
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return quietline_testing::skip_without_root("this program cannot act as other users");
    }
    for ids in CASES {
        assert_eq!(ours(ids), host(ids), "{ids:?}");
    }
}

/// A record lock goes with the descriptor that exec closes, and a file that is not closed keeps its
/// own.
#[test]
fn exec_ends_locks_of_files_that_it_closes() {
    let kernel = Kernel::boot(Config::default()).unwrap();
    let (p, other) = (kernel.process().unwrap(), kernel.process().unwrap());
    let files = [("/a", O_CLOEXEC), ("/b", 0)];
    let fds = files.map(|(path, flags)| p.open(path, O_CREAT | O_RDWR | flags, 0o600).unwrap());
    let lock = |of: &Process, fd: i32| {
        let mut lock = Flock { l_type: F_WRLCK, ..Flock::default() };
        of.fcntl_lock(fd, F_SETLK, &mut lock)
    };
    fds.iter().for_each(|fd| lock(&p, *fd).unwrap());
    p.exec().unwrap();
    let told = files.map(|(path, _)| lock(&other, other.open(path, O_RDWR, 0).unwrap()));
    assert_eq!(told, [Ok(()), Err(Errno::AGAIN)]);
}
