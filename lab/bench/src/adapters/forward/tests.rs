//! How often each way takes the slow path: the profile of the seed.

use std::sync::Arc;

use quietline_platform::atomic::AtomicBool;
use quietline_slab::Tunables;

use super::counts::Slow;
use super::ways::{
    Alone, BULK, Buffers, Bulk, CPU_PARTIAL, Deferred, LIST, Listed, MIN_PARTIAL, Napi, OnSlub,
    OneByOne, Pool, SINGLE, Tuned,
};
use super::world::{Shared, World};
use crate::harness::pin::{allowed_cpus, pin_to};
use crate::harness::{Arena, Seat};
use crate::workloads::{Forward, Way};

/// As `ring-64`.
const RING: Forward =
    Forward { size: 64, way: Way::Direct, in_flight: crate::workloads::forward::RING };
const PACKETS: u64 = 64 * 1024;

/// What so many packets take, after as many that are not counted. On one CPU: another one would have to fill its own sheaves first.
fn count<B: Buffers>() -> Slow {
    pin_to(allowed_cpus()[0]).expect("a CPU on which this may run");
    let world = Arc::new(World::<B>::new(RING, 1).expect("a world"));
    let arena = Shared(world.clone());
    let mut worker = arena.worker(Seat { thread: 0, threads: 1 }).expect("a worker");
    let mut run = || {
        assert_eq!(worker.run(PACKETS, &AtomicBool::new(false)), Ok(PACKETS));
        worker.check().expect("each packet came once");
        arena.settle().expect("none is left");
        world.count()
    };
    let ((warm, before), (made, after)) = (run(), run());
    assert_eq!((warm, made), (PACKETS, 2 * PACKETS));
    after - before
}

/// For each packet.
fn each(times: Option<u64>) -> f64 {
    times.expect("it is counted") as f64 / PACKETS as f64
}

/// The seed: a locked exchange for nearly each packet, and after its patches for each group of a slab's objects.
#[test]
fn bulk_takes_fewer_exchanges_than_single() {
    let single = each(count::<OnSlub<SINGLE, false, false>>().words);
    let bulk = each(count::<OnSlub<BULK, false, false>>().words);
    assert!((0.9..=1.0).contains(&single), "{single}");
    assert!(bulk < single / 8.0, "{bulk} and {single}");
    // A list of packets makes the same groups, in the other order.
    let list = each(count::<OnSlub<LIST, false, false>>().words);
    assert!((list - bulk).abs() < 0.02, "{list} and {bulk}");
}

/// Where nobody else has objects in the slabs, those that are freed together lie together: 32 to a slab.
#[test]
fn no_merging_makes_groups_whole() {
    let merged = each(count::<OnSlub<BULK, false, false>>().words);
    let own = each(count::<OnSlub<BULK, true, false>>().words);
    assert!((1.0 / 32.0 - 0.001..1.0 / 24.0).contains(&own), "{own}");
    assert!(merged > 1.5 * own, "{merged} and {own}");
    // One by one it makes no difference to the exchanges.
    assert!(each(count::<OnSlub<SINGLE, true, false>>().words) > 0.9);
}

/// Whole slabs come back at once: a CPU that may keep 256 objects on its own list has less to do with the node's.
#[test]
fn tuning_keeps_bulk_from_the_list_lock() {
    let usual = each(count::<OnSlub<BULK, false, false>>().locks);
    let tuned = each(count::<OnSlub<BULK, false, true>>().locks);
    assert!(tuned < usual / 2.0, "{tuned} and {usual}");
}

#[test]
fn the_queue_is_met_once_in_sixteen_packets_each_way() {
    let slow = count::<Pool>();
    let each = each(slow.queue);
    assert!((0.9 / 16.0..2.1 / 16.0).contains(&each), "{each}");
    assert_eq!(slow.words, Some(0), "behind it is the slab, which it does not need");
}

/// A turn frees 64 packets and makes 64, which a CPU's sheaves have room for: no slab is met, and the barn not once in a thousand packets.
#[test]
fn sheaves_keep_packets_from_slabs_in_every_way() {
    let ways = [
        count::<OneByOne<Alone>>(),
        count::<OneByOne<Listed<8>>>(),
        count::<OneByOne<Listed<16>>>(),
        count::<OneByOne<Listed<32>>>(),
        count::<OneByOne<Listed<64>>>(),
        count::<OneByOne<Tuned>>(),
        count::<Napi<false>>(),
        count::<Napi<true>>(),
        count::<Deferred>(),
        count::<Bulk>(),
    ];
    for slow in ways {
        assert_eq!((slow.words, slow.refills, slow.flushes), (Some(0), Some(0), Some(0)));
        assert!(each(slow.barn) < 0.001, "{slow:?}");
    }
}

/// What is counted is the slab's: the first packets, which come out of slabs, are seen.
#[test]
fn packets_that_come_out_of_slabs_are_counted() {
    let world = Arc::new(World::<OneByOne<Alone>>::new(RING, 1).expect("a world"));
    let mut worker =
        Shared(world.clone()).worker(Seat { thread: 0, threads: 1 }).expect("a worker");
    worker.run(PACKETS, &AtomicBool::new(false)).expect("packets");
    worker.check().expect("each packet came once");
    let (_, slow) = world.count();
    assert!(slow.words.is_some_and(|n| n > 0) && slow.refills.is_some_and(|n| n > 0), "{slow:?}");
}

#[test]
fn tuned_is_tuned_while_it_runs() {
    let world = World::<OneByOne<Tuned>>::new(RING, 1).expect("a world");
    let heads = world.packets.0.head_cache();
    let of = |tunables: Tunables| (tunables.cpu_partial, tunables.min_partial);
    assert_eq!(of(heads.tunables()), (CPU_PARTIAL, MIN_PARTIAL));
    // Whoever borrows these packets next finds out whether they still are.
    let untuned = World::<OneByOne<Alone>>::new(RING, 1).expect("a world");
    assert_ne!(of(untuned.packets.0.head_cache().tunables()), (CPU_PARTIAL, MIN_PARTIAL));
}
