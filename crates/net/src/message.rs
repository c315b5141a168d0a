//! Messages, as `sendmsg` and `recvmsg` have them.

use crate::address::SockAddr;
use crate::unix::Parcel;
use core::fmt;
use quietline_vfs::{Sink, Source};

/// A message to be sent (`struct msghdr` of a send).
pub struct Outgoing<'m, 'a, 'b> {
    /// To whom; empty for whoever the socket is connected to.
    pub name: &'m SockAddr,
    /// The bytes. What is sent is taken.
    pub data: &'m mut Source<'a, 'b>,
    /// Control messages: `cmsghdr`s as 64-bit Linux lays them out.
    pub control: &'m [u8],
    /// `MSG_DONTWAIT` and so on.
    pub flags: i32,
}

/// Room for a message (`struct msghdr` of a receive).
pub struct Incoming<'s, 'a, 'b> {
    /// From whom it was, afterwards.
    pub name: &'s mut SockAddr,
    /// Room for the bytes.
    pub data: &'s mut Sink<'a, 'b>,
    /// Room for control messages; none if the caller takes none.
    pub control: &'s mut Control<'a>,
    /// `MSG_PEEK` and so on.
    pub flags: i32,
    /// What was found out: `MSG_TRUNC` and so on.
    pub found: i32,
}

/// Room for control messages, filled from the front.
pub struct Control<'a> {
    room: &'a mut [u8],
    used: usize,
    wanted: bool,
    undelivered: Undelivered,
}

/// Files that have come and for which there was no room. They are closed when this goes: as on Linux when the call is over, not
/// while it goes on to the next message, which might come to an end by that.
#[derive(Default)]
pub struct Undelivered(Option<Box<Parcel>>);

impl Undelivered {
    /// Keeps others too.
    pub fn add(&mut self, mut more: Self) {
        while let Some(mut parcel) = more.0.take() {
            more.0 = parcel.next.take();
            self.keep(parcel);
        }
    }

    fn keep(&mut self, mut parcel: Box<Parcel>) {
        debug_assert!(parcel.next.is_none(), "it is in no list");
        parcel.next = self.0.take();
        self.0 = Some(parcel);
    }
}

impl Drop for Undelivered {
    /// One by one: not each inside the one before.
    #[inline]
    fn drop(&mut self) {
        while let Some(mut parcel) = self.0.take() {
            self.0 = parcel.next.take();
        }
    }
}

/// A control message's header: its length, its level and its type.
pub(crate) const CMSG_HEADER: usize = 16;

/// A length with the bytes that follow up to the next header.
pub(crate) const fn cmsg_align(len: usize) -> usize {
    len.next_multiple_of(8)
}

impl<'a> Control<'a> {
    /// This much room. (None of it is more than what a caller has who gives no buffer.)
    pub fn new(room: &'a mut [u8]) -> Self {
        Self { wanted: !room.is_empty(), room, used: 0, undelivered: Undelivered::default() }
    }

    /// Whether the caller takes control messages.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Files for which there was no room, to be closed later than with this.
    #[inline]
    pub fn take_undelivered(&mut self) -> Undelivered {
        core::mem::take(&mut self.undelivered)
    }

    /// Keeps files for which there is no room.
    pub(crate) fn keep(&mut self, parcel: Box<Parcel>) {
        self.undelivered.keep(parcel);
    }

    /// Bytes that are filled.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Adds a message of as many numbers as there is room for: how many. Adds none for no numbers.
    pub(crate) fn put_ints(
        &mut self,
        level: i32,
        ty: i32,
        ints: impl Iterator<Item = i32>,
    ) -> usize {
        let room = self.room().unwrap_or(0);
        let to = self.room.get_mut(self.used + CMSG_HEADER..).unwrap_or_default();
        let (to, _) = to[..room].as_chunks_mut::<4>();
        let put = to.iter_mut().zip(ints).map(|(to, int)| *to = int.to_ne_bytes()).count();
        if put != 0 {
            self.header(level, ty, 4 * put);
        }
        put
    }

    /// Heads data that is there already.
    fn header(&mut self, level: i32, ty: i32, len: usize) {
        let to = &mut self.room[self.used..];
        to[..8].copy_from_slice(&((CMSG_HEADER + len) as u64).to_ne_bytes());
        to[8..12].copy_from_slice(&level.to_ne_bytes());
        to[12..16].copy_from_slice(&ty.to_ne_bytes());
        self.used += cmsg_align(CMSG_HEADER + len).min(to.len());
    }

    /// Bytes of data that one more message has room for; none if there is none for a header.
    pub fn room(&self) -> Option<usize> {
        (self.room.len() - self.used).checked_sub(CMSG_HEADER)
    }

    /// Adds a message, cut short if there is not enough room: whether all of it is there (`put_cmsg`; otherwise
    /// `MSG_CTRUNC` is to be told).
    pub fn put(&mut self, level: i32, ty: i32, data: &[u8]) -> bool {
        let Some(room) = self.room() else { return false };
        let n = data.len().min(room);
        let to = &mut self.room[self.used..];
        to[CMSG_HEADER..CMSG_HEADER + n].copy_from_slice(&data[..n]);
        self.header(level, ty, n);
        n == data.len()
    }
}

/// One control message of those that a caller has given.
pub(crate) struct Cmsg<'a> {
    pub(crate) level: i32,
    pub(crate) ty: i32,
    pub(crate) data: &'a [u8],
}

/// The control messages in a caller's bytes. One whose length is not possible is an error, and the last.
pub(crate) fn cmsgs(mut bytes: &[u8]) -> impl Iterator<Item = Option<Cmsg<'_>>> {
    core::iter::from_fn(move || {
        let header = bytes.first_chunk::<CMSG_HEADER>()?;
        let word =
            |at: usize| i32::from_ne_bytes(*header[at..].first_chunk().expect("inside the header"));
        let len = u64::from_ne_bytes(*header.first_chunk().expect("inside the header"));
        let data = usize::try_from(len).ok().and_then(|len| bytes.get(CMSG_HEADER..len));
        let next = data.and_then(|data| bytes.get(cmsg_align(CMSG_HEADER + data.len())..));
        bytes = next.unwrap_or(&[]);
        Some(data.map(|data| Cmsg { level: word(8), ty: word(12), data }))
    })
}

impl fmt::Debug for Outgoing<'_, '_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("name", &self.name)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Incoming<'_, '_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("flags", &self.flags)
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Undelivered").field("any", &self.0.is_some()).finish()
    }
}

impl fmt::Debug for Control<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("used", &self.used).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_found() {
        let mut room = [0; 64];
        let mut control = Control::new(&mut room);
        assert!(control.put(1, 2, &[1, 2, 3, 4, 5]));
        assert_eq!(control.used(), 24);
        assert!(control.put(3, 4, &[9; 8]));
        assert_eq!(control.used(), 48);
        assert!(!control.put(5, 6, &[7; 4]));
        assert_eq!(control.used(), 64);
        let found: Vec<_> = cmsgs(&room)
            .map(|cmsg| cmsg.map(|cmsg| (cmsg.level, cmsg.ty, cmsg.data.to_vec())))
            .collect();
        let third = Some((5, 6, vec![]));
        assert_eq!(found, [Some((1, 2, vec![1, 2, 3, 4, 5])), Some((3, 4, vec![9; 8])), third]);
    }

    #[test]
    fn a_wrong_length_ends_them() {
        for len in [0u64, 15, 17, u64::MAX] {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&len.to_ne_bytes());
            let found: Vec<_> = cmsgs(&bytes).map(|cmsg| cmsg.is_some()).collect();
            assert_eq!(found, [false], "{len}");
        }
        assert_eq!(cmsgs(&[0; 15]).count(), 0);
    }
}
