//! Readiness.

use super::row;
use crate::processes::in_process;
use crate::{Operation, Scene, Sharing};
use quietline::abi::{O_ANYFD, O_NONBLOCK};
use quietline::eventpoll::EPOLL_CTL_ADD;
use quietline::{EpollEvent, Events};

pub(crate) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| row("events", name, about, scene);
    vec![of("epoll-wait-0", "epoll_wait with nothing ready, without timeout", wait_0)]
}

fn wait_0(sharing: Sharing) -> Scene {
    in_process(sharing, |process, _| {
        let counter = process.eventfd(0, O_NONBLOCK | O_ANYFD).expect("an eventfd");
        let epoll = process.epoll_create1(O_ANYFD).expect("an epoll");
        let event = EpollEvent { events: Events::IN.bits(), data: 7 };
        process.epoll_ctl(epoll, EPOLL_CTL_ADD, counter, &event).expect("it can be watched");
        Box::new(move || {
            let mut events = [EpollEvent::default(); 1];
            assert_eq!(process.epoll_wait(epoll, &mut events, 0), Ok(0));
        })
    })
}
