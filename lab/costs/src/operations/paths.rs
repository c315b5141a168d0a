//! Files with names, by the depth of the path.

use crate::processes::in_process;
use crate::{Operation, Scene, Sharing};
use quietline::abi::{O_ANYFD, O_CREAT, O_EXCL, O_RDONLY, O_RDWR};
use quietline::{Errno, Process};

pub(super) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| Operation::new("paths", name, about, scene);
    vec![
        of("stat-1", "stat of a file in the root directory", stat::<1>),
        of("stat-3", "stat of a file, 3 names deep", stat::<3>),
        of("stat-8", "stat of a file, 8 names deep", stat::<8>),
        of("stat-missing-1", "stat of a missing name in the root directory", stat_missing::<1>),
        of("stat-missing-3", "stat of a missing name, 3 names deep", stat_missing::<3>),
        of("stat-missing-8", "stat of a missing name, 8 names deep", stat_missing::<8>),
        of("access-3", "access of a file, 3 names deep", access),
        of("fstat", "fstat", fstat),
        of("open-close-1", "open and close of a file in the root directory", open::<1, O_ANYFD>),
        of("open-close-3", "open and close of a file, 3 names deep", open::<3, O_ANYFD>),
        of("open-close-8", "open and close of a file, 8 names deep", open::<8, O_ANYFD>),
        of("open-close-3-lowest", "the same, 3 names deep, lowest descriptor", open::<3, 0>),
        of("open-missing-3", "open of a missing name, 3 names deep", open_missing),
        of("create-unlink-1", "create, close and unlink in the root directory", create::<1>),
        of("create-unlink-3", "create, close and unlink, 3 names deep", create::<3>),
        of("create-unlink-8", "create, close and unlink, 8 names deep", create::<8>),
        of("memfd", "memfd_create and close", memfd),
        of("rename-1", "rename in the root directory and back", rename::<1>),
        of("rename-3", "rename, 3 names deep, and back", rename::<3>),
        of("rename-8", "rename, 8 names deep, and back", rename::<8>),
        of("rename-across", "rename to another directory and back", rename_across),
        of("rename-over", "create, close and rename over a file, 3 names deep", rename_over),
    ]
}

/// Path of `depth` names, the first of which has the CPU's number in it.
fn path(depth: usize, cpu: usize) -> String {
    format!("/top-{cpu}") + &"/inner".repeat(depth - 1)
}

/// Makes the file at a path, with 8 bytes in it, and the directories above it. Returns the path.
pub(super) fn grow(process: &Process, depth: usize, cpu: usize) -> String {
    let file = path(depth, cpu);
    for (end, _) in file.match_indices('/').skip(1) {
        match process.mkdir(&file[..end], 0o755) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => panic!("mkdir {}: {error}", &file[..end]),
        }
    }
    let fd = process.open(&file, O_CREAT | O_RDWR, 0o644).expect("a file");
    assert_eq!(process.write(fd, b"contents"), Ok(8));
    process.close(fd).expect("it is open");
    file
}

/// Creates and closes a file that does not exist.
fn make(process: &Process, path: &str) {
    let flags = O_CREAT | O_EXCL | O_RDWR | O_ANYFD;
    let fd = process.open(path, flags, 0o644).expect("it is new");
    process.close(fd).expect("it is open");
}

fn stat<const DEPTH: usize>(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let file = grow(&process, DEPTH, cpu);
        Box::new(move || assert_eq!(process.stat(&file).expect("it exists").st_size, 8))
    })
}

fn stat_missing<const DEPTH: usize>(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let missing = grow(&process, DEPTH, cpu) + "-missing";
        Box::new(move || assert_eq!(process.stat(&missing).map(drop), Err(Errno::NOENT)))
    })
}

fn access(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let file = grow(&process, 3, cpu);
        Box::new(move || assert_eq!(process.access(&file, 4), Ok(())))
    })
}

fn fstat(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let file = grow(&process, 3, cpu);
        let fd = process.open(&file, O_RDONLY | O_ANYFD, 0).expect("it exists");
        Box::new(move || assert_eq!(process.fstat(fd).expect("it is open").st_size, 8))
    })
}

fn open<const DEPTH: usize, const FLAGS: i32>(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let file = grow(&process, DEPTH, cpu);
        Box::new(move || {
            let fd = process.open(&file, O_RDONLY | FLAGS, 0).expect("it exists");
            process.close(fd).expect("it is open");
        })
    })
}

fn open_missing(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let missing = grow(&process, 3, cpu) + "-missing";
        Box::new(move || assert_eq!(process.open(&missing, O_RDONLY, 0), Err(Errno::NOENT)))
    })
}

fn create<const DEPTH: usize>(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let new = grow(&process, DEPTH, cpu) + "-new";
        Box::new(move || {
            make(&process, &new);
            process.unlink(&new).expect("it exists");
        })
    })
}

fn memfd(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        Box::new(move || {
            let fd = process.memfd_create("memory", 0).expect("a file");
            process.close(fd).expect("it is open");
        })
    })
}

/// Scene that renames a file, and back.
fn there_and_back(sharing: Sharing, names: fn(&Process, usize) -> [String; 2]) -> Scene {
    in_process(sharing, move |process, cpu| {
        let [one, two] = names(&process, cpu);
        Box::new(move || {
            process.rename(&one, &two).expect("it exists");
            process.rename(&two, &one).expect("it exists");
        })
    })
}

fn rename<const DEPTH: usize>(sharing: Sharing) -> Scene {
    there_and_back(sharing, |process, cpu| {
        let file = grow(process, DEPTH, cpu);
        let other = file.clone() + "-other";
        [file, other]
    })
}

fn rename_across(sharing: Sharing) -> Scene {
    there_and_back(sharing, |process, cpu| {
        let file = grow(process, 3, cpu);
        let directory = format!("/other-{cpu}");
        process.mkdir(&directory, 0o755).expect("it is new");
        [file, directory + "/file"]
    })
}

fn rename_over(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let file = grow(&process, 3, cpu);
        let new = file.clone() + "-new";
        Box::new(move || {
            make(&process, &new);
            process.rename(&new, &file).expect("it exists");
        })
    })
}
