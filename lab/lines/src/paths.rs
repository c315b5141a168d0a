//! Names in the tree, and what they stand for: looked up, opened, made and removed by each CPU in a process of its own.

use crate::operation::{Allowance, Operation, Period, Scene, Worker};
use crate::slab::RCU_LINES;
use quietline::abi::{O_CREAT, O_EXCL, O_RDONLY, O_RDWR};
use quietline::{Config, Errno, Kernel, Process};

pub(crate) fn operations() -> Vec<Operation> {
    let quiet = |name, says, at: fn(usize) -> Tree, operation: fn(Process, Tree) -> Worker| {
        Operation::new(name, says, Allowance::Never, move |_| scene(at, operation))
    };
    vec![
        quiet("stat-1", "stat of an own file in the root directory", |cpu| Tree::new(cpu, 1), stat),
        quiet("stat-3", "stat of an own file, 3 names deep", |cpu| Tree::new(cpu, 3), stat),
        quiet("stat-8", "stat of an own file, 8 names deep", |cpu| Tree::new(cpu, 8), stat),
        quiet(
            "stat-shared-1",
            "stat of one file in the root directory, by all",
            |_| Tree::new(0, 1),
            stat,
        ),
        quiet("stat-shared-3", "stat of one file by all, 3 names deep", |_| Tree::new(0, 3), stat),
        quiet("stat-shared-8", "stat of one file by all, 8 names deep", |_| Tree::new(0, 8), stat),
        quiet(
            "stat-missing",
            "stat of a name that is not there, by all",
            |_| Tree::new(0, 3),
            stat_missing,
        ),
        quiet("open", "open and close of an own file, 3 names deep", |cpu| Tree::new(cpu, 3), open),
        quiet("pread", "8 bytes read of an own file", |cpu| Tree::new(cpu, 3), pread),
        quiet("fstat", "fstat of an own file", |cpu| Tree::new(cpu, 3), fstat),
        Operation {
            allowance: Allowance::Batch {
                lines: RCU_LINES,
                ops: 1.0 / (1.0 / DENTRIES + 1.0 / INODES),
                says: "13 of cache and domain, for 512 dentries and for 204 inodes",
            },
            period: Period::Graces,
            ..quiet(
                "create",
                "a file made, closed and removed in an own directory",
                |cpu| Tree::new(cpu, 3),
                create,
            )
        },
    ]
}

/// Dentries that wait for a grace period together, and inodes.
const DENTRIES: f64 = 512.0;
const INODES: f64 = 204.0;

/// Directories that lie in each other, and a file in the last.
struct Tree {
    directories: Vec<String>,
    file: String,
}

impl Tree {
    /// The file's path has `depth` names, the first of which has a number in it.
    fn new(number: usize, depth: usize) -> Self {
        let names = |n: usize| format!("/top-{number}") + &"/inner".repeat(n - 1);
        Self { directories: (1..depth).map(names).collect(), file: names(depth) }
    }

    fn directory(&self) -> &str {
        self.directories.last().expect("the file is below a directory")
    }

    /// Makes what is not there.
    fn grow(&self, process: &Process) {
        for directory in &self.directories {
            match process.mkdir(directory, 0o755) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => panic!("mkdir {directory}: {error}"),
            }
        }
        let fd = process.open(&self.file, O_CREAT | O_RDWR, 0o644).expect("a file");
        assert_eq!(process.write(fd, b"contents"), Ok(8));
        process.close(fd).expect("it is open");
    }
}

fn scene(at: fn(usize) -> Tree, operation: fn(Process, Tree) -> Worker) -> Scene {
    let kernel = Kernel::boot(Config::default()).expect("a kernel");
    Box::new(move |cpu| {
        let (process, tree) = (kernel.process().expect("a process"), at(cpu));
        tree.grow(&process);
        operation(process, tree)
    })
}

fn stat(process: Process, tree: Tree) -> Worker {
    Box::new(move || assert_eq!(process.stat(&tree.file).expect("it is there").st_size, 8))
}

fn stat_missing(process: Process, tree: Tree) -> Worker {
    let missing = format!("{}/missing", tree.directory());
    Box::new(move || assert_eq!(process.stat(&missing).map(drop), Err(Errno::NOENT)))
}

fn open(process: Process, tree: Tree) -> Worker {
    Box::new(move || {
        let fd = process.open(&tree.file, O_RDONLY, 0).expect("it is there");
        process.close(fd).expect("it is open");
    })
}

fn pread(process: Process, tree: Tree) -> Worker {
    let fd = process.open(&tree.file, O_RDONLY, 0).expect("it is there");
    Box::new(move || {
        let mut bytes = [0; 8];
        assert_eq!(process.pread(fd, &mut bytes, 0), Ok(8));
        assert_eq!(&bytes, b"contents");
    })
}

fn fstat(process: Process, tree: Tree) -> Worker {
    let fd = process.open(&tree.file, O_RDONLY, 0).expect("it is there");
    Box::new(move || assert_eq!(process.fstat(fd).expect("it is open").st_size, 8))
}

fn create(process: Process, tree: Tree) -> Worker {
    let new = format!("{}/new", tree.directory());
    Box::new(move || {
        let fd = process.open(&new, O_CREAT | O_EXCL | O_RDWR, 0o644).expect("it is not there yet");
        process.close(fd).expect("it is open");
        process.unlink(&new).expect("it is there");
    })
}
