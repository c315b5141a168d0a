//! Processes without the host's: calls that wait, numbers that the program chooses, and the order
//! in which a process ends.

use quietline::abi::*;
use quietline::{Config, Errno, Interrupt, Kernel, PollFd, Process, Shared, SigChld, SigInfo};
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
