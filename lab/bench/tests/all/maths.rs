//! The arithmetic behind the figures.

use bench::harness::Sample;
use bench::harness::stats::{Spread, ratio, scaling};
use quietline_bench as bench;

#[test]
fn the_median_is_the_middle() {
    let spread = Spread::of([5.0, 1.0, 3.0]);
    assert_eq!(spread, Some(Spread { median: 3.0, min: 1.0, max: 5.0 }));
    let spread = Spread::of([4.0, 1.0, 2.0, 100.0]);
    assert_eq!(spread, Some(Spread { median: 3.0, min: 1.0, max: 100.0 }));
    assert_eq!(Spread::of([7.0]), Some(Spread { median: 7.0, min: 7.0, max: 7.0 }));
    assert_eq!(Spread::of([]), None);
}

#[test]
fn ratios_are_taken_inside_a_round() {
    // The machine was twice as slow in the second round and ten times in the third: the ratio never moved.
    let base = [100.0, 200.0, 1000.0];
    let column = [10.0, 20.0, 100.0];
    assert_eq!(ratio(&base, &column), Some(Spread { median: 10.0, min: 10.0, max: 10.0 }));
    // A ratio of medians would say 200 / 10; the pairs say otherwise.
    let column = [10.0, 100.0, 5.0];
    assert_eq!(ratio(&base, &column), Some(Spread { median: 10.0, min: 2.0, max: 200.0 }));
}

#[test]
fn a_round_without_a_partner_is_left_out() {
    assert_eq!(
        ratio(&[10.0, 20.0, 30.0], &[10.0]),
        Some(Spread { median: 1.0, min: 1.0, max: 1.0 })
    );
    assert_eq!(ratio(&[], &[1.0]), None);
}

#[test]
fn equal_times_per_thread_are_linear_scaling() {
    let linear = scaling(&[10.0, 10.0], &[10.0, 10.0], 4).map(|scaling| scaling.median);
    assert_eq!(linear, Some(4.0));
    // Two threads that each take twice as long do no more than one.
    let none = scaling(&[10.0], &[20.0], 2).map(|scaling| scaling.median);
    assert_eq!(none, Some(1.0));
    // The seed's first kernel: 1.561 s alone, 27.496 s each on eight CPUs.
    let seed = scaling(&[1.561], &[27.496], 8).expect("one pair").median;
    assert!((seed - 0.454).abs() < 0.001, "{seed}");
}

#[test]
fn a_crowded_sample_counts_the_wait_for_a_cpu() {
    // Two threads did 100 operations each, one after the other on one CPU: 10 ns of its own time each, 20 ns
    // until both were done.
    let mut sample = Sample {
        wall: vec![10.0, 10.0],
        cpu: vec![9.0, 11.0],
        ops: vec![100, 100],
        span_ns: 2_000,
        crowded: true,
    };
    assert_eq!((sample.wall_ns(), sample.cpu_ns()), (20.0, 10.0));
    sample.crowded = false;
    assert_eq!((sample.wall_ns(), sample.cpu_ns()), (10.0, 10.0));
}
