//! A slab: a block of pages that holds objects of one cache, its header at the start.

use crate::account::Account;
use crate::debug::Debug;
use crate::deferred;
use crate::freelist::{Detached, Freelist, Links, NONE, Packed, Popped, State};
use crate::hook::Hook;
use crate::slabs::Slabs;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::{AllocError, pages};
use quietline_sync::rcu;

/// How objects lie in a slab. Constant for the life of the slab.
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
    /// Offset in a free object of its link. 0 in a slab with checks, where links are beside the objects.
    pub link: usize,
    /// 2^32 / stride, rounded up: what an offset is multiplied by to divide it.
    reciprocal: u32,
    /// Offset in the slab of the first object's link.
    links_at: u16,
    /// Bytes between links.
    links_step: u16,
}

impl Layout {
    /// The first link lies at the first of `links` in the slab, and the second is the step to the next.
    pub(crate) fn new(
        (stride, block): (usize, usize),
        (first, objects): (usize, usize),
        link: usize,
        links: (usize, usize),
    ) -> Self {
        let fits = "a stride is at least 4, and a block at most 64 KiB";
        let reciprocal = (1u64 << 32).div_ceil(stride as u64).try_into().expect(fits);
        let links_at = links.0.try_into().expect(fits);
        let links_step = links.1.try_into().expect(fits);
        Self { stride, block, first, objects, link, reciprocal, links_at, links_step }
    }

    /// The index of the object that begins at, or contains, an offset from the first object. Exact for offsets and strides up
    /// to 64 KiB: the error of the reciprocal is below 2^-32, times 2^16 too small to reach the next multiple of 1 / stride.
    pub(crate) fn index(&self, offset: usize) -> usize {
        ((offset as u64 * u64::from(self.reciprocal)) >> 32) as usize
    }
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slab {
    freelist: Freelist,
    /// Objects that have been handed out at least once, which come first in the block. Only the owner of the frozen
    /// slab changes it.
    constructed: UnsafeCell<u16>,
    /// What is checked in this slab while its epoch lasts.
    checked: Debug,
    /// The time between two turns of the cache's switch in which the slab was made, if checks were on; 0 if not.
    epoch: AtomicU32,
    layout: Layout,
    cache: NonNull<Slabs>,
    /// Neighbours on the partial list, or on a list of slabs with checks; under that list's lock.
    links: UnsafeCell<(*mut Slab, *mut Slab)>,
    dtor: Option<Hook>,
    rcu: rcu::Head,
    /// The account that the block is charged to.
    account: Option<Account>,
}

/// A guard that puts a frozen slab on its cache's partial list when a constructor panics: the
/// objects that were taken with the panicking one are lost, the others are not.
struct ThawOnUnwind<'a>(&'a Slab);

impl Drop for ThawOnUnwind<'_> {
    fn drop(&mut self) {
        // SAFETY: a cache outlives its slabs.
        unsafe { self.0.cache.as_ref() }.thaw(self.0.as_raw());
    }
}

/// Bytes at the start of a block that are not for objects.
pub(crate) const HEADER: usize = size_of::<Slab>();

impl Links for Slab {
    fn next(&self, index: u16) -> u16 {
        // SAFETY: the link of an object that is the caller's or free, aligned. Relaxed: the freelist's word orders it.
        unsafe { self.record(index).cast::<AtomicU32>().as_ref() }.load(Ordering::Relaxed) as u16
    }

    fn set_next(&self, index: u16, next: u16) {
        // SAFETY: as in `next`.
        let link = unsafe { self.record(index).cast::<AtomicU32>().as_ref() };
        // Relaxed: as in `next`.
        link.store(u32::from(next), Ordering::Relaxed);
    }
}

impl Slab {
    /// A slab without constructed objects, owned by the caller.
    ///
    /// # Errors
    /// [`AllocError`] when there are no pages, or when the account is at its limit.
    pub(crate) fn new(
        cache: NonNull<Slabs>,
        layout: Layout,
        dtor: Option<Hook>,
        account: Option<Account>,
    ) -> Result<NonNull<Slab>, AllocError> {
        if let Some(account) = &account {
            account.charge(layout.block)?;
        }
        let slab = match pages::alloc(layout.block) {
            Ok(block) => block.cast::<Slab>(),
            Err(error) => {
                account.inspect(|account| account.uncharge(layout.block));
                return Err(error);
            }
        };
        let header = Slab {
            freelist: Freelist::new(),
            constructed: UnsafeCell::new(0),
            checked: Debug::OFF,
            epoch: AtomicU32::new(0),
            layout,
            cache,
            links: UnsafeCell::new((ptr::null_mut(), ptr::null_mut())),
            dtor,
            rcu: rcu::Head::new(),
            account,
        };
        // SAFETY: the block is ours, larger than the header and what the layout has behind it, and more aligned.
        unsafe {
            slab.write(header);
            if let Some(marks) = slab.as_ref().marks() {
                marks.write_bytes(0, deferred::bytes(layout.objects));
            }
        }
        // SAFETY: written above.
        quietline_platform::name_words!(unsafe { slab.as_ref() }.freelist, "slab.freelist");
        Ok(slab)
    }

    /// Marks a fresh slab as one with checks, before anybody else knows it.
    pub(crate) fn set_checked(&mut self, checked: Debug, epoch: u32) {
        self.checked = checked;
        // Relaxed: nobody else knows the slab.
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    pub(crate) fn checked(&self) -> Debug {
        self.checked
    }

    pub(crate) fn epoch(&self) -> u32 {
        // Relaxed: changed under the lock of the cache's checks, or compared with an epoch that is over.
        self.epoch.load(Ordering::Relaxed)
    }

    /// Checks nothing in this slab from now on.
    pub(crate) fn forget_epoch(&self) {
        // Relaxed: see `epoch`.
        self.epoch.store(0, Ordering::Relaxed);
    }

    /// The slab that an object lies in.
    ///
    /// # Safety
    /// `object` is an object of a cache, and not on its slab's list.
    pub(crate) unsafe fn of<'a>(object: usize) -> &'a Slab {
        // SAFETY: blocks begin with their slab; it lives while an object is out.
        unsafe { pages::block_of(object).cast::<Slab>().as_ref() }
    }

    /// The block that begins with this header. A reference reaches the header alone; this pointer
    /// reaches the whole block, by the provenance that [`pages::alloc`] has exposed.
    fn block(&self) -> NonNull<u8> {
        let block = ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr());
        // SAFETY: a reference's address is not null.
        unsafe { NonNull::new_unchecked(block) }
    }

    /// The slab as a pointer that its owner may free.
    pub(crate) fn as_raw(&self) -> NonNull<Slab> {
        self.block().cast()
    }

    /// The head by which the slab, or what is deferred of it, waits for a grace period.
    pub(crate) fn head(&self) -> NonNull<rcu::Head> {
        // SAFETY: inside the block.
        unsafe { self.block().add(core::mem::offset_of!(Slab, rcu)).cast() }
    }

    /// The slab of a [`head`](Self::head).
    ///
    /// # Safety
    /// The head is one of a slab.
    pub(crate) unsafe fn of_head(head: NonNull<rcu::Head>) -> NonNull<Slab> {
        // SAFETY: by contract.
        unsafe { head.cast::<u8>().sub(core::mem::offset_of!(Slab, rcu)).cast() }
    }

    /// Where it is noted which objects are [`deferred`], if there is room for it.
    pub(crate) fn marks(&self) -> Option<NonNull<u8>> {
        // SAFETY: a cache outlives its slabs; if it names a domain, their layout has room for marks behind the header.
        unsafe {
            let marked = self.cache.as_ref().options.rcu.is_some();
            marked.then(|| self.block().add(HEADER))
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn cache(&self) -> NonNull<Slabs> {
        self.cache
    }

    pub(crate) fn packed(&self) -> Packed {
        self.freelist.load()
    }

    pub(crate) fn object(&self, index: u16) -> NonNull<u8> {
        let offset = self.layout.first + usize::from(index) * self.layout.stride;
        // SAFETY: the offset is inside the block.
        unsafe { self.block().add(offset) }
    }

    /// The link of an object, with which its record begins in a slab with checks.
    pub(crate) fn record(&self, index: u16) -> NonNull<u8> {
        let layout = &self.layout;
        debug_assert!(usize::from(index) < layout.objects);
        let offset = layout.links_at as usize + usize::from(index) * layout.links_step as usize;
        // SAFETY: the offset is inside the block.
        unsafe { self.block().add(offset) }
    }

    /// The object that an address is in, and how far from its start; none for an address of this block in no object.
    pub(crate) fn locate(&self, address: usize) -> Option<(u16, usize)> {
        let offset = address.checked_sub(ptr::from_ref(self) as usize + self.layout.first)?;
        let index = self.layout.index(offset);
        (index < self.layout.objects).then(|| (index as u16, offset % self.layout.stride))
    }

    pub(crate) fn index_of(&self, object: usize) -> u16 {
        let offset = object - self as *const _ as usize - self.layout.first;
        let index = self.layout.index(offset);
        debug_assert!(offset.is_multiple_of(self.layout.stride) && index < self.layout.objects);
        index as u16
    }

    /// Begins a detached list with an object that the caller gives back.
    pub(crate) fn detach(&self, object: usize) -> Detached {
        Detached::one(self.index_of(object), self)
    }

    /// Adds an object of this slab to a detached list.
    pub(crate) fn detach_more(&self, list: &mut Detached, object: usize) {
        list.push(self.index_of(object), self);
    }

    /// See [`Freelist::push`].
    pub(crate) fn push(
        &self,
        list: Detached,
        allow: impl FnMut(Packed, &mut Packed) -> bool,
    ) -> Option<(Packed, Packed)> {
        self.freelist.push(list, self, allow)
    }

    pub(crate) fn set_state(&self, state: State) {
        self.freelist.set_state(state);
    }

    /// Takes up to `want` objects, the listed ones first, and constructs those that were never
    /// handed out. The caller owns the frozen slab, and goes on owning it if objects are left. If
    /// none is left, the slab's state becomes `empty`.
    ///
    /// If a constructor panics, the objects of this call are lost. The slab is thawed if it has
    /// others.
    pub(crate) fn pop(
        &self,
        want: usize,
        ctor: Option<Hook>,
        empty: State,
    ) -> (Popped, core::ops::Range<u16>) {
        let constructed = self.constructed();
        let places = (constructed, self.layout.objects as u16);
        let want = want.min(usize::from(u16::MAX)) as u16;
        let popped = self.freelist.pop(want, places, empty, self, |total| {
            // SAFETY: only the owner of the frozen slab touches `constructed`, and that is the caller.
            self.constructed.with_mut(|constructed| unsafe { *constructed = total });
        });
        let fresh = constructed..constructed + popped.fresh;
        if let Some(ctor) = ctor {
            let rest = (popped.state == State::Frozen).then(|| ThawOnUnwind(self));
            // SAFETY: never handed out, of the cache's size and alignment, and ours.
            fresh.clone().for_each(|index| unsafe { ctor.call(self.object(index)) });
            core::mem::forget(rest);
        }
        (popped, fresh)
    }

    /// [`pop`](Self::pop) that gives each object to `give`. How many, and whether the slab is still
    /// frozen, or full because nothing is left.
    pub(crate) fn take(
        &self,
        want: usize,
        ctor: Option<Hook>,
        give: &mut impl FnMut(usize),
    ) -> (usize, State) {
        let (popped, fresh) = self.pop(want, ctor, State::Full);
        let mut next = popped.head;
        for _ in 0..popped.listed {
            let object = next;
            next = self.next(object);
            give(self.object(object).as_ptr() as usize);
        }
        let taken = usize::from(popped.listed) + fresh.len();
        fresh.for_each(|index| give(self.object(index).as_ptr() as usize));
        (taken, popped.state)
    }

    /// Takes one object, not constructed, and leaves the slab frozen even if nothing is left. None
    /// if nothing is. Callers own the frozen slab.
    pub(crate) fn take_one(&self) -> Option<u16> {
        let (popped, mut fresh) = self.pop(1, None, State::Frozen);
        if popped.listed > 0 { Some(popped.head) } else { fresh.next() }
    }

    fn constructed(&self) -> u16 {
        // SAFETY: only the owner of the frozen slab changes it, and that is the caller.
        self.constructed.with(|constructed| unsafe { *constructed })
    }

    /// Whether there is anything to take. Callers own the frozen slab.
    pub(crate) fn has_free(&self) -> bool {
        usize::from(self.packed().inuse) < self.layout.objects
    }

    /// Whether the first free object is one, or none is listed. Callers own the frozen slab.
    pub(crate) fn list_head_is_sound(&self) -> bool {
        let (packed, constructed) = (self.packed(), self.constructed());
        match packed.head {
            NONE => packed.inuse == constructed,
            head => head < constructed,
        }
    }

    /// The slab behind this one on the list that it is on, whose lock the caller holds.
    pub(crate) fn next_listed(&self) -> Option<NonNull<Slab>> {
        // SAFETY: under the lock.
        NonNull::new(self.links.with(|links| unsafe { *links }).1)
    }

    /// Whether the list can be followed: every link is an index, and as many are listed as are not out. Callers own the
    /// frozen slab, and nobody pushes.
    pub(crate) fn list_is_whole(&self) -> bool {
        let constructed = self.constructed();
        let Packed { mut head, inuse, .. } = self.packed();
        let mut listed = 0;
        while head != NONE && head < constructed && listed <= constructed {
            listed += 1;
            head = self.next(head);
        }
        head == NONE && inuse.checked_add(listed) == Some(constructed)
    }

    /// The addresses on the free list, and how many objects have ever been handed out; nobody uses the slab meanwhile.
    #[cfg(test)]
    pub(crate) fn free_objects(&self) -> (Vec<usize>, u16) {
        let (mut free, mut index) = (Vec::new(), self.packed().head);
        while index != NONE && free.len() <= self.layout.objects {
            free.push(self.object(index).as_ptr() as usize);
            index = self.next(index);
        }
        (free, self.constructed())
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
                Some(domain) => domain.call(slab.as_ref().head(), release_after_grace_period),
            }
        }
    }

    unsafe fn release(slab: NonNull<Slab>) {
        // SAFETY: by `discard`'s contract nobody else has the slab; constructed objects are the first ones.
        unsafe {
            let this = slab.as_ref();
            if let Some(dtor) = this.dtor {
                (0..this.constructed()).for_each(|index| dtor.call(this.object(index)));
            }
            let block = this.layout.block;
            // Whoever looks for a slab in the block's next life finds none.
            (*slab.as_ptr()).cache = NonNull::dangling();
            let account = (*slab.as_ptr()).account.take();
            pages::free(slab.cast(), block);
            account.inspect(|account| account.uncharge(block));
        }
    }
}

unsafe fn release_after_grace_period(head: NonNull<rcu::Head>) {
    // SAFETY: the head is the field of a slab that `discard` was given.
    unsafe { Slab::release(Slab::of_head(head)) }
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

    /// The slabs, from the first; nobody adds or removes any meanwhile.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NonNull<Slab>> + '_ {
        // SAFETY: slabs on the list live, and the list is borrowed.
        core::iter::successors(self.first(), |slab| unsafe { slab.as_ref() }.next_listed())
    }
}
