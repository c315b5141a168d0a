//! The calls on quietline.

use crate::concurrent::call::{Result, System, rights};
use quietline::{Config, EpollEvent, Errno, Kernel, PollFd, Process, RecvMsg, SendMsg};

pub(crate) struct Ours {
    process: Process,
    fifo: String,
}

/// The kernel of all programs.
pub(crate) fn boot() -> Kernel {
    Kernel::boot(Config::default().privileged(true)).unwrap()
}

impl Ours {
    /// For the program of that number.
    pub(crate) fn new(kernel: &Kernel, tag: u64) -> Self {
        let (process, fifo) = (kernel.process().unwrap(), format!("/fifo-{tag}"));
        process.mknod(&fifo, libc::S_IFIFO | 0o600, 0).unwrap();
        Self { process, fifo }
    }

    /// The descriptors that are open.
    pub(crate) fn open(&self) -> Vec<i32> {
        self.process.open_fds().unwrap()
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = self.process.unlink(&self.fifo);
    }
}

fn told<T>(result: std::result::Result<T, Errno>) -> Result<T> {
    result.map_err(Errno::raw_os_error)
}

impl System for Ours {
    fn pipe(&self, flags: i32) -> Result<[i32; 2]> {
        told(self.process.pipe2(flags))
    }

    fn counter(&self, flags: i32) -> Result<i32> {
        told(self.process.eventfd(0, flags))
    }

    fn epoll(&self) -> Result<i32> {
        told(self.process.epoll_create1(0))
    }

    fn pair(&self, family: i32, ty: i32) -> Result<[i32; 2]> {
        told(self.process.socketpair(family, ty, 0))
    }

    fn socket(&self, family: i32, ty: i32) -> Result<i32> {
        told(self.process.socket(family, ty, 0))
    }

    fn bind(&self, fd: i32, name: &[u8]) -> Result<()> {
        told(self.process.bind(fd, name))
    }

    fn listen(&self, fd: i32, backlog: i32) -> Result<()> {
        told(self.process.listen(fd, backlog))
    }

    fn connect(&self, fd: i32, name: &[u8]) -> Result<()> {
        told(self.process.connect(fd, name))
    }

    fn accept(&self, fd: i32) -> Result<i32> {
        told(self.process.accept(fd)).map(|(fd, _)| fd)
    }

    fn name(&self, fd: i32) -> Result<Vec<u8>> {
        told(self.process.getsockname(fd)).map(|name| name.bytes().to_vec())
    }

    fn shutdown(&self, fd: i32, how: i32) -> Result<()> {
        told(self.process.shutdown(fd, how))
    }

    fn open_fifo(&self, flags: i32) -> Result<i32> {
        told(self.process.open(&self.fifo, flags, 0))
    }

    fn dup(&self, fd: i32) -> Result<i32> {
        told(self.process.dup(fd))
    }

    fn dup2(&self, from: i32, to: i32) -> Result<i32> {
        told(self.process.dup2(from, to))
    }

    fn close(&self, fd: i32) -> Result<()> {
        told(self.process.close(fd))
    }

    fn read(&self, fd: i32, to: &mut [u8]) -> Result<usize> {
        told(self.process.read(fd, to))
    }

    fn write(&self, fd: i32, from: &[u8]) -> Result<usize> {
        told(self.process.write(fd, from))
    }

    fn recv(&self, fd: i32, to: &mut [u8], flags: i32) -> Result<usize> {
        told(self.process.recv(fd, to, flags))
    }

    fn send(&self, fd: i32, from: &[u8], flags: i32, name: Option<&[u8]>) -> Result<usize> {
        told(match name {
            Some(name) => self.process.sendto(fd, from, flags, name),
            None => self.process.send(fd, from, flags),
        })
    }

    fn recv_file(&self, fd: i32, to: &mut [u8], flags: i32) -> Result<(usize, Option<i32>)> {
        let mut control = [0; 24];
        let buffers: &mut [&mut [u8]] = &mut [to];
        let mut message = RecvMsg { buffers, control: &mut control, ..RecvMsg::default() };
        let n = told(self.process.recvmsg(fd, &mut message, flags))?;
        let file = (message.control_len != 0)
            .then(|| i32::from_ne_bytes(*control[16..].first_chunk().unwrap()));
        Ok((n, file))
    }

    fn send_file(&self, fd: i32, from: &[u8], flags: i32, name: &[u8], file: i32) -> Result<usize> {
        let control: Vec<u8> = rights(file).iter().flat_map(|word| word.to_ne_bytes()).collect();
        let message = SendMsg { name, buffers: &[from], control: &control, ..SendMsg::default() };
        told(self.process.sendmsg(fd, &message, flags))
    }

    fn splice(&self, from: i32, to: i32, len: usize, tee: bool) -> Result<usize> {
        let flags = libc::SPLICE_F_NONBLOCK;
        told(match tee {
            true => self.process.tee(from, to, len, flags),
            false => self.process.splice(from, None, to, None, len, flags),
        })
    }

    fn no_delay(&self, fd: i32) -> Result<()> {
        told(self.process.setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &1i32.to_ne_bytes()))
    }

    fn fcntl(&self, fd: i32, cmd: i32, arg: u64) -> Result<i32> {
        told(self.process.fcntl(fd, cmd, arg))
    }

    fn readable(&self, fd: i32) -> Result<i32> {
        let mut n = 0;
        told(self.process.ioctl(fd, libc::FIONREAD, &mut n)).map(|_| n)
    }

    fn control(&self, ep: i32, op: i32, fd: i32, events: u32, data: u64) -> Result<()> {
        told(self.process.epoll_ctl(ep, op, fd, &EpollEvent { events, data }))
    }

    fn wait(&self, ep: i32, max: usize, timeout: i32) -> Result<Vec<(u32, u64)>> {
        let mut events = vec![EpollEvent::default(); max];
        let n = told(self.process.epoll_wait(ep, &mut events, timeout))?;
        Ok(events[..n].iter().map(|event| (event.events, event.data)).collect())
    }

    fn poll(&self, of: &[(i32, i16)], timeout: i32) -> Result<Vec<i16>> {
        let mut fds: Vec<_> = of.iter().map(|(fd, events)| PollFd::new(*fd, *events)).collect();
        told(self.process.poll(&mut fds, timeout))?;
        Ok(fds.into_iter().map(|fd| fd.revents).collect())
    }
}
