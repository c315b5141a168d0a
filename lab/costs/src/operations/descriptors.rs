//! Files without names: made and closed, in the three ways to refer to them.

use super::row;
use crate::processes::in_process;
use crate::{Operation, Scene, Sharing};
use quietline::abi::{AF_INET, O_ANYFD, SOCK_STREAM};

pub(crate) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| row("descriptors", name, about, scene);
    vec![
        of("socket-handle", "socket_file of AF_INET and drop", socket_handle),
        of("socket-anyfd", "socket of AF_INET with O_ANYFD and close", socket::<O_ANYFD>),
        of("socket-lowest", "socket of AF_INET at the lowest descriptor and close", socket::<0>),
    ]
}

fn socket_handle(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        Box::new(move || drop(process.socket_file(AF_INET, SOCK_STREAM, 0).expect("a socket")))
    })
}

fn socket<const FLAGS: i32>(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        Box::new(move || {
            let fd = process.socket(AF_INET, SOCK_STREAM | FLAGS, 0).expect("a socket");
            process.close(fd).expect("it is open");
        })
    })
}
