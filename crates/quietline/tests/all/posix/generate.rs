//! Random programs.

mod attributes;
mod data;
mod guess;
mod paths;
mod watches;

use crate::posix::arg::{At, CWD, Fd, Mode, Text};
use crate::posix::call::{Call, Step};
use crate::posix::dice::Dice;
use crate::posix::names::USERS;
use crate::posix::outcome::Outcome;
use crate::posix::sys::{PROCESSES, Setting};
use guess::{Guess, Of};

/// What a program is mostly about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Theme {
    Mixed,
    /// Names come and go.
    Tree,
    /// Few files, much in them.
    Data,
    /// Who may do what.
    Rights,
    /// Extended attributes and locks.
    Extras,
    /// Many names in few directories.
    Wide,
    /// Little space, few inodes.
    Full,
    /// Somebody watches what happens.
    Watched,
}

impl Theme {
    const ALL: [Theme; 11] = [
        Theme::Mixed,
        Theme::Tree,
        Theme::Data,
        Theme::Rights,
        Theme::Extras,
        Theme::Full,
        Theme::Wide,
        Theme::Mixed,
        Theme::Tree,
        Theme::Watched,
        Theme::Watched,
    ];

    /// Chances of: names, paths' look-up, opening, data, attributes, credentials and directories, extended attributes,
    /// locks, other calls on descriptors.
    fn weights(self) -> [usize; 9] {
        match self {
            Theme::Mixed => [22, 14, 16, 16, 12, 6, 6, 4, 6],
            Theme::Tree => [45, 20, 12, 4, 6, 6, 2, 1, 4],
            Theme::Data => [5, 5, 18, 56, 4, 1, 1, 2, 8],
            Theme::Rights => [22, 16, 16, 6, 24, 10, 4, 1, 1],
            Theme::Extras => [10, 6, 16, 4, 8, 4, 30, 18, 4],
            Theme::Wide => [60, 18, 10, 2, 2, 2, 2, 1, 3],
            Theme::Full => [34, 8, 14, 24, 4, 2, 8, 1, 3],
            Theme::Watched => [30, 4, 20, 22, 14, 2, 4, 1, 8],
        }
    }
}

/// A program that is being made. What its calls return is told to it between `more` and `more`.
pub(crate) struct Making {
    dice: Dice,
    theme: Theme,
    root: bool,
    /// Whose call is being made.
    who: usize,
    guess: Guess,
    steps: Vec<Step>,
}

/// Calls of a program, roughly.
const LENGTH: usize = 240;

/// Calls that are made at once.
const CHUNK: usize = 10;

impl Making {
    /// The program of this number, and its world.
    pub(crate) fn new(seed: u64, number: u64, root: bool) -> (Self, Setting) {
        let mut dice = Dice(
            seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ number.wrapping_mul(0xd134_2543_de82_ef95),
        );
        dice.word();
        let theme = dice.one_of(&Theme::ALL);
        let (pages, inodes) = if theme == Theme::Full { (8, 16) } else { (4096, 4096) };
        let (guess, steps) = (Guess::default(), Vec::new());
        (Self { dice, theme, root, who: 1, guess, steps }, Setting { pages, inodes, root })
    }

    /// The next few steps; none at the end.
    pub(crate) fn more(&mut self) -> Vec<Step> {
        let from = self.steps.len();
        if from == 0 {
            self.beginning();
        } else if from < LENGTH {
            for _ in 0..CHUNK {
                if self.dice.once_in(8) {
                    self.who = 1 + self.dice.below(PROCESSES - 1);
                }
                let call = self.call();
                self.push(self.who, call);
                if self.theme == Theme::Watched {
                    self.watched();
                }
            }
            if self.steps.len() >= LENGTH || self.dice.once_in(100 / CHUNK) {
                self.look();
            }
        }
        self.steps[from..].to_vec()
    }

    /// What steps returned.
    pub(crate) fn learn(&mut self, steps: &[Step], outcomes: &[Outcome]) {
        for (step, outcome) in steps.iter().zip(outcomes) {
            self.guess.learn(step, outcome);
        }
    }

    fn push(&mut self, who: usize, call: Call) {
        self.steps.push(Step { who, call });
    }

    /// Three users, and something to work on.
    fn beginning(&mut self) {
        if self.root && (self.theme == Theme::Rights || self.dice.once_in(3)) {
            for who in 2..PROCESSES {
                let user = USERS[who - 1];
                let group = self.dice.one_of(&[0, 1000, 1001, 50]);
                let become_user = Call::Become { uid: user, gid: user, group };
                self.push(who, become_user);
            }
        }
        if !self.dice.once_in(3) {
            self.push(1, Call::Umask { mask: Mode(0) });
        }
        let top = if self.dice.once_in(3) { 0o755 } else { 0o777 };
        self.push(
            1,
            Call::Fchmodat2 { at: CWD, path: Text::from("/"), mode: Mode(top), flags: At(0) },
        );
        for name in ["a", "b", "a/b", "a/c"] {
            if self.dice.once_in(3) {
                continue;
            }
            let mode = self.mode();
            let call = match self.dice.below(3) {
                0 => Call::Mknodat { at: CWD, path: Text::from(name), mode, major: 0, minor: 0 },
                _ => Call::Mkdirat { at: CWD, path: Text::from(name), mode },
            };
            self.push(1, call);
        }
        if self.theme == Theme::Watched {
            for path in ["/", "a", "b"] {
                if !self.dice.once_in(3) {
                    let mask = self.watching();
                    self.push(1, Call::Watch { path: Text::from(path), mask });
                }
            }
        }
    }

    fn look(&mut self) {
        self.push(0, Call::Tree {});
        for who in 1..PROCESSES {
            self.push(who, Call::Fds {});
        }
        self.push(0, Call::Statfs { path: Text::from("/") });
    }

    fn call(&mut self) -> Call {
        let weights = self.theme.weights();
        let mut choice = self.dice.below(weights.iter().sum());
        let mut kind = 0;
        while choice >= weights[kind] {
            choice -= weights[kind];
            kind += 1;
        }
        if matches!(kind, 3 | 7 | 8) && self.guess.has_none(self.who) && !self.dice.once_in(10) {
            return self.open_new();
        }
        match kind {
            0 => self.change_names(),
            1 => self.look_up(),
            2 => self.open(),
            3 => self.data(),
            4 => self.attributes(),
            5 => self.process(),
            6 => self.xattr(),
            7 => self.lock(),
            _ => self.descriptor(),
        }
    }

    fn fd(&mut self) -> Fd {
        self.fd_of(Of::File)
    }

    /// Any descriptor, mostly a low one.
    fn any_fd(&mut self) -> Fd {
        Fd(match self.dice.below(40) {
            0..22 => self.dice.below(4) as i32,
            22..34 => self.dice.below(8) as i32,
            34..38 => self.dice.below(14) as i32,
            38 => -1,
            _ => self.dice.one_of(&[libc::AT_FDCWD, 9999, i32::MAX, i32::MIN]),
        })
    }
}
