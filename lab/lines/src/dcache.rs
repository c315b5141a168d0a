//! References to dentries: to one that all CPUs use, as 3.10 counted them, as the patch of 2013 did, and ours; and to own ones.

use crate::operation::{Allowance, Operation, Period, Scene};
use quietline_history::dentry_count::{CountWay, Forest, Put};
use quietline_vfs::abi::{S_IFDIR, Timespec};
use quietline_vfs::{Content, DentryRef, NewInode, Plain, Vfs};
use std::sync::Arc;

pub(crate) fn operations() -> Vec<Operation> {
    let of = |name, says, allowance, scene: fn() -> Scene| Operation {
        period: Period::Short,
        ..Operation::new(name, says, allowance, move |_| scene())
    };
    let (any, never) = (Allowance::Any, Allowance::Never);
    vec![
        of("dentry", "dget and dput of an own dentry", never, own),
        of("dentry-shared", "dget and dput of one dentry by all", any, shared),
        of("history-dentry-d_lock", "the same as in Linux 3.10-rc1", any, || {
            history(CountWay::DLock)
        }),
        of("history-dentry-cmpxchg", "the same with the patch of 2013", any, || {
            history(CountWay::Cmpxchg)
        }),
        of(
            "history-dentry-d_lock-own",
            "dget and dput of an own dentry as in Linux 3.10-rc1",
            any,
            || history_own(CountWay::DLock),
        ),
    ]
}

/// The root directory of a filesystem of its own, for ever: references to it have no end of their own.
fn dentry() -> DentryRef<'static> {
    let vfs: &'static Vfs = Box::leak(Box::new(Vfs::new().expect("memory for it")));
    let time = Timespec { tv_sec: 0, tv_nsec: 0 };
    let root = NewInode { mode: S_IFDIR | 0o755, uid: 0, gid: 0, rdev: 0, nlink: 2, time };
    let sb = vfs
        .new_super("lines", 1, Box::new(Plain), root, Content::Directory)
        .expect("memory for it");
    let root = sb.root();
    // Whatever drops it ends the filesystem.
    Box::leak(Box::new(sb));
    root
}

fn own() -> Scene {
    Box::new(|_| {
        let dentry = dentry();
        Box::new(move || drop(dentry.clone()))
    })
}

fn shared() -> Scene {
    let dentry = dentry();
    Box::new(move |_| {
        let dentry = dentry.clone();
        Box::new(move || drop(dentry.clone()))
    })
}

fn forest(way: CountWay) -> Arc<Forest> {
    let forest = Arc::new(Forest::new(way, 1).expect("a dentry"));
    // A directory with some children: the patch goes without the lock only above 2.
    (0..3).for_each(|_| forest.dget(0));
    forest
}

fn get_and_put(forest: Arc<Forest>) -> Box<dyn FnMut()> {
    Box::new(move || {
        forest.dget(0);
        assert_eq!(forest.dput(0), Put::Used);
    })
}

fn history(way: CountWay) -> Scene {
    let forest = forest(way);
    Box::new(move |_| get_and_put(Arc::clone(&forest)))
}

fn history_own(way: CountWay) -> Scene {
    Box::new(move |_| get_and_put(forest(way)))
}
