//! Tests in processes of their own.
//!
//! The crates `rusty-fork` and `test-fork` do the same. Both count a child that ran no test as a
//! success, and their command-line filter produces such a child: the flag after `--nocapture` is
//! dropped, so `--nocapture --ignored` passes without running anything. A child of this module
//! reports success by an exit code that only the end of the test's body produces.

use std::process::{Command, Stdio, exit};
use std::{env, thread};

/// Holds the name of the test that a child process runs.
const NAME: &str = "QUIETLINE_ISOLATED_TEST";

/// The exit code of a child whose test ran to its end.
pub const PASSED: i32 = 42;

/// Runs the enclosing test in a process of its own.
///
/// The macro is the first statement of a `#[test]` function that returns nothing and does not have
/// `#[should_panic]`, which would accept any failure of the child. The child's output goes through
/// the parent's capture, or directly to the terminal under `--nocapture`.
///
/// `isolated!("NAME" = "value")` sets environment variables for the child.
#[macro_export]
macro_rules! isolated {
    ($($name:literal = $value:expr),*) => {
        fn here() {}
        let environment: &[(&str, &str)] = &[$(($name, $value)),*];
        let Some(_child) = $crate::enter(std::any::type_name_of_val(&here), environment) else {
            return;
        };
    };
}

/// A guard held by the child process while the test's body runs. Dropping it ends the process,
/// with success unless the thread panics.
pub struct Child(());

impl Drop for Child {
    fn drop(&mut self) {
        if !cfg!(miri) && !thread::panicking() {
            exit(PASSED);
        }
    }
}

/// Returns a guard in the child process. In the parent it runs the child, with additional
/// environment variables, and returns `None`.
///
/// `function` is the type name of a function inside the test: `PROGRAM::MODULES::TEST::here`.
///
/// # Panics
///
/// If the child fails, is killed, or does not reach the end of the test.
pub fn enter(function: &str, environment: &[(&str, &str)]) -> Option<Child> {
    if cfg!(miri) {
        // The interpreter starts no processes. Its runner skips the tests that share state with
        // others.
        return Some(Child(()));
    }
    let name = function.split_once("::").expect("a path").1.rsplit_once("::").expect("a path").0;
    if env::var(NAME).is_ok_and(|value| value == name) {
        return Some(Child(()));
    }
    let mut child = program();
    child.args([name, "--exact", "--include-ignored", "--nocapture", "--quiet"]).env(NAME, name);
    child.envs(environment.iter().copied());
    let shown = env::var_os("RUST_TEST_NOCAPTURE").is_some()
        || env::args().any(|arg| arg == "--nocapture" || arg == "--no-capture");
    let status = if shown {
        child.stdin(Stdio::null()).status().expect("a child process")
    } else {
        let output = child.output().expect("a child process");
        print!("{}", String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        output.status
    };
    assert!(status.code() == Some(PASSED), "the test's own process failed: {status}");
    None
}

/// Returns the command that starts this test program. `QUIETLINE_TEST_RUNNER` names an emulator and
/// its arguments, separated by spaces, where the system cannot execute the program by itself.
pub fn program() -> Command {
    let program = env::current_exe().expect("the path of the test program");
    let Ok(runner) = env::var("QUIETLINE_TEST_RUNNER") else { return Command::new(program) };
    let mut words = runner.split_whitespace();
    let mut command = Command::new(words.next().expect("the path of an emulator"));
    command.args(words).arg(program);
    command
}

#[cfg(test)]
mod tests {
    use std::process::abort;
    use std::sync::atomic::{AtomicU32, Ordering};

    static RUNNING: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn a_test_runs_in_a_child() {
        isolated!();
        assert_eq!(std::env::var(super::NAME).unwrap(), "isolated::tests::a_test_runs_in_a_child");
        assert_eq!(RUNNING.fetch_add(1, Ordering::Relaxed), 0);
    }

    #[test]
    fn another_test_shares_no_statics_with_it() {
        isolated!();
        assert_eq!(RUNNING.fetch_add(1, Ordering::Relaxed), 0);
    }

    #[test]
    fn a_child_has_the_variables_that_were_asked_for() {
        isolated!("QUIETLINE_FIRST" = "1", "QUIETLINE_SECOND" = "two");
        assert_eq!(std::env::var("QUIETLINE_FIRST").unwrap(), "1");
        assert_eq!(std::env::var("QUIETLINE_SECOND").unwrap(), "two");
    }

    #[test]
    #[should_panic = "the test's own process failed"]
    fn a_panic_fails_the_test() {
        isolated!();
        std::panic::set_hook(Box::new(|_| ()));
        std::panic::resume_unwind(Box::new("expected"));
    }

    #[test]
    #[should_panic = "the test's own process failed"]
    fn an_abort_fails_the_test() {
        isolated!();
        abort();
    }

    #[test]
    #[should_panic = "the test's own process failed"]
    fn an_early_exit_fails_the_test() {
        isolated!();
        std::process::exit(0);
    }
}
