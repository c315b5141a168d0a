//! A run of a closure, one instruction at a time.

use crate::image::{self, Frame};
use crate::instruction::{self, Kind};
use crate::raw::{self, Child, Stop};
use iced_x86::{Instruction, Mnemonic, OpAccess, OpKind, Register};
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Offset of `rseq_cs`, the pointer to the armed sequence, in the area that a thread shares with the kernel.
const RSEQ_CS: u64 = 8;

/// What a closure executed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// All instructions, those of the C library included. A repeated string instruction counts once.
    pub instructions: u64,
    /// Instructions with a `lock` prefix, and exchanges with memory, which lock without one.
    pub locked: u64,
    /// `mfence`, `lfence`, `sfence`.
    pub fences: u64,
    /// System calls.
    pub syscalls: u64,
    /// Where the locked instructions were, in the order in which they were first met.
    pub locked_at: Vec<Site>,
    /// Where the fences were.
    pub fences_at: Vec<Site>,
    /// Where the system calls were.
    pub syscalls_at: Vec<Site>,
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

/// Why a closure was not counted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system does not let a process trace its own child: a sandbox, or a tracer that is there already.
    #[error("this system refuses to trace a child process: {0}")]
    Refused(io::Error),
    /// The closure panicked.
    #[error("the closure panicked: {0}")]
    Panicked(String),
    /// The child ended, or was stopped, before the closure came back.
    #[error("the child did not come to the end of the closure: {0}")]
    Lost(String),
}

/// Counts what `f` executes. It runs in a forked child, on the CPU that the caller is on, so that what the caller
/// did to warm up (caches filled, memory touched) has been done for it; what it changes, the caller does not see.
///
/// The child has one thread: a closure must not wait for others. A child that has not come back after two minutes is
/// ended.
///
/// # Errors
/// See [`Error`].
pub fn count(mut f: impl FnMut()) -> Result<Counts, Error> {
    let (mut said, says) = io::pipe().map_err(Error::Refused)?;
    let child = Child::fork(&mut f, says).map_err(Error::Refused)?;
    match run(&child) {
        Ok(Some(counts)) => Ok(counts),
        Ok(None) => {
            let mut message = String::new();
            // What cannot be read is not told.
            let _ = said.read_to_string(&mut message);
            Err(Error::Panicked(message))
        }
        Err(e) => Err(e),
    }
}

/// From the first marker to the second; none when the child took the way of a panic.
fn run(child: &Child) -> Result<Option<Counts>, Error> {
    let lost = |stop: Stop| Error::Lost(format!("{stop:?}"));
    let refused = Error::Refused;
    let area = child.rseq_area().map_err(refused)?;
    let memory = File::open(format!("/proc/{}/mem", child.id())).map_err(refused)?;
    match child.resume().map_err(refused)? {
        Stop::Trap => {}
        stop => return Err(lost(stop)),
    }
    if area != 0 {
        // The kernel forgets a sequence that the thread is not in whenever it stops; this is for kernels that
        // might put that off.
        child.poke(area + RSEQ_CS, 0).map_err(refused)?;
    }
    let mut tally = Tally::default();
    let mut decoded: HashMap<u64, Instruction> = HashMap::new();
    let mut repeating = None;
    loop {
        let registers = child.registers().map_err(refused)?;
        let ip = registers.rip;
        let instruction = match decoded.get(&ip) {
            Some(instruction) => *instruction,
            None => {
                let mut bytes = [0; instruction::LONGEST];
                let n = memory.read_at(&mut bytes, ip).map_err(refused)?;
                let instruction = instruction::decode(&bytes[..n], ip);
                decoded.insert(ip, instruction);
                instruction
            }
        };
        if instruction.mnemonic() == Mnemonic::Int3 {
            // The second marker, or the panic's.
            let ends = registers.rax == raw::CAME_BACK;
            child.finish();
            return Ok(ends.then(|| tally.name()));
        }
        // A repeated string instruction stops after each round.
        if repeating != Some(ip) {
            tally.note(&instruction, registers.rax);
        }
        repeating = (instruction.has_rep_prefix() || instruction.has_repne_prefix()).then_some(ip);
        if area != 0 && written(&instruction, &registers) == Some(area + RSEQ_CS) {
            child.jump(instruction.next_ip()).map_err(refused)?;
            continue;
        }
        match child.step().map_err(refused)? {
            Stop::Trap => {}
            stop => return Err(lost(stop)),
        }
    }
}

/// The address that a plain store of 8 bytes will write.
fn written(instruction: &Instruction, registers: &libc::user_regs_struct) -> Option<u64> {
    let store = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Memory
        && instruction.memory_size().size() == 8;
    if !store {
        return None;
    }
    debug_assert_eq!(
        iced_x86::InstructionInfoFactory::new().info(instruction).op0_access(),
        OpAccess::Write
    );
    instruction.virtual_address(0, 0, |register, _, _| value(register, registers))
}

fn value(register: Register, r: &libc::user_regs_struct) -> Option<u64> {
    Some(match register {
        Register::RAX => r.rax,
        Register::RBX => r.rbx,
        Register::RCX => r.rcx,
        Register::RDX => r.rdx,
        Register::RSI => r.rsi,
        Register::RDI => r.rdi,
        Register::RBP => r.rbp,
        Register::RSP => r.rsp,
        Register::R8 => r.r8,
        Register::R9 => r.r9,
        Register::R10 => r.r10,
        Register::R11 => r.r11,
        Register::R12 => r.r12,
        Register::R13 => r.r13,
        Register::R14 => r.r14,
        Register::R15 => r.r15,
        Register::FS => r.fs_base,
        Register::GS => r.gs_base,
        // The other segments start at 0 in 64-bit mode.
        Register::CS | Register::DS | Register::ES | Register::SS => 0,
        _ => return None,
    })
}

/// Counts in the making: sites by address and text.
#[derive(Default)]
struct Tally {
    counts: Counts,
}

impl Tally {
    fn note(&mut self, instruction: &Instruction, rax: u64) {
        let c = &mut self.counts;
        c.instructions += 1;
        let (total, sites) = match instruction::kind(instruction) {
            None => return,
            Some(Kind::Locked) => (&mut c.locked, &mut c.locked_at),
            Some(Kind::Fence) => (&mut c.fences, &mut c.fences_at),
            Some(Kind::Syscall) => (&mut c.syscalls, &mut c.syscalls_at),
        };
        *total += 1;
        let mut text = instruction::text(instruction);
        if instruction.mnemonic() == Mnemonic::Syscall {
            text = format!("{text} {rax}");
        }
        let address = instruction.ip();
        match sites.iter_mut().find(|s| s.address == address && s.text == text) {
            Some(site) => site.times += 1,
            None => sites.push(Site { address, times: 1, text, frames: Vec::new() }),
        }
    }

    /// Finds out what lies at each site. (The child is a copy of this process: its addresses mean the same here.)
    fn name(mut self) -> Counts {
        let c = &mut self.counts;
        for site in c.locked_at.iter_mut().chain(&mut c.fences_at).chain(&mut c.syscalls_at) {
            site.frames = image::frames(site.address);
        }
        self.counts
    }
}
