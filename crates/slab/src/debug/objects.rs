//! The objects of a slab with checks: their records, and the bytes in them and beside them.
//!
//! ```text
//!   header | record | record | ... | left | object | right, left | object | right, left | ...
//!            link, state,            16     size     the rest of the stride
//!            who allocated, who freed
//! ```
//!
//! Whoever uses this holds the lock of the cache's checks, or knows the slab alone.

use super::violation::{Dump, Side, Violation, ViolationKind};
use super::{CallSite, Debug};
use crate::slab::Slab;
use crate::slabs::Slabs;
use core::ops::Range;
use core::ptr::NonNull;

/// Bytes of a left zone, and the least of a right one.
const ZONE: usize = 16;

const IN_ZONE: u8 = 0xbb;
/// In objects that were never allocated, and in fresh allocations.
const FRESH: u8 = 0x5a;
const FREED: u8 = 0x6b;
const FREED_LAST: u8 = 0xa5;

/// What an object is. Memory of zeros is a fresh one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Use {
    /// Never handed out.
    Fresh = 0,
    Allocated = 1,
    Free = 2,
    /// Freed by its user, until a grace period is over.
    Waiting = 3,
    /// Written while it was free: not handed out again.
    Quarantined = 4,
}

#[repr(C)]
struct Record {
    /// The freelist's.
    link: u32,
    usage: u32,
    sites: [CallSite; 2],
}

/// Bytes of each object's record; none without checks.
pub(crate) fn record_size(checked: Debug) -> usize {
    if checked.is_off() {
        0
    } else if checked.contains(Debug::TRACK) {
        size_of::<Record>()
    } else {
        core::mem::offset_of!(Record, sites)
    }
}

/// Bytes of a zone on each side.
pub(crate) fn zone(checked: Debug) -> usize {
    if checked.contains(Debug::RED_ZONE) { ZONE } else { 0 }
}

/// A slab's.
#[derive(Clone, Copy)]
pub(super) struct Objects<'a> {
    pub(super) slab: &'a Slab,
}

impl<'a> Objects<'a> {
    /// # Safety
    /// The slab is one with checks, and outlives `'a`, as its cache does; see the head of this file.
    pub(super) unsafe fn of(slab: NonNull<Slab>) -> Self {
        // SAFETY: by contract.
        Self { slab: unsafe { slab.as_ref() } }
    }

    pub(super) fn cache(&self) -> &'a Slabs {
        // SAFETY: by the contract of `of`.
        unsafe { self.slab.cache().as_ref() }
    }

    fn size(&self) -> usize {
        self.cache().options.size
    }

    /// A violation, with what is known of its object.
    pub(super) fn about(&self, index: u16, kind: ViolationKind) -> Violation {
        let (allocated, freed) = self.known_sites(index);
        let slab = Some((self.block().start, usize::from(index)));
        let violation = Violation::new(kind, self.cache(), self.address(index));
        Violation { slab, allocated, freed, ..violation }
    }

    pub(super) fn count(&self) -> u16 {
        self.slab.layout().objects as u16
    }

    pub(super) fn address(&self, index: u16) -> usize {
        self.slab.object(index).as_ptr() as usize
    }

    pub(super) fn block(&self) -> Range<usize> {
        let start = core::ptr::from_ref(self.slab) as usize;
        start..start + self.slab.layout().block
    }

    /// Makes all objects fresh.
    pub(super) fn init(&self) {
        let layout = self.slab.layout();
        let records = self.slab.record(0).as_ptr();
        let objects = self.address(0) - zone(self.slab.checked());
        // SAFETY: both ranges are inside the block, behind the header, which was made large enough for them.
        unsafe {
            records.write_bytes(0, objects - records as usize);
            (objects as *mut u8)
                .write_bytes(IN_ZONE, layout.block - (objects - self.block().start));
        }
        for index in 0..self.count() {
            self.set_usage(index, Use::Fresh);
        }
    }

    fn record(&self, index: u16) -> *mut Record {
        self.slab.record(index).cast().as_ptr()
    }

    /// Returns the poison of an object in the state `usage`: the value of all bytes but the last,
    /// and of the last. `None` if bytes are not checked in that state.
    fn pattern(&self, usage: Use) -> Option<(u8, u8)> {
        let poison = self.slab.checked().contains(Debug::POISON) && self.size() > 0;
        match usage {
            Use::Fresh | Use::Allocated if poison => Some((FRESH, FRESH)),
            Use::Free if poison => Some((FREED, FREED_LAST)),
            _ => None,
        }
    }

    pub(super) fn usage(&self, index: u16) -> Option<Use> {
        // SAFETY: a record is there, the part without sites at least.
        let usage = unsafe { (&raw const (*self.record(index)).usage).read() };
        [Use::Fresh, Use::Allocated, Use::Free, Use::Waiting, Use::Quarantined]
            .into_iter()
            .find(|known| *known as u32 == usage)
    }

    /// Notes what an object is from now on, and fills it if that is checked.
    pub(super) fn set_usage(&self, index: u16, usage: Use) {
        // SAFETY: as in `usage`.
        unsafe { (&raw mut (*self.record(index)).usage).write(usage as u32) };
        if let Some((all, last)) = self.pattern(usage) {
            let object = self.slab.object(index);
            // SAFETY: the object is free, or not yet handed out, and of this size.
            unsafe {
                object.write_bytes(all, self.size());
                object.add(self.size() - 1).write(last);
            }
        }
    }

    /// Who allocated an object and who freed it, if that is kept.
    fn sites(&self, index: u16) -> Option<*mut [CallSite; 2]> {
        // SAFETY: with call sites, a whole record is there.
        let sites = || unsafe { &raw mut (*self.record(index)).sites };
        self.slab.checked().contains(Debug::TRACK).then(sites)
    }

    pub(super) fn set_site(&self, index: u16, freed: bool, by: &CallSite) {
        if let Some(sites) = self.sites(index) {
            // SAFETY: as `sites` says.
            unsafe { (*sites)[usize::from(freed)] = *by };
        }
    }

    /// Who allocated it last, and who freed it since.
    fn known_sites(&self, index: u16) -> (Option<CallSite>, Option<CallSite>) {
        // SAFETY: as `sites` says.
        let sites = self.sites(index).map_or([CallSite::NONE; 2], |sites| unsafe { *sites });
        let (allocated, freed) = (sites[0].known(), sites[1].known());
        // A free of an earlier life says nothing of this one.
        let since = allocated.map(|allocated| allocated.time());
        (allocated, freed.filter(|freed| Some(freed.time()) >= since))
    }

    /// The zones of an object, left and right.
    fn zones(&self, index: u16) -> [(Side, Range<usize>); 2] {
        let (object, zone) = (self.address(index), zone(self.slab.checked()));
        let end = if zone == 0 {
            object + self.size()
        } else {
            object + self.slab.layout().stride - zone
        };
        [(Side::Left, object - zone..object), (Side::Right, object + self.size()..end)]
    }

    /// The first byte beside an object that was written.
    pub(super) fn overrun(&self, index: u16) -> Option<(Side, Dump)> {
        self.zones(index)
            .into_iter()
            .find_map(|(side, zone)| Some((side, self.differs(zone, IN_ZONE)?)))
    }

    /// Makes the zones what they were.
    pub(super) fn mend(&self, index: u16) {
        for (_, zone) in self.zones(index) {
            // SAFETY: inside the block, and nobody's.
            unsafe { (zone.start as *mut u8).write_bytes(IN_ZONE, zone.len()) };
        }
    }

    /// The first byte of a free object that was written, if that is checked.
    pub(super) fn written(&self, index: u16) -> Option<Dump> {
        let usage = self.usage(index).filter(|usage| *usage != Use::Allocated)?;
        let (all, end) = self.pattern(usage)?;
        let object = self.address(index);
        let last = object + self.size() - 1;
        self.differs(object..last, all).or_else(|| self.differs(last..last + 1, end))
    }

    fn differs(&self, range: Range<usize>, expected: u8) -> Option<Dump> {
        // SAFETY: inside the block. Whoever writes here does so against the rules, and we are about to say so.
        let at = range
            .into_iter()
            .find(|at| unsafe { (*at as *const u8).read_volatile() } != expected)?;
        // SAFETY: as above.
        Some(unsafe { Dump::of(self.block(), at, expected) })
    }
}
