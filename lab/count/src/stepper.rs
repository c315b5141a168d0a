//! One step of a stopped child.

use crate::counts::Counts;
use crate::image;
use crate::instruction::{self, Decoded};
use crate::raw::{Child, Stop};
use crate::stand_in::StandIns;
use crate::trace::Error;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpAccess, OpKind, Register};
use std::collections::HashMap;
use std::ops::Range;

/// Offset of `rseq_cs`, the pointer to the armed sequence, in the area that a thread shares with
/// the kernel.
const RSEQ_CS: u64 = 8;

/// Executes a child's instructions one at a time, and counts them.
pub(crate) struct Stepper<'c> {
    child: &'c Child,
    /// Address of the child's rseq area, or 0.
    area: u64,
    /// Addresses of the program's own code.
    own: Range<u64>,
    decoded: HashMap<u64, Decoded>,
    /// Address of the repeated string instruction that was executed last. It stops after each
    /// round.
    repeating: Option<u64>,
    /// Whether the last instruction was a call or a jump of the program's own code.
    leaving: bool,
    /// Whether library functions run at full speed, and only their system calls are counted.
    skips_libraries: bool,
    stand_ins: StandIns,
}

impl<'c> Stepper<'c> {
    /// A stepper of a stopped child, which counts library code too.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(crate) fn new(child: &'c Child, stand_ins: StandIns) -> Result<Self, Error> {
        Ok(Self {
            child,
            area: child.rseq_area().map_err(Error::Refused)?,
            own: image::own_code().map_err(Error::Refused)?,
            decoded: HashMap::new(),
            repeating: None,
            leaving: false,
            skips_libraries: false,
            stand_ins,
        })
    }

    /// Lets library functions run at full speed.
    pub(crate) fn skip_libraries(self) -> Self {
        Self { skips_libraries: true, ..self }
    }

    /// Lets the child run to its next marker. Returns the content of `rax` there.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Lost`].
    pub(crate) fn resume(&mut self) -> Result<u64, Error> {
        loop {
            match self.child.resume().map_err(Error::Refused)? {
                Stop::Trap => {}
                stop => return Err(Error::Lost(format!("{stop:?}"))),
            }
            let registers = self.child.registers().map_err(Error::Refused)?;
            // A breakpoint has been executed.
            let entry = registers.rip - 1;
            if !self.stand_ins.answer(self.child, entry, &registers).map_err(Error::Refused)? {
                break;
            }
        }
        if self.area != 0 {
            // The kernel forgets a sequence that the thread is not in whenever it stops; this is
            // for kernels that might put that off.
            self.child.poke(self.area + RSEQ_CS, 0).map_err(Error::Refused)?;
        }
        Ok(self.child.registers().map_err(Error::Refused)?.rax)
    }

    /// Executes and counts instructions up to the next marker, and skips the marker. Returns the
    /// content of `rax` there.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Lost`].
    pub(crate) fn count(&mut self, counts: &mut Counts) -> Result<u64, Error> {
        loop {
            let registers = self.child.registers().map_err(Error::Refused)?;
            let ip = registers.rip;
            let called = self.leaving && !self.own.contains(&ip);
            self.leaving = false;
            if called {
                counts.own.library_calls += 1;
                counts.own.bytes_requested += self.stand_ins.requested(ip, &registers);
            }
            if self.stand_ins.answer(self.child, ip, &registers).map_err(Error::Refused)? {
                continue;
            }
            if called && self.skips_libraries && self.run_library(&registers, counts)? {
                continue;
            }
            let decoded = self.decode(ip)?;
            let instruction = decoded.instruction;
            if instruction.mnemonic() == Mnemonic::Int3 {
                self.child.jump(instruction.next_ip()).map_err(Error::Refused)?;
                return Ok(registers.rax);
            }
            if self.repeating != Some(ip) {
                counts.note(&decoded, registers.rax);
            }
            let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
            self.repeating = repeats.then_some(ip);
            self.leaving = decoded.own
                && matches!(
                    instruction.flow_control(),
                    FlowControl::Call
                        | FlowControl::IndirectCall
                        | FlowControl::UnconditionalBranch
                        | FlowControl::IndirectBranch
                );
            if self.area != 0 && written(&instruction, &registers) == Some(self.area + RSEQ_CS) {
                self.child.jump(instruction.next_ip()).map_err(Error::Refused)?;
                continue;
            }
            match self.child.step().map_err(Error::Refused)? {
                Stop::Trap => {}
                stop => return Err(Error::Lost(format!("{stop:?}"))),
            }
        }
    }

    /// Lets the library function run whose entry the child has reached, up to its return. Returns
    /// `false` if it does not return to the program's own code.
    fn run_library(
        &mut self,
        registers: &libc::user_regs_struct,
        counts: &mut Counts,
    ) -> Result<bool, Error> {
        let child = self.child;
        let caller = child.peek(registers.rsp).map_err(Error::Refused)?;
        if !self.own.contains(&caller) {
            return Ok(false);
        }
        let code = child.peek(caller).map_err(Error::Refused)?;
        child.set_breakpoint(caller).map_err(Error::Refused)?;
        let mut enters = true;
        loop {
            let stop = child.resume_to_syscall().map_err(Error::Refused)?;
            let registers = child.registers().map_err(Error::Refused)?;
            match stop {
                // Each system call stops at its entry and at its exit.
                Stop::Syscall => {
                    if enters {
                        counts.note_library_syscall(registers.rip - 2, registers.orig_rax);
                    }
                    enters = !enters;
                }
                Stop::Trap if registers.rip - 1 == caller => break,
                Stop::Trap => {
                    let answered = self.stand_ins.answer(child, registers.rip - 1, &registers);
                    if !answered.map_err(Error::Refused)? {
                        return Err(Error::Lost(format!("a trap at {:#x}", registers.rip)));
                    }
                }
                stop => return Err(Error::Lost(format!("{stop:?}"))),
            }
        }
        child.poke(caller, code).map_err(Error::Refused)?;
        child.jump(caller).map_err(Error::Refused)?;
        Ok(true)
    }

    fn decode(&mut self, ip: u64) -> Result<Decoded, Error> {
        if let Some(decoded) = self.decoded.get(&ip) {
            return Ok(*decoded);
        }
        let mut bytes = [0; instruction::LONGEST];
        let n = self.child.read(ip, &mut bytes).map_err(Error::Refused)?;
        let instruction = instruction::decode(&bytes[..n], ip);
        let kind = instruction::kind(&instruction);
        let decoded = Decoded { instruction, kind, own: self.own.contains(&ip) };
        self.decoded.insert(ip, decoded);
        Ok(decoded)
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
