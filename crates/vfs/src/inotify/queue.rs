//! An instance's events, as they wait to be read.

use super::mask::{IN_DELETE_SELF, IN_IGNORED, IN_ISDIR, IN_MOVE_SELF, IN_Q_OVERFLOW, TOLD};
use crate::file::Sink;
use quietline_platform::{AllocError, fault, heap};
use std::collections::VecDeque;

/// An event. Its bytes for a reader are these four numbers, then the name, padded.
#[derive(Debug)]
pub(super) struct Event {
    wd: i32,
    mask: u32,
    cookie: u32,
    name: Name,
}

/// The name that an event is about, or nothing. Most names are short, and need no memory of their own.
#[derive(Debug)]
enum Name {
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

/// Bytes of a name that is part of its event.
const SHORT: usize = 30;
/// Bytes of the four numbers.
const HEAD: usize = 16;
/// What names are padded with.
static ZEROS: [u8; HEAD] = [0; HEAD];

impl Name {
    const NONE: Self = Self::Short(0, [0; SHORT]);

    fn new(name: &[u8]) -> Result<Self, AllocError> {
        if name.len() > SHORT {
            return heap::try_boxed_slice(name.len(), |at| name[at]).map(Self::Long);
        }
        let mut own = [0; SHORT];
        own[..name.len()].copy_from_slice(name);
        Ok(Self::Short(name.len() as u8, own))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(len, bytes) => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl Event {
    const OVERFLOW: Self = Self { wd: -1, mask: IN_Q_OVERFLOW, cookie: 0, name: Name::NONE };

    fn new(wd: i32, mask: u32, cookie: u32, name: &[u8]) -> Result<Self, AllocError> {
        Ok(Self { wd, mask, cookie, name: Name::new(name)? })
    }

    /// The name's bytes, with at least one zero, to a multiple of the head's.
    fn padded(&self) -> usize {
        let len = self.name.bytes().len();
        if len == 0 { 0 } else { (len + 1).next_multiple_of(HEAD) }
    }

    /// How much of a reader's buffer it takes.
    pub(super) fn size(&self) -> usize {
        HEAD + self.padded()
    }

    /// Gives it to a reader that has room: how many bytes.
    pub(super) fn tell(&self, to: &mut Sink<'_, '_>) -> usize {
        let (name, padded) = (self.name.bytes(), self.padded());
        let mut head = [0; HEAD];
        head[0..4].copy_from_slice(&self.wd.to_ne_bytes());
        head[4..8].copy_from_slice(&(self.mask & TOLD).to_ne_bytes());
        head[8..12].copy_from_slice(&self.cookie.to_ne_bytes());
        head[12..16].copy_from_slice(&(padded as u32).to_ne_bytes());
        to.put(&head) + to.put(name) + to.put(&ZEROS[..padded - name.len()])
    }

    /// Whether a reader would learn nothing from the later one. (Cookies are not looked at, as in Linux.)
    fn says_as_much_as(&self, later: (i32, u32, &[u8])) -> bool {
        self.mask & IN_IGNORED == 0 && (self.wd, self.mask, self.name.bytes()) == later
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
        let mask =
            if mask & (IN_DELETE_SELF | IN_MOVE_SELF) != 0 { mask & !IN_ISDIR } else { mask };
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

    /// The first events, as many as fit into `room`, but at most [`AT_ONCE`]; an error if not even the first fits.
    pub(super) fn pop(&mut self, mut room: usize) -> Result<[Option<Event>; AT_ONCE], TooLarge> {
        let mut popped = [const { None }; AT_ONCE];
        for (n, place) in popped.iter_mut().enumerate() {
            let Some(size) = self.events.front().map(Event::size) else { break };
            if size > room {
                return if n == 0 { Err(TooLarge) } else { Ok(popped) };
            }
            room -= size;
            self.bytes -= size;
            *place = self.events.pop_front();
            if place.as_ref().is_some_and(|event| event.mask == IN_Q_OVERFLOW) {
                self.overflowed = false;
            }
        }
        Ok(popped)
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

/// Events that are taken at a time: a reader with room for more takes the lock again.
pub(super) const AT_ONCE: usize = 4;

/// The first event does not fit.
#[derive(Debug)]
pub(super) struct TooLarge;
