//! The two caches, and what is true of them when nobody uses them.

use super::plan::{Kind, Plan};
use super::raw::{CONSTRUCTED, Object, RETIRED, Subject, allowed_cpus};
use crate::input::Input;
use quietline_platform::{fault, pages};
use quietline_slab::{
    CacheError, Debug, set_decay_interval, set_memory_limit, set_violation_handler,
};
use quietline_sync::rcu;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) struct World {
    pub(crate) subjects: [Subject; 2],
    pub(crate) kinds: [Kind; 2],
    /// Whether the two are handles on one cache.
    pub(crate) merged: bool,
    pub(crate) players: usize,
    pub(crate) cpus: Vec<usize>,
    /// Objects on their way from one player to another.
    mailbox: Mutex<Vec<(usize, Object)>>,
    /// Bytes in pages before there was a cache.
    pages_before: usize,
}

/// Marks that were given out: no two objects have the same, whatever the world.
static MARKS: AtomicU64 = AtomicU64::new(0);

/// The first of as many marks as a player can use.
pub(crate) fn marks() -> u64 {
    // Relaxed: numbers.
    MARKS.fetch_add(1 << 26, Ordering::Relaxed)
}

fn pages_used() -> usize {
    rcu::global().expect("memory for the domain").barrier();
    pages::usage().used
}

impl World {
    /// # Panics
    /// When a cache cannot be made for another reason than memory.
    pub(crate) fn read(input: &mut Input<'_>, players: usize) -> Self {
        let (pages_before, cpus) = (pages_used(), allowed_cpus());
        let first = Plan::read(input, "first");
        let second = if input.one_in(6) { first } else { Plan::read(input, "second") };
        let plans = [first, second];
        set_violation_handler(|violation| {
            panic!("a check found what is not there: {violation}\n{violation:?}")
        });
        // With zero, idle memory goes back only when a player asks for it.
        set_decay_interval(input.pick(&[
            Duration::ZERO,
            Duration::from_millis(100),
            Duration::from_millis(1),
        ]));
        let subjects = plans.map(|plan| {
            if input.one_in(4) {
                fault::fail_nth(1 + input.below(10) as u64);
            }
            let made = make(plan);
            let met = !fault::armed();
            fault::fail_nth(0);
            match made {
                Ok(subject) => subject,
                Err(CacheError::Alloc(_)) if met => {
                    make(plan).expect("no fault is injected any more")
                }
                Err(error) => panic!("{error}: {plan:?}"),
            }
        });
        let merged = subjects[0].cache().percpu_base() == subjects[1].cache().percpu_base();
        Self {
            subjects,
            kinds: plans.map(|plan| plan.kind),
            merged,
            players,
            cpus,
            mailbox: Mutex::new(Vec::new()),
            pages_before,
        }
    }

    /// Whether nobody else changes what a player sees.
    pub(crate) fn alone(&self) -> bool {
        self.players == 1
    }

    /// Whether a player knows how each object was left: it alone frees them, and the cache is not merged.
    pub(crate) fn forgets_nothing(&self) -> bool {
        self.alone() && !self.merged
    }

    pub(crate) fn mailbox(&self) -> MutexGuard<'_, Vec<(usize, Object)>> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After all players have freed what they held.
    ///
    /// # Panics
    /// When anything is left.
    pub(crate) fn end(self) {
        for (cache, object) in self.mailbox().drain(..) {
            assert!(
                self.subjects[cache].is_intact(&object),
                "somebody else wrote to an object on its way"
            );
            self.subjects[cache].free(object);
        }
        set_memory_limit(None);
        for subject in &self.subjects {
            subject.cache().set_debug(Debug::OFF).unwrap();
            subject.cache().flush_rcu();
        }
        // Relaxed: the players have been joined, so below.
        assert_eq!(RETIRED.load(Ordering::Relaxed), 0, "given to free_rcu and not released");
        for subject in &self.subjects {
            subject.cache().shrink();
            let stats = subject.cache().stats();
            assert_eq!((stats.active, stats.cached, stats.waiting), (0, 0, 0), "{stats:?}");
            assert_eq!((stats.slabs, stats.partial_slabs, stats.places), (0, 0, 0), "{stats:?}");
        }
        drop(self.subjects);
        assert_eq!(pages_used(), self.pages_before, "pages are left");
        assert_eq!(CONSTRUCTED.load(Ordering::Relaxed), 0, "constructed and not destroyed");
    }
}

fn make(plan: Plan) -> Result<Subject, CacheError> {
    Subject::new(plan.options, plan.kind != Kind::Plain)
}
