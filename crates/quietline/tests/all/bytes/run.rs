//! Programs on both sides.

use crate::bytes::host::{self, Place, Said};
use crate::bytes::program::{Call, Program};
use quietline::abi::*;
use quietline::{Config, Errno, Kernel, Process};

const PAGE: usize = 4096;

/// Both sides' descriptors, by the names that a program gives them.
struct Sides {
    ours: Process,
    place: Place,
    names: Vec<Option<(i32, i32)>>,
    /// Memory that the host's pipes may refer to.
    kept: Vec<Vec<u8>>,
    written: u64,
    /// Ours and the host's.
    epolls: (i32, i32),
    watch: u32,
    made: u64,
    /// Bytes of a file were moved to a pipe, and some pipe has had bytes ever since.
    lent: bool,
}

fn said<T: TryInto<i64>>(result: Result<T, Errno>) -> Said {
    result.map(|n| n.try_into().unwrap_or(-1)).map_err(Errno::raw_os_error)
}

fn iovecs(buffers: &[Vec<u8>]) -> Vec<libc::iovec> {
    buffers
        .iter()
        .map(|b| libc::iovec { iov_base: b.as_ptr().cast_mut().cast(), iov_len: b.len() })
        .collect()
}

fn targets(buffers: &mut [Vec<u8>]) -> Vec<libc::iovec> {
    buffers
        .iter_mut()
        .map(|b| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: b.len() })
        .collect()
}

/// For what the host reads.
fn pointer<T>(of: &[T]) -> i64 {
    of.as_ptr().expose_provenance() as i64
}

/// For what the host writes.
fn target<T>(of: &mut [T]) -> i64 {
    of.as_mut_ptr().expose_provenance() as i64
}

impl Sides {
    fn new(watch: u32) -> Self {
        let ours = Kernel::boot(Config::default()).unwrap().process().unwrap();
        let host = host::call(libc::SYS_epoll_create1, [0; 6]).expect("an epoll");
        let epolls = (ours.epoll_create1(0).unwrap(), host as i32);
        ours.mknod("/f", S_IFIFO | 0o600, 0).unwrap();
        Self {
            ours,
            place: Place::new(),
            names: Vec::new(),
            kept: Vec::new(),
            written: 0,
            epolls,
            watch,
            made: 0,
            lent: false,
        }
    }

    fn fds(&self, name: usize) -> (i32, i32) {
        self.names.get(name).copied().flatten().unwrap_or((-1, -1))
    }

    /// Fresh bytes, all different for a while.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let from = self.written;
        self.written += len as u64;
        (from..from + len as u64).map(|n| (n.wrapping_mul(31) >> 3) as u8).collect()
    }

    fn entered(&mut self, ours: Said, host: Said) -> Result<(), String> {
        match (ours, host) {
            (Ok(one), Ok(other)) => {
                // Names are taken again, the oldest free one first, so that programs do not run out of them.
                let free = self.names.iter().position(Option::is_none).unwrap_or(self.names.len());
                if free == self.names.len() {
                    self.names.push(None);
                }
                let (one, other) = (one as i32, other as i32);
                self.names[free] = Some((one, other));
                self.made += 1;
                let event = quietline::EpollEvent { events: self.watch, data: self.made };
                let ours = said(
                    self.ours
                        .epoll_ctl(self.epolls.0, libc::EPOLL_CTL_ADD, one, &event)
                        .map(|()| 0),
                );
                let mut event = [libc::epoll_event { events: self.watch, u64: self.made }];
                let args = [
                    self.epolls.1.into(),
                    libc::EPOLL_CTL_ADD.into(),
                    other.into(),
                    target(&mut event),
                    0,
                    0,
                ];
                same("epoll_ctl", &ours, &host::call(libc::SYS_epoll_ctl, args))
            }
            (one, other) => same("a new descriptor", &one, &other),
        }
    }

    /// Whether a call writes over bytes of a file that a pipe may have: on Linux it has the file's page itself, and what is read from
    /// it is what was written last; here it has what was moved.
    fn writes_over(&mut self, call: &Call) -> bool {
        if !self.lent {
            return false;
        }
        let ask = |fd: i32, what, number: i64| host::call(what, [fd.into(), number, 0, 0, 0, 0]);
        let readable = |fd: i32| {
            let mut answer = [0i32];
            let args = [fd.into(), FIONREAD as i64, target(&mut answer), 0, 0, 0];
            host::call(libc::SYS_ioctl, args).map_or(0, |_| i64::from(answer[0]))
        };
        let is_pipe = |fd: i32| ask(fd, libc::SYS_fcntl, F_GETPIPE_SZ.into()).is_ok();
        let pipes = self.names.iter().flatten().filter(|(_, fd)| is_pipe(*fd));
        self.lent = pipes.into_iter().any(|(_, fd)| readable(*fd) > 0);
        let (name, at) = match *call {
            Call::Write(name, _)
            | Call::Writev(name, _)
            | Call::Count(name, _)
            | Call::Counts(name, _) => (name, None),
            Call::Pwrite(name, _, at) => (name, Some(at)),
            Call::Splice { to, to_at, .. } => (to, to_at),
            Call::Sendfile { to, .. } => (to, None),
            _ => return false,
        };
        let (_, fd) = self.fds(name);
        // Only a file can tell where it stands.
        let Ok(stands) = host::call(libc::SYS_lseek, [fd.into(), 0, SEEK_CUR.into(), 0, 0, 0])
        else {
            return false;
        };
        self.lent && !is_pipe(fd) && at.unwrap_or(stands) < stands + readable(fd)
    }

    /// Notes that bytes of a file were moved to a pipe.
    fn moved(&mut self, from: i32, done: &Said) {
        let is_pipe =
            host::call(libc::SYS_fcntl, [from.into(), F_GETPIPE_SZ.into(), 0, 0, 0, 0]).is_ok();
        self.lent |= !is_pipe && done.is_ok_and(|n| n > 0);
    }

    #[allow(clippy::too_many_lines)] // a table
    fn make(&mut self, call: &Call) -> Result<(), String> {
        let what = format!("{call:?}");
        if self.writes_over(call) {
            return Ok(());
        }
        match *call {
            Call::Pipe { flags } => {
                let ours = self.ours.pipe2(flags).map_err(Errno::raw_os_error);
                let mut host = [0i32; 2];
                let made =
                    host::call(libc::SYS_pipe2, [target(&mut host), flags.into(), 0, 0, 0, 0]);
                let ours = ours.map_err(|errno| format!("{what}: ours {errno}"))?;
                made.map_err(|errno| format!("{what}: host {errno}"))?;
                for n in 0..2 {
                    self.entered(Ok(ours[n].into()), Ok(host[n].into()))?;
                }
                Ok(())
            }
            Call::Eventfd { count, flags } => {
                let ours = said(self.ours.eventfd(count, flags));
                let host = host::call(libc::SYS_eventfd2, [count.into(), flags.into(), 0, 0, 0, 0]);
                self.entered(ours, host)
            }
            Call::Fifo { flags } => {
                let ours = said(self.ours.open("/f", flags, 0));
                let path = self.place.fifo();
                let path = path.as_bytes_with_nul();
                let host = host::call(
                    libc::SYS_openat,
                    [libc::AT_FDCWD.into(), pointer(path), flags.into(), 0, 0, 0],
                );
                if ours.is_err() && host.is_err() {
                    return same(&what, &ours, &host);
                }
                self.entered(ours, host)
            }
            Call::File => {
                let ours = said(self.ours.memfd_create("m", 0));
                let host = host::call(libc::SYS_memfd_create, [pointer(b"m\0"), 0, 0, 0, 0, 0]);
                self.entered(ours, host)
            }
            Call::Dup(name) => {
                let (one, other) = self.fds(name);
                let (ours, host) = (
                    said(self.ours.dup(one)),
                    host::call(libc::SYS_dup, [other.into(), 0, 0, 0, 0, 0]),
                );
                if ours.is_err() && host.is_err() {
                    return same(&what, &ours, &host);
                }
                self.entered(ours, host)
            }
            Call::Close(name) => {
                let (one, other) = self.fds(name);
                if let Some(entry) = self.names.get_mut(name) {
                    *entry = None;
                }
                let ours = said(self.ours.close(one).map(|()| 0));
                same(&what, &ours, &host::call(libc::SYS_close, [other.into(), 0, 0, 0, 0, 0]))
            }
            Call::Read(name, len) => self.read(&what, name, &[len], false),
            Call::Readv(name, ref lens) => self.read(&what, name, lens, true),
            Call::Write(name, len) => {
                let bytes = self.bytes(len);
                let (one, other) = self.fds(name);
                let ours = said(self.ours.write(one, &bytes));
                let host = host::call(
                    libc::SYS_write,
                    [other.into(), pointer(&bytes), len as i64, 0, 0, 0],
                );
                same(&what, &ours, &host)
            }
            Call::Writev(name, ref lens) => {
                let buffers: Vec<Vec<u8>> = lens.iter().map(|len| self.bytes(*len)).collect();
                self.writev(&what, name, &buffers)
            }
            Call::Count(name, n) => self.writev(&what, name, &[n.to_ne_bytes().to_vec()]),
            Call::Counts(name, ref all) => {
                let buffers: Vec<Vec<u8>> = all.iter().map(|n| n.to_ne_bytes().to_vec()).collect();
                self.writev(&what, name, &buffers)
            }
            Call::Poll(name) => self.poll(&what, name),
            Call::Readable(name) => {
                let (one, other) = self.fds(name);
                let mut mine = 0;
                let ours = said(self.ours.ioctl(one, FIONREAD, &mut mine).map(|_| mine));
                let mut answer = [0i32];
                let host = host::call(
                    libc::SYS_ioctl,
                    [other.into(), FIONREAD as i64, target(&mut answer), 0, 0, 0],
                );
                same(&what, &ours, &host.map(|_| answer[0].into()))
            }
            Call::SetSize(name, size) => self.fcntl(&what, name, F_SETPIPE_SZ, size),
            Call::Size(name) => self.fcntl(&what, name, F_GETPIPE_SZ, 0),
            Call::SetFlags(name, flags) => self.fcntl(&what, name, F_SETFL, flags as u32),
            Call::Seek(name, at, whence) => {
                let (one, other) = self.fds(name);
                let ours = said(self.ours.lseek(one, at, whence));
                same(
                    &what,
                    &ours,
                    &host::call(libc::SYS_lseek, [other.into(), at, whence.into(), 0, 0, 0]),
                )
            }
            Call::Pread(name, len, at) => {
                let (one, other) = self.fds(name);
                let (mut mine, mut its) = (vec![0; len], vec![0u8; len]);
                let ours = said(self.ours.pread(one, &mut mine, at));
                let host = host::call(
                    libc::SYS_pread64,
                    [other.into(), target(&mut its), len as i64, at, 0, 0],
                );
                same(&what, &(ours, mine), &(host, its))
            }
            Call::Pwrite(name, len, at) => {
                let (one, other) = self.fds(name);
                let bytes = self.bytes(len);
                let ours = said(self.ours.pwrite(one, &bytes, at));
                same(
                    &what,
                    &ours,
                    &host::call(
                        libc::SYS_pwrite64,
                        [other.into(), pointer(&bytes), len as i64, at, 0, 0],
                    ),
                )
            }
            Call::Wait => self.wait(),
            Call::Sync(name) => {
                let (one, other) = self.fds(name);
                let ours = said(self.ours.fsync(one).map(|()| 0));
                same(&what, &ours, &host::call(libc::SYS_fsync, [other.into(), 0, 0, 0, 0, 0]))
            }
            Call::Splice { from, from_at, to, to_at, len, flags } => {
                let ((from, host_from), (to, host_to)) = (self.fds(from), self.fds(to));
                let (mut mine, mut its) = ((from_at, to_at), (from_at, to_at));
                let ours =
                    said(self.ours.splice(from, mine.0.as_mut(), to, mine.1.as_mut(), len, flags));
                let offset = |at: &mut Option<i64>| {
                    at.as_mut().map_or(0, |at| core::ptr::from_mut(at).expose_provenance() as i64)
                };
                let args = [
                    host_from.into(),
                    offset(&mut its.0),
                    host_to.into(),
                    offset(&mut its.1),
                    len as i64,
                    flags.into(),
                ];
                let host = host::call(libc::SYS_splice, args);
                self.moved(host_from, &host);
                same(&what, &(ours, mine), &(host, its))
            }
            Call::Tee { from, to, len, flags } => {
                let ((from, host_from), (to, host_to)) = (self.fds(from), self.fds(to));
                let ours = said(self.ours.tee(from, to, len, flags));
                let args = [host_from.into(), host_to.into(), len as i64, flags.into(), 0, 0];
                same(&what, &ours, &host::call(libc::SYS_tee, args))
            }
            Call::Vmsplice(name, ref lens, flags) => {
                let flags = flags | SPLICE_F_NONBLOCK;
                let buffers: Vec<Vec<u8>> = lens.iter().map(|len| self.bytes(*len)).collect();
                let (one, other) = self.fds(name);
                if !self.is_open_for(other, true) {
                    return Ok(());
                }
                let slices: Vec<&[u8]> = buffers.iter().map(Vec::as_slice).collect();
                let ours = said(self.ours.vmsplice(one, &slices, flags));
                let list = iovecs(&buffers);
                let args = [other.into(), pointer(&list), list.len() as i64, flags.into(), 0, 0];
                let host = host::call(libc::SYS_vmsplice, args);
                self.kept.extend(buffers);
                same(&what, &ours, &host)
            }
            Call::Gift(name, ref lens) => self.gift(&what, name, lens),
            Call::VmspliceFrom(name, ref lens) => {
                let (one, other) = self.fds(name);
                if !self.is_open_for(other, false) {
                    return Ok(());
                }
                let mut mine: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
                let mut its = mine.clone();
                let mut slices: Vec<&mut [u8]> = mine.iter_mut().map(Vec::as_mut_slice).collect();
                let ours = said(self.ours.vmsplice_from(one, &mut slices, SPLICE_F_NONBLOCK));
                let list = targets(&mut its);
                let args = [
                    other.into(),
                    pointer(&list),
                    list.len() as i64,
                    SPLICE_F_NONBLOCK.into(),
                    0,
                    0,
                ];
                let host = host::call(libc::SYS_vmsplice, args);
                same(&what, &(ours, mine), &(host, its))
            }
            Call::Sendfile { to, from, at, len } => {
                let ((from, host_from), (to, host_to)) = (self.fds(from), self.fds(to));
                let (mut mine, mut its) = (at, at);
                let ours = said(self.ours.sendfile(to, from, mine.as_mut(), len));
                let offset =
                    its.as_mut().map_or(0, |at| core::ptr::from_mut(at).expose_provenance() as i64);
                let host = host::call(
                    libc::SYS_sendfile,
                    [host_to.into(), host_from.into(), offset, len as i64, 0, 0],
                );
                self.moved(host_from, &host);
                same(&what, &(ours, mine), &(host, its))
            }
        }
    }

    /// One call of the host's is for both directions, and looks at what the file is open for.
    fn is_open_for(&self, fd: i32, writing: bool) -> bool {
        match host::call(libc::SYS_fcntl, [fd.into(), libc::F_GETFL.into(), 0, 0, 0, 0]) {
            Ok(flags) => match flags as i32 & O_ACCMODE {
                O_RDONLY => !writing,
                O_RDWR => writing,
                _ => writing,
            },
            Err(_) => true,
        }
    }

    fn read(&mut self, what: &str, name: usize, lens: &[usize], list: bool) -> Result<(), String> {
        let (one, other) = self.fds(name);
        let mut mine: Vec<Vec<u8>> = lens.iter().map(|len| vec![0xee; *len]).collect();
        let mut its = mine.clone();
        let (ours, host);
        if list {
            let mut slices: Vec<&mut [u8]> = mine.iter_mut().map(Vec::as_mut_slice).collect();
            ours = said(self.ours.readv(one, &mut slices));
            let list = targets(&mut its);
            host = host::call(
                libc::SYS_readv,
                [other.into(), pointer(&list), list.len() as i64, 0, 0, 0],
            );
        } else {
            ours = said(self.ours.read(one, &mut mine[0]));
            host = host::call(
                libc::SYS_read,
                [other.into(), target(&mut its[0]), lens[0] as i64, 0, 0, 0],
            );
        }
        same(what, &(ours, mine), &(host, its))
    }

    fn writev(&mut self, what: &str, name: usize, buffers: &[Vec<u8>]) -> Result<(), String> {
        let (one, other) = self.fds(name);
        let slices: Vec<&[u8]> = buffers.iter().map(Vec::as_slice).collect();
        let ours = said(self.ours.writev(one, &slices));
        let list = iovecs(buffers);
        let host = host::call(
            libc::SYS_writev,
            [other.into(), pointer(&list), list.len() as i64, 0, 0, 0],
        );
        same(what, &ours, &host)
    }

    /// Pages with so many bytes each, given to both sides. The host is given memory of the test's own, which stays as it is.
    fn gift(&mut self, what: &str, name: usize, lens: &[usize]) -> Result<(), String> {
        let (one, other) = self.fds(name);
        if !self.is_open_for(other, true) {
            return Ok(());
        }
        let (mut list, mut kept, mut fresh) = (Vec::new(), Vec::new(), Vec::new());
        for len in lens {
            let bytes = self.bytes(*len);
            let mut memory = vec![0; 2 * PAGE];
            let at = memory.as_ptr().align_offset(PAGE);
            memory[at..at + len].copy_from_slice(&bytes);
            list.push(libc::iovec {
                iov_base: memory[at..].as_ptr().cast_mut().cast(),
                iov_len: *len,
            });
            kept.push(memory);
            fresh.push(bytes);
        }
        let pages = fresh.iter().map(|bytes| {
            let mut page = self.ours.gift_page()?;
            page.room()[..bytes.len()].copy_from_slice(bytes);
            page.set_len(bytes.len());
            Ok(Some(page))
        });
        let mut pages =
            pages.collect::<Result<Vec<_>, Errno>>().map_err(|errno| format!("a page: {errno}"))?;
        let flags = SPLICE_F_NONBLOCK | SPLICE_F_GIFT;
        let ours = said(self.ours.vmsplice_gift(one, &mut pages, flags));
        let left: usize = pages.iter().flatten().map(|page| page.len()).sum();
        let all: usize = lens.iter().sum();
        let went = ours.map_or(0, |n| n as usize);
        drop(pages);
        let args = [other.into(), pointer(&list), list.len() as i64, flags.into(), 0, 0];
        let host = host::call(libc::SYS_vmsplice, args);
        self.kept.extend(kept);
        // Of a call that failed some pages may be empty, and gone; those with bytes are all there.
        same("pages that are left", &left, &(all - went))?;
        same(what, &ours, &host)
    }

    fn fcntl(&mut self, what: &str, name: usize, cmd: i32, arg: u32) -> Result<(), String> {
        let (one, other) = self.fds(name);
        let ours = said(self.ours.fcntl(one, cmd, arg.into()));
        same(
            what,
            &ours,
            &host::call(libc::SYS_fcntl, [other.into(), cmd.into(), arg.into(), 0, 0, 0]),
        )
    }

    fn wait(&mut self) -> Result<(), String> {
        let mut mine = vec![quietline::EpollEvent::default(); 64];
        let n = self
            .ours
            .epoll_wait(self.epolls.0, &mut mine, 0)
            .map_err(|errno| format!("epoll_wait: {errno}"))?;
        let mut its = vec![libc::epoll_event { events: 0, u64: 0 }; 64];
        let args = [self.epolls.1.into(), target(&mut its), 64, 0, 0, 0];
        let m = host::call(libc::SYS_epoll_wait, args)
            .map_err(|errno| format!("epoll_wait: {errno}"))?;
        let mine: Vec<_> = mine[..n].iter().map(|event| (event.data, event.events)).collect();
        let its: Vec<_> = its[..m as usize].iter().map(|event| (event.u64, event.events)).collect();
        same("epoll_wait", &mine, &its)
    }

    fn poll(&mut self, what: &str, name: usize) -> Result<(), String> {
        let (one, other) = self.fds(name);
        let Ok(file) = self.ours.file(one) else { return Ok(()) };
        let ours = file.opened().poll(&mut quietline::PollTable::look()).bits() as i16;
        let mut asked = [libc::pollfd { fd: other, events: !libc::POLLNVAL & 0x3fff, revents: 0 }];
        host::call(libc::SYS_poll, [target(&mut asked), 1, 0, 0, 0, 0])
            .map_err(|errno| format!("poll: {errno}"))?;
        same(what, &ours, &asked[0].revents)
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, host: &T) -> Result<(), String> {
    if ours == host {
        return Ok(());
    }
    let short = |text: String| if text.len() > 300 { format!("{}...", &text[..300]) } else { text };
    Err(format!("{what}: ours {}, host {}", short(format!("{ours:?}")), short(format!("{host:?}"))))
}

impl Drop for Sides {
    fn drop(&mut self) {
        let epolls = Some(self.epolls);
        for (_, host) in self.names.iter().flatten().chain(&epolls) {
            let _ = host::call(libc::SYS_close, [(*host).into(), 0, 0, 0, 0, 0]);
        }
    }
}

/// Runs a program: how many calls, or what was different.
pub(crate) fn run(program: &Program) -> Result<u64, String> {
    let mut sides = Sides::new(program.watch);
    for (n, call) in program.calls.iter().enumerate() {
        sides.make(call).map_err(|difference| format!("call {n}, {difference}"))?;
    }
    Ok(program.calls.len() as u64)
}
