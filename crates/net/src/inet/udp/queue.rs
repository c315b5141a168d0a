//! Datagrams that wait to be received.

use core::net::{IpAddr, SocketAddr};
use quietline_platform::{AllocError, fault};
use quietline_vfs::Source;
use std::collections::VecDeque;

/// What fits into the queue itself.
const SHORT: usize = 64;

/// A datagram. On lines of its own: what lies beside a queue's memory may be another CPU's.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Datagram {
    pub(super) from: SocketAddr,
    pub(super) to: IpAddr,
    pub(super) marks: Marks,
    data: Data,
}

/// What a packet of version 4 would say beside its addresses.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) ttl: u8,
    pub(super) tos: u8,
}

#[derive(Debug)]
enum Data {
    Short(u8, [u8; SHORT]),
    Long(Vec<u8>),
}

impl Datagram {
    /// All of `data`.
    pub(super) fn new(
        from: SocketAddr,
        to: IpAddr,
        marks: Marks,
        data: &mut Source<'_, '_>,
    ) -> Result<Self, AllocError> {
        let len = data.left();
        let data = if len <= SHORT {
            let mut bytes = [0; SHORT];
            data.take(&mut bytes[..len]);
            Data::Short(len as u8, bytes)
        } else {
            fault::check()?;
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(len).map_err(|_| AllocError)?;
            bytes.resize(len, 0);
            data.take(&mut bytes);
            Data::Long(bytes)
        };
        Ok(Self { from, to, marks, data })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Short(len, bytes) => &bytes[..usize::from(*len)],
            Data::Long(bytes) => bytes,
        }
    }

    /// Whether it is copied under the lock.
    pub(super) fn is_short(&self) -> bool {
        matches!(self.data, Data::Short(..))
    }

    /// The memory that it counts for: what Linux would allocate for it, more or less.
    fn truesize(&self) -> u32 {
        /// The headers, and the room before and after them.
        const AROUND: usize = 28 + 16 + 320;
        /// The buffer's own description.
        const OWN: usize = 256;
        /// The least that is allocated.
        const LEAST: usize = 576;
        let size = self.bytes().len() + AROUND;
        let size = if size <= LEAST { LEAST } else { size.next_power_of_two().min(size + 4096) };
        (size + OWN) as u32
    }
}

/// The queue.
#[derive(Debug)]
pub(super) struct Queue {
    datagrams: VecDeque<Datagram>,
    /// What they count for.
    memory: u32,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self { datagrams: VecDeque::new(), memory: 0 }
    }

    /// Adds one if what lies here counts for no more than `limit` with it, or if nothing lies here; gives it back otherwise,
    /// and when there is no memory.
    pub(super) fn push(&mut self, datagram: Datagram, limit: u32) -> Option<Datagram> {
        let more = self.memory + datagram.truesize();
        if more > limit && !self.datagrams.is_empty() {
            return Some(datagram);
        }
        if self.datagrams.len() == self.datagrams.capacity()
            && (fault::check().is_err() || self.datagrams.try_reserve(1).is_err())
        {
            return Some(datagram);
        }
        self.memory = more;
        self.datagrams.push_back(datagram);
        None
    }

    pub(super) fn first(&mut self) -> Option<&Datagram> {
        self.datagrams.front()
    }

    pub(super) fn pop(&mut self) -> Option<Datagram> {
        let first = self.datagrams.pop_front()?;
        self.memory -= first.truesize();
        Some(first)
    }

    /// Drops all; what they were is dropped by the caller.
    pub(super) fn clear(&mut self) -> VecDeque<Datagram> {
        self.memory = 0;
        core::mem::take(&mut self.datagrams)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn datagram(len: usize) -> Datagram {
        let bytes = vec![7; len];
        Datagram::new(
            "127.0.0.1:1".parse().unwrap(),
            "127.0.0.1".parse().unwrap(),
            Marks::default(),
            &mut Source::new(&[&bytes]),
        )
        .unwrap()
    }

    /// How many datagrams of a size Linux's default buffer holds, as measured.
    #[test]
    fn a_buffer_holds_about_as_many_as_on_linux() {
        for (len, linux) in [
            (1, 256),
            (100, 256),
            (500, 166),
            (1000, 92),
            (1400, 92),
            (4000, 25),
            (16_000, 12),
            (60_000, 3),
        ] {
            let mut queue = Queue::new();
            let held = (0..).take_while(|_| queue.push(datagram(len), 212_992).is_none()).count();
            assert!(held.abs_diff(linux) * 20 <= linux, "{len}: {held}, not {linux}");
            (0..held).for_each(|_| assert_eq!(queue.pop().unwrap().bytes().len(), len));
            assert_eq!(queue.memory, 0);
        }
    }

    #[test]
    fn one_always_fits() {
        let mut queue = Queue::new();
        assert!(queue.push(datagram(60_000), 2304).is_none());
        assert!(queue.push(datagram(1), 2304).is_some());
        assert_eq!(queue.clear().len(), 1);
        assert!(queue.push(datagram(1), 2304).is_none());
    }
}
