//! The host's side: real processes, each of which makes the calls that it is told by a pipe.
#![allow(unsafe_code, reason = "system calls of the host, in children")]

use super::call::{Call, PROCESSES, Pid, Reply, System, reply};
use super::ours::POLLED;
use quietline::abi::*;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// What a process is told: the number of the call, and its arguments.
type Order = [i64; 4];

/// A process of the host, and the ends of the pipes to and from it.
struct Child {
    pid: i32,
    pidfd: OwnedFd,
}

pub(crate) struct Host {
    /// Those to write orders to, and to read replies from.
    pipes: Vec<[OwnedFd; 2]>,
    /// The other ends, which the processes use.
    others: Vec<[OwnedFd; 2]>,
    children: Vec<Child>,
}

/// Is never called: all signals are blocked.
extern "C" fn handle(_: i32) {}

fn errno() -> i64 {
    Error::last_os_error().raw_os_error().unwrap_or(0).into()
}

fn told(result: i64) -> Reply {
    if result < 0 { reply(Err(errno() as i32)) } else { reply(Ok(result)) }
}

fn pipe() -> [OwnedFd; 2] {
    let mut ends = [0; 2];
    // SAFETY: makes two descriptors, of which the results are the owners.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        ends.map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

/// Opens a descriptor of a process.
fn pidfd(pid: i32) -> OwnedFd {
    // SAFETY: makes a descriptor, of which the result is the owner.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32;
        assert!(fd >= 0, "pidfd_open: {}", Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    }
}

fn poll(fd: i32, timeout: i32) -> i16 {
    let mut fds = libc::pollfd { fd, events: POLLED as i16, revents: 0 };
    // SAFETY: a structure of our own.
    unsafe { libc::poll(&mut fds, 1, timeout) };
    fds.revents
}

/// Reads or writes all of an array of numbers. Returns `false` at the end of the pipe.
fn passes<const N: usize>(fd: i32, words: &mut [i64; N], read: bool) -> bool {
    let len = size_of_val(words);
    // SAFETY: the array is as long as is said. Pipes pass so few bytes as a whole.
    let n = unsafe {
        if read {
            libc::read(fd, words.as_mut_ptr().cast(), len)
        } else {
            libc::write(fd, words.as_ptr().cast(), len)
        }
    };
    n == len as isize
}

impl Host {
    pub(crate) fn new() -> Self {
        let (mut pipes, mut others) = (Vec::new(), Vec::new());
        for _ in 0..PROCESSES {
            let ([order_in, order_out], [reply_in, reply_out]) = (pipe(), pipe());
            pipes.push([order_out, reply_in]);
            others.push([order_in, reply_out]);
        }
        let mut host = Self { pipes, others, children: Vec::new() };
        // SAFETY: the child makes system calls only, until it ends.
        let pid = unsafe {
            match libc::fork() {
                -1 => panic!("fork: {}", Error::last_os_error()),
                0 => {
                    let all = u64::MAX;
                    let none = ptr::null_mut::<u64>();
                    let all = &raw const all;
                    libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, all, none, 8_usize);
                    libc::setsid();
                    libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    host.obey()
                }
                pid => pid,
            }
        };
        host.children.push(Child { pid, pidfd: pidfd(pid) });
        host
    }

    /// The life of a child.
    fn obey(&self) -> ! {
        let mut own = 0;
        let mut pidfds = [-1_i32; PROCESSES];
        // SAFETY: calls of the child on itself and on processes that the test has made; buffers of
        // its own.
        unsafe {
            let all = u64::MAX;
            let flags = libc::SFD_NONBLOCK;
            let signals =
                libc::syscall(libc::SYS_signalfd4, -1, &raw const all, 8_usize, flags) as i32;
            loop {
                let mut order: Order = [0; 4];
                if !passes(self.others[own][0].as_raw_fd(), &mut order, true) {
                    libc::_exit(0);
                }
                let [call, a, b, c] = order;
                let (first, second) = (a as i32, b as i32);
                let mut answer = match call {
                    0 => match libc::fork() {
                        0 => {
                            own = a as usize;
                            libc::prctl(libc::PR_SET_PDEATHSIG, 0);
                            continue;
                        }
                        pid => told(pid.into()),
                    },
                    1 => libc::_exit(first),
                    2 => told(libc::getppid().into()),
                    3 => told(libc::getpgid(first).into()),
                    4 => told(libc::getsid(first).into()),
                    5 => told(libc::setpgid(first, second).into()),
                    6 => told(libc::setsid().into()),
                    7 => told(libc::kill(first, second).into()),
                    8 => {
                        let handler: extern "C" fn(i32) = handle;
                        let handler = if a == 1 { libc::SIG_IGN } else { handler as usize };
                        libc::signal(libc::SIGCHLD, handler);
                        told(0)
                    }
                    9 => {
                        let mut info: libc::siginfo_t = std::mem::zeroed();
                        let id =
                            if first == P_PIDFD { pidfds.get(b as usize).copied() } else { None };
                        let (id, options) = (id.unwrap_or(second), c as i32);
                        let none = ptr::null_mut::<u8>();
                        let info_at = &raw mut info;
                        match libc::syscall(libc::SYS_waitid, first, id, info_at, options, none) {
                            0 if info.si_pid() == 0 => [0; 6],
                            0 => {
                                let (pid, status) = (info.si_pid(), info.si_status());
                                let (signo, code) = (info.si_signo, info.si_code);
                                [0, signo.into(), code.into(), pid.into(), status.into(), 0]
                            }
                            error => told(error),
                        }
                    }
                    10 => {
                        let mut set = 0_u64;
                        libc::syscall(libc::SYS_rt_sigpending, &raw mut set, 8_usize);
                        reply(Ok(set as i64))
                    }
                    11 => {
                        let mut info = [0_i32; 32];
                        match libc::read(signals, info.as_mut_ptr().cast(), 128) {
                            128 => {
                                let [signo, code, pid, status] =
                                    [0, 2, 3, 10].map(|n| info[n].into());
                                [0, signo, code, pid, status, 0]
                            }
                            error => told(error as i64),
                        }
                    }
                    12 => match libc::syscall(libc::SYS_pidfd_open, first, second) as i32 {
                        -1 => told(-1),
                        fd => {
                            libc::close(std::mem::replace(&mut pidfds[c as usize], fd));
                            let status = libc::fcntl(fd, F_GETFL);
                            let cloexec = libc::fcntl(fd, F_GETFD);
                            let nonblock = status & O_NONBLOCK;
                            [0, cloexec.into(), nonblock.into(), (status & O_ACCMODE).into(), 0, 0]
                        }
                    },
                    13 => reply(Ok(poll(pidfds[a as usize], 0).into())),
                    14 => {
                        let (fd, none) = (pidfds[a as usize], ptr::null_mut::<u8>());
                        told(libc::syscall(libc::SYS_pidfd_send_signal, fd, second, none, c as u32))
                    }
                    _ => {
                        let fd = std::mem::replace(&mut pidfds[a as usize], -1);
                        told(libc::close(fd).into())
                    }
                };
                passes(self.others[own][1].as_raw_fd(), &mut answer, false);
            }
        }
    }

    fn number(&self, pid: Pid) -> i64 {
        match pid {
            Pid::Of(n) => self.children[n].pid.into(),
            Pid::Number(number) => number.into(),
        }
    }

    fn name(&self, pid: i64) -> i64 {
        self.children.iter().position(|own| i64::from(own.pid) == pid).map_or(-1, |n| n as i64)
    }

    /// Whether a process was waited for: its number may be another's.
    pub(crate) fn is_reaped(&self, n: usize) -> bool {
        poll(self.children[n].pidfd.as_raw_fd(), 0) & libc::POLLHUP != 0
    }

    /// Waits until a process has ended, and until its parent is told.
    fn await_end(&self, n: usize) {
        assert_ne!(poll(self.children[n].pidfd.as_raw_fd(), 60_000), 0, "process {n} does not end");
    }

    fn ask(&self, caller: usize, mut order: Order) -> Reply {
        let mut answer: Reply = [0; 6];
        let [orders, replies] = &self.pipes[caller];
        assert!(passes(orders.as_raw_fd(), &mut order, false));
        assert!(passes(replies.as_raw_fd(), &mut answer, true));
        answer
    }
}

impl System for Host {
    fn call(&mut self, caller: usize, call: Call) -> Reply {
        let named = |at: usize, mut answer: Reply| {
            if answer[0] == 0 && answer != [0; 6] {
                answer[at] = self.name(answer[at]);
            }
            answer
        };
        let order = match call {
            Call::Fork => {
                let child = self.children.len();
                let [errno, pid, ..] = self.ask(caller, [0, child as i64, 0, 0]);
                assert_eq!(errno, 0, "fork");
                let pid = pid as i32;
                self.children.push(Child { pid, pidfd: pidfd(pid) });
                return reply(Ok(0));
            }
            Call::Exit(code) => {
                let mut order = [1, code.into(), 0, 0];
                assert!(passes(self.pipes[caller][0].as_raw_fd(), &mut order, false));
                self.await_end(caller);
                return reply(Ok(0));
            }
            Call::Kill9(pid) => {
                let Pid::Of(n) = pid else { unreachable!("a process") };
                self.children[n].kill();
                self.await_end(n);
                return reply(Ok(0));
            }
            Call::Parent => return named(1, self.ask(caller, [2, 0, 0, 0])),
            Call::Group(pid) => return named(1, self.ask(caller, [3, self.number(pid), 0, 0])),
            Call::Session(pid) => return named(1, self.ask(caller, [4, self.number(pid), 0, 0])),
            Call::SetGroup(pid, group) => [5, self.number(pid), self.number(group), 0],
            Call::SetSession => return named(1, self.ask(caller, [6, 0, 0, 0])),
            Call::Kill(pid, signo) => [7, self.number(pid), signo.into(), 0],
            Call::KillGroup(pid, signo) => {
                let group = (self.number(pid) as i32).wrapping_neg();
                [7, group.into(), signo.into(), 0]
            }
            Call::Ignore(ignore) => [8, ignore.into(), 0, 0],
            Call::Wait(which, pid, options) => {
                let order = [9, which.into(), self.number(pid), (options | WNOHANG).into()];
                return named(3, self.ask(caller, order));
            }
            Call::WaitBy(n, options) => {
                let order = [9, P_PIDFD.into(), n as i64, (options | WNOHANG).into()];
                return named(3, self.ask(caller, order));
            }
            Call::Pending => [10, 0, 0, 0],
            Call::Read => return named(3, self.ask(caller, [11, 0, 0, 0])),
            Call::Open(pid, flags) => {
                let n = if let Pid::Of(n) = pid { n } else { 0 };
                [12, self.number(pid), flags.into(), n as i64]
            }
            Call::Poll(n) => [13, n as i64, 0, 0],
            Call::KillBy(n, signo, flags) => [14, n as i64, signo.into(), flags.into()],
            Call::CloseOne(n) => [15, n as i64, 0, 0],
        };
        self.ask(caller, order)
    }
}

impl Child {
    fn kill(&self) {
        let (fd, none) = (self.pidfd.as_raw_fd(), ptr::null_mut::<u8>());
        // SAFETY: ends a process that the test has made.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0) };
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.children.iter().for_each(Child::kill);
        let Some(first) = self.children.first() else { return };
        // SAFETY: reaps our own child.
        unsafe { libc::waitpid(first.pid, ptr::null_mut(), 0) };
    }
}
