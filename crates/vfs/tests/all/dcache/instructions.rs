//! How many instructions, and how many locked ones, the steps of the dentry cache execute. A locked instruction is worth
//! twenty plain ones, and one on a shared line far more.

use crate::dcache::support::*;
use quietline_count::{Counts, Error, count};
use quietline_platform::percpu::{Body, active};
use quietline_vfs::{Content, Dirs, Step, abi::S_IFREG};
use std::hint::black_box;

/// Counts one run of `f` after some to warm up; none, said aloud, where that cannot be. A system that refuses to trace
/// is a failure where `QUIETLINE_REQUIRE_COUNTS` is 1.
fn counted(what: &str, mut f: impl FnMut()) -> Option<Counts> {
    if active() != Body::Rseq {
        eprintln!("not checked: per-CPU operations use the fallback");
        return None;
    }
    for _ in 0..100 {
        f();
    }
    // The fewest of some runs: once in a while one also sends a full sheaf to its grace period.
    let mut least = count(&mut f);
    for _ in 0..4 {
        // Each is counted in a copy of the process: so on to another state.
        (0..7).for_each(|_| f());
        let next = count(&mut f);
        if matches!((&least, &next), (Ok(least), Ok(next)) if next.instructions < least.instructions)
        {
            least = next;
        }
    }
    match least {
        Ok(counts) => {
            println!("{what:40} {} locked, {} instructions", counts.locked, counts.instructions);
            Some(counts)
        }
        Err(Error::Refused(e)) => {
            let required = std::env::var_os("QUIETLINE_REQUIRE_COUNTS").is_some_and(|v| v == "1");
            assert!(!required, "counting is required here, but this system refuses to trace: {e}");
            eprintln!("not checked: this system refuses to trace: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

#[track_caller]
fn assert_locked(what: &str, locked: u64, f: impl FnMut()) {
    if let Some(counts) = counted(what, f) {
        assert_eq!(counts.locked, locked, "{what}");
        assert_eq!(counts.syscalls, 0, "{what}");
    }
}

#[test]
fn locked_instructions_of_each_step() {
    quietline_testing::isolated!();
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let file = make(&root, "file");
    let long = "a-name-that-does-not-fit-into-the-dentry";
    make(&root, long);
    (0..3).for_each(|i| drop(make(&root, &format!("other{i}"))));
    let (short, long) = (name(&vfs, "file"), name(&vfs, long));
    {
        let section = vfs.read();
        let dir = root.seen(&section);
        assert_locked("find a name", 0, || {
            let Step::Found(child) = dir.child(black_box(&short)) else { panic!("it is there") };
            black_box(child);
        });
        assert_locked("hash a name and find it", 0, || {
            let name = vfs.name(black_box(b"file")).unwrap();
            let Step::Found(child) = dir.child(&name) else { panic!("it is there") };
            black_box(child);
        });
        assert_locked("find a long name", 0, || {
            let Step::Found(child) = dir.child(black_box(&long)) else { panic!("it is there") };
            black_box(child);
        });
        assert_locked("miss a name", 0, || {
            let name = vfs.name(black_box(b"missing")).unwrap();
            let Step::Missing = dir.child(&name) else { panic!("it is not there") };
        });
        assert_locked("the parent, without a reference", 0, || {
            black_box(file.seen(&section).parent().unwrap());
        });
        assert_locked("attributes", 0, || {
            black_box(file.inode().unwrap().attributes());
        });
        // Get and put.
        assert_locked("acquire and drop", 2, || {
            let Step::Found(child) = dir.child(black_box(&short)) else { panic!("it is there") };
            drop(black_box(child.acquire().unwrap()));
        });
    }
    assert_locked("clone and drop", 2, || drop(black_box(root.clone())));
    assert_locked("the parent, by reference", 2, || drop(black_box(file.parent())));
    // The sole holder of an inode has nobody to agree with.
    assert_locked("make and end an inode", 0, || {
        drop(black_box(root.new_inode(made(S_IFREG), Content::Regular).unwrap()));
    });
    let temporary = name(&vfs, "temporary");
    // The parent's count up and down, and the dentry's end.
    assert_locked("make and end a dentry and its inode", 3, || {
        let mut new = root.alloc(&temporary).unwrap();
        new.instantiate(root.new_inode(made(S_IFREG), Content::Regular).unwrap());
        drop(new);
    });
    // The same, and the directory's lock.
    assert_locked("make, add, take out and end", 4, || {
        let mut new = root.alloc(&temporary).unwrap();
        new.instantiate(root.new_inode(made(S_IFREG), Content::Regular).unwrap());
        let mut lock = root.inode().unwrap().lock();
        new.add_pinned_only(&mut lock).unwrap();
        let section = vfs.read();
        let Step::Found(child) = root.seen(&section).child(&temporary) else {
            panic!("it is there")
        };
        let pin = child.unhash(&mut lock).unwrap();
        drop((section, lock));
        drop(pin);
    });
    let (a, b) = (name(&vfs, "a"), name(&vfs, "b"));
    let moved = make(&root, "a");
    let mut turn = false;
    // The directory's lock.
    assert_locked("rename in a directory", 1, || {
        turn = !turn;
        let new = root.new_name(if turn { &b } else { &a }).unwrap();
        let mut lock = root.inode().unwrap().lock();
        moved.rename(&mut Dirs::Same(&mut lock), &root, new, None).unwrap();
    });
}
