use super::Fresh;
use crate::packet::{NAPI_BULK, Packets};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

fn pin(cpu: usize) {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).unwrap();
}

/// What a refill has brought is at home where the refill ran, also when its loop has moved; what comes after is at the new place.
#[test]
fn a_refill_is_of_the_cpu_that_it_runs_on() {
    let all = sched_getaffinity(None).unwrap();
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
    let (Some(first), Some(second)) = (cpus.next(), cpus.next()) else {
        eprintln!("skipped: there is one CPU");
        return;
    };
    let packets = Packets::new().unwrap();
    let mut fresh = Fresh::new(&packets, 1500);
    pin(first);
    let used = fresh.take().unwrap();
    assert_eq!((used.cpu(), packets.head_stats().active), (first, NAPI_BULK), "refilled in bulk");
    pin(second);
    // One comes back unused: it stays what it was.
    fresh.give_back(used);
    let homes = (0..NAPI_BULK + 1).map(|_| fresh.take().unwrap().cpu());
    let (old, new): (Vec<_>, Vec<_>) = homes.partition(|home| *home == first);
    assert_eq!((old.len(), new), (NAPI_BULK, vec![second]));
    drop(fresh);
    assert_eq!(packets.head_stats().active, 0);
    // The next test may be on this thread.
    sched_setaffinity(None, &all).unwrap();
}
