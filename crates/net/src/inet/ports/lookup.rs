//! Who takes what is sent to a port.
//!
//! Whoever is connected to the sender, of several the one that was connected last; then the one that is bound closest, of several
//! that are bound alike the latest, and of several that share the port by `SO_REUSEPORT` one by the sender's address. Who was
//! connected a second time, to another sender, is found among those of his address (`udp4_lib_lookup4`, `compute_score`).

use super::place::{Owner, Port};
use core::net::{IpAddr, SocketAddr};

/// How well somebody is met: by being connected; by the address. 0 if not at all.
const CONNECTED: u8 = u8::MAX;

impl<T> Owner<T> {
    /// How well it is met by what `from` sends to `ip`, and its place among those that are met as well.
    fn rank(&self, ip: IpAddr, from: SocketAddr) -> (u8, i64) {
        // Connected to port 0, it hears all ports of the address.
        let others =
            |only: SocketAddr| only != from && (only.port() != 0 || only.ip() != from.ip());
        if self.open.is_none() || self.from.is_some_and(others) {
            return (0, 0);
        }
        let closeness = match self.claim.local.meets(ip) {
            0 => return (0, 0),
            met => 2 * met + u8::from(!self.claim.v6),
        };
        match (self.from, self.link) {
            (Some(_), Some((first, since))) if first == from => (CONNECTED, since),
            (Some(_), _) => (closeness * 5, self.order),
            (None, _) => (closeness, self.order),
        }
    }
}

impl<T> Port<T> {
    /// Who takes what `from` sends to `ip` here. O(owners).
    pub(super) fn receiver(&self, ip: IpAddr, from: SocketAddr) -> Option<&Owner<T>> {
        let rank = |owner: &&Owner<T>| owner.rank(ip, from);
        let best = self.owners.iter().max_by_key(rank)?;
        let (met, _) = rank(&best);
        if met == 0 {
            return None;
        }
        if !best.claim.reuseport || best.from.is_some() || self.owners.len() == 1 {
            return Some(best);
        }
        let members = || {
            self.owners
                .iter()
                .filter(|owner| owner.claim.reuseport && owner.rank(ip, from).0 == met)
        };
        let n = members().count() as u64;
        members().nth(((u64::from(hash(from)) * n) >> 32) as usize)
    }
}

/// A number that spreads senders evenly.
fn hash(from: SocketAddr) -> u32 {
    let ip = match from.ip() {
        IpAddr::V4(ip) => u32::from(ip),
        IpAddr::V6(ip) => {
            ip.segments().iter().fold(0u32, |sum, &part| sum.rotate_left(5) ^ u32::from(part))
        }
    };
    let mixed = (u64::from(ip) << 16 | u64::from(from.port())).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}
