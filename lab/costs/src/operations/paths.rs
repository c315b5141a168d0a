//! Names in the tree.

use super::row;
use crate::processes::in_process;
use crate::{Operation, Scene, Sharing};
use quietline::abi::{O_CREAT, O_RDONLY, O_RDWR};
use quietline::{Errno, Process};

pub(crate) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| row("paths", name, about, scene);
    vec![
        of("stat-1", "stat of a file in the root directory", stat::<1>),
        of("stat-3", "stat of a file, 3 names deep", stat::<3>),
        of("stat-8", "stat of a file, 8 names deep", stat::<8>),
        of("open-close-3", "open and close of a file, 3 names deep", open::<3>),
    ]
}

/// Path of `DEPTH` names, the first of which has the CPU's number in it.
fn path<const DEPTH: usize>(cpu: usize) -> String {
    format!("/top-{cpu}") + &"/inner".repeat(DEPTH - 1)
}

/// Makes the file at the path, with 8 bytes in it, and the directories above it.
fn grow<const DEPTH: usize>(process: &Process, cpu: usize) -> String {
    let file = path::<DEPTH>(cpu);
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

fn stat<const DEPTH: usize>(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let file = grow::<DEPTH>(&process, cpu);
        Box::new(move || assert_eq!(process.stat(&file).expect("it is there").st_size, 8))
    })
}

fn open<const DEPTH: usize>(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let file = grow::<DEPTH>(&process, cpu);
        Box::new(move || {
            let fd = process.open(&file, O_RDONLY, 0).expect("it is there");
            process.close(fd).expect("it is open");
        })
    })
}
