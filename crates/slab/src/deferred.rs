//! Objects that are to be freed after a grace period when there is no memory for a sheaf in which they could wait.
//!
//! # The problem
//!
//! Who frees by RCU may be inside a read section, so he must not wait for a grace period; and may have come because memory ran
//! out. The object itself cannot carry a link, because readers may still be looking at all of it.
//!
//! # Our way
//!
//! A slab of a cache that names its domain ([`Options::rcu`](crate::Options::rcu)) has room for two bits for each object, and
//! for two links. The cache has one head for the domain.
//!
//! ```text
//!   defer ──> the object's bit in `waiting`, its slab on that list
//!               └── no batch on its way ──> what waits is what flies; the head is queued ──grace period──> each is released
//! ```
//!
//! # Guarantees
//!
//! Takes no memory and waits for nobody but holders of the one lock, who do so many steps as there are slabs with such objects.
//!
//! # Limits
//!
//! One batch of a cache is on its way at a time: what comes meanwhile waits for the next. In a child process, a batch that
//! another thread of the parent was just releasing is leaked; if that thread had not begun with it, what the child defers later
//! in that cache is leaked with it.

use crate::inner::Inner;
use crate::slab::Slab;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::Ordering;
use quietline_platform::cell::UnsafeCell;
use quietline_platform::fork::AtFork;
use quietline_sync::rcu::{Domain, HeadOfMany, Many};
use quietline_sync::{Shared, SpinLock};

/// What a cache has of it.
#[derive(Debug)]
pub(crate) struct Deferred {
    lists: SpinLock<Lists>,
    /// Written when no batch is on its way, and the domain's while one is.
    batch: UnsafeCell<MaybeUninit<Batch>>,
}

/// A batch on its way.
#[repr(C)]
#[derive(Debug)]
struct Batch {
    head: HeadOfMany,
    /// An owner of the cache.
    owner: NonNull<Inner>,
    /// Objects.
    count: u32,
}

// SAFETY: the batch is written under the lock when nobody else has it.
unsafe impl Send for Deferred {}
// SAFETY: as above.
unsafe impl Sync for Deferred {}

#[derive(Debug)]
struct Lists {
    /// Slabs with objects that wait, and how many objects that are.
    waiting: *mut Slab,
    count: u32,
    /// Slabs with objects of the batch on its way.
    flying: *mut Slab,
    /// Whether there is one.
    busy: bool,
}

// SAFETY: slabs on a list live, as objects of theirs are out; they are looked at under the lock, or by who releases the batch.
unsafe impl Send for Lists {}

impl Deferred {
    pub(crate) fn new() -> Self {
        let none = ptr::null_mut();
        Self {
            lists: SpinLock::new(Lists { waiting: none, count: 0, flying: none, busy: false }),
            batch: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Whether there is anything.
    pub(crate) fn any(&self) -> bool {
        let lists = self.lists.lock();
        lists.busy || !lists.waiting.is_null()
    }
}

/// Which of a slab's two sets of objects.
#[derive(Clone, Copy)]
enum Set {
    Waiting,
    Flying,
}

/// The words of a slab that say which of its objects are deferred: two links, and as many words for each set as have a bit
/// for each object.
struct Marks {
    at: NonNull<usize>,
    words: usize,
}

/// The link of a slab that is not on the list.
const UNLISTED: usize = 1;
const BITS: usize = usize::BITS as usize;

/// Bytes of the marks of so many objects.
pub(crate) const fn bytes(objects: usize) -> usize {
    (2 + 2 * objects.div_ceil(BITS)) * size_of::<usize>()
}

/// The marks of a slab in which nothing is deferred.
///
/// # Safety
/// As many bytes as [`bytes`] says are at `at`, aligned to a word, the caller's.
pub(crate) unsafe fn init(at: NonNull<u8>, objects: usize) {
    let marks = Marks { at: at.cast(), words: objects.div_ceil(BITS) };
    // SAFETY: by contract.
    unsafe {
        marks.at.write(UNLISTED);
        marks.at.add(1).write(UNLISTED);
        marks.at.add(2).write_bytes(0, 2 * marks.words);
    }
}

/// All of these are for the holder of the lock of the slab's cache; those of what flies also for who releases the batch.
impl Marks {
    /// None if the slab has none.
    fn of(slab: &Slab) -> Option<Self> {
        Some(Self { at: slab.marks()?.cast(), words: slab.layout().objects.div_ceil(BITS) })
    }

    fn word(&self, set: Set, n: usize) -> *mut usize {
        debug_assert!(n < self.words);
        // SAFETY: inside the marks.
        unsafe { self.at.add(2 + set as usize * self.words + n).as_ptr() }
    }

    /// # Safety
    /// See above; so in the functions below.
    unsafe fn set(&self, index: usize) {
        // SAFETY: by contract.
        unsafe { *self.word(Set::Waiting, index / BITS) |= 1 << (index % BITS) };
    }

    /// Puts the slab first on a list, unless it is on it.
    unsafe fn enlist(&self, set: Set, slab: NonNull<Slab>, first: &mut *mut Slab) {
        // SAFETY: by contract.
        unsafe {
            let link = self.at.add(set as usize);
            if link.read() == UNLISTED {
                link.write(first.expose_provenance());
                *first = slab.as_ptr();
            }
        }
    }

    /// The slab is on the list no more; the next one.
    unsafe fn unlist(&self, set: Set) -> *mut Slab {
        // SAFETY: by contract.
        ptr::with_exposed_provenance_mut(unsafe { self.at.add(set as usize).replace(UNLISTED) })
    }

    /// What waited flies.
    unsafe fn fly(&self) {
        for n in 0..self.words {
            // SAFETY: by contract.
            unsafe { *self.word(Set::Flying, n) = self.word(Set::Waiting, n).replace(0) };
        }
    }

    /// How many fly.
    unsafe fn flying(&self) -> u32 {
        // SAFETY: by contract.
        (0..self.words).map(|n| unsafe { *self.word(Set::Flying, n) }.count_ones()).sum()
    }
}

impl Inner {
    /// Frees an object after a grace period, without memory. False if its slab has no room for that.
    pub(crate) fn defer(&self, domain: &Domain, object: usize) -> bool {
        // SAFETY: the object is the caller's to give back, so it lies in a live slab.
        let slab = unsafe { Slab::of(object) };
        let Some(marks) = Marks::of(slab) else { return false };
        // Relaxed: a statistic.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut lists = self.deferred.lists.lock();
        // SAFETY: under the lock.
        unsafe {
            marks.set(slab.index_of(object).into());
            marks.enlist(Set::Waiting, slab.as_raw(), &mut lists.waiting);
        }
        lists.count += 1;
        self.launch(domain, &mut lists);
        true
    }

    /// Sends what waits to its grace period, if nothing is on its way. Runs nothing.
    fn launch(&self, domain: &Domain, lists: &mut Lists) {
        if lists.busy || lists.waiting.is_null() {
            return;
        }
        lists.busy = true;
        let count = core::mem::take(&mut lists.count);
        let mut at = core::mem::replace(&mut lists.waiting, ptr::null_mut());
        while let Some(slab) = NonNull::new(at) {
            // SAFETY: on the list, so alive; under the lock.
            unsafe {
                let marks = Marks::of(slab.as_ref()).expect("a slab on the list has marks");
                marks.fly();
                at = marks.unlist(Set::Waiting);
                marks.enlist(Set::Flying, slab, &mut lists.flying);
            }
        }
        // SAFETY: an Inner is always inside a Shared, and whoever calls this owns it.
        let owner = Shared::into_raw(unsafe { Shared::again(self) });
        self.deferred.batch.with_mut(|batch| {
            // SAFETY: no batch is on its way, so it is ours; it lives until `after_grace_period`, which has an owner and does
            // not unwind (nor do release functions, by contract).
            unsafe {
                let batch = NonNull::new_unchecked(batch).cast::<Batch>();
                batch.write(Batch { head: HeadOfMany::new(&BATCH), owner, count });
                domain.call_many(batch.cast());
            }
        });
    }

    /// Releases the batch whose grace period is over, and sends the next.
    fn land(&self) {
        let mut at = core::mem::replace(&mut self.deferred.lists.lock().flying, ptr::null_mut());
        while let Some(slab) = NonNull::new(at) {
            // SAFETY: it was on the list, so alive until the last of its objects is released, after which it is not looked at;
            // what flies is ours.
            unsafe {
                let slab = slab.as_ref();
                let marks = Marks::of(slab).expect("a slab on the list has marks");
                at = marks.unlist(Set::Flying);
                let mut left = marks.flying();
                for n in 0.. {
                    let mut bits = marks.word(Set::Flying, n).replace(0);
                    while bits != 0 {
                        let object = slab.object((n * BITS) as u16 + bits.trailing_zeros() as u16);
                        bits &= bits - 1;
                        left -= 1;
                        // Relaxed: a statistic.
                        self.waiting.fetch_sub(1, Ordering::Relaxed);
                        self.release(object.as_ptr() as usize);
                    }
                    if left == 0 {
                        break;
                    }
                }
            }
        }
        let mut lists = self.deferred.lists.lock();
        lists.busy = false;
        if let Some(domain) = self.options.rcu {
            self.launch(domain, &mut lists);
        }
    }
}

/// How a domain sees a batch.
static BATCH: Many = Many { run: after_grace_period, count };

unsafe fn after_grace_period(head: NonNull<HeadOfMany>) {
    // SAFETY: the head is the first field of a batch, which `launch` gave an owner of the cache.
    let owner = unsafe { Shared::from_raw(head.cast::<Batch>().as_ref().owner) };
    owner.land();
}

unsafe fn count(head: NonNull<HeadOfMany>) -> u32 {
    // SAFETY: as above.
    unsafe { head.cast::<Batch>().as_ref() }.count
}

// SAFETY: its only lock is held between the two.
unsafe impl AtFork for Deferred {
    fn before(&self) {
        self.lists.before();
    }

    fn after(&self, child: bool) {
        self.lists.after(child);
        if child {
            let mut lists = self.lists.lock();
            // Taken off by a thread that is not there any more: nobody will say that it is done.
            lists.busy &= !lists.flying.is_null();
        }
    }
}
