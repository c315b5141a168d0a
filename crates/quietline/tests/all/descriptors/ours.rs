//! The library behind the interface of a system: each number is the call of `Process` of that name.

use super::room::Room;
use super::system::{NOFILE, Outcome, System};
use libc::*;
use quietline::abi::{Stat, StatFs, Statx, Timespec};
use quietline::locks::Flock;
use quietline::{
    Capabilities, Config, EpollEvent, Errno, FdSet, ItimerSpec, Kernel, OpenHow, PollFd, Process,
    RecvMsg, SendMsg, SockAddr,
};
use std::sync::Mutex;
use std::time::Duration;

/// Bytes that the root file system holds, as it would otherwise take the host's memory.
const FS_SIZE: u64 = 1 << 30;

/// A process of the library.
pub(crate) struct Ours {
    room: Room,
    p: Process,
}

fn host_capabilities() -> u64 {
    // One thread at a time: ThreadSanitizer takes a number that one thread closes and another one
    // gets for a race.
    static READING: Mutex<()> = Mutex::new(());
    let _reading = READING.lock();
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

impl Ours {
    /// Makes a kernel and a process with the user, the capabilities and the limits of the calling
    /// thread, in an empty directory of its own. Three descriptors are open, as they are on the
    /// host.
    pub(crate) fn new() -> Self {
        // SAFETY: asks for numbers.
        let (uid, gid) = unsafe { (geteuid(), getegid()) };
        let config =
            Config::default().privileged(uid == 0).owner(uid, gid).proc(true).fs_size(FS_SIZE);
        let p = Kernel::boot(config).unwrap().process().unwrap();
        p.set_nofile(NOFILE).unwrap();
        p.mkdir("/dir", 0o755).unwrap();
        let caps = Capabilities::from_bits_truncate(host_capabilities()) & p.capabilities();
        p.set_capabilities(caps, caps).unwrap();
        for fd in 0..3 {
            assert_eq!(p.eventfd(0, 0), Ok(fd));
        }
        let ours = Self { room: Room::new(), p };
        ours.enter();
        ours
    }

    /// Makes the case's directory the working directory.
    pub(crate) fn enter(&self) {
        self.p.chdir("/dir").unwrap();
    }

    fn timespec(&self, at: i64) -> Timespec {
        Timespec { tv_sec: self.room.word(at) as i64, tv_nsec: self.room.word(at + 8) as i64 }
    }

    /// The time span at an address; none at address 0.
    fn span(&self, at: i64) -> Result<Option<Duration>, Errno> {
        if at == 0 {
            return Ok(None);
        }
        let Timespec { tv_sec, tv_nsec } = self.timespec(at);
        match (u64::try_from(tv_sec), tv_nsec) {
            (Ok(sec), 0..1_000_000_000) => Ok(Some(Duration::new(sec, tv_nsec as u32))),
            _ => Err(Errno::INVAL),
        }
    }

    fn put_span(&self, at: i64, span: Duration) {
        self.room.put(at, &span.as_secs().to_ne_bytes());
        self.room.put(at + 8, &u64::from(span.subsec_nanos()).to_ne_bytes());
    }

    /// The buffers of a list: their addresses and their bytes.
    fn buffers(&self, at: i64, count: usize) -> Vec<(i64, Vec<u8>)> {
        let entry = |n: usize| {
            let entry = at + n as i64 * 16;
            let (data, len) = (self.room.word(entry) as i64, self.room.word(entry + 8) as usize);
            (data, self.room.get(data, len))
        };
        (0..count).map(entry).collect()
    }

    /// Calls `f` with buffers to write to, and copies them back to the room.
    fn fill_buffers<R>(&self, at: i64, count: usize, f: impl FnOnce(&mut [&mut [u8]]) -> R) -> R {
        let mut buffers = self.buffers(at, count);
        let result =
            f(&mut buffers.iter_mut().map(|(_, bytes)| &mut bytes[..]).collect::<Vec<_>>());
        buffers.iter().for_each(|(at, bytes)| self.room.put(*at, bytes));
        result
    }

    fn with_buffers<R>(&self, at: i64, count: usize, f: impl FnOnce(&[&[u8]]) -> R) -> R {
        let buffers = self.buffers(at, count);
        f(&buffers.iter().map(|(_, bytes)| &bytes[..]).collect::<Vec<_>>())
    }

    /// Calls `f` with the number at an address, if there is one, and writes it back.
    fn offset<R>(&self, at: i64, f: impl FnOnce(Option<&mut i64>) -> R) -> R {
        if at == 0 {
            return f(None);
        }
        let mut offset = self.room.word(at) as i64;
        let result = f(Some(&mut offset));
        self.room.put(at, &offset.to_ne_bytes());
        result
    }

    /// Writes an address as the calls do: as much as there is room for, and its length.
    fn put_address(&self, at: i64, length_at: i64, address: &SockAddr) {
        if at != 0 {
            let room = self.room.int(length_at) as usize;
            self.room.put(at, &address.bytes()[..room.min(address.len())]);
            self.room.put(length_at, &(address.len() as u32).to_ne_bytes());
        }
    }

    fn put_stat(&self, at: i64, stat: &Stat) {
        let mut raw = [0u64; 18];
        let times = [stat.st_atim, stat.st_mtim, stat.st_ctim];
        (raw[0], raw[1], raw[2]) = (stat.st_dev, stat.st_ino, stat.st_nlink);
        raw[3] = u64::from(stat.st_mode) | u64::from(stat.st_uid) << 32;
        (raw[4], raw[5]) = (stat.st_gid.into(), stat.st_rdev);
        raw[6] = stat.st_size as u64;
        (raw[7], raw[8]) = (stat.st_blksize.into(), stat.st_blocks);
        for (n, time) in times.iter().enumerate() {
            (raw[9 + n * 2], raw[10 + n * 2]) = (time.tv_sec as u64, time.tv_nsec as u64);
        }
        self.put_words(at, &raw);
    }

    fn put_statx(&self, at: i64, told: &Statx) {
        let (s, mut raw) = (&told.stat, [0u64; 32]);
        raw[0] = u64::from(told.stx_mask) | u64::from(s.st_blksize) << 32;
        raw[2] = s.st_nlink | u64::from(s.st_uid) << 32;
        raw[3] = u64::from(s.st_gid) | u64::from(s.st_mode) << 32;
        (raw[4], raw[5], raw[6]) = (s.st_ino, s.st_size as u64, s.st_blocks);
        // Major and minor number in one word: only whether it is zero is compared.
        raw[17] = s.st_dev;
        self.put_words(at, &raw);
    }

    fn put_statfs(&self, at: i64, told: &StatFs) {
        let flags = told.f_flags as u64;
        let counts = [told.f_blocks, told.f_bfree, told.f_bavail, told.f_files, told.f_ffree];
        self.put_words(at, &[told.f_type as u64, told.f_bsize as u64]);
        self.put_words(at + 16, &counts);
        let [low, high] = told.f_fsid.map(|half| u64::from(half as u32));
        self.put_words(at + 56, &[low | high << 32]);
        self.put_words(at + 64, &[told.f_namelen as u64, told.f_frsize as u64, flags]);
    }

    fn put_words(&self, at: i64, words: &[u64]) {
        for (n, word) in words.iter().enumerate() {
            self.room.put(at + n as i64 * 8, &word.to_ne_bytes());
        }
    }

    fn itimer(&self, at: i64) -> Result<ItimerSpec, Errno> {
        let [interval, value] = [self.span(at)?, self.span(at + 16)?].map(Option::unwrap);
        Ok(ItimerSpec { interval, value })
    }

    fn put_itimer(&self, at: i64, spec: ItimerSpec) {
        if at != 0 {
            self.put_span(at, spec.interval);
            self.put_span(at + 16, spec.value);
        }
    }

    fn event(&self, at: i64) -> EpollEvent {
        match at {
            0 => EpollEvent::default(),
            _ => EpollEvent { events: self.room.int(at) as u32, data: self.room.word(at + 4) },
        }
    }

    fn put_events(&self, at: i64, events: &[EpollEvent]) {
        for (n, event) in events.iter().enumerate() {
            let at = at + n as i64 * 12;
            self.room.put(at, &event.events.to_ne_bytes());
            self.room.put(at + 4, &event.data.to_ne_bytes());
        }
    }

    fn flock(&self, at: i64) -> Flock {
        let types = self.room.int(at) as u32;
        Flock {
            l_type: types as i16,
            l_whence: (types >> 16) as i16,
            l_start: self.room.word(at + 8) as i64,
            l_len: self.room.word(at + 16) as i64,
            l_pid: self.room.int(at + 24),
        }
    }

    fn put_flock(&self, at: i64, lock: &Flock) {
        self.room.put(at, &lock.l_type.to_ne_bytes());
        self.room.put(at + 2, &lock.l_whence.to_ne_bytes());
        self.put_words(at + 8, &[lock.l_start as u64, lock.l_len as u64]);
        self.room.put(at + 24, &lock.l_pid.to_ne_bytes());
    }

    /// Calls `f` with the message at an address.
    fn sending<R>(&self, at: i64, f: impl FnOnce(&mut SendMsg<'_>) -> R) -> R {
        let word = |n: i64| self.room.word(at + n * 8) as i64;
        let name = self.room.get(word(0), if word(0) == 0 { 0 } else { word(1) as usize });
        let control = self.room.get(word(4), if word(4) == 0 { 0 } else { word(5) as usize });
        self.with_buffers(word(2), word(3) as usize, |buffers| {
            f(&mut SendMsg { name: &name, buffers, control: &control, ..SendMsg::default() })
        })
    }

    /// Calls `f` with room for a message, and writes its header back if that succeeds.
    fn receiving(
        &self,
        at: i64,
        f: impl FnOnce(&mut RecvMsg<'_, '_>) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let word = |n: i64| self.room.word(at + n * 8) as i64;
        let mut control = self.room.get(word(4), if word(4) == 0 { 0 } else { word(5) as usize });
        let (mut name, mut header) = (SockAddr::NONE, (0, 0));
        let received = self.fill_buffers(word(2), word(3) as usize, |buffers| {
            let mut message = RecvMsg { buffers, control: &mut control, ..RecvMsg::default() };
            let received = f(&mut message)?;
            (name, header) = (message.name, (message.control_len, message.flags));
            Ok::<_, Errno>(received)
        })?;
        if word(4) != 0 {
            self.room.put(word(4), &control);
        }
        if word(0) != 0 {
            self.put_address(word(0), at + 8, &name);
        }
        self.put_words(at + 40, &[header.0 as u64]);
        self.room.put(at + 48, &header.1.to_ne_bytes());
        Ok(received)
    }

    fn select(&self, n: i32, sets: [i64; 3], time: Option<Duration>) -> Result<usize, Errno> {
        let words = (n.max(0) as usize).div_ceil(64);
        let set_at = |at: i64| {
            let mut set = FdSet::new();
            for fd in (0..n).filter(|_| at != 0) {
                if self.room.word(at + i64::from(fd / 64) * 8) >> (fd % 64) & 1 != 0 {
                    set.insert(fd).unwrap();
                }
            }
            set
        };
        let mut read = sets.map(set_at);
        let [r, w, x] = &mut read;
        let found = self.p.select(n, Some(r), Some(w), Some(x), time)?;
        for (at, set) in sets.into_iter().zip(&read).filter(|(at, _)| *at != 0) {
            let word = |word: usize| {
                (0..64).map(|bit| u64::from(set.contains((word * 64 + bit) as i32)) << bit).sum()
            };
            self.put_words(at, &(0..words).map(word).collect::<Vec<_>>());
        }
        Ok(found)
    }

    fn fcntl(&self, fd: i32, cmd: i32, arg: i64) -> Result<i64, Errno> {
        match cmd {
            F_GETLK | F_SETLK | F_SETLKW | F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW => {
                let mut lock = self.flock(arg);
                self.p.fcntl_lock(fd, cmd, &mut lock)?;
                if matches!(cmd, F_GETLK | F_OFD_GETLK) {
                    self.put_flock(arg, &lock);
                }
                Ok(0)
            }
            _ => self.p.fcntl(fd, cmd, arg as u64).map(i64::from),
        }
    }

    /// `vmsplice` goes by what the file is open for.
    fn vmsplice(&self, fd: i32, list: i64, count: usize, flags: u32) -> Result<usize, Errno> {
        let p = &self.p;
        let mode = p.fcntl(fd, F_GETFL, 0).unwrap_or(O_WRONLY);
        if mode & O_PATH == 0 && mode & O_ACCMODE == O_RDONLY {
            self.fill_buffers(list, count, |buffers| p.vmsplice_from(fd, buffers, flags))
        } else {
            self.with_buffers(list, count, |buffers| p.vmsplice(fd, buffers, flags))
        }
    }

    fn ioctl(&self, fd: i32, request: u64, at: i64) -> Result<i64, Errno> {
        let mut arg = self.room.int(at);
        let value = self.p.ioctl(fd, request, &mut arg)?;
        self.room.put(at, &arg.to_ne_bytes());
        Ok(value.into())
    }

    fn times(&self, at: i64) -> Option<[Timespec; 2]> {
        (at != 0).then(|| [self.timespec(at), self.timespec(at + 16)])
    }

    fn done(&self, number: i64, a: [i64; 6]) -> Result<i64, Errno> {
        let (p, room) = (&self.p, &self.room);
        let [fd, second, third, fourth, fifth, _] = a.map(|arg| arg as i32);
        let none = |(): ()| 0;
        let size = |n: usize| n as i64;
        let text = |at: i64| room.string(at);
        let address = |at: i64, len: i64| room.get(at, len as usize);
        let read_to = |at: i64, len: i64, f: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>| {
            let mut bytes = room.get(at, len as usize);
            let n = f(&mut bytes)?;
            room.put(at, &bytes);
            Ok::<_, Errno>(n as i64)
        };
        match number {
            // Descriptors that constructors make.
            SYS_pipe2 => {
                let [read, write] = p.pipe2(second)?;
                self.put_words(a[0], &[read as u64 | (write as u64) << 32]);
                Ok(0)
            }
            SYS_socketpair => {
                let [one, two] = p.socketpair(fd, second, third)?;
                self.put_words(a[3], &[one as u64 | (two as u64) << 32]);
                Ok(0)
            }
            SYS_socket => p.socket(fd, second, third).map(i64::from),
            SYS_eventfd2 => p.eventfd(a[0] as u32, second).map(i64::from),
            SYS_timerfd_create => p.timerfd_create(fd, second).map(i64::from),
            SYS_epoll_create1 => p.epoll_create1(fd).map(i64::from),
            SYS_inotify_init1 => p.inotify_init1(fd).map(i64::from),
            SYS_memfd_create => p.memfd_create(text(a[0]), a[1] as u32).map(i64::from),
            SYS_signalfd4 => {
                // (The size of a mask is not an argument here.)
                p.signalfd(fd, room.word(a[1]), fourth).map(i64::from)
            }
            // Bytes.
            SYS_read => read_to(a[1], a[2], &mut |to| p.read(fd, to)),
            SYS_write => p.write(fd, &room.get(a[1], a[2] as usize)).map(size),
            SYS_pread64 => read_to(a[1], a[2], &mut |to| p.pread(fd, to, a[3])),
            SYS_pwrite64 => p.pwrite(fd, &room.get(a[1], a[2] as usize), a[3]).map(size),
            SYS_readv => self.fill_buffers(a[1], a[2] as usize, |to| p.readv(fd, to)).map(size),
            SYS_writev => {
                self.with_buffers(a[1], a[2] as usize, |from| p.writev(fd, from)).map(size)
            }
            SYS_preadv => {
                self.fill_buffers(a[1], a[2] as usize, |to| p.preadv(fd, to, a[3])).map(size)
            }
            SYS_pwritev => {
                self.with_buffers(a[1], a[2] as usize, |from| p.pwritev(fd, from, a[3])).map(size)
            }
            SYS_lseek => p.lseek(fd, a[1], third),
            SYS_fallocate => p.fallocate(fd, second, a[2], a[3]).map(none),
            SYS_ftruncate => p.ftruncate(fd, a[1]).map(none),
            SYS_fsync => p.fsync(fd).map(none),
            SYS_fdatasync => p.fdatasync(fd).map(none),
            SYS_syncfs => p.syncfs(fd).map(none),
            SYS_getdents64 => read_to(a[1], a[2], &mut |to| p.getdents64(fd, to)),
            SYS_copy_file_range => self
                .offset(a[1], |from| {
                    self.offset(a[3], |to| {
                        p.copy_file_range(fd, from, third, to, a[4] as usize, a[5] as u32)
                    })
                })
                .map(size),
            SYS_sendfile => {
                self.offset(a[2], |offset| p.sendfile(fd, second, offset, a[3] as usize)).map(size)
            }
            SYS_splice => self
                .offset(a[1], |from| {
                    self.offset(a[3], |to| {
                        p.splice(fd, from, third, to, a[4] as usize, a[5] as u32)
                    })
                })
                .map(size),
            SYS_tee => p.tee(fd, second, a[2] as usize, a[3] as u32).map(size),
            SYS_vmsplice => self.vmsplice(fd, a[1], a[2] as usize, a[3] as u32).map(size),
            SYS_ioctl => self.ioctl(fd, a[1] as u64 & u64::from(u32::MAX), a[2]),
            // Descriptors.
            SYS_close => p.close(fd).map(none),
            SYS_close_range => p.close_range(a[0] as u32, a[1] as u32, a[2] as u32).map(none),
            SYS_dup => p.dup(fd).map(i64::from),
            SYS_dup2 => p.dup2(fd, second).map(i64::from),
            SYS_dup3 => p.dup3(fd, second, third).map(i64::from),
            SYS_fcntl => self.fcntl(fd, second, a[2]),
            SYS_flock => p.flock(fd, second).map(none),
            // Events.
            SYS_epoll_ctl => p.epoll_ctl(fd, second, third, &self.event(a[3])).map(none),
            SYS_epoll_wait | SYS_epoll_pwait2 => {
                let mut events = vec![EpollEvent::default(); a[2].max(0) as usize];
                let n = if number == SYS_epoll_wait {
                    p.epoll_wait(fd, &mut events, fourth)?
                } else {
                    let time = self.span(a[3])?;
                    p.epoll_pwait2(fd, &mut events, time)?
                };
                self.put_events(a[1], &events[..n]);
                Ok(n as i64)
            }
            SYS_poll | SYS_ppoll => {
                let entry = |n: i64| {
                    let events = room.int(a[0] + n * 8 + 4) as i16;
                    PollFd::new(room.int(a[0] + n * 8), events)
                };
                let mut list: Vec<_> = (0..a[1]).map(entry).collect();
                let n = if number == SYS_poll {
                    p.poll(&mut list, third)?
                } else {
                    let time = self.span(a[2])?;
                    p.ppoll(&mut list, time)?
                };
                for (at, entry) in list.iter().enumerate() {
                    room.put(a[0] + at as i64 * 8 + 6, &entry.revents.to_ne_bytes());
                }
                Ok(n as i64)
            }
            SYS_select => self.select(fd, [a[1], a[2], a[3]], Some(Duration::ZERO)).map(size),
            SYS_timerfd_settime => {
                let new = self.itimer(a[2])?;
                let old = p.timerfd_settime(fd, second, new)?;
                self.put_itimer(a[3], old);
                Ok(0)
            }
            SYS_timerfd_gettime => {
                self.put_itimer(a[1], p.timerfd_gettime(fd)?);
                Ok(0)
            }
            SYS_inotify_add_watch => {
                p.inotify_add_watch(fd, text(a[1]), a[2] as u32).map(i64::from)
            }
            SYS_inotify_rm_watch => p.inotify_rm_watch(fd, second).map(none),
            // Sockets.
            SYS_bind => p.bind(fd, &address(a[1], a[2])).map(none),
            SYS_listen => p.listen(fd, second).map(none),
            SYS_connect => p.connect(fd, &address(a[1], a[2])).map(none),
            SYS_accept | SYS_accept4 => {
                let accepted =
                    if number == SYS_accept { p.accept(fd) } else { p.accept4(fd, fourth) };
                let (new, from) = accepted?;
                self.put_address(a[1], a[2], &from);
                Ok(new.into())
            }
            SYS_getsockname => {
                self.put_address(a[1], a[2], &p.getsockname(fd)?);
                Ok(0)
            }
            SYS_getpeername => {
                self.put_address(a[1], a[2], &p.getpeername(fd)?);
                Ok(0)
            }
            SYS_shutdown => p.shutdown(fd, second).map(none),
            SYS_sendto => {
                let bytes = room.get(a[1], a[2] as usize);
                match a[4] {
                    0 => p.send(fd, &bytes, fourth),
                    at => p.sendto(fd, &bytes, fourth, &address(at, a[5])),
                }
                .map(size)
            }
            SYS_sendmsg => self.sending(a[1], |message| p.sendmsg(fd, message, third)).map(size),
            SYS_sendmmsg => self.sending(a[1], |message| {
                let list = std::slice::from_mut(message);
                let n = p.sendmmsg(fd, &mut list[..a[2] as usize], fourth)?;
                if n > 0 {
                    room.put(a[1] + 56, &(message.sent as u32).to_ne_bytes());
                }
                Ok(n as i64)
            }),
            SYS_recvfrom => {
                let mut bytes = room.get(a[1], a[2] as usize);
                let n = if a[4] == 0 {
                    p.recv(fd, &mut bytes, fourth)?
                } else {
                    let (n, from) = p.recvfrom(fd, &mut bytes, fourth)?;
                    self.put_address(a[4], a[5], &from);
                    n
                };
                room.put(a[1], &bytes);
                Ok(n as i64)
            }
            SYS_recvmsg => self.receiving(a[1], |message| p.recvmsg(fd, message, third)).map(size),
            SYS_recvmmsg => {
                let mut got = 0;
                let n = self.receiving(a[1], |message| {
                    let list = std::slice::from_mut(message);
                    let n = p.recvmmsg(fd, &mut list[..a[2] as usize], fourth, None)?;
                    got = message.received;
                    Ok(n)
                })?;
                if n > 0 {
                    room.put(a[1] + 56, &(got as u32).to_ne_bytes());
                }
                Ok(n as i64)
            }
            SYS_setsockopt => {
                p.setsockopt(fd, second, third, &room.get(a[3], a[4] as usize)).map(none)
            }
            SYS_getsockopt => {
                let length = room.int(a[4]);
                let mut value = room.get(a[3], length as usize);
                let n = p.getsockopt(fd, second, third, &mut value)?;
                room.put(a[3], &value);
                room.put(a[4], &(n as u32).to_ne_bytes());
                Ok(0)
            }
            // The tree.
            SYS_chdir => p.chdir(text(a[0])).map(none),
            SYS_fchdir => p.fchdir(fd).map(none),
            SYS_fstat => {
                self.put_stat(a[1], &p.fstat(fd)?);
                Ok(0)
            }
            SYS_newfstatat => {
                self.put_stat(a[2], &p.fstatat(fd, text(a[1]), fourth)?);
                Ok(0)
            }
            SYS_statx => {
                self.put_statx(a[4], &p.statx(fd, text(a[1]), third, a[3] as u32)?);
                Ok(0)
            }
            SYS_fstatfs => {
                self.put_statfs(a[1], &p.fstatfs(fd)?);
                Ok(0)
            }
            SYS_faccessat2 => p.faccessat2(fd, text(a[1]), third, fourth).map(none),
            SYS_readlinkat => read_to(a[2], a[3], &mut |to| p.readlinkat(fd, text(a[1]), to)),
            SYS_fchmod => p.fchmod(fd, a[1] as u32).map(none),
            SYS_fchmodat2 => p.fchmodat2(fd, text(a[1]), a[2] as u32, fourth).map(none),
            SYS_fchown => p.fchown(fd, a[1] as u32, a[2] as u32).map(none),
            SYS_fchownat => p.fchownat(fd, text(a[1]), a[2] as u32, a[3] as u32, fifth).map(none),
            SYS_utimensat => match (a[1], fourth) {
                (0, 0) => p.futimens(fd, self.times(a[2])),
                (0, flags) => p.utimensat(fd, None::<&str>, self.times(a[2]), flags),
                (path, flags) => p.utimensat(fd, Some(text(path)), self.times(a[2]), flags),
            }
            .map(none),
            SYS_fsetxattr => {
                p.fsetxattr(fd, text(a[1]), &room.get(a[2], a[3] as usize), fifth).map(none)
            }
            SYS_fgetxattr => read_to(a[2], a[3], &mut |to| p.fgetxattr(fd, text(a[1]), to)),
            SYS_flistxattr => read_to(a[1], a[2], &mut |to| p.flistxattr(fd, to)),
            SYS_fremovexattr => p.fremovexattr(fd, text(a[1])).map(none),
            SYS_openat => p.openat(fd, text(a[1]), third, a[3] as u32).map(i64::from),
            SYS_openat2 => {
                let [flags, mode, resolve] = [0, 8, 16].map(|at| room.word(a[2] + at));
                p.openat2(fd, text(a[1]), &OpenHow { flags, mode, resolve }).map(i64::from)
            }
            SYS_mkdirat => p.mkdirat(fd, text(a[1]), a[2] as u32).map(none),
            SYS_mknodat => p.mknodat(fd, text(a[1]), a[2] as u32, a[3] as u64).map(none),
            SYS_symlinkat => p.symlinkat(text(a[0]), second, text(a[2])).map(none),
            SYS_unlinkat => p.unlinkat(fd, text(a[1]), third).map(none),
            SYS_renameat => p.renameat(fd, text(a[1]), third, text(a[3])).map(none),
            SYS_renameat2 => p.renameat2(fd, text(a[1]), third, text(a[3]), a[4] as u32).map(none),
            SYS_linkat => p.linkat(fd, text(a[1]), third, text(a[3]), fifth).map(none),
            _ => panic!("no call has the number {number}"),
        }
    }
}

impl System for Ours {
    fn room(&self) -> &Room {
        &self.room
    }

    fn call(&self, number: i64, args: &[i64]) -> Outcome {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        self.done(number, all).map_err(Errno::raw_os_error)
    }
}
