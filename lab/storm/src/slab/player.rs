//! A thread that uses the caches as bytes tell it.

use super::Tally;
use super::hand::{Hand, Job};
use super::holding::Holding;
use super::plan::{checks, in_force, tunables};
use super::raw::{Fresh, Object, Seen, pin};
use super::world::{World, marks};
use crate::input::Input;
use quietline_platform::{AllocError, fault};
use quietline_slab::{Debug, decay, set_memory_limit, shrink_all};
use quietline_sync::rcu;

/// Bytes of objects that a player holds of a cache, about: they fit into a CPU's own cache.
const HELD: usize = 256 << 10;

pub(crate) struct Player<'a> {
    world: &'a World,
    hand: Option<Hand>,
    holdings: [Holding<'a>; 2],
    mark: u64,
    /// Operations until the faults that were injected end; 0 when there are none.
    faults: usize,
    /// Operations until checks are switched off; 0 when they are.
    checks: usize,
    tally: Tally,
    fresh: Vec<Fresh>,
}

impl<'a> Player<'a> {
    pub(crate) fn new(world: &'a World, hand: Option<Hand>) -> Self {
        let holding = |cache: usize| {
            Holding::new(&world.subjects[cache], world.kinds[cache], world.forgets_nothing())
        };
        Self {
            world,
            hand,
            holdings: [holding(0), holding(1)],
            mark: marks(),
            faults: 0,
            checks: 0,
            tally: Tally::default(),
            fresh: Vec::new(),
        }
    }

    /// Does what the bytes say, and then frees everything.
    pub(crate) fn play(mut self, mut input: Input<'_>) -> Tally {
        while !input.is_empty() {
            self.step(&mut input);
        }
        fault::fail_nth(0);
        for cache in 0..2 {
            while self.holdings[cache].len() > 0 {
                self.free_one(cache, 0);
            }
        }
        pin(&self.world.cpus);
        self.tally
    }

    fn step(&mut self, input: &mut Input<'_>) {
        self.tally.operations += 1;
        self.faults = self.faults.saturating_sub(1);
        if self.faults == 0 {
            fault::fail_nth(0);
        }
        if self.checks == 1 {
            let off = |holding: &Holding| holding.subject.cache().set_debug(Debug::OFF);
            self.holdings.iter().try_for_each(off).unwrap();
        }
        self.checks = self.checks.saturating_sub(1);
        let cache = input.below(2);
        let most = (HELD / self.holdings[cache].subject.size().max(1)).clamp(24, 2000);
        let held = self.holdings[cache].len();
        // Grows when small, shrinks when large.
        let grow = held == 0 || input.byte() * most / 256 >= held;
        match input.byte() {
            0..130 if grow => self.alloc_one(cache),
            0..130 => self.free_one(cache, input.below(held)),
            130..170 => {
                self.alloc_one(cache);
                self.free_last(cache);
            }
            170..230 if grow => self.alloc_many(cache, many(input)),
            170..230 => self.free_many(cache, many(input), input, false),
            230..234 if grow => self.alloc_batch(cache, many(input), input.byte()),
            230..244 => self.free_many(cache, many(input), input, true),
            244..254 => self.free_rcu_many(cache, many(input), input),
            _ => self.rare(cache, input),
        }
    }

    fn rare(&mut self, cache: usize, input: &mut Input<'_>) {
        self.tally.rare += 1;
        match input.below(16) {
            0 | 1 => {
                self.faults = 1 + input.below(60);
                let nth = 1 + input.pick(&[0, 0, 0, 1, 1, 2, 3, 4, 8]);
                if input.one_in(2) {
                    self.holdings[cache].subject.cache().shrink();
                }
                if input.one_in(2) { fault::fail_nth(nth) } else { fault::fail_from(nth) }
            }
            2 | 3 => self.give_back(cache, input),
            4 => {
                let asked = tunables(input);
                let subject = self.holdings[cache].subject;
                subject.cache().set_tunables(asked).expect("objects fit whatever the tunables");
                let now = subject.cache().tunables();
                assert!(!self.world.alone() || in_force(asked, now), "{asked:?} became {now:?}");
            }
            5 | 6 => self.look_closely(cache, input),
            7 | 8 => self.look_at_numbers(cache),
            9 => pin(&[input.pick(&self.world.cpus)]),
            10 => self.hand_over(cache, input),
            11 => self.hand_back(cache, input),
            12 | 13 => self.exchange(cache, input),
            14 => self.empty(cache),
            _ => self.check(cache, input),
        }
    }

    fn alloc_one(&mut self, cache: usize) {
        let result = self.holdings[cache].subject.alloc();
        if let Some(fresh) = self.allowed(result) {
            self.came(cache, fresh);
        }
    }

    fn alloc_many(&mut self, cache: usize, count: usize) {
        let result = self.holdings[cache].subject.alloc_bulk(count, &mut self.fresh);
        self.allowed(result);
        self.all_came(cache);
    }

    fn alloc_batch(&mut self, cache: usize, want: usize, take: usize) {
        let result = self.holdings[cache].subject.alloc_batch(want, take, &mut self.fresh);
        self.allowed(result);
        self.all_came(cache);
    }

    /// What an allocation gave; it may fail while faults are injected.
    fn allowed<T>(&mut self, result: Result<T, AllocError>) -> Option<T> {
        if result.is_err() {
            assert!(self.faults > 0, "an allocation failed, and no fault was injected");
            self.tally.failed += 1;
        }
        result.ok()
    }

    fn came(&mut self, cache: usize, fresh: Fresh) {
        self.mark += 1;
        self.tally.objects += 1;
        self.holdings[cache].came(fresh, self.mark);
    }

    fn all_came(&mut self, cache: usize) {
        while let Some(fresh) = self.fresh.pop() {
            self.came(cache, fresh);
        }
    }

    fn free_one(&mut self, cache: usize, index: usize) {
        let object = self.holdings[cache].take(index);
        self.holdings[cache].subject.free(object);
    }

    fn free_last(&mut self, cache: usize) {
        if let Some(last) = self.holdings[cache].len().checked_sub(1) {
            self.free_one(cache, last);
        }
    }

    /// Frees up to as many by one call, neighbours in time or some way apart; with nulls between them or without.
    fn free_many(&mut self, cache: usize, count: usize, input: &mut Input<'_>, nulls: bool) {
        let apart = input.pick(&[0, 1, 1, 3, 17]);
        let objects = self.take_many(cache, count, apart, input);
        let subject = self.holdings[cache].subject;
        if nulls {
            let every = 1 + input.below(4);
            let with_nulls = objects.into_iter().enumerate().flat_map(|(n, object)| {
                let null = n.is_multiple_of(every).then_some(None);
                null.into_iter().chain([Some(object)])
            });
            subject.free_bulk(with_nulls.chain([None]));
        } else {
            subject.free_bulk(objects.into_iter().map(Some));
        }
    }

    fn free_rcu_many(&mut self, cache: usize, count: usize, input: &mut Input<'_>) {
        let objects = self.take_many(cache, count, 1, input);
        objects.into_iter().for_each(|object| self.holdings[cache].subject.free_rcu(object));
    }

    fn take_many(
        &mut self,
        cache: usize,
        count: usize,
        apart: usize,
        input: &mut Input<'_>,
    ) -> Vec<Object> {
        let holding = &mut self.holdings[cache];
        let count = count.min(holding.len());
        let mut index = if count == 0 { 0 } else { input.below(holding.len()) };
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            index = (index + apart) % holding.len();
            taken.push(holding.take(index));
        }
        taken
    }

    /// Frees objects inside a read section, uses the cache, and looks whether they are still what they may be.
    fn look_closely(&mut self, cache: usize, input: &mut Input<'_>) {
        let subject = self.holdings[cache].subject;
        // Without memory, `free_rcu` may wait for sections to end.
        let after_grace = self.faults == 0 && input.one_in(2);
        let domain = rcu::global().expect("made before");
        let section = domain.read();
        let objects = self.take_many(cache, 1 + input.below(20), 1, input);
        let seen: Vec<Seen> = objects.iter().map(Object::seen).collect();
        for object in objects {
            if after_grace { subject.free_rcu(object) } else { subject.free(object) }
        }
        if input.one_in(2) {
            subject.cache().shrink();
        }
        for _ in 0..input.below(12) {
            self.alloc_one(cache);
        }
        if after_grace {
            assert!(
                seen.iter().all(|&seen| subject.is_still(seen)),
                "used again before its readers are gone"
            );
        } else if subject.asked().typesafe.is_some() && self.world.alone() {
            assert!(
                seen.iter().all(|&seen| subject.is_object(seen)),
                "memory changed its type under a reader"
            );
        }
        drop(section);
    }

    /// All ways in which memory goes back.
    fn give_back(&mut self, cache: usize, input: &mut Input<'_>) {
        let subject = self.holdings[cache].subject;
        match input.below(8) {
            0 => {
                subject.cache().flush_rcu();
                let waiting = subject.cache().stats().waiting;
                assert!(waiting == 0 || !self.world.alone(), "{waiting} wait after a flush");
            }
            1 => drop(decay()),
            2 => drop(shrink_all()),
            3 => set_memory_limit(input.pick(&[None, Some(0), Some(100_000), Some(1 << 30)])),
            _ => subject.cache().shrink(),
        }
    }

    /// Switches checks on for some time, or looks at what they know.
    fn check(&mut self, cache: usize, input: &mut Input<'_>) {
        let subject = self.holdings[cache].subject;
        if input.one_in(4) {
            assert_eq!(subject.cache().validate(), 0);
        } else {
            subject.cache().set_debug(checks(input)).unwrap();
            self.checks = 1 + input.below(600);
        }
    }

    /// Numbers that must be right now: all while one thread uses the caches, their relations always.
    fn look_at_numbers(&self, cache: usize) {
        let stats = self.holdings[cache].subject.cache().stats();
        if self.world.alone() {
            let on_the_way =
                |cache: usize| self.world.mailbox().iter().filter(|(of, _)| *of == cache).count();
            let held = |cache: usize| self.holdings[cache].len() + on_the_way(cache);
            let held = if self.world.merged { held(0) + held(1) } else { held(cache) };
            assert_eq!(stats.active, held, "{stats:?}");
            assert!(stats.active + stats.cached + stats.waiting <= stats.places, "{stats:?}");
            assert!(stats.partial_slabs <= stats.slabs, "{stats:?}");
            assert_eq!(stats.slabs == 0, stats.places == 0, "{stats:?}");
            assert_eq!(stats.aliases, usize::from(self.world.merged), "{stats:?}");
        }
    }

    /// Another thread frees.
    fn hand_over(&mut self, cache: usize, input: &mut Input<'_>) {
        let objects = self.take_many(cache, many(input), input.below(4), input);
        if let Some(hand) = &self.hand {
            hand.take(Job::Free(cache, objects, input.one_in(2)));
        } else {
            objects.into_iter().for_each(|object| self.holdings[cache].subject.free(object));
        }
    }

    /// Another thread allocates.
    fn hand_back(&mut self, cache: usize, input: &mut Input<'_>) {
        if let Some(hand) = &self.hand {
            self.fresh = hand.take(Job::Alloc(cache, many(input)));
            self.all_came(cache);
        }
    }

    /// Leaves some objects for another player, and takes some that another one left.
    fn exchange(&mut self, cache: usize, input: &mut Input<'_>) {
        let give = self.take_many(cache, input.below(40), 1, input);
        let take = input.below(60);
        let mut mailbox = self.world.mailbox();
        mailbox.extend(give.into_iter().map(|object| (cache, object)));
        let kept = mailbox.len().saturating_sub(take);
        let taken = mailbox.split_off(kept);
        drop(mailbox);
        for (cache, object) in taken {
            self.holdings[cache].hold(object);
        }
    }

    /// Frees all and gives everything back.
    fn empty(&mut self, cache: usize) {
        while self.holdings[cache].len() > 0 {
            self.free_last(cache);
        }
        let subject = self.holdings[cache].subject;
        subject.cache().flush_rcu();
        subject.cache().shrink();
        let mine = self.world.alone()
            && !self.world.merged
            && self.world.mailbox().iter().all(|(of, _)| *of != cache);
        if mine {
            let stats = subject.cache().stats();
            assert_eq!((stats.active, stats.cached, stats.slabs), (0, 0, 0), "{stats:?}");
        }
    }
}

/// How many objects: few, most of the time.
fn many(input: &mut Input<'_>) -> usize {
    match input.byte() {
        255 => 300,
        250..255 => 70,
        240..250 => 32,
        220..240 => 16,
        other => other % 9,
    }
}
