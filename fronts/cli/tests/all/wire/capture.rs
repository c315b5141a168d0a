//! What comes out of `ql forward`, as others read it: captured by tcpdump, looked at by tshark.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{Host, until};

/// `tcpdump` on a device: what the host receives by it, which is what the other end of the cable has sent. (What the host sends may have
/// checksums that are still to be made.)
///
/// Its ring has places for 30,000 packets, more than a test sends: none is lost, however late it reads them.
pub(crate) struct Capture {
    tcpdump: Child,
    says: BufReader<ChildStderr>,
    file: PathBuf,
}

impl Capture {
    /// Captures from now on.
    pub(crate) fn start(host: Option<&Host>, device: &str, name: &str) -> Self {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{name}-{}.pcap", std::process::id()));
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

    /// Ends it when a packet is in the file of which this says that it is the last one: the file, with everything in it that came before.
    pub(crate) fn end(mut self, is_last: impl Fn(&[u8]) -> bool) -> PathBuf {
        until("the last packet", || {
            let bytes = fs::read(&self.file).unwrap();
            records(&bytes).any(|at| is_last(&bytes[at]))
        });
        kill_process(Pid::from_child(&self.tcpdump), Signal::INT).unwrap();
        let mut said = String::new();
        self.says.read_to_string(&mut said).unwrap();
        assert!(self.tcpdump.wait().unwrap().success(), "{said}");
        let number = |what: &str| {
            let line = said
                .lines()
                .find(|line| line.contains(what))
                .unwrap_or_else(|| panic!("{what}: {said}"));
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

/// Where each packet of a capture is that is whole: after a file header of 24 bytes and one of 16 for each packet, the lengths in its
/// latter half, in the host's byte order.
fn records(bytes: &[u8]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut at = 24;
    std::iter::from_fn(move || {
        let len = bytes.get(at + 8..at + 12)?.try_into().unwrap();
        let packet = at + 16..at + 16 + u32::from_ne_bytes(len) as usize;
        at = packet.end;
        (at <= bytes.len()).then_some(packet)
    })
}

/// Each packet of a capture.
pub(crate) fn packets(file: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(file).unwrap();
    let all: Vec<_> = records(&bytes).collect();
    assert_eq!(all.last().map(|last| last.end), Some(bytes.len()), "a packet that is cut");
    all.into_iter().map(|packet| bytes[packet].to_vec()).collect()
}

fn tshark(file: &Path) -> Command {
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(file);
    // What is said by TCP and UDP is for nobody to guess.
    command.args(["-d", "tcp.port==1-65535,data", "-d", "udp.port==1-65535,data"]);
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    command
}

fn said(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Packets of a capture that a filter of Wireshark's lets through: the numbers of their frames. All checksums are looked at.
pub(crate) fn frames(file: &Path, filter: &str) -> Vec<u64> {
    let mut command = tshark(file);
    command.args(["-T", "fields", "-e", "frame.number", "-Y", filter]);
    said(command).lines().map(|line| line.parse().unwrap()).collect()
}

/// How many packets each of these filters, which have no commas, lets through.
pub(crate) fn counts(file: &Path, filters: &[&str]) -> Vec<u64> {
    let mut command = tshark(file);
    command.args(["-q", "-z", &format!("io,stat,0,{}", filters.join(","))]);
    let said = said(command);
    // A table of one line: the time, then frames and bytes of each filter.
    let line = said
        .lines()
        .find(|line| line.contains("<>"))
        .unwrap_or_else(|| panic!("no counts: {said}"));
    let cells: Vec<&str> = line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells.len(), 1 + 2 * filters.len(), "{said}");
    cells[1..].iter().step_by(2).map(|cell| cell.parse().unwrap()).collect()
}

/// What no packet should be: malformed, with an error of any kind, or with a checksum that is wrong.
///
/// But for what one of the hosts does, once in 65,536 packets of TCP: where a sum is zero, and left to a device that cannot make it, it writes
/// 0xffff, as UDP has to. That is zero too to whoever adds it up, but the analyser wants the other one (RFC 1624).
const WRONG: &str = "_ws.malformed || _ws.expert.severity == \"Error\" || ip.checksum.status == \"Bad\" \
     || (tcp.checksum.status == \"Bad\" && !(tcp.checksum == 0xffff && tcp.checksum_calculated == 0)) \
     || udp.checksum.status == \"Bad\" || icmp.checksum.status == \"Bad\" || icmpv6.checksum.status == \"Bad\"";

/// No packet is wrong, and the one who looks would see it: with one byte of a payload changed, it does.
pub(crate) fn assert_well_formed(file: &Path) {
    assert_eq!(frames(file, WRONG), [0u64; 0], "in {}", file.display());
    let mut bytes = fs::read(file).unwrap();
    let is_whole = |packet: &[u8]| {
        packet.len() > 200
            && packet[12..15] == [8, 0, 0x45]
            && (packet[20] & 0x3f, packet[21]) == (0, 0)
            && [6, 17].contains(&packet[23])
    };
    let spoiled = records(&bytes).enumerate().find(|(_, at)| is_whole(&bytes[at.clone()]));
    let (index, at) = spoiled.expect("a packet to spoil");
    bytes[at][150] ^= 0x10;
    let other = file.with_extension("spoiled.pcap");
    fs::write(&other, bytes).unwrap();
    assert_eq!(frames(&other, WRONG), [index as u64 + 1]);
    fs::remove_file(other).unwrap();
}

/// At least so many packets of each kind are there.
pub(crate) fn assert_seen(file: &Path, filters: &[(&str, u64)]) {
    let kinds: Vec<&str> = filters.iter().map(|(filter, _)| *filter).collect();
    for ((filter, least), n) in filters.iter().zip(counts(file, &kinds)) {
        assert!(n >= *least, "{n} of `{filter}` in {}", file.display());
    }
}
