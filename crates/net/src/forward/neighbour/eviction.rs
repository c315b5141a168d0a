//! The order in which known neighbours are evicted and forgotten.
//!
//! Each link has two queues. The first has strangers: stations that have asked for one of the
//! router's addresses and have answered none of its questions. Any station can send questions under
//! any address, so strangers are evicted first. The second has stations that have answered. In
//! both queues the station heard of least recently comes first. Neighbours entered by hand are in
//! no queue and stay.

use super::queue::{Queue, QueueLinks};
use super::{FORGOTTEN, REACHABLE};
use quietline_platform::{AllocError, heap};

/// How a neighbour came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It has asked for one of our addresses.
    Stranger,
    /// It has answered a question.
    Answer,
    /// It was entered by hand.
    Hand,
}

/// The queues of all links.
pub(super) struct Eviction {
    links: QueueLinks,
    entries: Vec<Entry>,
    interfaces: Box<[Interface]>,
    /// Neighbours of one link at most.
    most: u32,
}

/// An entry of the table.
struct Entry {
    origin: Origin,
    interface: u32,
    /// The second in which the station was last heard of, or asked.
    heard: u32,
}

/// The neighbours of a link.
struct Interface {
    known: u32,
    strangers: Queue,
    answered: Queue,
}

impl Interface {
    fn queue(&mut self, origin: Origin) -> Option<&mut Queue> {
        match origin {
            Origin::Stranger => Some(&mut self.strangers),
            Origin::Answer => Some(&mut self.answered),
            Origin::Hand => None,
        }
    }
}

impl Eviction {
    /// The queues of so many links, each with up to `most` neighbours.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(super) fn new(interfaces: usize, most: u32) -> Result<Self, AllocError> {
        let interface = |_| Interface { known: 0, strangers: Queue::EMPTY, answered: Queue::EMPTY };
        let interfaces = heap::try_boxed_slice(interfaces, interface)?;
        Ok(Self { links: QueueLinks::new(), entries: Vec::new(), interfaces, most })
    }

    /// Whether a link has as many neighbours as it may.
    pub(super) fn is_full(&self, interface: u32) -> bool {
        self.interfaces[interface as usize].known >= self.most
    }

    /// The neighbour of a link that a new one displaces. A stranger displaces strangers only.
    pub(super) fn victim(&self, interface: u32, newcomer: Origin) -> Option<u32> {
        let interface = &self.interfaces[interface as usize];
        let answered = (newcomer != Origin::Stranger).then(|| interface.answered.first());
        interface.strangers.first().or(answered.flatten())
    }

    /// The origin of an entry that replaces another entry of the same neighbour. A question makes
    /// no stranger of a station that has answered.
    pub(super) fn origin(&self, replaced: u32, new: Origin) -> Origin {
        match self.entries[replaced as usize].origin {
            Origin::Answer if new == Origin::Stranger => Origin::Answer,
            _ => new,
        }
    }

    /// A neighbour of a link that was not heard of for so long that it is forgotten.
    pub(super) fn expired(&self, interface: u32, now: u32) -> Option<u32> {
        let interface = &self.interfaces[interface as usize];
        let is_old = |entry: &u32| {
            now > self.entries[*entry as usize].heard.saturating_add(REACHABLE + FORGOTTEN)
        };
        [interface.strangers, interface.answered].iter().filter_map(Queue::first).find(is_old)
    }

    /// Allocates memory for an entry.
    ///
    /// # Errors
    /// [`AllocError`].
    pub(super) fn reserve(&mut self, entry: u32) -> Result<(), AllocError> {
        let more = (entry as usize + 1).saturating_sub(self.entries.len());
        heap::try_reserve(&mut self.entries, more)?;
        self.links.grow(entry + 1)?;
        let unused = |_| Entry { origin: Origin::Hand, interface: 0, heard: 0 };
        self.entries.extend((0..more).map(unused));
        Ok(())
    }

    /// Enters an entry that has [memory](Self::reserve).
    pub(super) fn enter(&mut self, entry: u32, interface: u32, origin: Origin, now: u32) {
        self.entries[entry as usize] = Entry { origin, interface, heard: now };
        let interface = &mut self.interfaces[interface as usize];
        interface.known += 1;
        if let Some(queue) = interface.queue(origin) {
            self.links.push(queue, entry);
        }
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, entry: u32) {
        let Entry { origin, interface, .. } = self.entries[entry as usize];
        let interface = &mut self.interfaces[interface as usize];
        interface.known -= 1;
        if let Some(queue) = interface.queue(origin) {
            self.links.remove(queue, entry);
        }
    }

    /// Notes that a station was heard of, or asked. One that has answered stays so.
    pub(super) fn renew(&mut self, entry: u32, origin: Origin, now: u32) {
        let Entry { origin: before, interface, .. } = self.entries[entry as usize];
        let origin = if before == Origin::Hand { before } else { self.origin(entry, origin) };
        self.remove(entry);
        self.enter(entry, interface, origin, now);
    }
}
