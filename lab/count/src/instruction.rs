//! Which instructions are of interest.

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter, Mnemonic, OpKind};

/// Bytes that the longest instruction has.
pub(crate) const LONGEST: usize = 15;

/// An instruction that costs more than its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Has a `lock` prefix, or is an `xchg` with memory, which locks without one.
    Locked,
    /// `mfence`, `lfence` or `sfence`.
    Fence,
    /// Enters the kernel.
    Syscall,
}

/// A decoded instruction of the child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoded {
    pub(crate) instruction: Instruction,
    pub(crate) kind: Option<Kind>,
    /// Whether it belongs to the program's own code.
    pub(crate) own: bool,
}

/// Decodes the instruction at `address`, whose bytes are at the start of `bytes`.
pub(crate) fn decode(bytes: &[u8], address: u64) -> Instruction {
    Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode()
}

/// The kind of an instruction, if it has one.
pub(crate) fn kind(instruction: &Instruction) -> Option<Kind> {
    let memory = (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
    match instruction.mnemonic() {
        Mnemonic::Mfence | Mnemonic::Lfence | Mnemonic::Sfence => Some(Kind::Fence),
        Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int => Some(Kind::Syscall),
        Mnemonic::Xchg if memory => Some(Kind::Locked),
        _ if instruction.has_lock_prefix() => Some(Kind::Locked),
        _ => None,
    }
}

/// The instruction as an assembler writes it.
pub(crate) fn text(instruction: &Instruction) -> String {
    let mut text = String::new();
    IntelFormatter::new().format(instruction, &mut text);
    text
}
