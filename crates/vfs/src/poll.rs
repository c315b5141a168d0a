//! What can be done with an object now, and how to learn that it changes.

use core::fmt;
use quietline_sync::WaitQueue;

bitflags::bitflags! {
    /// What can be done, or has happened: Linux's numbers for poll and epoll, and the keys of wait queues.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Events: u32 {
        /// Something can be read.
        const IN = 1;
        /// Something urgent can be read.
        const PRI = 2;
        /// Something can be written.
        const OUT = 4;
        /// An error is to be fetched; also: nobody reads what would be written.
        const ERR = 8;
        /// The other end is gone.
        const HUP = 0x10;
        /// No such descriptor.
        const NVAL = 0x20;
        /// As `IN`.
        const RDNORM = 0x40;
        /// Data with priority can be read.
        const RDBAND = 0x80;
        /// As `OUT`.
        const WRNORM = 0x100;
        /// Data with priority can be written.
        const WRBAND = 0x200;
        /// Not used.
        const MSG = 0x400;
        /// The other end writes no more.
        const RDHUP = 0x2000;
    }
}

impl Events {
    /// Of what never lets a caller wait.
    pub const ALWAYS: Self = Self::IN.union(Self::OUT).union(Self::RDNORM).union(Self::WRNORM);
    /// What a reader waits for.
    pub const TO_READ: Self = Self::IN
        .union(Self::PRI)
        .union(Self::RDNORM)
        .union(Self::RDBAND)
        .union(Self::RDHUP)
        .union(Self::ERR)
        .union(Self::HUP);
    /// What a writer waits for.
    pub const TO_WRITE: Self =
        Self::OUT.union(Self::WRNORM).union(Self::WRBAND).union(Self::ERR).union(Self::HUP);
}

/// Who asks what can be done, and wants to be told when it changes, or not (`poll_table`).
pub struct PollTable<'a> {
    each: Option<&'a mut dyn FnMut(&WaitQueue)>,
}

impl<'a> PollTable<'a> {
    /// Who only looks.
    pub fn look() -> Self {
        Self { each: None }
    }

    /// Who enters each queue that it is shown. The queue stays as long as the object does.
    pub fn entering(each: &'a mut dyn FnMut(&WaitQueue)) -> Self {
        Self { each: Some(each) }
    }

    /// Whether the queues are entered that it is shown.
    #[inline(always)]
    pub fn enters(&self) -> bool {
        self.each.is_some()
    }

    /// Shows a queue: one that is woken, with the [`Events`] as its key, when what the object answers may have changed. To be
    /// called before the object is looked at.
    #[inline(always)]
    pub fn wait_on(&mut self, queue: &WaitQueue) {
        if let Some(each) = &mut self.each {
            each(queue);
        }
    }
}

impl fmt::Debug for PollTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollTable").field("enters", &self.each.is_some()).finish()
    }
}
