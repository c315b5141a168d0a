//! The library's side.

use super::call::{Call, PROCESSES, Pid, Reply, System, reply};
use quietline::abi::*;
use quietline::{Config, Errno, Kernel, PollFd, Process, SigChld, SigInfo};

/// A process, its signalfd, and its pidfds by the process that they are of.
struct Running {
    process: Process,
    signals: i32,
    pidfds: [i32; PROCESSES],
}

pub(crate) struct Ours {
    running: Vec<Option<Running>>,
    pids: Vec<i32>,
}

fn with_signals(process: Process, pidfds: [i32; PROCESSES]) -> Running {
    let signals = process.signalfd(-1, u64::MAX, SFD_NONBLOCK).unwrap();
    Running { process, signals, pidfds }
}

impl Ours {
    pub(crate) fn new() -> Self {
        let first = Kernel::boot(Config::default()).unwrap().process().unwrap();
        first.set_sigchld(SigChld::Signal);
        let pids = vec![first.getpid()];
        Self { running: vec![Some(with_signals(first, [-1; PROCESSES]))], pids }
    }

    fn number(&self, pid: Pid) -> i32 {
        match pid {
            Pid::Of(n) => self.pids[n],
            Pid::Number(number) => number,
        }
    }

    fn name(&self, pid: i32) -> i64 {
        self.pids.iter().position(|own| *own == pid).map_or(-1, |n| n as i64)
    }

    fn told(&self, info: Result<Option<SigInfo>, Errno>) -> Reply {
        match info {
            Ok(Some(info)) => {
                let SigInfo { signo, code, pid, status, .. } = info;
                [0, signo.into(), code.into(), self.name(pid), status.into(), 0]
            }
            Ok(None) => [0; 6],
            Err(errno) => reply(Err(errno.raw_os_error())),
        }
    }
}

impl System for Ours {
    fn call(&mut self, caller: usize, call: Call) -> Reply {
        let done =
            |result: Result<(), Errno>| reply(result.map(|()| 0).map_err(Errno::raw_os_error));
        let named = |result: Result<i32, Errno>| {
            reply(result.map(|pid| self.name(pid)).map_err(Errno::raw_os_error))
        };
        let Running { process: p, signals, pidfds } =
            self.running[caller].as_ref().expect("it has not ended");
        match call {
            Call::Fork => {
                let child = p.fork().unwrap();
                child.close(*signals).unwrap();
                let child = with_signals(child, *pidfds);
                self.pids.push(child.process.getpid());
                self.running.push(Some(child));
                reply(Ok(0))
            }
            Call::Exit(code) => {
                self.running[caller].take().expect("it runs").process.exit(code);
                reply(Ok(0))
            }
            Call::Kill9(pid) => {
                let Pid::Of(n) = pid else { unreachable!("a process") };
                self.running[n].take().expect("it runs").process.exit_by_signal(libc::SIGKILL);
                reply(Ok(0))
            }
            Call::Parent => named(Ok(p.getppid())),
            Call::Group(pid) => named(p.getpgid(self.number(pid))),
            Call::Session(pid) => named(p.getsid(self.number(pid))),
            Call::SetGroup(pid, group) => done(p.setpgid(self.number(pid), self.number(group))),
            Call::SetSession => named(p.setsid()),
            Call::Kill(pid, signo) => done(p.kill(self.number(pid), signo)),
            Call::KillGroup(pid, signo) => done(p.kill(self.number(pid).wrapping_neg(), signo)),
            Call::Ignore(ignore) => {
                p.set_sigchld(if ignore { SigChld::Ignore } else { SigChld::Signal });
                reply(Ok(0))
            }
            Call::Wait(which, pid, options) => {
                self.told(p.waitid(which, self.number(pid), options | WNOHANG))
            }
            Call::Pending => reply(Ok(p.sigpending() as i64)),
            Call::Read => {
                let mut info = [0; 128];
                if let Err(errno) = p.read(*signals, &mut info) {
                    return reply(Err(errno.raw_os_error()));
                }
                let word = |at: usize| i32::from_ne_bytes(*info[at..].first_chunk().unwrap());
                [0, word(0).into(), word(8).into(), self.name(word(12)), word(40).into(), 0]
            }
            Call::Open(pid, flags) => match p.pidfd_open(self.number(pid), flags) {
                Ok(fd) => {
                    let cloexec = p.fcntl(fd, F_GETFD, 0).unwrap();
                    let status = p.fcntl(fd, F_GETFL, 0).unwrap();
                    let Pid::Of(n) = pid else { unreachable!("{pid:?} is no process") };
                    let running = self.running[caller].as_mut().unwrap();
                    let old = std::mem::replace(&mut running.pidfds[n], fd);
                    if old >= 0 {
                        running.process.close(old).unwrap();
                    }
                    let nonblock = status & O_NONBLOCK;
                    [0, cloexec.into(), nonblock.into(), (status & O_ACCMODE).into(), 0, 0]
                }
                Err(errno) => reply(Err(errno.raw_os_error())),
            },
            Call::Poll(n) => {
                let mut fds = [PollFd::new(pidfds[n], POLLED as i16)];
                p.poll(&mut fds, 0).unwrap();
                reply(Ok(fds[0].revents.into()))
            }
            Call::KillBy(n, signo, flags) => done(p.pidfd_send_signal(pidfds[n], signo, flags)),
            Call::WaitBy(n, options) => self.told(p.waitid(P_PIDFD, pidfds[n], options | WNOHANG)),
            Call::CloseOne(n) => {
                let fd =
                    std::mem::replace(&mut self.running[caller].as_mut().unwrap().pidfds[n], -1);
                done(self.running[caller].as_ref().unwrap().process.close(fd))
            }
        }
    }
}

/// The events that `poll` is asked for.
pub(crate) const POLLED: u32 = EPOLLIN | EPOLLOUT | EPOLLRDNORM | EPOLLPRI;
