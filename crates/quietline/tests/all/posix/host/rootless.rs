//! Where root is not to be had: the test runs again in a user namespace, in which it is root over itself alone.

use super::syscall::sys;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Set for the run in the namespace.
const INNER: &str = "QUIETLINE_POSIX_INNER";

/// Who makes the calls on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Root, over several users.
    Root,
    /// Root of a user namespace with no user but itself.
    Namespace,
}

/// How a test can go on.
#[derive(Debug)]
pub(crate) enum Way {
    Here(Rights),
    /// The test ran in a namespace, and passed.
    Done,
    /// There is no way, and why.
    Nowhere(String),
}

/// Looks for a way, and runs the test of this name again if it takes that. The test is isolated, so
/// its second run ends as the process of an isolated test.
pub(crate) fn way(test: &str) -> Way {
    if std::env::var_os(INNER).is_some() {
        return Way::Here(Rights::Namespace);
    }
    if sys!(libc::SYS_geteuid) == Ok(0) && may_mount() {
        return Way::Here(Rights::Root);
    }
    println!(
        "not root: in a user namespace, with one user, without devices and privileged attributes"
    );
    let ids = [libc::SYS_geteuid, libc::SYS_getegid].map(|call| sys!(call).expect("ids are there"));
    let maps = ids.map(|id| format!("0 {id} 1"));
    let files = ["/proc/self/setgroups", "/proc/self/uid_map", "/proc/self/gid_map"];
    let texts = ["deny".to_owned(), maps[0].clone(), maps[1].clone()];
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return Way::Nowhere(format!("the test's own program: {error}")),
    };
    let mut again = Command::new(program);
    again.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(INNER, "1");
    let enter = move || {
        let failed = std::io::Error::from_raw_os_error;
        sys!(libc::SYS_unshare, libc::CLONE_NEWUSER).map_err(failed)?;
        for (file, text) in files.iter().zip(&texts) {
            std::fs::write(file, text)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec it calls the system, and the allocator, which glibc keeps usable after a fork.
    let status = unsafe { again.pre_exec(enter) }.status();
    match status {
        Ok(status) => {
            let passed = status.code() == Some(quietline_testing::PASSED);
            assert!(passed, "{test} failed in a user namespace: {status}");
            Way::Done
        }
        Err(error) => Way::Nowhere(format!("neither root nor a user namespace: {error}")),
    }
}

/// Containers have a root that may not.
fn may_mount() -> bool {
    std::thread::spawn(|| sys!(libc::SYS_unshare, libc::CLONE_NEWNS | libc::CLONE_FS).is_ok())
        .join()
        .expect("it does not panic")
}
