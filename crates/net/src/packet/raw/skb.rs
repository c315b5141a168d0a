//! References to packets: what can be done with one.

use super::{Event, Head, Info, Packets, Remains, SIZES, trace};
use crate::packet::frag::{Frag, MAX_FRAGS};
use crate::packet::{DropReason, HEADROOM, NoBulk, PacketError};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use quietline_platform::atomic::{AtomicPtr, AtomicU32, Ordering};
use quietline_platform::{cpu, heap};

/// What is called when a packet's head ends, with its argument: once, before memory of the packet is given back (`skb->destructor`).
/// Must not unwind: a process in which it does is ended.
pub type Destructor = (extern "C" fn(u64), u64);

/// References that an object may have.
const MOST: u32 = i32::MAX as u32;

/// A reference to a packet. Dropping it is [`consume_skb`](Self::consume_skb).
///
/// One word, and never null: an array of `Option`s of it is an array of pointers.
#[repr(transparent)]
pub struct Skb<'n> {
    head: NonNull<Head>,
    of: PhantomData<&'n Packets>,
}

// SAFETY: a reference to what is changed by its only owner, and counted by atomics; a destructor is a function and a number.
unsafe impl Send for Skb<'_> {}
// SAFETY: by shared borrow a packet is only read, and counted.
unsafe impl Sync for Skb<'_> {}

#[cfg(all(debug_assertions, not(loom)))]
impl Head {
    fn is_alive(&self) -> bool {
        // Relaxed: of a packet that is alive, whoever else has references, it is not 0.
        let users = self.users.load(Ordering::Relaxed);
        users != 0 && users != u32::from_ne_bytes([0x6b; 4])
    }

    /// Finds out who uses a reference that was given up, or gives it up again, if no new packet has the head: of one that has none
    /// the count is 0, and with poison four times 0x6b.
    ///
    /// # Panics
    /// If so.
    fn assert_alive(&self) {
        assert!(self.is_alive(), "double free or use after free: packet {self:p} has ended");
        let end = usize::from(self.offset) + self.len as usize;
        assert!(
            end <= SIZES[usize::from(self.class)],
            "packet {self:p} ends behind its buffer: it was overwritten"
        );
    }
}

impl<'n> Skb<'n> {
    #[inline(always)]
    fn head(&self) -> &Head {
        // SAFETY: our reference keeps it, and who writes it has the only one.
        let head = unsafe { self.head.as_ref() };
        #[cfg(all(debug_assertions, not(loom)))]
        head.assert_alive();
        head
    }

    /// The head, to be written.
    #[inline(always)]
    fn head_mut(&mut self) -> Result<&mut Head, PacketError> {
        if self.is_shared() {
            return Err(PacketError::Shared);
        }
        // SAFETY: ours is the only reference, is borrowed, and so does not give rise to another.
        Ok(unsafe { self.head.as_mut() })
    }

    /// The packets that it is of.
    pub fn packets(&self) -> &'n Packets {
        // SAFETY: it outlives 'n.
        unsafe { self.head().packets.as_ref() }
    }

    /// What heads of the data share, if there is or was another one, or fragments.
    #[inline(always)]
    fn info(&self) -> Option<&Info> {
        // ORDERING: Acquire pairs with the release in `info_or_new`: another thread may have cloned the same head.
        let info = self.head().info.load(Ordering::Acquire);
        // SAFETY: our reference to the head keeps its reference to what it shares.
        unsafe { info.as_ref() }
    }

    /// As [`info`](Self::info), made if there is none: for one head.
    #[cold]
    fn info_or_new(&self) -> Result<&Info, PacketError> {
        let head = self.head();
        if self.info().is_none() {
            let new = Info { dataref: AtomicU32::new(1), frags: [const { None }; MAX_FRAGS] };
            let new = Box::into_raw(heap::try_box(new)?);
            let null = ptr::null_mut();
            // ORDERING: Release pairs with the acquire in `info`. Relaxed on failure: it is looked at anew.
            if head.info.compare_exchange(null, new, Ordering::Release, Ordering::Relaxed).is_err()
            {
                // SAFETY: boxed above, and nobody has seen it.
                drop(unsafe { Box::from_raw(new) });
            }
        }
        Ok(self.info().expect("it stays"))
    }

    #[inline(always)]
    fn capacity(&self) -> usize {
        SIZES[usize::from(self.head().class)]
    }

    /// Whether others have references to this head (`skb_shared`).
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        // ORDERING: Acquire pairs with the release in `give_up`: what others did with their references is over.
        self.head().users.load(Ordering::Acquire) != 1
    }

    /// Whether other heads have the same data (`skb_cloned`).
    #[inline(always)]
    pub fn is_cloned(&self) -> bool {
        // ORDERING: Acquire pairs with the release in `put_data_ref`: what others did with the data is over.
        self.info().is_some_and(|info| info.dataref.load(Ordering::Acquire) != 1)
    }

    /// Bytes in all, those of fragments included (`skb->len`).
    #[inline]
    pub fn len(&self) -> usize {
        self.head().len as usize + self.head().frags_len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in fragments (`skb->data_len`).
    pub fn data_len(&self) -> usize {
        self.head().frags_len as usize
    }

    /// Bytes before the data (`skb_headroom`).
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.head().offset)
    }

    /// Bytes behind the linear data; none if there are fragments (`skb_tailroom`).
    #[inline]
    pub fn tailroom(&self) -> usize {
        let head = self.head();
        match head.frags_len {
            0 => self.capacity() - usize::from(head.offset) - head.len as usize,
            _ => 0,
        }
    }

    /// The linear data.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let head = self.head();
        // SAFETY: inside the data, which was written before, in this life or an earlier one, and is written by who has it
        // alone.
        unsafe {
            core::slice::from_raw_parts(
                head.data.add(usize::from(head.offset)).as_ptr(),
                head.len as usize,
            )
        }
    }

    /// Where the linear data begins: for who writes it by other means, when the packet is neither shared nor cloned.
    #[inline]
    pub fn data_ptr(&self) -> *mut u8 {
        let head = self.head();
        head.data.as_ptr().wrapping_add(usize::from(head.offset))
    }

    /// The linear data, to be written.
    ///
    /// # Errors
    /// [`PacketError::Shared`].
    #[inline]
    pub fn data_mut(&mut self) -> Result<&mut [u8], PacketError> {
        if self.is_shared() || self.is_cloned() {
            return Err(PacketError::Shared);
        }
        let head = self.head();
        // SAFETY: as in `data`; the only reference to the only head of the data, and borrowed.
        Ok(unsafe {
            core::slice::from_raw_parts_mut(
                head.data.add(usize::from(head.offset)).as_ptr(),
                head.len as usize,
            )
        })
    }

    /// The bytes, to be written, of a packet in one piece that nobody else has a part in, cut to `len`; none of another one, which
    /// is not cut. (One that has had a part of its own counts as another one: what it shared may be still there.)
    #[inline(always)]
    pub(crate) fn sole(&mut self, len: usize) -> Option<&mut [u8]> {
        // Relaxed: `self` is borrowed, so nobody makes it one. Without it there is neither another head nor a fragment.
        if self.is_shared() || !self.head().info.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // SAFETY: ours is the only reference, is borrowed, and so does not give rise to another.
        let head = unsafe { self.head.as_mut() };
        head.len = head.len.min(len.min(u32::MAX as usize) as u32);
        let start = head.data.as_ptr().wrapping_add(usize::from(head.offset));
        // SAFETY: as in `data`; the only reference to the only head of the data, and borrowed.
        Some(unsafe { core::slice::from_raw_parts_mut(start, head.len as usize) })
    }

    /// More headroom, of a packet that has no data yet (`skb_reserve`).
    ///
    /// # Errors
    /// [`PacketError::BadLength`], also if it has data; [`PacketError::Shared`].
    pub fn reserve(&mut self, n: usize) -> Result<(), PacketError> {
        let room = self.tailroom();
        let head = self.head_mut()?;
        if head.len != 0 || n > room {
            return Err(PacketError::BadLength);
        }
        head.offset += n as u16;
        Ok(())
    }

    /// More bytes at the end, to be written (`skb_put`): they are as somebody left them.
    ///
    /// # Errors
    /// [`PacketError::BadLength`] beyond the tailroom; [`PacketError::Shared`].
    #[inline]
    pub fn put(&mut self, n: usize) -> Result<&mut [u8], PacketError> {
        if n > self.tailroom() {
            return Err(PacketError::BadLength);
        }
        if self.is_cloned() {
            return Err(PacketError::Shared);
        }
        let head = self.head_mut()?;
        let start = head.data.as_ptr().wrapping_add(usize::from(head.offset) + head.len as usize);
        head.len += n as u32;
        // SAFETY: inside the data, behind what is written there, by somebody in an earlier life at least; ours is the only
        // reference to its only head, and is borrowed.
        Ok(unsafe { core::slice::from_raw_parts_mut(start, n) })
    }

    /// More bytes at the beginning, to be written (`skb_push`): the linear data, from them on.
    ///
    /// # Errors
    /// [`PacketError::BadLength`] beyond the headroom; [`PacketError::Shared`].
    #[inline]
    pub fn push(&mut self, n: usize) -> Result<&mut [u8], PacketError> {
        if n > self.headroom() {
            return Err(PacketError::BadLength);
        }
        if self.is_cloned() {
            return Err(PacketError::Shared);
        }
        let head = self.head_mut()?;
        head.offset -= n as u16;
        head.len += n as u32;
        self.data_mut()
    }

    /// Takes bytes off the beginning (`skb_pull`): what is left of the linear data.
    ///
    /// # Errors
    /// [`PacketError::BadLength`] beyond the linear data; [`PacketError::Shared`].
    #[inline]
    pub fn pull(&mut self, n: usize) -> Result<&[u8], PacketError> {
        let head = self.head_mut()?;
        if n > head.len as usize {
            return Err(PacketError::BadLength);
        }
        head.offset += n as u16;
        head.len -= n as u32;
        Ok(self.data())
    }

    /// Keeps so many bytes of a packet without fragments, if it has more (`skb_trim`).
    ///
    /// # Errors
    /// [`PacketError::BadLength`] if there are fragments; [`PacketError::Shared`].
    #[inline]
    pub fn trim(&mut self, len: usize) -> Result<(), PacketError> {
        let head = self.head_mut()?;
        if head.frags_len != 0 {
            return Err(PacketError::BadLength);
        }
        head.len = head.len.min(len.min(u32::MAX as usize) as u32);
        Ok(())
    }

    /// Appends bytes (`skb_put_data`).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline]
    pub fn put_data(&mut self, bytes: &[u8]) -> Result<(), PacketError> {
        self.put(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// Appends a fragment (`skb_add_rx_frag`).
    ///
    /// # Errors
    /// [`PacketError::BadLength`] if there are [`MAX_FRAGS`], or 4 GiB, or the fragment is empty; [`PacketError::Shared`];
    /// [`PacketError::NoMemory`].
    pub fn add_frag(&mut self, frag: Frag) -> Result<(), PacketError> {
        if self.is_cloned() || self.is_shared() {
            return Err(PacketError::Shared);
        }
        let n = self.frags().count();
        let (linear, frags) = (self.head().len, self.head().frags_len);
        let len =
            frags.checked_add(frag.len() as u32).filter(|sum| sum.checked_add(linear).is_some());
        let (Some(len), true, false) = (len, n < MAX_FRAGS, frag.is_empty()) else {
            return Err(PacketError::BadLength);
        };
        self.info_or_new()?;
        let head = self.head_mut()?;
        head.frags_len = len;
        // Relaxed: `info_or_new` has seen it.
        let info = head.info.load(Ordering::Relaxed);
        // SAFETY: made above, and ours: the only reference to the only head.
        unsafe { (&mut (*info).frags)[n] = Some(frag) };
        Ok(())
    }

    /// The fragments, first to last.
    pub fn frags(&self) -> impl Iterator<Item = &Frag> {
        self.info().into_iter().flat_map(|info| info.frags.iter().flatten())
    }

    /// Another reference to the same head (`skb_get`): one locked instruction on its line. While there are two, lengths
    /// and bytes cannot be changed.
    ///
    /// # Panics
    /// With more than two thousand million references.
    pub fn get(&self) -> Self {
        // Relaxed: from a reference that exists.
        assert!(
            self.head().users.fetch_add(1, Ordering::Relaxed) < MOST,
            "too many references to a packet"
        );
        Self { head: self.head, of: PhantomData }
    }

    /// Another head with the same data (`skb_clone`): lengths are its own, bytes are shared. It has no destructor.
    ///
    /// # Errors
    /// [`PacketError::NoMemory`].
    ///
    /// # Panics
    /// With more than two thousand million heads of one data.
    pub fn clone_skb(&self) -> Result<Self, PacketError> {
        self.info_or_new()?;
        // ORDERING: as in `info`. Not a pointer from a reference, because the last head frees it.
        let info = self.head().info.load(Ordering::Acquire);
        let memory = self.packets().heads.alloc()?.cast::<Head>();
        // SAFETY: our reference keeps it. Relaxed: from a reference that exists.
        let heads = unsafe { (*info).dataref.fetch_add(1, Ordering::Relaxed) };
        assert!(heads < MOST, "too many clones of a packet");
        let head = Head {
            users: AtomicU32::new(1),
            info: AtomicPtr::new(info),
            next: AtomicPtr::new(ptr::null_mut()),
            destructor: None,
            argument: 0,
            cpu: cpu::current() as u16,
            ..*self.head()
        };
        // SAFETY: fresh memory of a head's size.
        unsafe { memory.write(head) };
        Ok(Self { head: memory, of: PhantomData })
    }

    /// A packet with a copy of all bytes, those of fragments made linear, with `headroom` bytes before them (`skb_copy_expand`).
    /// It has no destructor.
    ///
    /// # Errors
    /// [`PacketError::BadLength`] for more than fits into linear data; [`PacketError::NoMemory`].
    pub fn copy_expand(&self, headroom: usize, tailroom: usize) -> Result<Self, PacketError> {
        let room = self.len().checked_add(tailroom).and_then(|room| room.checked_add(headroom));
        let room = room.ok_or(PacketError::BadLength)?;
        // What is allocated has the usual headroom, which may serve as a part of this one.
        let mut new = self.packets().alloc_skb(room.saturating_sub(HEADROOM))?;
        // `room` fits into the capacity, and so does a part of it.
        new.head_mut()?.offset = headroom as u16;
        new.put_data(self.data())?;
        for frag in self.frags() {
            new.put_data(frag.bytes())?;
        }
        let from = self.head();
        let head = new.head_mut()?;
        (head.protocol, head.mark, head.hash, head.device) =
            (from.protocol, from.mark, from.hash, from.device);
        (head.cb, head.timestamp) = (from.cb, from.timestamp);
        Ok(new)
    }

    /// [`copy_expand`](Self::copy_expand) with the headroom that this one has (`skb_copy`).
    ///
    /// # Errors
    /// As [`copy_expand`](Self::copy_expand).
    pub fn copy(&self) -> Result<Self, PacketError> {
        self.copy_expand(self.headroom(), 0)
    }

    /// This packet, if nobody else has references to it or its data; else a copy (`skb_unshare`).
    ///
    /// # Errors
    /// As [`copy`](Self::copy); then this reference is given back.
    pub fn unshare(self) -> Result<Self, PacketError> {
        if self.is_shared() || self.is_cloned() { self.copy() } else { Ok(self) }
    }

    /// This packet with all its bytes in the linear part (`skb_linearize`): itself, if it has no fragments.
    ///
    /// # Errors
    /// As [`copy`](Self::copy); then this reference is given back.
    pub fn linearize(self) -> Result<Self, PacketError> {
        if self.data_len() == 0 { Ok(self) } else { self.copy() }
    }

    /// Sets what is called when the head ends, or that nothing is.
    ///
    /// # Errors
    /// [`PacketError::Shared`].
    pub fn set_destructor(&mut self, destructor: Option<Destructor>) -> Result<(), PacketError> {
        let head = self.head_mut()?;
        (head.destructor, head.argument) = match destructor {
            Some((call, argument)) => (Some(call), argument),
            None => (None, 0),
        };
        Ok(())
    }

    /// The CPU on which the head was made.
    pub fn cpu(&self) -> usize {
        usize::from(self.head().cpu)
    }

    /// What tells packets apart, as tracers show it: the head's address.
    pub fn id(&self) -> usize {
        self.head.addr().get()
    }

    /// Ends this reference; with the last one the packet, which was used (`consume_skb`).
    #[inline]
    pub fn consume_skb(self) {
        drop(self);
    }

    /// Ends this reference; with the last one the packet, which was dropped (`kfree_skb_reason`).
    #[inline]
    pub fn kfree_skb(self, reason: DropReason) {
        self.end(Event::Dropped(reason));
    }

    #[inline(always)]
    pub(in super::super) fn end(self, event: Event) {
        // A reference that turns out to be none (in debug builds) is not dropped again.
        let this = ManuallyDrop::new(self);
        let packets = this.packets();
        if packets.may_have_put_off() {
            if NoBulk::is_entered() {
                return Packets::put_off(ManuallyDrop::into_inner(this), event);
            }
            packets.free_put_off();
        }
        if let Some(remains) = ManuallyDrop::into_inner(this).dismantle(event) {
            // SAFETY: it was a packet of these.
            unsafe { packets.free(remains) };
        }
    }

    /// Gives this reference up; true if it was the last.
    #[inline(always)]
    pub(super) fn give_up(&self) -> bool {
        let users = &self.head().users;
        // A sole owner has nobody to agree with. ORDERING: Acquire pairs with the release below.
        users.load(Ordering::Acquire) == 1
            // ORDERING: AcqRel: what this owner did comes before the end, which sees what all did.
            || users.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Gives this reference up. If it was the last, what the packet leaves: traced, its destructor called, its fragments and its
    /// part in the data given up.
    #[inline(always)]
    pub(super) fn dismantle(self, event: Event) -> Option<Remains> {
        let this = ManuallyDrop::new(self);
        if !this.give_up() {
            return None;
        }
        // Where several gave up their references at once nobody is counted any more, and this is still the last one's.
        //
        // SAFETY: the last reference's: nobody else has the head. Relaxed: as that.
        #[cfg(debug_assertions)]
        unsafe { this.head.as_ref() }.users.store(1, Ordering::Relaxed);
        let head = this.head();
        trace::ended(this.id(), event);
        if let Some(destructor) = head.destructor {
            destructor(head.argument);
        }
        // Relaxed: who gave up the last reference has seen what was done by way of the others.
        let last = head.info.load(Ordering::Relaxed).is_null() || this.put_data_ref();
        // Relaxed: nobody else has it.
        #[cfg(debug_assertions)]
        head.users.store(0, Ordering::Relaxed);
        Some(Remains {
            head: this.head.cast(),
            data: last.then_some((head.data, head.class.into())),
        })
    }

    /// Gives up the head's part in data that had more than one head, or has fragments; true if it was the last, and then what the
    /// heads shared is gone.
    #[cold]
    fn put_data_ref(&self) -> bool {
        // ORDERING: as in `info`.
        let info = self.head().info.load(Ordering::Acquire);
        // SAFETY: as in `info`.
        let Some(Info { dataref, .. }) = (unsafe { info.as_ref() }) else { return true };
        // ORDERING: as in `give_up`.
        if dataref.load(Ordering::Acquire) != 1 && dataref.fetch_sub(1, Ordering::AcqRel) != 1 {
            return false;
        }
        // SAFETY: boxed in `info_or_new`, and no other reference has the data.
        drop(unsafe { Box::from_raw(info) });
        true
    }

    /// Notes in the head how the packet has ended, for who frees it later: the head.
    ///
    /// The reference must be the last one, and be kept until then.
    pub(super) fn note(&self, event: Event) -> NonNull<Head> {
        // SAFETY: nobody else has the head. A field of its own: no reference to the whole is made.
        unsafe { (*self.head.as_ptr()).ended = event.code() };
        self.head
    }

    /// What was [noted](Self::note).
    pub(super) fn noted(&self) -> Event {
        Event::of_code(self.head().ended)
    }

    /// The head, for who keeps the reference in a list.
    pub(super) fn into_head(self) -> NonNull<Head> {
        ManuallyDrop::new(self).head
    }

    /// # Safety
    /// The head is from [`into_head`](Self::into_head), which this undoes; its packets live for `'n`.
    pub(super) unsafe fn from_head(head: NonNull<Head>) -> Self {
        Self { head, of: PhantomData }
    }
}

macro_rules! fields {
    ($($(#[$doc:meta])* $field:ident: $type:ty, $set:ident;)*) => {
        impl Skb<'_> {
            $(
                $(#[$doc])*
                #[inline]
                pub fn $field(&self) -> $type {
                    self.head().$field
                }

                /// Sets it.
                ///
                /// # Errors
                /// [`PacketError::Shared`].
                #[inline]
                pub fn $set(&mut self, value: $type) -> Result<(), PacketError> {
                    self.head_mut()?.$field = value;
                    Ok(())
                }
            )*
        }
    };
}

fields! {
    /// The protocol's number, as on an Ethernet.
    protocol: u16, set_protocol;
    /// A mark for who classifies packets.
    mark: u32, set_mark;
    /// A hash of the flow.
    hash: u32, set_hash;
    /// The number of the device that it came in by.
    device: u32, set_device;
    /// When it came, in nanoseconds.
    timestamp: u64, set_timestamp;
    /// Forty bytes for whoever has the packet (`skb->cb`).
    cb: [u64; 5], set_cb;
}

impl Drop for Skb<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // One that was found out is not found out again while that unwinds.
        #[cfg(all(debug_assertions, not(loom)))]
        // SAFETY: as in `head`.
        if !unsafe { self.head.as_ref() }.is_alive() && quietline_platform::thread::panicking() {
            return;
        }
        // SAFETY: the same reference, which is not used after this.
        unsafe { Self::from_head(self.head) }.end(Event::Consumed);
    }
}

impl fmt::Debug for Skb<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Skb")
            .field("len", &self.len())
            .field("headroom", &self.headroom())
            .field("shared", &self.is_shared())
            .field("cloned", &self.is_cloned())
            .finish_non_exhaustive()
    }
}
