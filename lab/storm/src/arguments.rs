//! What `ql forward` is told of devices and routes: texts that are nearly right, held against what they were made of.
//!
//! A text that is right is understood as what it says; one in which something was changed is refused, or understood as something that,
//! written anew, is understood as the same, with no name and no number of bits that there cannot be.

/// As in the program.
#[path = "../../../fronts/cli/src/forward/route.rs"]
mod route;
#[path = "../../../fronts/cli/src/forward/station.rs"]
mod station;

use crate::input::Input;
use route::Route;
use station::{Kind, Station};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Texts.
    pub operations: u64,
    /// Those that were understood.
    pub understood: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.understood += other.understood;
    }
}

/// Does what the bytes say, until there are none left.
///
/// # Panics
/// When a text is understood as something else.
pub fn run(bytes: &[u8]) -> Tally {
    let mut input = Input::new(bytes);
    let mut tally = Tally::default();
    while !input.is_empty() {
        let understood =
            if input.one_in(2) { play_route(&mut input) } else { play_station(&mut input) };
        tally.operations += 1;
        tally.understood += u64::from(understood);
    }
    tally
}

fn address(input: &mut Input<'_>, is_ipv4: bool) -> IpAddr {
    let mut byte = || input.byte() as u8;
    if is_ipv4 {
        Ipv4Addr::from([byte(), byte(), byte(), byte()]).into()
    } else {
        // Runs of zeroes, which are written in short.
        let octets: [u8; 16] = std::array::from_fn(|_| byte() & byte() & byte());
        Ipv6Addr::from(octets).into()
    }
}

fn prefix(input: &mut Input<'_>, is_ipv4: bool) -> (IpAddr, u32) {
    (address(input, is_ipv4), input.below(if is_ipv4 { 33 } else { 129 }) as u32)
}

/// A name that a device may have.
fn name(input: &mut Input<'_>) -> String {
    const LETTERS: [char; 12] = ['t', 'a', 'p', '0', '9', '.', '-', '%', ':', '_', 'é', '\u{1}'];
    let mut name =
        input.pick(&["tap0", "eth0", "t", "tapestry", "packet", "é", "tap", ""]).to_owned();
    for _ in 0..input.below(6) {
        let letter = input.pick(&LETTERS);
        if name.len() + letter.len_utf8() <= 15 {
            name.push(letter);
        }
    }
    if name.is_empty() { "q".to_owned() } else { name }
}

/// A text in which something may have been changed: whether it was.
fn damaged(input: &mut Input<'_>, right: &str) -> (String, bool) {
    const OTHERS: [char; 16] = [
        '=',
        '/',
        '%',
        ',',
        ':',
        '.',
        ' ',
        '0',
        '9',
        'f',
        '-',
        '+',
        '\0',
        'ß',
        '\u{2028}',
        '\u{1d7d8}',
    ];
    let mut letters: Vec<char> = right.chars().collect();
    if !input.one_in(3) {
        return (right.to_owned(), false);
    }
    for _ in 0..1 + input.below(3) {
        let at = input.below(letters.len() + 1);
        match input.below(4) {
            0 => letters.insert(at, input.pick(&OTHERS)),
            1 if at < letters.len() => drop(letters.remove(at)),
            2 => letters.truncate(at),
            _ if at < letters.len() => letters[at] = input.pick(&OTHERS),
            _ => {}
        }
    }
    let damaged: String = letters.into_iter().collect();
    let is_other = damaged != right;
    (damaged, is_other)
}

fn text_of((address, bits): &(IpAddr, u32)) -> String {
    format!("{address}/{bits}")
}

fn check_prefix((address, bits): &(IpAddr, u32)) {
    assert!(*bits <= if address.is_ipv4() { 32 } else { 128 }, "{address}/{bits}");
}

fn text_of_station(station: &Station) -> String {
    let kind = if station.kind == Kind::Tap { "tap:" } else { "packet:" };
    let mut text = format!("{kind}{}", station.name);
    for (i, address) in station.addresses.iter().enumerate() {
        write!(text, "{}{}", if i == 0 { '=' } else { ',' }, text_of(address)).expect("memory");
    }
    text
}

fn play_station(input: &mut Input<'_>) -> bool {
    let kind = input.pick(&[Kind::Tap, Kind::Packet]);
    let name = name(input);
    let addresses = (0..input.below(4)).map(|_| {
        let is_ipv4 = input.one_in(2);
        prefix(input, is_ipv4)
    });
    let meant = Station { kind, name, addresses: addresses.collect() };
    let mut right = text_of_station(&meant);
    // Without the kind, the name says it, unless it seems to say one itself.
    let short = right.split_once(':').expect("a kind").1.to_owned();
    let says = if short.starts_with("tap") { Kind::Tap } else { Kind::Packet };
    if says == kind
        && !short.starts_with("tap:")
        && !short.starts_with("packet:")
        && input.one_in(2)
    {
        right = short;
    }
    let (text, is_other) = damaged(input, &right);
    match text.parse::<Station>() {
        Ok(station) => {
            assert!(is_other || station == meant, "{text} was understood as {station:?}");
            assert!((1..=15).contains(&station.name.len()), "{station:?}");
            assert!(!station.name.contains(['/', ' ', '=', '\t', '\n']), "{station:?}");
            station.addresses.iter().for_each(check_prefix);
            let addresses = text.split_once('=').map(|(_, addresses)| addresses);
            assert_eq!(station.addresses.is_empty(), addresses.is_none(), "{text}");
            assert!(addresses.is_none_or(|addresses| !addresses.contains('+')), "{text}");
            assert_eq!(text_of_station(&station).parse(), Ok(station), "{text}");
            true
        }
        Err(error) => {
            assert!(is_other, "{text} was not understood: {error}");
            assert!(!error.is_empty());
            false
        }
    }
}

fn text_of_route(Route { prefix, gateway, device }: &Route) -> String {
    let device = device.as_ref().map_or(String::new(), |device| format!("%{device}"));
    format!("{}={gateway}{device}", text_of(prefix))
}

fn play_route(input: &mut Input<'_>) -> bool {
    let is_ipv4 = input.one_in(2);
    let (prefix, gateway) = (prefix(input, is_ipv4), address(input, is_ipv4));
    let meant = Route { prefix, gateway, device: input.one_in(2).then(|| name(input)) };
    let right = text_of_route(&meant);
    let (text, is_other) = damaged(input, &right);
    match text.parse::<Route>() {
        Ok(route) => {
            assert!(is_other || route == meant, "{text} was understood as {route:?}");
            check_prefix(&route.prefix);
            assert_eq!(route.prefix.0.is_ipv4(), route.gateway.is_ipv4(), "{route:?}");
            assert!(route.device.as_ref().is_none_or(|device| !device.is_empty()), "{route:?}");
            assert!(
                text.split('%').next().is_some_and(|addresses| !addresses.contains('+')),
                "{text}"
            );
            assert_eq!(text_of_route(&route).parse(), Ok(route), "{text}");
            true
        }
        Err(error) => {
            assert!(is_other, "{text} was not understood: {error}");
            false
        }
    }
}
