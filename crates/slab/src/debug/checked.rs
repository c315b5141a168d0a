//! The slabs with checks of a cache, and what is done to them under one lock.

use super::objects::{Objects, Use};
use super::violation::{Invalid, Violation, ViolationKind};
use super::{CallSite, Debug};
use crate::freelist::Detached;
use crate::slab::{Partial, Slab};
use crate::slabs::Slabs;
use core::ptr::{self, NonNull};
use quietline_platform::pages;

/// All slabs that were made since the switch was turned last. Each is frozen: nobody else takes
/// from it.
#[derive(Debug)]
pub(crate) struct Checked {
    /// What is checked.
    pub(super) checked: Debug,
    /// Of this turn of the switch; never 0.
    pub(super) epoch: u32,
    lists: [Partial; LISTS],
}

/// Slabs with free objects and with others.
const OPEN: usize = 0;
/// Without one in use.
const EMPTY: usize = 1;
/// Without a free one.
const FULL: usize = 2;
const LISTS: usize = 3;

/// What came of an allocation.
pub(super) enum Popped {
    /// Nothing is checked any more.
    Off,
    /// A slab is needed.
    NoSlab,
    /// Nothing yet: something is to be reported first.
    Again(Violation),
    Object {
        object: NonNull<u8>,
        /// Never handed out before.
        fresh: bool,
        found: Option<Violation>,
    },
}

/// What came of giving an object back.
pub(super) enum Put {
    /// Nothing is checked any more, or the object's slab is older than the switch's last turn.
    Unchecked,
    /// To the address's cache, if there still is one; the slab.
    Foreign(*const Slabs, NonNull<Slab>),
    Refused(Violation),
    Done(Option<Violation>),
}

/// The reason for which an object comes to its slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FreeKind {
    /// Its user frees it.
    Direct,
    /// Its user frees it after a grace period that is to come.
    RcuBegin,
    /// That grace period has ended.
    RcuEnd,
}

impl Checked {
    pub(super) const fn new() -> Self {
        Self { checked: Debug::OFF, epoch: 1, lists: [const { Partial::new() }; LISTS] }
    }

    /// Begins a new epoch. The slabs of the old one.
    pub(super) fn turn(&mut self, checked: Debug) -> [Partial; LISTS] {
        let epoch = self.epoch.checked_add(1).unwrap_or(1);
        core::mem::replace(self, Self { checked, epoch, ..Self::new() }).lists
    }

    /// Adds a slab: a new one of this epoch, or one that was taken off.
    pub(super) fn add(&mut self, slab: NonNull<Slab>) {
        // SAFETY: the slab is the caller's, and on no list; these lists are locked.
        unsafe { self.lists[Self::list_of(slab.as_ref())].add(slab) };
    }

    fn remove(&mut self, slab: &Slab) {
        // SAFETY: on one of these lists, which are locked: on the one where it belonged when it
        // changed last.
        unsafe { self.lists[Self::list_of(slab)].remove(slab.as_raw()) };
    }

    /// The list where a slab belongs.
    fn list_of(slab: &Slab) -> usize {
        match slab.packed().inuse {
            0 => EMPTY,
            _ if slab.has_free() => OPEN,
            _ => FULL,
        }
    }

    /// Calls `f`, which may take from a slab or give to it, and moves the slab to the list where it
    /// belongs then.
    fn change<R>(&mut self, slab: &Slab, f: impl FnOnce() -> R) -> R {
        self.remove(slab);
        let result = f();
        self.add(slab.as_raw());
        result
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = NonNull<Slab>> + '_ {
        self.lists.iter().flat_map(Partial::iter)
    }

    pub(super) fn pop(&mut self, by: &CallSite) -> Popped {
        if self.checked.is_off() {
            return Popped::Off;
        }
        let Some(slab) = self.lists[OPEN].first().or_else(|| self.lists[EMPTY].first()) else {
            return Popped::NoSlab;
        };
        // SAFETY: slabs on these lists are checked ones of the cache, and live while they are
        // locked.
        let objects = unsafe { Objects::of(slab) };
        if !objects.slab.list_head_is_sound() {
            return Popped::Again(self.give_up(&objects));
        }
        let index = self
            .change(objects.slab, || objects.slab.take_one())
            .expect("an open slab has a free object");
        let fresh = match objects.usage(index) {
            Some(Use::Fresh) => true,
            Some(Use::Free) => false,
            _ => return Popped::Again(self.give_up(&objects)),
        };
        let found = overrun(&objects, index);
        if let Some(memory) = objects.written(index) {
            objects.set_usage(index, Use::Quarantined);
            let memory = Some(memory);
            let violation = objects.about(index, ViolationKind::UseAfterFree);
            return Popped::Again(Violation { memory, ..violation });
        }
        objects.set_usage(index, Use::Allocated);
        objects.set_site(index, false, by);
        Popped::Object { object: objects.slab.object(index), fresh, found }
    }

    pub(super) fn put(
        &mut self,
        cache: &Slabs,
        object: usize,
        by: &CallSite,
        kind: FreeKind,
    ) -> Put {
        if self.checked.is_off() {
            return Put::Unchecked;
        }
        let invalid = |why| Violation {
            found: by.known(),
            ..Violation::new(ViolationKind::InvalidPointer(why), cache, object)
        };
        let Some((block, _)) = pages::find_block(object) else {
            return Put::Refused(invalid(Invalid::NoSlab));
        };
        // Blocks are slabs, here and below.
        let slab = block.cast::<Slab>();
        // SAFETY: the block is in use. (It may cease to be at any moment if the object is not the
        // caller's to free.)
        let at = unsafe { slab.as_ref() };
        if !ptr::eq(at.cache().as_ptr(), cache) {
            return Put::Foreign(at.cache().as_ptr(), slab);
        }
        let within = |index: u16| Some((slab.as_ptr() as usize, usize::from(index)));
        let Some((index, offset)) = at.locate(object) else {
            return Put::Refused(Violation { slab: within(0), ..invalid(Invalid::NoObject) });
        };
        if at.epoch() != self.epoch {
            let inside = || invalid(Invalid::Inside { offset });
            return match offset {
                0 => Put::Unchecked,
                _ => Put::Refused(Violation { slab: within(index), ..inside() }),
            };
        }
        // SAFETY: a slab of this epoch is a checked one of the cache.
        let objects = unsafe { Objects::of(slab) };
        let refuse = |what| {
            let found = by.known();
            Put::Refused(Violation { object, found, ..objects.about(index, what) })
        };
        if offset != 0 {
            return refuse(ViolationKind::InvalidPointer(Invalid::Inside { offset }));
        }
        match objects.usage(index) {
            Some(Use::Fresh) => {
                return refuse(ViolationKind::InvalidPointer(Invalid::NeverAllocated));
            }
            Some(Use::Free | Use::Quarantined) => return refuse(ViolationKind::DoubleFree),
            Some(Use::Waiting) if kind != FreeKind::RcuEnd => {
                return refuse(ViolationKind::DoubleFree);
            }
            Some(Use::Allocated | Use::Waiting) => {}
            None => return Put::Refused(self.give_up(&objects)),
        }
        let found =
            overrun(&objects, index).map(|violation| Violation { found: by.known(), ..violation });
        if kind != FreeKind::RcuEnd {
            objects.set_site(index, true, by);
        }
        if kind == FreeKind::RcuBegin {
            objects.set_usage(index, Use::Waiting);
        } else {
            objects.set_usage(index, Use::Free);
            self.change(at, || at.push(at.detach(object), |_, _| true));
        }
        Put::Done(found)
    }

    /// Takes an empty slab out, if there are more than `keep`, for the caller to give back:
    /// checked, as what is known of its objects will be forgotten. If that finds something, it is
    /// to be reported first, and no slab is taken yet.
    pub(super) fn take_empty(&mut self, keep: usize) -> (Option<NonNull<Slab>>, Option<Violation>) {
        let Some(slab) = self.lists[EMPTY].first().filter(|_| self.lists[EMPTY].len > keep) else {
            return (None, None);
        };
        // SAFETY: as in `pop`.
        let objects = unsafe { Objects::of(slab) };
        let found = self.first_wrong(&objects);
        if found.is_some() {
            return (None, found);
        }
        self.remove(objects.slab);
        (Some(slab), None)
    }

    /// The next thing that is wrong with any slab; it is put right as far as it can be, so that it
    /// is found once.
    pub(super) fn next_wrong(&mut self) -> Option<Violation> {
        for list in 0..LISTS {
            let mut next = self.lists[list].first();
            while let Some(slab) = next {
                // SAFETY: as in `pop`.
                let objects = unsafe { Objects::of(slab) };
                let wrong = self.first_wrong(&objects);
                if wrong.is_some() {
                    return wrong;
                }
                next = objects.slab.next_listed();
            }
        }
        None
    }

    fn first_wrong(&mut self, objects: &Objects<'_>) -> Option<Violation> {
        if !objects.slab.list_is_whole()
            || (0..objects.count()).any(|index| objects.usage(index).is_none())
        {
            return Some(self.give_up(objects));
        }
        (0..objects.count()).find_map(|index| {
            if objects.usage(index) == Some(Use::Quarantined) {
                return None;
            }
            overrun(objects, index).or_else(|| {
                let memory = Some(objects.written(index)?);
                let violation = objects.about(index, ViolationKind::UseAfterFree);
                self.quarantine(objects, index);
                Some(Violation { memory, ..violation })
            })
        })
    }

    /// Takes a free object out of the slab for good.
    fn quarantine(&mut self, objects: &Objects<'_>, index: u16) {
        objects.set_usage(index, Use::Quarantined);
        let slab = objects.slab;
        self.change(slab, || {
            let mut kept: Option<Detached> = None;
            while let Some(index) = slab.take_one() {
                if objects.usage(index) == Some(Use::Quarantined) {
                    continue;
                }
                let object = objects.address(index);
                match &mut kept {
                    Some(list) => slab.detach_more(list, object),
                    None => kept = Some(slab.detach(object)),
                }
            }
            if let Some(list) = kept {
                slab.push(list, |_, _| true);
            }
        });
    }

    /// Lets go of a slab whose records make no sense: it is neither taken from nor given back any
    /// more.
    fn give_up(&mut self, objects: &Objects<'_>) -> Violation {
        let violation = Violation {
            slab: Some((objects.block().start, 0)),
            ..Violation::new(ViolationKind::Records, objects.cache(), objects.address(0))
        };
        self.remove(objects.slab);
        // It stays frozen, so that nobody takes from it.
        objects.slab.forget_epoch();
        violation
    }
}

/// What is written beside an object; it is wiped off.
fn overrun(objects: &Objects<'_>, index: u16) -> Option<Violation> {
    let (side, memory) = objects.overrun(index)?;
    objects.mend(index);
    let memory = Some(memory);
    Some(Violation { memory, ..objects.about(index, ViolationKind::Overrun(side)) })
}
