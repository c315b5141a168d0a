//! The ladder of 2008: which contended lines each patch takes away, and what that is worth on a model of its machine.
#![cfg(quietline_sim)]

use quietline_history::Rung;
use quietline_lines::conflicts::{Conflicts, LINES};
use quietline_lines::ladder::{Ladder, Model};
use quietline_lines::sensitivity;
use quietline_sim::topology::Topology;
use std::sync::OnceLock;

/// Every line that the seed lists is met, by name, until the rung whose patch takes it away, and not from there on; nothing
/// that is met has no name; and no rung meets more than the one before.
#[test]
fn each_patch_takes_its_lines_away() {
    let machine = Topology::load("core2-2x4").expect("a machine of our own");
    let conflicts = Conflicts::count(&machine, 8, 1).expect("it runs");
    println!("{conflicts}");
    for (line, row) in LINES.iter().zip(&conflicts.lines) {
        for (rung, moved) in Rung::ALL.into_iter().zip(&row.moved) {
            if rung < line.gone {
                assert!(
                    *moved >= line.least,
                    "{rung:?}: {} is met {moved} times an operation",
                    row.line
                );
            } else {
                // `last_ino` is, once in a batch.
                assert!(
                    *moved < 1.5 / 1024.0,
                    "{rung:?}: {} is met {moved} times an operation",
                    row.line
                );
            }
        }
    }
    let written = |name: &str, rung: usize| {
        let row = conflicts.lines.iter().find(|row| row.line.contains(name));
        row.expect("a line of the list").written[rung]
    };
    // A lock is written when it is taken and when it is given back: `dcache_lock` twice at open and once at close.
    assert!((5.9..6.1).contains(&written("dcache_lock", 0)), "{}", written("dcache_lock", 0));
    assert!((3.9..4.1).contains(&written("inode_lock", 0)), "{}", written("inode_lock", 0));
    for other in &conflicts.others {
        let most = other.moved.iter().copied().fold(0.0, f64::max);
        assert!(
            !other.line.contains(".rs:") || most < 0.01,
            "{} has no name, and is met {most} times",
            other.line
        );
    }
    for pair in conflicts.total.windows(2) {
        // Which CPU's files a callback frees is chance.
        assert!(pair[1] < pair[0] + 0.3, "{:?}", conflicts.total);
    }
    let last = conflicts.total.last().expect("there are rungs");
    assert!(*last < 1.5 / 1024.0, "the last rung moves {last} lines an operation");
}

/// The ladder for each of [`sensitivity::LATENCIES`], climbed once for all tests.
fn ladders() -> &'static [Ladder] {
    static LADDERS: OnceLock<[Ladder; 3]> = OnceLock::new();
    LADDERS.get_or_init(|| {
        let machine = Topology::load("core2-2x4").expect("a machine of our own");
        sensitivity::LATENCIES.map(|latencies| {
            Model::fitted(&machine, latencies, 1).and_then(|m| m.ladder()).expect("it runs")
        })
    })
}

/// Conclusions that hold whatever the latencies are, and conclusions of the thread that the model
/// does not support with any of them.
#[test]
fn conclusions_do_not_depend_on_the_latencies() {
    let conclusions = sensitivity::conclusions(ladders());
    println!("{}", sensitivity::Table(&conclusions));
    let find =
        |start: &str| conclusions.iter().find(|c| c.says.starts_with(start)).expect("it is drawn");
    for start in ["base: 8 CPUs do less", "single dentries", "single inodes", "uncounted"] {
        assert!(find(start).always_holds(), "{:?}", find(start));
    }
    for start in ["typesafe files", "in the end", "on 1"] {
        assert!(find(start).holds().all(|holds| !holds), "{:?}", find(start));
    }
    // Next to a bound: a tenth, more or less.
    let counters = find("three counters");
    assert!(counters.modelled.iter().all(|ratio| (0.98..1.2).contains(ratio)), "{counters:?}");
}

/// The order of the rungs, the jump where `inode_lock` goes, and the end; at the file's latencies and with all of them
/// 30 % off.
#[test]
fn the_ladder_has_the_shape_that_was_reported() {
    for ladder in ladders() {
        let latencies = ladder.latencies;
        println!("{ladder}");
        let on_8: Vec<f64> = ladder.steps.iter().map(|step| step.on_8).collect();
        let [base, counters @ .., dentry, inode, files, last] = &on_8[..] else {
            panic!("eight rungs")
        };
        // The three counters' patches show a tenth at most.
        assert!(
            counters.iter().all(|step| (0.75..1.1).contains(&(step / base))),
            "{counters:?} of {base}"
        );
        assert!(dentry < base && *dentry > base * 0.5, "{dentry} of {base}");
        // The jump: four to eight times faster, as 19.9 to 3.01 was 6.6.
        assert!(inode * 3.0 < *dentry, "{inode} after {dentry}");
        // The model does not tell the sixth patch from the fifth: both wait for `mnt_count`.
        assert!((0.9..1.1).contains(&(files / inode)) && last < files, "{inode}, {files}, {last}");
        // Within 30 % of the reported seconds. The sixth patch is 33 % off.
        for step in
            ladder.steps.iter().filter(|step| latencies == 1.0 && step.rung != "typesafe-files")
        {
            let ratio = step.on_8 / step.reported_on_8;
            assert!((0.7..1.3).contains(&ratio), "{}: {ratio}", step.rung);
        }
        // From 11 to 21 times slower than one CPU (reported: 17.6) to no slower (reported: 30 %).
        assert!((8.0..25.0).contains(&(base / ladder.steps[0].on_1)));
        assert!((0.95..1.1).contains(&(last / ladder.steps[7].on_1)));
        // On one CPU the series gains an eighth (reported: a fifth).
        assert!((0.84..0.92).contains(&(ladder.steps[7].on_1 / ladder.steps[0].on_1)));
    }
}
