//! A process of the host's own for a test, in which all signals are blocked in all threads, from the first one on: what is sent
//! to it waits until the test reads it.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const NAME: &str = "QUIETLINE_TIMERS_CHILD";

/// Runs a test in a process of its own, and says so; not in there.
#[track_caller]
pub(crate) fn elsewhere(test: &str) -> bool {
    if std::env::var_os(NAME).is_some() {
        watch();
        return false;
    }
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(NAME, "1");
    // SAFETY: both calls may be made between fork and exec, and pass nothing that goes away.
    unsafe {
        child.pre_exec(|| {
            let all = u64::MAX;
            let none = std::ptr::null_mut::<u64>();
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const all,
                none,
                8usize,
            );
            // It does not obey any other signal, and is not to be left behind.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    child.stderr(Stdio::inherit());
    let output = child.output().expect("it runs");
    assert!(output.status.success(), "{test}, in a process of its own: {}", output.status);
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{test} is a test");
    true
}

/// The program that runs, and its call.
static RUNS: AtomicU64 = AtomicU64::new(0);
static CALL: AtomicUsize = AtomicUsize::new(0);

/// Says which program begins.
pub(crate) fn begins(seed: u64) {
    RUNS.store(seed, Ordering::Relaxed);
}

/// Says which call of it is made next.
pub(crate) fn at(call: usize) {
    CALL.store(call, Ordering::Relaxed);
}

/// Ends the process when a program hangs.
fn watch() {
    std::thread::spawn(|| {
        let (mut last, mut since) = ((u64::MAX, 0), Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = (RUNS.load(Ordering::Relaxed), CALL.load(Ordering::Relaxed));
            if now != last {
                (last, since) = (now, Instant::now());
            } else if now.0 != 0 && since.elapsed() > Duration::from_secs(180) {
                eprintln!("seed {} hangs at call {}", now.0, now.1);
                let program = crate::timers::generate::program(now.0);
                program.iter().take(now.1 + 1).for_each(|call| eprintln!("    {call:?}"));
                std::process::abort();
            }
        }
    });
}
