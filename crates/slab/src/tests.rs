//! Property 10, with what only the inside can see: where each object is.

use crate::bulk::LOOK_AHEAD;
use crate::debug::{Debug, FreeKind};
use crate::freelist::State;
use crate::hook::Hook;
use crate::slab::Slab;
use crate::{Entry, Options, RawCache, Stats, stats};
use core::ptr::NonNull;
use quietline_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use quietline_platform::percpu::OwnedSheaf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::thread;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % n as u64) as usize
    }
}

/// Counts every object of a cache that nobody uses: each one is in one place, and every slab's word agrees.
fn audit(cache: &RawCache, with_users: &[usize]) {
    // Nobody may have objects in hand meanwhile.
    crate::set_decay_interval(std::time::Duration::ZERO);
    let slabs_of = cache.slabs();
    let mut place = BTreeMap::new();
    let mut put = |object: usize, at: &'static str| {
        if let Some(other) = place.insert(object, at) {
            panic!("{object:#x} is {at} and {other}");
        }
    };
    with_users.iter().for_each(|object| put(*object, "with a user"));
    let mut sheaves = 0;
    let mut look = |content: &[usize]| {
        sheaves += 1;
        assert!(
            content.len() <= cache.tunables().sheaf_capacity,
            "a sheaf of {} objects",
            content.len()
        );
        content.iter().for_each(|object| put(*object, "in a sheaf"));
    };
    cache.sheaves.each_content(&mut look);
    let barn = cache.cpus.barn.each_content(&mut look);
    let limit = Options::barn_limit();
    assert!(barn.0 <= limit && barn.1 <= limit, "{barn:?} sheaves in the barn");
    let block = cache.layout().block;
    let mut slabs: BTreeSet<usize> = place.keys().map(|object| object & !(block - 1)).collect();
    let mut listed = BTreeSet::new();
    let partial = slabs_of.partial.lock();
    let mut next = partial.first();
    while let Some(slab) = next {
        assert!(listed.insert(slab.as_ptr() as usize), "the partial list has a cycle");
        // SAFETY: slabs on the list live; it is locked.
        next = unsafe { slab.as_ref() }.next_listed();
    }
    assert_eq!(listed.len(), partial.len);
    slabs.extend(&listed);
    assert_eq!(slabs.len(), slabs_of.slabs.load(Ordering::Relaxed));
    for address in slabs {
        // SAFETY: blocks of the cache's objects, or of its list, begin with their slab.
        let slab = unsafe { &*(address as *const Slab) };
        let (free, constructed) = slab.free_objects();
        let word = slab.packed();
        let out = place.keys().filter(|object| **object & !(block - 1) == address).count();
        assert_eq!(usize::from(word.inuse), out, "objects that slab {address:#x} has given out");
        assert_eq!(free.len() + out, usize::from(constructed));
        let partial = !free.is_empty() || usize::from(constructed) < cache.layout().objects;
        assert_eq!(word.state, if partial { State::Partial } else { State::Full });
        assert_eq!(
            listed.contains(&address),
            partial,
            "partial slabs are listed, full ones are not"
        );
        let distinct: BTreeSet<_> = free.iter().collect();
        assert_eq!(distinct.len(), free.len(), "the free list has a cycle");
        for object in free {
            let offset = object - address - cache.layout().first;
            assert!(offset.is_multiple_of(cache.layout().stride), "free object of another slab");
            assert!(!place.contains_key(&object), "{object:#x} is free and out");
        }
    }
    assert!(sheaves > 0);
    drop(partial);
    assert_eq!(cache.stats().active, with_users.len());
}

/// Every object is marked by its user and unmarked before it is freed: nobody ever gets one that is marked.
#[test]
fn each_object_has_one_user() {
    unsafe fn unmarked(object: NonNull<u8>) {
        // SAFETY: an object's memory, eight bytes, aligned.
        unsafe { object.cast::<AtomicU64>().write(AtomicU64::new(0)) };
    }
    struct Held(Vec<usize>);
    for (seed, capacity) in [(1, 0), (2, 1), (3, 4), (4, 30)] {
        let options = Options {
            ctor: Some(Hook::new(unmarked)),
            sheaf_capacity: capacity,
            ..Options::new("users", 8, 8)
        };
        // SAFETY: the constructor, if any, writes the object's eight bytes.
        let cache = unsafe { RawCache::with_hooks(Options { min_partial: 2, ..options }) }.unwrap();
        let given_away = Mutex::new(Vec::new());
        let stop = AtomicBool::new(false);
        let held = thread::scope(|scope| {
            let worker = |me: u64| {
                let mut random = Random(seed * 1000 + me);
                let mut mine: Vec<usize> = Vec::new();
                let mark = |object: usize, from: u64, to: u64| {
                    // SAFETY: constructed as an AtomicU64, and alive while somebody has it.
                    let owner = unsafe { &*(object as *const AtomicU64) };
                    // Relaxed: that the cache orders one user after another is part of the claim.
                    assert_eq!(owner.swap(to, Ordering::Relaxed), from, "{object:#x} of {me}");
                };
                for _ in 0..15_000 {
                    match random.below(10) {
                        0..3 => {
                            let object = cache.alloc().unwrap().addr().get();
                            mark(object, 0, me);
                            mine.push(object);
                        }
                        3..6 => {
                            if !mine.is_empty() {
                                let object = mine.swap_remove(random.below(mine.len()));
                                mark(object, me, 0);
                                // SAFETY: it was ours.
                                unsafe { cache.free(NonNull::new(object as *mut u8).unwrap()) };
                            }
                        }
                        6 => {
                            let mut objects: Vec<Entry> = vec![None; 1 + random.below(60)];
                            cache.alloc_bulk(&mut objects).unwrap();
                            for object in objects {
                                let object = object.unwrap().addr().get();
                                mark(object, 0, me);
                                mine.push(object);
                            }
                        }
                        7 => {
                            let n = random.below(80).min(mine.len());
                            let mut objects: Vec<Entry> = mine
                                .drain(..n)
                                .inspect(|object| mark(*object, me, 0))
                                .map(|object| NonNull::new(object as *mut u8))
                                .collect();
                            // SAFETY: they were ours.
                            unsafe { cache.free_bulk(&mut objects) };
                        }
                        8 => {
                            // To whoever comes next.
                            let mut given = given_away.lock().unwrap();
                            let half = mine.len() / 2;
                            let ours = mine.split_off(half);
                            ours.iter().for_each(|object| mark(*object, me, 99));
                            let theirs = std::mem::replace(&mut *given, ours);
                            theirs.iter().for_each(|object| mark(*object, 99, me));
                            mine.extend(theirs);
                        }
                        _ if me == 1 && random.below(40) == 0 => cache.shrink(),
                        _ => assert!(
                            cache.cpus.barn.content()
                                <= Options::barn_limit() * cache.tunables().sheaf_capacity
                        ),
                    }
                }
                Held(mine)
            };
            let workers = [1, 2, 3].map(|me| scope.spawn(move || worker(me)));
            // Somebody counts meanwhile.
            let counter = scope.spawn(|| {
                let mut before = [0; 5];
                for _ in (0..300).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    // The amounts are of different moments while the cache is in use. The events only become more:
                    // each is a sum of words that only grow, and who reads a word again reads nothing older.
                    let stats = cache.stats();
                    let Stats { refills, flushes, barn_gets, barn_puts, slab_syncs, .. } = stats;
                    let now = [refills, flushes, barn_gets, barn_puts, slab_syncs];
                    assert!(
                        before.iter().zip(&now).all(|(before, now)| before <= now),
                        "{before:?}, {stats:?}"
                    );
                    before = now;
                    thread::yield_now();
                }
            });
            let held: Vec<usize> =
                workers.into_iter().flat_map(|worker| worker.join().unwrap().0).collect();
            stop.store(true, Ordering::Relaxed);
            counter.join().unwrap();
            held
        });
        let mut held = held;
        held.extend(given_away.into_inner().unwrap());
        audit(&cache, &held);
        let mut objects: Vec<Entry> =
            held.iter().map(|object| NonNull::new(*object as *mut u8)).collect();
        // SAFETY: everything that was held.
        unsafe { cache.free_bulk(&mut objects) };
        audit(&cache, &[]);
        cache.shrink();
        assert_eq!(cache.slabs().slabs.load(Ordering::Relaxed), 0);
    }
}

/// A thread has read that sheaves are allowed before the checks are switched on, and fills a sheaf
/// after that. The CPU and the barn refuse the sheaf, so its objects return to the checked slabs.
#[test]
fn a_sheaf_that_is_filled_beside_the_switch() {
    let cache = RawCache::new(Options::new("switch", 40, 8)).unwrap();
    // SAFETY: allocated here.
    unsafe { cache.free(cache.alloc().unwrap()) };
    cache.set_debug(Debug::ALL - Debug::TRACK).unwrap();
    // As `Cpus::take` does after its look at the hint.
    let mut sheaf = OwnedSheaf::new(cache.tunables().sheaf_capacity).unwrap();
    cache.slabs().take(5, |object| assert!(sheaf.push(object))).unwrap();
    let object = NonNull::new(sheaf.pop().unwrap() as *mut u8).unwrap();
    let refused = cache.cpus.sheaves.install(sheaf, false).expect("the guard is up");
    cache.cpus.park(refused);
    let Stats { active, cached, .. } = cache.stats();
    assert_eq!((active, cached, cache.validate()), (1, 0, 0));
    // SAFETY: one of the five.
    unsafe { cache.free(object) };
    cache.set_debug(Debug::OFF).unwrap();
    cache.shrink();
    assert_eq!((cache.stats().active, cache.stats().slabs), (0, 0));
}

/// A bulk free is what single frees are: the same objects are free in the same slabs.
#[test]
fn bulk_is_many_singles() {
    let free_sets = [true, false].map(|bulk| {
        let mut random = Random(7);
        let cache =
            RawCache::new(Options { min_partial: 1000, ..Options::new("sets", 100, 4) }).unwrap();
        let mut objects = vec![None; 1500];
        cache.alloc_bulk(&mut objects).unwrap();
        let order: Vec<usize> = objects.iter().map(|object| object.unwrap().addr().get()).collect();
        let mut slabs: Vec<usize> = Vec::new();
        for object in &order {
            let slab = object & !(cache.layout().block - 1);
            if !slabs.contains(&slab) {
                slabs.push(slab);
            }
        }
        // Name objects by their slab's place in the order of allocation, so that two caches compare.
        let name = |object: usize| {
            let slab = object & !(cache.layout().block - 1);
            (slabs.iter().position(|s| *s == slab), object - slab)
        };
        let mut freed: Vec<usize> = (0..700).map(|_| order[random.below(order.len())]).collect();
        freed.sort_unstable();
        freed.dedup();
        freed.sort_by_key(|object| name(*object).1.wrapping_mul(2654435761) % 1000);
        if bulk {
            cache.slabs().give(&mut freed.clone(), FreeKind::Direct);
        } else {
            freed.iter().for_each(|object| cache.slabs().give(&mut [*object], FreeKind::Direct));
        }
        let users: Vec<usize> =
            order.iter().copied().filter(|object| !freed.contains(object)).collect();
        cache.shrink();
        audit(&cache, &users);
        let mut sets = BTreeSet::new();
        for slab in slabs.iter().filter(|slab| {
            users.iter().any(|object| object & !(cache.layout().block - 1) == **slab)
        }) {
            // SAFETY: an object of the slab is out, so it lives.
            let slab = unsafe { &*(*slab as *const Slab) };
            sets.extend(slab.free_objects().0.into_iter().map(name));
        }
        let mut rest: Vec<Entry> =
            users.iter().map(|object| NonNull::new(*object as *mut u8)).collect();
        // SAFETY: everything that was left.
        unsafe { cache.free_bulk(&mut rest) };
        sets
    });
    assert_eq!(free_sets[0], free_sets[1]);
    assert!(free_sets[0].len() > 400);
}

/// Groups that a scan from the end finds, giving up at the third object of another slab.
fn groups(mut slabs: Vec<Option<usize>>) -> u64 {
    let mut groups = 0;
    while let Some(last) = slabs.iter().rposition(Option::is_some) {
        groups += 1;
        let slab = slabs[last];
        let mut others = 0;
        for entry in slabs[..=last].iter_mut().rev() {
            if *entry == slab {
                *entry = None;
            } else if entry.is_some() {
                others += 1;
                if others == LOOK_AHEAD {
                    break;
                }
            }
        }
    }
    groups
}

/// As many changes of slabs' words as there are groups.
#[test]
fn one_change_for_each_group() {
    let pattern = |text: &str| -> Vec<usize> {
        text.bytes().map(|letter| usize::from(letter - b'a')).collect()
    };
    let mut cases = vec![
        (pattern(""), Some(0)),
        (pattern("a"), Some(1)),
        (pattern("aaaaaaaaaaaaaaaa"), Some(1)),
        (pattern("aaaabbbbcccc"), Some(3)),
        (pattern("abab"), Some(2)),
        (pattern("abcabcabc"), Some(5)),
        (pattern("abababababab"), Some(4)),
        (pattern("abbbbba"), Some(3)),
        (pattern("abba"), Some(2)),
        (pattern("abcdefgh"), Some(8)),
    ];
    let mut random = Random(3);
    for _ in 0..200 {
        let (n, slabs) = (random.below(80), 1 + random.below(8));
        cases.push(((0..n).map(|_| random.below(slabs)).collect(), None));
    }
    let options = Options { min_objects: 100, min_partial: 1000, ..Options::new("groups", 40, 8) };
    let cache = RawCache::new(options).unwrap();
    // Straight out of the slabs, past the sheaves.
    let take = |n: usize| {
        let mut objects = Vec::new();
        cache.slabs().take(n, |object| objects.push(object)).unwrap();
        assert_eq!(objects.len(), n);
        objects
    };
    let mut objects = take(8 * cache.layout().objects);
    let block = cache.layout().block;
    let mut of_slab = BTreeMap::<usize, Vec<usize>>::new();
    for object in &objects {
        of_slab.entry(object & !(block - 1)).or_default().push(*object);
    }
    assert_eq!(of_slab.len(), 8);
    let of_slab: Vec<_> = of_slab.into_values().collect();
    for (case, expected) in cases {
        let mut used = [0; 8];
        let array: Vec<usize> = case
            .iter()
            .map(|slab| {
                used[*slab] += 1;
                of_slab[*slab][used[*slab] - 1]
            })
            .collect();
        let model = groups(case.iter().copied().map(Some).collect());
        assert_eq!(expected.unwrap_or(model), model, "{case:?}");
        let before = cache.slabs().counted(stats::SLAB_SYNC);
        let mut zeroed = array.clone();
        cache.slabs().give(&mut zeroed, FreeKind::Direct);
        assert_eq!(cache.slabs().counted(stats::SLAB_SYNC) - before, model, "{case:?}");
        assert!(zeroed.iter().all(|object| *object == 0));
        // Out again, by whatever way: the test needs them all.
        if !array.is_empty() {
            let (again, array): (BTreeSet<_>, BTreeSet<_>) =
                (take(array.len()).into_iter().collect(), array.into_iter().collect());
            assert_eq!(again, array, "only these were free");
        }
    }
    cache.slabs().give(&mut objects, FreeKind::Direct);
    audit(&cache, &[]);
}
