//! Events: bytes and counters that wake an epoll, and nested epolls: the dispatcher of 2017, a message at a time.

use crate::gate::CPUS;
use crate::operation::{Allowance, Operation, Period, Scene, Worker};
use quietline::abi::{O_ANYFD, O_NONBLOCK};
use quietline::eventpoll::EPOLL_CTL_ADD;
use quietline::{Config, EpollEvent, Events, Kernel, Process};
use quietline_costs::Sharing;
use quietline_history::NestedWay;
use quietline_history::eventpoll::Mesh;
use std::sync::Arc;

/// Inner epolls of each process of the dispatcher.
const GROUPS: usize = 2;
/// Cores of the machine that the patch of 2017 was made for. A kernel has a list for each core,
/// also if few are busy.
const CORES: usize = 18;
/// Events that are taken at a time.
const MAX_EVENTS: usize = 16;

pub(crate) fn operations() -> Vec<Operation> {
    let says = |way| match way {
        NestedWay::Global => {
            "a message through two levels of epoll as in Linux 4.13: one list of nested calls"
        }
        NestedWay::Dlock => "the same with Bueso's patch of 2017: a list for each core",
        NestedWay::Removed => {
            "the same with Baron's patches (Linux 4.15): no list for wake-ups and polls"
        }
    };
    let history = NestedWay::ALL.map(|way| Operation {
        period: Period::Short,
        name: format!("history-{}", way.name()).into(),
        ..Operation::new("", says(way), Allowance::Any, move |cpus| miniature(way, cpus, false))
    });
    let history_own = NestedWay::ALL.map(|way| Operation {
        period: Period::Short,
        name: format!("history-{}-own", way.name()).into(),
        says: format!("{}; each process sends to itself", says(way)).into(),
        ..Operation::new("", "", Allowance::Any, move |cpus| miniature(way, cpus, true))
    });
    let one =
        |name, ledger| Operation::of_ledger(name, ledger, Sharing::OneProcess, Allowance::Never);
    let mut operations = vec![
        one("pipe-write-read", "pipe-1"),
        one("eventfd-write-read", "eventfd-write-read"),
        one("epoll-wait-none", "epoll-wait-0"),
        one("epoll-wake", "epoll-message"),
        one("epoll-wake-nested", "epoll-nested"),
        Operation {
            period: Period::Short,
            ..Operation::new(
                "epoll-wake-shared",
                "write and read of an own eventfd; one epoll watches those of all CPUs, and nobody asks it: its word moves",
                Allowance::batch(1, "the epoll's word, for each write"),
                |cpus| shared(cpus, false),
            )
        },
        Operation {
            period: Period::Short,
            ..Operation::new(
                "epoll-message-shared",
                "the same, and each CPU asks that epoll and takes what it tells of: one list of what is ready",
                Allowance::Any,
                |cpus| shared(cpus, true),
            )
        },
        Operation {
            period: Period::Short,
            ..Operation::new(
                "nested-epoll",
                "a message through two levels of epoll, from process to process: lines move with it",
                Allowance::Batch {
                    lines: 6.0 * (CPUS - 1) as f64,
                    ops: CPUS as f64,
                    says: "the pipe and both epolls, to the writer and back, of each message that is not to oneself",
                },
                dispatcher,
            )
        },
    ];
    operations.extend(history);
    operations.extend(history_own);
    operations
}

fn process() -> Arc<Process> {
    let kernel = Kernel::boot(Config::default()).expect("a kernel");
    Arc::new(kernel.process().expect("a process"))
}

fn eventfd(process: &Process) -> i32 {
    process.eventfd(0, O_NONBLOCK | O_ANYFD).expect("an eventfd")
}

/// An epoll that watches these, for input.
fn watch(process: &Process, fds: &[i32]) -> i32 {
    let epoll = process.epoll_create1(O_ANYFD).expect("an epoll");
    for fd in fds {
        let event = EpollEvent { events: Events::IN.bits(), data: *fd as u64 };
        process.epoll_ctl(epoll, EPOLL_CTL_ADD, *fd, &event).expect("it can be watched");
    }
    epoll
}

/// An eventfd for each CPU, all of which one epoll watches; whether it is asked after each write, and what it tells of is taken.
fn shared(cpus: usize, asks: bool) -> Scene {
    let process = process();
    let counters: Vec<i32> = (0..cpus).map(|_| eventfd(&process)).collect();
    let epoll = watch(&process, &counters);
    let scene = Arc::new((process, counters));
    Box::new(move |me| {
        let scene = Arc::clone(&scene);
        Box::new(move || {
            let (process, counters) = &*scene;
            assert_eq!(process.write(counters[me], &1_u64.to_ne_bytes()), Ok(8));
            if asks {
                for counter in ready(process, epoll) {
                    // Another CPU may have been told of the same.
                    let _ = process.read(counter, &mut [0; 8]);
                }
            } else {
                assert_eq!(process.read(counters[me], &mut [0; 8]), Ok(8));
            }
        }) as Worker
    })
}

/// The dispatcher: a pipe from each to each, inner epolls that watch those that come in, outer ones that watch the inner.
fn dispatcher(processes: usize) -> Scene {
    let process = process();
    let pipes: Vec<[i32; 2]> = (0..processes * processes)
        .map(|_| process.pipe2(O_NONBLOCK | O_ANYFD).expect("a pipe"))
        .collect();
    let groups = GROUPS.min(processes);
    let outer: Vec<i32> = (0..processes)
        .map(|reader| {
            let inner: Vec<i32> = (0..groups)
                .map(|group| {
                    let mine = (0..processes).filter(|writer| writer * groups / processes == group);
                    let fds: Vec<i32> =
                        mine.map(|writer| pipes[reader * processes + writer][0]).collect();
                    watch(&process, &fds)
                })
                .collect();
            watch(&process, &inner)
        })
        .collect();
    let scene = Arc::new((process, pipes, outer));
    Box::new(move |me| {
        let (scene, mut peers) = (Arc::clone(&scene), Peers::new(me, processes));
        Box::new(move || {
            let (process, pipes, outer) = &*scene;
            assert_eq!(process.write(pipes[peers.next() * processes + me][1], &[1]), Ok(1));
            for inner in ready(process, outer[me]) {
                for pipe in ready(process, inner) {
                    // Level-triggered, so another event may have been for the same byte.
                    let _ = process.read(pipe, &mut [0]);
                }
            }
        }) as Worker
    })
}

/// What is ready: descriptors.
fn ready(process: &Process, epoll: i32) -> impl Iterator<Item = i32> {
    let mut events = [EpollEvent::default(); MAX_EVENTS];
    let n = process.epoll_wait(epoll, &mut events, 0).expect("an epoll");
    events.into_iter().take(n).map(|event| event.data as i32)
}

/// Whom a process writes to next: all others and itself, in an order of its own.
pub(crate) struct Peers {
    state: u64,
    processes: usize,
}

impl Peers {
    pub(crate) fn new(process: usize, processes: usize) -> Self {
        Self { state: process as u64 + 1, processes }
    }

    pub(crate) fn next(&mut self) -> usize {
        // The numbers of Numerical Recipes' quick generator of 64 bits.
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % self.processes
    }
}

/// The miniature's dispatcher. Each process sends to all, or to itself alone.
fn miniature(way: NestedWay, processes: usize, to_itself: bool) -> Scene {
    let cores = CORES.max(processes);
    let mesh = Arc::new(Mesh::new(way, processes, GROUPS, cores).expect("memory for it"));
    Box::new(move |process| {
        let (mesh, mut peers) = (Arc::clone(&mesh), Peers::new(process, processes));
        Box::new(move || {
            mesh.turn(process, if to_itself { process } else { peers.next() });
        })
    })
}
