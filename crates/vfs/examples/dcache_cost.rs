//! What the steps of the dentry cache cost on one thread, in nanoseconds: the least of some rounds.
//! `cargo run --release -p quietline-vfs --example dcache_cost`.

#[path = "../tests/all/dcache/support.rs"]
mod dcache_support;

use dcache_support::*;
use quietline_vfs::{Content, Dirs, Step, abi::S_IFREG};
use std::hint::black_box;
use std::time::Instant;

/// The least of some rounds, in nanoseconds for each call.
fn cost(what: &str, calls: u32, mut f: impl FnMut(u32)) {
    let best = (0..15)
        .map(|_| {
            let began = Instant::now();
            (0..calls).for_each(&mut f);
            began.elapsed().as_nanos() as f64 / f64::from(calls)
        })
        .fold(f64::INFINITY, f64::min);
    println!("{what:48} {best:8.1} ns");
}

fn main() {
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    let files: Vec<String> = (0..64).map(|i| format!("file{i:03}")).collect();
    for file in &files {
        make(&root, file);
    }
    let long = "a-name-that-does-not-fit-into-the-dentry";
    make(&root, long);
    let names: Vec<_> = files.iter().map(|file| name(&vfs, file)).collect();
    let expected: u64 =
        files.iter().map(|f| root.lookup(&name(&vfs, f)).unwrap().inode().unwrap().ino()).sum();
    cost("empty section", 1_000_000, |_| drop(black_box(vfs.read())));
    cost("hash of 7 bytes", 1_000_000, |i| {
        black_box(vfs.name(black_box(files[(i % 64) as usize].as_bytes())).unwrap());
    });
    cost("hash of 40 bytes", 1_000_000, |_| {
        black_box(vfs.name(black_box(long.as_bytes())).unwrap());
    });
    let section = vfs.read();
    let dir = root.seen(&section);
    let mut sum = 0;
    cost("child, hashed before", 1_024_000, |i| {
        let Step::Found(child) = dir.child(black_box(&names[(i % 64) as usize])) else {
            panic!("it is there")
        };
        sum += black_box(child).inode().unwrap().ino();
    });
    assert_eq!(sum, expected * 16_000 * 15);
    cost("hash and child", 1_024_000, |i| {
        let name = vfs.name(black_box(files[(i % 64) as usize].as_bytes())).unwrap();
        let Step::Found(child) = dir.child(&name) else { panic!("it is there") };
        black_box(child);
    });
    cost("hash and child, 40 bytes", 1_000_000, |_| {
        let name = vfs.name(black_box(long.as_bytes())).unwrap();
        let Step::Found(child) = dir.child(&name) else { panic!("it is there") };
        black_box(child);
    });
    cost("hash and miss", 1_000_000, |_| {
        let name = vfs.name(black_box(b"absent")).unwrap();
        let Step::Missing = dir.child(&name) else { panic!("it is not there") };
    });
    cost("child and acquire and drop", 1_000_000, |i| {
        let Step::Found(child) = dir.child(black_box(&names[(i % 64) as usize])) else {
            panic!("it is there")
        };
        drop(black_box(child.acquire().unwrap()));
    });
    drop(section);
    cost("clone and drop", 1_000_000, |_| drop(black_box(root.clone())));
    let temporary = name(&vfs, "temporary");
    let inode = root.new_inode(made(S_IFREG), Content::Regular).unwrap();
    cost("alloc, add, unhash, free (given inode)", 1_000_000, |_| {
        let mut new = root.alloc(&temporary).unwrap();
        new.instantiate(inode.clone());
        let mut lock = root.inode().unwrap().lock();
        let dentry = new.add_pinned(&mut lock).unwrap();
        let pin = dentry.unhash(&mut lock).unwrap();
        drop(dentry);
        drop(lock);
        drop(pin);
    });
    cost("new inode, alloc, add; unhash, free", 1_000_000, |_| {
        let mut new = root.alloc(&temporary).unwrap();
        new.instantiate(root.new_inode(made(S_IFREG), Content::Regular).unwrap());
        let mut lock = root.inode().unwrap().lock();
        new.add_pinned_only(&mut lock).unwrap();
        drop(lock);
        let mut lock = root.inode().unwrap().lock();
        let section = vfs.read();
        let Step::Found(child) = root.seen(&section).child(&temporary) else {
            panic!("it is there")
        };
        let pin = child.unhash(&mut lock).unwrap();
        drop((section, lock));
        drop(pin);
    });
    cost("new inode, alloc, free", 1_000_000, |_| {
        let mut new = root.alloc(&temporary).unwrap();
        new.instantiate(root.new_inode(made(S_IFREG), Content::Regular).unwrap());
        drop(new);
    });
    cost("new inode, free", 1_000_000, |_| {
        drop(root.new_inode(made(S_IFREG), Content::Regular).unwrap());
    });
    let (a, b) = (name(&vfs, "a"), name(&vfs, "b"));
    let moved = make(&root, "a");
    cost("rename in a directory", 1_000_000, |i| {
        let new = root.new_name(if i % 2 == 0 { &b } else { &a }).unwrap();
        let mut lock = root.inode().unwrap().lock();
        moved.rename(&mut Dirs::Same(&mut lock), &root, new, None).unwrap();
    });
}
