//! A TAP device: an interface of the host whose cable ends here.

use super::fresh::{Fresh, no_memory};
use super::raw::host::{self, Name};
use super::{Batch, NetDevice, OpenError, Stats, TAG, TxRing, fits, longest};
use crate::packet::{DropReason, Packets};
use core::fmt;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// One end of a cable whose other end is an interface of the host: what the host sends by it comes in here.
///
/// A system call for each packet: the host has no other way for such a device. Buffers for what comes in are made
/// [many](crate::packet::NAPI_BULK) at a time; those that are not used yet are this device's.
///
/// Frames are as long as the MTU says when it is opened, and a VLAN's tag, but no longer than a packet of 16,256 bytes. Longer ones are
/// dropped, and counted as [`PacketTooBig`](DropReason::PacketTooBig).
pub struct Tap<'n> {
    name: Name,
    fresh: Fresh<'n>,
    fd: OwnedFd,
    max_frame: usize,
    ring: TxRing<'n>,
    stats: Stats,
}

/// Packets of the TX ring.
const RING: usize = 256;

impl<'n> Tap<'n> {
    /// Opens a device by its name; makes it, if there is none, until this is dropped.
    ///
    /// # Errors
    /// [`OpenError`], such as `ENOENT` without `/dev/net/tun`, `EPERM` without `CAP_NET_ADMIN`, `EBUSY` if it is open elsewhere,
    /// `EINVAL` if there is another kind of interface of that name.
    pub fn open(packets: &'n Packets, name: &str) -> Result<Self, OpenError> {
        let name = Name::new(name)?;
        let fd = host::open_tap(name)?;
        let (mtu, _) = host::interface(name)?;
        let ring = TxRing::new(RING).map_err(OpenError::of("make a ring"))?;
        let max_frame = longest(mtu);
        // One byte more than there may be: the host cuts what is longer than what there is room for, and does not tell.
        let fresh = Fresh::new(packets, max_frame + TAG + 1);
        Ok(Self { name, fresh, fd, max_frame, ring, stats: Stats::default() })
    }
}

/// Whether an error of a descriptor says: not now.
fn later(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::INTR | Errno::NOBUFS)
}

impl<'n> NetDevice<'n> for Tap<'n> {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn max_frame(&self) -> usize {
        self.max_frame
    }

    fn xmit(&mut self, batch: &mut Batch<'n>) -> usize {
        let Self { ring, stats, fd, .. } = self;
        let taken = ring.take(batch, self.max_frame, stats);
        let (mut down, mut failed) = (0, 0);
        ring.send(|skb| match rustix::io::write(&*fd, skb.data()) {
            Ok(_) => {
                stats.tx(skb.len());
                true
            }
            Err(errno) if later(errno) => false,
            Err(errno) => {
                *if errno == Errno::IO { &mut down } else { &mut failed } += 1;
                true
            }
        });
        // They end as the others do; what matters is that they are counted.
        stats.drop_packets(DropReason::DeviceDown, down);
        stats.drop_packets(DropReason::DeviceFailed, failed);
        taken
    }

    /// `ENOMEM`, or `EBADFD` if the device is gone; nothing comes from one that is down.
    fn poll(&mut self, budget: usize, out: &mut Batch<'n>) -> Result<usize, Errno> {
        let most = self.fresh.len();
        let mut came = 0;
        for _ in 0..budget.min(out.room()) {
            let mut skb = self.fresh.take().map_err(no_memory)?;
            let room = skb.put(most).map_err(no_memory)?;
            let len = match rustix::io::read(&self.fd, room) {
                Ok(len) => len,
                Err(errno) => {
                    self.fresh.give_back(skb);
                    if later(errno) {
                        break;
                    }
                    return Err(errno);
                }
            };
            skb.trim(len).map_err(|_| Errno::IO)?;
            if !fits(skb.data(), self.max_frame) {
                skb.kfree_skb(DropReason::PacketTooBig);
                self.stats.drop_packets(DropReason::PacketTooBig, 1);
                continue;
            }
            self.stats.rx(len);
            let pushed = out.push(skb);
            debug_assert!(pushed.is_ok(), "there was room");
            came += 1;
        }
        Ok(came)
    }

    fn complete(&mut self, budget: usize) -> usize {
        self.ring.complete(budget)
    }

    fn pending(&self) -> usize {
        self.ring.pending()
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

impl fmt::Debug for Tap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap")
            .field("name", &self.name())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
