//! The calls on quietline.

use crate::events::call::{PLACES, Result, System};
use quietline::abi::{AT_FDCWD, EFD_NONBLOCK, EFD_SEMAPHORE, O_NONBLOCK, O_PATH};
use quietline::{Config, EpollEvent, FdSet, Kernel, PollFd, Process};
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

impl Ours {
    pub(crate) fn new() -> Self {
        let process = KERNEL.with(|kernel| {
            kernel.get_or_init(|| Kernel::boot(Config::default()).unwrap()).process().unwrap()
        });
        Self { process, places: [-1; PLACES] }
    }
}

fn number<T>(result: std::result::Result<T, quietline::Errno>) -> Result<T> {
    result.map_err(|errno| errno.raw_os_error())
}

impl System for Ours {
    fn at(&mut self, place: usize) -> &mut i32 {
        &mut self.places[place]
    }

    fn counter(&mut self) -> Result<i32> {
        number(self.process.eventfd(0, EFD_NONBLOCK))
    }

    fn semaphore(&mut self) -> Result<i32> {
        number(self.process.eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE))
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

    fn write(&mut self, fd: i32, bytes: &[u8]) -> Result<usize> {
        number(self.process.write(fd, bytes))
    }

    fn read(&mut self, fd: i32, bytes: &mut [u8]) -> Result<usize> {
        number(self.process.read(fd, bytes))
    }

    fn control(&mut self, ep: i32, op: i32, fd: i32, events: u32, data: u64) -> Result<()> {
        number(self.process.epoll_ctl(ep, op, fd, &EpollEvent { events, data }))
    }

    fn wait(&mut self, ep: i32, max: usize) -> Result<Vec<(u32, u64)>> {
        let mut events = vec![EpollEvent::default(); max];
        let n = number(self.process.epoll_wait(ep, &mut events, 0))?;
        Ok(events[..n].iter().map(|event| (event.events, event.data)).collect())
    }

    fn poll(&mut self, of: &[(i32, i16)]) -> Result<Vec<i16>> {
        let mut fds: Vec<_> = of.iter().map(|(fd, events)| PollFd::new(*fd, *events)).collect();
        let n = number(self.process.poll(&mut fds, 0))?;
        assert_eq!(n, fds.iter().filter(|fd| fd.revents != 0).count());
        Ok(fds.into_iter().map(|fd| fd.revents).collect())
    }

    fn select(&mut self, sets: &[Vec<i32>; 3]) -> Result<[Vec<bool>; 3]> {
        let mut filled = [const { FdSet::new() }; 3];
        for (set, fds) in filled.iter_mut().zip(sets) {
            fds.iter().for_each(|fd| set.insert(*fd).unwrap());
        }
        let [read, write, except] = &mut filled;
        let highest = sets.iter().flatten().max().map_or(0, |fd| fd + 1);
        let timeout = Some(Duration::ZERO);
        let n =
            number(self.process.select(highest, Some(read), Some(write), Some(except), timeout))?;
        assert_eq!(n, filled.iter().map(|set| set.iter().count()).sum::<usize>());
        Ok(std::array::from_fn(|set| {
            sets[set].iter().map(|fd| filled[set].contains(*fd)).collect()
        }))
    }
}
