//! The command line.

use super::client::Until;
use super::round::Plan;
use super::server::Accept;
use clap::{Parser, ValueEnum};
use std::num::NonZero;
use std::time::Duration;

/// A small HTTP/1.1 server and its load in one process, on quietline and on the host kernel: requests per second of both.
///
/// Both run the same code; only the system calls differ. Rounds are interleaved, and ratios taken inside a round. Every
/// answer is checked to the last byte.
#[derive(Debug, Parser)]
#[command(name = "http")]
pub(crate) struct Options {
    /// Threads of the server, each with an epoll
    #[arg(long, value_name = "N", default_value = "2")]
    workers: NonZero<usize>,
    /// Threads of the client, each with an epoll
    #[arg(long, value_name = "N", default_value = "2")]
    clients: NonZero<usize>,
    /// Connections of all clients together (the host needs two descriptors for each: see `ulimit -n`)
    #[arg(long, value_name = "N", default_value = "64")]
    connections: NonZero<usize>,
    /// Requests on their way on each connection
    #[arg(long, value_name = "N", default_value = "1")]
    pipeline: NonZero<usize>,
    /// Seconds of a round
    #[arg(long, value_name = "S", default_value = "1", conflicts_with = "requests", value_parser = seconds)]
    seconds: Duration,
    /// Requests of a round, instead of a time
    #[arg(long, value_name = "N")]
    requests: Option<NonZero<u64>>,
    /// Bytes of the body that most requests ask for
    #[arg(long, value_name = "BYTES", default_value = "1024")]
    pub(crate) body: usize,
    /// Rounds of each system
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// How connections are shared out among the workers
    #[arg(long, value_enum, default_value = "reuseport")]
    accept: Accept,
    /// Only one of the systems
    #[arg(long, value_enum, value_name = "SYSTEM")]
    only: Option<System>,
}

/// Who makes the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum System {
    /// quietline
    Quietline,
    /// The kernel of this machine
    Host,
}

impl System {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Quietline => "quietline",
            Self::Host => "host",
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number")?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("not a time".to_owned()),
    }
}

impl Options {
    /// The systems to be compared.
    pub(crate) fn systems(&self) -> Vec<System> {
        self.only.map_or_else(|| vec![System::Quietline, System::Host], |only| vec![only])
    }

    /// A round; the one that warms up is short.
    pub(crate) fn plan(&self, warms_up: bool) -> Plan {
        let [workers, clients, connections, pipeline] =
            [self.workers, self.clients, self.connections, self.pipeline].map(NonZero::get);
        let part = if warms_up { 5 } else { 1 };
        let until = match self.requests {
            // Each client has its share, the same for all.
            Some(requests) => {
                Until::Requests(requests.get().div_ceil(clients as u64).div_ceil(part))
            }
            None => Until::Time(self.seconds / part as u32),
        };
        Plan { workers, clients, connections, pipeline, until, accept: self.accept }
    }
}
