//! The ladder of 2008: the socket path of Linux 2.6.27, and each patch of the series on top.

use crate::operation::{Operation, Scene};
use quietline_history::{Process, Rung, Word, World};
use std::sync::Arc;

pub(crate) fn operations() -> Vec<Operation> {
    Rung::ALL.into_iter().map(operation).collect()
}

/// The sockets of a rung.
pub(crate) fn operation(rung: Rung) -> Operation {
    macro_rules! rung {
        ($($name:literal $rung:ident)*) => {
            match rung {
                $(Rung::$rung => ($name, |cpus| sockets(Rung::$rung, cpus)),)*
            }
        };
    }
    let (name, scene): (_, fn(usize) -> Scene) = rung! {
        "history-base" Base
        "history-nr_dentry" NrDentry
        "history-nr_inodes" NrInodes
        "history-last_ino" LastIno
        "history-single-dentry" SingleDentry
        "history-single-inode" SingleInode
        "history-typesafe-files" TypesafeFiles
        "history-norefcount" Norefcount
    };
    Operation { name, says: rung.says(), scene, allowed: None }
}

/// A process of the world, and the CPU that it is on.
struct OnCpu(Process, usize);

fn sockets(rung: Rung, cpus: usize) -> Scene {
    let world = Arc::new(World::new(rung, cpus));
    name(world.words());
    Box::new(move |cpu| {
        let on = OnCpu(world.process(), cpu);
        name(on.0.words());
        name_objects(&on);
        Box::new(move || {
            let fd = on.0.socket(on.1).expect("a socket");
            on.0.close(on.1, fd).expect("it is open");
        })
    })
}

/// Objects of each kind that a CPU is given names for: those that it will use again and again.
const OBJECTS: usize = 48;

/// Opens some sockets at once, to learn where their parts lie, and closes them.
fn name_objects(on: &OnCpu) {
    let fds: Vec<_> = (0..OBJECTS).map(|_| on.0.socket(on.1).expect("a socket")).collect();
    for fd in fds {
        name(on.0.file_words(on.1, fd).expect("it is open"));
        on.0.close(on.1, fd).expect("it is open");
    }
}

fn name(mut words: Vec<Word>) {
    // A structure before its fields.
    words.sort_by_key(|word| core::cmp::Reverse(word.bytes));
    for word in words {
        quietline_platform::sim::name(word.address, word.bytes, word.name);
    }
}
