//! `ql forward`: packets from one device to another.

mod path;
mod ports;
mod route;
mod routed;
mod show;
mod station;
mod waits;

use std::fmt;
use std::io::{self, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use quietline_net::device::{BUDGET, Batch};
use quietline_net::packet::Packets;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::path::Path;
use self::ports::Ports;
use self::route::Route;
use self::show::Show;
use self::station::Station;

/// Forward packets from one device to another, and back
///
/// Both ways, by one thread that polls: until Ctrl-C, and then the counters are printed. Devices with addresses are routed between
/// (IPv4, IPv6, ARP, neighbour discovery, ICMP); without, frames are passed on as they are. A name that begins with `tap` is a TAP
/// device, which is made if it is not there; any other is an interface of this machine, used through a packet socket: all that is on
/// its link comes in. Checksums of TCP and UDP that a veth has left unmade are made; what it sends longer than its MTU is dropped, and
/// counted as PKT_TOO_BIG (`ethtool -K NAME gso off tso off` at its other end).
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ForwardArgs {
    /// The first device, with its addresses if packets are to be routed; `tap:` or `packet:` before the name says what it is
    #[arg(
        long = "in",
        value_name = "NAME[=ADDRESS/BITS,...]",
        required_unless_present = "generate"
    )]
    input: Option<Station>,

    /// The second device; with --generate it may be left out: packets then end in a sink that checks their numbers
    #[arg(
        long = "out",
        value_name = "NAME[=ADDRESS/BITS,...]",
        required_unless_present = "generate"
    )]
    output: Option<Station>,

    /// A route, beyond those to the devices' own links; a link-local gateway is on the link of the device that is named behind it
    #[arg(long = "route", value_name = "PREFIX/BITS=GATEWAY[%DEVICE]")]
    routes: Vec<Route>,

    /// Make packets instead of taking them from a device: UDP, numbered
    #[arg(long, conflicts_with = "input")]
    generate: bool,

    /// Bytes of a generated frame, 64 to 1514
    #[arg(long, value_name = "BYTES", default_value_t = 64, requires = "generate", value_parser = clap::value_parser!(u16).range(64..=1514))]
    size: u16,

    /// Flows of generated packets, which differ in their source
    #[arg(long, value_name = "N", default_value_t = 1, requires = "generate", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    flows: u32,

    /// End after so many generated packets, when what waits for a neighbour is sent or given up
    #[arg(long, value_name = "N", requires = "generate")]
    count: Option<u64>,

    /// Where generated packets go
    #[arg(long, value_name = "ADDRESS", default_value = "198.19.0.1", requires = "generate")]
    destination: IpAddr,

    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,
}

impl ForwardArgs {
    /// Whether the second device has addresses.
    fn is_routed(&self) -> bool {
        self.output.as_ref().is_some_and(|output| !output.addresses.is_empty())
    }
}

const EXAMPLES: &str = "\
Packets that are dropped are counted by reason, and so are those that wait at the end. Exits with 1
if a device cannot be used, or if what ended in the sink is not what was generated; with 2 if the
request was wrong.

Examples:
  ql forward --generate                             packets per second in memory, through the router
  ql forward --generate --size 1514 --flows 1000 --count 10000000
  ql forward --generate --out tap0=10.0.0.1/24 --destination 10.0.0.2
  ql forward --in tap0 --out tap1                   two TAP devices, as a cable between them
  ql forward --in tap0=10.0.1.1/24 --out tap1=10.0.2.1/24,fd00::1/64 --route 0.0.0.0/0=10.0.2.254
  ql forward --in tap0=fd00:1::1/64 --out tap1=fd00:2::1/64 --route ::/0=fe80::1%tap1
  ql forward --in veth0 --out packet:tapestry       two interfaces of this machine";

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=1e9).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds from 0 to 1000000000, such as `--seconds 10`".into()),
    }
}

/// A request that cannot be met, whatever there is on this machine.
#[derive(Debug)]
pub(crate) struct WrongRequest(pub(crate) String);

impl fmt::Display for WrongRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongRequest {}

/// How long packets may wait when all are generated, and the first of them before the others follow: a neighbour is asked three times,
/// a second apart, and then given up. (A TAP that has just been attached to drops answers for up to a second.)
const PATIENCE: Duration = Duration::from_millis(4500);

/// Forwards until it is told to end.
pub(crate) fn run(arguments: ForwardArgs) -> anyhow::Result<ExitCode> {
    routed::check(&arguments)?;
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, end.clone()).context("cannot wait for signals")?;
    }
    let packets = Packets::new().context("cannot make packets")?;
    let mut ports = Ports::open(&packets, &arguments)?;
    let mut path = Path::new(&packets, &arguments, &ports)?;
    let mut show = Show::new(&ports);
    let begun = Instant::now();
    let until = arguments.seconds.map(|seconds| begun + Duration::from_secs_f64(seconds));
    // A closed stderr ends nothing.
    let _ = writeln!(io::stderr(), "{}", ports.says());
    for warning in ports.warnings() {
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    // (Not all packets that there are: devices keep some for what comes in.)
    let none_waits =
        |ports: &Ports<'_>, path: &Path<'_>| ports.pending() == 0 && path.waiting() == 0;
    let (mut may_all_go, mut done) = (!arguments.generate || !arguments.is_routed(), None);
    let mut failed = None;
    // Relaxed: nothing is ordered by it; a turn more does no harm.
    while !end.load(Ordering::Relaxed) {
        let now = Instant::now();
        if !may_all_go && ports.made() > 0 && (none_waits(&ports, &path) || now - begun > PATIENCE)
        {
            may_all_go = true;
            if !ports.are_done() {
                show.all_go(&ports, now);
            }
        }
        let budget = match (may_all_go, ports.made()) {
            (true, _) => BUDGET,
            (false, 0) => 1,
            (false, _) => 0,
        };
        let came = match turn(&mut ports, &mut path, budget, now - begun) {
            Ok(came) => came,
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        show.look(&ports, &path, now);
        if until.is_some_and(|until| now >= until) {
            break;
        }
        if ports.are_done() {
            let waited = now - *done.get_or_insert(now);
            if waited > PATIENCE || (came == 0 && none_waits(&ports, &path)) {
                break;
            }
        }
        if came == 0 {
            ports.wait();
        }
    }
    ports.end();
    let mut counts = path.counts();
    let more = [
        ("waiting for a neighbour", path.waiting()),
        ("polls without memory", ports.without_memory),
    ];
    counts.extend(more.into_iter().filter(|(_, n)| *n > 0));
    show.end(&ports, &counts).context("cannot print the counters")?;
    match failed {
        Some(error) => Err(error),
        None => Ok(if ports.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
    }
}

/// Packets from each device, `first` from the first one at most: how many came.
fn turn<'n>(
    ports: &mut Ports<'n>,
    path: &mut Path<'n>,
    first: usize,
    now: Duration,
) -> anyhow::Result<usize> {
    let mut came = 0;
    for (from, budget) in [(0, first), (1, BUDGET)] {
        let mut batch = Batch::new();
        let polled = ports.poll(from, budget, &mut batch);
        // Also what came before an error.
        path.forward(from, &mut batch, now, ports);
        came += polled?;
    }
    ports.complete();
    Ok(came)
}
