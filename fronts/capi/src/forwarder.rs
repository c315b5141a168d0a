//! A router's forwarding path.

use crate::packets::ql_packets;
use crate::route::{Either, Wire, ql_next_hop, ql_prefix};
use crate::skb::{array, ql_skb};
use crate::status::{ql_status, status};
use core::ffi::{c_char, c_void};
use core::ptr;
use core::slice;
use core::time::Duration;
use quietline_net::forward::{Count, Forwarder, Interface, Lane, Routes};
use quietline_net::packet::DropReason;
use quietline_platform::heap;

/// Routes, neighbours and interfaces. Any thread may use any function with it, but for ql_forwarder_destroy(), which must be the
/// last.
pub struct ql_forwarder {
    forwarder: Forwarder<'static>,
}

/// What a thread that forwards has of its own. Belongs to one thread at a time.
pub struct ql_lane {
    lane: Lane<'static>,
    /// A call of ql_forwarder_handle() is using it.
    busy: bool,
}

/// What a forwarder knows of a device: where the device is, is the caller's business.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ql_interface {
    /// Its address on the link.
    pub link: [u8; 6],
    /// Bytes behind the Ethernet header, up to 65,535.
    pub mtu: u16,
    /// Its addresses, each with how many bits all on the link have. It has a link-local one of IPv6 besides, which follows from
    /// that on the link. NULL if there are none.
    pub addresses: *const ql_prefix,
    /// How many.
    pub nr_addresses: usize,
}

/// Something that is counted.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ql_count {
    /// What: English, with a zero behind it; drops have the reason's name.
    pub name: [c_char; 32],
    /// How often.
    pub value: u64,
}

/// Where packets go out: gets the number of an interface, `n` packets for it, and the context. What it has taken it sets to NULL;
/// what it leaves is dropped, and counted. It must return. It is called inside a read section of ql_rcu_global(): it must neither
/// wait for a grace period nor change routes; and the lane is in use.
pub type ql_transmit = Option<
    unsafe extern "C" fn(interface: u32, skbs: *mut *mut ql_skb, n: usize, context: *mut c_void),
>;

/// Makes a forwarder between interfaces, which are numbered from 0 on, and stores it in *forwarder; on failure, *forwarder is NULL.
/// It knows the routes to their own addresses and to the links that they are on, and no others.
///
/// QL_INVALID when a pointer is NULL that must not be, for more than 65,535 interfaces, or for an address that no station may
/// have; QL_NO_MEMORY.
///
/// # Safety
/// `packets` is NULL, or packets that outlive the forwarder; `interfaces` points to `n` interfaces, whose addresses are there;
/// `forwarder` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_forwarder_create(
    packets: *mut ql_packets,
    interfaces: *const ql_interface,
    n: usize,
    forwarder: *mut *mut ql_forwarder,
) -> ql_status {
    status(|| {
        if forwarder.is_null() {
            return Err(ql_status::QL_INVALID);
        }
        // SAFETY: by contract; so below.
        let (packets, interfaces) = unsafe {
            forwarder.write(ptr::null_mut());
            (ql_packets::get(packets)?, read(interfaces, n)?)
        };
        let mut known = Vec::new();
        heap::try_reserve(&mut known, n)?;
        for interface in interfaces {
            // SAFETY: as above.
            let addresses = unsafe { read(interface.addresses, interface.nr_addresses)? };
            let mut new = Interface::new(interface.link, interface.mtu.into());
            for prefix in addresses {
                // The whole address: `bits` says how much of it is the link's.
                new = match (ql_prefix {
                    bits: if prefix.family == 4 { 32 } else { 128 },
                    ..*prefix
                })
                .either()?
                {
                    Either::V4(whole) => new.v4(whole.address(), prefix.bits),
                    Either::V6(whole) => new.v6(whole.address(), prefix.bits),
                };
            }
            known.push(new);
        }
        let made = heap::try_box(ql_forwarder { forwarder: Forwarder::new(packets, known)? })?;
        // SAFETY: as above.
        unsafe { forwarder.write(Box::into_raw(made)) };
        Ok(())
    })
}

/// Ends a forwarder, and packets that wait in it for a neighbour. NULL does nothing.
///
/// # Safety
/// It is used by nobody else, now or later; its lanes have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_forwarder_destroy(forwarder: *mut ql_forwarder) {
    if !forwarder.is_null() {
        // SAFETY: boxed by ql_forwarder_create, and by contract the caller's.
        drop(unsafe { Box::from_raw(forwarder) });
    }
}

/// Enters a route, in the place of one with the same prefix, if there is one. Others may forward meanwhile: a packet goes the old
/// way or the new one. Not to be called inside a read section of ql_rcu_global().
///
/// QL_INVALID when an argument is NULL, for a family, a number of bits, an interface or a way that is none, or a gateway where
/// there is none; QL_NO_MEMORY, also beyond the 1 GiB that a family's routes may take: nothing has changed.
///
/// # Safety
/// `forwarder` is NULL or a forwarder, so for all functions below; the others are NULL or point to what they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_forwarder_set_route(
    forwarder: *const ql_forwarder,
    prefix: *const ql_prefix,
    hop: *const ql_next_hop,
) -> ql_status {
    status(|| {
        // SAFETY: by contract.
        let (forwarder, prefix, hop) = unsafe { (get(forwarder)?, given(prefix)?, given(hop)?) };
        let interfaces = forwarder.interfaces().len();
        match prefix.either()? {
            Either::V4(prefix) => {
                forwarder.routes4().insert(prefix, hop.resolve(interfaces)?)?;
            }
            Either::V6(prefix) => {
                forwarder.routes6().insert(prefix, hop.resolve(interfaces)?)?;
            }
        }
        Ok(())
    })
}

/// Takes a route out: true if there was one with this prefix. Needs no memory. Not to be called inside a read section of
/// ql_rcu_global().
///
/// # Safety
/// As ql_forwarder_set_route().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_forwarder_remove_route(
    forwarder: *const ql_forwarder,
    prefix: *const ql_prefix,
) -> bool {
    // SAFETY: by contract.
    let (Ok(forwarder), Ok(prefix)) = (unsafe { (get(forwarder), given(prefix)) }) else {
        return false;
    };
    match prefix.either() {
        Ok(Either::V4(prefix)) => forwarder.routes4().remove(prefix).is_some(),
        Ok(Either::V6(prefix)) => forwarder.routes6().remove(prefix).is_some(),
        Err(_) => false,
    }
}

/// Where packets to an address go, `bits` of which are ignored: the next hop of the longest prefix, in *hop. false, and *hop stays
/// as it is, if no route leads there, or an argument is NULL. Takes no lock, writes no shared line.
///
/// # Safety
/// As ql_forwarder_set_route().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_forwarder_lookup(
    forwarder: *const ql_forwarder,
    address: *const ql_prefix,
    hop: *mut ql_next_hop,
) -> bool {
    // SAFETY: by contract.
    let (Ok(forwarder), Ok(address)) = (unsafe { (get(forwarder), given(address)) }) else {
        return false;
    };
    let found = match address.family {
        4 => lookup(forwarder.routes4(), address.address),
        6 => lookup(forwarder.routes6(), address.address),
        _ => None,
    };
    let (Some(found), false) = (found, hop.is_null()) else { return false };
    // SAFETY: by contract; it may have had no value.
    unsafe { hop.write(found) };
    true
}

fn lookup<A: Wire>(routes: &Routes<A>, address: [u8; 16]) -> Option<ql_next_hop> {
    let section = routes.domain().read();
    routes.lookup(&section, A::of(address)).map(Into::into)
}

/// Enters a neighbour's address on the link of an interface, for good. Packets that have waited for it go out with the next
/// ql_forwarder_handle(). (Neighbours that are not entered are asked for.)
///
/// QL_INVALID when an argument is NULL, or for a family or an interface that is none; QL_NO_MEMORY, also if 8,192 of the
/// family were entered for the interface.
///
/// # Safety
/// As ql_forwarder_set_route(); `link` is NULL or points to six bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_forwarder_set_neighbour(
    forwarder: *const ql_forwarder,
    interface: u32,
    address: *const ql_prefix,
    link: *const u8,
) -> ql_status {
    status(|| {
        // SAFETY: by contract.
        let (forwarder, address, link) =
            unsafe { (get(forwarder)?, given(address)?, *given(link.cast::<[u8; 6]>())?) };
        if interface as usize >= forwarder.interfaces().len() {
            return Err(ql_status::QL_INVALID);
        }
        match address.family {
            4 => forwarder.set_neighbour4(interface, Wire::of(address.address), link)?,
            6 => forwarder.set_neighbour6(interface, Wire::of(address.address), link)?,
            _ => return Err(ql_status::QL_INVALID),
        }
        Ok(())
    })
}

/// Makes what a thread needs to forward, 512 bytes for each interface, and stores it in *lane; on failure, *lane is NULL.
///
/// QL_INVALID when an argument is NULL; QL_NO_MEMORY.
///
/// # Safety
/// As ql_forwarder_set_route(). The forwarder outlives the lane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_lane_create(
    forwarder: *const ql_forwarder,
    lane: *mut *mut ql_lane,
) -> ql_status {
    status(|| {
        if lane.is_null() {
            return Err(ql_status::QL_INVALID);
        }
        // SAFETY: by contract; so below.
        let forwarder = unsafe {
            lane.write(ptr::null_mut());
            get(forwarder)?
        };
        let made = heap::try_box(ql_lane { lane: forwarder.lane()?, busy: false })?;
        // SAFETY: as above.
        unsafe { lane.write(Box::into_raw(made)) };
        Ok(())
    })
}

/// Ends a lane. NULL does nothing.
///
/// # Safety
/// It is used by nobody else, now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_lane_destroy(lane: *mut ql_lane) {
    if !lane.is_null() {
        // SAFETY: boxed by ql_lane_create, and by contract the caller's.
        drop(unsafe { Box::from_raw(lane) });
    }
}

/// Forwards packets that came in by an interface, from their Ethernet header on. All entries are NULL after. What goes out is
/// given to `transmit`, up to 64 packets at a time, before this returns. `now` is in nanoseconds since any moment, the same for
/// all threads. To be called once a second at least, if need be without packets: for neighbours that have not answered.
///
/// A packet that goes on, its neighbour being known, takes no lock and writes no shared line but its own. (Once a second a call
/// looks for neighbours that have not answered, under a lock.)
///
/// QL_INVALID, and the packets stay the caller's, when a pointer is NULL that must not be, there is no such interface, or the
/// lane is in use by a call that this one is inside of.
///
/// # Safety
/// As ql_forwarder_set_route(); `lane` is the forwarder's and this thread's alone; `skbs` points to `n` pointers, each NULL or a
/// reference of the caller's to a packet of the forwarder's ql_packets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_forwarder_handle(
    forwarder: *const ql_forwarder,
    lane: *mut ql_lane,
    input: u32,
    skbs: *mut *mut ql_skb,
    n: usize,
    now: u64,
    transmit: ql_transmit,
    context: *mut c_void,
) -> ql_status {
    status(|| {
        // SAFETY: by contract.
        let (forwarder, skbs) = unsafe { (get(forwarder)?, array(skbs, n)) };
        let (false, Some(skbs), Some(transmit)) = (lane.is_null(), skbs, transmit) else {
            return Err(ql_status::QL_INVALID);
        };
        // SAFETY: a lane, by contract, and this thread's alone. A call that this one is inside of has borrowed the other field.
        let busy = unsafe { &raw mut (*lane).busy };
        // SAFETY: as above.
        if input as usize >= forwarder.interfaces().len() || unsafe { busy.replace(true) } {
            return Err(ql_status::QL_INVALID);
        }
        // SAFETY: as above; nobody else has borrowed it.
        let own = unsafe { &mut (*lane).lane };
        forwarder.handle(own, input, skbs, Duration::from_nanos(now), &mut |interface, out| {
            // SAFETY: by contract; references are pointers, and what is left in the array is NULL or a reference.
            unsafe { transmit(interface, out.as_mut_ptr().cast(), out.len(), context) };
        });
        // SAFETY: as above.
        unsafe { busy.write(false) };
        Ok(())
    })
}

/// What has been counted on all CPUs together, in up to `n` entries: how many there are, of which those beyond `n` are not stored.
/// Exact when nobody forwards. 0 for a forwarder that is NULL. O(CPUs).
///
/// # Safety
/// As ql_forwarder_set_route(); `counts` is NULL or points to `n` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ql_forwarder_get_counts(
    forwarder: *const ql_forwarder,
    counts: *mut ql_count,
    n: usize,
) -> usize {
    // SAFETY: by contract.
    let Ok(forwarder) = (unsafe { get(forwarder) }) else { return 0 };
    let n = if counts.is_null() { 0 } else { n };
    let now = forwarder.counts();
    let counted = Count::ALL.iter().map(|count| (count.name(), now[*count]));
    let dropped = DropReason::ALL.iter().map(|reason| (reason.name(), now[*reason]));
    for (i, (name, value)) in counted.chain(dropped).take(n).enumerate() {
        let mut count = ql_count { name: [0; 32], value };
        // Names fit: a test looks.
        for (to, from) in count.name[..31].iter_mut().zip(name.bytes()) {
            *to = from as c_char;
        }
        // SAFETY: by contract, inside the caller's entries.
        unsafe { counts.add(i).write(count) };
    }
    Count::ALL.len() + DropReason::ALL.len()
}

/// The forwarder behind a C pointer.
///
/// # Safety
/// It is null or one that outlives what is made with it.
unsafe fn get(forwarder: *const ql_forwarder) -> Result<&'static Forwarder<'static>, ql_status> {
    // SAFETY: by contract.
    unsafe { forwarder.as_ref() }.map(|forwarder| &forwarder.forwarder).ok_or(ql_status::QL_INVALID)
}

/// What a pointer that must not be null points to.
///
/// # Safety
/// It is null or points to a value.
unsafe fn given<'a, T>(pointer: *const T) -> Result<&'a T, ql_status> {
    // SAFETY: by contract.
    unsafe { pointer.as_ref() }.ok_or(ql_status::QL_INVALID)
}

/// A C array, which may be null if it has no entries.
///
/// # Safety
/// `array` is null or points to `n` values.
unsafe fn read<'a, T>(array: *const T, n: usize) -> Result<&'a [T], ql_status> {
    match (array.is_null(), n) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(ql_status::QL_INVALID),
        // SAFETY: by contract.
        (false, _) => Ok(unsafe { slice::from_raw_parts(array, n) }),
    }
}

#[cfg(test)]
mod tests {
    use super::{Count, DropReason};

    #[test]
    fn names_fit() {
        let counted = Count::ALL.iter().map(|count| count.name());
        let dropped = DropReason::ALL.iter().map(|reason| reason.name());
        assert!(counted.chain(dropped).all(|name| name.len() < 32));
    }
}
