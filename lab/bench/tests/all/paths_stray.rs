//! The host's column notices what is left behind. Alone in its program: it looks for the directory by the program's number.

use quietline_bench::adapters;
use quietline_bench::workloads::unlink::UNLINK;

/// What is left behind is found: a name that some other program made in the directory.
#[test]
fn a_host_arena_that_is_not_as_it_was_does_not_settle() {
    quietline_testing::isolated!();
    let case = &UNLINK.cases[0];
    let host =
        adapters::all().into_iter().find(|column| column.name() == "host" && column.does(case.job));
    let arena =
        host.expect("a column").open(case.job, 1).unwrap_or_else(|unfit| panic!("{unfit:?}"));
    assert_eq!(arena.settle(), Ok(()));
    let program = format!("quietline-bench-{}-", std::process::id());
    let worlds = || {
        std::fs::read_dir("/dev/shm").expect("a tmpfs").map(|entry| entry.expect("an entry").path())
    };
    let mine = |path: &std::path::PathBuf| {
        path.to_string_lossy().contains(&program) && path.join("dir-0").is_dir()
    };
    let found: Vec<_> = worlds().filter(mine).collect();
    assert!(!found.is_empty());
    for world in &found {
        std::fs::write(world.join("stray"), b"").expect("a new file");
    }
    let fault = arena.settle().map_err(|fault| fault.to_string());
    for world in &found {
        std::fs::remove_file(world.join("stray")).expect("it is there");
    }
    assert!(fault.is_err_and(|text| text.contains("not as at the start")));
    assert_eq!(arena.settle(), Ok(()));
}
