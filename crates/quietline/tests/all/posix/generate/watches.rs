//! Watches, and what they have seen.

use super::guess::Of;
use super::{Making, Theme};
use crate::posix::arg::{Text, Watching};
use crate::posix::call::Call;

impl Making {
    /// After a call in a program in which somebody watches: perhaps its events, perhaps another watch.
    pub(super) fn watched(&mut self) {
        debug_assert_eq!(self.theme, Theme::Watched);
        if self.dice.once_in(2) {
            self.push(self.who, Call::Events {});
        }
        let call = match self.dice.below(60) {
            0..6 => {
                let path = if self.dice.once_in(5) { Text::from("/") } else { self.path(Of::Any) };
                Call::Watch { path, mask: self.watching() }
            }
            6 => Call::Unwatch { wd: 1 + self.dice.below(12) as i32 },
            7 if self.dice.once_in(4) => {
                Call::Unwatch { wd: self.dice.one_of(&[-1, 0, i32::MAX >> 1]) }
            }
            _ => return,
        };
        self.push(self.who, call);
    }

    pub(super) fn watching(&mut self) -> Watching {
        const OPTIONS: &[u64] = &[
            libc::IN_ONLYDIR as u64,
            libc::IN_DONT_FOLLOW as u64,
            libc::IN_EXCL_UNLINK as u64,
            libc::IN_MASK_CREATE as u64,
            libc::IN_MASK_ADD as u64,
            libc::IN_ONESHOT as u64,
        ];
        let events = match self.dice.below(8) {
            0 => 1 << self.dice.below(12),
            1 => self.dice.word() & u64::from(libc::IN_ALL_EVENTS),
            _ => u64::from(libc::IN_ALL_EVENTS),
        };
        // A bit that is no event, or none that anybody knows.
        let odd = if self.dice.once_in(40) { 1 << self.dice.below(32) } else { 0 };
        let options = if self.dice.once_in(2) { self.dice.some_of(OPTIONS, 6) } else { 0 };
        Watching(events | options | odd)
    }
}
