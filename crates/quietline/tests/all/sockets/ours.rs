//! The calls on quietline.

use crate::sockets::call::SLOTS;
use crate::sockets::drive::{Received, Sys};
use quietline::{Config, Errno, Kernel, PollTable, Process, RecvMsg, SendMsg};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A kernel for many programs, one after the other.
pub(crate) struct Machine(Kernel);

impl Machine {
    /// With that directory.
    pub(crate) fn new(directory: &Path) -> Self {
        let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
        let process = kernel.process().unwrap();
        for path in directory.ancestors().collect::<Vec<_>>().into_iter().rev().skip(1) {
            process.mkdir(path.as_os_str().as_bytes(), 0o777).unwrap();
        }
        Self(kernel)
    }
}

pub(crate) struct Ours {
    pub(crate) process: Process,
    kernel: Kernel,
}

impl Ours {
    pub(crate) fn new(machine: &Machine) -> Self {
        Self { process: machine.0.process().unwrap(), kernel: machine.0.clone() }
    }
}

impl Drop for Ours {
    /// What the program has left open was closed before: nothing is lost in a message once another local socket is closed.
    fn drop(&mut self) {
        self.collect();
        assert_eq!(self.kernel.nr_files(), 0, "files are left");
    }
}

fn raw<T>(result: Result<T, Errno>) -> Result<T, i32> {
    result.map_err(Errno::raw_os_error)
}

const TYPE: i32 = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

impl Sys for Ours {
    fn socket(&mut self, ty: i32) -> Result<i32, i32> {
        raw(self.process.socket(libc::AF_UNIX, ty | TYPE, 0))
    }

    fn pair(&mut self, ty: i32) -> Result<[i32; 2], i32> {
        raw(self.process.socketpair(libc::AF_UNIX, ty | TYPE, 0))
    }

    fn bind(&mut self, fd: i32, name: &[u8]) -> Result<(), i32> {
        raw(self.process.bind(fd, name))
    }

    fn listen(&mut self, fd: i32, backlog: i32) -> Result<(), i32> {
        raw(self.process.listen(fd, backlog))
    }

    fn connect(&mut self, fd: i32, name: &[u8]) -> Result<(), i32> {
        raw(self.process.connect(fd, name))
    }

    fn accept(&mut self, fd: i32) -> Result<(i32, Vec<u8>), i32> {
        raw(self.process.accept4(fd, TYPE)).map(|(fd, name)| (fd, name.bytes().to_vec()))
    }

    fn send(
        &mut self,
        fd: i32,
        name: &[u8],
        bytes: &[u8],
        control: &[u8],
        flags: i32,
    ) -> Result<usize, i32> {
        if name.is_empty() && control.is_empty() {
            return raw(self.process.send(fd, bytes, flags));
        }
        // Several buffers, some of them empty.
        let (one, two) = bytes.split_at(bytes.len() / 3);
        let message = SendMsg { name, buffers: &[&[], one, &[], two], control, sent: 0 };
        raw(self.process.sendmsg(fd, &message, flags))
    }

    fn recv(&mut self, fd: i32, len: usize, control: usize, flags: i32) -> Result<Received, i32> {
        let (mut bytes, mut room) = (vec![0; len], vec![0; control]);
        let (one, two) = bytes.split_at_mut(len / 2);
        let buffers: &mut [&mut [u8]] = &mut [one, &mut [], two];
        let mut message = RecvMsg { buffers, control: &mut room, ..RecvMsg::default() };
        let n = raw(self.process.recvmsg(fd, &mut message, flags))?;
        let (name, used, flags) =
            (message.name.bytes().to_vec(), message.control_len, message.flags);
        bytes.truncate(n.min(len));
        room.truncate(used);
        Ok(Received { len: n, bytes, name, control: room, flags })
    }

    fn read(&mut self, fd: i32, to: &mut [u8]) -> Result<usize, i32> {
        raw(self.process.read(fd, to))
    }

    fn write(&mut self, fd: i32, from: &[u8]) -> Result<usize, i32> {
        raw(self.process.write(fd, from))
    }

    fn shutdown(&mut self, fd: i32, how: i32) -> Result<(), i32> {
        raw(self.process.shutdown(fd, how))
    }

    fn close(&mut self, fd: i32) -> Result<(), i32> {
        raw(self.process.close(fd))
    }

    fn name(&mut self, fd: i32, peer: bool) -> Result<Vec<u8>, i32> {
        let name = if peer { self.process.getpeername(fd) } else { self.process.getsockname(fd) };
        raw(name).map(|name| name.bytes().to_vec())
    }

    fn set(&mut self, fd: i32, option: i32, value: &[u8]) -> Result<(), i32> {
        raw(self.process.setsockopt(fd, libc::SOL_SOCKET, option, value))
    }

    fn get(&mut self, fd: i32, option: i32, to: &mut [u8]) -> Result<usize, i32> {
        raw(self.process.getsockopt(fd, libc::SOL_SOCKET, option, to))
    }

    fn ioctl(&mut self, fd: i32, request: u64) -> Result<i32, i32> {
        let mut answer = 0;
        raw(self.process.ioctl(fd, request, &mut answer)).map(|_| answer)
    }

    fn polls(&mut self, fds: &[Option<i32>; SLOTS]) -> [u32; SLOTS] {
        let poll = |fd| self.process.file(fd).unwrap().opened().poll(&mut PollTable::look()).bits();
        fds.map(|fd| fd.map_or(0, poll))
    }

    fn unlink(&mut self, path: &[u8]) -> Result<(), i32> {
        raw(self.process.unlink(path))
    }

    fn id(&mut self, fd: i32) -> u64 {
        self.process.fstat(fd).unwrap().st_ino
    }

    fn pid(&self) -> i32 {
        self.process.getpid()
    }

    fn collect(&mut self) {
        for fd in self.process.socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap() {
            self.process.close(fd).unwrap();
        }
    }
}
