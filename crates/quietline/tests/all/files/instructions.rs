//! How many locked instructions each call executes on its fast path, and why not fewer. A locked
//! instruction is worth twenty plain ones, and one on a shared line far more.
//!
//! The restartable sequences of the per-CPU operations are counted as they are; where they are
//! replaced by the fallback, which locks, there is nothing to count.

use quietline::abi::*;
use quietline::{Config, Kernel, Process};
use quietline_count::{Counts, Error, count};
use quietline_platform::percpu::{Body, active};

/// Counts one run of `f` after some to warm up; none, said aloud, where that cannot be. Of two runs
/// in a row the cheaper one is told: in one of many runs a cache refills or flushes a sheaf, and
/// which one that is depends on the objects that the kernel has made before. A system that refuses
/// to trace is a failure where `QUIETLINE_REQUIRE_COUNTS` is 1.
fn counted(what: &str, mut f: impl FnMut()) -> Option<Counts> {
    if active() != Body::Rseq {
        eprintln!("not checked: per-CPU operations use the fallback");
        return None;
    }
    for _ in 0..100 {
        f();
    }
    let first = count(&mut f);
    // A counted run is a child's, which leaves nothing here.
    f();
    let second = first.is_ok().then(|| count(f)).and_then(Result::ok);
    let cheaper = |first: Counts| match second {
        Some(second) if second.locked < first.locked => second,
        _ => first,
    };
    match first.map(cheaper) {
        Ok(counts) => {
            println!("{what}: {} locked, {} instructions", counts.locked, counts.instructions);
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

/// That `f` executes `locked` locked instructions, no fence, and calls the host for nothing.
#[track_caller]
fn assert_locked(what: &str, locked: u64, f: impl FnMut()) {
    if let Some(counts) = counted(what, f) {
        assert_eq!(
            (counts.locked, counts.fences, counts.syscalls),
            (locked, 0, 0),
            "{what}: {counts}"
        );
    }
}

fn process() -> Process {
    Kernel::boot(Config::default()).unwrap().process().unwrap()
}

#[test]
fn socket_by_handle() {
    quietline_testing::isolated!();
    let p = process();
    // 1: the file's count goes to dead when the handle is dropped, unless somebody else took a
    // reference: a CAS, as
    //    anybody with the file may be counting at the time.
    assert_locked("socket_file and drop", 1, || {
        drop(p.socket_file(AF_INET, SOCK_STREAM, 0).unwrap())
    });
}

#[test]
fn socket_at_any_descriptor() {
    quietline_testing::isolated!();
    let p = process();
    // 1: the slot is emptied by a CAS: two threads may close one descriptor, and one must win.
    // 2: the file's count, as above.
    assert_locked("socket with O_ANYFD and close", 2, || {
        let fd = p.socket(AF_INET, SOCK_STREAM | O_ANYFD, 0).unwrap();
        p.close(fd).unwrap();
    });
}

#[test]
fn socket_at_the_lowest_descriptor() {
    quietline_testing::isolated!();
    let p = process();
    // 1: the table's lock, to take the lowest number. (Unlocking is a store.)
    // 2: the table's lock, to give it back.
    // 3: the file's count, as above.
    assert_locked("socket and close", 3, || {
        let fd = p.socket(AF_INET, SOCK_STREAM, 0).unwrap();
        p.close(fd).unwrap();
    });
}

#[test]
fn pipes() {
    quietline_testing::isolated!();
    let p = process();
    // 1, 2: each end's count. 3: the dentry has two references, and the first to go is given back
    // by a CAS; the second is then the only one, which nobody else can be counting. 4: the pipe's
    // lock, for the first to go tells the other.
    assert_locked("pipe_files and drop", 4, || drop(p.pipe_files(0).unwrap()));
    // 5, 6: two slots.
    assert_locked("pipe2 with O_ANYFD and two close", 6, || {
        p.pipe2(O_ANYFD).unwrap().into_iter().for_each(|fd| p.close(fd).unwrap());
    });
    // 5: the table's lock, once for both numbers. 6, 7: the lock, to give each back.
    assert_locked("pipe2 and two close", 7, || {
        p.pipe2(0).unwrap().into_iter().for_each(|fd| p.close(fd).unwrap());
    });
}

#[test]
fn bytes() {
    quietline_testing::isolated!();
    let p = process();
    let [reader, writer] = p.pipe2(0).unwrap();
    // 1, 2: the pipe's lock. No reference is taken to the file.
    assert_locked("write to a pipe and read", 2, || {
        assert_eq!(p.write(writer, b"x"), Ok(1));
        assert_eq!(p.read(reader, &mut [0]), Ok(1));
    });
    let event = p.eventfd(0, 0).unwrap();
    // 1, 2: the count.
    assert_locked("write to an eventfd and read", 2, || {
        assert_eq!(p.write(event, &[1, 0, 0, 0, 0, 0, 0, 0]), Ok(8));
        assert_eq!(p.read(event, &mut [0; 8]), Ok(8));
    });
}

#[test]
fn anonymous_descriptors() {
    quietline_testing::isolated!();
    let p = process();
    // As sockets.
    assert_locked("eventfd_file and drop", 1, || drop(p.eventfd_file(0, 0).unwrap()));
    assert_locked("eventfd with O_ANYFD and close", 2, || {
        p.close(p.eventfd(0, O_ANYFD).unwrap()).unwrap()
    });
    assert_locked("eventfd and close", 3, || p.close(p.eventfd(0, 0).unwrap()).unwrap());
    assert_locked("timerfd with O_ANYFD and close", 2, || {
        p.close(p.timerfd_create(CLOCK_MONOTONIC, O_ANYFD).unwrap()).unwrap();
    });
    // 3, 4: an owner of the process's signals, which the signalfd may outlive, begins and ends.
    assert_locked("signalfd with O_ANYFD and close", 4, || {
        p.close(p.signalfd(-1, 1, O_ANYFD).unwrap()).unwrap();
    });
}

#[test]
fn calls_on_descriptors() {
    quietline_testing::isolated!();
    let p = process();
    let fd = p.eventfd(0, 0).unwrap();
    // Looked at within a read section, which is two per-CPU additions; no reference is taken.
    assert_locked("fcntl F_GETFL", 0, || assert!(p.fcntl(fd, F_GETFL, 0).is_ok()));
    // A look at the slot.
    assert_locked("fcntl F_GETFD", 0, || assert!(p.fcntl(fd, F_GETFD, 0).is_ok()));
    // The file's count up, and down.
    assert_locked("file and drop", 2, || drop(p.file(fd)));
    // The file's count up, the lock for the number; the lock to give it back, the count down.
    assert_locked("dup and close", 4, || p.close(p.dup(fd).unwrap()).unwrap());
}

#[test]
fn calls_on_paths() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
    let p = kernel.process().unwrap();
    p.mkdir("/own", 0o755).unwrap();
    let create = |name: &str| p.open(name, O_CREAT | O_EXCL | O_RDWR, 0o644).unwrap();
    p.close(create("/own/a")).unwrap();
    assert_locked("stat", 0, || assert!(p.stat("/own/a").is_ok()));
    // The dentry's count up and down; the table's lock, twice; the file's count.
    assert_locked("open and close", 5, || p.close(p.open("/own/a", O_RDONLY, 0).unwrap()).unwrap());
    // The directory's lock, and nothing for its count, or for the new name's; the table's lock.
    // Closed: the table's lock, the file's count, the dentry's. Removed: the directory's lock; and
    // the dentry's, whose only reference was the directory's.
    assert_locked("create, close and unlink", 7, || {
        p.close(create("/own/new")).unwrap();
        p.unlink("/own/new").unwrap();
    });
    // The directory's lock, twice; that of the one that goes, and its dentry's.
    assert_locked("mkdir and rmdir", 4, || {
        p.mkdir("/own/new", 0o755).unwrap();
        p.rmdir("/own/new").unwrap();
    });
    // The directory's lock, the file's, and its count. Then the directory's lock, the dentry's, the
    // file's, and its count.
    assert_locked("link and unlink", 7, || {
        p.link("/own/a", "/own/b").unwrap();
        p.unlink("/own/b").unwrap();
    });
    p.mkdir("/other", 0o755).unwrap();
    // The directory's lock, and the file's: twice.
    assert_locked("rename in a directory and back", 4, || {
        p.rename("/own/a", "/own/b").unwrap();
        p.rename("/own/b", "/own/a").unwrap();
    });
    // Both directories' locks, and the file's: twice. No lock of renames.
    assert_locked("rename to another directory and back", 6, || {
        p.rename("/own/a", "/other/a").unwrap();
        p.rename("/other/a", "/own/a").unwrap();
    });
    // As above until it is closed: 5. The directory's lock, that of the file which is replaced, and
    // of the one which comes. The name that goes gets a reference to its directory, and is given
    // back with that: 3.
    p.close(create("/own/over")).unwrap();
    assert_locked("create, close and rename over", 11, || {
        p.close(create("/own/new")).unwrap();
        p.rename("/own/new", "/own/over").unwrap();
    });
}

/// A change of the attributes of a pipe executes as many instructions beside many pipes with
/// changed attributes as beside few.
#[test]
fn changed_attributes_beside_many_others() {
    quietline_testing::isolated!();
    let p = process();
    let change = || {
        let [reader, writer] = p.pipe2(O_ANYFD).unwrap();
        p.fchmod(reader, 0o640).unwrap();
        (reader, writer)
    };
    let costs = [10, 5_000].map(|n| {
        for _ in 0..n {
            change();
        }
        let what = format!("pipe, fchmod and close beside {n} pipes with changed attributes");
        // Four, because the position among the others is chance.
        let counts = counted(&what, || {
            let pipes: [_; 4] = std::array::from_fn(|_| change());
            for (reader, writer) in pipes {
                p.close(reader).unwrap();
                p.close(writer).unwrap();
            }
        })?;
        Some(counts.instructions)
    });
    let [Some(few), Some(many)] = costs else { return };
    assert!(many < few + few / 6, "{few} beside few, {many} beside many");
}
