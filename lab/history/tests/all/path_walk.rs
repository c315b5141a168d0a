//! The walk by reference of 2.6.37: what it finds, and that it leaves no reference behind.

use quietline_history::path_walk::{Attributes, Nowhere, ROOT, Tree};

use std::thread;

fn tree() -> Tree {
    let mut tree = Tree::new(6).unwrap();
    let etc = tree.mkdir(ROOT, b"etc");
    let sub = tree.mkdir(etc, b"sub");
    tree.create(sub, b"file", 7);
    // The same name elsewhere.
    tree.create(ROOT, b"file", 8);
    tree.negative(ROOT, b"gone");
    tree
}

#[test]
fn finds_what_is_there_and_says_what_is_not() {
    let tree = tree();
    let process = tree.process();
    assert_eq!(process.stat(b"etc/sub/file"), Ok(Attributes { ino: 4, size: 7 }));
    assert_eq!(process.stat(b"file"), Ok(Attributes { ino: 5, size: 8 }));
    assert_eq!(process.stat(b"etc"), Ok(Attributes { ino: 2, size: 0 }));
    assert_eq!(process.stat(b"gone"), Err(Nowhere::NoEntry));
    assert_eq!(process.stat(b"gone/file"), Err(Nowhere::NoEntry));
    assert_eq!(process.stat(b"etc/nothing"), Err(Nowhere::NoEntry));
    assert_eq!(process.stat(b"file/file"), Err(Nowhere::NotDirectory));
    assert_eq!(process.stat(b"sub"), Err(Nowhere::NoEntry), "in another directory");
}

#[test]
fn leaves_no_reference_behind() {
    let tree = tree();
    let counts =
        || (0..6).map(|dentry| tree.count(dentry)).chain([tree.mounts()]).collect::<Vec<_>>();
    let before = counts();
    thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let process = tree.process();
                for _ in 0..10_000 {
                    assert!(process.stat(b"etc/sub/file").is_ok());
                    assert!(process.stat(b"gone").is_err() && process.stat(b"file/x").is_err());
                }
            });
        }
    });
    assert_eq!(counts(), before);
}
