//! A CPU is one thread's at a time.

use crate::sockets::{Rung, World};

#[test]
#[should_panic(expected = "two threads on one CPU")]
fn a_cpu_that_is_taken_is_refused() {
    let world = World::new(Rung::Base, 2);
    let _other = world.syscall(0);
    let _ = world.process().socket(0);
}

#[test]
#[should_panic(expected = "two threads on one CPU")]
fn no_one_may_be_in_a_call_when_callbacks_are_run() {
    let world = World::new(Rung::Base, 2);
    let _other = world.syscall(1);
    world.quiesce();
}

#[test]
fn other_cpus_are_free() {
    let world = World::new(Rung::Base, 2);
    let _other = world.syscall(0);
    assert_eq!(world.process().socket(1), Ok(0));
}
