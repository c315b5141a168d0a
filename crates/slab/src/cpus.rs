//! The top layer: the CPUs' sheaves, and the way to the barn and past it.

use crate::barn::Barn;
use crate::bulk::{Entry, as_addresses};
use crate::debug::FreeKind;
use crate::reclaim;
use crate::sheaves::{GuardState, Handshake, Sheaves, Taken};
use crate::tunables::Knob;
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicBool, Ordering};
use quietline_platform::percpu::{self, OwnedSheaf};
use quietline_platform::{AllocError, FenceError};
use quietline_sync::SpinLock;

/// The number of objects that a CPU keeps of those that return to it from a grace period: twice as
/// many as return at a time. Of larger sheaves, one.
const HOME_OBJECTS: usize = 4 * quietline_sync::rcu::BATCH as usize;

#[derive(Debug)]
pub(crate) struct Cpus {
    pub(crate) sheaves: Sheaves,
    /// Whether the CPUs may have sheaves. A hint: the guard decides, and the barn's limit.
    allowed: AtomicBool,
    /// The capacity of a new sheaf.
    pub(crate) capacity: Knob,
    /// The number of objects that a new sheaf is filled with.
    pub(crate) batch: Knob,
    pub(crate) handshake: Handshake,
    pub(crate) barn: Barn,
}

impl Cpus {
    pub(crate) fn new(
        sheaves: Sheaves,
        allowed: bool,
        (capacity, batch): (usize, usize),
        barn: Barn,
    ) -> Self {
        let (capacity, batch) = (Knob::new(capacity), Knob::new(batch));
        let handshake = SpinLock::new(GuardState::new(allowed));
        Self { sheaves, allowed: AtomicBool::new(allowed), capacity, batch, handshake, barn }
    }

    pub(crate) fn allowed(&self) -> bool {
        // Relaxed: a hint.
        self.allowed.load(Ordering::Relaxed)
    }

    fn set_allowed(&self, allowed: bool) {
        // Relaxed: as above.
        self.allowed.store(allowed, Ordering::Relaxed);
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_slow(&self) -> Result<NonNull<u8>, AllocError> {
        let mut one = [None];
        if percpu::is_fallback() {
            one[0] = NonNull::new(self.sheaves.pop() as *mut u8);
        }
        if one[0].is_none() {
            self.take(&mut one, 0)?;
        }
        one[0].ok_or(AllocError)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn free_slow(&self, object: usize) {
        if !(percpu::is_fallback() && self.sheaves.push(object)) {
            self.give(&mut [object], false);
        }
    }

    /// Fills `objects` from the `got`-th on, where all are `None`, all or nothing.
    ///
    /// # Errors
    /// [`AllocError`]; all entries are `None`.
    #[cold]
    #[inline(never)]
    pub(crate) fn take(&self, objects: &mut [Entry], mut got: usize) -> Result<(), AllocError> {
        while got < objects.len() {
            let want = objects.len() - got;
            // More than a sheaf holds comes from sheaves at hand, then from slabs.
            if let Ok(mut sheaf) = self.filled_sheaf(want > self.capacity.get()) {
                // One object by a load, and more by a copy, which is a call. An entry is written as
                // a pointer: a number in its place would have no provenance.
                match &mut objects[got..] {
                    [one] => {
                        let object = sheaf.pop().expect("it is not empty");
                        (*one, got) = (NonNull::new(object as *mut u8), got + 1);
                    }
                    rest => got += sheaf.pop_into(as_addresses(rest)),
                }
                if sheaf.is_empty() {
                    self.park(sheaf)
                } else {
                    self.install(sheaf, false)
                }
                continue;
            }
            // No sheaves, no memory for one, or no slab to fill it from.
            let taken = self.barn.slabs.take(want, |object| {
                objects[got] = NonNull::new(object as *mut u8);
                got += 1;
            });
            if taken.is_err() {
                self.give(as_addresses(&mut objects[..got]), true);
                objects.fill(None);
                return taken;
            }
        }
        Ok(())
    }

    /// Frees objects, of a `bulk` or one.
    #[cold]
    #[inline(never)]
    pub(crate) fn give(&self, mut objects: &mut [usize], bulk: bool) {
        while !objects.is_empty() {
            let many = objects.len() > self.capacity.get();
            let Some((mut sheaf, spare)) = self.roomy_sheaf(many) else {
                return self.barn.slabs.give(objects, FreeKind::Direct);
            };
            let n = match *objects {
                [one] => usize::from(sheaf.push(one)),
                _ => sheaf.extend(objects),
            };
            // A full main sheaf with some more objects in the spare one serves the next bulk of
            // this size; the reverse does not.
            if spare && bulk {
                self.park(sheaf)
            } else {
                self.install(sheaf, true)
            }
            objects = &mut objects[n..];
        }
    }

    /// A sheaf with at least one object: the CPU's spare one, one of its pile, or one of the barn.
    /// Else one that is filled from slabs, except for a caller that wants `many` objects.
    fn filled_sheaf(&self, many: bool) -> Result<OwnedSheaf, AllocError> {
        if !self.allowed() {
            return Err(AllocError);
        }
        let spare = self.sheaves.take_spare();
        match spare {
            Some(sheaf) if !sheaf.is_empty() => return Ok(sheaf),
            _ => {}
        }
        reclaim::tick();
        let full = self.take_home().or_else(|| self.barn.take_full());
        if full.is_some() || many {
            spare.into_iter().for_each(|empty| self.park(empty));
            return full.ok_or(AllocError);
        }
        let mut sheaf = match spare {
            Some(sheaf) => sheaf,
            None => self.empty_sheaf()?,
        };
        let batch = self.batch.get().clamp(1, sheaf.capacity());
        let filled = self.barn.slabs.take(batch, |object| {
            assert!(sheaf.push(object), "a sheaf holds a batch");
        });
        match filled {
            Ok(()) => Ok(sheaf),
            Err(error) => {
                self.park(sheaf);
                Err(error)
            }
        }
    }

    /// A sheaf with room, and whether it is the CPU's spare one. None if there are no sheaves, if
    /// there is no memory for one, or if the barn is full and the caller has `many` objects.
    fn roomy_sheaf(&self, many: bool) -> Option<(OwnedSheaf, bool)> {
        if !self.allowed() {
            return None;
        }
        match self.sheaves.take_spare() {
            Some(sheaf) if sheaf.len() < sheaf.capacity() => return Some((sheaf, true)),
            Some(full) => {
                reclaim::tick();
                match self.barn.put(full) {
                    Ok(()) => {}
                    Err(full) if many => {
                        self.park(full);
                        return None;
                    }
                    Err(full) => return Some((self.barn.flush(full), false)),
                }
            }
            None => {}
        }
        self.empty_sheaf().ok().map(|sheaf| (sheaf, false))
    }

    /// An empty sheaf of the capacity in force.
    fn empty_sheaf(&self) -> Result<OwnedSheaf, AllocError> {
        match self.barn.take_empty() {
            Some(sheaf) => Ok(sheaf),
            None => OwnedSheaf::new(self.capacity.get()),
        }
    }

    /// An empty sheaf in which objects wait for a grace period: the CPU's spare one if that is
    /// empty, as allocation leaves it. The barn, whose lock all CPUs share, comes second. Where the
    /// CPUs have no sheaves, one for a single object.
    ///
    /// # Errors
    /// [`AllocError`]
    pub(crate) fn sheaf_to_collect(&self) -> Result<OwnedSheaf, AllocError> {
        if !self.allowed() {
            return OwnedSheaf::new(1);
        }
        match self.sheaves.take_spare() {
            Some(spare) if spare.is_empty() && spare.capacity() == self.capacity.get() => {
                return Ok(spare);
            }
            Some(spare) => self.park(spare),
            None => {}
        }
        self.empty_sheaf()
    }

    /// An empty sheaf without memory: one that is there, whose objects go to their slabs.
    pub(crate) fn sheaf_without_memory(&self) -> Option<OwnedSheaf> {
        let at_hand = self.sheaves.take_spare().or_else(|| self.take_home());
        let stored = || self.barn.take_empty().or_else(|| self.barn.take_full());
        at_hand.or_else(stored).map(|sheaf| self.barn.flush(sheaf))
    }

    /// Makes a sheaf the CPU's main one, in place of one that the caller found full or empty, and
    /// parks the other one.
    fn install(&self, sheaf: OwnedSheaf, full: bool) {
        if let Some(over) = self.sheaves.install(sheaf, full) {
            self.park(over);
        }
    }

    /// Puts a sheaf in the CPU's spare place or into the barn. Frees an empty one of another
    /// capacity than is in force.
    pub(crate) fn park(&self, sheaf: OwnedSheaf) {
        if sheaf.is_empty() && sheaf.capacity() != self.capacity.get() {
            return;
        }
        if let Some(over) = self.sheaves.put_spare(sheaf) {
            self.barn.give(over);
        }
    }

    fn take_home(&self) -> Option<OwnedSheaf> {
        self.sheaves.take_home(|over| self.barn.give(over))
    }

    /// Puts a sheaf on the pile of this CPU, which has its objects' lines: see
    /// [`Sheaves::put_home`]. Else into the barn.
    pub(crate) fn put_home(&self, sheaf: OwnedSheaf) {
        if self.allowed() && !sheaf.is_empty() {
            let limit = (HOME_OBJECTS / sheaf.capacity()).max(1);
            self.sheaves.put_home(sheaf, limit, |over| self.barn.give(over));
        } else {
            self.barn.give(sheaf);
        }
    }

    /// Takes all CPUs' sheaves. The caller gives them to the barn, or to their grace period.
    ///
    /// # Errors
    /// [`FenceError`]
    pub(crate) fn drain(&self) -> Result<Taken, FenceError> {
        self.sheaves.take_all(&self.handshake)
    }

    /// [`drain`](Self::drain) for the only owner.
    ///
    /// # Safety
    /// No other thread allocates from the cache or frees to it.
    pub(crate) unsafe fn drain_alone(&self) -> Taken {
        // SAFETY: passed on.
        unsafe { self.sheaves.take_all_alone(&self.handshake) }
    }

    /// Takes the CPUs' sheaves whose objects wait for a grace period, without a fence.
    ///
    /// # Safety
    /// No other thread frees an object of the cache by RCU, now or later.
    pub(crate) unsafe fn drain_collected(&self) -> Taken {
        // SAFETY: passed on.
        unsafe { self.sheaves.take_collected(&self.handshake) }
    }

    /// [`drain`](Self::drain), after which the CPUs get no sheaves and the barn keeps none.
    ///
    /// # Errors
    /// [`FenceError`]; the CPUs may have sheaves, as before.
    pub(crate) fn drain_and_close(&self) -> Result<Taken, FenceError> {
        self.set_allowed(false);
        let taken = self.sheaves.forbid(&self.handshake);
        match taken {
            Ok(_) => self.barn.close(),
            Err(_) => self.set_allowed(true),
        }
        taken
    }

    /// Lets the CPUs and the barn have sheaves again.
    pub(crate) fn open(&self) {
        self.barn.open();
        self.sheaves.allow(&self.handshake);
        self.set_allowed(true);
    }

    /// Keeps no more sheaves from now on, after the last handle is gone.
    pub(crate) fn retire(&self) {
        self.set_allowed(false);
        self.barn.close();
    }

    /// See [`Sheaves::content`].
    ///
    /// # Errors
    /// [`FenceError`]
    pub(crate) fn content(&self) -> Result<(usize, usize), FenceError> {
        self.sheaves.content(&self.handshake)
    }
}
