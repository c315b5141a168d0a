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
    /// Frames before the next one for sending that the host has not taken. It takes them in order, and only in a call of ours.
    waiting: usize,
    /// Frames received since there were none.
    in_a_row: usize,
    /// Whether the host may have had no room.
    losing: bool,
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
        let map = unsafe {
            rustix::mm::mmap(core::ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0)
        };
        let map = map.map_err(OpenError::of("map the rings of a packet socket"))?;
        let map = NonNull::new(map.cast()).ok_or_else(|| ring(rustix::io::Errno::NOMEM))?;
        Ok(Self { map, frame_size, rx: 0, tx: 0, waiting: 0, in_a_row: 0, losing: false })
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

    /// Gives the next packet that came to `take`, and the frame back to the host: none if nothing came. With it goes whether its
    /// checksum is still to be [finished](super::super::unfinished). Of a packet that is cut, or whose VLAN tag was taken off, `take`
    /// is told why it is to be dropped.
    pub(crate) fn receive<R>(
        &mut self,
        take: impl FnOnce(Result<(&[u8], bool), DropReason>) -> R,
    ) -> Option<R> {
        // ORDERING: Acquire pairs with the host's release: who sees that the frame is ours sees what is in it.
        let status = self.status(self.rx).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            // It was full only if it held so many.
            self.losing |= core::mem::take(&mut self.in_a_row) >= FRAMES;
            return None;
        }
        self.in_a_row += 1;
        self.losing |= status & libc::TP_STATUS_LOSING != 0;
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
            let bytes = unsafe { slice::from_raw_parts(frame.add(start).as_ptr(), len) };
            take(Ok((bytes, status & libc::TP_STATUS_CSUMNOTREADY != 0)))
        };
        // ORDERING: Release: what was read of the frame was read before the host has it again.
        self.status(self.rx).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.rx = (self.rx + 1) % FRAMES;
        Some(taken)
    }

    /// Whether the host may have had no room for packets, since this was asked last.
    pub(crate) fn may_have_lost(&mut self) -> bool {
        core::mem::take(&mut self.losing)
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
        self.waiting += 1;
        true
    }

    /// Frames for sending that the host has not taken, as was [found](Self::taken) last.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The number of the frame that waits behind so many others.
    fn waiter(&self, nth: usize) -> usize {
        FRAMES + (self.tx + FRAMES - self.waiting + nth) % FRAMES
    }

    /// The packet in a frame that we have filled.
    fn filled(&self, index: usize) -> &[u8] {
        let frame = self.frame(index);
        // SAFETY: `transmit` has written the length and so many bytes, which are inside the frame; the host reads them only.
        unsafe {
            let len = frame.add(offset_of!(tpacket2_hdr, tp_len)).cast::<u32>().read();
            slice::from_raw_parts(frame.add(TX_DATA).as_ptr(), len as usize)
        }
    }

    /// Finds out what the host has taken, and gives the length of each of these packets to `each`.
    pub(crate) fn taken(&mut self, mut each: impl FnMut(usize)) {
        const NOT: u32 = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_WRONG_FORMAT;
        while self.waiting > 0 {
            let oldest = self.waiter(0);
            // Relaxed: what is read besides is what we have written ourselves.
            if self.status(oldest).load(Ordering::Relaxed) & NOT != 0 {
                break;
            }
            each(self.filled(oldest).len());
            self.waiting -= 1;
        }
    }

    /// Whether the host does not take the oldest frame that waits, nor go on to those behind it, because of what is in it.
    pub(crate) fn is_stuck(&self) -> bool {
        // Relaxed: as in `taken`.
        let status = || self.status(self.waiter(0)).load(Ordering::Relaxed);
        self.waiting > 0 && status() & libc::TP_STATUS_WRONG_FORMAT != 0
    }

    /// Takes the frame out that the host does not take, and those behind it that do not fit either: how many. What waits behind moves
    /// up, since the host goes on where it is. O(frames that wait).
    pub(crate) fn take_out(&mut self, fits: impl Fn(&[u8]) -> bool) -> usize {
        let (waiting, mut kept) = (self.waiting, 0);
        for nth in 1..waiting {
            let (from, to) = (self.waiter(nth), self.waiter(kept));
            let packet = self.filled(from);
            if !fits(packet) {
                continue;
            }
            let len = packet.len();
            let (from, frame) = (self.frame(from), self.frame(to));
            // SAFETY: other frames: `kept` is below `nth`. Both are ours: the host takes frames in a call of ours only, and
            // has not got beyond the first of these.
            unsafe {
                frame.add(offset_of!(tpacket2_hdr, tp_len)).cast::<u32>().write(len as u32);
                frame.add(TX_DATA).copy_from_nonoverlapping(from.add(TX_DATA), len);
            }
            // ORDERING: Release: as in `transmit`.
            self.status(to).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
            kept += 1;
        }
        for nth in kept..waiting {
            // ORDERING: Release: what was read of the frame was read before anybody writes it.
            self.status(self.waiter(nth)).store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
        }
        self.tx = (self.tx + FRAMES - (waiting - kept)) % FRAMES;
        self.waiting = kept;
        waiting - kept
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, of this length, and nothing is borrowed from it.
        let unmapped =
            unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), 2 * FRAMES * self.frame_size) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
