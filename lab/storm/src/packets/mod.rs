//! Packets, made, shared, changed and ended in all ways that there are, held against vectors of bytes.
//!
//! After each operation every reference has the bytes, the room and the rivals that the model says, and what was refused was refused for the
//! model's reason. Each head ends once: at once with its last reference, or, if it was put off or sent home, when whoever may free it does, and
//! not before. The thread moves between two CPUs, if there are two. In the end nothing is left.

mod model;

use crate::input::Input;
use model::Model;
use quietline_net::packet::{
    DEFER_MAX, DropReason, Frag, Napi, NoBulk, PacketError, Packets, Skb, Waitlist, kfree_skb_bulk,
    kfree_skb_bulk_heads, kfree_skb_list_reason,
};
use quietline_platform::{cpu, fault};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::RefCell;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations.
    pub operations: u64,
    /// Heads that were made.
    pub made: u64,
    /// Operations that were refused.
    pub refused: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.made += other.made;
        self.refused += other.refused;
    }
}

thread_local! {
    /// Heads whose destructors were called since this was looked at last.
    static ENDED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

extern "C" fn ended(head: u64) {
    ENDED.with_borrow_mut(|ended| ended.push(head));
}

/// References that there are at most.
const MOST: usize = 16;

/// When a head ends that has lost its last reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Now,
    /// When somebody frees what waits, elsewhere.
    Later,
    /// When it is home, or at once if there is no room.
    AtHome,
}

/// Packets, and what they should be.
struct World<'n> {
    packets: &'n Packets,
    /// Poller's stacks: the second sends home.
    napi: [Napi<'n>; 2],
    model: Model,
    /// References, each with the number of its head.
    held: Vec<(Skb<'n>, usize)>,
    /// Heads without references that have not ended.
    waits: Vec<(usize, When)>,
    refused: u64,
}

/// Does what the bytes say, until there are none left.
///
/// # Panics
/// When a packet is not what the model says.
pub fn run(bytes: &[u8]) -> Tally {
    let mut input = Input::new(bytes);
    let all = sched_getaffinity(None).expect("CPUs");
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).take(2).collect();
    go_to(cpus[0]);
    ENDED.take();
    let packets = Packets::new().expect("there is memory");
    let mut world = World {
        packets: &packets,
        napi: [packets.napi(), packets.napi().sends_home(true)],
        model: Model::default(),
        held: Vec::new(),
        waits: Vec::new(),
        refused: 0,
    };
    let mut operations = 0;
    while !input.is_empty() {
        if input.one_in(40) {
            go_to(cpus[input.below(cpus.len())]);
        }
        world.step(&mut input);
        world.check();
        operations += 1;
    }
    let World { napi, held, mut model, refused, .. } = world;
    for (skb, head) in held {
        model.heads[head].users -= 1;
        drop(skb);
    }
    drop(napi);
    packets.shrink();
    ENDED.take().into_iter().for_each(|head| model.ended(head_of(head)));
    assert!(model.heads.iter().all(|head| head.ended), "each has ended");
    let left = packets.data_stats().map(|stats| stats.active);
    assert_eq!((packets.head_stats().active, left), (0, [0; 4]));
    sched_setaffinity(None, &all).expect("the CPUs that there were");
    Tally { operations, made: model.heads.len() as u64, refused }
}

fn go_to(cpu: usize) {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).expect("a CPU that may be used");
}

/// The head's number, which its destructor is called with.
fn head_of(number: u64) -> usize {
    usize::try_from(number).expect("a number of ours")
}

fn bytes(input: &mut Input<'_>, most: usize) -> Vec<u8> {
    let (len, first) = (input.below(most), input.byte());
    (0..len).map(|i| (first + i * 3) as u8).collect()
}

impl<'n> World<'n> {
    /// One of the references that are held.
    fn pick(&self, input: &mut Input<'_>) -> Option<usize> {
        (!self.held.is_empty()).then(|| input.below(self.held.len()))
    }

    /// Enters a reference to a new head, whose end is told.
    fn hold(&mut self, mut skb: Skb<'n>, head: usize) {
        skb.set_destructor(Some((ended, head as u64))).expect("nobody else has it yet");
        self.held.push((skb, head));
    }

    /// What was done was refused for the reason that the model has; or for lack of memory, if that may be. True if it was done.
    fn agrees<T>(
        &mut self,
        done: Result<T, PacketError>,
        model: Result<(), PacketError>,
        fails: bool,
    ) -> Option<T> {
        match done {
            Ok(done) => {
                assert_eq!(model, Ok(()), "it was done");
                Some(done)
            }
            Err(error) => {
                self.refused += 1;
                assert!(
                    model == Err(error) || fails && error == PacketError::NoMemory,
                    "{error:?}, and not {model:?}"
                );
                None
            }
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        // Memory is lacking at times, of what allocates.
        let fails = input.one_in(16);
        if fails {
            fault::fail_nth(1 + input.below(3) as u64);
        }
        match input.below(24) {
            0..=3 if self.held.len() < MOST => self.make(input, fails),
            4..=6 if self.held.len() < MOST => self.share(input, fails),
            0..=9 => self.end(input),
            10 => self.free_elsewhere(input),
            11..=12 => self.copy(input, fails),
            _ => self.change(input, fails),
        }
        fault::fail_nth(0);
    }

    fn make(&mut self, input: &mut Input<'_>, fails: bool) {
        let len = input
            .pick(&[0, 60, 512, 513, 1500, 2048, 2049, 4096, 4097, 9000, 16_256, 16_257, 70_000]);
        let (may, here) = (Model::may_be(len), cpu::current());
        match input.below(4) {
            0 => {
                let mut made: [Option<Skb<'_>>; 5] = [const { None }; 5];
                let n = 1 + input.below(5);
                let done = self.packets.alloc_skb_bulk(len, &mut made[..n]);
                if self.agrees(done, may, fails).is_none() {
                    return assert!(made.iter().all(Option::is_none), "all or none");
                }
                for skb in made.into_iter().flatten() {
                    let head = self.model.made(len, here);
                    self.hold(skb, head);
                }
            }
            way => {
                let made = match way {
                    1 => self.napi[input.below(2)].alloc_skb(len),
                    _ => self.packets.alloc_skb(len),
                };
                if let Some(skb) = self.agrees(made, may, fails) {
                    let head = self.model.made(len, here);
                    self.hold(skb, head);
                }
            }
        }
    }

    fn share(&mut self, input: &mut Input<'_>, fails: bool) {
        let Some(at) = self.pick(input) else { return };
        let head = self.held[at].1;
        if input.one_in(2) {
            self.model.heads[head].users += 1;
            let skb = self.held[at].0.get();
            return self.held.push((skb, head));
        }
        let clone = self.held[at].0.clone_skb();
        if let Some(skb) = self.agrees(clone, Ok(()), fails) {
            let head = self.model.cloned(head, cpu::current());
            self.hold(skb, head);
        }
    }

    /// A copy beside the packet, or instead of this reference to it, if one is needed.
    fn copy(&mut self, input: &mut Input<'_>, fails: bool) {
        let Some(at) = self.pick(input) else { return };
        let head = self.held[at].1;
        let (way, own) = (input.below(4), self.model.headroom(head));
        let room = if way == 0 { [input.below(200), input.below(9000)] } else { [own, 0] };
        let may = self.model.may_be_copied(head, room[0], room[1]);
        let stays = match way {
            2 => !self.model.is_shared(head) && !self.model.is_cloned(head),
            3 => self.model.frags(head).is_empty(),
            _ => false,
        };
        let made = match way {
            0 => self.held[at].0.copy_expand(room[0], room[1]),
            1 => self.held[at].0.copy(),
            2 => self.held.swap_remove(at).0.unshare(),
            _ => self.held.swap_remove(at).0.linearize(),
        };
        if stays {
            return self.held.push((made.expect("it needs no copy"), head));
        }
        if let Some(copy) = self.agrees(made, may, fails) {
            let new = self.model.copied(head, room[0], room[1], cpu::current());
            self.hold(copy, new);
        }
        if way >= 2 {
            self.lost(head, When::Now);
        }
    }

    fn change(&mut self, input: &mut Input<'_>, fails: bool) {
        let Some(at) = self.pick(input) else { return };
        let Self { model, held, .. } = self;
        let (skb, head) = &mut held[at];
        let head = *head;
        let (done, may) = match input.below(9) {
            0 | 1 => {
                let bytes = bytes(input, 3000);
                (skb.put_data(&bytes), model.put(head, &bytes))
            }
            2 => {
                let bytes = bytes(input, 80);
                let done =
                    skb.push(bytes.len()).map(|data| data[..bytes.len()].copy_from_slice(&bytes));
                (done, model.push(head, &bytes))
            }
            3 => {
                let n = input.below(200);
                (skb.pull(n).map(drop), model.pull(head, n))
            }
            4 => {
                let len = input.below(3000);
                (skb.trim(len), model.trim(head, len))
            }
            5 => {
                let n = input.pick(&[0, 1, 64, 448, 449, 2048, 9000]);
                (skb.reserve(n), model.reserve(head, n))
            }
            6 => {
                let bytes = bytes(input, 5000);
                let may = model.may_add_frag(head, &bytes);
                let done = Frag::copy_of(&bytes)
                    .map_err(PacketError::from)
                    .and_then(|frag| skb.add_frag(frag));
                if done.is_ok() {
                    model.add_frag(head, bytes);
                }
                (done, may)
            }
            7 => {
                let (at, byte) = (input.below(300), input.byte() as u8);
                let write =
                    |data: &mut [u8]| data.get_mut(at).into_iter().for_each(|place| *place = byte);
                (skb.data_mut().map(write), model.change(head, at, byte))
            }
            _ => {
                let mark = input.byte() as u32;
                (skb.set_mark(mark), model.set_mark(head, mark))
            }
        };
        self.agrees(done, may, fails);
    }

    /// A reference is given up; the head, if it was the last, ends as is said.
    fn lost(&mut self, head: usize, when: When) {
        let users = &mut self.model.heads[head].users;
        *users -= 1;
        if *users == 0 {
            self.waits.push((head, when));
        }
    }

    /// Ends some references, in one of the ways that there are, perhaps where nothing may be freed.
    fn end(&mut self, input: &mut Input<'_>) {
        let (mut gone, mut heads) = (Vec::new(), Vec::new());
        for _ in 0..1 + input.below(8) {
            let Some(at) = self.pick(input) else { break };
            let (skb, head) = self.held.swap_remove(at);
            gone.push(Some(skb));
            heads.push(head);
        }
        let (way, here) = (input.below(10), cpu::current());
        let nothing_may_be_freed = input.one_in(4).then(NoBulk::enter);
        let usually = if nothing_may_be_freed.is_some() { When::Later } else { When::Now };
        // In an array, two references to one head are two.
        let alone: Vec<bool> =
            heads.iter().map(|head| self.model.heads[*head].users == 1).collect();
        let waited = self.waits.iter().filter(|(_, when)| *when == When::AtHome).count();
        for (head, alone) in heads.iter().zip(alone) {
            let of = &self.model.heads[*head];
            let goes = of.cpu != here && if way == 9 { alone } else { of.users == 1 };
            self.lost(*head, if way >= 7 && goes { When::AtHome } else { usually });
        }
        let n = gone.len();
        match way {
            0 => drop(gone),
            1 => gone.into_iter().flatten().for_each(|skb| skb.kfree_skb(DropReason::NoRoute)),
            2 => kfree_skb_bulk(&mut gone),
            3 => kfree_skb_bulk_heads(&mut gone),
            4 => kfree_skb_list_reason(gone.into_iter().flatten(), DropReason::QueueFull),
            5 => {
                let mut list = Waitlist::<4>::new();
                gone.into_iter().flatten().for_each(|skb| list.add(skb));
            }
            6 => gone.into_iter().flatten().for_each(|skb| self.napi[0].consume_skb(skb)),
            7 => gone
                .into_iter()
                .flatten()
                .for_each(|skb| self.napi[1].kfree_skb(skb, DropReason::NoRoute)),
            8 => gone.into_iter().flatten().for_each(|skb| self.packets.defer_free(skb)),
            _ => self.packets.defer_free_bulk(&mut gone),
        }
        let ended = ENDED.with_borrow(Clone::clone);
        for (head, when) in &self.waits[..] {
            let is_new = heads.contains(head);
            // There is room for these.
            let stays = is_new
                && (*when == When::Later
                    || *when == When::AtHome && waited + n < DEFER_MAX as usize);
            assert!(
                !stays || !ended.contains(&(*head as u64)),
                "{head} ended where it must not, {when:?}"
            );
        }
        let frees = nothing_may_be_freed.is_none() && n > 0 && way < 7;
        drop(nothing_may_be_freed);
        self.settle();
        assert!(
            !frees || self.waits.iter().all(|(_, when)| *when != When::Later),
            "what was put off was not freed"
        );
    }

    /// Frees what waits here, and then perhaps everywhere.
    fn free_elsewhere(&mut self, input: &mut Input<'_>) {
        let here = cpu::current();
        let way = input.below(4);
        match way {
            0 => drop(self.packets.take_deferred()),
            1 => drop(self.napi[0].take_deferred()),
            _ => {}
        }
        self.settle();
        let put_off = self.waits.iter().any(|(_, when)| *when == When::Later);
        assert!(way > 1 || !put_off, "what was put off was not freed");
        // Alone, it leaves nothing here: neither what was sent nor what it sends, from wherever that has come.
        self.napi[1].flush();
        self.settle();
        for (head, when) in &self.waits {
            let waits = *when == When::AtHome && self.model.heads[*head].cpu != here;
            assert!(waits, "{head} was not freed, {when:?}");
        }
        if input.one_in(2) {
            self.packets.shrink();
            self.settle();
            assert!(self.waits.is_empty(), "not freed: {:?}", self.waits);
        }
    }

    /// Heads that have ended are those that may have.
    fn settle(&mut self) {
        for head in ENDED.take().into_iter().map(head_of) {
            let at = self.waits.iter().position(|(waiting, _)| *waiting == head);
            self.waits.swap_remove(at.expect("it had no reference, and had not ended"));
            self.model.ended(head);
        }
        if let Some((head, _)) = self.waits.iter().find(|(_, when)| *when == When::Now) {
            panic!("{head} has not ended");
        }
    }

    /// All that is held is what it should be.
    fn check(&mut self) {
        self.settle();
        for (skb, head) in &self.held {
            let (head, model) = (*head, &self.model);
            assert!(skb.data() == model.linear(head), "other bytes");
            assert!(skb.frags().map(Frag::bytes).eq(model.frags(head)), "other fragments");
            assert_eq!((skb.len(), skb.data_len()), (model.len(head), model.frags_len(head)));
            assert_eq!(
                (skb.headroom(), skb.tailroom()),
                (model.headroom(head), model.tailroom(head))
            );
            assert_eq!(
                (skb.is_shared(), skb.is_cloned()),
                (model.is_shared(head), model.is_cloned(head))
            );
            assert_eq!((skb.mark(), skb.cpu()), (model.heads[head].mark, model.heads[head].cpu));
        }
    }
}
