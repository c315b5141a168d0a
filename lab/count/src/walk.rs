//! A function as it lies in memory: all that it could execute.

use crate::image;
use crate::instruction::{self, Kind};
use crate::raw;
use iced_x86::{FlowControl, Instruction, Mnemonic};
use std::collections::BTreeMap;

/// What a function is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// Instructions that can be reached from the entry.
    pub instructions: usize,
    /// Those that are of a [`Kind`], with their text.
    pub noted: Vec<(Kind, String)>,
    /// What it calls, or jumps to outside itself: names, or the operand where the target is only known at run
    /// time.
    pub calls: Vec<String>,
    /// Jumps whose targets cannot be told (jump tables): if there is one, part of the function was not seen.
    pub unknown_jumps: usize,
}

impl Shape {
    /// The texts of one kind.
    pub fn of(&self, kind: Kind) -> Vec<&str> {
        self.noted.iter().filter(|(k, _)| *k == kind).map(|(_, text)| text.as_str()).collect()
    }
}

/// Decodes the function that starts at `entry`, following every direct branch inside it. Calls are listed and not
/// followed; a jump out of the function is a call.
///
/// # Panics
/// When the program's symbol table does not know the function (a stripped program).
pub fn walk(entry: *const ()) -> Shape {
    let entry = entry as u64;
    let bounds = image::function(entry).expect("the symbol table knows the function");
    assert_eq!(bounds.start, entry, "a function's first instruction");
    let code = raw::code(bounds.start, (bounds.end - bounds.start) as usize);
    let mut shape = Shape::default();
    let mut seen = BTreeMap::new();
    let mut open = vec![entry];
    while let Some(address) = open.pop() {
        if seen.contains_key(&address) {
            continue;
        }
        let offset = (address - bounds.start) as usize;
        let instruction = instruction::decode(&code[offset..], address);
        let mut branch = |target: u64, shape: &mut Shape| {
            if bounds.contains(&target) {
                open.push(target);
            } else {
                shape.calls.push(image::name(target));
            }
        };
        match instruction.flow_control() {
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                branch(instruction.near_branch_target(), &mut shape);
                branch(instruction.next_ip(), &mut shape);
            }
            FlowControl::UnconditionalBranch => {
                branch(instruction.near_branch_target(), &mut shape)
            }
            FlowControl::IndirectBranch => match pointee(&instruction) {
                Some(target) => branch(target, &mut shape),
                None => shape.unknown_jumps += 1,
            },
            FlowControl::Call => {
                shape.calls.push(image::name(instruction.near_branch_target()));
                after_call(&instruction, &bounds, &mut open);
            }
            FlowControl::IndirectCall => {
                shape.calls.push(
                    pointee(&instruction)
                        .map_or_else(|| instruction::text(&instruction), image::name),
                );
                after_call(&instruction, &bounds, &mut open);
            }
            FlowControl::Return | FlowControl::Exception => {}
            FlowControl::Interrupt if instruction.mnemonic() == Mnemonic::Int3 => {}
            FlowControl::Next | FlowControl::Interrupt => branch(instruction.next_ip(), &mut shape),
        }
        seen.insert(address, instruction);
    }
    for instruction in seen.values() {
        shape.instructions += 1;
        shape.noted.extend(
            instruction::kind(instruction).map(|kind| (kind, instruction::text(instruction))),
        );
    }
    shape
}

/// The locked instructions of a function: see [`walk`].
///
/// # Panics
/// As [`walk`].
pub fn locked_instructions(entry: *const ()) -> Vec<String> {
    walk(entry).of(Kind::Locked).into_iter().map(str::to_owned).collect()
}

/// A call that is a function's last instruction does not come back.
fn after_call(call: &Instruction, bounds: &std::ops::Range<u64>, open: &mut Vec<u64>) {
    if bounds.contains(&call.next_ip()) {
        open.push(call.next_ip());
    }
}

/// Where a branch through a pointer at a fixed address leads: an entry of the global offset table.
fn pointee(instruction: &Instruction) -> Option<u64> {
    instruction.is_ip_rel_memory_operand().then(|| raw::word(instruction.ip_rel_memory_address()))
}
