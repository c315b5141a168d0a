//! Packets.

use crate::packets::ql_packets;
use crate::status::{ql_status, status};
use core::ffi::c_void;
use core::mem::{self, ManuallyDrop};
use core::ptr::{self, NonNull};
use core::slice;
use quietline_net::packet::{Frag, PacketError, Skb};

/// A reference to a packet (struct sk_buff). Belongs to one thread at a time; every reference is ended once, by
/// ql_consume_skb() or any other function that says so.
pub struct ql_skb {
    _private: [u8; 0],
}

/// Fields that go with a packet's head. ql_skb_get_fields() and ql_skb_set_fields().
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ql_skb_fields {
    /// When it came, in nanoseconds.
    pub timestamp: u64,
    /// Forty bytes for whoever has the packet.
    pub cb: [u64; 5],
    /// A mark for who classifies packets.
    pub mark: u32,
    /// A hash of the flow.
    pub hash: u32,
    /// The number of the device that it came in by.
    pub device: u32,
    /// The protocol's number, as on an Ethernet.
    pub protocol: u16,
    /// Zero.
    pub unused: u16,
}

/// Called when a packet's head ends, with the argument that it was set with: once, before memory of the packet is given back, on
/// whatever thread ends it, perhaps inside a read section of ql_rcu_global(). It must return; must not wait for a grace period.
pub type ql_skb_destructor = Option<extern "C" fn(argument: u64)>;

const _: () = assert!(size_of::<Option<Skb<'_>>>() == size_of::<*mut ql_skb>());

/// A reference for C.
pub(crate) fn give(skb: Skb<'static>) -> *mut ql_skb {
    // SAFETY: a reference is one word, an address.
    unsafe { mem::transmute::<Skb<'static>, NonNull<ql_skb>>(skb) }.as_ptr()
}

/// A reference from C, whose end it is.
///
/// # Safety
/// Null, or from [`give`] and ended by nobody else.
unsafe fn take(skb: *mut ql_skb) -> Option<Skb<'static>> {
    // SAFETY: as in `give`; by contract.
    NonNull::new(skb).map(|skb| unsafe { mem::transmute::<NonNull<ql_skb>, Skb<'static>>(skb) })
}

/// A reference from C, which stays the caller's.
///
/// # Safety
/// Null, or from [`give`] and not ended.
unsafe fn borrow(skb: *const ql_skb) -> Result<ManuallyDrop<Skb<'static>>, ql_status> {
    // SAFETY: by contract; it is not ended here.
    unsafe { take(skb.cast_mut()) }.map(ManuallyDrop::new).ok_or(ql_status::QL_INVALID)
}

/// An array of references, some of them NULL.
///
/// # Safety
/// `skbs` is null or points to `n` pointers, each null or from [`give`], the caller's alone for `'a`.
pub(crate) unsafe fn array<'a>(
    skbs: *mut *mut ql_skb,
    n: usize,
) -> Option<&'a mut [Option<Skb<'static>>]> {
    if skbs.is_null() {
        return (n == 0).then_some(&mut []);
    }
    // SAFETY: by contract; a reference that may be missing is a pointer that may be null.
    Some(unsafe { slice::from_raw_parts_mut(skbs.cast(), n) })
}

/// What is made, or NULL.
fn made(skb: Result<Skb<'static>, PacketError>) -> *mut ql_skb {
    skb.map_or(ptr::null_mut(), give)
}

/// A packet without data, with room for `len` bytes behind 64 bytes of headroom (alloc_skb). NULL if the system gives no
/// memory, `packets` is NULL, or `len` is above 16,256.
///
/// No locked instruction and no shared line while the CPU's sheaves have objects.
///
/// # Safety
/// `packets` is NULL, or packets that outlive this one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_alloc(packets: *mut ql_packets, len: usize) -> *mut ql_skb {
    // SAFETY: by contract.
    unsafe { ql_packets::get(packets) }
        .map_or(ptr::null_mut(), |packets| made(packets.alloc_skb(len)))
}

/// Fills an array with `n` packets as ql_skb_alloc() makes them, all or nothing; on failure all entries are NULL. n may be 0.
///
/// One sequence on each of two caches for up to 64 packets, while the CPU's sheaves have enough.
///
/// QL_INVALID when `packets` is NULL, or `skbs` while n is not 0; QL_BAD_LENGTH; QL_NO_MEMORY.
///
/// # Safety
/// As ql_skb_alloc(); `skbs` points to `n` pointers, which need no value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_alloc_bulk(
    packets: *mut ql_packets,
    len: usize,
    skbs: *mut *mut ql_skb,
    n: usize,
) -> ql_status {
    status(|| {
        if !skbs.is_null() {
            // SAFETY: by contract. What the caller left without a value gets one: NULL.
            unsafe { skbs.write_bytes(0, n) };
        }
        // SAFETY: by contract; all entries have a value.
        let (packets, skbs) = unsafe { (ql_packets::get(packets)?, array(skbs, n)) };
        Ok(packets.alloc_skb_bulk(len, skbs.ok_or(ql_status::QL_INVALID)?)?)
    })
}

/// Another reference to the same packet (skb_get): one locked instruction. While there are two, nothing of it can be changed.
/// NULL for NULL. With more than two thousand million references the process ends.
///
/// # Safety
/// `skb` is NULL or a reference of the caller's; so for all functions below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_get(skb: *mut ql_skb) -> *mut ql_skb {
    // SAFETY: by contract; so below.
    unsafe { borrow(skb) }.map_or(ptr::null_mut(), |skb| give(skb.get()))
}

/// Another packet with the same data (skb_clone): lengths are its own, bytes are shared and cannot be changed meanwhile. It
/// has no destructor. NULL if there is no memory, or for NULL.
///
/// # Safety
/// As ql_skb_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_clone(skb: *const ql_skb) -> *mut ql_skb {
    // SAFETY: by contract.
    unsafe { borrow(skb) }.map_or(ptr::null_mut(), |skb| made(skb.clone_skb()))
}

/// A packet with a copy of all bytes, those of fragments made linear, with so many bytes of room before and behind them
/// (skb_copy_expand). It has no destructor. NULL if there is no memory, for what is longer than linear data can be, or
/// for NULL.
///
/// # Safety
/// As ql_skb_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_copy(
    skb: *const ql_skb,
    headroom: usize,
    tailroom: usize,
) -> *mut ql_skb {
    // SAFETY: by contract.
    unsafe { borrow(skb) }.map_or(ptr::null_mut(), |skb| made(skb.copy_expand(headroom, tailroom)))
}

/// Ends a reference; with the last one the packet, which was used (consume_skb). Never fails. NULL does nothing.
///
/// # Safety
/// As ql_skb_get(); the reference is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_consume_skb(skb: *mut ql_skb) {
    // SAFETY: by contract.
    drop(unsafe { take(skb) });
}

/// Ends a reference; with the last one the packet, which was dropped for a reason that tracers see (kfree_skb_reason): a
/// ql_drop_reason; a number that is none counts as QL_DROP_NOT_SPECIFIED. NULL does nothing.
///
/// # Safety
/// As ql_consume_skb().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_kfree_skb(skb: *mut ql_skb, reason: u32) {
    // SAFETY: by contract.
    if let Some(skb) = unsafe { take(skb) } {
        skb.kfree_skb(crate::reason::reason(reason));
    }
}

/// Ends a reference that another CPU's thread has made: the packet is sent home, to be freed in bulk by
/// ql_packets_take_deferred() there (skb_attempt_defer_free), or by ql_packets_shrink() anywhere. On the CPU itself, or when 128 wait
/// there, it ends at once. NULL does nothing.
///
/// # Safety
/// As ql_consume_skb().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_defer_free(skb: *mut ql_skb) {
    // SAFETY: by contract.
    if let Some(skb) = unsafe { take(skb) } {
        skb.packets().defer_free(skb);
    }
}

/// Whether others have references to this packet. false for NULL.
///
/// # Safety
/// As ql_skb_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_is_shared(skb: *const ql_skb) -> bool {
    // SAFETY: by contract.
    unsafe { borrow(skb) }.is_ok_and(|skb| skb.is_shared())
}

/// Whether other packets have the same data. false for NULL.
///
/// # Safety
/// As ql_skb_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_is_cloned(skb: *const ql_skb) -> bool {
    // SAFETY: by contract.
    unsafe { borrow(skb) }.is_ok_and(|skb| skb.is_cloned())
}

/// The linear data, ql_skb_linear_len() bytes: to be read; and to be written if the packet is neither shared nor cloned. NULL for
/// NULL.
///
/// # Safety
/// As ql_skb_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_data(skb: *const ql_skb) -> *mut c_void {
    // SAFETY: by contract.
    unsafe { borrow(skb) }.map_or(ptr::null_mut(), |skb| skb.data_ptr().cast())
}

/// Bytes of linear data. 0 for NULL.
///
/// # Safety
/// As ql_skb_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_linear_len(skb: *const ql_skb) -> usize {
    // SAFETY: by contract.
    unsafe { borrow(skb) }.map_or(0, |skb| skb.data().len())
}

/// Bytes in all, fragments included. 0 for NULL.
///
/// # Safety
/// As ql_skb_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_len(skb: *const ql_skb) -> usize {
    // SAFETY: by contract.
    unsafe { borrow(skb) }.map_or(0, |skb| skb.len())
}

/// Bytes before the data (skb_headroom). 0 for NULL.
///
/// # Safety
/// As ql_skb_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_headroom(skb: *const ql_skb) -> usize {
    // SAFETY: by contract.
    unsafe { borrow(skb) }.map_or(0, |skb| skb.headroom())
}

/// Bytes behind the linear data; none if there are fragments (skb_tailroom). 0 for NULL.
///
/// # Safety
/// As ql_skb_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_tailroom(skb: *const ql_skb) -> usize {
    // SAFETY: by contract.
    unsafe { borrow(skb) }.map_or(0, |skb| skb.tailroom())
}

/// More headroom, of a packet that has no data yet (skb_reserve).
///
/// QL_INVALID when `skb` is NULL; QL_BAD_LENGTH, also if it has data; QL_SHARED.
///
/// # Safety
/// As ql_skb_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_reserve(skb: *mut ql_skb, n: usize) -> ql_status {
    // SAFETY: by contract.
    status(|| Ok(unsafe { borrow(skb) }?.reserve(n)?))
}

/// `n` more bytes at the end (skb_put): a pointer to them; they are as somebody left them. NULL, and nothing has changed, when
/// there is no room, the packet is shared or cloned, or NULL.
///
/// # Safety
/// As ql_skb_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_put(skb: *mut ql_skb, n: usize) -> *mut c_void {
    // SAFETY: by contract.
    let Ok(mut skb) = (unsafe { borrow(skb) }) else { return ptr::null_mut() };
    skb.put(n).map_or(ptr::null_mut(), |bytes| bytes.as_mut_ptr().cast())
}

/// `n` more bytes at the beginning (skb_push): a pointer to them, where the data begins now. NULL as for ql_skb_put().
///
/// # Safety
/// As ql_skb_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_push(skb: *mut ql_skb, n: usize) -> *mut c_void {
    // SAFETY: by contract.
    let Ok(mut skb) = (unsafe { borrow(skb) }) else { return ptr::null_mut() };
    skb.push(n).map_or(ptr::null_mut(), |bytes| bytes.as_mut_ptr().cast())
}

/// Takes `n` bytes off the beginning (skb_pull): a pointer to what is left of the linear data, not to be written if the packet is
/// cloned. NULL, and nothing has changed, when it has fewer linear bytes, is shared, or NULL.
///
/// # Safety
/// As ql_skb_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_pull(skb: *mut ql_skb, n: usize) -> *mut c_void {
    // SAFETY: by contract.
    let Ok(mut skb) = (unsafe { borrow(skb) }) else { return ptr::null_mut() };
    if skb.pull(n).is_ok() { skb.data_ptr().cast() } else { ptr::null_mut() }
}

/// Keeps `len` bytes of a packet without fragments, if it has more (skb_trim).
///
/// QL_INVALID when `skb` is NULL; QL_BAD_LENGTH if there are fragments; QL_SHARED.
///
/// # Safety
/// As ql_skb_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_trim(skb: *mut ql_skb, len: usize) -> ql_status {
    // SAFETY: by contract.
    status(|| Ok(unsafe { borrow(skb) }?.trim(len)?))
}

/// Appends a copy of `n` bytes as a fragment, of which a packet has 17 at most.
///
/// QL_INVALID when an argument is NULL; QL_BAD_LENGTH, also for no bytes; QL_SHARED, also if it is cloned; QL_NO_MEMORY.
///
/// # Safety
/// As ql_skb_get(); `bytes` is NULL or points to `n` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_add_frag(
    skb: *mut ql_skb,
    bytes: *const c_void,
    n: usize,
) -> ql_status {
    status(|| {
        // SAFETY: by contract.
        let mut skb = unsafe { borrow(skb) }?;
        if bytes.is_null() {
            return Err(ql_status::QL_INVALID);
        }
        if skb.is_shared() || skb.is_cloned() {
            return Err(ql_status::QL_SHARED);
        }
        // SAFETY: by contract.
        let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), n) };
        Ok(skb.add_frag(Frag::copy_of(bytes)?)?)
    })
}

/// A fragment, by its number from 0 on: a pointer to its bytes, to be read, and in *n how many. NULL, and *n is 0, when there is
/// no such fragment, or an argument is NULL.
///
/// # Safety
/// As ql_skb_get(); `n` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_frag(
    skb: *const ql_skb,
    number: usize,
    n: *mut usize,
) -> *const c_void {
    // SAFETY: by contract; so below.
    let Some(n) = (unsafe { n.as_mut() }) else { return ptr::null() };
    *n = 0;
    // SAFETY: as above.
    let Ok(skb) = (unsafe { borrow(skb) }) else { return ptr::null() };
    let Some(frag) = skb.frags().nth(number) else { return ptr::null() };
    *n = frag.len();
    frag.bytes().as_ptr().cast()
}

/// Sets what is called when the packet ends, or, with NULL, that nothing is.
///
/// QL_INVALID when `skb` is NULL; QL_SHARED.
///
/// # Safety
/// As ql_skb_get(). The destructor may be called as long as the packet lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_set_destructor(
    skb: *mut ql_skb,
    destructor: ql_skb_destructor,
    argument: u64,
) -> ql_status {
    // SAFETY: by contract.
    status(|| Ok(unsafe { borrow(skb) }?.set_destructor(destructor.map(|call| (call, argument)))?))
}

/// Stores a packet's fields in *fields: QL_INVALID when an argument is NULL.
///
/// # Safety
/// As ql_skb_get(); `fields` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_get_fields(
    skb: *const ql_skb,
    fields: *mut ql_skb_fields,
) -> ql_status {
    status(|| {
        // SAFETY: by contract.
        let skb = unsafe { borrow(skb) }?;
        if fields.is_null() {
            return Err(ql_status::QL_INVALID);
        }
        let value = ql_skb_fields {
            timestamp: skb.timestamp(),
            cb: skb.cb(),
            mark: skb.mark(),
            hash: skb.hash(),
            device: skb.device(),
            protocol: skb.protocol(),
            unused: 0,
        };
        // SAFETY: by contract.
        unsafe { fields.write(value) };
        Ok(())
    })
}

/// Sets a packet's fields: QL_INVALID when an argument is NULL or `unused` is not 0; QL_SHARED.
///
/// # Safety
/// As ql_skb_get(); `fields` is NULL or points to fields.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_skb_set_fields(
    skb: *mut ql_skb,
    fields: *const ql_skb_fields,
) -> ql_status {
    status(|| {
        // SAFETY: by contract.
        let (mut skb, fields) =
            unsafe { (borrow(skb)?, fields.as_ref().ok_or(ql_status::QL_INVALID)?) };
        if fields.unused != 0 {
            return Err(ql_status::QL_INVALID);
        }
        skb.set_timestamp(fields.timestamp)?;
        skb.set_cb(fields.cb)?;
        skb.set_mark(fields.mark)?;
        skb.set_hash(fields.hash)?;
        skb.set_device(fields.device)?;
        skb.set_protocol(fields.protocol)?;
        Ok(())
    })
}
