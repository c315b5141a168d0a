//! Options of IP, IPv6 and TCP that are numbers: checked as Linux checks them, remembered, and given back.
//!
//! Most of them tell a network how to treat packets; without packets they have no effect. Those that have one are
//! `IPV6_V6ONLY`, `IP_FREEBIND` and, for datagrams, `IP_PKTINFO` and its like, `IP_TTL` and `IP_TOS`, of which a receiver may be told.
//!
//! All words are independent tunables: nothing is ordered by them, so every access is relaxed.

use crate::options::{give_int, int};
use core::fmt;
use quietline_platform::atomic::{AtomicU32, Ordering};
use rustix::io::Errno;

pub(super) const IPPROTO_IP: i32 = 0;
pub(super) const IPPROTO_TCP: i32 = 6;
pub(super) const IPPROTO_UDP: i32 = 17;
pub(super) const IPPROTO_IPV6: i32 = 41;

pub(super) const IP_PKTINFO: i32 = 8;
pub(super) const IP_TOS: i32 = 1;
pub(super) const IP_TTL: i32 = 2;
const IP_RECVTTL: i32 = 12;
const IP_RECVTOS: i32 = 13;
const IPV6_RECVPKTINFO: i32 = 49;
pub(super) const IPV6_PKTINFO: i32 = 50;
const IP_FREEBIND: i32 = 15;
const IPV6_V6ONLY: i32 = 26;

/// A number that is remembered.
struct Setting {
    level: i32,
    name: i32,
    default: i32,
    /// What it may be.
    range: (i32, i32),
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// 0 or 1; anything but 0 is 1.
    Switch,
    Number,
    /// A number for which -1 is the default.
    OrDefault,
    /// A number that one byte may hold, and that is cut to one.
    Byte,
}

const fn switch(level: i32, name: i32, default: i32) -> Setting {
    Setting { level, name, default, range: (i32::MIN, i32::MAX), kind: Kind::Switch }
}

const fn number(level: i32, name: i32, default: i32, range: (i32, i32)) -> Setting {
    Setting { level, name, default, range, kind: Kind::Number }
}

const ANY: (i32, i32) = (i32::MIN, i32::MAX);

/// All of them, and where they are kept.
const SETTINGS: [Setting; 31] = [
    switch(IPPROTO_TCP, 1, 0),                  // TCP_NODELAY
    number(IPPROTO_TCP, 2, 65483, (88, 32767)), // TCP_MAXSEG
    switch(IPPROTO_TCP, 3, 0),                  // TCP_CORK
    number(IPPROTO_TCP, 4, 7200, (1, 32767)),   // TCP_KEEPIDLE
    number(IPPROTO_TCP, 5, 75, (1, 32767)),     // TCP_KEEPINTVL
    number(IPPROTO_TCP, 6, 9, (1, 127)),        // TCP_KEEPCNT
    number(IPPROTO_TCP, 7, 6, (1, 127)),        // TCP_SYNCNT
    number(IPPROTO_TCP, 8, 60, (-1, 120)),      // TCP_LINGER2
    number(IPPROTO_TCP, 9, 0, (0, i32::MAX)),   // TCP_DEFER_ACCEPT
    number(IPPROTO_TCP, 10, 0, (0, i32::MAX)),  // TCP_WINDOW_CLAMP
    switch(IPPROTO_TCP, 12, 1),                 // TCP_QUICKACK
    number(IPPROTO_TCP, 18, 0, (0, i32::MAX)),  // TCP_USER_TIMEOUT
    number(IPPROTO_TCP, 25, -1, ANY),           // TCP_NOTSENT_LOWAT
    Setting { level: IPPROTO_IP, name: IP_TOS, default: 0, range: ANY, kind: Kind::Byte },
    Setting {
        level: IPPROTO_IP,
        name: IP_TTL,
        default: 64,
        range: (1, 255),
        kind: Kind::OrDefault,
    },
    switch(IPPROTO_IP, IP_PKTINFO, 0),
    number(IPPROTO_IP, 10, 1, (0, 5)), // IP_MTU_DISCOVER
    switch(IPPROTO_IP, IP_RECVTTL, 0),
    switch(IPPROTO_IP, IP_RECVTOS, 0),
    switch(IPPROTO_IP, IP_FREEBIND, 0),
    switch(IPPROTO_IP, 24, 0), // IP_BIND_ADDRESS_NO_PORT
    Setting { level: IPPROTO_IP, name: 33, default: 1, range: (0, 255), kind: Kind::OrDefault }, // IP_MULTICAST_TTL
    switch(IPPROTO_IP, 34, 1), // IP_MULTICAST_LOOP
    Setting { level: IPPROTO_IPV6, name: 16, default: 64, range: (0, 255), kind: Kind::OrDefault }, // IPV6_UNICAST_HOPS
    Setting { level: IPPROTO_IPV6, name: 18, default: 1, range: (0, 255), kind: Kind::OrDefault }, // IPV6_MULTICAST_HOPS
    number(IPPROTO_IPV6, 19, 1, (0, 1)), // IPV6_MULTICAST_LOOP
    number(IPPROTO_IPV6, 23, 1, (0, 5)), // IPV6_MTU_DISCOVER
    switch(IPPROTO_IPV6, IPV6_V6ONLY, 0),
    switch(IPPROTO_IPV6, IPV6_RECVPKTINFO, 0),
    Setting { level: IPPROTO_IPV6, name: 67, default: 0, range: (0, 255), kind: Kind::OrDefault }, // IPV6_TCLASS
    switch(IPPROTO_IPV6, 70, 0), // IPV6_AUTOFLOWLABEL
];

const V6ONLY: usize = place(IPPROTO_IPV6, IPV6_V6ONLY);
const FREEBIND: usize = place(IPPROTO_IP, IP_FREEBIND);
const PKTINFO: usize = place(IPPROTO_IP, IP_PKTINFO);
const PKTINFO6: usize = place(IPPROTO_IPV6, IPV6_RECVPKTINFO);
const TTL: usize = place(IPPROTO_IP, IP_TTL);
const TOS: usize = place(IPPROTO_IP, IP_TOS);
const RECVTTL: usize = place(IPPROTO_IP, IP_RECVTTL);
const RECVTOS: usize = place(IPPROTO_IP, IP_RECVTOS);

/// Where a setting is kept that is known.
const fn place(level: i32, name: i32) -> usize {
    let mut at = 0;
    while SETTINGS[at].level != level || SETTINGS[at].name != name {
        at += 1;
    }
    at
}

/// The numbers of a socket.
pub(super) struct Settings {
    values: [AtomicU32; SETTINGS.len()],
}

impl Settings {
    pub(super) fn new() -> Self {
        Self { values: core::array::from_fn(|at| AtomicU32::new(SETTINGS[at].default as u32)) }
    }

    /// Those of a socket that comes of a listener: the listener's.
    pub(super) fn inherit(&self, from: &Self) {
        for (to, from) in self.values.iter().zip(&from.values) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn is_on(&self, at: usize) -> bool {
        self.values[at].load(Ordering::Relaxed) != 0
    }

    /// `IPV6_V6ONLY`.
    pub(super) fn is_v6only(&self) -> bool {
        self.is_on(V6ONLY)
    }

    /// It is bound to an address of version 6: so it is for that version only.
    pub(super) fn set_v6only(&self) {
        self.values[V6ONLY].store(1, Ordering::Relaxed);
    }

    /// `IP_FREEBIND`.
    pub(super) fn is_free_bind(&self) -> bool {
        self.is_on(FREEBIND)
    }

    /// Whether a receiver is told anything of a datagram.
    pub(super) fn tells(&self, v6: bool) -> bool {
        self.is_on(PKTINFO)
            || self.is_on(RECVTTL)
            || self.is_on(RECVTOS)
            || v6 && self.is_on(PKTINFO6)
    }

    /// `IP_PKTINFO`: to which address of version 4 a datagram was sent.
    pub(super) fn tells_address4(&self) -> bool {
        self.is_on(PKTINFO)
    }

    /// `IPV6_RECVPKTINFO`: to which address.
    pub(super) fn tells_address6(&self) -> bool {
        self.is_on(PKTINFO6)
    }

    /// `IP_RECVTTL`.
    pub(super) fn tells_ttl(&self) -> bool {
        self.is_on(RECVTTL)
    }

    /// `IP_RECVTOS`.
    pub(super) fn tells_tos(&self) -> bool {
        self.is_on(RECVTOS)
    }

    /// `IP_TTL`, and `IP_TOS`.
    pub(super) fn marks(&self) -> (u8, u8) {
        let byte = |at: usize| self.values[at].load(Ordering::Relaxed) as u8;
        (byte(TTL), byte(TOS))
    }

    /// `setsockopt`.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for one that is not known; `EINVAL`.
    pub(super) fn set(&self, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        let at = find(level, name)?;
        let setting = &SETTINGS[at];
        // Options of IP may be bytes.
        let int = match *value {
            [byte, ..] if value.len() < 4 && level == IPPROTO_IP => byte.into(),
            _ => int(value)?,
        };
        let int = match setting.kind {
            Kind::Switch => i32::from(int != 0),
            Kind::Byte => int & 0xff,
            Kind::OrDefault if int == -1 => setting.default,
            _ => int,
        };
        if !(setting.range.0..=setting.range.1).contains(&int) {
            return Err(Errno::INVAL);
        }
        self.values[at].store(int as u32, Ordering::Relaxed);
        Ok(())
    }

    /// `getsockopt`: how many bytes.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub(super) fn get(&self, level: i32, name: i32, to: &mut [u8]) -> Result<usize, Errno> {
        let int = self.values[find(level, name)?].load(Ordering::Relaxed) as i32;
        // Linux gives a byte to who has no room for more, if it fits.
        Ok(match (level, u8::try_from(int)) {
            (IPPROTO_IP, Ok(byte)) if (1..4).contains(&to.len()) => {
                to[0] = byte;
                1
            }
            _ => give_int(to, int),
        })
    }
}

fn find(level: i32, name: i32) -> Result<usize, Errno> {
    SETTINGS
        .iter()
        .position(|setting| setting.level == level && setting.name == name)
        .ok_or(Errno::NOPROTOOPT)
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("v6only", &self.is_v6only()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_checked_and_remembered() {
        let settings = Settings::new();
        let get = |level, name| {
            let mut to = [0; 4];
            settings.get(level, name, &mut to).map(|n| (n, i32::from_ne_bytes(to)))
        };
        for setting in &SETTINGS {
            assert_eq!(get(setting.level, setting.name), Ok((4, setting.default)));
        }
        assert_eq!(settings.set(IPPROTO_TCP, 1, &7i32.to_ne_bytes()), Ok(()));
        assert_eq!(get(IPPROTO_TCP, 1), Ok((4, 1)));
        assert_eq!(settings.set(IPPROTO_TCP, 4, &0i32.to_ne_bytes()), Err(Errno::INVAL));
        assert_eq!(settings.set(IPPROTO_TCP, 1, &[1, 0, 0]), Err(Errno::INVAL));
        assert_eq!(settings.set(IPPROTO_IP, 2, &[9]), Ok(()));
        assert_eq!(get(IPPROTO_IP, 2), Ok((4, 9)));
        assert_eq!(settings.set(IPPROTO_IP, 2, &(-1i32).to_ne_bytes()), Ok(()));
        assert_eq!(get(IPPROTO_IP, 2), Ok((4, 64)));
        assert_eq!(get(IPPROTO_IP, 999), Err(Errno::NOPROTOOPT));
        let child = Settings::new();
        settings.set(IPPROTO_IPV6, IPV6_V6ONLY, &1i32.to_ne_bytes()).unwrap();
        child.inherit(&settings);
        assert!(child.is_v6only());
    }
}
