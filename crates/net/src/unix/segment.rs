//! What lies in a receive queue: one segment for each piece that a sender has handed over (`sk_buff`).

use super::parcel::Parcel;
use super::sock::Sock;
use crate::raw::Object;
use quietline_platform::fault;
use quietline_vfs::Source;
use rustix::io::Errno;

/// Bytes that a segment holds itself.
const INLINE: usize = 55;

/// A segment's bytes.
enum Bytes {
    Inline(u8, [u8; INLINE]),
    Heap(Box<[u8]>),
}

/// Who has sent a segment, if that was noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sender {
    pub(super) pid: i32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Sender {
    /// Nobody knows.
    pub(super) const UNKNOWN: Self = Self { pid: 0, uid: u32::MAX, gid: u32::MAX };
}

/// A piece of a stream, or a whole message. On lines of its own: what lies beside a queue's memory may be another CPU's.
#[repr(align(64))]
pub(super) struct Segment {
    /// What it counts against the room of its sender.
    pub(super) charge: u32,
    /// Bytes that have been read.
    pub(super) at: u32,
    /// An empty message that was looked at: an offset of `SO_PEEK_OFF` leads past it.
    pub(super) peeked: bool,
    pub(super) sender: Sender,
    pub(super) parcel: Option<Box<Parcel>>,
    /// Whose it was, for those who answer, and whose room it takes: messages only.
    pub(super) from: Option<Object<Sock>>,
    bytes: Bytes,
}

impl Segment {
    /// Takes `len` bytes out of `data`.
    ///
    /// # Errors
    /// `ENOMEM`: nothing is taken.
    #[inline]
    pub(super) fn new(data: &mut Source<'_, '_>, len: usize, charge: u32) -> Result<Self, Errno> {
        let bytes = if len <= INLINE {
            let mut bytes = [0; INLINE];
            data.take(&mut bytes[..len]);
            Bytes::Inline(len as u8, bytes)
        } else {
            Bytes::Heap(copied(data, len)?)
        };
        Ok(Self {
            charge,
            at: 0,
            peeked: false,
            sender: Sender::UNKNOWN,
            parcel: None,
            from: None,
            bytes,
        })
    }

    /// All its bytes.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Bytes::Heap(bytes) => bytes,
        }
    }

    /// Those that have not been read.
    #[inline]
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes()[self.at as usize..]
    }

    /// All its bytes, if they are more than it holds itself.
    #[inline]
    pub(super) fn into_long(self) -> Box<[u8]> {
        match self.bytes {
            Bytes::Heap(bytes) => bytes,
            Bytes::Inline(..) => unreachable!("it is a short one"),
        }
    }
}

/// Bytes on the heap, not cleared before they are copied.
fn copied(data: &mut Source<'_, '_>, len: usize) -> Result<Box<[u8]>, Errno> {
    fault::check().map_err(|_| Errno::NOMEM)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| Errno::NOMEM)?;
    while bytes.len() < len {
        let piece = data.buffer();
        if piece.is_empty() {
            data.next_buffer();
            continue;
        }
        let piece = &piece[..piece.len().min(len - bytes.len())];
        bytes.extend_from_slice(piece);
        data.advance(piece.len());
    }
    Ok(bytes.into_boxed_slice())
}

/// How Linux 6.x counts memory for `head` bytes in one piece and `paged` in pages (`truesize`): the header of a buffer, the
/// power of two that its bytes and their trailer come out of, and pages.
fn truesize(head: usize, paged: usize) -> u32 {
    const BUFFER: usize = 256;
    const TRAILER: usize = 320;
    let piece = (head.next_multiple_of(64) + TRAILER).next_power_of_two();
    (BUFFER + piece + paged.next_multiple_of(PAGE)) as u32
}

const PAGE: usize = 4096;
/// Bytes of a message that Linux puts into one piece, if it can have no more than so many pages beside.
const PIECE: usize = 16064;
const PAGES: usize = 17;
/// Bytes of a stream that it puts into one piece before it takes pages; into pages at most.
const HEAD: usize = 3776;
const PAGED: usize = 32768;

/// What a message of `len` bytes counts.
#[inline]
pub(super) fn message_charge(len: usize) -> u32 {
    let paged = len.saturating_sub(PIECE).next_multiple_of(PAGE).min(PAGES * PAGE);
    truesize(len - paged.min(len), paged)
}

/// How many of `len` bytes go into a stream's next segment, for a sender with this much room; what it counts.
#[inline]
pub(super) fn stream_piece(len: usize, sndbuf: u32) -> (usize, u32) {
    if len <= 128 {
        return (len, 768);
    }
    let len = len.min((sndbuf as usize / 2).saturating_sub(64)).min(HEAD + PAGED);
    let paged = len.saturating_sub(HEAD).next_multiple_of(PAGE).min(len);
    (len, truesize(len - paged, paged))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn charges_are_those_of_linux() {
        // How many sends a buffer of 212,992 bytes took on a host with Linux 6.18.
        let times = |charge: u32| 212_992u32.div_ceil(charge);
        for (len, count) in [
            (0, 278),
            (1, 278),
            (128, 278),
            (193, 167),
            (704, 167),
            (768, 93),
            (1728, 93),
            (2000, 49),
            (3776, 49),
        ] {
            assert_eq!(times(message_charge(len)), count, "{len}");
            if len > 0 {
                assert_eq!(stream_piece(len, 212_992), (len, message_charge(len)), "{len}");
            }
        }
        for (len, count) in [
            (3777, 44),
            (4096, 44),
            (5000, 34),
            (7873, 24),
            (8192, 24),
            (10_000, 17),
            (20_000, 11),
            (30_000, 7),
        ] {
            let (piece, charge) = stream_piece(len, 212_992);
            assert_eq!((piece, times(charge)), (len, count), "{len}");
        }
        for (len, count) in [
            (3777, 26),
            (7873, 13),
            (16_064, 13),
            (16_065, 11),
            (32_768, 6),
            (48_833, 4),
            (100_000, 3),
        ] {
            assert_eq!(times(message_charge(len)), count, "{len}");
        }
        assert_eq!(stream_piece(300_000, 212_992).0, 36_544);
        // As SIOCOUTQ told it.
        assert_eq!(message_charge(250_000), 332_032);
    }

    #[test]
    fn bytes_of_several_buffers_are_one() {
        for len in [10, INLINE, INLINE + 1, 200] {
            let all: Vec<u8> = (0..len as u8).collect();
            let buffers: Vec<&[u8]> = all.chunks(7).flat_map(|chunk| [chunk, &[]]).collect();
            let mut data = Source::new(&buffers);
            let segment = Segment::new(&mut data, len, 1).unwrap();
            assert_eq!((segment.bytes(), data.left()), (&all[..], 0));
        }
    }
}
