//! `select`.

use super::is_over;
use crate::{Errno, Process};
use core::fmt;
use core::time::Duration;
use quietline_platform::fault;
use quietline_vfs::select::{Polled, wait_for_any};
use quietline_vfs::{Events, PollTable};

/// Who is told to be readable.
const TO_READ: Events = Events::RDNORM
    .union(Events::RDBAND)
    .union(Events::IN)
    .union(Events::HUP)
    .union(Events::ERR)
    .union(Events::NVAL);
/// Who is told to be writable.
const TO_WRITE: Events =
    Events::WRBAND.union(Events::WRNORM).union(Events::OUT).union(Events::ERR).union(Events::NVAL);
/// Who is told to have something exceptional.
const EXCEPTIONAL: Events = Events::PRI.union(Events::NVAL);
const OF_SET: [Events; 3] = [TO_READ, TO_WRITE, EXCEPTIONAL];

/// A set of descriptors, of any size (`fd_set`).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FdSet {
    words: Vec<u64>,
}

impl FdSet {
    /// An empty set.
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// Puts a descriptor in (`FD_SET`). A negative one is not put in.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn insert(&mut self, fd: i32) -> Result<(), Errno> {
        let Ok(fd) = usize::try_from(fd) else { return Ok(()) };
        let missing = (fd / 64 + 1).saturating_sub(self.words.len());
        fault::check().map_err(|_| Errno::NOMEM)?;
        self.words.try_reserve(missing).map_err(|_| Errno::NOMEM)?;
        self.words.resize(self.words.len() + missing, 0);
        self.words[fd / 64] |= 1 << (fd % 64);
        Ok(())
    }

    /// Takes a descriptor out (`FD_CLR`).
    pub fn remove(&mut self, fd: i32) {
        let Ok(fd) = usize::try_from(fd) else { return };
        if let Some(word) = self.words.get_mut(fd / 64) {
            *word &= !(1 << (fd % 64));
        }
    }

    /// Whether it is in (`FD_ISSET`).
    pub fn contains(&self, fd: i32) -> bool {
        usize::try_from(fd)
            .is_ok_and(|fd| self.words.get(fd / 64).is_some_and(|w| w >> (fd % 64) & 1 != 0))
    }

    /// The descriptors, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = i32> + '_ {
        (0..self.words.len() as i32 * 64).filter(|fd| self.contains(*fd))
    }

    /// Takes out those below `n` that are not in `told`, in the call's order.
    fn keep(&mut self, n: i32, keep: impl Fn(i32) -> bool) -> usize {
        let mut kept = 0;
        for fd in 0..n.min(self.words.len() as i32 * 64) {
            if self.contains(fd) {
                if keep(fd) {
                    kept += 1;
                } else {
                    self.remove(fd);
                }
            }
        }
        kept
    }
}

impl fmt::Debug for FdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Process {
    /// Waits until a descriptor below `n` in `read` can be read, one in `write` written, or one in `except` has something
    /// exceptional; at most for `timeout`, which is for ever if it is none. The sets then hold those that are; how many in all.
    ///
    /// # Errors
    /// `EBADF` for one that is not open, `EINVAL` for a negative `n`, `EINTR`, `ENOMEM`: the sets are as they were.
    pub fn select(
        &self,
        n: i32,
        read: Option<&mut FdSet>,
        write: Option<&mut FdSet>,
        except: Option<&mut FdSet>,
        timeout: Option<Duration>,
    ) -> Result<usize, Errno> {
        if n < 0 {
            return Err(Errno::INVAL);
        }
        let sets = [read, write, except];
        let mut asked = Vec::new();
        // No set has a descriptor beyond its last word, however large `n` is.
        let words = sets.iter().flatten().map(|set| set.words.len()).max().unwrap_or(0);
        let n = n.min(i32::try_from(words * 64).unwrap_or(i32::MAX));
        for fd in 0..n {
            let mut wanted = Events::empty();
            for (set, events) in sets.iter().zip(OF_SET) {
                if set.as_ref().is_some_and(|set| set.contains(fd)) {
                    wanted |= events;
                }
            }
            if wanted.is_empty() {
                continue;
            }
            self.table.cloexec(fd)?;
            fault::check().map_err(|_| Errno::NOMEM)?;
            asked.try_reserve(1).map_err(|_| Errno::NOMEM)?;
            asked.push((fd, wanted, Events::empty()));
        }
        let mut ready = 0;
        for (fd, wanted, found) in &mut asked {
            *found = self.select_one(*fd) & *wanted;
            ready += usize::from(!found.is_empty());
        }
        if ready == 0 && !is_over(timeout) {
            self.select_slow(&mut asked, timeout)?;
        }
        let mut told = 0;
        for (set, events) in sets.into_iter().zip(OF_SET) {
            let Some(set) = set else { continue };
            let found = |fd| asked.binary_search_by_key(&fd, |asked| asked.0).map(|at| asked[at].2);
            told += set.keep(n, |fd| found(fd).is_ok_and(|found| found.intersects(events)));
        }
        Ok(told)
    }

    fn select_one(&self, fd: i32) -> Events {
        let section = self.inner().vfs.read();
        match self.fdget(fd, &section) {
            Ok(file) => file.poll(&mut PollTable::look()),
            Err(_) => Events::NVAL,
        }
    }

    #[cold]
    fn select_slow(
        &self,
        asked: &mut [(i32, Events, Events)],
        timeout: Option<Duration>,
    ) -> Result<(), Errno> {
        let mut files = Vec::new();
        fault::check().map_err(|_| Errno::NOMEM)?;
        files.try_reserve_exact(asked.len()).map_err(|_| Errno::NOMEM)?;
        for (fd, wanted, _) in asked.iter() {
            files.push(Polled::new(self.fget(*fd).ok(), *wanted));
        }
        wait_for_any(&mut files, timeout)?;
        for ((_, wanted, found), file) in asked.iter_mut().zip(&files) {
            *found = file.found & *wanted;
        }
        Ok(())
    }
}
