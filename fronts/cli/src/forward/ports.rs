//! The two devices.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use quietline_net::device::{
    BUDGET, Batch, Ends, Generator, NetDevice, PacketSocket, Sink, Stats, Tally, Tap, Traffic,
};
use quietline_net::packet::{DropReason, Packets};
use rustix::io::Errno;

use super::ForwardArgs;
use super::station::{Kind, Station};
use super::waits::{Waits, wait};

/// A device of one of the kinds that there are.
pub(super) enum Port<'n> {
    Tap(Box<Tap<'n>>),
    Packet(Box<PacketSocket<'n>>),
    Generator(Generator<'n>),
    Sink(Sink<'n>),
}

impl<'n> Port<'n> {
    pub(super) fn device(&self) -> &dyn NetDevice<'n> {
        match self {
            Self::Tap(device) => &**device,
            Self::Packet(device) => &**device,
            Self::Generator(device) => device,
            Self::Sink(device) => device,
        }
    }

    fn device_mut(&mut self) -> &mut dyn NetDevice<'n> {
        match self {
            Self::Tap(device) => &mut **device,
            Self::Packet(device) => &mut **device,
            Self::Generator(device) => device,
            Self::Sink(device) => device,
        }
    }

    fn open(packets: &'n Packets, station: &Station) -> anyhow::Result<Self> {
        let opened = match station.kind {
            Kind::Tap => Tap::open(packets, &station.name).map(|tap| Self::Tap(Box::new(tap))),
            Kind::Packet => PacketSocket::open(packets, &station.name)
                .map(|socket| Self::Packet(Box::new(socket))),
        };
        opened.with_context(|| format!("{} cannot be used", station.name))
    }
}

/// Both of them: what comes from, and where it goes to; and back.
pub(super) struct Ports<'n> {
    ports: [Port<'n>; 2],
    waits: [Waits; 2],
    /// Polls for which there was no memory.
    pub(super) without_memory: u64,
}

/// How long a device may take, at the end, to send what it has.
const LAST: Duration = Duration::from_millis(300);
/// What a poll without memory waits, so that there is some.
const MOMENT: Duration = Duration::from_millis(1);

/// Where generated packets come from: the station, and who it sends them to, which is us.
pub(super) const GENERATOR_LINKS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

impl<'n> Ports<'n> {
    pub(super) fn open(packets: &'n Packets, arguments: &ForwardArgs) -> anyhow::Result<Self> {
        let input = match &arguments.input {
            Some(station) => Port::open(packets, station)?,
            None => Port::Generator(generator(packets, arguments)?),
        };
        let output = match &arguments.output {
            Some(station) => Port::open(packets, station)?,
            None => Port::Sink(Sink::new(1024, arguments.flows).context("cannot make a sink")?),
        };
        Ok(Self { ports: [input, output], waits: Default::default(), without_memory: 0 })
    }

    pub(super) fn each(&self) -> impl Iterator<Item = &Port<'n>> {
        self.ports.iter()
    }

    pub(super) fn stats(&self, port: usize) -> &Stats {
        self.ports[port].device().stats()
    }

    /// One line on what is going on.
    pub(super) fn says(&self) -> String {
        let [input, output] = self.ports.each_ref().map(|port| port.device().name().to_owned());
        let arrow = if matches!(self.ports[0], Port::Generator(_)) { "->" } else { "<->" };
        format!("forwarding: {input} {arrow} {output}")
    }

    /// A warning for each device that merges received segments.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        self.ports.iter().filter_map(|port| match port {
            Port::Packet(socket) if socket.merges_segments() => {
                let name = socket.name();
                Some(format!(
                    "{name} merges received segments (GRO, LRO): packets that get longer than its \
                     MTU are dropped; `ethtool -K {name} gro off lro off` ends that"
                ))
            }
            _ => None,
        })
    }

    pub(super) fn poll(
        &mut self,
        port: usize,
        budget: usize,
        out: &mut Batch<'n>,
    ) -> anyhow::Result<usize> {
        let [input, output] = &mut self.ports;
        let device = if port == 0 { input.device_mut() } else { output.device_mut() };
        match device.poll(budget, out) {
            Err(Errno::NOMEM) => {
                self.without_memory += 1;
                thread::sleep(MOMENT);
                Ok(0)
            }
            other => other.with_context(|| format!("no packets from {}", device.name())),
        }
    }

    pub(super) fn send(&mut self, port: usize, batch: &mut Batch<'n>) {
        self.ports[port].device_mut().send(batch);
    }

    /// Frees what is sent, and tries again to send what is not.
    pub(super) fn complete(&mut self) {
        for port in &mut self.ports {
            port.device_mut().xmit(&mut Batch::new());
            while port.device_mut().complete(BUDGET) == BUDGET {}
        }
    }

    /// Sends what is still to be sent, as far as the devices take it, and counts what they do not.
    pub(super) fn end(&mut self) {
        let begun = Instant::now();
        self.complete();
        while self.pending() > 0 && begun.elapsed() < LAST {
            thread::sleep(MOMENT);
            self.complete();
        }
        for port in &mut self.ports {
            let left = port.device().pending();
            port.device_mut().stats_mut().drop_packets(DropReason::DeviceFailed, left);
        }
    }

    /// Packets that the devices took and have still to send.
    pub(super) fn pending(&self) -> usize {
        self.ports.iter().map(|port| port.device().pending()).sum()
    }

    /// Packets generated.
    pub(super) fn made(&self) -> u64 {
        match &self.ports[0] {
            Port::Generator(generator) => generator.made(),
            _ => 0,
        }
    }

    /// Whether all packets that were to be made are made.
    pub(super) fn are_done(&self) -> bool {
        matches!(&self.ports[0], Port::Generator(generator) if generator.is_done())
    }

    /// Waits until something comes in, or what is to be sent can be, for a moment at most.
    pub(super) fn wait(&mut self) {
        let devices = self.ports.each_ref().map(Port::device);
        wait(devices, &mut self.waits, Duration::from_millis(20));
    }

    /// What the sink found, if there is one.
    pub(super) fn tally(&self) -> Option<Tally> {
        match &self.ports[1] {
            Port::Sink(sink) => Some(sink.tally()),
            _ => None,
        }
    }

    /// Whether all that was generated came to the sink, if there are both.
    pub(super) fn is_right(&self) -> bool {
        match &self.ports {
            [Port::Generator(generator), Port::Sink(sink)] => {
                sink.tally().is_exactly(generator.made())
            }
            _ => true,
        }
    }
}

fn generator<'n>(packets: &'n Packets, arguments: &ForwardArgs) -> anyhow::Result<Generator<'n>> {
    let ends = match (arguments.destination, Ends::TEST_V4, Ends::TEST_V6) {
        (IpAddr::V4(to), Ends::V4([from, _]), _) => Ends::V4([from, to]),
        (IpAddr::V6(to), _, Ends::V6([from, _])) => Ends::V6([from, to]),
        _ => unreachable!("each of its family"),
    };
    let mut links = GENERATOR_LINKS;
    if arguments.output.as_ref().is_some_and(|output| output.addresses.is_empty()) {
        // Nobody here to ask for the destination's address.
        links[1] = [0xff; 6];
    }
    let (size, flows, count) = (arguments.size.into(), arguments.flows, arguments.count);
    let traffic = Traffic { size, flows, count, links, ends, ..Traffic::default() };
    // All that may be said has been looked at; the size by `routed::check`.
    Generator::new(packets, &traffic).context("cannot generate packets")
}
