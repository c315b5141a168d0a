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
const IP_MULTICAST_TTL: i32 = 33;
const IP_MULTICAST_LOOP: i32 = 34;
pub(super) const TCP_MAXSEG: i32 = 2;
const TCP_DEFER_ACCEPT: i32 = 9;
pub(super) const TCP_WINDOW_CLAMP: i32 = 10;
/// Options of IP of which a value of no bytes is an error; of all others it is 0.
const NOT_EMPTY: [i32; 4] = [IP_TTL, IP_FREEBIND, IP_MULTICAST_TTL, IP_MULTICAST_LOOP];
/// The bits of a traffic class that congestion control has (ECN).
const ECN: i32 = 3;
/// The seconds of `TCP_LINGER2` at most.
const LINGER_MAX: i32 = 120;
/// Seconds until the first retransmission, and between two at most; retransmissions at most.
const RETRANSMISSION: u32 = 1;
const RETRANSMISSION_MAX: u32 = 120;
const RETRANSMISSIONS: u32 = 255;
/// The least window that `TCP_WINDOW_CLAMP` leaves (`SOCK_MIN_RCVBUF / 2`).
const WINDOW_MIN: i32 = 1152;
const IPV6_V6ONLY: i32 = 26;
const IPV6_MULTICAST_HOPS: i32 = 18;
const IPV6_AUTOFLOWLABEL: i32 = 70;

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
    /// A number, or 0.
    OrNone,
    /// `IP_TOS`: a number that is cut to one byte, of which the last two bits are not a stream's.
    Tos,
    /// `IPV6_TCLASS`: a byte, or -1 for 0; with the same bits.
    TrafficClass,
    /// `IP_MULTICAST_TTL` and `IPV6_MULTICAST_HOPS`: as `OrDefault`, and not of a stream.
    Multicast(Errno),
    /// `TCP_LINGER2`: seconds up to the bounds; 0 is the default, and less is -1.
    Linger,
    /// `TCP_DEFER_ACCEPT`: seconds that are rounded up to a retransmission.
    Retransmission,
    /// `TCP_WINDOW_CLAMP`: 0, or a number of bytes, not below half of the least receive buffer.
    Window,
}

const fn switch(level: i32, name: i32, default: i32) -> Setting {
    Setting { level, name, default, range: (i32::MIN, i32::MAX), kind: Kind::Switch }
}

const fn number(level: i32, name: i32, default: i32, range: (i32, i32)) -> Setting {
    Setting { level, name, default, range, kind: Kind::Number }
}

const fn special(level: i32, name: i32, default: i32, range: (i32, i32), kind: Kind) -> Setting {
    Setting { level, name, default, range, kind }
}

const ANY: (i32, i32) = (i32::MIN, i32::MAX);

/// All of them, and where they are kept.
const SETTINGS: [Setting; 31] = [
    switch(IPPROTO_TCP, 1, 0),                             // TCP_NODELAY
    special(IPPROTO_TCP, 2, 0, (88, 32767), Kind::OrNone), // TCP_MAXSEG
    switch(IPPROTO_TCP, 3, 0),                             // TCP_CORK
    number(IPPROTO_TCP, 4, 7200, (1, 32767)),              // TCP_KEEPIDLE
    number(IPPROTO_TCP, 5, 75, (1, 32767)),                // TCP_KEEPINTVL
    number(IPPROTO_TCP, 6, 9, (1, 127)),                   // TCP_KEEPCNT
    number(IPPROTO_TCP, 7, 6, (1, 127)),                   // TCP_SYNCNT
    special(IPPROTO_TCP, 8, 60, ANY, Kind::Linger),        // TCP_LINGER2
    special(IPPROTO_TCP, 9, 0, ANY, Kind::Retransmission), // TCP_DEFER_ACCEPT
    special(IPPROTO_TCP, 10, 0, ANY, Kind::Window),        // TCP_WINDOW_CLAMP
    switch(IPPROTO_TCP, 12, 1),                            // TCP_QUICKACK
    number(IPPROTO_TCP, 18, 0, (0, i32::MAX)),             // TCP_USER_TIMEOUT
    number(IPPROTO_TCP, 25, 0, ANY),                       // TCP_NOTSENT_LOWAT
    special(IPPROTO_IP, IP_TOS, 0, ANY, Kind::Tos),
    special(IPPROTO_IP, IP_TTL, 64, (1, 255), Kind::OrDefault),
    switch(IPPROTO_IP, IP_PKTINFO, 0),
    number(IPPROTO_IP, 10, 1, (0, 5)), // IP_MTU_DISCOVER
    switch(IPPROTO_IP, IP_RECVTTL, 0),
    switch(IPPROTO_IP, IP_RECVTOS, 0),
    switch(IPPROTO_IP, IP_FREEBIND, 0),
    switch(IPPROTO_IP, 24, 0), // IP_BIND_ADDRESS_NO_PORT
    special(IPPROTO_IP, IP_MULTICAST_TTL, 1, (0, 255), Kind::Multicast(Errno::INVAL)),
    switch(IPPROTO_IP, IP_MULTICAST_LOOP, 1),
    special(IPPROTO_IPV6, 16, 64, (0, 255), Kind::OrDefault), // IPV6_UNICAST_HOPS
    special(IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 1, (0, 255), Kind::Multicast(Errno::NOPROTOOPT)),
    number(IPPROTO_IPV6, 19, 1, (0, 1)), // IPV6_MULTICAST_LOOP
    number(IPPROTO_IPV6, 23, 1, (0, 5)), // IPV6_MTU_DISCOVER
    switch(IPPROTO_IPV6, IPV6_V6ONLY, 0),
    switch(IPPROTO_IPV6, IPV6_RECVPKTINFO, 0),
    special(IPPROTO_IPV6, 67, 0, (0, 255), Kind::TrafficClass), // IPV6_TCLASS
    switch(IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 1),
];

const V6ONLY: usize = place(IPPROTO_IPV6, IPV6_V6ONLY);
const FREEBIND: usize = place(IPPROTO_IP, IP_FREEBIND);
const PKTINFO: usize = place(IPPROTO_IP, IP_PKTINFO);
const PKTINFO6: usize = place(IPPROTO_IPV6, IPV6_RECVPKTINFO);
const TTL: usize = place(IPPROTO_IP, IP_TTL);
const TOS: usize = place(IPPROTO_IP, IP_TOS);
const RECVTTL: usize = place(IPPROTO_IP, IP_RECVTTL);
const RECVTOS: usize = place(IPPROTO_IP, IP_RECVTOS);
const AUTOFLOWLABEL: usize = place(IPPROTO_IPV6, IPV6_AUTOFLOWLABEL);
const MAXSEG: usize = place(IPPROTO_TCP, TCP_MAXSEG);
const DEFER_ACCEPT: usize = place(IPPROTO_TCP, TCP_DEFER_ACCEPT);
const WINDOW_CLAMP: usize = place(IPPROTO_TCP, TCP_WINDOW_CLAMP);

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
        // A listener's alone.
        self.values[DEFER_ACCEPT].store(0, Ordering::Relaxed);
    }

    /// The largest segment that the program wants, if it has said one (`TCP_MAXSEG`).
    pub(super) fn max_segment(&self) -> Option<u32> {
        match self.values[MAXSEG].load(Ordering::Relaxed) {
            0 => None,
            bytes => Some(bytes),
        }
    }

    /// Whether no option has set the largest segment or the window.
    pub(super) fn is_plain(&self) -> bool {
        let [segment, window] =
            [MAXSEG, WINDOW_CLAMP].map(|at| self.values[at].load(Ordering::Relaxed));
        segment | window == 0
    }

    /// Sets the window of a connection; 0 for a socket that has no connection any more.
    pub(super) fn set_window(&self, bytes: u32) {
        self.values[WINDOW_CLAMP].store(bytes, Ordering::Relaxed);
    }

    /// Bounds the window of a new connection (`TCP_WINDOW_CLAMP`) and returns it. The window has
    /// room for two segments, and leaves room for one.
    pub(super) fn clamp_window(&self, most: u32, segment: u32) -> u32 {
        let mut clamp = match self.values[WINDOW_CLAMP].load(Ordering::Relaxed) {
            0 => most,
            clamp => clamp.min(most),
        };
        if clamp > 2 * segment && clamp + segment > most {
            clamp = (most - segment).max(2 * segment);
        }
        self.set_window(clamp);
        clamp
    }

    /// `TCP_DEFER_ACCEPT`, in seconds: the time of the retransmission at which a deferred
    /// connection is queued.
    pub(super) fn defer_accept(&self) -> u32 {
        self.values[DEFER_ACCEPT].load(Ordering::Relaxed)
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

    /// `setsockopt` of a stream's socket, or of another one.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for one that is not known; `EINVAL`.
    pub(super) fn set(
        &self,
        level: i32,
        name: i32,
        value: &[u8],
        is_stream: bool,
    ) -> Result<(), Errno> {
        let at = find(level, name)?;
        let setting = &SETTINGS[at];
        if let (Kind::Multicast(errno), true) = (setting.kind, is_stream) {
            return Err(errno);
        }
        // Options of IP may be bytes; one of IPv6 is 0 if it is too short.
        let int = match *value {
            _ if at == AUTOFLOWLABEL && value.len() < 4 => 0,
            [] if level == IPPROTO_IP && !NOT_EMPTY.contains(&name) => 0,
            [byte, ..] if value.len() < 4 && level == IPPROTO_IP => byte.into(),
            _ => int(value)?,
        };
        let ecn = self.values[at].load(Ordering::Relaxed) as i32 & ECN;
        let with_ecn = |class: i32| if is_stream { class & !ECN | ecn } else { class };
        let int = match setting.kind {
            Kind::Switch => i32::from(int != 0),
            Kind::Tos => with_ecn(int & 0xff),
            Kind::TrafficClass if int == -1 => with_ecn(0),
            Kind::TrafficClass if (0..=0xff).contains(&int) => with_ecn(int),
            Kind::OrDefault | Kind::Multicast(_) if int == -1 => setting.default,
            Kind::OrNone if int == 0 => {
                self.values[at].store(0, Ordering::Relaxed);
                return Ok(());
            }
            Kind::Linger if int == 0 => setting.default,
            Kind::Linger => int.clamp(-1, LINGER_MAX),
            Kind::Retransmission => retransmission(int),
            Kind::Window if int != 0 => int.max(WINDOW_MIN),
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

/// The end of the retransmission that these seconds are in, in seconds: 1, 3, 7 and so on, and from
/// 127 on 120 each.
fn retransmission(seconds: i32) -> i32 {
    let (mut interval, mut end, mut n) = (RETRANSMISSION, RETRANSMISSION, 1);
    if seconds <= 0 {
        return 0;
    }
    while seconds as u32 > end && n < RETRANSMISSIONS {
        interval = (interval * 2).min(RETRANSMISSION_MAX);
        end += interval;
        n += 1;
    }
    end as i32
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
        assert_eq!(settings.set(IPPROTO_TCP, 1, &7i32.to_ne_bytes(), false), Ok(()));
        assert_eq!(get(IPPROTO_TCP, 1), Ok((4, 1)));
        assert_eq!(settings.set(IPPROTO_TCP, 4, &0i32.to_ne_bytes(), false), Err(Errno::INVAL));
        assert_eq!(settings.set(IPPROTO_TCP, 1, &[1, 0, 0], false), Err(Errno::INVAL));
        assert_eq!(settings.set(IPPROTO_IP, 2, &[9], false), Ok(()));
        assert_eq!(get(IPPROTO_IP, 2), Ok((4, 9)));
        assert_eq!(settings.set(IPPROTO_IP, 2, &(-1i32).to_ne_bytes(), false), Ok(()));
        assert_eq!(get(IPPROTO_IP, 2), Ok((4, 64)));
        assert_eq!(get(IPPROTO_IP, 999), Err(Errno::NOPROTOOPT));
        let child = Settings::new();
        settings.set(IPPROTO_IPV6, IPV6_V6ONLY, &1i32.to_ne_bytes(), false).unwrap();
        child.inherit(&settings);
        assert!(child.is_v6only());
    }
}
