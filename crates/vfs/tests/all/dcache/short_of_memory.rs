//! References that are put while there is no memory, also inside a section: nobody waits, and nothing is lost.

use crate::dcache::support::*;
use quietline_platform::fault;
use quietline_slab::LazyCache;
use quietline_vfs::abi::S_IFREG;
use quietline_vfs::{Content, DentryRef};

const MANY: usize = 6000;

/// Dentries in no directory, some with names that do not fit, each with an inode.
fn crowd<'k>(root: &DentryRef<'k>) -> Vec<DentryRef<'k>> {
    let one = |n: usize| {
        let called = match n % 3 {
            0 => format!("{n}"),
            1 => format!("{n:0>40}"),
            _ => format!("{n:0>200}"),
        };
        let mut new = root.alloc(&name(root.vfs(), &called)).unwrap();
        new.instantiate(root.new_inode(made(S_IFREG | 0o644), Content::Regular).unwrap());
        new.into_unhashed()
    };
    (0..MANY).map(one).collect()
}

/// The section keeps every grace period from ending, and there is no memory to wait in: so a put that waited would never
/// return.
#[test]
fn a_put_inside_a_section_waits_for_nobody() {
    quietline_testing::isolated!();
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    for _ in 0..2 {
        let dentries = crowd(&root);
        let inodes: Vec<_> =
            dentries.iter().step_by(2).map(|dentry| dentry.inode_ref().unwrap()).collect();
        let section = vfs.read();
        fault::fail_from(1);
        drop(dentries);
        drop(inodes);
        fault::fail_nth(0);
        drop(section);
        assert_only_roots(&vfs, 1);
    }
    vfs.shrink();
    for stats in vfs.caches().map(LazyCache::stats) {
        assert!(stats.active == 0 && stats.waiting == 0, "{stats:?}");
    }
}

/// One shrink gives everything back that can be: chains of directories that nobody refers to, whatever chances they have, and
/// the memory of all of them.
#[test]
fn one_shrink_is_enough() {
    quietline_testing::isolated!();
    let vfs = vfs();
    let sb = filesystem(&vfs);
    let root = sb.root();
    for chain in 0..50 {
        let mut at = root.clone();
        for depth in 0..20 {
            at = make_unpinned(&at, &format!("{chain}.{depth}"), true);
        }
    }
    for _ in 0..2 {
        // A second chance for the first of each.
        (0..50).for_each(|chain| drop(root.lookup(&name(&vfs, &format!("{chain}.0"))).unwrap()));
    }
    assert_eq!(vfs.dentry_state().nr_dentry, 1001);
    assert_eq!(vfs.shrink(), 1000);
    assert_only_roots(&vfs, 1);
    for stats in vfs.caches().map(LazyCache::stats) {
        assert!(stats.active == 0 && stats.waiting == 0 && stats.slabs == 0, "{stats:?}");
    }
}
