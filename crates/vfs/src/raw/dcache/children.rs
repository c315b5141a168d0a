//! A directory's pointer to its table of names, and the table's memory.

use super::entry::Dentry;
use super::table::{Counts, LEAST, Table};
use core::alloc::Layout;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, AtomicU64, Ordering};
use quietline_platform::{AllocError, fault};
use quietline_sync::rcu::{Domain, Head};

/// Where a directory keeps its table: the address of the first slot, and in the low bits how many there are, so that a reader
/// needs one load for both. None before the first child.
#[derive(Debug)]
pub(crate) struct Children(AtomicPtr<AtomicU64>);

/// What is before the first slot, on a line of its own: the writer's.
#[repr(C, align(64))]
struct Header {
    head: Head,
    counts: Counts,
    log: u32,
}

const HEADER: usize = size_of::<Header>();
#[cfg(not(loom))]
const _: () = assert!(HEADER == 64);
/// The low bits of the word.
const LOG: usize = 63;

/// A table with the writer's header before its slots in memory.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    pub(super) table: Table<Dentry>,
}

fn layout(log: u32) -> Result<Layout, AllocError> {
    let slots = Layout::array::<AtomicU64>(1 << log).map_err(|_| AllocError)?;
    Layout::from_size_align(HEADER + slots.size(), 64).map_err(|_| AllocError)
}

impl Whole {
    fn alloc(log: u32) -> Result<Self, AllocError> {
        fault::check()?;
        // SAFETY: the layout's size is above zero.
        let memory = unsafe { std::alloc::alloc_zeroed(layout(log)?) };
        let header = NonNull::new(memory.cast::<Header>()).ok_or(AllocError)?;
        // SAFETY: fresh memory for a header and so many slots after it, which are zero.
        unsafe {
            header.write(Header { head: Head::new(), counts: Counts::new(), log });
            let slots = header.byte_add(HEADER).cast();
            // To the model an atomic is more than its bytes.
            #[cfg(loom)]
            (0..1 << log)
                .for_each(|i| NonNull::<AtomicU64>::write(slots.add(i), AtomicU64::new(0)));
            Ok(Self { table: Table::new(slots, log) })
        }
    }

    #[inline(always)]
    fn header(&self) -> NonNull<Header> {
        // SAFETY: the header lies before the slots, in the same allocation.
        unsafe { self.table.slots().byte_sub(HEADER).cast() }
    }

    #[inline(always)]
    pub(super) fn counts(&self) -> &Counts {
        // SAFETY: valid while the table is: a writer holds the lock, so it is not freed.
        unsafe { &self.header().as_ref().counts }
    }

    /// Frees it after a grace period. Takes no lock and runs nothing.
    ///
    /// # Safety
    /// No section that begins later finds it.
    pub(super) unsafe fn free_rcu(self, domain: &Domain) {
        unsafe fn free(head: NonNull<Head>) {
            // SAFETY: the head is the first field of a header that `alloc` allocated with this layout.
            unsafe {
                let log = head.cast::<Header>().as_ref().log;
                let layout =
                    Layout::from_size_align_unchecked(HEADER + (size_of::<AtomicU64>() << log), 64);
                std::alloc::dealloc(head.as_ptr().cast(), layout);
            }
        }
        // SAFETY: the head is the header's, which is ours to give; what runs frees memory.
        unsafe { domain.call(self.header().cast(), free) };
    }
}

impl Children {
    pub(super) fn none() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The table, for a reader inside a section, or the writer.
    #[inline(always)]
    pub(super) fn table(&self) -> Option<Table<Dentry>> {
        // ORDERING: pairs with the release in `publish`: the table is seen as it was filled.
        let word = self.0.load(Ordering::Acquire);
        let slots = NonNull::new(word.map_addr(|word| word & !LOG))?;
        // SAFETY: the word is that of a table of so many slots, freed by RCU.
        Some(unsafe { Table::new(slots, (word.addr() & LOG) as u32) })
    }

    /// The table, for the writer.
    #[inline(always)]
    pub(super) fn whole(&self) -> Option<Whole> {
        let word = self.0.load(Ordering::Relaxed);
        let slots = NonNull::new(word.map_addr(|word| word & !LOG))?;
        // SAFETY: as in `table`.
        Some(unsafe { Whole { table: Table::new(slots, (word.addr() & LOG) as u32) } })
    }

    fn publish(&self, whole: Whole, log: u32) {
        let slots = whole.table.slots().as_ptr();
        // ORDERING: pairs with the acquire in `table`.
        self.0.store(slots.map_addr(|slots| slots | log as usize), Ordering::Release);
    }

    /// Sees to it that there is a table with room for one more child. Under the directory's lock.
    #[inline]
    pub(super) fn reserve(&self, domain: &Domain) -> Result<(), AllocError> {
        match self.whole() {
            Some(whole) if whole.counts().fits(whole.table.len()) => Ok(()),
            old => self.resize(old, domain),
        }
    }

    /// Copies the children into a table that fits them.
    #[cold]
    #[inline(never)]
    fn resize(&self, old: Option<Whole>, domain: &Domain) -> Result<(), AllocError> {
        let live = old.map_or(0, |old| old.counts().live());
        // Half full at most, so that it lasts.
        let slots = ((live + 1) * 2).next_power_of_two().max(LEAST);
        let whole = Whole::alloc(slots.ilog2())?;
        if let Some(old) = old {
            old.table.each(|child| {
                // SAFETY: children in a table are alive while the directory's lock is held.
                whole.table.insert(whole.counts(), unsafe { child.as_ref() }.hash(), child)
            });
        }
        self.publish(whole, slots.ilog2());
        if let Some(old) = old {
            // SAFETY: it is published no more.
            unsafe { old.free_rcu(domain) };
        }
        Ok(())
    }

    /// A child has been taken out: takes a smaller table if this one is nearly empty, and there is memory for it.
    #[inline]
    pub(super) fn sparse(&self, whole: Whole, domain: &Domain) {
        if whole.table.len() > 8 * LEAST && whole.counts().live() * 16 < whole.table.len() {
            // Without memory the large table serves as well.
            let _ = self.resize(Some(whole), domain);
        }
    }

    /// Takes the whole table away: for the end of the directory, or of all that is in it.
    pub(super) fn take(&self) -> Option<Whole> {
        let whole = self.whole();
        // Relaxed: a reader finds the directory empty from now on, or does not yet.
        self.0.store(ptr::null_mut(), Ordering::Relaxed);
        whole
    }
}
