//! Counts of executed instructions.

use crate::image::{self, Frame};
use crate::instruction::{self, Decoded, Kind};
use iced_x86::Mnemonic;
use std::collections::HashMap;
use std::fmt;

/// What a closure executed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// All instructions, those of the C library included. A repeated string instruction counts
    /// once.
    pub instructions: u64,
    /// Instructions with a `lock` prefix, and exchanges with memory, which lock without one.
    pub locked: u64,
    /// `mfence`, `lfence`, `sfence`.
    pub fences: u64,
    /// System calls.
    pub syscalls: u64,
    /// Counts of the program's own code.
    pub own: OwnCounts,
    /// Where the locked instructions were, in the order in which they were first met.
    pub locked_at: Vec<Site>,
    /// Where the fences were.
    pub fences_at: Vec<Site>,
    /// Where the system calls were.
    pub syscalls_at: Vec<Site>,
}

/// Counts of the program's own code: of its executable file, without shared libraries and the vDSO.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnCounts {
    /// Instructions.
    pub instructions: u64,
    /// Locked instructions.
    pub locked: u64,
    /// Fences.
    pub fences: u64,
    /// Calls into shared libraries.
    pub library_calls: u64,
    /// Bytes that the program requests from the C library: `malloc` and its kin, and `mmap`.
    pub bytes_requested: u64,
    /// How often each address was executed.
    pub profile: HashMap<u64, u64>,
}

/// An instruction that was executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Its address.
    pub address: u64,
    /// How often it was executed.
    pub times: u64,
    /// As an assembler writes it; for a system call, with its number.
    pub text: String,
    /// The functions inlined into each other there, innermost first.
    pub frames: Vec<Frame>,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.times, self.text)?;
        self.frames.iter().enumerate().try_for_each(|(i, frame)| {
            write!(f, "{}{frame}", if i == 0 { "\n    at " } else { "\n    in " })
        })
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instructions, locked, fences, syscalls, .. } = self;
        write!(
            f,
            "{instructions} instructions, {locked} locked, {fences} fences, {syscalls} system calls"
        )?;
        let sites = [&self.locked_at, &self.fences_at, &self.syscalls_at];
        sites.into_iter().flatten().try_for_each(|site| write!(f, "\n  {site}"))
    }
}

impl Counts {
    /// Counts an instruction that is about to be executed, with the content of `rax`.
    pub(crate) fn note(&mut self, decoded: &Decoded, rax: u64) {
        let instruction = &decoded.instruction;
        self.instructions += 1;
        if decoded.own {
            self.own.instructions += 1;
            *self.own.profile.entry(instruction.ip()).or_default() += 1;
        }
        let own = u64::from(decoded.own);
        let (total, sites) = match decoded.kind {
            None => return,
            Some(Kind::Locked) => {
                self.own.locked += own;
                (&mut self.locked, &mut self.locked_at)
            }
            Some(Kind::Fence) => {
                self.own.fences += own;
                (&mut self.fences, &mut self.fences_at)
            }
            Some(Kind::Syscall) => (&mut self.syscalls, &mut self.syscalls_at),
        };
        *total += 1;
        let mut text = instruction::text(instruction);
        if instruction.mnemonic() == Mnemonic::Syscall {
            text = format!("{text} {rax}");
        }
        add_site(sites, instruction.ip(), text);
    }

    /// Counts a system call of a library that is not stepped through.
    pub(crate) fn note_library_syscall(&mut self, address: u64, number: u64) {
        self.syscalls += 1;
        add_site(&mut self.syscalls_at, address, format!("syscall {number}"));
    }

    /// Looks up the functions at each site. (The child is a copy of this process: its addresses
    /// mean the same here.)
    #[must_use]
    pub fn with_frames(mut self) -> Self {
        let sites = self.locked_at.iter_mut().chain(&mut self.fences_at);
        for site in sites.chain(&mut self.syscalls_at) {
            site.frames = image::frames(site.address);
        }
        self
    }
}

impl OwnCounts {
    /// Sums the profile by function: the function that an instruction was written in, whatever it
    /// was inlined into. The largest sums come first.
    pub fn by_function(&self) -> Vec<(String, u64)> {
        let mut sums: HashMap<String, u64> = HashMap::new();
        for (address, times) in &self.profile {
            let frames = image::frames(*address);
            let function = frames.into_iter().next().map(|frame| frame.function);
            let function = function.unwrap_or_else(|| image::name(*address));
            *sums.entry(function).or_default() += times;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by(|(f, m), (g, n)| n.cmp(m).then_with(|| f.cmp(g)));
        sums
    }
}

/// Counts an execution of an instruction at a site.
fn add_site(sites: &mut Vec<Site>, address: u64, text: String) {
    match sites.iter_mut().find(|s| s.address == address && s.text == text) {
        Some(site) => site.times += 1,
        None => sites.push(Site { address, times: 1, text, frames: Vec::new() }),
    }
}
