//! Hosts in network namespaces, `ql forward` between them, and what they say to each other.
//!
//! Nothing here takes a time for granted: whatever has to be there is waited for until it is, [`PATIENCE`] at most, and what may be lost
//! on a machine that is busy is sent again.

pub(crate) mod capture;
pub(crate) mod echo;
pub(crate) mod load;
pub(crate) mod talk;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const INSIDE: &str = "QUIETLINE_TEST_INSIDE";

/// After so long a time what is waited for does not come any more.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What must not be missing, or the tests fail: with `1` namespaces and TAP devices, and the programs that make them; with `all` also the
/// programs that only some tests need.
const REQUIRE: &str = "QUIETLINE_REQUIRE_WIRE";

/// Says why a test does not run, which is a failure if it must.
fn skip(test: &str, optional: bool, why: &str) -> bool {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    let must = if optional { required == "all" } else { !required.is_empty() && required != "0" };
    assert!(!must, "{test} must not be skipped ({REQUIRE}={required}): {why}");
    eprintln!("skipped: {test}: {why}");
    false
}

/// Says how `unshare` makes a network namespace here in which these tests can run, or why it makes none. What `.ci/run` asks, too.
const NAMESPACE: &str = include_str!("../../../../../.ci/namespace");

/// True in a network namespace of the test's own, with TAP devices and the programs that it needs. Outside of one, runs the test again
/// there, or says why not.
pub(crate) fn inside(test: &str, programs: &[&str]) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let asked = Command::new("sh").args(["-c", NAMESPACE]).output().unwrap();
    if !asked.status.success() {
        return skip(test, false, &text(&asked.stderr));
    }
    let way = text(&asked.stdout);
    for program in programs {
        let found = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if found.is_err() {
            return skip(test, true, &format!("there is no {program} here"));
        }
    }
    let mut command = Command::new("unshare");
    command.arg(way.trim()).arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]);
    let output = command.env(INSIDE, "1").output().unwrap();
    let (said, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprint!("{said}{error}");
    // A name that is no test's any more would pass without it.
    let ran = said.contains("test result: ok. 1 passed");
    assert!(output.status.success() && ran, "{test} fails inside the namespace");
    false
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a program prints that does as it is told.
pub(crate) fn run(program: &str, words: &[&str]) -> String {
    let Output { status, stdout, stderr } = Command::new(program).args(words).output().unwrap();
    assert!(status.success(), "{program} {words:?}: {}", text(&stderr));
    text(&stdout)
}

pub(crate) fn ip(words: &str) {
    run("ip", &words.split(' ').collect::<Vec<_>>());
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A network namespace of its own, as long as this lives.
pub(crate) struct Host(Child);

impl Host {
    pub(crate) fn new() -> Self {
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let host = Self(Command::new("unshare").args(["-n", "sleep", "600"]).spawn().unwrap());
        until("a namespace", || fs::read_link(host.path()).is_ok_and(|other| other != own));
        host.ip("link set lo up");
        host
    }

    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    pub(crate) fn ip(&self, words: &str) -> String {
        self.run("ip", words)
    }

    /// What a program prints there.
    pub(crate) fn run(&self, program: &str, words: &str) -> String {
        let net = format!("--net={}", self.path());
        run(
            "nsenter",
            &[net.as_str(), program].into_iter().chain(words.split(' ')).collect::<Vec<_>>(),
        )
    }

    /// Gives it a device, with addresses and gateways, and waits until it can send and receive by it: the other end must be there.
    pub(crate) fn plug(&self, device: &str, addresses: &[&str], gateways: &[&str]) {
        ip(&format!("link set {device} netns {}", self.0.id()));
        self.ip(&format!("link set {device} up"));
        for address in addresses {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            self.ip(&format!("addr add {address} dev {device}{nodad}"));
        }
        for gateway in gateways {
            self.ip(&format!("route add default via {gateway}"));
        }
        // A device that has just found its other end drops what is sent until the host has seen to that, and it answers for no
        // address that might be somebody else's.
        until("a device that sends", || {
            let link = self.ip(&format!("-o link show dev {device}"));
            link.contains("LOWER_UP") && !link.contains("qdisc noop")
        });
        until("addresses of its own", || {
            self.ip(&format!("-6 addr show dev {device} scope global tentative")).is_empty()
        });
    }

    /// Does something on a thread that is there.
    pub(crate) fn on<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let namespace = fs::File::open(self.path()).unwrap();
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                let kind = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(
                    rustix::fd::AsFd::as_fd(&namespace),
                    kind,
                )
                .unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `ql forward` at work.
pub(crate) struct Forward(Child);

impl Forward {
    pub(crate) fn start(arguments: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ql"));
        command
            .arg("forward")
            .args(arguments.split(' '))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("forwarding: "), "{line}");
        Self(child)
    }

    /// Waits until it ends of itself: how, and what it printed.
    pub(crate) fn wait(mut self) -> (Option<i32>, String, String) {
        until("the end", || self.0.try_wait().unwrap().is_some());
        let (mut said, mut error) = (String::new(), String::new());
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        (self.0.wait().unwrap().code(), said, error)
    }

    /// Ends it as Ctrl-C does: what it printed.
    pub(crate) fn end(self) -> String {
        kill_process(Pid::from_child(&self.0), Signal::INT).unwrap();
        let (code, said, error) = self.wait();
        assert_eq!(code, Some(0), "{said} {error}");
        said
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
