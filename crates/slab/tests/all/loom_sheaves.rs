//! The hand-over of a CPU's sheaves to another CPU, each per-CPU operation one indivisible step of the model.
#![cfg(loom)]

/// Statistics have no part in it.
mod stats {
    pub(crate) const WORDS: usize = 0;
}

#[allow(dead_code)]
#[path = "../../src/sheaves.rs"]
mod sheaves;

use quietline_platform::percpu::OwnedSheaf;
use quietline_platform::{cpu, fault, model, thread};
use quietline_sync::SpinLock;
use sheaves::{GuardState, Handshake, Sheaves};
use std::sync::Arc;

struct Cache {
    sheaves: Sheaves,
    handshake: Handshake,
}

fn cache() -> Arc<Cache> {
    Arc::new(Cache {
        sheaves: Sheaves::new(true).unwrap(),
        handshake: SpinLock::new(GuardState::new(true)),
    })
}

/// A sheaf for two objects, with these.
fn sheaf(objects: &[usize]) -> OwnedSheaf {
    let mut sheaf = OwnedSheaf::new(2).unwrap();
    objects.iter().for_each(|object| assert!(sheaf.push(*object)));
    sheaf
}

/// Empties a sheaf; freeing it while somebody still uses it is an error that the model reports.
fn drain(mut sheaf: OwnedSheaf, into: &mut Vec<usize>) {
    while let Some(object) = sheaf.pop() {
        into.push(object);
    }
}

fn on_cpu<T: 'static>(number: usize, f: impl FnOnce() -> T + 'static) -> thread::JoinHandle<T> {
    thread::spawn(move || {
        cpu::migrate(number);
        f()
    })
}

/// What is in the sheaves of all CPUs, which are taken away; nothing if a fence is refused.
fn take_all(cache: &Cache) -> Vec<usize> {
    let mut objects = Vec::new();
    cache
        .sheaves
        .take_all(&cache.handshake)
        .unwrap_or_default()
        .each(|sheaf| drain(sheaf, &mut objects), |_| unreachable!());
    objects
}

fn take_all_on_another_cpu(cache: &Arc<Cache>) -> thread::JoinHandle<Vec<usize>> {
    let cache = cache.clone();
    on_cpu(1, move || take_all(&cache))
}

/// Everything that is left, by whoever is alone.
fn rest(cache: &Cache, into: &mut Vec<usize>) {
    into.extend(take_all(cache));
    into.sort_unstable();
}

/// Property 10: objects popped and pushed while another CPU takes the sheaves away: each is in one place.
#[test]
fn pop_and_push_beside_take_all() {
    model(|| {
        let cache = cache();
        assert!(cache.sheaves.install(sheaf(&[1]), false).is_none());
        let drainer = take_all_on_another_cpu(&cache);
        let mut objects = Vec::new();
        match cache.sheaves.pop() {
            0 => {}
            object => objects.push(object),
        }
        if !cache.sheaves.push(2) {
            objects.push(2);
        }
        objects.extend(drainer.join().unwrap());
        rest(&cache, &mut objects);
        assert_eq!(objects, [1, 2]);
    });
}

/// The kernel refuses a fence to the CPU that takes the sheaves away, the one before they are
/// unlinked or the one after: each object is in one place, and no sheaf goes that an operation
/// still uses.
#[test]
fn pop_and_push_beside_a_refused_take_all() {
    for skipped in 0..2 {
        model(move || {
            fault::refuse_fences(skipped, 1);
            let cache = cache();
            assert!(cache.sheaves.install(sheaf(&[1]), false).is_none());
            let drainer = take_all_on_another_cpu(&cache);
            let mut objects = Vec::new();
            match cache.sheaves.pop() {
                0 => {}
                object => objects.push(object),
            }
            if !cache.sheaves.push(2) {
                objects.push(2);
            }
            if let Some(over) = cache.sheaves.install(sheaf(&[3]), true) {
                drain(over, &mut objects);
            }
            let taken = drainer.join().unwrap();
            assert!(taken.is_empty(), "{taken:?}");
            rest(&cache, &mut objects);
            assert_eq!(objects, [1, 2, 3]);
            // The guards are down.
            assert!(cache.sheaves.install(sheaf(&[4]), false).is_none());
            assert_eq!(take_all(&cache), [4]);
        });
    }
}

/// A sheaf that is installed while another CPU takes sheaves away belongs to one of them, never to both.
#[test]
fn install_beside_take_all() {
    model(|| {
        let cache = cache();
        assert!(cache.sheaves.install(sheaf(&[1, 2]), false).is_none());
        let drainer = take_all_on_another_cpu(&cache);
        let mut objects = Vec::new();
        if let Some(over) = cache.sheaves.install(sheaf(&[3]), true) {
            drain(over, &mut objects);
        }
        objects.extend(drainer.join().unwrap());
        rest(&cache, &mut objects);
        assert_eq!(objects, [1, 2, 3]);
    });
}

/// The same for the spare place: what the guard protects is read after the guard, with acquire order.
#[test]
fn spare_beside_take_all() {
    model(|| {
        let cache = cache();
        assert!(cache.sheaves.put_spare(sheaf(&[1])).is_none());
        let drainer = take_all_on_another_cpu(&cache);
        let mut objects = Vec::new();
        if let Some(spare) = cache.sheaves.take_spare() {
            drain(spare, &mut objects);
        }
        if let Some(over) = cache.sheaves.put_spare(sheaf(&[2])) {
            drain(over, &mut objects);
        }
        objects.extend(drainer.join().unwrap());
        rest(&cache, &mut objects);
        assert_eq!(objects, [1, 2]);
    });
}

/// The same for those that come home, of which one is taken and one is put while another CPU takes them all; a third comes by
/// another thread of the CPU.
#[test]
fn home_beside_take_all() {
    model(|| {
        let cache = cache();
        let mut objects = Vec::new();
        cache.sheaves.put_home(sheaf(&[1]), 2, |_| unreachable!());
        cache.sheaves.put_home(sheaf(&[2]), 2, |_| unreachable!());
        cache.sheaves.put_home(sheaf(&[3]), 2, |over| drain(over, &mut objects));
        assert_eq!(objects, [3], "it keeps two");
        let drainer = take_all_on_another_cpu(&cache);
        let other = {
            let cache = cache.clone();
            on_cpu(0, move || {
                let mut objects = Vec::new();
                cache.sheaves.put_home(sheaf(&[4]), 2, |over| drain(over, &mut objects));
                objects
            })
        };
        let mut over = Vec::new();
        if let Some(home) = cache.sheaves.take_home(|sheaf| over.push(sheaf)) {
            drain(home, &mut objects);
        }
        over.into_iter().for_each(|sheaf| drain(sheaf, &mut objects));
        objects.extend(drainer.join().unwrap());
        objects.extend(other.join().unwrap());
        rest(&cache, &mut objects);
        assert_eq!(objects, [1, 2, 3, 4]);
    });
}

/// Looking at the sheaves of a CPU that swaps and frees them: nothing freed is looked at.
#[test]
fn install_beside_content() {
    model(|| {
        let cache = cache();
        assert!(cache.sheaves.install(sheaf(&[]), false).is_none());
        let looker = {
            let cache = cache.clone();
            on_cpu(1, move || cache.sheaves.content(&cache.handshake).unwrap())
        };
        let over = cache.sheaves.install(sheaf(&[1, 2]), false).expect("the old one, or this one");
        let installed = over.is_empty();
        drop(over);
        let seen = looker.join().unwrap();
        assert_eq!(seen.1, 0, "nothing waits for a grace period");
        assert!(seen.0 == 0 || seen.0 == 2 && installed);
    });
}

/// Looking at the pile of a CPU whose sheaves come home and are taken and freed: nothing freed is looked at.
#[test]
fn home_beside_content() {
    model(|| {
        let cache = cache();
        cache.sheaves.put_home(sheaf(&[1]), 2, |_| unreachable!());
        let looker = {
            let cache = cache.clone();
            on_cpu(1, move || cache.sheaves.content(&cache.handshake).unwrap())
        };
        // The guard is up: refused.
        let taken =
            cache.sheaves.take_home(|_| unreachable!()).map(|mut home| home.pop()).is_some();
        let mut refused = 0;
        cache.sheaves.put_home(sheaf(&[2, 3]), 2, |_| refused += 1);
        let seen = looker.join().unwrap();
        assert_eq!(seen.1, 0, "nothing waits for a grace period");
        assert!([0, 1, 2, 3].contains(&seen.0), "{seen:?}");
        let left = if taken { 0 } else { 1 } + if refused == 0 { 2 } else { 0 };
        assert_eq!(cache.sheaves.content(&cache.handshake).unwrap().0, left);
        cache.sheaves.take_all(&cache.handshake).unwrap().each(drop, |_| unreachable!());
    });
}

/// A thread that is moved to another CPU while it has its pile in hand: none is lost, and none is in two places.
#[test]
fn home_of_a_thread_that_is_moved() {
    model(|| {
        let cache = cache();
        cache.sheaves.put_home(sheaf(&[1]), 2, |_| unreachable!());
        cache.sheaves.put_home(sheaf(&[2]), 2, |_| unreachable!());
        let other = {
            let cache = cache.clone();
            on_cpu(1, move || {
                let mut objects = Vec::new();
                cache.sheaves.put_home(sheaf(&[3]), 2, |over| drain(over, &mut objects));
                cpu::migrate(0);
                let mut over = Vec::new();
                if let Some(home) = cache.sheaves.take_home(|sheaf| over.push(sheaf)) {
                    drain(home, &mut objects);
                }
                over.into_iter().for_each(|sheaf| drain(sheaf, &mut objects));
                objects
            })
        };
        let (mut objects, mut over) = (Vec::new(), Vec::new());
        if let Some(home) = cache.sheaves.take_home(|sheaf| over.push(sheaf)) {
            drain(home, &mut objects);
        }
        over.into_iter().for_each(|sheaf| drain(sheaf, &mut objects));
        objects.extend(other.join().unwrap());
        rest(&cache, &mut objects);
        assert_eq!(objects, [1, 2, 3]);
    });
}

/// Two threads of one CPU, and a migration between pop and push: sheaves are replaced only when empty or full, and
/// nothing is lost.
#[test]
fn two_threads_on_a_cpu() {
    model(|| {
        let cache = cache();
        assert!(cache.sheaves.install(sheaf(&[1]), false).is_none());
        let refill =
            |cache: &Cache, objects: &[usize], all: &mut Vec<usize>| match cache.sheaves.pop() {
                0 => {
                    if let Some(over) = cache.sheaves.install(sheaf(objects), false) {
                        let mut content = Vec::new();
                        drain(over, &mut content);
                        assert!(
                            content.is_empty() || content == objects,
                            "a sheaf that was refilled is left alone"
                        );
                        all.extend(content);
                    }
                }
                object => {
                    all.push(object);
                    all.extend(objects);
                }
            };
        let other = {
            let cache = cache.clone();
            thread::spawn(move || {
                let mut all = Vec::new();
                refill(&cache, &[3], &mut all);
                refill(&cache, &[4], &mut all);
                all
            })
        };
        let mut all = Vec::new();
        refill(&cache, &[5], &mut all);
        cpu::migrate(1);
        refill(&cache, &[6], &mut all);
        all.extend(other.join().unwrap());
        rest(&cache, &mut all);
        assert_eq!(all, [1, 3, 4, 5, 6]);
    });
}
