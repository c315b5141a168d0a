//! Devices: where packets come from and go to.
//!
//! # The problem
//!
//! What forwarding costs shows only with something on both sides of it: a device that hands packets over by the batch,
//! and one that says, some time later and by the batch as well, that it is done with them. It is there, in
//! the completion, that a driver frees: 64 packets in a row, cold by then.
//!
//! # The contended way
//!
//! One packet for each call, a lock around each queue, and a locked instruction for each packet that goes through it.
//!
//! # Our way
//!
//! ```text
//!            poll(budget)                       xmit(batch)            complete(budget)
//!   device ───────────────> batch of 64 ───────────────────> TX ring ───────────────────> Waitlist: freed in bulk
//!                           (an array on                     filled │ sent │ cleaned
//!                            the stack)                      a power of two
//! ```
//!
//! A device is one queue, and belongs to the thread that polls it: [`NetDevice`] takes `&mut self`, and no counter of it is
//! shared. What goes from one thread to another goes through a [`Pair`]: a ring with one thread at each end, that
//! publishes a batch by one plain store.
//!
//! # Guarantees
//!
//! * Nothing grows: rings have the size that they were made with. [`xmit`](NetDevice::xmit) leaves in the batch what the ring has
//!   no room for; [`send`](NetDevice::send) drops it and [counts](Stats::dropped) why.
//! * Packets keep their order, in each device.
//! * A packet is freed only when its device is done with it, or is dropped.
//!
//! # Limits
//!
//! * One queue for each device. Several threads take a device each.
//! * [`Tap`] and [`PacketSocket`] are made of devices of the host, and need its permission. `AF_XDP` is left out: its rings need
//!   a loaded BPF program and memory of the user's that packets of a slab cache are not in.
//! * No segmentation offload, no VLAN tags taken off. Of checksum offload only what [`PacketSocket`] meets: what another interface of
//!   the host has left to be done is done.
//!
//! # Source
//! `struct net_device_ops`, `napi_struct` and the rings of a usual driver, Linux 6.1.

mod batch;
mod fresh;
mod generator;
mod loopback;
mod open_error;
mod packet_socket;
mod pair;
mod raw;
mod sink;
mod stats;
mod tap;
mod tx_ring;
mod unfinished;

pub use batch::{BATCH, Batch};
pub use generator::{Ends, GENERATOR_SIZES, Generator, Traffic};
pub use loopback::Loopback;
pub use open_error::OpenError;
pub use packet_socket::PacketSocket;
pub use pair::Pair;
pub use sink::{Sink, Tally};
pub use stats::Stats;
pub use tap::Tap;
pub use tx_ring::TxRing;
/// For the fuzzer.
#[doc(hidden)]
pub use unfinished::finish as finish_checksum;

use crate::packet::{DropReason, HEADROOM};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// Packets that a device hands over, or completes, at a time (`NAPI_POLL_WEIGHT`).
pub const BUDGET: usize = 64;

/// Bytes of an Ethernet's header.
const LINK_HEADER: usize = 14;
/// Bytes of a VLAN's tag, which a frame may have beyond what the MTU of its interface says.
const TAG: usize = 4;
/// Bytes that a packet in one piece holds, at most.
const HOLDS: usize = 16_320 - HEADROOM;

/// The longest frame of an interface of the host, a tag not counted: by its MTU, but one that a packet holds, and one byte more.
fn longest(mtu: usize) -> usize {
    (mtu + LINK_HEADER).min(HOLDS - TAG - 1)
}

/// Whether a frame is no longer than `max_frame`, and the tag if it has one.
fn fits(frame: &[u8], max_frame: usize) -> bool {
    let tagged = frame.get(12..14).is_some_and(|kind| kind == [0x81, 0x00]);
    frame.len() <= max_frame + if tagged { TAG } else { 0 }
}

/// A device, or one queue of it. It belongs to the thread that polls it.
pub trait NetDevice<'n> {
    /// Its name, for people.
    fn name(&self) -> &str;

    /// The longest frame that it sends, link header included, and the tag of a VLAN not.
    fn max_frame(&self) -> usize;

    /// Sends packets, from the first on; those that there is no room for stay in the batch. How many it took.
    ///
    /// What it took before and could not send yet is sent first. A device whose host did not take all (a [`Tap`] whose queue was full:
    /// `EAGAIN`) tries that again in the next `xmit`, and only there: while [`pending`](Self::pending) is not 0, call it again, also with an
    /// empty batch.
    ///
    /// A packet that the device cannot send at all (too long, too short, in fragments) is dropped, counted, and none of those that were taken.
    fn xmit(&mut self, batch: &mut Batch<'n>) -> usize;

    /// Appends packets that came in, up to `budget` and to the room in `out`: how many.
    ///
    /// # Errors
    /// What the host says of a device of its own; `ENOMEM`. What was appended before stays.
    fn poll(&mut self, budget: usize, out: &mut Batch<'n>) -> Result<usize, Errno>;

    /// Frees up to `budget` packets that are sent, in bulk: how many.
    fn complete(&mut self, budget: usize) -> usize;

    /// Packets that it took and that are still to be sent: by the next [`xmit`](Self::xmit).
    fn pending(&self) -> usize {
        0
    }

    /// What it has counted.
    fn stats(&self) -> &Stats;

    /// The same, to be counted in.
    fn stats_mut(&mut self) -> &mut Stats;

    /// What becomes readable when packets come in, of a device that can be waited for.
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Sends packets, and completes to make room for all. What there is still no room for is dropped, and counted as
    /// [`DropReason::QueueFull`]. How many the device took; the batch is empty after.
    #[inline]
    fn send(&mut self, batch: &mut Batch<'n>) -> usize {
        let mut sent = self.xmit(batch);
        if !batch.is_empty() {
            self.complete(BUDGET);
            sent += self.xmit(batch);
            let dropped = batch.kfree(DropReason::QueueFull);
            self.stats_mut().drop_packets(DropReason::QueueFull, dropped);
        }
        sent
    }
}
