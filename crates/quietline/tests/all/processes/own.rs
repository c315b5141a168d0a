//! Processes without the host's: calls that wait, numbers that the program chooses, and the order
//! in which a process ends.

use quietline::abi::*;
use quietline::{Config, Errno, Interrupt, Kernel, PollFd, Process, Shared, SigChld, SigInfo};
use quietline_testing::heap;
use quietline_vfs::signalfd::MOST;
use std::thread;
use std::time::Duration;

fn first() -> Process {
    let p = Kernel::boot(Config::default().owner(0, 0).proc(true)).unwrap().process().unwrap();
    p.set_sigchld(SigChld::Signal);
    p
}

fn exited(child: i32, status: i32) -> Result<Option<SigInfo>, Errno> {
    Ok(Some(SigInfo { signo: libc::SIGCHLD, code: CLD_EXITED, pid: child, uid: 0, status }))
}

#[test]
fn a_parent_waits_for_the_end_of_a_child() {
    let p = first();
    for which in [P_ALL, P_PID, P_PGID, P_PIDFD] {
        let child = p.fork().unwrap();
        let pid = child.getpid();
        child.setpgid(0, 0).unwrap();
        let fd = p.pidfd_open(pid, 0).unwrap();
        let id = if which == P_PIDFD { fd } else { pid };
        thread::scope(|scope| {
            let waiter = scope.spawn(|| p.waitid(which, id, WEXITED));
            thread::sleep(Duration::from_millis(20));
            // The end of another process, and signals, are no end of this one.
            p.kill(0, libc::SIGUSR1).unwrap();
            assert!(!waiter.is_finished());
            child.exit(3);
            assert_eq!(waiter.join().unwrap(), exited(pid, 3), "{which}");
        });
        p.close(fd).unwrap();
    }
}

#[test]
fn poll_waits_for_the_end_of_any_process() {
    let p = first();
    let (child, other) = (p.fork().unwrap(), p.fork().unwrap());
    let fd = other.pidfd_open(child.getpid(), 0).unwrap();
    let events = EPOLLIN as i16;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut fds = [PollFd::new(fd, events)];
            (other.poll(&mut fds, -1), fds[0].revents)
        });
        thread::sleep(Duration::from_millis(20));
        drop(child);
        assert_eq!(waiter.join().unwrap(), (Ok(1), events));
    });
    // Its parent has not waited for it, and then it has.
    let mut fds = [PollFd::new(fd, 0)];
    assert_eq!(other.poll(&mut fds, 0), Ok(0));
    p.waitid(P_ALL, 0, WEXITED).unwrap();
    assert_eq!((other.poll(&mut fds, -1), fds[0].revents), (Ok(1), EPOLLHUP as i16));
    let info = other.open(format!("/proc/self/fdinfo/{fd}"), O_RDONLY, 0).unwrap();
    let mut text = [0; 200];
    let n = other.read(info, &mut text).unwrap();
    let text = str::from_utf8(&text[..n]).unwrap();
    assert!(text.ends_with("\nPid:\t-1\nNSpid:\t-1\n"), "{text}");
    assert_eq!(other.fd_name(fd).unwrap(), "anon_inode:[pidfd]");
    for result in [other.read(fd, &mut [0; 1]), other.write(fd, &[0])] {
        assert_eq!(result, Err(Errno::INVAL));
    }
    assert_eq!(other.lseek(fd, 0, SEEK_SET), Err(Errno::SPIPE));
}

#[test]
fn an_interrupt_ends_a_wait_and_ignored_children_end_it_with_an_error() {
    let p = first();
    let child = p.fork().unwrap();
    let interrupt = Shared::new(Interrupt::new()).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let _entered = Interrupt::enter(&interrupt);
            p.waitid(P_ALL, 0, WEXITED)
        });
        thread::sleep(Duration::from_millis(20));
        interrupt.raise();
        assert_eq!(waiter.join().unwrap(), Err(Errno::INTR));
    });
    p.set_sigchld(SigChld::Ignore);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| p.waitid(P_ALL, 0, WEXITED));
        thread::sleep(Duration::from_millis(20));
        drop(child);
        assert_eq!(waiter.join().unwrap(), Err(Errno::CHILD));
    });
    assert_eq!(p.sigpending(), 0);
}

#[test]
fn a_program_chooses_numbers() {
    let kernel = Kernel::boot(Config::default()).unwrap();
    let p = kernel.process_as(7).unwrap();
    assert_eq!((p.getpid(), p.getppid(), p.getsid(0), p.getpgid(0)), (7, 0, Ok(7), Ok(7)));
    for pid in [0, -1, i32::MIN, i32::MAX, 1 << 22] {
        assert_eq!(p.fork_as(pid).map(drop), Err(Errno::INVAL), "{pid}");
    }
    assert_eq!(p.fork_as(7).map(drop), Err(Errno::EXIST));
    let child = p.fork_as(4_194_303).unwrap();
    assert_eq!((child.getpid(), child.getppid(), child.getsid(0)), (4_194_303, 7, Ok(7)));
    // Other numbers go on where they were.
    let [one, two] = [(); 2].map(|()| p.fork().unwrap());
    assert_eq!((one.getpid(), two.getpid()), (1, 2));
    // The number of a group is in use as long as the group is, and passed over.
    let leader = p.fork_as(3).unwrap();
    leader.setpgid(0, 0).unwrap();
    p.setpgid(2, 3).unwrap();
    drop(leader);
    assert_eq!((p.kill(3, 0), p.kill(-3, 0)), (Err(Errno::SRCH), Ok(())));
    assert_eq!(p.fork_as(3).map(drop), Err(Errno::EXIST));
    assert_eq!(p.fork().unwrap().getpid(), 4);
    drop(two);
    assert_eq!(p.kill(-3, 0), Err(Errno::SRCH));
    assert_eq!(p.fork_as(3).unwrap().getpid(), 3);
}

#[test]
fn a_parent_that_has_waited_finds_nothing_of_the_child() {
    let p = first();
    p.mkdir("/m", 0o755).unwrap();
    p.mount("", "/m", "tmpfs", 0).unwrap();
    let child = p.fork().unwrap();
    child.chdir("/m").unwrap();
    let [read, write] = p.pipe2(0).unwrap();
    child.open("/m", O_RDONLY, 0).unwrap();
    p.close(write).unwrap();
    let pid = child.getpid();
    assert_eq!(p.umount2("/m", 0), Err(Errno::BUSY));
    thread::scope(|scope| {
        scope.spawn(|| drop(child));
        assert_eq!(p.waitid(P_PID, pid, WEXITED), exited(pid, 0));
        assert_eq!(p.umount2("/m", 0), Ok(()), "neither its files nor its places are left");
    });
    assert_eq!(p.read(read, &mut [0; 1]), Ok(0));
    assert_eq!(p.stat(format!("/proc/{pid}")).map(drop), Err(Errno::NOENT));
}

#[test]
fn orphans_of_a_kernel_without_a_first_process_have_no_parent() {
    let p = first();
    let middle = p.fork().unwrap();
    let (orphan, zombie) = (middle.fork().unwrap(), middle.fork().unwrap());
    let pid = zombie.getpid();
    drop(zombie);
    drop(middle);
    assert_eq!(orphan.getppid(), 1);
    // The first process waits for both.
    assert_eq!(p.waitid(P_PID, pid, WEXITED), exited(pid, 0));
    drop(p);
    assert_eq!((orphan.getppid(), orphan.getsid(0)), (0, Ok(1)), "the session stays");
    assert_eq!((orphan.kill(1, 0), orphan.kill(0, 0)), (Err(Errno::SRCH), Ok(())));
}

/// A first process may be the child of another one, which ends before it.
#[test]
fn the_first_process_is_not_its_own_parent() {
    let kernel = Kernel::boot(Config::default()).unwrap();
    let parent = kernel.process_as(7).unwrap();
    let (first, other) = (parent.fork_as(1).unwrap(), parent.fork().unwrap());
    assert_eq!((first.getppid(), other.getppid()), (7, 7));
    drop(parent);
    assert_eq!((first.getppid(), other.getppid()), (0, 1));
    assert_eq!(first.waitid(P_ALL, 0, WEXITED | WNOHANG), Ok(None));
    assert_eq!(first.waitid(P_PID, 1, WEXITED | WNOHANG), Err(Errno::CHILD));
    drop(other);
    assert_eq!(first.waitid(P_ALL, 0, WEXITED), Err(Errno::CHILD));
    drop(first);
    let next = kernel.process().unwrap();
    assert_eq!(next.fork_as(7).unwrap().getppid(), next.getpid());
}

/// A parent that ignores its children gets the zombies of one that has not: their numbers are free,
/// but for that of a group.
#[test]
fn zombies_end_with_their_parent() {
    let p = first();
    p.set_sigchld(SigChld::Ignore);
    let middle = p.fork().unwrap();
    middle.set_sigchld(SigChld::Signal);
    let (leader, member) = (middle.fork().unwrap(), middle.fork().unwrap());
    let group = leader.getpid();
    leader.setpgid(0, 0).unwrap();
    middle.setpgid(member.getpid(), group).unwrap();
    let pids: Vec<i32> = (0..20).map(|_| middle.fork().unwrap().getpid()).collect();
    drop(leader);
    for pid in pids.iter().chain([&group]) {
        assert_eq!((p.kill(*pid, 0), p.fork_as(*pid).map(drop)), (Ok(()), Err(Errno::EXIST)));
    }
    drop(middle);
    for pid in pids {
        assert_eq!(p.kill(pid, 0), Err(Errno::SRCH));
        assert_eq!(p.fork_as(pid).unwrap().getpid(), pid);
    }
    assert_eq!((p.kill(group, 0), p.kill(-group, 0)), (Err(Errno::SRCH), Ok(())));
    assert_eq!(p.fork_as(group).map(drop), Err(Errno::EXIST));
    assert_eq!((member.getppid(), p.waitid(P_ALL, 0, WEXITED | WNOHANG)), (1, Ok(None)));
    drop(member);
    assert_eq!(p.waitid(P_ALL, 0, WEXITED), Err(Errno::CHILD));
    assert_eq!(p.fork_as(group).unwrap().getpid(), group);
}

#[test]
fn processes_and_zombies_have_a_limit() {
    let kernel = Kernel::boot(Config::default().pids_max(3)).unwrap();
    let p = kernel.process().unwrap();
    p.set_sigchld(SigChld::Signal);
    let (one, _two) = (p.fork().unwrap(), p.fork().unwrap());
    let refused = [p.fork().map(drop), p.fork_as(90).map(drop), kernel.process().map(drop)];
    assert_eq!(refused, [Err(Errno::AGAIN); 3]);
    assert_eq!(p.fork_as(1).map(drop), Err(Errno::EXIST));
    drop(one);
    assert_eq!(p.fork().map(drop), Err(Errno::AGAIN), "a zombie counts");
    p.waitid(P_ALL, 0, WEXITED).unwrap();
    assert_eq!(p.fork_as(90).map(drop), Ok(()));
}

#[test]
fn a_zombie_keeps_no_signals() {
    quietline_testing::isolated!();
    heap::start();
    let p = first();
    let child = p.fork().unwrap();
    let pid = child.getpid();
    let before = heap::bytes();
    (0..MOST).for_each(|_| p.kill(pid, 40).unwrap());
    let kept = heap::bytes() - before;
    drop(child);
    assert_eq!(p.kill(pid, 40), Ok(()), "it is a zombie");
    let left = heap::bytes() - before;
    assert!(kept > 64 << 10 && left < 1 << 10, "{kept} {left}");
}

/// `kill(-1)` reaches all processes but the first one and the caller.
#[test]
fn a_signal_is_sent_to_all() {
    let p = first();
    let [a, b, c] = [(); 3].map(|()| p.fork().unwrap());
    assert_eq!(a.kill(-1, libc::SIGUSR1), Ok(()));
    let usr1 = 1 << (libc::SIGUSR1 - 1);
    assert_eq!([&p, &a, &b, &c].map(Process::sigpending), [0, 0, usr1, usr1]);
    assert_eq!(a.kill(-1, 65), Err(Errno::INVAL));
    // That no process may be signalled is no error, that there is none is one.
    let user = a.fork().unwrap();
    user.setresuid(5, 5, 5).unwrap();
    assert_eq!(user.kill(-1, libc::SIGUSR2), Ok(()));
    assert_eq!([&p, &a, &b, &c].map(Process::sigpending), [0, 0, usr1, usr1]);
    drop((b, c, user));
    assert_eq!(p.waitid(P_ALL, 0, WEXITED).map(|info| info.is_some()), Ok(true));
    assert_eq!(p.waitid(P_ALL, 0, WEXITED).map(|info| info.is_some()), Ok(true));
    assert_eq!(a.kill(-1, 0), Ok(()), "a zombie counts");
    assert_eq!(a.waitid(P_ALL, 0, WEXITED).map(|info| info.is_some()), Ok(true));
    assert_eq!(a.kill(-1, 0), Err(Errno::SRCH));
}

/// SIGCONT reaches processes of other users in the sender's session.
#[test]
fn a_session_may_be_continued() {
    let p = first();
    let (user, other) = (p.fork().unwrap(), p.fork().unwrap());
    user.setresuid(5, 5, 5).unwrap();
    for to in [p.getpid(), other.getpid(), 0] {
        let sent = [libc::SIGCONT, libc::SIGUSR1].map(|signo| user.kill(to, signo));
        // Of a group it is enough that the sender itself is reached.
        let usr1 = if to == 0 { Ok(()) } else { Err(Errno::PERM) };
        assert_eq!(sent, [Ok(()), usr1], "{to}");
    }
    other.setsid().unwrap();
    assert_eq!(user.kill(other.getpid(), libc::SIGCONT), Err(Errno::PERM));
}
