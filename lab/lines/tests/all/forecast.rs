//! What is promised for many CPUs: throughput that grows with them.
#![cfg(quietline_sim)]

use quietline_lines::forecast::{self, Curve};
use quietline_sim::topology::Topology;

/// The curve of a column on a machine of two sockets.
fn curve(column: &str, cpus: &[usize]) -> Curve {
    let machine = Topology::load("epyc-2x64").expect("a machine of our own");
    let point = |n: &usize| forecast::point(column, &machine, *n, 1, 0.0).expect("it runs");
    Curve::new(column, cpus.iter().map(point).collect())
}

/// How much of what linear scaling would bring, at the most CPUs.
fn efficiency(curve: &Curve) -> f64 {
    curve.efficiency(curve.points.last().expect("it has points"))
}

#[test]
fn what_takes_no_number_scales_to_128_cpus() {
    for column in
        ["eventfds", "eventfds-anyfd", "eventfds-handle", "slab-pair", "slab-bulk", "slab-random"]
    {
        let curve = curve(column, &[1, 128]);
        println!("{column}: {:.3}, {:?}", efficiency(&curve), curve.limit);
        assert!(
            efficiency(&curve) >= 0.95,
            "{column}: {:.3}, {:?}",
            efficiency(&curve),
            curve.limit
        );
    }
}

const NUMBERED: [&str; 6] =
    ["sockets", "sockets-anyfd", "sockets-handle", "pipes", "pipes-anyfd", "pipes-handle"];

/// Inode numbers come from a common pool, once in 1,024: the one line that is left.
#[test]
fn sockets_and_pipes_scale_to_128_cpus() {
    for column in NUMBERED {
        let curve = curve(column, &[1, 64, 128]);
        println!("{column}: {:.3}, {:?}", efficiency(&curve), curve.limit);
        for point in &curve.points {
            assert!(
                curve.efficiency(point) >= 0.95,
                "{column} on {}: {:?}",
                point.cpus,
                curve.limit
            );
        }
        let limit = curve.limit.as_ref().expect("numbers come from a common pool");
        assert!(limit.line.starts_with("IdAllocator"), "{column}: {limit:?}");
    }
}

/// The base of 2008 gets slower with every CPU, and the line is named.
#[test]
fn the_base_of_2008_does_not() {
    let curve = curve("history-base", &[1, 2, 8]);
    assert!(efficiency(&curve) < 0.2, "{:.3}", efficiency(&curve));
    assert_eq!(curve.knee, 1);
    let bottleneck = &curve.points[2].bottleneck;
    assert!(
        bottleneck.as_ref().is_some_and(|(line, _)| line.contains("dcache_lock")),
        "{bottleneck:?}"
    );
}

/// Nanoseconds between two messages, as `ql-sim seeds epoll-2017` fits them.
const NESTED_WORK: f64 = 198.0;

/// The dispatcher of 2017: what each of twelve processes keeps of its rate alone, pinned on both
/// sides. The thread's shares are 0.057 before the patch and 0.543 after it, if its unit is per
/// process. The work between messages is the fitted one if the kernel before the patch has the
/// thread's rate on one CPU.
#[test]
fn nested_epolls_lose_what_they_lost() {
    let machine = Topology::load("kvm-18").expect("a machine of our own");
    let pinned = [
        ("history-nested-global", 0.032),
        ("history-nested-dlock", 0.423),
        ("history-nested-removed", 0.349),
        ("nested-epoll", 0.546),
    ];
    for (column, share) in pinned {
        let point =
            |cpus| forecast::point(column, &machine, cpus, 1, NESTED_WORK).expect("it runs");
        let curve = Curve::new(column, [1, 4, 12].map(point).into());
        let kept = efficiency(&curve);
        println!("{column}: {kept:.3}, {:.0} a second alone", curve.points[0].throughput);
        assert!((kept / share - 1.0).abs() < 0.1, "{column}: {kept:.3}, pinned: {share}");
        if column == "history-nested-global" {
            let reported = quietline_seeds::table("epoll-2017", "throughput").expect("1", "before");
            let error = curve.points[0].throughput / reported - 1.0;
            assert!(error.abs() < 0.01, "the work is not the fitted one: {error:.3}");
        }
    }
    let busy = forecast::point("nested-epoll", &machine, 12, 1, 0.0).expect("it runs");
    println!("lines moved: {:.3}", busy.moved_lines);
    assert!(busy.moved_lines < 4.9, "{:.3}, {:?}", busy.moved_lines, busy.bottleneck);
}

/// A packet through the router meets nobody: not a line, contended or not, comes from another CPU.
#[test]
fn the_forwarder_scales_to_64_cpus_without_a_line() {
    for column in
        ["forward", "forward-single", "forward-napi", "forward-1514", "forward-1514-single"]
    {
        let curve = curve(column, &[1, 4, 64]);
        for point in &curve.points {
            assert_eq!(
                point.moved_lines, 0.0,
                "{column} on {}: {:?}",
                point.cpus, point.bottleneck
            );
            assert!(
                curve.efficiency(point) >= 0.95,
                "{column} on {}: {:?}",
                point.cpus,
                curve.limit
            );
        }
    }
}

/// What bulk free brought one CPU in 2015 it did not bring many: whole slabs come back at once, more than a CPU keeps, and all
/// meet at the node's lock.
#[test]
fn detached_freelists_meet_at_the_list_lock() {
    let curve = curve("history-4.2-forward-bulk", &[1, 4, 16]);
    assert!(efficiency(&curve) < 0.3, "{:.3}", efficiency(&curve));
    let bottleneck = &curve.points[2].bottleneck;
    assert!(
        bottleneck.as_ref().is_some_and(|(line, _)| line.contains("mcs_node")),
        "{bottleneck:?}"
    );
}
