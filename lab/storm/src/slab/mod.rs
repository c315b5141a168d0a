//! Two slab caches under random operations, held against what their users remember.
//!
//! The model is what users hold: which objects are out, and what is in them. Every byte of an object follows from a mark that
//! no other object has, and is checked when the object is freed: memory that is given out twice, that overlaps, or that the
//! cache writes to while it is out shows there. Beside it: constructed state comes back as it was left, numbers add up, an
//! allocation fails only when a fault was injected and then leaves nothing behind, and nothing is left in the end.

mod hand;
mod holding;
mod plan;
mod player;
mod raw;
mod world;

use crate::input::Input;
use player::Player;
use std::ops::AddAssign;
use std::panic::resume_unwind;
use std::thread;
use world::World;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations.
    pub operations: u64,
    /// Objects that were allocated, and freed.
    pub objects: u64,
    /// Allocations that failed, because a fault was injected.
    pub failed: u64,
    /// Operations of another kind than allocating and freeing.
    pub rare: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.objects += other.objects;
        self.failed += other.failed;
        self.rare += other.rare;
    }
}

/// Does what the bytes say, until there are none left. One at a time in a process.
///
/// # Panics
/// When the library differs from the model.
pub fn run(bytes: &[u8]) -> Tally {
    run_together(&[bytes])
}

/// The same by several threads on the same two caches, which the first one's bytes choose.
///
/// # Panics
/// As [`run`].
pub fn run_together(bytes: &[&[u8]]) -> Tally {
    let mut inputs: Vec<Input<'_>> = bytes.iter().map(|bytes| Input::new(bytes)).collect();
    let Some(first) = inputs.first_mut() else { return Tally::default() };
    let world = World::read(first, bytes.len());
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let (hand, thread) = hand::spawn(scope, &world);
        let others = inputs.split_off(1).into_iter();
        let others: Vec<_> =
            others.map(|input| scope.spawn(|| Player::new(&world, None).play(input))).collect();
        let input = inputs.pop().expect("the first");
        tally += Player::new(&world, Some(hand)).play(input);
        thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        for other in others {
            tally += other.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    world.end();
    tally
}
