//! The table of calls.

mod attributes;
mod descriptors;
mod events;
mod identity;
mod io;
mod planted;
mod scenes;
mod sockets;
mod tree;

use crate::guest::Guest;
use crate::kind::{self, BUFFER, Kind};
use crate::plant::Plant;
use crate::victim::{Victim, check_bytes, find_marker};
use quietline::{Errno, Process};
use std::time::Duration;

/// The most arguments that a call has.
pub const ARGUMENTS: usize = 7;

/// What a call returns: a number, whatever the kernel's type is.
pub type Outcome = Result<i64, Errno>;

/// A call of the kernel's public interface.
#[derive(Debug)]
pub struct Call {
    /// The name of the method.
    pub name: &'static str,
    /// How often it is drawn.
    pub weight: u64,
    /// The kinds of its arguments.
    pub kinds: &'static [Kind],
    pub(crate) run: fn(&mut Caller<'_>, &Arguments) -> Outcome,
}

/// The arguments of a call, of which the first [`Call::kinds`] are used.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arguments(pub [i64; ARGUMENTS]);

impl Arguments {
    fn int(&self, at: usize) -> i32 {
        self.0[at] as i32
    }

    fn word(&self, at: usize) -> u32 {
        self.0[at] as u32
    }

    fn path(&self, at: usize) -> Vec<u8> {
        kind::path(self.0[at])
    }

    fn address(&self, at: usize) -> Vec<u8> {
        kind::address(self.0[at])
    }

    /// A time limit: none for a negative number of milliseconds.
    fn limit(&self, at: usize) -> Option<Duration> {
        u64::try_from(self.0[at]).ok().map(Duration::from_millis)
    }

    fn maybe_offset(&self, at: usize) -> Option<i64> {
        (self.0[at] != -1).then_some(self.0[at])
    }
}

/// The caller: a process, and the buffers of the thread.
#[derive(Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) p: &'a Process,
    pub(crate) guest: &'a Guest,
    pub(crate) input: &'a [u8],
    pub(crate) output: &'a mut [u8],
    /// The bytes of the output that the call may have written.
    pub(crate) used: usize,
}

impl Caller<'_> {
    fn input(&self, length: i64) -> &[u8] {
        &self.input[..length.clamp(0, BUFFER as i64) as usize]
    }

    fn output(&mut self, length: i64) -> &mut [u8] {
        let length = length.clamp(0, BUFFER as i64) as usize;
        self.used = self.used.max(length);
        &mut self.output[..length]
    }

    /// Returns a descriptor, which must be below the limit of the process and none of another
    /// user's files.
    fn descriptor(&self, fd: i32) -> Outcome {
        assert!((0..kind::NOFILE as i32).contains(&fd), "a call returns the descriptor {fd}");
        Victim::check_file(self.p, fd);
        Ok(fd.into())
    }

    /// Panics if the bytes that the call has returned are another user's. Returns `outcome`.
    pub(crate) fn checked(&self, call: &Call, arguments: &Arguments, outcome: Outcome) -> Outcome {
        let bytes = &self.output[..self.used];
        if find_marker(bytes).is_some() {
            let files = call.kinds.iter().zip(arguments.0).filter(|(kind, _)| kind.is_fd());
            let names: Vec<_> = files.map(|(_, fd)| (fd, self.p.fd_name(fd as i32))).collect();
            eprintln!("{} = {outcome:?} with the files {names:?}", call.name);
            check_bytes(bytes);
        }
        outcome
    }
}

/// A call that reads into a buffer of `length` bytes.
fn into(
    caller: &mut Caller<'_>,
    length: i64,
    read: impl FnOnce(&Process, &mut [u8]) -> Result<usize, Errno>,
) -> Outcome {
    let p = caller.p;
    let buffer = caller.output(length);
    let room = buffer.len();
    within(read(p, buffer)?, room)
}

/// Returns a count that must not exceed `most`.
fn within(n: usize, most: usize) -> Outcome {
    assert!(n <= most, "a call returns {n} where {most} is the most");
    Ok(n as i64)
}

fn nothing((): ()) -> i64 {
    0
}

macro_rules! calls {
    ($($weight:literal $name:ident($($kind:expr),* $(,)?) $run:expr;)*) => {
        &[$($crate::calls::Call {
            name: stringify!($name),
            weight: $weight,
            kinds: &[$($kind),*],
            run: $run,
        }),*]
    };
}
use calls;
pub(crate) use sockets::rights;

/// Returns all calls, and that of a planted fault.
pub fn with(plant: Option<Plant>) -> Vec<&'static Call> {
    let mut calls = all();
    calls.extend(plant.and_then(planted::planted));
    calls
}

/// Returns all calls.
pub fn all() -> Vec<&'static Call> {
    let tables = [
        attributes::CALLS,
        descriptors::CALLS,
        events::CALLS,
        identity::CALLS,
        io::CALLS,
        scenes::CALLS,
        sockets::CALLS,
        tree::CALLS,
    ];
    tables.into_iter().flatten().collect()
}
