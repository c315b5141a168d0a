//! Each check of the hostile guest reports the faults that are planted for it.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Runs the program with a planted fault. Returns what it prints.
fn run(plant: &str, arguments: &[&str]) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_hostile"));
    program.args(["--plant", plant, "--quiet", "--threads", "2", "--patience", "3", "--cpu", "3"]);
    if !arguments.contains(&"--calls") {
        program.args(["--calls", "3000"]);
    }
    program.args(["--rounds", "1"]).args(arguments);
    let path = format!("{}/planted-{plant}", env!("CARGO_TARGET_TMPDIR"));
    let file = File::create(&path).unwrap();
    program.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    let mut child = program.spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(300) {
            child.kill().unwrap();
            panic!("the run with the fault {plant} does not end");
        }
        thread::sleep(Duration::from_millis(20));
    }
    let status = child.wait().unwrap();
    let said = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
    assert_eq!(status.code(), Some(1), "the run finds the fault {plant}: {said}");
    said
}

/// Checks that the program reports a planted fault, with each of these texts, and how to repeat the
/// round.
fn reports(plant: &str, arguments: &[&str], texts: &[&str]) {
    let said = run(plant, arguments);
    println!("{plant}:\n{said}");
    for text in texts.iter().copied().chain(["repeat this with --seed 1 --threads 2 --calls"]) {
        assert!(said.contains(text), "{plant}: no {text:?} in:\n{said}");
    }
}

/// The runs go side by side: each waits for seconds.
#[test]
fn calls_and_ends_that_an_interrupt_does_not_end() {
    let text = "an interrupt does not end a call";
    let plants: [(&str, &[&str], &[&str]); 5] = [
        ("deaf-sleep", &[], &[text, "sleeping", "in planted_deaf_sleep()"]),
        ("deaf-loop", &["--patience", "60"], &[text, "in planted_deaf_loop()"]),
        ("deadlock", &[], &[text, "in planted_deadlock()"]),
        ("self-deadlock", &[], &[text, "in planted_self_deadlock()"]),
        ("deaf-end", &[], &[text, "in the end of a process"]),
    ];
    thread::scope(|scope| {
        for (plant, arguments, texts) in plants {
            scope.spawn(move || reports(plant, arguments, texts));
        }
    });
}

/// Locks are measured with the feature `lock-times` alone (`.ci/fuzz`).
#[cfg(feature = "lock-times")]
#[test]
fn a_lock_that_is_held_for_long() {
    let texts = ["a lock is held beyond 20ms", "calls/planted.rs"];
    reports("long-hold", &[], &texts);
}

#[test]
fn answers_that_no_kernel_gives() {
    let texts = ["a call panics", "a planted panic", "planted_panic() = ..."];
    reports("panic", &[], &texts);
    reports("too-many", &[], &["a call returns 11 where 10 is the most", "planted_too_many()"]);
    reports("high-descriptor", &[], &["a call returns the descriptor 72"]);
    reports("strange-error", &[], &["a call fails with the error 512"]);
    let texts = ["calls never succeed: ", "planted_never_succeeds"];
    reports("never-succeeds", &["--complete", "5000"], &texts);
}

#[test]
fn leaks_of_memory() {
    let rounds = ["--rounds", "8", "--calls", "1000"];
    reports("heap-leak", &rounds, &["the heap has grown from"]);
    // What the threads do when the memory is measured is chance.
    reports("memory", &["--memory", "300"], &["MiB of memory are in use"]);
    let texts = ["something is left at the end of a round", "pipe_page: "];
    reports("object-leak", &[], &texts);
    let texts = ["something is left at the end of a round", "processes are left: ["];
    reports("process-leak", &[], &texts);
}

#[test]
fn leaks_of_descriptors_and_names() {
    let left = "something is left at the end of a round";
    let files = "files are open after the last process has ended";
    reports("file-leak", &[], &[left, files]);
    reports("descriptor", &[], &[left, "has descriptors when all are closed: Ok([0])"]);
    reports("reserved", &[], &[left, "opens 71 of 72 descriptors"]);
    reports("pid", &[], &[left, "processes are left: ["]);
    reports("port", &[], &[left, "port 2001 of TCP, family 2 cannot be bound: Address already"]);
    reports("ephemeral-port", &[], &[left, "port 40001 of TCP, family 2 cannot be bound"]);
    reports("socket-name", &[], &[left, "the local name 2 of type 2 cannot be bound"]);
    // Without privileges, the supervisor cannot unmount a file system of the guest, which may
    // answer a listing with an error of its own.
    let said = run("tree", &[]);
    let errors = ["Permission denied", "Input/output error"];
    let told = errors.iter().any(|error| said.contains(error));
    assert!(said.contains(left) && told, "{said}");
}

#[test]
fn leaks_of_counts() {
    let left = "something is left at the end of a round";
    reports("instance-count", &[], &[left, "user 1000 has no 2 inotify instances: [Ok(()), Err("]);
    reports("watch-count", &[], &[left, "user 1000 has no 2 inotify watches: [Ok(()), Err("]);
    reports("epoll-count", &[], &[left, "user 1000 has no 2 watches of epolls: [Ok(()), Err("]);
    reports("flight-count", &[], &[left, "user 1000 cannot send a file"]);
    reports(
        "inode-count",
        &[],
        &[left, "inodes of the root file system, at once: 2, and 1 without"],
    );
    reports(
        "page-count",
        &[],
        &[left, "blocks of the root file system, at once: 1, and 0 without"],
    );
}

#[test]
fn answers_of_success_with_what_is_another_users() {
    let text = "is a file of user 4242: /v/SECRET-of-user-4242";
    reports("stolen-file", &[], &["a call panics", text, "planted_stolen_file() = ..."]);
    let text = "a call returns bytes of user 4242";
    reports("stolen-bytes", &[], &["a call panics", text, "planted_stolen_bytes() = ..."]);
    let text = "a call on a path of user 4242 succeeds";
    // So many calls that one of another user's path is drawn.
    reports("stolen-path", &["--calls", "12000"], &["a call panics", text, "planted_stolen_path("]);
    reports("defaced", &[], &["a call panics", "the file of user 4242 is changed", "victim("]);
}
