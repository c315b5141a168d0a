//! What holds on every rung: counters, numbers, descriptors, lists, memory.

use std::collections::HashSet;

use quietline_history::{Errno, Lists, Process, Rung, World};

/// Counters that must be where they were when all is closed.
fn counters(world: &World) -> (i64, i64, i64, i64, [u32; 3]) {
    let exact = (world.nr_dentry(), world.nr_inodes(), world.nr_files());
    (exact.0, exact.1, exact.2, world.sockets_in_use(), world.mnt_counts())
}

fn address(process: &Process, fd: i32, name: &str) -> usize {
    let words = process.file_words(0, fd).expect("it is open");
    words.into_iter().find(|word| word.name == name).expect("a word of that name").address
}

#[test]
fn rungs_are_in_order_and_named() {
    assert!(Rung::ALL.is_sorted());
    let names: Vec<_> = Rung::ALL.map(Rung::name).into();
    let expected =
        "base nr_dentry nr_inodes last_ino single-dentry single-inode typesafe-files norefcount";
    assert_eq!(names.join(" "), expected);
}

#[test]
fn counters_follow_every_open_and_close() {
    for rung in Rung::ALL {
        let world = World::new(rung, 1);
        let process = world.process();
        let start = counters(&world);
        assert_eq!((start.2, start.3), (0, 0), "{rung:?}");

        let socket = process.socket(0).expect("a socket");
        let [read, write] = process.pipe(0).expect("a pipe");
        let eventfd = process.eventfd(0).expect("an eventfd");
        let open = counters(&world);
        assert_eq!(open.0 - start.0, 3, "{rung:?}: a pipe has one dentry");
        assert_eq!(open.1 - start.1, 2, "{rung:?}: an eventfd has no inode of its own");
        assert_eq!((open.2, open.3), (4, 1), "{rung:?}");
        let counted = if rung >= Rung::Norefcount { [0, 0, 0] } else { [1, 2, 1] };
        assert_eq!([0, 1, 2].map(|fs| open.4[fs] - start.4[fs]), counted, "{rung:?}");

        for fd in [write, socket, read, eventfd] {
            process.close(0, fd).expect("it is open");
            assert_eq!(process.close(0, fd), Err(Errno::EBADF));
        }
        assert_eq!(counters(&world), start, "{rung:?}");
    }
}

#[test]
fn counters_are_exact_past_a_batch() {
    for rung in Rung::ALL {
        let world = World::new(rung, 1);
        let process = world.process();
        let start = counters(&world);
        for n in 1..=1000 {
            process.socket(0).expect("a socket");
            assert_eq!(world.nr_files(), n);
            assert_eq!(
                (world.nr_dentry(), world.nr_inodes()),
                (start.0 + n, start.1 + n),
                "{rung:?}"
            );
        }
        drop(process);
        assert_eq!(counters(&world), start, "{rung:?}");
    }
}

/// Property 2, before the wrap-around at 2^32, where the kernel of the time gave out a 0.
#[test]
fn inode_numbers_are_unique_and_never_0() {
    for rung in Rung::ALL {
        let world = World::new(rung, 2);
        let process = world.process();
        let mut seen = HashSet::new();
        for n in 0..5000 {
            let cpu = n % 2;
            let socket = process.socket(cpu).expect("a socket");
            let [read, write] = process.pipe(cpu).expect("a pipe");
            let ino = process.ino(cpu, socket).expect("it is open");
            let pipe_ino = process.ino(cpu, read).expect("it is open");
            assert_eq!(process.ino(cpu, write), Ok(pipe_ino), "both ends are one inode");
            assert!(ino != 0 && pipe_ino != 0);
            assert!(
                seen.insert(ino) && seen.insert(pipe_ino),
                "{rung:?}: {ino} or {pipe_ino} twice"
            );
            for fd in [socket, read, write] {
                process.close(cpu, fd).expect("it is open");
            }
        }
        let shared = [0, 1].map(|cpu| process.ino(cpu, process.eventfd(cpu).expect("an eventfd")));
        assert_eq!(shared[0], shared[1], "eventfds share an inode");
    }
}

#[test]
fn the_lowest_free_descriptor_is_taken() {
    for rung in Rung::ALL {
        let world = World::new(rung, 1);
        let process = world.process();
        for expected in 0..300 {
            assert_eq!(process.socket(0), Ok(expected), "{rung:?}");
        }
        for fd in [7, 250, 64, 3] {
            process.close(0, fd).expect("it is open");
        }
        assert_eq!(process.pipe(0), Ok([3, 7]));
        assert_eq!(process.eventfd(0), Ok(64));
        assert_eq!([process.socket(0), process.socket(0)], [Ok(250), Ok(300)]);
        assert_eq!(process.open_fds(), (0..=300).collect::<Vec<_>>());
        assert_eq!(world.process().socket(0), Ok(0), "each process has its own table");
    }
}

#[test]
fn errors_are_the_kernels_and_leave_nothing_behind() {
    assert!(matches!(World::try_new(Rung::Base, 0), Err(Errno::EINVAL)));
    for rung in Rung::ALL {
        let world = World::new(rung, 1);
        let mut process = world.process();
        process.set_rlimit_nofile(3);
        for fd in [-1, 0, 63, 64, i32::MAX] {
            assert_eq!(process.close(0, fd), Err(Errno::EBADF));
            assert_eq!(process.ino(0, fd), Err(Errno::EBADF));
        }
        assert_eq!(process.socket(1), Err(Errno::EINVAL), "there is one CPU");
        let [first, second] = process.pipe(0).expect("a pipe");
        let before = counters(&world);
        assert_eq!(process.pipe(0), Err(Errno::EMFILE), "{rung:?}: one descriptor is not enough");
        assert_eq!(counters(&world), before, "{rung:?}");
        let third = process.socket(0).expect("the third of three");
        let before = counters(&world);
        let refused = [process.socket(0), process.eventfd(0), process.pipe(0).map(|pipe| pipe[0])];
        assert_eq!(refused, [Err(Errno::EMFILE); 3], "{rung:?}");
        assert_eq!(counters(&world), before, "{rung:?}");
        for fd in [first, second, third] {
            process.close(0, fd).expect("it is open");
        }
        world.quiesce();
        assert_eq!(world.slabinfo()[0].active_objs, 0, "{rung:?}");
    }
}

/// Property 3: pseudo objects are on no list, from the rung on that says so; before, they are on all.
#[test]
fn lists_hold_the_live_objects_below_single_and_none_from_there_on() {
    for rung in Rung::ALL {
        let world = World::new(rung, 1);
        let process = world.process();
        let start = world.lists();
        let fds: Vec<_> = (0..10)
            .flat_map(|_| {
                let [read, write] = process.pipe(0).expect("a pipe");
                [process.socket(0).expect("a socket"), read, write]
            })
            .collect();
        process.close(0, fds[6]).expect("it is open");
        process.close(0, fds[10]).expect("it is open");
        let open = process.open_fds();
        let expected = |name: &str, start: &[usize]| -> HashSet<usize> {
            open.iter()
                .map(|&fd| address(&process, fd, name))
                .chain(start.iter().copied())
                .collect()
        };
        let now = world.lists();
        let as_set = |list: &[usize]| -> HashSet<usize> {
            let set: HashSet<_> = list.iter().copied().collect();
            assert_eq!(set.len(), list.len(), "no element is on a list twice");
            set
        };
        if rung < Rung::SingleInode {
            let inodes = expected("inode->i_list", &start.inode_in_use);
            assert_eq!(as_set(&now.inode_in_use), inodes, "{rung:?}");
            assert_eq!(
                inodes.len(),
                start.inode_in_use.len() + 19,
                "{rung:?}: ten pipes, nine sockets"
            );
            assert_eq!(
                as_set(&now.s_inodes),
                expected("inode->i_sb_list", &start.s_inodes),
                "{rung:?}"
            );
        } else {
            assert_eq!(
                (&now.inode_in_use, &now.s_inodes),
                (&start.inode_in_use, &start.s_inodes),
                "{rung:?}"
            );
        }
        if rung < Rung::SingleDentry {
            assert_eq!(
                as_set(&now.d_subdirs),
                expected("dentry->d_child", &start.d_subdirs),
                "{rung:?}"
            );
            assert_eq!(now.d_subdirs.len(), 19, "{rung:?}");
        } else {
            assert_eq!(now.d_subdirs, Vec::<usize>::new(), "{rung:?}");
        }
        drop(process);
        assert_eq!(world.lists(), start, "{rung:?}");
        let Lists { inode_in_use, s_inodes, d_subdirs } = start;
        assert_eq!(
            (inode_in_use.len(), s_inodes.len(), d_subdirs.len()),
            (4, 4, 0),
            "three roots and one inode"
        );
    }
}

#[test]
fn closed_files_wait_below_typesafe_and_are_reused_hot_from_there_on() {
    for rung in Rung::ALL {
        let world = World::new(rung, 1);
        let process = world.process();
        let fd = process.socket(0).expect("a socket");
        let first = address(&process, fd, "file");
        process.close(0, fd).expect("it is open");
        let waiting = usize::from(rung < Rung::TypesafeFiles);
        assert_eq!(world.nr_files(), 0);
        assert_eq!(world.rcu_pending(), waiting as u64, "{rung:?}");
        assert_eq!(world.slabinfo()[0].active_objs, waiting, "{rung:?}");
        let fd = process.socket(0).expect("a socket");
        let second = address(&process, fd, "file");
        assert_eq!(second == first, rung >= Rung::TypesafeFiles, "{rung:?}");
        process.close(0, fd).expect("it is open");
        world.quiesce();
        assert_eq!((world.rcu_pending(), world.slabinfo()[0].active_objs), (0, 0), "{rung:?}");
    }
}

#[test]
fn nothing_is_leaked() {
    for rung in Rung::ALL {
        let world = World::new(rung, 2);
        let ledger = world.ledger();
        let start = counters(&world);
        let objects = world.slabinfo().map(|info| info.active_objs);
        let (gone, outlives) = (world.process(), world.process());
        for n in 0..500 {
            gone.socket(n % 2).expect("a socket");
            gone.pipe(n % 2).expect("a pipe");
            gone.eventfd(n % 2).expect("an eventfd");
        }
        assert!(ledger.blocks() > 20);
        drop(gone);
        assert_eq!(counters(&world), start, "{rung:?}: a process closes what it has open");
        world.quiesce();
        assert_eq!(world.slabinfo().map(|info| info.active_objs), objects, "{rung:?}");
        outlives.pipe(0).expect("a pipe");
        drop(world);
        assert!(ledger.blocks() > 0, "a process keeps its world");
        drop(outlives);
        assert_eq!(ledger.blocks(), 0, "{rung:?}");
    }
}

#[test]
fn memory_is_bounded_however_long_the_loop() {
    for rung in Rung::ALL {
        let world = World::new(rung, 1);
        let process = world.process();
        let run = |turns: usize| {
            for _ in 0..turns {
                let fd = process.socket(0).expect("a socket");
                process.close(0, fd).expect("it is open");
            }
            world.slabinfo().map(|info| info.num_slabs)
        };
        let slabs = run(5000);
        assert_eq!(run(20_000), slabs, "{rung:?}");
        if rung >= Rung::TypesafeFiles {
            // One hot object of each kind is enough; the second slab holds what was made at boot, on the
            // kernel's own CPU.
            assert_eq!(slabs, [1, 2, 2], "{rung:?}");
        }
    }
}
