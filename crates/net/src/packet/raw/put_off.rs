//! What waits because it may not be freed where it ended.
//!
//! Two stacks, that any thread pushes to, also one in a signal handler, and one takes as a whole (as in [`Deferred`](super::Deferred)):
//! packets with their last reference, and bare storage that a poller's stack held. Both are linked through themselves, so there is
//! room for all, and pushing takes no lock and no memory: an exchange that is tried again while others push.

use super::{Event, Head, Packets, Skb};
use crate::packet::NoBulk;
use core::mem::{self, ManuallyDrop};
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, Ordering};

/// The stacks, of one [`Packets`].
pub(super) struct PutOff {
    packets: AtomicPtr<Head>,
    storage: AtomicPtr<Storage>,
}

/// A head or data that no packet has, while it waits.
#[repr(C)]
struct Storage {
    /// Where a head has its count: none, so that who uses the packet that it was finds out (see `Skb::head`).
    users: u32,
    /// Its kind of data; that behind the last is a head.
    class: u32,
    next: *mut Storage,
}

/// What [`Storage::class`] says of a head.
pub(super) const HEAD: usize = super::SIZES.len();

const _: () =
    assert!(size_of::<Storage>() <= size_of::<Head>() && size_of::<Storage>() <= super::SIZES[0]);
const _: () = assert!(mem::offset_of!(Head, users) == mem::offset_of!(Storage, users));

impl PutOff {
    pub(super) fn new() -> Self {
        Self { packets: AtomicPtr::new(ptr::null_mut()), storage: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Puts something on a stack, whose link `link` writes; or a chain that begins with it, of whose last `link` writes the link.
    pub(super) fn push<T>(stack: &AtomicPtr<T>, new: NonNull<T>, mut link: impl FnMut(*mut T)) {
        // Relaxed: only stored; the exchange confirms it.
        let mut first = stack.load(Ordering::Relaxed);
        loop {
            link(first);
            // ORDERING: Release pairs with the acquire in `take`: what it is and its link are seen. Relaxed on failure: only stored
            // again.
            match stack.compare_exchange_weak(
                first,
                new.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(seen) => first = seen,
            }
        }
    }

    /// Takes a stack as a whole.
    pub(super) fn take<T>(stack: &AtomicPtr<T>) -> Option<NonNull<T>> {
        // Relaxed: a look; most often there is nothing, and nothing is written.
        if stack.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // ORDERING: Acquire pairs with the release in `push`: of the newest, and by way of the chain of exchanges of those before.
        NonNull::new(stack.swap(ptr::null_mut(), Ordering::Acquire))
    }
}

impl Packets {
    /// Ends a reference where nothing may be freed: with the last one the packet waits, untouched, and how it ended is noted.
    /// What frees packets later, elsewhere, frees it.
    ///
    /// To be called in signal handlers: takes no lock and no memory, calls nobody.
    #[cold]
    pub(super) fn put_off(skb: Skb<'_>, event: Event) {
        let skb = ManuallyDrop::new(skb);
        if !skb.give_up() {
            return;
        }
        let head = skb.note(event);
        // SAFETY: the last reference was ours, so the head is. Relaxed, so below: published by the exchange.
        let (users, next) = unsafe { (&head.as_ref().users, &head.as_ref().next) };
        users.store(1, Ordering::Relaxed);
        PutOff::push(&skb.packets().put_off.packets, head, |first| {
            next.store(first, Ordering::Relaxed)
        });
    }

    /// Storage waits likewise.
    ///
    /// # Safety
    /// It is the caller's, and of the cache of this kind of data; or, for [`HEAD`], of heads.
    #[cold]
    pub(super) unsafe fn put_off_storage(&self, storage: NonNull<u8>, class: usize) {
        let new = storage.cast::<Storage>();
        PutOff::push(&self.put_off.storage, new, |next| {
            // SAFETY: by contract ours; large enough, and aligned to a line.
            unsafe { new.write(Storage { users: 0, class: class as u32, next }) };
        });
    }

    /// Whether anything may have been put off: a load of a line that is written once in a process.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(super) fn may_have_put_off(&self) -> bool {
        NoBulk::was_ever_entered()
    }

    /// A model has no word of the whole process: one that puts packets off says so from the beginning, and the others' threads know of
    /// themselves.
    #[cfg(loom)]
    pub(super) fn may_have_put_off(&self) -> bool {
        self.puts_off || NoBulk::was_ever_entered()
    }

    /// Frees what was put off, unless it must be put off still: how many packets. Their destructors run here.
    #[inline(always)]
    pub(in super::super) fn free_put_off(&self) -> usize {
        // Relaxed: a look at a line that is written by those who put off; what is not seen now will be the next time.
        let none = self.put_off.packets.load(Ordering::Relaxed).is_null()
            && self.put_off.storage.load(Ordering::Relaxed).is_null();
        if none || NoBulk::is_entered() { 0 } else { self.free_put_off_slow() }
    }

    #[cold]
    fn free_put_off_slow(&self) -> usize {
        let mut storage = PutOff::take(&self.put_off.storage);
        while let Some(at) = storage {
            // SAFETY: written when it was put off, and ours since it was taken.
            let Storage { class, next, .. } = unsafe { at.read() };
            let cache = self.data.get(class as usize).unwrap_or(&self.heads);
            // SAFETY: of this cache, and nobody uses it.
            unsafe { cache.free(at.cast()) };
            storage = NonNull::new(next);
        }
        // SAFETY: put in by `put_off`, with a reference each.
        unsafe { self.end_chain(PutOff::take(&self.put_off.packets)) }
    }
}
