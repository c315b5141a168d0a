//! The ladder of 2008: sockets, pipes and eventfds as in Linux 2.6.27, and each patch of the series on top.

use crate::operation::{Allowance, Operation, Period, Scene};
use quietline_history::{Errno, Process, Rung, Word, World};
use std::sync::Arc;

/// What is opened and closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Object {
    Socket,
    Pipe,
    Eventfd,
}

pub(crate) fn operations() -> Vec<Operation> {
    let of = |object| Rung::ALL.into_iter().map(move |rung| operation(object, rung));
    [Object::Socket, Object::Pipe, Object::Eventfd].into_iter().flat_map(of).collect()
}

/// Opening and closing such an object on a rung: `history-RUNG` for sockets, as the bench's columns are called.
pub(crate) fn operation(object: Object, rung: Rung) -> Operation {
    let kind = match object {
        Object::Socket => "",
        Object::Pipe => "pipes-",
        Object::Eventfd => "eventfds-",
    };
    Operation {
        name: format!("history-{kind}{}", rung.name()).into(),
        says: rung.says().into(),
        scene: Box::new(move |cpus| scene(object, rung, cpus)),
        allowance: Allowance::Any,
        period: if rung < Rung::TypesafeFiles { Period::Ticks } else { Period::Batch },
    }
}

/// A process of the world, and the CPU that it is on.
struct OnCpu(Process, usize);

impl OnCpu {
    fn open_and_close(&self, object: Object) -> Result<(), Errno> {
        let Self(process, cpu) = self;
        let close = |fd| process.close(*cpu, fd);
        match object {
            Object::Socket => process.socket(*cpu).and_then(close),
            Object::Pipe => process.pipe(*cpu)?.into_iter().try_for_each(close),
            Object::Eventfd => process.eventfd(*cpu).and_then(close),
        }
    }
}

fn scene(object: Object, rung: Rung, cpus: usize) -> Scene {
    let world = Arc::new(World::new(rung, cpus));
    name(world.words());
    Box::new(move |cpu| {
        let on = OnCpu(world.process(), cpu);
        name(on.0.words());
        Box::new(move || on.open_and_close(object).expect("it is opened, and closed"))
    })
}

fn name(mut words: Vec<Word>) {
    // A structure before its fields.
    words.sort_by_key(|word| core::cmp::Reverse(word.bytes));
    for word in words {
        quietline_platform::sim::name(word.address, word.bytes, word.name);
    }
}
