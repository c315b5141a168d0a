//! Packets freed many at a time.

use crate::skb::{array, ql_skb};
use core::mem;
use quietline_net::packet::{NoBulk, WAITLIST, Waitlist, kfree_skb_bulk, kfree_skb_bulk_reason};

/// Packets that a waitlist holds.
pub const QL_WAITLIST: usize = 32;

/// Packets that are done with, which are freed all at once when there are QL_WAITLIST, or when it is flushed. On the stack of
/// whoever goes through a device's completions; all zero at first. Belongs to one thread at a time; must not be copied.
///
///     ql_waitlist done = {0};
#[repr(C)]
#[derive(Debug)]
pub struct ql_waitlist {
    /// The library's.
    pub words: [usize; 33],
}

/// What is inside: all zero it is empty, because a reference that is missing is null. It is taken out before it is freed: a
/// packet's destructor may add to the same list.
type Content = Waitlist<'static, QL_WAITLIST>;

const _: () = assert!(QL_WAITLIST == WAITLIST);
const _: () = assert!(size_of::<Content>() == size_of::<ql_waitlist>());
const _: () = assert!(align_of::<Content>() <= align_of::<ql_waitlist>());

/// Ends `n` references, to packets that were used, and gives back all at once what those leave of which they were the last
/// (kfree_skb_bulk). Skips NULLs, and sets every entry to NULL. n may be 0. Never fails; NULL does nothing.
///
/// # Safety
/// `skbs` is NULL or points to `n` pointers, each NULL or a reference of the caller's, which is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_kfree_skb_bulk(skbs: *mut *mut ql_skb, n: usize) {
    // SAFETY: by contract.
    if let Some(skbs) = unsafe { array(skbs, n) } {
        kfree_skb_bulk(skbs);
    }
}

/// The same of packets that were dropped, all for one reason, which tracers see of each: see ql_kfree_skb() (kfree_skb_list_reason).
///
/// # Safety
/// As ql_kfree_skb_bulk().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_kfree_skb_bulk_reason(skbs: *mut *mut ql_skb, n: usize, reason: u32) {
    // SAFETY: by contract.
    if let Some(skbs) = unsafe { array(skbs, n) } {
        kfree_skb_bulk_reason(skbs, crate::reason::reason(reason));
    }
}

/// Adds a packet, whose reference is the list's from now on; frees all if it is the last that fits. Does nothing if the packet is
/// NULL; a list that is NULL frees it at once.
///
/// # Safety
/// `list` is NULL, or all zero, or was used by these functions alone; `skb` as for ql_consume_skb().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_waitlist_add(list: *mut ql_waitlist, mut skb: *mut ql_skb) {
    // SAFETY: one reference or none, by contract.
    let skb = unsafe { array(&raw mut skb, 1) }.and_then(|skb| skb[0].take());
    // SAFETY: by contract.
    let (Some(content), Some(skb)) = (unsafe { list.cast::<Content>().as_mut() }, skb) else {
        return;
    };
    if content.len() + 1 < QL_WAITLIST {
        content.add(skb);
    } else {
        mem::take(content).add(skb);
    }
}

/// Frees all; nothing if there are none, or for NULL. To be called before the list's memory is used for anything else.
///
/// # Safety
/// As ql_waitlist_add().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_waitlist_flush(list: *mut ql_waitlist) {
    // SAFETY: by contract.
    if let Some(content) = unsafe { list.cast::<Content>().as_mut() } {
        mem::take(content).flush();
    }
}

/// Packets in a list. 0 for NULL.
///
/// # Safety
/// As ql_waitlist_add().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_waitlist_len(list: *const ql_waitlist) -> usize {
    // SAFETY: by contract.
    unsafe { list.cast::<Content>().as_ref() }.map_or(0, Waitlist::len)
}

/// The calling thread enters a place where nothing may be freed: a signal handler, which may have interrupted the library while it held
/// a lock. Such places nest.
///
/// There ql_consume_skb(), ql_kfree_skb(), ql_kfree_skb_bulk(), ql_kfree_skb_bulk_reason(), ql_skb_defer_free() and waitlists of the
/// handler's own may be called, and, with ql_no_bulk_leave(), nothing else. They take no lock and no memory and call nobody. A packet
/// whose last reference ends there waits, in a list that has room for all, until a thread ends one elsewhere, makes some in bulk, or
/// calls ql_packets_take_deferred(), ql_packets_shrink() or ql_packets_destroy(): its destructor is called there.
///
/// A thread whose first call of the library may come in a handler calls this once before, and leaves again, if the library was loaded by
/// dlopen(): its thread-local memory is allocated then.
#[unsafe(no_mangle)]
pub extern "C" fn ql_no_bulk_enter() {
    mem::forget(NoBulk::enter());
}

/// The calling thread leaves such a place.
///
/// # Safety
/// It has called ql_no_bulk_enter() once more often than this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_no_bulk_leave() {
    // SAFETY: a value without bytes, which an earlier call has forgotten.
    drop(unsafe { mem::transmute::<(), NoBulk>(()) });
}
