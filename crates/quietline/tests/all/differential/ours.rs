//! quietline's side.

use crate::differential::call::{Call, Outcome};
use crate::differential::state::{Open, Raw, abstracted};
use quietline::abi::{F_GETFD, F_GETFL, O_ANYFD};
use quietline::{Config, Errno, Kernel, Process};

/// A process on a kernel of its own.
#[derive(Debug)]
pub(crate) struct Ours {
    pub(crate) process: Process,
}

impl Ours {
    pub(crate) fn new(privileged: bool, nofile: usize) -> Self {
        let kernel =
            Kernel::boot(Config::default().privileged(privileged).nofile(nofile)).expect("boot");
        Self { process: kernel.process().expect("process") }
    }

    /// Makes a call.
    pub(crate) fn call(&self, call: Call) -> Outcome {
        let p = &self.process;
        let value = match call {
            Call::Socket { domain, ty, protocol } => p.socket(domain, ty, protocol),
            Call::Pipe2 { flags } => {
                return match p.pipe2(flags) {
                    Ok([reader, writer]) => Ok((reader, Some(writer))),
                    Err(errno) => Err(errno.raw_os_error()),
                };
            }
            Call::Eventfd { count, flags } => p.eventfd(count, flags),
            Call::Timerfd { clock, flags } => p.timerfd_create(clock, flags),
            Call::Signalfd { fd, mask, flags } => p.signalfd(fd, mask, flags),
            Call::Dup { fd } => p.dup(fd),
            Call::Dup2 { old, new } => p.dup2(old, new),
            Call::Dup3 { old, new, flags } => p.dup3(old, new, flags),
            Call::Fcntl { fd, cmd, arg } => p.fcntl(fd, cmd, arg),
            Call::Close { fd } => p.close(fd).map(|()| 0),
            Call::CloseRange { first, last, flags } => {
                p.close_range(first, last, flags).map(|()| 0)
            }
            Call::Limit { nofile } => p.set_nofile(nofile).map(|()| 0),
        };
        value.map(|value| (value, None)).map_err(Errno::raw_os_error)
    }

    /// The open descriptors. With `tell_files`, which of them are of one open file.
    pub(crate) fn snapshot(&self, tell_files: bool) -> Vec<Open> {
        let p = &self.process;
        let raw = |fd| Raw {
            fd,
            fd_flags: p.fcntl(fd, F_GETFD, 0).expect("open"),
            status: p.fcntl(fd, F_GETFL, 0).expect("open"),
            name: p.fd_name(fd).expect("open"),
        };
        let open: Vec<Raw> = p.open_fds().unwrap().into_iter().map(raw).collect();
        let same =
            |a, b| tell_files && p.file(a).expect("open").same_file(&p.file(b).expect("open"));
        abstracted(&open, same)
    }

    /// Opens and closes a few descriptors that need not be the lowest, by which numbers get into this CPU's store
    /// and stay there: what the host side shall not be able to tell.
    pub(crate) fn haunt(&self, n: usize) {
        let fds: Vec<_> = (0..n).filter_map(|_| self.process.eventfd(0, O_ANYFD).ok()).collect();
        for fd in fds {
            self.process.close(fd).expect("it is open");
        }
    }

    /// That nothing is left when everything is closed.
    pub(crate) fn assert_clean(&self) {
        self.process.close_range(0, u32::MAX, 0).expect("close_range");
        let k = self.process.kernel();
        assert_eq!((k.nr_files(), k.nr_dentry(), k.nr_inodes()), (0, 0, 0), "all is closed");
    }
}
