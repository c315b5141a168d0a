//! Names in the tree, and what they stand for: looked up, opened, made and removed by each CPU in a process of its own.

use crate::operation::{Allowance, Operation, Period, Scene, Worker};
use crate::slab::RCU_LINES;
use quietline::abi::{O_CREAT, O_RDWR};
use quietline::{Config, Errno, Kernel, Process};
use quietline_costs::Sharing;

pub(crate) fn operations() -> Vec<Operation> {
    let own =
        |name, ledger| Operation::of_ledger(name, ledger, Sharing::OwnProcesses, Allowance::Never);
    let shared = |name, says, depth, operation: fn(Process, Tree) -> Worker| {
        Operation::new(name, says, Allowance::Never, move |_| scene(depth, operation))
    };
    vec![
        own("stat-1", "stat-1"),
        own("stat-3", "stat-3"),
        own("stat-8", "stat-8"),
        shared("stat-shared-1", "stat of one file in the root directory, by all", 1, stat),
        shared("stat-shared-3", "stat of one file by all, 3 names deep", 3, stat),
        shared("stat-shared-8", "stat of one file by all, 8 names deep", 8, stat),
        shared("stat-missing", "stat of a name that is not there, by all", 3, stat_missing),
        own("open", "open-close-3-lowest"),
        own("pread", "pread-1"),
        own("fstat", "fstat"),
        Operation {
            allowance: Allowance::Batch {
                lines: RCU_LINES,
                ops: 1.0 / (1.0 / DENTRIES + 1.0 / INODES),
                says: "13 of cache and domain, for 512 dentries and for 204 inodes",
            },
            period: Period::Graces,
            ..own("create", "create-unlink-3")
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
    /// The file's path has `depth` names.
    fn new(depth: usize) -> Self {
        let names = |n: usize| "/top".to_owned() + &"/inner".repeat(n - 1);
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

fn scene(depth: usize, operation: fn(Process, Tree) -> Worker) -> Scene {
    let kernel = Kernel::boot(Config::default()).expect("a kernel");
    Box::new(move |_| {
        let (process, tree) = (kernel.process().expect("a process"), Tree::new(depth));
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
