//! The model of lines by itself: who gets what, and at what price.

use quietline_sim::directory::{Directory, From, Kind};
use quietline_sim::jitter::Jitter;
use quietline_sim::topology::Topology;

/// Three levels of two, eight and sixteen CPUs, at 10, 100 and 1,000 ns; no noise; issue, L1 and memory at 1, 2, 50 ns.
const MACHINE: &str = r#"
name = "test"
title = "a test"
[core]
ghz = 1.0
l1_lines = 16
l2_lines = 64
store_buffer = 2
issue = { ns = 1, source = "test" }
l1 = { ns = 2, source = "test" }
l2 = { ns = 5, source = "test" }
llc = { ns = 20, source = "test" }
dram = { ns = 50, source = "test" }
locked = { ns = 7, source = "test" }
hold = { ns = 0, source = "test" }
fence = { ns = 3, source = "test" }
pause = { ns = 4, source = "test" }
sharer = { ns = 1, source = "test" }
barrier = { ns = 500, source = "test" }
futex = { ns = 900, source = "test" }
[[level]]
name = "pair"
cpus = 2
load_modified = { ns = 10, source = "test" }
load_shared = { ns = 8, source = "test" }
store = { ns = 12, source = "test" }
[[level]]
name = "socket"
cpus = 8
load_modified = { ns = 100, source = "test" }
load_shared = { cycles = 80, source = "test" }
store = { ns = 120, source = "test" }
[[level]]
name = "bus"
cpus = 16
load_modified = { ns = 1000, source = "test" }
load_shared = { ns = 800, source = "test" }
store = { ns = 1200, source = "test" }
occupies = { ns = 300, source = "test" }
"#;

fn directory() -> Directory {
    Directory::new(&Topology::parse(MACHINE).expect("it is well-formed"), 16, Jitter::new(1, 0.0))
}

/// The time of an access that begins when nothing else happens, in nanoseconds.
fn cost(d: &mut Directory, cpu: usize, line: u32, kind: Kind, now_ns: u64) -> u64 {
    (d.access(cpu, line, kind, now_ns * 1000).done - now_ns * 1000) / 1000
}

#[test]
fn loads_by_distance() {
    let mut d = directory();
    let line = d.new_line();
    assert_eq!(cost(&mut d, 0, line, Kind::Load, 0), 1 + 50); // memory
    assert_eq!(cost(&mut d, 0, line, Kind::Load, 100), 1 + 2); // at hand
    assert_eq!(cost(&mut d, 0, line, Kind::Locked, 200), 1 + 2 + 7); // alone with it
    assert_eq!(cost(&mut d, 1, line, Kind::Load, 300), 1 + 10); // written by the other of the pair
    assert_eq!(cost(&mut d, 2, line, Kind::Load, 400), 1 + 80); // shared in the socket
    assert_eq!(cost(&mut d, 8, line, Kind::Load, 600), 1 + 800); // shared beyond
    for (cpu, now) in [(0, 2000), (1, 2100), (2, 2200), (8, 2300)] {
        assert_eq!(cost(&mut d, cpu, line, Kind::Load, now), 1 + 2);
    }
    // The farthest sharer, and one more for each of the others.
    let taken = d.access(1, line, Kind::Locked, 3_000_000);
    assert_eq!((taken.done - 3_000_000) / 1000, 1 + 1200 + 2 + 7);
    assert_eq!((taken.from, taken.lost.len()), (From::Others, 3));
    assert_eq!(cost(&mut d, 0, line, Kind::Load, 6000), 1 + 10);
}

#[test]
fn a_line_serves_one_at_a_time() {
    let mut d = directory();
    let line = d.new_line();
    d.access(0, line, Kind::Locked, 0);
    let first = d.access(2, line, Kind::Locked, 1_000_000);
    let second = d.access(4, line, Kind::Locked, 1_000_000);
    assert_eq!(first.queued, 0);
    assert_eq!(first.done, 1_000_000 + (1 + 120 + 7) * 1000);
    assert_eq!(second.queued, (120 + 7) * 1000);
    assert_eq!(second.done, first.done + (120 + 7) * 1000);
}

#[test]
fn stores_wait_in_the_buffer_until_it_is_full_or_drained() {
    let mut d = directory();
    let lines: Vec<u32> = (0..4).map(|_| d.new_line()).collect();
    for line in &lines {
        d.access(2, *line, Kind::Locked, 0);
    }
    // Two fit; the third waits for the first.
    assert_eq!(cost(&mut d, 0, lines[0], Kind::Store, 1000), 1);
    assert_eq!(cost(&mut d, 0, lines[1], Kind::Store, 1001), 1);
    assert_eq!(cost(&mut d, 0, lines[2], Kind::Store, 1002), 1 + 118);
    // The fence waits for all.
    let fenced = d.fence(0, 1_122_000);
    assert!(fenced > 1_240_000, "{fenced}");
    assert_eq!(cost(&mut d, 0, lines[2], Kind::Load, 2000), 1 + 2);
}

#[test]
fn a_bus_is_shared_by_all_who_cross_it() {
    let mut d = directory();
    let lines: Vec<u32> = (0..2).map(|_| d.new_line()).collect();
    d.access(0, lines[0], Kind::Locked, 0);
    d.access(1, lines[1], Kind::Locked, 0);
    let first = d.access(8, lines[0], Kind::Load, 1_000_000);
    let second = d.access(9, lines[1], Kind::Load, 1_000_000);
    assert_eq!((first.queued, second.queued), (0, 300_000));
}

#[test]
fn what_is_used_no_more_goes_cold() {
    let mut d = directory();
    let lines: Vec<u32> = (0..200).map(|_| d.new_line()).collect();
    for line in &lines {
        assert_eq!(d.access(0, *line, Kind::Load, 0).from, From::Memory);
    }
    // The first level has the last 16, the second the last 64, the chip the rest.
    assert_eq!(cost(&mut d, 0, lines[199], Kind::Load, 100_000), 1 + 2);
    assert_eq!(cost(&mut d, 0, lines[160], Kind::Load, 100_000), 1 + 5);
    assert_eq!(cost(&mut d, 0, lines[0], Kind::Load, 100_000), 1 + 20);
}

#[test]
fn a_prefetch_hides_the_way() {
    let mut d = directory();
    let line = d.new_line();
    d.access(2, line, Kind::Locked, 0);
    assert_eq!(cost(&mut d, 0, line, Kind::Prefetch, 1000), 1);
    assert_eq!(cost(&mut d, 0, line, Kind::Load, 1050), 51 + 2); // the rest of 100 ns
    assert_eq!(cost(&mut d, 0, line, Kind::Load, 1200), 1 + 2);
}

/// Who has just got a line finishes what it does with it, though others have asked for it meanwhile.
#[test]
fn a_line_is_kept_for_a_moment() {
    let machine = MACHINE.replace("hold = { ns = 0", "hold = { ns = 30");
    let mut d = Directory::new(
        &Topology::parse(&machine).expect("it is well-formed"),
        16,
        Jitter::new(1, 0.0),
    );
    let line = d.new_line();
    d.access(0, line, Kind::Locked, 0);
    let got = d.access(2, line, Kind::Locked, 1_000_000); // has it at 1,121
    let next = d.access(4, line, Kind::Locked, 1_050_000);
    assert_eq!(next.queued, (1121 + 30 - 1051) * 1000);
    let again = d.access(2, line, Kind::Store, got.done);
    assert_eq!(again.from, From::Here);
    let late = d.access(2, line, Kind::Store, 1_200_000);
    assert_eq!(late.from, From::Others);
}

/// The test machine, with a request's way of 40 of the 100 to 120 ns inside a socket, and something else changed.
fn with_request(from: &str, to: &str) -> Directory {
    let machine = MACHINE.replace(
        "store = { ns = 120, source = \"test\" }",
        "store = { ns = 120, source = \"test\" }\nrequest = { ns = 40, source = \"test\" }",
    );
    let machine = machine.replace(from, to);
    Directory::new(&Topology::parse(&machine).expect("it is well-formed"), 16, Jitter::new(1, 0.0))
}

/// A request that has to wait waits where the line is: what is left then is the way back.
#[test]
fn requests_go_their_way_while_the_line_is_elsewhere() {
    let mut d = with_request("", "");
    let line = d.new_line();
    d.access(0, line, Kind::Locked, 0);
    // Alone it costs what it did.
    let first = d.access(2, line, Kind::Locked, 1_000_000);
    assert_eq!((first.queued, first.done), (0, 1_000_000 + (1 + 120 + 7) * 1000));
    // Both ask at once: the second is there after 40, waits for the other 88, and has 80 to go.
    let second = d.access(4, line, Kind::Locked, 1_000_000);
    assert_eq!((second.queued, second.done), (87_000, first.done + (80 + 7) * 1000));
    // One that was asked for earlier has only the way back before it, and cannot come before it was asked for.
    let line = d.new_line();
    d.access(0, line, Kind::Locked, 2_000_000);
    assert_eq!(d.request(2, line, Kind::Locked, 3_000_000), Some(3_041_000));
    let third = d.arrive(2, line, Kind::Locked, 3_000_000, 3_041_000);
    assert_eq!(third.done, 3_000_000 + (1 + 120 + 7) * 1000);
    // Nothing is asked for that is at hand, or that nobody waits for.
    assert_eq!(d.request(2, line, Kind::Load, 4_000_000), None);
    assert_eq!(d.request(0, line, Kind::Store, 4_000_000), None);
    assert_eq!(
        d.request(3, line, Kind::Load, 4_000_000),
        None,
        "the pair's figures have no request"
    );
}

/// Where lines migrate, who reads what another has written can write it at once, and the writer has lost it.
#[test]
fn a_load_may_take_the_line_away() {
    for migratory in [false, true] {
        let why = if migratory {
            "migratory = { source = \"test\" }\n[[level]]\nname = \"pair\""
        } else {
            "[[level]]\nname = \"pair\""
        };
        let mut d = with_request("[[level]]\nname = \"pair\"", why);
        let line = d.new_line();
        d.access(0, line, Kind::Locked, 0);
        let read = d.access(2, line, Kind::Load, 1_000_000);
        assert_eq!(read.lost.contains(0), migratory);
        let write = d.access(2, line, Kind::Locked, 2_000_000);
        assert_eq!(write.from, if migratory { From::Here } else { From::Others });
        // What is only read has nobody who loses it.
        let line = d.new_line();
        d.access(0, line, Kind::Load, 3_000_000);
        assert!(d.access(2, line, Kind::Load, 4_000_000).lost.is_empty());
        assert_eq!(d.access(0, line, Kind::Load, 5_000_000).from, From::Here);
    }
}
