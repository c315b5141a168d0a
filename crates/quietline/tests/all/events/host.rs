//! The calls on the host.

use crate::events::call::{PLACES, Result, System};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One at a time: the host's descriptors are the whole test's, and when a number is taken again, which epoll tells apart
/// from another, is to depend on the program only.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) struct Host {
    places: [i32; PLACES],
    /// Let go after the descriptors are closed.
    _alone: MutexGuard<'static, ()>,
}

impl Default for Host {
    fn default() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Self { places: [-1; PLACES], _alone: alone }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for fd in self.places.into_iter().filter(|fd| *fd >= 0) {
            // SAFETY: opened here, and nobody else's.
            unsafe { libc::close(fd) };
        }
    }
}

/// What a call returned, or why it failed.
fn checked(result: isize) -> Result<usize> {
    usize::try_from(result)
        .map_err(|_| io::Error::last_os_error().raw_os_error().expect("a system error"))
}

fn descriptor(result: i32) -> Result<i32> {
    checked(result as isize).map(|fd| fd as i32)
}

// SAFETY, of all calls below: they are given buffers of the lengths that they are told.
impl System for Host {
    fn at(&mut self, place: usize) -> &mut i32 {
        &mut self.places[place]
    }

    fn counter(&mut self) -> Result<i32> {
        // SAFETY: as above.
        descriptor(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK) })
    }

    fn semaphore(&mut self) -> Result<i32> {
        // SAFETY: as above.
        descriptor(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_SEMAPHORE) })
    }

    fn epoll(&mut self) -> Result<i32> {
        // SAFETY: as above.
        descriptor(unsafe { libc::epoll_create1(0) })
    }

    fn place(&mut self) -> Result<i32> {
        // SAFETY: as above; the path ends with a zero.
        descriptor(unsafe { libc::open(c"/".as_ptr(), libc::O_PATH) })
    }

    fn pipe(&mut self) -> Result<[i32; 2]> {
        let mut ends = [0; 2];
        // SAFETY: as above.
        descriptor(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK) })?;
        Ok(ends)
    }

    fn dup(&mut self, fd: i32) -> Result<i32> {
        // SAFETY: as above.
        descriptor(unsafe { libc::dup(fd) })
    }

    fn close(&mut self, fd: i32) -> Result<()> {
        // SAFETY: as above; only descriptors of the program's own.
        descriptor(unsafe { libc::close(fd) }).map(drop)
    }

    fn write(&mut self, fd: i32, bytes: &[u8]) -> Result<usize> {
        // SAFETY: as above.
        checked(unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) })
    }

    fn read(&mut self, fd: i32, bytes: &mut [u8]) -> Result<usize> {
        // SAFETY: as above.
        checked(unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) })
    }

    fn control(&mut self, ep: i32, op: i32, fd: i32, events: u32, data: u64) -> Result<()> {
        let mut event = libc::epoll_event { events, u64: data };
        // SAFETY: as above.
        descriptor(unsafe { libc::epoll_ctl(ep, op, fd, &mut event) }).map(drop)
    }

    fn wait(&mut self, ep: i32, max: usize) -> Result<Vec<(u32, u64)>> {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; max];
        // SAFETY: as above.
        let n =
            checked(unsafe { libc::epoll_wait(ep, events.as_mut_ptr(), max as i32, 0) } as isize)?;
        Ok(events[..n].iter().map(|event| (event.events, event.u64)).collect())
    }

    fn poll(&mut self, of: &[(i32, i16)]) -> Result<Vec<i16>> {
        let mut fds: Vec<_> = of
            .iter()
            .map(|(fd, events)| libc::pollfd { fd: *fd, events: *events, revents: 0 })
            .collect();
        // SAFETY: as above.
        checked(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as u64, 0) } as isize)?;
        Ok(fds.into_iter().map(|fd| fd.revents).collect())
    }

    fn select(&mut self, sets: &[Vec<i32>; 3]) -> Result<[Vec<bool>; 3]> {
        // SAFETY: all zeros are an empty set; descriptors are below 1,024 here; else as above.
        unsafe {
            let mut filled: [libc::fd_set; 3] = std::mem::zeroed();
            for (set, fds) in filled.iter_mut().zip(sets) {
                fds.iter().for_each(|fd| libc::FD_SET(*fd, set));
            }
            let highest = sets.iter().flatten().max().map_or(0, |fd| fd + 1);
            let mut none = libc::timeval { tv_sec: 0, tv_usec: 0 };
            let [read, write, except] = &mut filled;
            checked(libc::select(highest, read, write, except, &mut none) as isize)?;
            Ok(std::array::from_fn(|set| {
                sets[set].iter().map(|fd| libc::FD_ISSET(*fd, &filled[set])).collect()
            }))
        }
    }
}
