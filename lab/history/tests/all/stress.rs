//! Two threads at once, on every rung: everything is exact when they are done.

use std::collections::HashSet;
use std::sync::Mutex;
use std::thread;

use quietline_history::{Errno, Process, Rung, World};

const TURNS: usize = 4000;

fn opens_and_closes(process: &Process, cpu: usize) {
    let mut held = Vec::new();
    for turn in 0..TURNS {
        match turn % 3 {
            0 => held.push(process.socket(cpu).expect("a socket")),
            1 => held.extend(process.pipe(cpu).expect("a pipe")),
            _ => held.push(process.eventfd(cpu).expect("an eventfd")),
        }
        if held.len() > 40 {
            // Not in the order they were opened.
            for fd in held.drain(turn % 20..) {
                process.close(cpu, fd).expect("it is open");
            }
        }
    }
    held.into_iter().for_each(|fd| process.close(cpu, fd).expect("it is open"));
}

/// Checks that a world is as it was when made, but for memory it keeps.
fn assert_at_rest(world: &World, fresh: &World) {
    let state = |world: &World| {
        let counts =
            (world.nr_dentry(), world.nr_inodes(), world.nr_files(), world.sockets_in_use());
        let lists = world.lists();
        let lengths = (lists.inode_in_use.len(), lists.s_inodes.len(), lists.d_subdirs.len());
        (
            counts,
            lengths,
            world.mnt_counts(),
            world.slabinfo().map(|info| info.active_objs),
            world.rcu_pending(),
        )
    };
    world.quiesce();
    assert_eq!(state(world), state(fresh), "{:?}", world.patches());
}

#[test]
fn two_processes() {
    for rung in Rung::ALL {
        let world = World::new(rung, 2);
        thread::scope(|scope| {
            for cpu in 0..2 {
                let world = &world;
                scope.spawn(move || opens_and_closes(&world.process(), cpu));
            }
        });
        assert_at_rest(&world, &World::new(rung, 2));
    }
}

#[test]
fn two_threads_of_one_process() {
    for rung in Rung::ALL {
        let world = World::new(rung, 2);
        let process = world.process();
        thread::scope(|scope| {
            for cpu in 0..2 {
                let process = &process;
                scope.spawn(move || opens_and_closes(process, cpu));
            }
        });
        assert_eq!(process.open_fds(), Vec::<i32>::new());
        assert_at_rest(&world, &World::new(rung, 2));
    }
}

/// Objects are freed on another CPU than they came from: the slab's slow path, both ways.
#[test]
fn one_opens_and_the_other_closes() {
    for rung in Rung::ALL {
        let world = World::new(rung, 2);
        let process = world.process();
        let (sender, receiver) = std::sync::mpsc::sync_channel(100);
        thread::scope(|scope| {
            let process = &process;
            scope.spawn(move || {
                for _ in 0..TURNS {
                    sender.send(process.socket(0).expect("a socket")).expect("the closer is there");
                }
            });
            scope.spawn(move || {
                for fd in receiver {
                    process.close(1, fd).expect("it is open");
                }
            });
        });
        assert_at_rest(&world, &World::new(rung, 2));
    }
}

/// Property 7: a file found without a lock is the descriptor's, however fast it is closed and its memory
/// recycled.
#[test]
fn a_reader_finds_the_descriptors_file_or_none() {
    for rung in Rung::ALL {
        let world = World::new(rung, 2);
        let (watched, other) = (world.process(), world.process());
        let (watched_inos, other_inos) = (Mutex::new(HashSet::new()), Mutex::new(HashSet::new()));
        let found = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for _ in 0..TURNS {
                    let fd = watched.socket(0).expect("a socket");
                    assert_eq!(fd, 0);
                    watched_inos
                        .lock()
                        .expect("no panic")
                        .insert(watched.ino(0, fd).expect("it is open"));
                    watched.close(0, fd).expect("it is open");
                    // Takes the file that was just freed, if it is free already.
                    let fd = other.socket(0).expect("a socket");
                    other_inos
                        .lock()
                        .expect("no panic")
                        .insert(other.ino(0, fd).expect("it is open"));
                    other.close(0, fd).expect("it is open");
                }
            });
            let mut found = HashSet::new();
            while !writer.is_finished() {
                match watched.ino(1, 0) {
                    Ok(ino) => _ = found.insert(ino),
                    Err(error) => assert_eq!(error, Errno::EBADF),
                }
            }
            found
        });
        let (watched_inos, other_inos) =
            (watched_inos.into_inner().unwrap(), other_inos.into_inner().unwrap());
        assert!(found.is_disjoint(&other_inos), "{rung:?}");
        assert!(found.is_subset(&watched_inos), "{rung:?}");
        assert_at_rest(&world, &World::new(rung, 2));
    }
}
