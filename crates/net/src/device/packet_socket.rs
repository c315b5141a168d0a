//! All packets of an interface of the host, through rings that it shares with us.

use super::fresh::Fresh;
use super::raw::host::{self, Name};
use super::raw::packet_ring::PacketRing;
use super::unfinished::finish;
use super::{Batch, NetDevice, OpenError, Stats, TAG, TxRing, fits, longest};
use crate::packet::{DropReason, PacketError, Packets, Skb};
use core::fmt;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};

/// A packet socket on an interface, with `TPACKET_V2` rings of 512 frames each way: no system call for what comes in, one for
/// each batch that goes out. Buffers for what comes in, up to 2,048 bytes, are made [many](crate::packet::NAPI_BULK) at a time; those
/// that are not used yet are this device's.
///
/// All that is on the link comes, also what is for other stations (the interface is promiscuous as long as this is open), but what
/// the host sends there. The host's own protocols see what comes in as well: an interface that is ours alone has no address of the
/// host's.
///
/// A checksum that another interface of the host has left to be made (`veth`) is made here, of TCP and UDP; other packets without
/// theirs are dropped, as those with a VLAN tag are, as [`UnhandledProtocol`](DropReason::UnhandledProtocol).
///
/// # What is dropped
/// * As [`PacketTooBig`](DropReason::PacketTooBig): what comes in longer than the MTU was at
///   [`open`](Self::open) or than a packet of 16,256 bytes; what goes out longer than the MTU is
///   now.
///   Longer than the MTU are segments that the interface has [merged](Self::merges_segments), and
///   those that the other end of a `veth` has not split (`ethtool -K NAME gso off tso off` there).
/// * As [`QueueFull`](DropReason::QueueFull): what came in while the ring was full. The host says how many when the ring runs dry
///   or new packets come.
///
/// What is sent while the interface is down waits in the ring, for it to be up.
pub struct PacketSocket<'n> {
    name: Name,
    packets: &'n Packets,
    fresh: [Fresh<'n>; FRESH.len()],
    link: [u8; 6],
    /// The longest frame that goes out, and that comes in.
    max_frame: usize,
    longest: usize,
    frames: PacketRing,
    fd: OwnedFd,
    ring: TxRing<'n>,
    /// Polls in a row that found nothing.
    dry: u32,
    /// Whether the interface was down when the host was last asked to send. It may go without another word.
    is_down: bool,
    /// Whether the interface is no more.
    is_gone: bool,
    stats: Stats,
}

/// How many polls find nothing until the host is asked whether there is an error.
const DRY: u32 = 64;

/// Packets of the TX ring, each of which is copied into a frame.
const RING: usize = 256;

/// Bytes of the packets that buffers are made many at a time for, as caches of data have them; for longer ones one by one.
const FRESH: [usize; 2] = [512, 2048];

impl<'n> PacketSocket<'n> {
    /// Opens a socket on an interface.
    ///
    /// # Errors
    /// [`OpenError`], such as `EPERM` without `CAP_NET_RAW`, `ENODEV` without such an interface.
    pub fn open(packets: &'n Packets, name: &str) -> Result<Self, OpenError> {
        let name = Name::new(name)?;
        let fd = host::packet_socket()?;
        let (mtu, link) = host::interface(name)?;
        let longest = longest(mtu);
        let frames = PacketRing::new(fd.as_fd(), longest + TAG)?;
        host::bind(fd.as_fd(), name)?;
        let ring = TxRing::new(RING).map_err(OpenError::of("make a ring"))?;
        Ok(Self {
            name,
            packets,
            fresh: FRESH.map(|len| Fresh::new(packets, len)),
            link,
            max_frame: longest,
            longest,
            frames,
            fd,
            ring,
            dry: 0,
            is_down: false,
            is_gone: false,
            stats: Stats::default(),
        })
    }

    /// The interface's link address.
    pub fn link(&self) -> [u8; 6] {
        self.link
    }

    /// Whether the interface merges segments that it receives (GRO, LRO), as most do that are
    /// hardware's: packets that get longer than the MTU are dropped. `ethtool -K NAME gro off lro
    /// off` ends that. Returns `false` if the host does not say.
    pub fn merges_segments(&self) -> bool {
        host::merges_segments(self.fd.as_fd(), self.name)
    }

    /// Tells the host to send what is in its ring. At a frame that it does not take, it does not go on: that is taken out.
    fn kick(&mut self) {
        loop {
            let said = rustix::net::send(&self.fd, &[], SendFlags::DONTWAIT);
            self.frames.taken(|len| self.stats.tx(len));
            self.is_down = said == Err(Errno::NETDOWN);
            let Err(errno) = said else { break };
            if !self.frames.is_stuck() {
                self.is_gone |= matches!(errno, Errno::NXIO | Errno::NODEV);
                break;
            }
            let reason = if errno == Errno::MSGSIZE {
                self.renew();
                DropReason::PacketTooBig
            } else {
                DropReason::DeviceFailed
            };
            let dropped = self.frames.take_out(|frame| fits(frame, self.max_frame));
            self.stats.drop_packets(reason, dropped);
        }
    }

    /// Asks for the MTU again.
    #[cold]
    fn renew(&mut self) {
        if let Ok(mtu) = host::mtu(self.fd.as_fd(), self.name) {
            self.max_frame = longest(mtu).min(self.longest);
        }
    }

    /// Takes the next packet that came: none if none did.
    #[inline(always)]
    fn receive(&mut self) -> Option<Result<Skb<'n>, DropReason>> {
        let Self { packets, fresh, longest, .. } = self;
        self.frames.receive(|bytes| {
            let (bytes, is_unfinished) = bytes?;
            if !fits(bytes, *longest) {
                return Err(DropReason::PacketTooBig);
            }
            let made = match fresh.iter_mut().find(|fresh| bytes.len() <= fresh.len()) {
                Some(fresh) => fresh.take(),
                None => packets.alloc_skb(bytes.len()),
            };
            let put = made.and_then(|mut skb| {
                skb.put_data(bytes)?;
                let finished = !is_unfinished || finish(skb.data_mut()?);
                Ok(if finished { Ok(skb) } else { Err(DropReason::UnhandledProtocol) })
            });
            put.unwrap_or_else(|error| match error {
                PacketError::BadLength => Err(DropReason::PacketTooBig),
                _ => Err(DropReason::NoMemory),
            })
        })
    }

    /// Looks at what the host tells besides packets, after a poll that was `dry` if it found none.
    #[inline(always)]
    fn look(&mut self, is_dry: bool) {
        if self.frames.may_have_lost() {
            let lost = host::lost(self.fd.as_fd()).unwrap_or(0);
            self.stats.drop_packets(DropReason::QueueFull, lost);
        }
        self.dry = if is_dry { self.dry + 1 } else { 0 };
        if self.dry == DRY {
            self.dry = 0;
            // As long as nobody takes the error, the descriptor is ready for it.
            let told = !matches!(sockopt::socket_error(&self.fd), Ok(Ok(())));
            if told || self.is_down {
                self.kick();
            }
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

    /// A packet counts as sent when the host has taken it from its ring.
    fn xmit(&mut self, batch: &mut Batch<'n>) -> usize {
        let too_big = self.stats.dropped(DropReason::PacketTooBig);
        let taken = self.ring.take(batch, self.max_frame, &mut self.stats);
        if self.stats.dropped(DropReason::PacketTooBig) != too_big {
            // The next ones may fit again.
            self.renew();
        }
        self.ring.send(|skb| self.frames.transmit(skb.data()));
        if self.frames.waiting() > 0 {
            self.kick();
        }
        taken
    }

    /// `ENOMEM`, for a packet that is dropped and counted; `ENXIO` if the interface is no more.
    fn poll(&mut self, budget: usize, out: &mut Batch<'n>) -> Result<usize, Errno> {
        let (mut came, mut is_dry) = (0, false);
        for _ in 0..budget.min(out.room()) {
            match self.receive() {
                None => {
                    is_dry = true;
                    break;
                }
                Some(Ok(skb)) => {
                    self.stats.rx(skb.len());
                    let pushed = out.push(skb);
                    debug_assert!(pushed.is_ok(), "there was room");
                    came += 1;
                }
                Some(Err(reason)) => {
                    self.stats.drop_packets(reason, 1);
                    if reason == DropReason::NoMemory {
                        return Err(Errno::NOMEM);
                    }
                }
            }
        }
        self.look(is_dry && came == 0);
        if self.is_gone && came == 0 { Err(Errno::NXIO) } else { Ok(came) }
    }

    fn complete(&mut self, budget: usize) -> usize {
        self.ring.complete(budget)
    }

    fn pending(&self) -> usize {
        self.ring.pending() + self.frames.waiting()
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
