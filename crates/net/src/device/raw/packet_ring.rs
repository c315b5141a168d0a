//! The rings of a packet socket, in memory that the host shares with us (`TPACKET_V2`).
//!
//! A frame is the host's or ours, as the status in its header says; who has it sets the status when it is done. A mapping has the
//! frames for receiving, and behind them as many for sending.

use super::super::OpenError;
use super::host::set;
use crate::packet::DropReason;
use core::mem::{offset_of, size_of};
use core::ptr::NonNull;
use core::slice;
use libc::{tpacket_req, tpacket2_hdr};
use quietline_platform::atomic::{AtomicU32, Ordering};
use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, ProtFlags};

/// Frames of each ring.
const FRAMES: usize = 512;
const BLOCK: usize = 1 << 16;

/// Both rings, of one thread.
pub(crate) struct PacketRing {
    map: NonNull<u8>,
    frame_size: usize,
    /// The next frame of each ring.
    rx: usize,
    tx: usize,
}

// SAFETY: it has the mapping alone, but for the host.
unsafe impl Send for PacketRing {}

/// Where the data of a frame that is sent begins.
const TX_DATA: usize = size_of::<tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
/// What a received frame has before its data, at most: the header, an address, alignment, and room before the link's header.
const BEFORE: usize = 128;

impl PacketRing {
    /// Rings for frames of up to so many bytes.
    pub(crate) fn new(fd: BorrowedFd<'_>, most: usize) -> Result<Self, OpenError> {
        let frame_size = (most + BEFORE).next_power_of_two().max(2048);
        let request = tpacket_req {
            tp_block_size: BLOCK.max(frame_size) as u32,
            tp_block_nr: (FRAMES * frame_size / BLOCK.max(frame_size)) as u32,
            tp_frame_size: frame_size as u32,
            tp_frame_nr: FRAMES as u32,
        };
        let ring = OpenError::of("make the rings of a packet socket");
        set(fd, libc::PACKET_RX_RING, &request).map_err(&ring)?;
        set(fd, libc::PACKET_TX_RING, &request).map_err(&ring)?;
        let (protection, len) = (ProtFlags::READ | ProtFlags::WRITE, 2 * FRAMES * frame_size);
        // SAFETY: a fresh mapping, at an address that the host chooses.
        let map =
            unsafe { rustix::mm::mmap(core::ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0) };
        let map = map.map_err(OpenError::of("map the rings of a packet socket"))?;
        let map = NonNull::new(map.cast()).ok_or_else(|| ring(rustix::io::Errno::NOMEM))?;
        Ok(Self { map, frame_size, rx: 0, tx: 0 })
    }

    fn frame(&self, index: usize) -> NonNull<u8> {
        // SAFETY: below 2 * FRAMES, so inside the mapping.
        unsafe { self.map.add(index * self.frame_size) }
    }

    /// The status of a frame. Its line is written by the host too.
    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: aligned, inside the mapping, and changed atomically by both sides.
        unsafe { self.frame(index).add(offset_of!(tpacket2_hdr, tp_status)).cast().as_ref() }
    }

    /// Gives the next packet that came to `take`, and the frame back to the host: none if nothing came. Of a packet that is cut, or
    /// whose VLAN tag was taken off, `take` is told why it is to be dropped.
    pub(crate) fn receive<R>(&mut self, take: impl FnOnce(Result<&[u8], DropReason>) -> R) -> Option<R> {
        // ORDERING: Acquire pairs with the host's release: who sees that the frame is ours sees what is in it.
        let status = self.status(self.rx).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let frame = self.frame(self.rx);
        // SAFETY: the frame is ours, and begins with its header, of plain numbers.
        let header = unsafe { frame.cast::<tpacket2_hdr>().read() };
        let (start, len) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let taken = if header.tp_len != header.tp_snaplen || start + len > self.frame_size {
            take(Err(DropReason::PacketTooBig))
        } else if status & libc::TP_STATUS_VLAN_VALID != 0 {
            take(Err(DropReason::UnhandledProtocol))
        } else {
            // SAFETY: inside the frame, and the host does not write it until it is given back.
            take(Ok(unsafe { slice::from_raw_parts(frame.add(start).as_ptr(), len) }))
        };
        // ORDERING: Release: what was read of the frame was read before the host has it again.
        self.status(self.rx).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.rx = (self.rx + 1) % FRAMES;
        Some(taken)
    }

    /// Puts a packet into the next frame for sending; false if the host has it still.
    ///
    /// # Panics
    /// If it is longer than what the rings were made for.
    pub(crate) fn transmit(&mut self, packet: &[u8]) -> bool {
        assert!(packet.len() + TX_DATA <= self.frame_size, "longer than a frame");
        let index = FRAMES + self.tx;
        // ORDERING: Acquire pairs with the host's release: it has read the frame before it gave it back.
        let status = self.status(index).load(Ordering::Acquire);
        if status & (libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING) != 0 {
            return false;
        }
        let frame = self.frame(index);
        // SAFETY: the frame is ours; the header and the packet fit into it.
        unsafe {
            frame.add(offset_of!(tpacket2_hdr, tp_len)).cast::<u32>().write(packet.len() as u32);
            frame.add(TX_DATA).copy_from_nonoverlapping(NonNull::from(packet).cast(), packet.len());
        }
        // ORDERING: Release: who sees the request sees the packet.
        self.status(index).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.tx = (self.tx + 1) % FRAMES;
        true
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, of this length, and nothing is borrowed from it.
        let unmapped = unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), 2 * FRAMES * self.frame_size) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
