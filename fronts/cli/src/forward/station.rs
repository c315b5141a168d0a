//! A device on the command line: what it is, and what addresses it has.

use std::net::IpAddr;
use std::str::FromStr;

/// `[tap:|packet:]NAME[=ADDRESS/BITS,...]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Station {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) addresses: Vec<(IpAddr, u32)>,
}

/// How a device is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Tap,
    Packet,
}

impl FromStr for Station {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (device, addresses) = text.split_once('=').unwrap_or((text, ""));
        let (kind, name) = if let Some(name) = device.strip_prefix("tap:") {
            (Kind::Tap, name)
        } else if let Some(name) = device.strip_prefix("packet:") {
            (Kind::Packet, name)
        } else {
            (if device.starts_with("tap") { Kind::Tap } else { Kind::Packet }, device)
        };
        if name.is_empty() {
            return Err("give the name of a device, such as `tap0`".to_owned());
        }
        if name.len() > 15 || name.contains(|c: char| c == '/' || c.is_ascii_whitespace()) {
            return Err(format!(
                "`{name}` is no name: a name has 1 to 15 bytes, and no space or `/`"
            ));
        }
        let addresses = addresses.split(',').filter(|address| !address.is_empty()).map(prefix);
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        if addresses.is_empty() && text.contains('=') {
            return Err("there is no address behind the `=`".to_owned());
        }
        Ok(Self { kind, name: name.to_owned(), addresses })
    }
}

/// `ADDRESS/BITS`
pub(super) fn prefix(text: &str) -> Result<(IpAddr, u32), String> {
    let wrong = || format!("`{text}` is not an address with its bits, such as `10.0.1.1/24`");
    let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    // A sign would be taken for part of the number.
    let bits = Some(bits).filter(|bits| !bits.starts_with('+')).and_then(|bits| bits.parse().ok());
    let bits = bits.filter(|bits| *bits <= most).ok_or_else(wrong)?;
    Ok((address, bits))
}

#[cfg(test)]
mod tests {
    use super::{Kind, Station};

    #[test]
    fn what_may_be_said_of_a_device() {
        let station = |text: &str| text.parse::<Station>();
        let is = |kind, name: &str, addresses: &[(&str, u32)]| {
            let addresses = addresses.iter().map(|(a, bits)| (a.parse().unwrap(), *bits)).collect();
            Ok(Station { kind, name: name.to_owned(), addresses })
        };
        assert_eq!(station("tap0"), is(Kind::Tap, "tap0", &[]));
        assert_eq!(station("eth0"), is(Kind::Packet, "eth0", &[]));
        assert_eq!(station("packet:tap0"), is(Kind::Packet, "tap0", &[]));
        let two = is(Kind::Tap, "q", &[("10.0.0.1", 24), ("fd00::1", 64)]);
        assert_eq!(station("tap:q=10.0.0.1/24,fd00::1/64"), two);
        for wrong in [
            "",
            "tap:",
            "=10.0.0.1/24",
            "a=",
            "a=,",
            "a=10.0.0.1",
            "a=10.0.0.1/33",
            "a=10.0.0.1/+24",
            "a=10.0.0.1/-1",
            "a=::/+64",
            "a=x/3",
            "a=::/129",
            "a/b",
            "a b",
            "sixteen-bytes-ab",
        ] {
            assert!(station(wrong).is_err(), "{wrong}");
        }
    }
}
