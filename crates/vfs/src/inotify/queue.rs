//! An instance's events, as they wait to be read.

use super::mask::{IN_DELETE_SELF, IN_IGNORED, IN_ISDIR, IN_MOVE_SELF, IN_Q_OVERFLOW, TOLD};
use crate::dcache::name::NAME_MAX;
use quietline_platform::{AllocError, fault};
use std::collections::VecDeque;

/// An event. Its bytes for a reader are these four numbers, then the name, padded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    wd: i32,
    mask: u32,
    cookie: u32,
    name: Vec<u8>,
}

/// Bytes of the four numbers.
const HEAD: usize = 16;
/// Bytes of an event with the longest name.
pub(super) const LARGEST: usize = HEAD + (NAME_MAX + 1).next_multiple_of(HEAD);

impl Event {
    const OVERFLOW: Self = Self { wd: -1, mask: IN_Q_OVERFLOW, cookie: 0, name: Vec::new() };

    fn new(wd: i32, mask: u32, cookie: u32, name: &[u8]) -> Result<Self, AllocError> {
        let mut own = Vec::new();
        if !name.is_empty() {
            fault::check()?;
            own.try_reserve_exact(name.len()).map_err(|_| AllocError)?;
            own.extend_from_slice(name);
        }
        Ok(Self { wd, mask, cookie, name: own })
    }

    /// The name's bytes, with at least one zero, to a multiple of the head's.
    fn padded(&self) -> usize {
        if self.name.is_empty() { 0 } else { (self.name.len() + 1).next_multiple_of(HEAD) }
    }

    /// How much of a reader's buffer it takes.
    pub(super) fn size(&self) -> usize {
        HEAD + self.padded()
    }

    /// Writes it to the beginning of a buffer that has room.
    pub(super) fn write(&self, buffer: &mut [u8]) {
        let (head, name) = buffer[..self.size()].split_at_mut(HEAD);
        head[0..4].copy_from_slice(&self.wd.to_ne_bytes());
        head[4..8].copy_from_slice(&(self.mask & TOLD).to_ne_bytes());
        head[8..12].copy_from_slice(&self.cookie.to_ne_bytes());
        head[12..16].copy_from_slice(&(self.padded() as u32).to_ne_bytes());
        let (text, zeros) = name.split_at_mut(self.name.len());
        text.copy_from_slice(&self.name);
        zeros.fill(0);
    }

    /// Whether a reader would learn nothing from the later one. (Cookies are not looked at, as in Linux.)
    fn says_as_much_as(&self, later: (i32, u32, &[u8])) -> bool {
        self.mask & IN_IGNORED == 0 && (self.wd, self.mask, &self.name[..]) == later
    }
}

/// The queue. There is always room for the overflow's event.
#[derive(Debug)]
pub(super) struct Queue {
    events: VecDeque<Event>,
    max: usize,
    bytes: usize,
    /// The overflow's event is in the queue.
    overflowed: bool,
}

impl Queue {
    pub(super) fn new(max: usize) -> Result<Self, AllocError> {
        let mut queue = Self { events: VecDeque::new(), max, bytes: 0, overflowed: false };
        queue.reserve(1)?;
        Ok(queue)
    }

    /// What all events take of a buffer.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Adds an event; false if the reader has it already, or the word that some are missing.
    pub(super) fn push(&mut self, wd: i32, mask: u32, cookie: u32, name: &[u8]) -> bool {
        // These two never say that they are of a directory.
        let mask = if mask & (IN_DELETE_SELF | IN_MOVE_SELF) != 0 { mask & !IN_ISDIR } else { mask };
        if self.events.len() >= self.max {
            return self.overflow();
        }
        if self.events.back().is_some_and(|last| last.says_as_much_as((wd, mask, name))) {
            return false;
        }
        match self.reserve(2).and_then(|()| Event::new(wd, mask, cookie, name)) {
            Ok(event) => {
                self.add(event);
                true
            }
            Err(AllocError) => self.overflow(),
        }
    }

    /// The first event, if it fits into `room`; an error if it does not.
    pub(super) fn pop(&mut self, room: usize) -> Option<Result<Event, TooLarge>> {
        if self.events.front()?.size() > room {
            return Some(Err(TooLarge));
        }
        let event = self.events.pop_front()?;
        self.bytes -= event.size();
        if event == Event::OVERFLOW {
            self.overflowed = false;
        }
        Some(Ok(event))
    }

    fn overflow(&mut self) -> bool {
        if self.overflowed {
            return false;
        }
        self.overflowed = true;
        // There is room: see `reserve`.
        self.add(Event::OVERFLOW);
        true
    }

    fn add(&mut self, event: Event) {
        debug_assert!(self.events.capacity() > self.events.len());
        self.bytes += event.size();
        self.events.push_back(event);
    }

    /// Makes room for more events. Whoever adds a common one asks for two, so that the overflow's has room afterwards.
    fn reserve(&mut self, more: usize) -> Result<(), AllocError> {
        if self.events.capacity() - self.events.len() < more {
            fault::check()?;
            self.events.try_reserve(more).map_err(|_| AllocError)?;
        }
        Ok(())
    }
}

/// The first event does not fit.
#[derive(Debug)]
pub(super) struct TooLarge;
