//! Limits of processes, beside the host's.
#![allow(unsafe_code, reason = "system calls of the host, in a child")]

use quietline::abi::*;
use quietline::{Capabilities, Config, Errno, Kernel, Process, Rlimit};

/// User and group of a caller without capabilities.
const ID: u32 = 65_534;

/// A call: the process, the limit, and the new value.
type Call = (LimitOwner, u32, Option<Rlimit>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitOwner {
    Own,
    /// Those of a process of the same user.
    Equal,
    /// Those of a process of root.
    Other,
}

/// Limits that hinder no test: of core dumps, locks, message queues, and time of its own.
const KEPT: [u32; 5] = [4, 10, RLIMIT_SIGPENDING, 12, 15];

/// The calls. Each starts with what the ones before have left.
fn calls() -> Vec<Call> {
    let mut calls = Vec::new();
    for resource in KEPT.into_iter().chain([RLIMIT_NOFILE, 16, u32::MAX]) {
        for (soft, hard) in
            [(900, 1000), (1000, 1000), (7, 900), (901, 900), (900, 901), (0, 500), (500, 500)]
        {
            for whose in [LimitOwner::Own, LimitOwner::Equal, LimitOwner::Other] {
                calls.push((whose, resource, Some(Rlimit { soft, hard })));
                calls.push((whose, resource, None));
            }
        }
    }
    let much = |limit| Some(Rlimit { soft: limit, hard: limit });
    calls.push((LimitOwner::Own, RLIMIT_NOFILE, much(RLIM_INFINITY)));
    calls.push((LimitOwner::Own, RLIMIT_NOFILE, much(1 << 20)));
    calls
}

/// An error, and the old limit.
type Answer = (i32, Option<Rlimit>);

fn ours(p: &Process, pids: [i32; 3], calls: &[Call]) -> Vec<Answer> {
    let call = |&(whose, resource, new): &Call| match p.prlimit(pids[whose as usize], resource, new)
    {
        Ok(old) => (0, Some(old)),
        Err(errno) => (errno.raw_os_error(), None),
    };
    calls.iter().map(call).collect()
}

fn host(pids: [i32; 3], calls: &[Call]) -> Vec<Answer> {
    let call = |&(whose, resource, new): &Call| {
        let new = new.map(|Rlimit { soft, hard }| [soft, hard]);
        let new = new.as_ref().map_or(std::ptr::null(), |new| new.as_ptr());
        let mut old = [0_u64; 2];
        let pid = pids[whose as usize];
        // SAFETY: the structures are as the kernel wants them, of our own.
        let result =
            unsafe { libc::syscall(libc::SYS_prlimit64, pid, resource, new, old.as_mut_ptr()) };
        let [soft, hard] = old;
        match result {
            0 => (0, Some(Rlimit { soft, hard })),
            _ => (std::io::Error::last_os_error().raw_os_error().unwrap_or(0), None),
        }
    };
    calls.iter().map(call).collect()
}

/// The limits of the host's process, with which both sides begin.
fn host_limits() -> Vec<(u32, libc::rlimit)> {
    let get = |resource: u32| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a structure of our own.
        assert_eq!(unsafe { libc::getrlimit(resource as _, &mut limit) }, 0);
        (resource, limit)
    };
    KEPT.into_iter().chain([RLIMIT_NOFILE]).map(get).collect()
}

/// Whether this process may raise hard limits.
fn may_raise() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).expect("a set");
    u64::from_str_radix(set, 16).unwrap() & Capabilities::SYS_RESOURCE.bits() != 0
}

/// A process of the host that sleeps, which is ended when this is dropped.
struct Sleeper(std::process::Child);

impl Sleeper {
    fn new(id: u32) -> Self {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new("/bin/sleep");
        command.arg("600").uid(id).gid(id);
        Self(command.spawn().expect("a process of the host"))
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes the calling thread of the host a user without capabilities, if it is to be.
fn become_user(capabilities: bool) {
    // SAFETY: calls of the thread on itself.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()), 0);
        assert_eq!(libc::syscall(libc::SYS_setresgid, ID, ID, ID), 0);
        if capabilities {
            assert_eq!(libc::prctl(libc::PR_SET_KEEPCAPS, 1), 0);
        }
        assert_eq!(libc::syscall(libc::SYS_setresuid, ID, ID, ID), 0);
        if capabilities {
            let set = Capabilities::SYS_RESOURCE.bits() as u32;
            let header = [0x2008_0522_u32, 0];
            let data = [set, set, 0, 0, 0, 0];
            assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()), 0);
        }
    }
}

#[test]
fn limits_are_raised_by_whom_the_host_lets() {
    quietline_testing::isolated!();
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        return quietline_testing::skip_without_root("this program cannot act as other users");
    }
    let calls = calls();
    let may_raise = may_raise();
    if !may_raise {
        println!("this program may not raise limits: as a caller without capabilities only");
    }
    let begin = host_limits();
    for capabilities in [true, false].into_iter().filter(|raises| may_raise || !raises) {
        let sleepers = [Sleeper::new(ID), Sleeper::new(0)];
        let pids = [0, sleepers[0].pid(), sleepers[1].pid()];
        let theirs = {
            let calls = calls.clone();
            std::thread::spawn(move || {
                become_user(capabilities);
                host(pids, &calls)
            })
        };
        let theirs = theirs.join().unwrap();
        drop(sleepers);
        for (resource, limit) in begin.iter().filter(|_| may_raise) {
            // SAFETY: a structure of our own.
            assert_eq!(unsafe { libc::setrlimit(*resource as _, limit) }, 0, "{resource}");
        }

        let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
        let root = kernel.process().unwrap();
        for (resource, libc::rlimit { rlim_cur: soft, rlim_max: hard }) in &begin {
            root.setrlimit(*resource, Rlimit { soft: *soft, hard: *hard }).unwrap();
        }
        let [p, equal, other] = [(); 3].map(|()| root.fork().unwrap());
        for user in [&p, &equal] {
            user.setgroups(&[]).unwrap();
            user.setresgid(ID, ID, ID).unwrap();
        }
        equal.setresuid(ID, ID, ID).unwrap();
        if capabilities {
            // The saved user keeps them, and is not asked here.
            p.setresuid(ID, ID, 0).unwrap();
            p.set_capabilities(Capabilities::SYS_RESOURCE, Capabilities::SYS_RESOURCE).unwrap();
        } else {
            p.setresuid(ID, ID, ID).unwrap();
        }
        let ours = ours(&p, [0, equal.getpid(), other.getpid()], &calls);
        let (mut allowed, mut refused) = (0, 0);
        for ((call, host), here) in calls.iter().zip(theirs).zip(ours) {
            assert_eq!(here, host, "{call:?}, with capabilities: {capabilities}");
            *(if host.0 == 0 { &mut allowed } else { &mut refused }) += 1;
        }
        assert!(allowed > 20 && refused > 50, "{allowed} {refused}");
    }
}

#[test]
fn limits_are_inherited_and_obeyed() {
    let kernel = Kernel::boot(Config::default().nofile(20)).unwrap();
    let p = kernel.process().unwrap();
    assert_eq!(p.getrlimit(RLIMIT_NOFILE), Ok(Rlimit { soft: 20, hard: 20 }));
    p.setrlimit(RLIMIT_NOFILE, Rlimit { soft: 2, hard: 10 }).unwrap();
    p.setrlimit(RLIMIT_SIGPENDING, Rlimit { soft: 3, hard: 3 }).unwrap();
    let child = p.fork().unwrap();
    for p in [&p, &child] {
        assert_eq!(p.getrlimit(RLIMIT_NOFILE), Ok(Rlimit { soft: 2, hard: 10 }));
        let signals = p.signalfd(-1, u64::MAX, SFD_NONBLOCK).unwrap();
        assert_eq!((p.eventfd(0, 0), p.eventfd(0, 0)), (Ok(1), Err(Errno::MFILE)));
        // Of five, as many wait as may.
        (0..5).for_each(|_| p.kill(p.getpid(), 40).unwrap());
        let read = |p: &Process| p.read(signals, &mut [0; 1280]).unwrap() / 128;
        assert_eq!(read(p), 3);
        assert_eq!(p.setrlimit(RLIMIT_NOFILE, Rlimit { soft: 3, hard: 11 }), Err(Errno::PERM));
        p.setrlimit(RLIMIT_NOFILE, Rlimit { soft: 3, hard: 9 }).unwrap();
        assert_eq!(p.eventfd(0, 0), Ok(2));
    }
    // The program may raise both.
    child.set_nofile(30).unwrap();
    assert_eq!(child.getrlimit(RLIMIT_NOFILE), Ok(Rlimit { soft: 30, hard: 30 }));
    child.set_nofile(5).unwrap();
    assert_eq!(child.getrlimit(RLIMIT_NOFILE), Ok(Rlimit { soft: 5, hard: 30 }));
    assert_eq!(p.nofile(), 3);
}

/// Root of a kernel that is not privileged cannot pass the limits that the program has set.
#[test]
fn no_process_of_an_unprivileged_kernel_raises_hard_limits() {
    for privileged in [false, true] {
        let config = Config::default().owner(0, 0).privileged(privileged).nofile(20);
        let p = Kernel::boot(config).unwrap().process().unwrap();
        let child = p.fork().unwrap();
        let expected = if privileged { Ok(()) } else { Err(Errno::PERM) };
        for resource in [RLIMIT_NOFILE, RLIMIT_SIGPENDING] {
            let hard = p.getrlimit(resource).unwrap().hard + 1;
            let more = Rlimit { soft: 1, hard };
            assert_eq!(p.setrlimit(resource, more), expected);
            assert_eq!(p.prlimit(child.getpid(), resource, Some(more)).map(drop), expected);
            assert_eq!(p.setrlimit(resource, Rlimit { soft: 1, hard: 10 }), Ok(()));
        }
    }
}
