//! What a name and a file cost, in memory that is resident, and that all of it is given back.

use crate::support::{alone, pages_used, resident};
use quietline::abi::*;
use quietline::{Config, Kernel, Process};

/// Bytes: in slabs of dentries and inodes, in all pages, on the heap, resident.
#[derive(Debug, Clone, Copy)]
struct Held {
    dentries: usize,
    inodes: usize,
    pages: usize,
    heap: isize,
    resident: usize,
}

fn held(p: &Process) -> Held {
    p.kernel().shrink();
    let of = |name: &str| {
        let info = p.kernel().slabinfo();
        let stats = info.iter().find(|stats| stats.name == name).expect("a cache of this name");
        stats.slabs * stats.slab_size
    };
    let (dentries, inodes) = (of("dentry"), of("inode_cache"));
    Held {
        dentries,
        inodes,
        pages: pages_used(),
        heap: quietline_testing::heap::bytes(),
        resident: resident(),
    }
}

impl Held {
    /// For each of `n`, what is held more than before.
    fn since(self, before: Self, n: usize) -> [f64; 5] {
        [
            self.dentries as f64 - before.dentries as f64,
            self.inodes as f64 - before.inodes as f64,
            self.pages as f64 - before.pages as f64,
            (self.heap - before.heap) as f64,
            self.resident as f64 - before.resident as f64,
        ]
        .map(|bytes| bytes / n as f64)
    }
}

const MANY: usize = 200_000;

#[test]
fn what_names_and_files_cost() {
    quietline_testing::isolated!();
    quietline_testing::heap::start();
    let _alone = alone();
    let nothing = pages_used();
    let p = Kernel::boot(Config::default()).unwrap().process().unwrap();
    let made = |dir: &str, make: &dyn Fn(&str)| {
        p.mkdir(dir, 0o755).unwrap();
        let fd = p.open(dir, O_RDONLY | O_DIRECTORY, 0).unwrap();
        p.fchdir(fd).unwrap();
        p.close(fd).unwrap();
        let before = held(&p);
        (0..MANY).for_each(|n| make(&n.to_string()));
        held(&p).since(before, MANY)
    };
    let gone = |dir: &str| {
        let before = held(&p);
        (0..MANY).for_each(|n| p.unlink(n.to_string()).unwrap());
        p.chdir("/").unwrap();
        p.rmdir(dir).unwrap();
        held(&p).since(before, MANY)
    };
    p.close(p.creat("/target", 0o600).unwrap()).unwrap();
    let show = |what: &str, [dentries, inodes, pages, heap, resident]: [f64; 5]| {
        println!(
            "{what}: {dentries:.1} bytes of dentries, {inodes:.1} of inodes, {pages:.1} in pages, {heap:.1} on the heap; \
             {resident:.1} resident"
        );
    };
    let name = made("/names", &|name| p.link("/target", name).unwrap());
    show("a name", name);
    let no_name = gone("/names");
    show("a name that is gone", no_name);
    let file = made("/files", &|name| p.mknod(name, S_IFREG | 0o600, 0).unwrap());
    show("a file", file);
    let no_file = gone("/files");
    show("a file that is gone", no_file);
    let dir = made("/dirs", &|name| p.mkdir(name, 0o700).unwrap());
    show("a directory", dir);
    (0..MANY).for_each(|n| p.rmdir(n.to_string()).unwrap());
    p.chdir("/").unwrap();

    // A dentry has 128 bytes, of which a slab loses few; its place in the table 8 to 16; in the list some 20.
    assert!((128.0..134.0).contains(&name[0]), "{name:?}");
    assert!(name[1] < 0.1 && name[0] + name[3] < 180.0 && name[4] < 200.0, "{name:?}");
    assert!((128.0..134.0).contains(&file[0]) && (192.0..340.0).contains(&file[1]), "{file:?}");
    assert!(file[4] < 560.0, "{file:?}");
    // What goes gives it back.
    assert!(
        -no_name[2] > 0.99 * name[2] && -no_file[2] > 0.99 * file[2],
        "{no_name:?} {no_file:?}"
    );
    assert!(-no_name[4] > 0.9 * name[0], "{no_name:?}");
    assert!(-no_file[4] > 0.9 * (file[0] + file[1]), "{no_file:?}");
    drop(p);
    assert_eq!(pages_used(), nothing);
}
