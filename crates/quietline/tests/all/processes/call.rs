//! Calls of processes that are related to each other, and their generation.

use quietline::abi::*;
use quietline_testing::budget;

/// Processes of a program, from the first one to its last descendant.
pub(crate) const PROCESSES: usize = 20;

/// A number in the place of a process number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pid {
    /// That of the process that was forked as the `n`th.
    Of(usize),
    /// As it is.
    Number(i32),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    /// The child is the next process.
    Fork,
    Exit(i32),
    /// The end by SIGKILL.
    Kill9(Pid),
    Parent,
    Group(Pid),
    Session(Pid),
    SetGroup(Pid, Pid),
    SetSession,
    Kill(Pid, i32),
    /// A signal to a group.
    KillGroup(Pid, i32),
    Ignore(bool),
    Wait(i32, Pid, i32),
    Pending,
    /// Reads one signal.
    Read,
    Open(Pid, i32),
    /// `poll` on the pidfd of a process.
    Poll(usize),
    KillBy(usize, i32, u32),
    /// `waitid` with the pidfd of a process.
    WaitBy(usize, i32),
    CloseOne(usize),
}

/// An errno or 0, and what the call returns. Process numbers are those of [`Pid::Of`].
pub(crate) type Reply = [i64; 6];

/// A system on which the calls are made.
pub(crate) trait System {
    fn call(&mut self, caller: usize, call: Call) -> Reply;
}

/// A reply with a value, or with an error.
pub(crate) fn reply(result: Result<i64, i32>) -> Reply {
    match result {
        Ok(value) => [0, value, 0, 0, 0, 0],
        Err(errno) => [errno.into(), 0, 0, 0, 0, 0],
    }
}

/// A sequence of random numbers.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    fn pid(&mut self, forked: usize) -> Pid {
        match self.below(12) {
            0 => Pid::Number(0),
            1 => Pid::Number(self.of(&[-5, i32::MIN, 4_194_303, i32::MAX])),
            _ => self.one(forked),
        }
    }

    fn one(&mut self, forked: usize) -> Pid {
        Pid::Of(self.below(forked as u64) as usize)
    }

    /// A call of a process, of `forked` that there have been.
    pub(crate) fn call(&mut self, forked: usize) -> Call {
        const SIGNALS: [i32; 8] = [0, 1, 10, 17, 18, 34, 64, 65];
        const OPTIONS: [i32; 8] = [
            WEXITED,
            WEXITED,
            WEXITED | __WCLONE,
            WEXITED | __WCLONE | __WALL,
            WEXITED | WNOWAIT,
            WSTOPPED,
            WSTOPPED | WCONTINUED | WEXITED | WNOWAIT,
            0,
        ];
        let process = self.below(forked as u64) as usize;
        match self.below(60) {
            0..9 => Call::Fork,
            9..12 => Call::Exit(self.of(&[0, 1, 7, 255, 256, -1])),
            12 => Call::Kill9(Pid::Of(process)),
            13..17 => Call::Parent,
            17..20 => Call::Group(self.pid(forked)),
            20..23 => Call::Session(self.pid(forked)),
            23..29 => Call::SetGroup(self.pid(forked), self.pid(forked)),
            29..31 => Call::SetSession,
            31..34 => Call::Kill(self.one(forked), self.of(&SIGNALS)),
            34..37 => {
                // Those would be no groups: a process of the host, and all processes here.
                let group = self.pid(forked);
                let none = [Pid::Number(-5), Pid::Of(0)].contains(&group);
                let group = if none { Pid::Number(0) } else { group };
                Call::KillGroup(group, self.of(&SIGNALS))
            }
            37..39 => Call::Ignore(self.below(3) == 0),
            39..46 => {
                let which = self.of(&[P_ALL, P_ALL, P_PID, P_PGID, 9]);
                Call::Wait(which, self.pid(forked), self.of(&OPTIONS))
            }
            46..48 => Call::Pending,
            48..51 => Call::Read,
            51..54 => Call::Open(self.pid(forked), self.of(&[0, 0, PIDFD_NONBLOCK, 4])),
            54..56 => Call::Poll(process),
            56..58 => Call::KillBy(process, self.of(&SIGNALS), self.of(&[0, 0, 2, 3, 4, 8])),
            58 => Call::WaitBy(process, self.of(&OPTIONS)),
            _ => Call::CloseOne(process),
        }
    }
}

/// Programs to be run.
pub(crate) fn programs() -> u64 {
    budget("QUIETLINE_PROCESSES_PROGRAMS", 150)
}
