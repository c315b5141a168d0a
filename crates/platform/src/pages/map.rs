//! Which size the blocks of a region have: a byte for each region of the address space, in leaves made on demand.

use super::{REGION, map_aligned};
use crate::AllocError;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Addresses of user space, in bits.
const ADDRESS_BITS: u32 = 48;
const REGION_BITS: u32 = REGION.ilog2();
/// Regions that a leaf covers, in bits: a leaf of 16 KiB is for 32 GiB.
const LEAF_BITS: u32 = 14;
const LEAVES: usize = 1 << (ADDRESS_BITS - REGION_BITS - LEAF_BITS);

/// Leaves are never given back, so a pointer that was read stays good.
static ROOT: [AtomicPtr<AtomicU8>; LEAVES] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; LEAVES];

/// The byte of the region that an address lies in, if there is a leaf for it.
#[inline]
fn byte(address: usize) -> Option<&'static AtomicU8> {
    let region = address >> REGION_BITS;
    // ORDERING: pairs with the release in `enter`: who sees the leaf sees it zeroed. Who does not takes its regions for
    // unknown, and has no address in one.
    let leaf = ROOT.get(region >> LEAF_BITS)?.load(Ordering::Acquire);
    // SAFETY: a leaf has a byte for each region that it covers, and is never given back.
    (!leaf.is_null()).then(|| unsafe { &*leaf.add(region & ((1 << LEAF_BITS) - 1)) })
}

/// The class of the region that an address lies in; none if it lies in none.
#[inline]
pub(super) fn class(address: usize) -> Option<usize> {
    // Relaxed: whoever has an address in a region has it from a thread that saw the region entered; others lock the
    // class and ask again.
    usize::from(byte(address)?.load(Ordering::Relaxed)).checked_sub(1)
}

/// Writes down the class of a region; its lock is held.
///
/// # Errors
/// [`AllocError`] when there is no memory for a leaf, or the address is beyond what user space is known to have.
pub(super) fn enter(region: usize, class: usize) -> Result<(), AllocError> {
    let index = region >> REGION_BITS >> LEAF_BITS;
    let root = ROOT.get(index).ok_or(AllocError)?;
    if byte(region).is_none() {
        let leaf = map_aligned(1 << LEAF_BITS, 1 << LEAF_BITS)?;
        // ORDERING: pairs with the acquire in `byte`. Another class may have been quicker: then its leaf is as good.
        let lost = root.compare_exchange(
            core::ptr::null_mut(),
            leaf.as_ptr().cast(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        if lost.is_err() {
            // SAFETY: mapped above, and nobody else knows it.
            unsafe { super::unmap(leaf, 1 << LEAF_BITS) };
        }
    }
    let byte = byte(region).expect("there is a leaf now");
    // Relaxed: see `class`.
    byte.store(class as u8 + 1, Ordering::Relaxed);
    Ok(())
}

/// Forgets a region; its class's lock is held.
pub(super) fn leave(region: usize) {
    if let Some(byte) = byte(region) {
        // Relaxed: see `class`.
        byte.store(0, Ordering::Relaxed);
    }
}
