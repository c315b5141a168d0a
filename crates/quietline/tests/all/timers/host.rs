//! The calls on the host.

use crate::timers::call::{Other, PLACES, Result, System};
use std::io;
use std::time::Duration;

/// The host's side of a program: descriptors and signals that wait go when it does.
pub(crate) struct Host {
    places: [i32; PLACES],
}

impl Host {
    pub(crate) fn new() -> Self {
        drain();
        Self { places: [-1; PLACES] }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for fd in self.places.into_iter().filter(|fd| *fd >= 0) {
            // SAFETY: opened here, and nobody else's.
            unsafe { libc::close(fd) };
        }
        drain();
    }
}

/// Takes all signals that wait.
fn drain() {
    let (all, none) = (u64::MAX, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the set and the time are read only, and as long as said.
    while unsafe {
        libc::syscall(libc::SYS_rt_sigtimedwait, &raw const all, 0usize, &raw const none, 8usize)
    } > 0
    {}
}

/// What a call returned, or why it failed.
fn checked(result: isize) -> Result<usize> {
    usize::try_from(result)
        .map_err(|_| io::Error::last_os_error().raw_os_error().expect("a system error"))
}

fn descriptor(result: i32) -> Result<i32> {
    checked(result as isize).map(|fd| fd as i32)
}

fn done(result: i32) -> Result<()> {
    checked(result as isize).map(drop)
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

/// A time as system calls take it: none is for ever.
fn pointer(time: &Option<libc::timespec>) -> *const libc::timespec {
    time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref)
}

fn specs(spec: &libc::itimerspec) -> [Duration; 2] {
    let time = |time: &libc::timespec| Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
    [time(&spec.it_value), time(&spec.it_interval)]
}

fn none() -> libc::itimerspec {
    libc::itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(Duration::ZERO) }
}

fn entries(of: &[(i32, i16)]) -> Vec<libc::pollfd> {
    of.iter().map(|(fd, events)| libc::pollfd { fd: *fd, events: *events, revents: 0 }).collect()
}

// SAFETY, of all calls below: they are given buffers of the lengths that they are told.
#[allow(clippy::undocumented_unsafe_blocks)]
impl System for Host {
    fn at(&mut self, place: usize) -> &mut i32 {
        &mut self.places[place]
    }

    fn timer(&mut self, clock: i32, flags: i32) -> Result<i32> {
        descriptor(unsafe { libc::timerfd_create(clock, flags) })
    }

    fn signals(&mut self, fd: i32, mask: u64, flags: i32) -> Result<i32> {
        // The library's has a longer set, which it passes on with signals of its own left out.
        let mask = &raw const mask;
        let fd = unsafe { libc::syscall(libc::SYS_signalfd4, fd, mask, 8usize, flags) };
        checked(fd as isize).map(|fd| fd as i32)
    }

    fn epoll(&mut self) -> Result<i32> {
        descriptor(unsafe { libc::epoll_create1(0) })
    }

    fn place(&mut self) -> Result<i32> {
        // SAFETY: as above; the path ends with a zero.
        descriptor(unsafe { libc::open(c"/".as_ptr(), libc::O_PATH) })
    }

    fn pipe(&mut self) -> Result<[i32; 2]> {
        let mut ends = [0; 2];
        done(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK) })?;
        Ok(ends)
    }

    fn dup(&mut self, fd: i32) -> Result<i32> {
        descriptor(unsafe { libc::dup(fd) })
    }

    fn close(&mut self, fd: i32) -> Result<()> {
        done(unsafe { libc::close(fd) })
    }

    fn set(
        &mut self,
        fd: i32,
        flags: i32,
        [value, interval]: [Duration; 2],
    ) -> Result<[Duration; 2]> {
        let new = libc::itimerspec { it_interval: timespec(interval), it_value: timespec(value) };
        let mut old = none();
        done(unsafe { libc::timerfd_settime(fd, flags, &new, &mut old) })?;
        Ok(specs(&old))
    }

    fn get(&mut self, fd: i32) -> Result<[Duration; 2]> {
        let mut spec = none();
        done(unsafe { libc::timerfd_gettime(fd, &mut spec) })?;
        Ok(specs(&spec))
    }

    fn read(&mut self, fd: i32, n: &[usize]) -> Result<Vec<u8>> {
        let mut bytes = vec![0; n.iter().sum()];
        let done = if let [n] = *n {
            unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), n) }
        } else {
            let mut rest = &mut bytes[..];
            let mut part = |n: &usize| {
                let (part, left) = std::mem::take(&mut rest).split_at_mut(*n);
                rest = left;
                libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: *n }
            };
            let parts: Vec<_> = n.iter().map(&mut part).collect();
            unsafe { libc::readv(fd, parts.as_ptr(), parts.len() as i32) }
        };
        bytes.truncate(checked(done)?);
        Ok(bytes)
    }

    fn write(&mut self, fd: i32, bytes: &[u8]) -> Result<usize> {
        checked(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) })
    }

    fn other(&mut self, fd: i32, what: Other) -> Result<i64> {
        let (mut bytes, mut number) = ([0u8; 8], 0i32);
        let done = unsafe {
            match what {
                Other::Seek => libc::lseek(fd, 3, libc::SEEK_SET) as isize,
                Other::Pread => libc::pread(fd, bytes.as_mut_ptr().cast(), 8, 0),
                Other::Pwrite => libc::pwrite(fd, bytes.as_ptr().cast(), 8, 0),
                Other::Readable => libc::ioctl(fd, libc::FIONREAD, &raw mut number) as isize,
                Other::Flags => libc::fcntl(fd, libc::F_GETFL) as isize,
            }
        };
        checked(done).map(|n| n as i64 + i64::from(number))
    }

    fn nonblock(&mut self, fd: i32, on: bool) -> Result<()> {
        done(unsafe { libc::fcntl(fd, libc::F_SETFL, if on { libc::O_NONBLOCK } else { 0 }) })
    }

    fn kill(&mut self, signo: i32) -> Result<()> {
        assert!(signo != libc::SIGKILL && signo != libc::SIGSTOP, "they would be obeyed");
        done(unsafe { libc::kill(libc::getpid(), signo) })
    }

    fn pending(&mut self) -> u64 {
        let mut set = 0u64;
        let done = unsafe { libc::syscall(libc::SYS_rt_sigpending, &raw mut set, 8usize) };
        assert_eq!(done, 0);
        set
    }

    fn ids(&self) -> [u32; 2] {
        [std::process::id(), unsafe { libc::getuid() }]
    }

    fn control(&mut self, ep: i32, op: i32, fd: i32, events: u32, data: u64) -> Result<()> {
        let mut event = libc::epoll_event { events, u64: data };
        done(unsafe { libc::epoll_ctl(ep, op, fd, &mut event) })
    }

    fn wait(&mut self, ep: i32, max: usize, timeout: Option<Duration>) -> Result<Vec<(u32, u64)>> {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; max];
        let time = timeout.map(timespec);
        let (to, time) = (events.as_mut_ptr(), pointer(&time));
        let none = std::ptr::null::<u64>();
        let n = unsafe { libc::syscall(libc::SYS_epoll_pwait2, ep, to, max, time, none, 8usize) };
        let n = checked(n as isize)?;
        Ok(events[..n].iter().map(|event| (event.events, event.u64)).collect())
    }

    fn poll(&mut self, of: &[(i32, i16)], timeout: Option<Duration>) -> Result<Vec<i16>> {
        let (mut fds, time) = (entries(of), timeout.map(timespec));
        let (count, none) = (fds.len() as u64, std::ptr::null());
        checked(unsafe { libc::ppoll(fds.as_mut_ptr(), count, pointer(&time), none) } as isize)?;
        Ok(fds.into_iter().map(|fd| fd.revents).collect())
    }

    fn poll_millis(&mut self, of: &[(i32, i16)], millis: i32) -> Result<Vec<i16>> {
        let mut fds = entries(of);
        checked(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as u64, millis) } as isize)?;
        Ok(fds.into_iter().map(|fd| fd.revents).collect())
    }

    fn select(
        &mut self,
        sets: &[Vec<i32>; 3],
        timeout: Option<Duration>,
    ) -> Result<[Vec<bool>; 3]> {
        // All zeros are an empty set; descriptors are below 1,024 here.
        let mut filled: [libc::fd_set; 3] = unsafe { std::mem::zeroed() };
        for (set, fds) in filled.iter_mut().zip(sets) {
            fds.iter().for_each(|fd| unsafe { libc::FD_SET(*fd, set) });
        }
        let highest = sets.iter().flatten().max().map_or(0, |fd| fd + 1);
        let time = timeout.map(timespec);
        let [read, write, except] = &mut filled;
        let done = unsafe {
            libc::pselect(highest, read, write, except, pointer(&time), std::ptr::null())
        };
        checked(done as isize)?;
        Ok(std::array::from_fn(|set| {
            sets[set].iter().map(|fd| unsafe { libc::FD_ISSET(*fd, &filled[set]) }).collect()
        }))
    }
}
