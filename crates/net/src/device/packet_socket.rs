//! All packets of an interface of the host, through rings that it shares with us.

use super::raw::host::{self, Name};
use super::raw::packet_ring::PacketRing;
use super::tap::later;
use super::{Batch, LINK_HEADER, NetDevice, OpenError, Stats, TxRing};
use crate::packet::{DropReason, PacketError, Packets};
use core::fmt;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SendFlags;

/// A packet socket on an interface, with `TPACKET_V2` rings of 512 frames each way: no system call for what comes in, one for
/// each batch that goes out.
///
/// The host's own protocols see what comes in as well: an interface that is ours alone has no address of the host's. What
/// another interface of the host has left without checksum (`veth` without `ethtool -K NAME tx off`) comes without, and frames
/// longer than the MTU (its `gso`) are dropped as [`PacketTooBig`](DropReason::PacketTooBig), those with a VLAN tag as
/// [`UnhandledProtocol`](DropReason::UnhandledProtocol).
pub struct PacketSocket<'n> {
    name: Name,
    packets: &'n Packets,
    link: [u8; 6],
    max_frame: usize,
    frames: PacketRing,
    fd: OwnedFd,
    ring: TxRing<'n>,
    /// Whether the host has not yet looked at all that is in its ring.
    kick_again: bool,
    stats: Stats,
}

/// Packets of the TX ring, each of which is copied into a frame.
const RING: usize = 256;

impl<'n> PacketSocket<'n> {
    /// Opens a socket on an interface.
    ///
    /// # Errors
    /// [`OpenError`], such as `EPERM` without `CAP_NET_RAW`, `ENODEV` without such an interface.
    pub fn open(packets: &'n Packets, name: &str) -> Result<Self, OpenError> {
        let name = Name::new(name)?;
        let fd = host::packet_socket()?;
        let (mtu, link) = host::interface(name)?;
        let max_frame = mtu + LINK_HEADER;
        let frames = PacketRing::new(fd.as_fd(), max_frame)?;
        host::bind(fd.as_fd(), name)?;
        let ring = TxRing::new(RING).map_err(OpenError::of("make a ring"))?;
        Ok(Self {
            name,
            packets,
            link,
            max_frame,
            frames,
            fd,
            ring,
            kick_again: false,
            stats: Stats::default(),
        })
    }

    /// The interface's link address.
    pub fn link(&self) -> [u8; 6] {
        self.link
    }

    /// Tells the host to send what is in its ring.
    fn kick(&mut self) {
        match rustix::net::send(&self.fd, &[], SendFlags::DONTWAIT) {
            Ok(_) => self.kick_again = false,
            Err(errno) if later(errno) => self.kick_again = true,
            Err(_) => self.stats.drop_packets(DropReason::DeviceDown, 1),
        }
    }
}

impl<'n> NetDevice<'n> for PacketSocket<'n> {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn max_frame(&self) -> usize {
        self.max_frame
    }

    /// A packet counts as sent when it is in the host's ring.
    fn xmit(&mut self, batch: &mut Batch<'n>) -> usize {
        let Self { ring, stats, frames, .. } = self;
        let taken = ring.take(batch, self.max_frame, stats);
        let sent = ring.send(|skb| {
            let went = frames.transmit(skb.data());
            if went {
                stats.tx(skb.len());
            }
            went
        });
        if sent > 0 || ring.pending() > 0 || self.kick_again {
            self.kick();
        }
        taken
    }

    fn poll(&mut self, budget: usize, out: &mut Batch<'n>) -> Result<usize, Errno> {
        let Self { packets, frames, stats, max_frame, .. } = self;
        let (n, mut came) = (budget.min(out.room()), 0);
        while came < n {
            let taken = frames.receive(|bytes| {
                let bytes = match bytes {
                    Ok(bytes) if bytes.len() <= *max_frame => bytes,
                    Ok(_) => return Ok(Err(DropReason::PacketTooBig)),
                    Err(reason) => return Ok(Err(reason)),
                };
                let mut skb = packets.alloc_skb(bytes.len())?;
                skb.put_data(bytes)?;
                Ok::<_, PacketError>(Ok(skb))
            });
            match taken {
                None => break,
                Some(Ok(Err(reason))) => stats.drop_packets(reason, 1),
                Some(Ok(Ok(skb))) => {
                    stats.rx(skb.len());
                    let pushed = out.push(skb);
                    debug_assert!(pushed.is_ok(), "there was room");
                    came += 1;
                }
                Some(Err(_)) => {
                    stats.drop_packets(DropReason::NoMemory, 1);
                    return Err(Errno::NOMEM);
                }
            }
        }
        Ok(came)
    }

    fn complete(&mut self, budget: usize) -> usize {
        self.ring.complete(budget)
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

impl fmt::Debug for PacketSocket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketSocket")
            .field("name", &self.name())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
