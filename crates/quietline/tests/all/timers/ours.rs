//! The calls on quietline.

use crate::timers::call::{Other, PLACES, Result, System};
use quietline::abi::{AT_FDCWD, O_NONBLOCK, O_PATH};
use quietline::{Config, EpollEvent, FdSet, ItimerSpec, Kernel, PollFd, Process, SigPipe};
use std::cell::OnceCell;
use std::time::Duration;

thread_local! {
    static KERNEL: OnceCell<Kernel> = const { OnceCell::new() };
}

/// A process of its own for each program.
pub(crate) struct Ours {
    process: Process,
    places: [i32; PLACES],
}

/// Whether this process of the host may set what wakes the system, without which the clocks that do are refused.
fn may_wake() -> bool {
    // SAFETY: makes a descriptor, and closes it.
    unsafe {
        let fd = libc::timerfd_create(libc::CLOCK_REALTIME_ALARM, 0);
        fd >= 0 && libc::close(fd) == 0
    }
}

impl Ours {
    pub(crate) fn new() -> Self {
        let boot = || Kernel::boot(Config::default().privileged(may_wake())).unwrap();
        let process = KERNEL.with(|kernel| kernel.get_or_init(boot).process().unwrap());
        process.set_sigpipe(SigPipe::Signal);
        Self { process, places: [-1; PLACES] }
    }
}

fn number<T>(result: std::result::Result<T, quietline::Errno>) -> Result<T> {
    result.map_err(|errno| errno.raw_os_error())
}

fn specs(spec: ItimerSpec) -> [Duration; 2] {
    [spec.value, spec.interval]
}

fn entries(of: &[(i32, i16)]) -> Vec<PollFd> {
    of.iter().map(|(fd, events)| PollFd::new(*fd, *events)).collect()
}

fn told(n: usize, fds: Vec<PollFd>) -> Vec<i16> {
    assert_eq!(n, fds.iter().filter(|fd| fd.revents != 0).count());
    fds.into_iter().map(|fd| fd.revents).collect()
}

impl System for Ours {
    fn at(&mut self, place: usize) -> &mut i32 {
        &mut self.places[place]
    }

    fn timer(&mut self, clock: i32, flags: i32) -> Result<i32> {
        number(self.process.timerfd_create(clock, flags))
    }

    fn signals(&mut self, fd: i32, mask: u64, flags: i32) -> Result<i32> {
        number(self.process.signalfd(fd, mask, flags))
    }

    fn epoll(&mut self) -> Result<i32> {
        number(self.process.epoll_create1(0))
    }

    fn place(&mut self) -> Result<i32> {
        number(self.process.openat(AT_FDCWD, "/", O_PATH, 0))
    }

    fn pipe(&mut self) -> Result<[i32; 2]> {
        number(self.process.pipe2(O_NONBLOCK))
    }

    fn dup(&mut self, fd: i32) -> Result<i32> {
        number(self.process.dup(fd))
    }

    fn close(&mut self, fd: i32) -> Result<()> {
        number(self.process.close(fd))
    }

    fn set(
        &mut self,
        fd: i32,
        flags: i32,
        [value, interval]: [Duration; 2],
    ) -> Result<[Duration; 2]> {
        number(self.process.timerfd_settime(fd, flags, ItimerSpec { interval, value })).map(specs)
    }

    fn get(&mut self, fd: i32) -> Result<[Duration; 2]> {
        number(self.process.timerfd_gettime(fd)).map(specs)
    }

    fn read(&mut self, fd: i32, n: &[usize]) -> Result<Vec<u8>> {
        let mut bytes = vec![0; n.iter().sum()];
        let done = if n.len() == 1 {
            self.process.read(fd, &mut bytes)
        } else {
            let mut rest = &mut bytes[..];
            let mut part = |n: &usize| {
                let (part, left) = std::mem::take(&mut rest).split_at_mut(*n);
                rest = left;
                part
            };
            let mut parts: Vec<_> = n.iter().map(&mut part).collect();
            self.process.readv(fd, &mut parts)
        };
        bytes.truncate(number(done)?);
        Ok(bytes)
    }

    fn write(&mut self, fd: i32, bytes: &[u8]) -> Result<usize> {
        number(self.process.write(fd, bytes))
    }

    fn other(&mut self, fd: i32, what: Other) -> Result<i64> {
        let (mut bytes, mut answer) = ([0; 8], 0);
        let process = &self.process;
        number(match what {
            Other::Seek => process.lseek(fd, 3, libc::SEEK_SET),
            Other::Pread => process.pread(fd, &mut bytes, 0).map(|n| n as i64),
            Other::Pwrite => process.pwrite(fd, &bytes, 0).map(|n| n as i64),
            Other::Readable => process
                .ioctl(fd, libc::FIONREAD, &mut answer)
                .map(|n| i64::from(n) + i64::from(answer)),
            Other::Flags => process.fcntl(fd, libc::F_GETFL, 0).map(i64::from),
        })
    }

    fn nonblock(&mut self, fd: i32, on: bool) -> Result<()> {
        let flags = if on { O_NONBLOCK } else { 0 };
        number(self.process.fcntl(fd, libc::F_SETFL, flags as u64)).map(drop)
    }

    fn kill(&mut self, signo: i32) -> Result<()> {
        number(self.process.kill(self.process.getpid(), signo))
    }

    fn pending(&mut self) -> u64 {
        self.process.sigpending()
    }

    fn ids(&self) -> [u32; 2] {
        [self.process.getpid() as u32, self.process.getresuid()[0]]
    }

    fn control(&mut self, ep: i32, op: i32, fd: i32, events: u32, data: u64) -> Result<()> {
        number(self.process.epoll_ctl(ep, op, fd, &EpollEvent { events, data }))
    }

    fn wait(&mut self, ep: i32, max: usize, timeout: Option<Duration>) -> Result<Vec<(u32, u64)>> {
        let mut events = vec![EpollEvent::default(); max];
        let n = number(self.process.epoll_pwait2(ep, &mut events, timeout))?;
        Ok(events[..n].iter().map(|event| (event.events, event.data)).collect())
    }

    fn poll(&mut self, of: &[(i32, i16)], timeout: Option<Duration>) -> Result<Vec<i16>> {
        let mut fds = entries(of);
        let n = number(self.process.ppoll(&mut fds, timeout))?;
        Ok(told(n, fds))
    }

    fn poll_millis(&mut self, of: &[(i32, i16)], millis: i32) -> Result<Vec<i16>> {
        let mut fds = entries(of);
        let n = number(self.process.poll(&mut fds, millis))?;
        Ok(told(n, fds))
    }

    fn select(
        &mut self,
        sets: &[Vec<i32>; 3],
        timeout: Option<Duration>,
    ) -> Result<[Vec<bool>; 3]> {
        let mut filled = [const { FdSet::new() }; 3];
        for (set, fds) in filled.iter_mut().zip(sets) {
            fds.iter().for_each(|fd| set.insert(*fd).unwrap());
        }
        let [read, write, except] = &mut filled;
        let highest = sets.iter().flatten().max().map_or(0, |fd| fd + 1);
        let n =
            number(self.process.select(highest, Some(read), Some(write), Some(except), timeout))?;
        assert_eq!(n, filled.iter().map(|set| set.iter().count()).sum::<usize>());
        Ok(std::array::from_fn(|set| {
            sets[set].iter().map(|fd| filled[set].contains(*fd)).collect()
        }))
    }
}
