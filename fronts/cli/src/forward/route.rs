//! A route on the command line: where to, and by whom.

use std::net::IpAddr;
use std::str::FromStr;

use super::station::prefix;

/// `PREFIX/BITS=GATEWAY[%DEVICE]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) prefix: (IpAddr, u32),
    pub(super) gateway: IpAddr,
    /// The device on whose link the gateway is, if that is said.
    pub(super) device: Option<String>,
}

impl FromStr for Route {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a route, such as `0.0.0.0/0=10.0.2.254`");
        let (to, gateway) = text.split_once('=').ok_or_else(wrong)?;
        let (gateway, device) = match gateway.split_once('%') {
            None => (gateway, None),
            Some((_, "")) => return Err(format!("there is no device behind the `%` of `{text}`")),
            Some((gateway, device)) => (gateway, Some(device.to_owned())),
        };
        let (prefix, gateway) = (prefix(to)?, gateway.parse::<IpAddr>().map_err(|_| wrong())?);
        if prefix.0.is_ipv4() != gateway.is_ipv4() {
            return Err(wrong());
        }
        Ok(Self { prefix, gateway, device })
    }
}
