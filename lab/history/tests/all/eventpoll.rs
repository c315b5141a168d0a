//! The dispatcher of 2017, with each way of keeping nested epolls from going round.

use quietline_history::NestedWay;
use quietline_history::eventpoll::Mesh;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

#[test]
fn every_pipe_is_watched_once() {
    for processes in 1..=13 {
        for groups in 1..=4 {
            let mesh = Mesh::new(NestedWay::Global, processes, groups, processes).unwrap();
            assert!(mesh.is_consistent(), "{processes} processes, {groups} groups");
            let groups = groups.min(processes);
            let pipes: usize =
                (processes..processes * (1 + groups)).map(|epoll| mesh.watched(epoll)).sum();
            assert_eq!(pipes, processes * processes);
            assert!((0..processes).all(|epoll| mesh.watched(epoll) == groups));
        }
    }
}

#[test]
fn what_is_sent_is_taken() {
    for way in NestedWay::ALL {
        let mesh = Mesh::new(way, 5, 2, 5).unwrap();
        let turn = mesh.turn(3, 3);
        assert_eq!((turn.sent, turn.taken), (1, 1), "{way:?}: to itself");
        assert_eq!(mesh.turn(0, 4).taken, 0, "{way:?}: to another");
        assert_eq!(mesh.turn(1, 4).taken, 0);
        assert_eq!(mesh.in_flight(), 2);
        assert_eq!(mesh.drain(4), 2, "{way:?}");
        assert_eq!(mesh.drain(4), 0, "{way:?}");
        assert_eq!(mesh.in_flight(), 0);
    }
}

/// No message and no wake-up is lost: what is in a pipe at the end is found through the epolls.
#[test]
fn stress_nothing_is_lost() {
    const PROCESSES: usize = 3;
    const TURNS: usize = 3_000;
    for way in NestedWay::ALL {
        let mesh = Mesh::new(way, PROCESSES, 2, PROCESSES).unwrap();
        let taken = AtomicU64::new(0);
        thread::scope(|s| {
            for process in 0..PROCESSES {
                let (mesh, taken) = (&mesh, &taken);
                s.spawn(move || {
                    let mine: u64 = (0..TURNS)
                        .map(|i| mesh.turn(process, (process + i * 7 + i / 5) % PROCESSES).taken)
                        .sum();
                    taken.fetch_add(mine, Ordering::Relaxed);
                });
            }
        });
        let left: u64 = (0..PROCESSES).map(|process| mesh.drain(process)).sum();
        assert_eq!(taken.into_inner() + left, (PROCESSES * TURNS) as u64, "{way:?}");
        assert_eq!(mesh.in_flight(), 0, "{way:?}");
    }
}
