//! Directories, links, and metadata by name.

use crate::operations::paths::grow;
use crate::processes::in_process;
use crate::{Operation, Scene, Sharing};
use quietline::Process;
use quietline::abi::{O_ANYFD, O_RDONLY};

pub(super) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| Operation::new("directories", name, about, scene);
    vec![
        of("mkdir-rmdir", "mkdir and rmdir, 3 names deep", mkdir),
        of("link-unlink", "link of a file and unlink, 3 names deep", link),
        of("symlink-unlink", "symlink and unlink, 3 names deep", symlink),
        of("readlink", "readlink of a symbolic link, 3 names deep", readlink),
        of("stat-symlink", "stat through a symbolic link, 3 names deep", stat_symlink),
        of("getdents-16", "lseek and getdents64 of a directory with 16 files", getdents),
        of("chdir", "chdir, 2 names deep", chdir),
        of("chmod", "chmod of a file, 3 names deep", chmod),
        of("truncate", "ftruncate to the size that the file has", truncate),
    ]
}

/// Scene of an operation that is given a path beside a file of the CPU's own.
fn beside(sharing: Sharing, prepare: fn(&Process, &str), operation: fn(&Process, &str)) -> Scene {
    in_process(sharing, move |process, cpu| {
        let path = grow(&process, 3, cpu) + "-new";
        prepare(&process, &path);
        Box::new(move || operation(&process, &path))
    })
}

/// Path of the file that a path lies beside.
fn file(path: &str) -> &str {
    path.strip_suffix("-new").expect("`beside` appends it")
}

fn mkdir(sharing: Sharing) -> Scene {
    beside(
        sharing,
        |_, _| (),
        |process, path| {
            process.mkdir(path, 0o755).expect("it is new");
            process.rmdir(path).expect("it is empty");
        },
    )
}

fn link(sharing: Sharing) -> Scene {
    beside(
        sharing,
        |_, _| (),
        |process, path| {
            process.link(file(path), path).expect("it is new");
            process.unlink(path).expect("it exists");
        },
    )
}

fn symlink(sharing: Sharing) -> Scene {
    beside(
        sharing,
        |_, _| (),
        |process, path| {
            process.symlink("inner", path).expect("it is new");
            process.unlink(path).expect("it exists");
        },
    )
}

fn prepare_symlink(process: &Process, path: &str) {
    process.symlink("inner", path).expect("it is new");
}

fn readlink(sharing: Sharing) -> Scene {
    beside(sharing, prepare_symlink, |process, path| {
        let mut target = [0; 64];
        assert_eq!(process.readlink(path, &mut target), Ok(5));
    })
}

fn stat_symlink(sharing: Sharing) -> Scene {
    beside(sharing, prepare_symlink, |process, path| {
        assert_eq!(process.stat(path).expect("it exists").st_size, 8);
    })
}

fn getdents(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let directory = format!("/many-{cpu}");
        process.mkdir(&directory, 0o755).expect("it is new");
        for n in 0..16 {
            let path = format!("{directory}/{n:02}");
            process.close(process.creat(&path, 0o644).expect("a file")).expect("it is open");
        }
        let fd = process.open(&directory, O_RDONLY | O_ANYFD, 0).expect("it exists");
        let mut entries = [0; 4096];
        Box::new(move || {
            assert_eq!(process.lseek(fd, 0, 0), Ok(0));
            // Entries of 24 bytes: 16 files, and the two dots.
            assert_eq!(process.getdents64(fd, &mut entries), Ok(18 * 24));
        })
    })
}

fn chdir(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let file = grow(&process, 3, cpu);
        let directory = file.strip_suffix("/inner").expect("there are 3 names").to_owned();
        Box::new(move || process.chdir(&directory).expect("it exists"))
    })
}

fn chmod(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let file = grow(&process, 3, cpu);
        Box::new(move || process.chmod(&file, 0o644).expect("it exists"))
    })
}

fn truncate(sharing: Sharing) -> Scene {
    in_process(sharing, |process, cpu| {
        let file = grow(&process, 3, cpu);
        let fd = process.open(&file, quietline::abi::O_RDWR | O_ANYFD, 0).expect("it exists");
        Box::new(move || process.ftruncate(fd, 8).expect("it is open"))
    })
}
