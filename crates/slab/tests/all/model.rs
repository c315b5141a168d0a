//! Property 10: random operations on two caches, held against a model: that of the fuzz targets,
//! for a second.
#![cfg(not(loom))]

#[path = "../../../../lab/storm/src/slab/mod.rs"]
#[allow(unreachable_pub, reason = "public for lab/storm")]
mod slab;

use crate::support::{Random, stress_time};
use std::time::Instant;

fn bytes(random: &mut Random) -> Vec<u8> {
    let words = 32 << random.below(8);
    (0..words).flat_map(|_| random.next().to_le_bytes()).collect()
}

/// As many rounds as there is time for, from seeds that a failure names (`QUIETLINE_SEED` repeats one).
fn rounds(players: usize) {
    let round = |seed: u64| {
        let mut random = Random::new(seed);
        let bytes: Vec<Vec<u8>> = (0..players).map(|_| bytes(&mut random)).collect();
        slab::run_together(&bytes.iter().map(Vec::as_slice).collect::<Vec<_>>())
    };
    if let Ok(seed) = std::env::var("QUIETLINE_SEED") {
        round(seed.parse().expect("a number"));
        return;
    }
    let begun = Instant::now();
    let mut tally = slab::Tally::default();
    let mut seed = 0;
    let time = stress_time(1000);
    while begun.elapsed() < time || seed < 10 {
        seed += 1;
        match std::panic::catch_unwind(|| round(seed)) {
            Ok(done) => tally += done,
            Err(panic) => {
                eprintln!("QUIETLINE_SEED={seed} repeats this with {players} players");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{seed} rounds, {tally:?}");
    assert!(tally.operations > 1000 && tally.objects > 1000, "{tally:?}");
}

#[test]
fn random_operations() {
    quietline_testing::isolated!();
    rounds(1);
}

#[test]
fn random_operations_of_two_threads() {
    quietline_testing::isolated!();
    rounds(2);
}

/// Bytes that are none, or few, or all alike, are operations like others.
#[test]
fn odd_bytes() {
    quietline_testing::isolated!();
    assert_eq!(slab::run(&[]).operations, 0);
    for byte in 0..=255 {
        for length in [1, 40, 700] {
            slab::run(&vec![byte; length]);
        }
    }
}
