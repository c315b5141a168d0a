//! Files made and removed in the ramfs of 2010: what is there, that nothing is lost, and when memory is used again.

use quietline_history::inode_rcu::{Failed, FreeWay, Ramfs};

use std::thread;

const WAYS: [FreeWay; 4] =
    [FreeWay::Immediate, FreeWay::CallRcu, FreeWay::Typesafe, FreeWay::Sheaf];

#[test]
fn names_come_and_go() {
    for way in WAYS {
        let ramfs = Ramfs::new(way, 2, 10).unwrap();
        let mut cpu = ramfs.cpu();
        assert_eq!(cpu.unlink(0, 7), Err(Failed::NoEntry));
        assert_eq!(cpu.create(0, 7), Ok(()));
        assert_eq!(cpu.create(0, 7), Err(Failed::Exists));
        assert_eq!(cpu.create(1, 7), Ok(()), "in another directory");
        assert_eq!((ramfs.nr_inodes(), ramfs.listed()), (2, 2));
        assert_eq!(cpu.unlink(0, 7), Ok(()));
        assert_eq!(cpu.unlink(0, 7), Err(Failed::NoEntry));
        assert_eq!(cpu.unlink(1, 7), Ok(()));
        assert_eq!((ramfs.nr_inodes(), ramfs.listed()), (0, 0));
    }
}

/// With room for one inode and many dentries' worth of files: at once, or only after a grace period.
#[test]
fn an_inode_is_free_at_once_or_after_a_grace_period() {
    let at_once = [FreeWay::Immediate, FreeWay::Typesafe];
    for (way, again) in WAYS.map(|way| (way, at_once.contains(&way))) {
        let ramfs = Ramfs::new(way, 1, 2).unwrap();
        let mut cpu = ramfs.cpu();
        cpu.create(0, 1).unwrap();
        cpu.unlink(0, 1).unwrap();
        // A dentry waits in every way; the second file has the second. Its inode is the first one's, or the second.
        cpu.create(0, 2).unwrap();
        cpu.unlink(0, 2).unwrap();
        assert_eq!(cpu.create(0, 3), Err(Failed::NoSpace), "no dentry");
        assert_eq!(cpu.inodes_waiting() == 0, again, "{way:?}");
        drop(cpu);
        // The CPU that went took its callbacks along.
        assert_eq!(ramfs.cpu().create(0, 3), Ok(()), "{way:?}");
    }
}

#[test]
fn grace_periods_end() {
    for way in WAYS {
        let ramfs = Ramfs::new(way, 1, 3_000).unwrap();
        let mut cpu = ramfs.cpu();
        for name in 0..20_000 {
            assert_eq!(cpu.create(0, name), Ok(()), "{way:?}");
            assert_eq!(cpu.unlink(0, name), Ok(()), "{way:?}");
        }
    }
}

#[test]
fn stress_cpus_in_one_directory_and_in_their_own() {
    let rounds = quietline_testing::budget("QUIETLINE_STRESS_ROUNDS", 10);
    for way in WAYS {
        for directories in [1, 3] {
            let ramfs = Ramfs::new(way, directories, 20_000).unwrap();
            thread::scope(|s| {
                for thread in 0..3 {
                    let ramfs = &ramfs;
                    s.spawn(move || {
                        let mut cpu = ramfs.cpu();
                        let directory = thread % directories;
                        let name = |i: u64| u64::from(thread) << 32 | i;
                        for _ in 0..rounds {
                            (0..100)
                                .for_each(|i| assert_eq!(cpu.create(directory, name(i)), Ok(())));
                            (0..100)
                                .for_each(|i| assert_eq!(cpu.unlink(directory, name(i)), Ok(())));
                        }
                    });
                }
            });
            assert_eq!((ramfs.nr_inodes(), ramfs.listed()), (0, 0), "{way:?}");
        }
    }
}
