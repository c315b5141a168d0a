//! The router between the devices.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, bail};
use quietline_net::device::Batch;
use quietline_net::forward::{Count, Forwarder, Interface, Lane, NextHop, Prefix, Via};
use quietline_net::packet::{DropReason, Packets, Skb};
use rustix::io::Errno;

use super::ports::{GENERATOR_LINKS, Port, Ports};
use super::route::Route;
use super::station::Station;
use super::{ForwardArgs, WrongRequest};

/// A forwarder between the two devices.
pub(super) struct Router<'n> {
    forwarder: Forwarder<'n>,
    lane: Lane<'n>,
}

/// Who forwards what is generated, whose flows have all addresses of 198.18.0.0/16 (and nobody else has this one: RFC 7600).
const GENERATOR_GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
/// The sink's station, for what is generated and stays here.
const SINK_LINK: [u8; 6] = [2, 0, 0, 0, 0, 4];

/// Whether the request can be met at all.
pub(super) fn check(arguments: &ForwardArgs) -> Result<(), WrongRequest> {
    let wrong = |text: &str| Err(WrongRequest(text.to_owned()));
    if arguments.generate && arguments.destination.is_ipv6() && arguments.size < 78 {
        return wrong("--size must be 78 at least for IPv6");
    }
    let stations = [&arguments.input, &arguments.output];
    let [input, output] = stations.map(is_addressed);
    if !arguments.generate && input != output {
        return wrong("give addresses to both devices, or to none");
    }
    let in_memory = arguments.generate && arguments.output.is_none();
    if !(arguments.routes.is_empty() || in_memory || input || output) {
        return wrong("a route needs devices with addresses, such as `--in tap0=10.0.1.1/24`");
    }
    arguments.routes.iter().try_for_each(|route| link_of(arguments, route).map(drop))
}

fn is_addressed(station: &Option<Station>) -> bool {
    station.as_ref().is_some_and(|station| !station.addresses.is_empty())
}

/// The device on whose link a route's gateway is.
fn link_of(arguments: &ForwardArgs, route: &Route) -> Result<u32, WrongRequest> {
    let Route { gateway, device, .. } = route;
    let wrong = |text: String| Err(WrongRequest(text));
    let stations = || {
        [(0, &arguments.input), (1, &arguments.output)]
            .into_iter()
            .filter_map(|(n, s)| Some((n, s.as_ref()?)))
    };
    // Every link has such addresses.
    let is_anywhere = matches!(gateway, IpAddr::V6(gateway) if gateway.is_unicast_link_local());
    let on_link = |station: &Station| {
        is_anywhere
            || station.addresses.iter().any(|(address, bits)| same_link(*address, *bits, *gateway))
    };
    match device {
        Some(device) => match stations().find(|(_, station)| station.name == *device) {
            Some((number, station)) if on_link(station) => Ok(number),
            Some(_) => wrong(format!("the gateway {gateway} is not on the link of {device}")),
            None => wrong(format!(
                "the gateway {gateway} is on the link of {device}, which is not one of the devices"
            )),
        },
        None if is_anywhere => {
            let name = stations().next_back().map_or("tap1", |(_, station)| &station.name);
            wrong(format!(
                "the gateway {gateway} may be on any link: say on which device's, as in `{gateway}%{name}`"
            ))
        }
        None => match stations().find(|(_, station)| on_link(station)) {
            Some((number, _)) => Ok(number),
            None => wrong(format!("the gateway {gateway} is on no device's link")),
        },
    }
}

impl<'n> Router<'n> {
    /// A router, if devices have addresses, or if packets stay in memory; none if frames are passed on as they are.
    pub(super) fn new(
        packets: &'n Packets,
        arguments: &ForwardArgs,
        ports: &Ports<'n>,
    ) -> anyhow::Result<Option<Self>> {
        let in_memory = arguments.generate && arguments.output.is_none();
        if !(in_memory || is_addressed(&arguments.input) || is_addressed(&arguments.output)) {
            return Ok(None);
        }
        // Another one in each program, as several may be on one link.
        let own = RandomState::new().build_hasher().finish() as u16;
        let mut links = Vec::new();
        for (port, number) in ports.each().zip(0..) {
            links.push(interface(port, own, number));
        }
        let mut interfaces = Vec::new();
        for (link, station) in links.into_iter().zip([&arguments.input, &arguments.output]) {
            interfaces.push(with_addresses(link, station.as_ref())?);
        }
        if arguments.generate {
            let v6 = "2001:2::ff".parse()?;
            interfaces[0] = interfaces[0].clone().v4(GENERATOR_GATEWAY, 32).v6(v6, 64);
        }
        let forwarder = Forwarder::new(packets, interfaces);
        if forwarder.as_ref().is_err_and(|errno| *errno == Errno::INVAL) {
            bail!(WrongRequest("no station may have one of these addresses".to_owned()));
        }
        let forwarder = forwarder.context("cannot make a router")?;
        if arguments.generate {
            let back = NextHop { interface: 0, via: Via::Link };
            let all = Prefix::new(Ipv4Addr::new(198, 18, 0, 0), 16)?;
            forwarder.routes4().insert(all, back).context("cannot route to the generator")?;
        }
        if in_memory {
            to_sink(&forwarder, arguments.destination)?;
        }
        for route in &arguments.routes {
            enter(&forwarder, arguments, route)?;
        }
        let lane = forwarder.lane().context("cannot make a router")?;
        Ok(Some(Self { forwarder, lane }))
    }

    pub(super) fn forward(
        &mut self,
        from: usize,
        batch: &mut Batch<'n>,
        now: Duration,
        ports: &mut Ports<'n>,
    ) {
        let mut out = |port: u32, packets: &mut [Option<Skb<'n>>]| {
            let mut batch = Batch::new();
            batch.take_from(packets);
            ports.send(port as usize, &mut batch);
        };
        let Self { forwarder, lane } = self;
        batch.hand_over(|packets| forwarder.handle(lane, from as u32, packets, now, &mut out));
    }

    pub(super) fn dropped(&self) -> u64 {
        self.forwarder.counts().dropped()
    }

    pub(super) fn waiting(&self) -> u64 {
        self.forwarder.waiting() as u64
    }

    pub(super) fn counts(&self) -> Vec<(&'static str, u64)> {
        let counts = self.forwarder.counts();
        let events = Count::ALL.iter().map(|count| (count.name(), counts[*count]));
        let drops = DropReason::ALL.iter().map(|reason| (reason.name(), counts[*reason]));
        events.chain(drops).filter(|(_, n)| *n > 0).collect()
    }
}

/// An interface without addresses.
fn interface(port: &Port<'_>, own: u16, number: u8) -> Interface {
    let [high, low] = own.to_be_bytes();
    let link = match port {
        Port::Packet(socket) => socket.link(),
        Port::Generator(_) => GENERATOR_LINKS[1],
        // Our end of the cable; `QL` among addresses that everybody may choose.
        Port::Tap(_) | Port::Sink(_) => [2, 0x51, 0x4c, high, low, number + 1],
    };
    Interface::new(link, port.device().max_frame() - 14)
}

fn with_addresses(
    mut interface: Interface,
    station: Option<&Station>,
) -> anyhow::Result<Interface> {
    for (address, bits) in station.iter().flat_map(|station| &station.addresses) {
        interface = match address {
            IpAddr::V4(address) => interface.v4(*address, *bits),
            IpAddr::V6(_) if !interface.has_ipv6() => bail!(WrongRequest(format!(
                "{address} cannot be a device's address whose MTU is below 1280: there is no IPv6"
            ))),
            IpAddr::V6(address) => interface.v6(*address, *bits),
        };
    }
    Ok(interface)
}

/// What is generated goes to the sink.
fn to_sink(forwarder: &Forwarder<'_>, destination: IpAddr) -> anyhow::Result<()> {
    const WHY: &str = "cannot route to the sink";
    match destination {
        IpAddr::V4(to) => {
            let hop = NextHop { interface: 1, via: Via::Link };
            forwarder.routes4().insert(Prefix::new(to, 32)?, hop).context(WHY)?;
            forwarder.set_neighbour4(1, to, SINK_LINK).context(WHY)
        }
        IpAddr::V6(to) => {
            let hop = NextHop { interface: 1, via: Via::Link };
            forwarder.routes6().insert(Prefix::new(to, 128)?, hop).context(WHY)?;
            forwarder.set_neighbour6(1, to, SINK_LINK).context(WHY)
        }
    }
}

/// Enters a route by a gateway on the link of one of the devices.
fn enter(forwarder: &Forwarder<'_>, arguments: &ForwardArgs, route: &Route) -> anyhow::Result<()> {
    let interface = link_of(arguments, route)?;
    let why = || format!("cannot enter the route by {}", route.gateway);
    match (route.prefix, route.gateway) {
        ((IpAddr::V4(to), bits), IpAddr::V4(gateway)) => {
            let hop = NextHop { interface, via: Via::Gateway(gateway) };
            forwarder.routes4().insert(Prefix::of(to, bits)?, hop).with_context(why)?;
        }
        ((IpAddr::V6(to), bits), IpAddr::V6(gateway)) => {
            let hop = NextHop { interface, via: Via::Gateway(gateway) };
            forwarder.routes6().insert(Prefix::of(to, bits)?, hop).with_context(why)?;
        }
        _ => unreachable!("both of one family"),
    }
    Ok(())
}

/// Whether two addresses have their first bits in common.
fn same_link(address: IpAddr, bits: u32, other: IpAddr) -> bool {
    match (address, other) {
        (IpAddr::V4(a), IpAddr::V4(b)) => ((a.to_bits() ^ b.to_bits()).leading_zeros()) >= bits,
        (IpAddr::V6(a), IpAddr::V6(b)) => ((a.to_bits() ^ b.to_bits()).leading_zeros()) >= bits,
        _ => false,
    }
}
