//! How many locked instructions reading and writing a file executes.

use quietline_count::{Counts, Error, count};
use quietline_platform::percpu::{Body, active};
use quietline_sync::rcu;
use quietline_vfs::ramfs::pages::{PAGE_SIZE, PageCaches, PageTree};
use std::hint::black_box;

/// Counts one run of `f` after some to warm up; none, said aloud, where that cannot be. A system that refuses to trace
/// is a failure where `QUIETLINE_REQUIRE_COUNTS` is 1.
fn counted(what: &str, mut f: impl FnMut()) -> Option<Counts> {
    if active() != Body::Rseq {
        eprintln!("not checked: per-CPU operations use the fallback");
        return None;
    }
    (0..100).for_each(|_| f());
    match count(&mut f) {
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
        assert_eq!((counts.locked, counts.syscalls), (locked, 0), "{what}");
    }
}

#[test]
fn locked_instructions() {
    quietline_testing::isolated!();
    let caches = PageCaches::new(rcu::global().unwrap());
    let tree = PageTree::new(&caches);
    tree.write().write_at(&(), 0, &vec![1; 100 * PAGE_SIZE]).unwrap();
    let mut bytes = [0; PAGE_SIZE];
    assert_locked("read a byte", 0, || {
        assert_eq!(tree.read(black_box(70 * PAGE_SIZE as u64), &mut bytes[..1]), 1);
    });
    assert_locked("read a page across an edge", 0, || {
        assert_eq!(tree.read(black_box(63 * PAGE_SIZE as u64 + 9), &mut bytes), PAGE_SIZE);
    });
    // The writers' lock.
    assert_locked("write a page that is there", 1, || {
        assert_eq!(tree.write().write_at(&(), black_box(PAGE_SIZE as u64), &bytes), Ok(PAGE_SIZE));
    });
    assert_locked("a file of one page, made and ended", 1, || {
        let mut file = PageTree::new(&caches);
        assert_eq!(file.write().append(&(), &bytes), Ok((0, PAGE_SIZE)));
        file.clear(&());
    });
}
