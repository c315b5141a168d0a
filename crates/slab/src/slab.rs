//! A slab: a block of pages that holds objects of one cache, its header at the start.

use crate::cache::Inner;
use crate::freelist::{Detached, Freelist, Links, Packed, State};
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::{AllocError, pages};
use quietline_sync::rcu;

/// How the objects of a cache lie in its slabs. Constant for the life of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes between objects.
    pub stride: usize,
    /// Bytes of a slab's block: a power of two, to which it is aligned.
    pub block: usize,
    /// Offset of the first object.
    pub first: usize,
    /// Objects in a slab.
    pub objects: usize,
    /// Offset in a free object of its link.
    pub link: usize,
}

/// Called for an object's memory: to construct it, or to end it.
pub type Hook = unsafe fn(NonNull<u8>);

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slab {
    freelist: Freelist,
    /// Objects that have been handed out at least once, which come first in the block. Only the owner of the frozen
    /// slab changes it.
    constructed: UnsafeCell<u16>,
    layout: Layout,
    cache: NonNull<Inner>,
    /// Neighbours on the partial list; under the node's lock.
    links: UnsafeCell<(*mut Slab, *mut Slab)>,
    dtor: Option<Hook>,
    rcu: rcu::Head,
}

/// Bytes at the start of a block that are not for objects.
pub(crate) const HEADER: usize = size_of::<Slab>();

/// The links of a slab's free objects.
struct InObjects<'a>(&'a Slab);

impl InObjects<'_> {
    fn link(&self, index: u16) -> &AtomicU32 {
        let layout = &self.0.layout;
        debug_assert!(usize::from(index) < layout.objects);
        // SAFETY: the index is that of an object of this slab (ours to hand out), whose link is inside it, aligned,
        // and belongs to the allocator while the object is free.
        unsafe { &*self.0.object(index).as_ptr().add(layout.link).cast() }
    }
}

impl Links for InObjects<'_> {
    fn next(&self, index: u16) -> u16 {
        // Relaxed: the freelist's word orders it.
        self.link(index).load(Ordering::Relaxed) as u16
    }

    fn set_next(&self, index: u16, next: u16) {
        // Relaxed: the freelist's word orders it.
        self.link(index).store(u32::from(next), Ordering::Relaxed);
    }
}

impl Slab {
    /// A slab without constructed objects, owned by the caller.
    ///
    /// # Errors
    /// [`AllocError`] when there are no pages.
    pub(crate) fn new(
        cache: NonNull<Inner>,
        layout: Layout,
        dtor: Option<Hook>,
    ) -> Result<NonNull<Slab>, AllocError> {
        let slab = pages::alloc(layout.block)?.cast::<Slab>();
        let header = Slab {
            freelist: Freelist::new(),
            constructed: UnsafeCell::new(0),
            layout,
            cache,
            links: UnsafeCell::new((ptr::null_mut(), ptr::null_mut())),
            dtor,
            rcu: rcu::Head::new(),
        };
        // SAFETY: the block is ours, larger than the header and more aligned.
        unsafe { slab.write(header) };
        Ok(slab)
    }

    /// The slab that an object lies in.
    ///
    /// # Safety
    /// `object` is an object of a cache whose blocks have `block` bytes.
    pub(crate) unsafe fn of<'a>(object: usize, block: usize) -> &'a Slab {
        // SAFETY: blocks are aligned to their size and begin with their header; the slab lives while an object is out.
        unsafe { &*((object & !(block - 1)) as *const Slab) }
    }

    #[cfg_attr(not(debug_assertions), allow(dead_code, reason = "asked by debug builds only"))]
    pub(crate) fn cache(&self) -> NonNull<Inner> {
        self.cache
    }

    pub(crate) fn packed(&self) -> Packed {
        self.freelist.load()
    }

    fn object(&self, index: u16) -> NonNull<u8> {
        let offset = self.layout.first + usize::from(index) * self.layout.stride;
        // SAFETY: the offset is inside the block.
        unsafe { NonNull::from(self).cast::<u8>().add(offset) }
    }

    pub(crate) fn index_of(&self, object: usize) -> u16 {
        let offset = object - self as *const _ as usize - self.layout.first;
        debug_assert!(
            offset.is_multiple_of(self.layout.stride) && offset / self.layout.stride < self.layout.objects
        );
        (offset / self.layout.stride) as u16
    }

    /// Begins a detached list with an object that the caller gives back.
    pub(crate) fn detach(&self, object: usize) -> Detached {
        Detached::one(self.index_of(object), &InObjects(self))
    }

    /// Adds an object of this slab to a detached list.
    pub(crate) fn detach_more(&self, list: &mut Detached, object: usize) {
        list.push(self.index_of(object), &InObjects(self));
    }

    /// See [`Freelist::push`].
    pub(crate) fn push(
        &self,
        list: Detached,
        allow: impl FnMut(Packed, &mut Packed) -> bool,
    ) -> Option<(Packed, Packed)> {
        self.freelist.push(list, &InObjects(self), allow)
    }

    pub(crate) fn set_state(&self, state: State) {
        self.freelist.set_state(state);
    }

    /// Takes up to `want` objects and gives each to `give`; new ones are constructed first. How many, and whether the
    /// slab is still frozen, or full because nothing is left. Callers own the frozen slab.
    pub(crate) fn take(
        &self,
        want: usize,
        ctor: Option<Hook>,
        mut give: impl FnMut(usize),
    ) -> (usize, State) {
        const CHUNK: usize = 64;
        let mut taken = 0;
        loop {
            let mut indices = [0u16; CHUNK];
            // SAFETY: only the owner of the frozen slab touches `constructed`, and that is the caller.
            let constructed = self.constructed.with(|constructed| unsafe { *constructed });
            let fresh = self.layout.objects as u16 - constructed;
            let wanted = (want - taken).min(CHUNK) as u16;
            let (listed, new_ones, state) = self.freelist.pop(wanted, fresh, &InObjects(self), &mut indices);
            if new_ones > 0 {
                debug_assert_eq!(state, State::Frozen);
                // SAFETY: as above; the slab is still frozen.
                self.constructed.with_mut(|total| unsafe { *total = constructed + new_ones });
            }
            for &index in &indices[..usize::from(listed)] {
                give(self.object(index).as_ptr() as usize);
            }
            for index in constructed..constructed + new_ones {
                let object = self.object(index);
                if let Some(ctor) = ctor {
                    // SAFETY: the object is ours, never used, of the cache's size and alignment.
                    unsafe { ctor(object) };
                }
                give(object.as_ptr() as usize);
            }
            taken += usize::from(listed + new_ones);
            // A last turn with nothing wanted finds out whether anything is left.
            if state == State::Full || listed + new_ones == 0 {
                return (taken, state);
            }
        }
    }

    /// Neighbours on the partial list, whose lock the caller holds.
    #[cfg(test)]
    pub(crate) fn neighbours(&self) -> (*mut Slab, *mut Slab) {
        // SAFETY: under the lock.
        self.links.with(|links| unsafe { *links })
    }

    /// The addresses on the free list, and how many objects have ever been handed out; nobody uses the slab meanwhile.
    #[cfg(test)]
    pub(crate) fn free_objects(&self) -> (Vec<usize>, u16) {
        let (mut free, mut index) = (Vec::new(), self.packed().head);
        while index != crate::freelist::NONE && free.len() <= self.layout.objects {
            free.push(self.object(index).as_ptr() as usize);
            index = InObjects(self).next(index);
        }
        // SAFETY: no owner changes it now.
        (free, self.constructed.with(|constructed| unsafe { *constructed }))
    }

    /// Gives the block back, at once or after a grace period. Nobody owns an object of it.
    ///
    /// # Safety
    /// The slab is on no list, and no object is out; with `domain` none, nobody reads its memory any more.
    pub(crate) unsafe fn discard(slab: NonNull<Slab>, domain: Option<&rcu::Domain>) {
        // SAFETY: the slab is the caller's.
        unsafe {
            match domain {
                None => Self::release(slab),
                Some(domain) => {
                    let head = NonNull::new_unchecked(&raw mut (*slab.as_ptr()).rcu);
                    domain.call(head, release_after_grace_period);
                }
            }
        }
    }

    unsafe fn release(slab: NonNull<Slab>) {
        // SAFETY: by `discard`'s contract nobody else has the slab; constructed objects are the first ones.
        unsafe {
            let this = slab.as_ref();
            if let Some(dtor) = this.dtor {
                let constructed = this.constructed.with(|constructed| *constructed);
                (0..constructed).for_each(|index| dtor(this.object(index)));
            }
            let block = this.layout.block;
            pages::free(slab.cast(), block);
        }
    }
}

unsafe fn release_after_grace_period(head: NonNull<rcu::Head>) {
    // SAFETY: the head is the field of a slab that `discard` was given.
    unsafe { Slab::release(head.cast::<u8>().sub(core::mem::offset_of!(Slab, rcu)).cast()) }
}

/// The slabs of a cache that have objects to give.
#[derive(Debug)]
pub(crate) struct Partial {
    first: *mut Slab,
    pub(crate) len: usize,
}

// SAFETY: the list is under its cache's lock.
unsafe impl Send for Partial {}

impl Partial {
    pub(crate) const fn new() -> Self {
        Self { first: ptr::null_mut(), len: 0 }
    }

    /// Puts a slab in front.
    ///
    /// # Safety
    /// The slab lives and is on no list.
    pub(crate) unsafe fn add(&mut self, slab: NonNull<Slab>) {
        // SAFETY: by contract; links are under the lock whose value this is.
        unsafe {
            slab.as_ref().links.with_mut(|links| *links = (ptr::null_mut(), self.first));
            if !self.first.is_null() {
                (*self.first).links.with_mut(|links| (*links).0 = slab.as_ptr());
            }
        }
        self.first = slab.as_ptr();
        self.len += 1;
    }

    /// Takes a slab off.
    ///
    /// # Safety
    /// The slab is on this list.
    pub(crate) unsafe fn remove(&mut self, slab: NonNull<Slab>) {
        // SAFETY: by contract; neighbours live.
        unsafe {
            let (prev, next) = slab.as_ref().links.with(|links| *links);
            if prev.is_null() {
                self.first = next;
            } else {
                (*prev).links.with_mut(|links| (*links).1 = next);
            }
            if !next.is_null() {
                (*next).links.with_mut(|links| (*links).0 = prev);
            }
        }
        self.len -= 1;
    }

    /// Moves all slabs without an object in use to a list of their own. Callers hold the lock, so they stay empty:
    /// nobody can take from them.
    pub(crate) fn take_empty(&mut self) -> Partial {
        let mut empty = Partial::new();
        let mut next = self.first();
        while let Some(slab) = next {
            // SAFETY: slabs on the list live, and the list is borrowed; the next one is read before this is moved.
            unsafe {
                next = NonNull::new(slab.as_ref().links.with(|links| *links).1);
                if slab.as_ref().packed().inuse == 0 {
                    self.remove(slab);
                    empty.add(slab);
                }
            }
        }
        empty
    }

    pub(crate) fn first(&self) -> Option<NonNull<Slab>> {
        NonNull::new(self.first)
    }
}
