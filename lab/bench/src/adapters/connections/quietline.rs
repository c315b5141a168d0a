//! quietline: each thread a process with the lowest free descriptors, or all threads one process with any.

use std::sync::Arc;

use quietline::abi::{
    AF_INET, AF_UNIX, MSG_CMSG_ANYFD, O_ANYFD, SCM_RIGHTS, SO_LINGER, SOCK_STREAM, SOL_SOCKET,
};
use quietline::{Config, Errno, Kernel, Process, RecvMsg, SendMsg, SockAddr};

use super::system::{Calls, System};
use crate::adapters::loopback::localhost;
use crate::adapters::probe::failed;
use crate::harness::Fault;

/// Each thread a process, which takes the lowest free descriptor.
pub(super) struct Processes(Kernel);

/// All threads one process, which takes any free descriptor.
pub(super) struct OneProcess {
    process: Arc<Process>,
    kernel: Kernel,
}

/// A thread's process, and `O_ANYFD` or nothing.
pub(super) struct Thread {
    process: Arc<Process>,
    anyfd: i32,
}

pub(super) struct Listener {
    fd: i32,
    address: SockAddr,
}

impl System for Processes {
    type Calls = Thread;

    fn boot() -> Result<Self, Fault> {
        Ok(Self(Kernel::boot(Config::default()).map_err(failed)?))
    }

    fn enter(&self) -> Result<Thread, Fault> {
        Ok(Thread { process: Arc::new(self.0.process().map_err(failed)?), anyfd: 0 })
    }

    fn open_files(&self) -> Option<i64> {
        Some(self.0.nr_files())
    }
}

impl System for OneProcess {
    type Calls = Thread;

    fn boot() -> Result<Self, Fault> {
        let kernel = Kernel::boot(Config::default()).map_err(failed)?;
        Ok(Self { process: Arc::new(kernel.process().map_err(failed)?), kernel })
    }

    fn enter(&self) -> Result<Thread, Fault> {
        Ok(Thread { process: self.process.clone(), anyfd: O_ANYFD })
    }

    fn open_files(&self) -> Option<i64> {
        Some(self.kernel.nr_files())
    }
}

/// `struct linger`: on, for no time.
const NO_TIME: [u8; 8] = {
    let [a, b, c, d] = 1_i32.to_ne_bytes();
    [a, b, c, d, 0, 0, 0, 0]
};

/// A control message with one descriptor: its length, level and kind, and the descriptor.
const RIGHTS: usize = 24;

impl Thread {
    #[inline(always)]
    fn stream(&self, family: i32) -> Result<i32, Errno> {
        self.process.socket(family, SOCK_STREAM | self.anyfd, 0)
    }

    fn listener(&self, family: i32, address: &[u8]) -> Result<Listener, Errno> {
        let fd = self.stream(family)?;
        self.process.bind(fd, address)?;
        self.process.listen(fd, 1)?;
        Ok(Listener { address: self.process.getsockname(fd)?, fd })
    }

    #[inline(always)]
    fn connected(&self, near: i32, to: &Listener) -> Result<[i32; 2], Errno> {
        self.process.connect(near, to.address.bytes())?;
        let (far, _) = self.process.accept4(to.fd, self.anyfd)?;
        Ok([near, far])
    }
}

impl Calls for Thread {
    type Fd = i32;
    type Listener = Listener;
    type Error = Errno;

    #[inline(always)]
    fn close(&self, fd: i32) -> Result<(), Errno> {
        self.process.close(fd)
    }

    fn pipe(&self) -> Result<[i32; 2], Errno> {
        let [read, write] = self.process.pipe2(self.anyfd)?;
        Ok([write, read])
    }

    #[inline(always)]
    fn pair(&self) -> Result<[i32; 2], Errno> {
        self.process.socketpair(AF_UNIX, SOCK_STREAM | self.anyfd, 0)
    }

    fn unix_listener(&self) -> Result<Listener, Errno> {
        // A family and no name: one is found.
        self.listener(AF_UNIX, &(AF_UNIX as u16).to_ne_bytes())
    }

    fn tcp_listener(&self) -> Result<Listener, Errno> {
        self.listener(AF_INET, &localhost())
    }

    #[inline(always)]
    fn unix_connect(&self, to: &Listener) -> Result<[i32; 2], Errno> {
        self.connected(self.stream(AF_UNIX)?, to)
    }

    #[inline(always)]
    fn tcp_connect(&self, to: &Listener) -> Result<[i32; 2], Errno> {
        let near = self.stream(AF_INET)?;
        self.process.setsockopt(near, SOL_SOCKET, SO_LINGER, &NO_TIME)?;
        self.connected(near, to)
    }

    #[inline(always)]
    fn pass(&self, [from, to]: &[i32; 2], fd: &i32) -> Result<Option<i32>, Errno> {
        let mut control = [0; RIGHTS];
        control[..8].copy_from_slice(&20_u64.to_ne_bytes());
        control[8..12].copy_from_slice(&SOL_SOCKET.to_ne_bytes());
        control[12..16].copy_from_slice(&SCM_RIGHTS.to_ne_bytes());
        control[16..20].copy_from_slice(&fd.to_ne_bytes());
        let message = SendMsg { buffers: &[b"f"], control: &control, ..SendMsg::default() };
        let sent = self.process.sendmsg(*from, &message, 0)?;
        let (mut byte, mut control) = ([0], [0; RIGHTS]);
        let buffers: &mut [&mut [u8]] = &mut [&mut byte];
        let mut message = RecvMsg { buffers, control: &mut control, ..RecvMsg::default() };
        let any = if self.anyfd != 0 { MSG_CMSG_ANYFD } else { 0 };
        let got = self.process.recvmsg(*to, &mut message, any)?;
        let whole = message.control_len >= 20;
        let [.., a, b, c, d, _, _, _, _] = control;
        let came = whole.then(|| i32::from_ne_bytes([a, b, c, d]));
        Ok(came.filter(|_| sent == 1 && got == 1 && byte == *b"f"))
    }

    fn write(&self, fd: &i32, byte: u8) -> Result<bool, Errno> {
        Ok(self.process.write(*fd, &[byte])? == 1)
    }

    fn read(&self, fd: &i32) -> Result<u8, Errno> {
        let mut byte = [0];
        if self.process.read(*fd, &mut byte)? == 1 { Ok(byte[0]) } else { Err(Errno::PIPE) }
    }

    fn open_here(&self) -> Result<Option<usize>, Errno> {
        Ok(None)
    }
}
