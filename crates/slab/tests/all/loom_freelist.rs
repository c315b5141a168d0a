//! A slab's free list in every interleaving.
#![cfg(loom)]

#[allow(dead_code)]
#[path = "../../src/freelist.rs"]
mod freelist;

use freelist::{Detached, Freelist, Links, NONE, Packed, Popped, State};
use quietline_platform::atomic::{AtomicUsize, Ordering};
use quietline_platform::cell::UnsafeCell;
use quietline_platform::{model, thread};
use quietline_sync::SpinLock;
use std::sync::Arc;

const OBJECTS: u16 = 4;

/// Links in cells: the model reports a link that is read without the list's word ordering it after its write.
struct Cells(Vec<UnsafeCell<u16>>);

impl Links for Cells {
    fn next(&self, index: u16) -> u16 {
        // SAFETY: the claim under test.
        self.0[usize::from(index)].with(|link| unsafe { *link })
    }

    fn set_next(&self, index: u16, next: u16) {
        // SAFETY: as above.
        self.0[usize::from(index)].with_mut(|link| unsafe { *link = next });
    }
}

struct Slab {
    list: Freelist,
    links: Cells,
    /// What the cache does with it: on the partial list, given back to the system.
    cache: SpinLock<Cache>,
    discards: AtomicUsize,
    /// Written by a user of each object, then by the next one.
    data: Vec<UnsafeCell<u16>>,
}

#[derive(Default)]
struct Cache {
    listed: u32,
    /// Empty slabs are given back.
    discard: bool,
}

// SAFETY: cells are accessed as the list says, and the model finds out where that is not enough.
unsafe impl Sync for Slab {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Slab {}

impl Slab {
    /// A slab whose objects are all out, in this state.
    fn all_out(state: State) -> Arc<Self> {
        let slab = Self {
            list: Freelist::new(),
            links: Cells((0..OBJECTS).map(|_| UnsafeCell::new(NONE)).collect()),
            cache: SpinLock::new(Cache::default()),
            discards: AtomicUsize::new(0),
            data: (0..OBJECTS).map(|_| UnsafeCell::new(0)).collect(),
        };
        let all = slab.list.pop(OBJECTS, (0, OBJECTS), State::Frozen, &slab.links, |_| ());
        assert_eq!((all.listed, all.fresh, all.state), (0, OBJECTS, State::Frozen));
        slab.list.set_state(state);
        Arc::new(slab)
    }

    fn use_object(&self, index: u16) {
        // SAFETY: the caller has the object.
        self.data[usize::from(index)].with_mut(|data| unsafe { *data += 1 });
    }

    fn detached(&self, objects: &[u16]) -> Detached {
        let mut list = Detached::one(objects[0], &self.links);
        objects[1..].iter().for_each(|object| list.push(*object, &self.links));
        list
    }

    /// What the cache does to free objects: quietly where no list changes, else under the lock.
    fn free(&self, objects: &[u16]) {
        objects.iter().for_each(|object| self.use_object(*object));
        let list = self.detached(objects);
        let quiet = self
            .list
            .push(list, &self.links, |old, new| old.state != State::Full && new.inuse != 0);
        if quiet.is_some() {
            return;
        }
        let mut cache = self.cache.lock();
        let (old, new) = self
            .list
            .push(list, &self.links, |old, new| {
                if old.state == State::Full {
                    new.state = State::Partial;
                }
                true
            })
            .expect("allowed");
        cache.listed += u32::from(old.state == State::Full);
        if cache.discard && new.inuse == 0 && new.state == State::Partial {
            cache.listed -= 1;
            drop(cache);
            self.discards.fetch_add(1, Ordering::Relaxed);
            // Discarding comes after everything that anybody did with an object.
            (0..OBJECTS).for_each(|object| self.use_object(object));
        }
    }

    /// The owner takes objects, all of which were out before.
    fn take(&self, want: u16, empty: State) -> Popped {
        self.list.pop(want, (OBJECTS, OBJECTS), empty, &self.links, |all| assert_eq!(all, OBJECTS))
    }

    fn pop(&self, want: u16) -> Vec<u16> {
        let popped = self.take(want, State::Full);
        assert_eq!(popped.fresh, 0);
        let mut taken = Vec::new();
        let mut next = popped.head;
        for _ in 0..popped.listed {
            taken.push(next);
            next = self.links.next(next);
        }
        taken.iter().for_each(|object| self.use_object(*object));
        taken
    }

    /// The list from its head, which must be acyclic and as long as the count says.
    fn walk(&self) -> (Vec<u16>, Packed) {
        let word = self.list.load();
        let (mut objects, mut next) = (Vec::new(), word.head);
        while next != NONE {
            assert!(!objects.contains(&next), "a cycle");
            objects.push(next);
            next = self.links.next(next);
        }
        assert_eq!(objects.len() + usize::from(word.inuse), usize::from(OBJECTS));
        objects.sort_unstable();
        (objects, word)
    }
}

fn beside(slab: &Arc<Slab>, f: impl FnOnce(&Slab) + 'static) -> thread::JoinHandle<()> {
    let slab = slab.clone();
    thread::spawn(move || f(&slab))
}

/// Property 10: two detached lists pushed at once are both there, once.
#[test]
fn push_push() {
    model(|| {
        let slab = Slab::all_out(State::Partial);
        let other = beside(&slab, |slab| slab.free(&[0, 1]));
        slab.free(&[2]);
        other.join().unwrap();
        let (objects, word) = slab.walk();
        assert_eq!((objects, word.inuse, word.state), (vec![0, 1, 2], 1, State::Partial));
    });
}

/// Property 10: the owner pops while others push: each object is with the owner or on the list, and the owner sees
/// what the object's last user did.
#[test]
fn pop_while_pushing() {
    model(|| {
        let slab = Slab::all_out(State::Frozen);
        slab.free(&[0]);
        let other = beside(&slab, |slab| {
            slab.free(&[1, 2]);
        });
        let mut mine = slab.pop(2);
        other.join().unwrap();
        let (listed, word) = slab.walk();
        assert!(matches!(mine.len(), 1 | 2));
        assert!(word.state != State::Full || listed.is_empty(), "a full slab has no free object");
        mine.extend(listed);
        mine.sort_unstable();
        assert_eq!(mine, [0, 1, 2]);
    });
}

/// An object that the owner popped comes back while a push is under way: the head is the same again, and the push is
/// right to succeed (no tag is needed).
#[test]
fn same_head_again() {
    model(|| {
        let slab = Slab::all_out(State::Frozen);
        slab.free(&[0]);
        let other = beside(&slab, |slab| slab.free(&[1]));
        for object in slab.pop(1) {
            slab.free(&[object]);
        }
        other.join().unwrap();
        assert_eq!(slab.walk().0, [0, 1]);
    });
}

/// The word is the same again because an object went out and came back between a pusher's load and its exchange: who
/// empties the slab has seen that user too.
#[test]
fn same_word_again_is_still_seen() {
    model(|| {
        let slab = Slab::all_out(State::Frozen);
        slab.free(&[0]);
        let other = beside(&slab, |slab| {
            let list = slab.detached(&[1, 2, 3]);
            let mut last = false;
            slab.list.push(list, &slab.links, |_, new| {
                last = new.inuse == 0;
                true
            });
            if last {
                slab.use_object(0);
            }
        });
        // The owner stays the owner.
        let popped = slab.take(1, State::Frozen);
        if popped.listed == 1 {
            slab.use_object(popped.head);
            let list = slab.detached(&[popped.head]);
            slab.list.push(list, &slab.links, |_, _| true);
        }
        other.join().unwrap();
        assert_eq!(slab.walk().1.inuse, 0);
    });
}

/// A full slab becomes partial by exactly one of two pushers, who alone puts it on the list.
#[test]
fn full_to_partial_once() {
    model(|| {
        let slab = Slab::all_out(State::Full);
        let other = beside(&slab, |slab| slab.free(&[0]));
        slab.free(&[1]);
        other.join().unwrap();
        let (objects, word) = slab.walk();
        assert_eq!((objects, word.state), (vec![0, 1], State::Partial));
        assert_eq!(slab.cache.lock().listed, 1);
    });
}

/// An owner that takes the last object leaves the slab to nobody, or keeps it if a push came before: a slab with free
/// objects is never lost.
#[test]
fn frozen_to_full_or_not() {
    model(|| {
        let slab = Slab::all_out(State::Frozen);
        slab.free(&[0]);
        let other = beside(&slab, |slab| slab.free(&[1]));
        if slab.take(1, State::Full).state == State::Frozen {
            let mut cache = slab.cache.lock();
            slab.list.set_state(State::Partial);
            cache.listed += 1;
        }
        other.join().unwrap();
        let (objects, word) = slab.walk();
        assert_eq!(objects.len(), 1);
        assert_eq!(word.state, State::Partial, "a slab with a free object is on the list");
        assert_eq!(slab.cache.lock().listed, 1);
    });
}

/// The last free is found by exactly one of two, who has seen what the other did with its object.
#[test]
fn last_free_once() {
    for state in [State::Partial, State::Full] {
        model(move || {
            let slab = Slab::all_out(state);
            slab.cache.lock().discard = true;
            slab.cache.lock().listed = u32::from(state == State::Partial);
            let other = beside(&slab, |slab| slab.free(&[0, 1]));
            slab.free(&[2, 3]);
            other.join().unwrap();
            assert_eq!(slab.discards.load(Ordering::Relaxed), 1);
            assert_eq!(slab.cache.lock().listed, 0);
            assert_eq!(slab.walk().1.inuse, 0);
        });
    }
}

/// Neither the change of state nor the push beside it is lost.
#[test]
fn set_state_beside_push() {
    model(|| {
        let slab = Slab::all_out(State::Frozen);
        let other = beside(&slab, |slab| slab.free(&[0]));
        slab.list.set_state(State::Partial);
        other.join().unwrap();
        let (objects, word) = slab.walk();
        assert_eq!((objects, word.inuse, word.state), (vec![0], OBJECTS - 1, State::Partial));
    });
}

/// Three pushers and the owner, a few forced switches each.
#[test]
fn owner_and_two_pushers() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let slab = Slab::all_out(State::Frozen);
        slab.free(&[3]);
        let others = [0, 1].map(|object| beside(&slab, move |slab| slab.free(&[object])));
        let mut mine = slab.pop(2);
        mine.extend(slab.pop(1));
        others.into_iter().for_each(|other| other.join().unwrap());
        mine.extend(slab.walk().0);
        mine.sort_unstable();
        assert_eq!(mine, [0, 1, 3]);
    });
}
