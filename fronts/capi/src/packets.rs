//! The memory of packets.

use crate::status::{ql_status, status};
use core::ptr;
use quietline_net::packet::Packets;
use quietline_platform::heap;

/// The caches of packets' heads and data. Any thread may use any function with it, but for ql_packets_destroy(), which must be
/// the last.
pub struct ql_packets {
    packets: Packets,
}

impl ql_packets {
    /// The packets behind a C pointer.
    ///
    /// # Safety
    /// It is null, or packets that outlive all that is made with what comes out of this.
    pub(crate) unsafe fn get(packets: *const Self) -> Result<&'static Packets, ql_status> {
        // SAFETY: by contract.
        unsafe { packets.as_ref() }.map(|packets| &packets.packets).ok_or(ql_status::QL_INVALID)
    }
}

/// Makes the caches, which allocate no slab yet, and stores them in *packets; on failure, *packets is NULL.
///
/// QL_INVALID when `packets` is NULL; QL_NO_MEMORY.
///
/// # Safety
/// `packets` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_packets_create(packets: *mut *mut ql_packets) -> ql_status {
    status(|| {
        if packets.is_null() {
            return Err(ql_status::QL_INVALID);
        }
        // SAFETY: by contract; so below.
        unsafe { packets.write(ptr::null_mut()) };
        let fresh = heap::try_box(ql_packets { packets: Packets::new()? })?;
        // SAFETY: as above.
        unsafe { packets.write(Box::into_raw(fresh)) };
        Ok(())
    })
}

/// Ends packets that wait to be freed, and the caches. NULL does nothing.
///
/// # Safety
/// All packets of it, and all forwarders and waitlists that have any, have ended; it is used by nobody else, now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_packets_destroy(packets: *mut ql_packets) {
    if !packets.is_null() {
        // SAFETY: boxed by ql_packets_create, and by contract the caller's.
        drop(unsafe { Box::from_raw(packets) });
    }
}

/// Heads with users, packets that wait to be freed included; exact when nobody uses the packets meanwhile. NULL: 0. O(CPUs).
///
/// # Safety
/// `packets` is NULL or packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_packets_active(packets: *const ql_packets) -> usize {
    // SAFETY: by contract.
    unsafe { ql_packets::get(packets) }.map_or(0, |packets| packets.head_stats().active)
}

/// Says what is checked of all packets' heads and data from now on: QL_DEBUG_ flags, 0 for nothing, as ql_cache_set_debug() does of
/// a cache. What is found goes to the handler of ql_set_violation_handler(): a packet that is ended twice (QL_DOUBLE_FREE), one that is
/// written to after its end (QL_USE_AFTER_FREE, with QL_DEBUG_POISON), bytes behind a buffer (QL_OVERRUN, with QL_DEBUG_RED_ZONE).
///
/// QL_INVALID when `packets` is NULL or a flag is unknown; QL_REFUSED when the kernel refuses
/// membarrier to the calling thread.
///
/// # Safety
/// `packets` is NULL or packets. Not to be called by a packet's destructor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_packets_set_debug(packets: *mut ql_packets, flags: u32) -> ql_status {
    status(|| {
        // SAFETY: by contract.
        unsafe { ql_packets::get(packets) }?.set_debug(crate::debug::flags(flags)?)?;
        Ok(())
    })
}

/// Looks at all heads and data that are checked, free ones and others. How many violations were found, and reported. NULL: 0.
///
/// # Safety
/// `packets` is NULL or packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_packets_validate(packets: *mut ql_packets) -> usize {
    // SAFETY: by contract.
    unsafe { ql_packets::get(packets) }.map_or(0, Packets::validate)
}

/// Ends packets that wait to be freed, on whatever CPU, and gives cached memory back to the system. NULL does nothing.
///
/// # Safety
/// `packets` is NULL or packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_packets_shrink(packets: *mut ql_packets) {
    // SAFETY: by contract.
    if let Ok(packets) = unsafe { ql_packets::get(packets) } {
        packets.shrink();
    }
}

/// Ends the packets that other CPUs have sent home to the calling thread's CPU by ql_skb_defer_free(), and those that were put off
/// (see ql_no_bulk_enter()), in bulk: how many. A thread that allocates on that CPU calls it now and then. NULL: 0.
///
/// # Safety
/// `packets` is NULL or packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_packets_take_deferred(packets: *mut ql_packets) -> usize {
    // SAFETY: by contract.
    unsafe { ql_packets::get(packets) }.map_or(0, Packets::take_deferred)
}
