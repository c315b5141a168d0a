//! The forwarder: packets of a generator, through a router that all CPUs share, to a sink with a full TX ring; and the slab of 2015
//! under the same pattern.
//!
//! An operation is one packet. They move in turns of 64, as in the bench: the first of 64 operations does the turn, and the
//! others nothing.

use crate::operation::{Allowance, Operation, Scene, Worker};
use quietline_history::slab_bulk::{Current, KmemCache, Object};
use quietline_net::device::{BUDGET, Batch, Ends, Generator, NetDevice, Sink, Traffic};
use quietline_net::forward::{Forwarder, Interface};
use quietline_net::packet::{Napi, Packets, Skb, WAITLIST};
use quietline_platform::clock;
use std::collections::VecDeque;
use std::sync::Arc;

/// Packets that stay in a TX ring, as in the bench.
const RING: usize = 512;

pub(crate) fn operations() -> Vec<Operation> {
    let routed = |name, says, size, way: fn(&'static Packets) -> Box<dyn Buffers>| {
        Operation::new(name, says, Allowance::Never, move |_| routed(size, way))
    };
    let slub = |name, says, free: Free| {
        Operation::new(name, says, Allowance::Any, move |cpus| slub(cpus, free))
    };
    vec![
        routed(
            "forward",
            "a packet through the router, made in bulk and freed by a waitlist of 32",
            SMALL,
            |_| Box::new(InBulk),
        ),
        routed("forward-single", "the same, made and freed one by one", SMALL, |packets| {
            Box::new(Single(packets))
        }),
        routed(
            "forward-napi",
            "the same, made and freed by a stack of the poller's own",
            SMALL,
            |packets| Box::new(OnStack(packets.napi())),
        ),
        routed(
            "forward-1514",
            "a packet of 1,514 bytes, made in bulk and freed by a waitlist of 32",
            FULL,
            |_| Box::new(InBulk),
        ),
        routed("forward-1514-single", "the same, made and freed one by one", FULL, |packets| {
            Box::new(Single(packets))
        }),
        slub(
            "history-4.2-forward",
            "a head of SLUB of 4.2, freed behind 512 others, one by one",
            free_each,
        ),
        slub(
            "history-4.2-forward-bulk",
            "the same, freed 32 at a time as detached freelists: the seed's patches",
            free_groups,
        ),
    ]
}

/// Bytes of a frame: the shortest, and an Ethernet's longest.
const SMALL: usize = 64;
const FULL: usize = 1514;

/// How a CPU makes and frees packets.
trait Buffers {
    fn make(&mut self, from: &mut Generator<'static>, out: &mut Batch<'static>) -> usize;
    fn free(&mut self, to: &mut Sink<'static>) -> usize;
}

struct InBulk;

impl Buffers for InBulk {
    fn make(&mut self, from: &mut Generator<'static>, out: &mut Batch<'static>) -> usize {
        from.poll(BUDGET, out).expect("memory for packets")
    }

    fn free(&mut self, to: &mut Sink<'static>) -> usize {
        to.complete(BUDGET)
    }
}

struct Single(&'static Packets);

impl Buffers for Single {
    fn make(&mut self, from: &mut Generator<'static>, out: &mut Batch<'static>) -> usize {
        from.poll_with(BUDGET, out, |len| self.0.alloc_skb(len)).expect("memory for packets")
    }

    fn free(&mut self, to: &mut Sink<'static>) -> usize {
        to.complete_with(BUDGET, drop)
    }
}

struct OnStack(Napi<'static>);

impl Buffers for OnStack {
    fn make(&mut self, from: &mut Generator<'static>, out: &mut Batch<'static>) -> usize {
        from.poll_with(BUDGET, out, |len| self.0.alloc_skb(len)).expect("memory for packets")
    }

    fn free(&mut self, to: &mut Sink<'static>) -> usize {
        to.complete_with(BUDGET, |skb| self.0.consume_skb(skb))
    }
}

/// Packets that live as long as the process: the router and all devices borrow them.
fn packets() -> &'static Packets {
    Box::leak(Box::new(Packets::new().expect("caches")))
}

fn generator(packets: &'static Packets, size: usize) -> Generator<'static> {
    let traffic = Traffic { size, ends: Ends::TEST_V4, ..Traffic::default() };
    Generator::new(packets, &traffic).expect("a generator")
}

fn sink() -> Sink<'static> {
    Sink::new(2 * RING, 1).expect("a sink")
}

/// What came is what was made, each once and in order.
fn check(sink: &Sink<'_>, made: u64) {
    let tally = sink.tally();
    assert!(tally.is_exactly(made), "{made} packets were made: {tally:?}");
}

/// Turns before the first operation: the ring is full, and the slab has seen all that it will see.
const FIRST: usize = 4 * RING / BUDGET;

/// The first of 64 operations does a turn.
fn in_turns(mut turn: impl FnMut() + 'static) -> Worker {
    (0..FIRST).for_each(|_| turn());
    let mut left = 0;
    Box::new(move || {
        if left == 0 {
            turn();
            left = BUDGET;
        }
        left -= 1;
    })
}

/// A router between the networks of the generators and of the sinks.
fn router(packets: &'static Packets) -> Forwarder<'static> {
    let [near, far, sink] =
        [[198, 18, 255, 254], [198, 19, 255, 254], [198, 19, 0, 1]].map(Into::into);
    let interface = |link, address| Interface::new(link, 1500).v4(address, 16);
    let interfaces = vec![interface([2, 0, 0, 0, 0, 2], near), interface([2, 0, 0, 0, 0, 3], far)];
    let router = Forwarder::new(packets, interfaces).expect("a router");
    router.set_neighbour4(1, sink, [2, 0, 0, 0, 0, 4]).expect("a neighbour");
    router
}

fn routed(size: usize, way: fn(&'static Packets) -> Box<dyn Buffers>) -> Scene {
    let packets = packets();
    let router = Arc::new(router(packets));
    Box::new(move |_| {
        let (router, mut lane) = (router.clone(), router.lane().expect("a lane"));
        let (mut generator, mut sink, mut batch) = (generator(packets, size), sink(), Batch::new());
        let mut buffers = way(packets);
        in_turns(move || {
            assert_eq!(buffers.make(&mut generator, &mut batch), BUDGET);
            let mut out = |_port: u32, packets: &mut [Option<Skb<'static>>]| {
                let mut batch = Batch::new();
                batch.take_from(packets);
                sink.xmit(&mut batch);
            };
            let now = clock::monotonic();
            batch.hand_over(|packets| router.handle(&mut lane, 0, packets, now, &mut out));
            while sink.completed() > RING {
                buffers.free(&mut sink);
            }
            check(&sink, generator.made());
        })
    })
}

/// A way of giving the objects in an array back.
type Free = for<'a> fn(&Current<'a>, &mut [Option<Object<'a>>]);

fn free_each<'a>(cpu: &Current<'a>, objects: &mut [Option<Object<'a>>]) {
    objects.iter_mut().filter_map(Option::take).for_each(|object| cpu.free(object));
}

fn free_groups<'a>(cpu: &Current<'a>, objects: &mut [Option<Object<'a>>]) {
    cpu.free_bulk_look_ahead(objects);
}

/// Heads alone, in the order in which the forwarder makes and frees them.
fn slub(cpus: usize, free: Free) -> Scene {
    let memory = (1 << 20) * cpus.next_power_of_two();
    let cache: &'static KmemCache =
        Box::leak(Box::new(KmemCache::new(256, cpus, memory).expect("memory")));
    Box::new(move |cpu| {
        let cpu = cache.enter(cpu).expect("each CPU comes once");
        let mut ring = VecDeque::with_capacity(RING + BUDGET);
        in_turns(move || {
            for _ in 0..BUDGET {
                ring.push_back(cpu.alloc().expect("memory for heads"));
            }
            while ring.len() > RING {
                let mut done: [_; WAITLIST] = core::array::from_fn(|_| ring.pop_front());
                free(&cpu, &mut done);
                assert!(done.iter().all(Option::is_none));
            }
        })
    })
}
