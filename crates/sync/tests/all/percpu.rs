//! [`PerCpu`].
#![cfg(not(loom))]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use quietline_platform::cpu;
use quietline_sync::PerCpu;

#[test]
fn one_value_for_each_cpu() {
    let mut values = PerCpu::new(|cpu| cpu * 10).unwrap();
    assert_eq!(values.cpus(), cpu::nr_cpus());
    assert_eq!(values.iter().len(), cpu::nr_cpus());
    assert!(
        values.iter().enumerate().all(|(cpu, &value)| value == cpu * 10 && values[cpu] == value)
    );
    assert_eq!(values.get(values.cpus()), None);
    assert_eq!(values.get(0), Some(&0));
    values.iter_mut().for_each(|value| *value += 1);
    assert_eq!(values.this() % 10, 1);
}

#[test]
fn values_do_not_share_lines() {
    let values = PerCpu::new(|_| 0u8).unwrap();
    let addresses: Vec<_> = values.iter().map(|value| std::ptr::from_ref(value).addr()).collect();
    assert!(addresses.iter().all(|address| address % 64 == 0));
    assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= 64));
}

#[test]
fn any_thread_may_use_any_value() {
    let values = PerCpu::new(|_| AtomicU64::new(0)).unwrap();
    let each = quietline_testing::scaled(10_000);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..each {
                    values.this().fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(values.iter().map(|value| value.load(Ordering::Relaxed)).sum::<u64>(), 3 * each);
}
