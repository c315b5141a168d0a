//! Hosts in network namespaces, `ql forward` between them, and captures of what comes out of it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const INSIDE: &str = "QUIETLINE_TEST_INSIDE";

/// True in a network namespace of the test's own, with TAP devices and the programs that it needs. Outside of one, runs the test again
/// there, or says why not.
pub(crate) fn inside(test: &str, programs: &[&str]) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    for program in programs {
        let found =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if found.is_err() {
            eprintln!("skipped: {test}: there is no {program} here");
            return false;
        }
    }
    let try_it = ["-n", "ip", "tuntap", "add", "dev", "qx", "mode", "tap"];
    match Command::new("unshare").args(try_it).output() {
        Ok(output) if output.status.success() => {}
        other => {
            eprintln!("skipped: {test}: no network namespace with a TAP device can be made here: {other:?}");
            return false;
        }
    }
    let mut command = Command::new("unshare");
    command.arg("-n").arg(std::env::current_exe().unwrap()).args([
        "--exact",
        test,
        "--nocapture",
        "--include-ignored",
    ]);
    let output = command.env(INSIDE, "1").output().unwrap();
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprint!("{said}{error}");
    // A name that is no test's any more would pass without it.
    let ran = said.contains("test result: ok. 1 passed");
    assert!(output.status.success() && ran, "{test} fails inside the namespace");
    false
}

fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words:?}: {said}");
}

pub(crate) fn ip(words: &str) {
    run("ip", &words.split(' ').collect::<Vec<_>>());
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "in vain: {what}");
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

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    pub(crate) fn ip(&self, words: &str) {
        let net = format!("--net={}", self.path());
        run("nsenter", &[net.as_str(), "ip"].into_iter().chain(words.split(' ')).collect::<Vec<_>>());
    }

    /// Gives it a device, with addresses and gateways.
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
    }

    /// Does something on a thread that is there.
    pub(crate) fn on<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let namespace = fs::File::open(self.path()).unwrap();
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                let kind = Some(rustix::thread::LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(rustix::fd::AsFd::as_fd(&namespace), kind).unwrap();
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
        command.arg("forward").args(arguments.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("forwarding: "), "{line}");
        Self(child)
    }

    /// Ends it as Ctrl-C does: what it printed.
    pub(crate) fn end(self) -> String {
        kill_process(Pid::from_child(&self.0), Signal::INT).unwrap();
        self.wait()
    }

    /// Waits for its end: what it printed.
    pub(crate) fn wait(mut self) -> String {
        let mut said = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.0.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `tcpdump` on a device: what the host receives by it, which is what the other end of the cable has sent. (What the host sends may have
/// checksums that are still to be made.)
pub(crate) struct Capture {
    tcpdump: Child,
    says: BufReader<std::process::ChildStderr>,
    file: PathBuf,
}

impl Capture {
    pub(crate) fn start(host: Option<&Host>, device: &str, name: &str) -> Self {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.pcap", std::process::id()));
        let net = format!("--net={}", host.map_or("/proc/self/ns/net".to_owned(), Host::path));
        let mut command = Command::new("nsenter");
        command.args([&net, "tcpdump", "-i", device, "-Q", "in", "--immediate-mode", "-U", "-n"]);
        // Frames of the ring are as large as this says.
        command.args(["-s", "2048", "-B", "65536", "-Z", "root", "-w"]).arg(&file);
        let mut tcpdump = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut says = BufReader::new(tcpdump.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert!(says.read_line(&mut line).unwrap() > 0, "tcpdump does not begin");
        }
        Self { tcpdump, says, file }
    }

    /// Ends it when nothing comes any more: the file, with everything in it that came.
    pub(crate) fn end(mut self) -> PathBuf {
        let size = || fs::metadata(&self.file).unwrap().len();
        let mut last = size();
        until("a quiet capture", || {
            thread::sleep(Duration::from_secs(2));
            std::mem::replace(&mut last, size()) == last
        });
        kill_process(Pid::from_child(&self.tcpdump), Signal::INT).unwrap();
        let mut said = String::new();
        self.says.read_to_string(&mut said).unwrap();
        assert!(self.tcpdump.wait().unwrap().success(), "{said}");
        let number = |what: &str| {
            let line =
                said.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {said}"));
            line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
        };
        // (Those that the filter has received are more: the host's own, too, which `-Q in` leaves out.)
        assert!(number("captured") > 0 && number("dropped by kernel") == 0, "{said}");
        std::mem::take(&mut self.file)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.tcpdump.kill();
        let _ = self.tcpdump.wait();
    }
}

/// Packets of a capture that a filter of Wireshark's lets through: the numbers of their frames. All checksums are looked at.
pub(crate) fn frames(file: &Path, filter: &str) -> Vec<u64> {
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(file);
    // What is said by TCP and UDP is for nobody to guess.
    command.args(["-d", "tcp.port==1-65535,data", "-d", "udp.port==1-65535,data"]);
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    let output = command.args(["-T", "fields", "-e", "frame.number", "-Y", filter]).output().unwrap();
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "tshark {filter}: {error}");
    said.lines().map(|line| line.parse().unwrap()).collect()
}

/// What no packet should be: malformed, with an error of any kind, or with a checksum that is wrong.
pub(crate) const WRONG: &str = "_ws.malformed || _ws.expert.severity == \"Error\" || ip.checksum.status == \"Bad\" \
     || tcp.checksum.status == \"Bad\" || udp.checksum.status == \"Bad\" || icmp.checksum.status == \"Bad\" \
     || icmpv6.checksum.status == \"Bad\"";
