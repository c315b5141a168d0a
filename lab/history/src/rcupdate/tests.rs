//! Property 8: a grace period waits for the readers that were there before it, and for no others.

use super::{TICK, rcu_check_callbacks, rcu_read_lock};
use crate::sockets::{Process, Rung, World};

/// Callbacks and files in use, after so many ticks of a CPU.
fn after_ticks(world: &World, ticks: usize) -> (u64, usize) {
    for _ in 0..ticks {
        let syscall = world.syscall(0);
        rcu_check_callbacks(syscall.current);
    }
    (world.rcu_pending(), world.slabinfo()[0].active_objs)
}

fn open_and_close(process: &Process) {
    let fd = process.socket(0).expect("a socket");
    process.close(0, fd).expect("it is open");
}

#[test]
fn a_file_is_freed_only_when_the_reader_is_gone() {
    let world = World::new(Rung::Base, 2);
    let process = world.process();
    let reader_cpu = world.syscall(1).current.cpu;
    let reader = rcu_read_lock(reader_cpu);
    open_and_close(&process);
    assert_eq!(after_ticks(&world, 10), (1, 1), "the reader may still look at the file");
    drop(reader);
    assert_eq!(after_ticks(&world, 2), (0, 0), "no one looks any more");
}

#[test]
fn a_later_reader_holds_nothing_up() {
    let world = World::new(Rung::Base, 2);
    let process = world.process();
    open_and_close(&process);
    assert_eq!(after_ticks(&world, 1), (1, 1), "the grace period has only begun");
    let reader_cpu = world.syscall(1).current.cpu;
    let reader = rcu_read_lock(reader_cpu);
    assert_eq!(after_ticks(&world, 1), (0, 0));
    drop(reader);
}

#[test]
fn slabs_of_a_typesafe_cache_wait_for_the_reader() {
    let world = World::new(Rung::TypesafeFiles, 2);
    let process = world.process();
    let reader_cpu = world.syscall(1).current.cpu;
    let reader = rcu_read_lock(reader_cpu);
    let fds: Vec<_> = (0..1000).map(|_| process.socket(0).expect("a socket")).collect();
    fds.into_iter().for_each(|fd| process.close(0, fd).expect("it is open"));
    let (pending, files) = after_ticks(&world, 10);
    assert!(pending > 10, "empty slabs wait: {pending}");
    assert_eq!(files, 0, "the files do not");
    drop(reader);
    assert_eq!(after_ticks(&world, 2), (0, 0));
}

#[test]
fn ticks_come_by_themselves_and_bound_the_backlog() {
    let world = World::new(Rung::Base, 1);
    let process = world.process();
    for _ in 0..20 * TICK {
        open_and_close(&process);
        assert!(world.rcu_pending() <= u64::from(3 * TICK));
    }
    assert!(world.rcu_pending() > 0);
    world.quiesce();
    assert_eq!((world.rcu_pending(), world.slabinfo()[0].active_objs), (0, 0));
}
