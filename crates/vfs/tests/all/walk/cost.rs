//! What a walk by RCU executes: no locked instruction, no fence, no call of the host; and how long
//! it takes.

use crate::walk::support::{World, mount, vfs};
use quietline_vfs::{How, Lookup};
use std::hint::black_box;
use std::time::Instant;

const PATHS: [&str; 6] =
    ["/one", "/one/two/three", "/one/two/three/4/5/6/7/8", "three/4", "/link/three", "/mnt/f"];

fn world(vfs: &quietline_vfs::Vfs) -> World<'_> {
    let w = World::with(
        vfs,
        &[
            "one/",
            "one/two/",
            "one/two/three/",
            "one/two/three/4/",
            "one/two/three/4/5/",
            "one/two/three/4/5/6/",
        ],
    );
    ["one/two/three/4/5/6/7/", "one/two/three/4/5/6/7/8", "link -> one/two", "mnt/"]
        .iter()
        .for_each(|what| w.make(what));
    w.ns.attach(mount(vfs, 2), w.path("mnt")).unwrap();
    w.make("mnt/f");
    w.fs.set_pwd(w.path("/one/two"));
    w
}

#[cfg(target_arch = "x86_64")]
#[test]
fn no_locked_instructions() {
    quietline_testing::isolated!();
    use quietline_count::{Error, count};
    use quietline_platform::percpu::{Body, active};
    if active() != Body::Rseq {
        eprintln!("not checked: per-CPU operations use the fallback");
        return;
    }
    let vfs = vfs();
    let w = world(&vfs);
    let counted = |what: &str, locked: u64, mut f: Box<dyn FnMut() + '_>| {
        (0..100).for_each(|_| f());
        match count(f) {
            Ok(counts) => {
                println!("{what}: {} locked, {} instructions", counts.locked, counts.instructions);
                assert_eq!(
                    (counts.locked, counts.fences, counts.syscalls),
                    (locked, 0, 0),
                    "{what}: {counts}"
                );
            }
            Err(Error::Refused(e)) => {
                let required =
                    std::env::var_os("QUIETLINE_REQUIRE_COUNTS").is_some_and(|v| v == "1");
                assert!(
                    !required,
                    "counting is required here, but this system refuses to trace: {e}"
                );
                eprintln!("not checked: this system refuses to trace: {e}");
            }
            Err(e) => panic!("{e}"),
        }
    };
    for path in PATHS {
        let how = How::of(Lookup::FOLLOW);
        counted(
            path,
            0,
            Box::new(|| {
                w.vfs
                    .look(&w.start(), black_box(path.as_bytes()), how, &w.cred, |found| {
                        found.inode().ino()
                    })
                    .unwrap();
            }),
        );
    }
    counted(
        "no such name",
        0,
        Box::new(|| {
            w.vfs
                .look(&w.start(), black_box(b"/one/nothing"), How::FOLLOW, &w.cred, |_| ())
                .unwrap_err();
        }),
    );
    // 1: the dentry's count up. 2: and down. The mount's are additions to the CPU's words.
    counted(
        "path and drop",
        2,
        Box::new(|| {
            drop(
                w.vfs.path(&w.start(), black_box(b"/one/two/three"), How::FOLLOW, &w.cred).unwrap(),
            );
        }),
    );
}

/// Prints; asserts only that two threads find what one finds.
#[test]
fn times() {
    quietline_testing::isolated!();
    let vfs = vfs();
    let w = world(&vfs);
    let rounds: u32 = if cfg!(debug_assertions) { 20_000 } else { 500_000 };
    let per_op = |path: &str| {
        let expected = w.ino(path).unwrap();
        let mut best = f64::MAX;
        for _ in 0..9 {
            let began = Instant::now();
            for _ in 0..rounds {
                let path = black_box(path.as_bytes());
                let ino =
                    w.vfs.look(&w.start(), path, How::FOLLOW, &w.cred, |found| found.inode().ino());
                assert_eq!(ino, Ok(expected));
            }
            best = best.min(began.elapsed().as_nanos() as f64 / f64::from(rounds));
        }
        best
    };
    for path in PATHS {
        let one = per_op(path);
        let two = std::thread::scope(|s| {
            let both = [(); 2].map(|()| s.spawn(|| per_op(path)));
            both.map(|thread| thread.join().unwrap())
        });
        println!("{path}: {one:.1} ns; two threads: {:.1} and {:.1} ns", two[0], two[1]);
    }
    let mut best = f64::MAX;
    for _ in 0..9 {
        let began = Instant::now();
        for _ in 0..rounds {
            let path = black_box(b"/one/two/three");
            drop(w.vfs.path_by_reference(&w.start(), path, How::FOLLOW, &w.cred).unwrap());
        }
        best = best.min(began.elapsed().as_nanos() as f64 / f64::from(rounds));
    }
    println!("/one/two/three by reference: {best:.1} ns");
}
