//! A CPU: its free objects, its callbacks, and the two calls.

use super::sheaves::Sheaves;
use super::slots::{Freelist, Slot, Slots};
use super::{Failed, FreeWay, NONE, Ramfs};
use crate::atomic::Ordering;

/// Files that a CPU removes between two of its ticks: those of a millisecond (`HZ=1000`) at the
/// thread's rate of 800,000 a second, in every way of freeing.
const FILES_OF_TICK: u32 = 800;

/// One CPU's use of a [`Ramfs`]. Dropping it frees what still waits; nobody reads.
pub struct Cpu<'r> {
    ramfs: &'r Ramfs,
    inodes: Freelist,
    dentries: Freelist,
    waiting_inodes: Waiting,
    waiting_dentries: Waiting,
    /// Inodes, where they wait in sheaves.
    sheaves: Sheaves,
    /// Files removed since the last tick.
    removed: u32,
}

impl core::fmt::Debug for Cpu<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cpu").field("ramfs", self.ramfs).finish()
    }
}

/// Callbacks, oldest first: each in the first word of what it will free.
struct Queue {
    first: u32,
    last: u32,
    count: usize,
}

/// What waits for a tick, and what waits for the grace period that began at the last one.
struct Waiting {
    nxtlist: Queue,
    curlist: Queue,
}

impl Queue {
    const EMPTY: Self = Self { first: NONE, last: NONE, count: 0 };

    #[inline]
    fn push<T: Slot>(&mut self, slots: &Slots<T>, number: u32) {
        // Relaxed, here and below: the CPU's own.
        slots.at(number).next().store(NONE, Ordering::Relaxed);
        match self.last {
            NONE => self.first = number,
            last => slots.at(last).next().store(number, Ordering::Relaxed),
        }
        self.last = number;
        self.count += 1;
    }

    fn free<T: Slot>(self, slots: &Slots<T>, to: &mut Freelist) {
        let mut at = self.first;
        while at != NONE {
            let next = slots.at(at).next().load(Ordering::Relaxed);
            to.free(slots, at);
            at = next;
        }
    }
}

impl Waiting {
    fn new() -> Self {
        Self { nxtlist: Queue::EMPTY, curlist: Queue::EMPTY }
    }

    /// A grace period is over and the next begins.
    fn tick<T: Slot>(&mut self, slots: &Slots<T>, to: &mut Freelist) {
        let next = core::mem::replace(&mut self.nxtlist, Queue::EMPTY);
        let done = core::mem::replace(&mut self.curlist, next);
        done.free(slots, to);
    }
}

impl Ramfs {
    /// A CPU for the calling thread.
    pub fn cpu(&self) -> Cpu<'_> {
        Cpu {
            ramfs: self,
            inodes: Freelist::new(),
            dentries: Freelist::new(),
            waiting_inodes: Waiting::new(),
            waiting_dentries: Waiting::new(),
            sheaves: Sheaves::new(),
            removed: 0,
        }
    }
}

impl Cpu<'_> {
    /// Makes a file (`creat`), and puts what it has of it but the name (`close`).
    ///
    /// # Errors
    /// [`Failed::Exists`], [`Failed::NoSpace`].
    #[inline]
    pub fn create(&mut self, directory: u32, name: u64) -> Result<(), Failed> {
        let fs = self.ramfs;
        let _mutex = fs.directories[directory as usize].i_mutex.lock();
        if fs.find(directory, name).is_some() {
            return Err(Failed::Exists);
        }
        let number = self.dentries.alloc(&fs.dentries).ok_or(Failed::NoSpace)?;
        let Some(inode) = self.sheaves.alloc().or_else(|| self.inodes.alloc(&fs.inodes)) else {
            self.dentries.free(&fs.dentries, number);
            return Err(Failed::NoSpace);
        };
        let dentry = fs.dentries.at(number);
        // Relaxed: nobody else has it until it is hashed.
        dentry.body.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        // One for the name, as ramfs has it, and one for the file.
        dentry.d_count.store(2, Ordering::Relaxed);
        dentry.d_name.store(name, Ordering::Relaxed);
        dentry.d_parent.store(directory, Ordering::Relaxed);
        fs.init_inode(inode);
        dentry.d_inode.store(inode, Ordering::Relaxed);
        fs.hash(number, directory, name);
        // ORDERING: release, with the put of whoever comes last.
        dentry.d_count.fetch_sub(1, Ordering::Release);
        Ok(())
    }

    /// Removes a file (`unlink`).
    ///
    /// # Errors
    /// [`Failed::NoEntry`].
    #[inline]
    pub fn unlink(&mut self, directory: u32, name: u64) -> Result<(), Failed> {
        let fs = self.ramfs;
        let mutex = fs.directories[directory as usize].i_mutex.lock();
        let number = fs.find(directory, name).ok_or(Failed::NoEntry)?;
        let dentry = fs.dentries.at(number);
        let inode = dentry.d_inode.load(Ordering::Relaxed);
        // Relaxed: under the directory's lock.
        fs.inodes.at(inode).i_nlink.store(0, Ordering::Relaxed);
        fs.unhash(number, directory, name);
        drop(mutex);
        // ORDERING: release, as above; it was the name's reference, and the last.
        dentry.d_count.fetch_sub(1, Ordering::Release);
        fs.inodes.at(inode).i_count.fetch_sub(1, Ordering::Release);
        fs.drop_inode(inode);
        match fs.way {
            FreeWay::Immediate | FreeWay::Typesafe => self.inodes.free(&fs.inodes, inode),
            FreeWay::CallRcu => self.waiting_inodes.nxtlist.push(&fs.inodes, inode),
            FreeWay::Sheaf => self.sheaves.free(inode),
        }
        self.waiting_dentries.nxtlist.push(&fs.dentries, number);
        self.file_removed();
        Ok(())
    }

    /// Inodes that wait for a grace period.
    pub fn inodes_waiting(&self) -> usize {
        self.waiting_inodes.nxtlist.count
            + self.waiting_inodes.curlist.count
            + self.sheaves.waiting()
    }

    /// Counts a removed file. Every [`FILES_OF_TICK`]th has a tick after it.
    #[inline]
    fn file_removed(&mut self) {
        self.removed += 1;
        if self.removed == FILES_OF_TICK {
            self.tick();
        }
    }

    #[cold]
    fn tick(&mut self) {
        self.removed = 0;
        self.waiting_inodes.tick(&self.ramfs.inodes, &mut self.inodes);
        self.waiting_dentries.tick(&self.ramfs.dentries, &mut self.dentries);
        self.sheaves.tick();
    }
}

impl Drop for Cpu<'_> {
    fn drop(&mut self) {
        let fs = self.ramfs;
        // Two ticks, and nothing waits any more.
        self.sheaves.send();
        self.tick();
        self.tick();
        while let Some(inode) = self.sheaves.alloc() {
            self.inodes.free(&fs.inodes, inode);
        }
        self.inodes.give_back(&fs.inodes, self.inodes.count());
        self.dentries.give_back(&fs.dentries, self.dentries.count());
    }
}
