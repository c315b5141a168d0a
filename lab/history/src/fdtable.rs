//! A process's descriptors (`struct files_struct`, `fs/open.c` and `fs/file.c` of 2.6.27).
//!
//! The lowest free descriptor is found in a bitmap under `file_lock`. Each open takes the lock twice and each
//! close once; as long as every process has its own table, no one else wants it. Lookups take no lock.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::errno::Errno;
use crate::file::File;
use crate::ledger::{Entry, Ledger};
use crate::percpu::Line;
use crate::raw::{Arena, Link};
use crate::ticket::TicketLock;

/// `NR_OPEN_DEFAULT`: descriptors of a table before it grows.
const NR_OPEN_DEFAULT: usize = 64;
/// `sysctl_nr_open`: descriptors that a process may have.
pub(crate) const NR_OPEN: usize = 1 << 20;

/// `struct fdtable`: one size of a process's table.
pub(crate) struct Fdtable {
    fd: Vec<Link<File>>,
    open_fds: Vec<AtomicU64>,
    close_on_exec: Vec<AtomicU64>,
    _entry: Entry,
}

/// `struct files_struct`: a process's table. What is written is off the line that lookups read, as in the
/// kernel.
#[repr(C)]
pub(crate) struct FilesStruct {
    fdt: Link<Fdtable>,
    /// All tables the process ever had: readers may still look at the older ones, so they go with the
    /// process.
    tables: Arena<Fdtable>,
    ledger: Ledger,
    /// `RLIMIT_NOFILE`: descriptors that this process may have.
    pub(crate) rlimit_nofile: usize,
    pub(crate) locked: Line<Locked>,
}

/// The lock and the hint, in one line.
#[repr(C)]
pub(crate) struct Locked {
    pub(crate) file_lock: TicketLock,
    pub(crate) next_fd: AtomicU32,
}

impl Fdtable {
    fn new(max_fds: usize, ledger: &Ledger) -> Result<Self, Errno> {
        Ok(Self {
            fd: filled(max_fds, Link::null)?,
            open_fds: filled(max_fds / 64, || AtomicU64::new(0))?,
            close_on_exec: filled(max_fds / 64, || AtomicU64::new(0))?,
            _entry: ledger.enter(),
        })
    }

    /// `find_next_zero_bit(open_fds, max_fds, start)`, or `max_fds`.
    #[inline]
    fn find_next_zero(&self, start: usize) -> usize {
        let mut below = (1 << (start % 64)) - 1;
        for index in start / 64..self.open_fds.len() {
            // Relaxed, here and below: bitmaps are under `file_lock`.
            let word = self.open_fds[index].load(Ordering::Relaxed) | below;
            if word != u64::MAX {
                return index * 64 + word.trailing_ones() as usize;
            }
            below = 0;
        }
        self.fd.len()
    }
}

impl FilesStruct {
    /// A table with nothing open.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(ledger: &Ledger) -> Result<Self, Errno> {
        let locked = Locked { file_lock: TicketLock::new(), next_fd: AtomicU32::new(0) };
        let files = Self {
            fdt: Link::null(),
            tables: Arena::new(),
            ledger: ledger.clone(),
            rlimit_nofile: NR_OPEN,
            locked: Line(locked),
        };
        let fdt = files.tables.put(Fdtable::new(NR_OPEN_DEFAULT, ledger)?)?;
        files.fdt.store(Some(fdt));
        Ok(files)
    }

    /// `alloc_fd()`: the lowest free descriptor, now taken. Writes the line of `file_lock` and `next_fd`, and
    /// the bitmaps'.
    ///
    /// # Errors
    ///
    /// `EMFILE` past `rlimit_nofile`; `ENOMEM`.
    #[inline]
    pub(crate) fn alloc_fd(&self) -> Result<i32, Errno> {
        let _guard = self.locked.0.file_lock.lock();
        let next_fd = &self.locked.0.next_fd;
        // Relaxed: under the lock.
        let start = next_fd.load(Ordering::Relaxed) as usize;
        let mut fdt = self.fdt();
        let fd = if start < fdt.fd.len() { fdt.find_next_zero(start) } else { start };
        if fd >= self.rlimit_nofile {
            return Err(Errno::EMFILE);
        }
        if fd >= fdt.fd.len() {
            fdt = self.expand_slow(fd)?;
        }
        next_fd.store(fd as u32 + 1, Ordering::Relaxed);
        set_bit(&fdt.open_fds, fd, true);
        set_bit(&fdt.close_on_exec, fd, false);
        Ok(fd as i32)
    }

    /// `fd_install()`: from here on the descriptor finds the file. Writes the lines of `file_lock` and of the
    /// slot.
    #[inline]
    pub(crate) fn fd_install(&self, fd: i32, file: &File) {
        let _guard = self.locked.0.file_lock.lock();
        let slot = &self.fdt().fd[fd as usize];
        assert!(slot.load().is_none(), "a descriptor is installed once");
        slot.store(Some(file));
    }

    /// `put_unused_fd()`: gives back a descriptor that was never installed.
    #[cold]
    pub(crate) fn put_unused_fd(&self, fd: i32) {
        let _guard = self.locked.0.file_lock.lock();
        self.put_unused_fd_locked(self.fdt(), fd as usize);
    }

    /// The first half of `sys_close()`: the file of a descriptor, which is free from now on. Writes the lines
    /// of `file_lock`, of the slot and of the bitmaps.
    ///
    /// # Errors
    ///
    /// `EBADF` if the descriptor is not open.
    #[inline]
    pub(crate) fn close_fd(&self, fd: i32) -> Result<&File, Errno> {
        let index = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        let _guard = self.locked.0.file_lock.lock();
        let fdt = self.fdt();
        let slot = fdt.fd.get(index).ok_or(Errno::EBADF)?;
        let file = slot.load().ok_or(Errno::EBADF)?;
        slot.store(None);
        set_bit(&fdt.close_on_exec, index, false);
        self.put_unused_fd_locked(fdt, index);
        Ok(file)
    }

    /// `fcheck_files()`: what the descriptor's slot holds now. The caller is in an RCU read section.
    #[inline]
    pub(crate) fn fcheck(&self, fd: i32) -> Option<&File> {
        self.fdt().fd.get(usize::try_from(fd).ok()?)?.load()
    }

    /// The bitmaps and the slots of the present table.
    pub(crate) fn table(&self) -> (&[AtomicU64], &[AtomicU64], &[Link<File>]) {
        let fdt = self.fdt();
        (&fdt.open_fds, &fdt.close_on_exec, &fdt.fd)
    }

    /// Descriptors that are open, in order.
    pub(crate) fn open_fds(&self) -> Vec<i32> {
        let _guard = self.locked.0.file_lock.lock();
        let slots = self.fdt().fd.iter().enumerate();
        slots.filter(|(_, slot)| slot.load().is_some()).map(|(fd, _)| fd as i32).collect()
    }

    #[inline]
    fn fdt(&self) -> &Fdtable {
        self.fdt.load().expect("a process has a table")
    }

    #[inline]
    fn put_unused_fd_locked(&self, fdt: &Fdtable, fd: usize) {
        set_bit(&fdt.open_fds, fd, false);
        let next_fd = &self.locked.0.next_fd;
        // Relaxed: under the lock.
        if (fd as u32) < next_fd.load(Ordering::Relaxed) {
            next_fd.store(fd as u32, Ordering::Relaxed);
        }
    }

    /// `expand_files()`: a table for descriptor `fd`, with all that is in the present one. The lock is held.
    #[cold]
    fn expand_slow(&self, fd: usize) -> Result<&Fdtable, Errno> {
        let old = self.fdt();
        let new = Fdtable::new((fd + 1).next_power_of_two().max(NR_OPEN_DEFAULT), &self.ledger)?;
        for (from, to) in old.fd.iter().zip(&new.fd) {
            to.store(from.load());
        }
        let bitmaps = [(&old.open_fds, &new.open_fds), (&old.close_on_exec, &new.close_on_exec)];
        for (from, to) in bitmaps.into_iter().flat_map(|(from, to)| from.iter().zip(to)) {
            // Relaxed: under the lock.
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let new = self.tables.put(new)?;
        self.fdt.store(Some(new));
        Ok(new)
    }
}

#[inline]
fn set_bit(bitmap: &[AtomicU64], bit: usize, value: bool) {
    let word = &bitmap[bit / 64];
    let mask = 1 << (bit % 64);
    // Relaxed: under `file_lock`.
    let old = word.load(Ordering::Relaxed);
    word.store(if value { old | mask } else { old & !mask }, Ordering::Relaxed);
}

/// `len` values of `make`, or `ENOMEM`.
pub(crate) fn filled<T>(len: usize, make: impl FnMut() -> T) -> Result<Vec<T>, Errno> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| Errno::ENOMEM)?;
    values.resize_with(len, make);
    Ok(values)
}
