//! The hand-over of sheaves that collect for a grace period, each per-CPU operation one indivisible step of the model.
#![cfg(loom)]

/// Statistics have no part in it.
mod stats {
    pub(crate) const WORDS: usize = 0;
}

#[allow(dead_code)]
#[path = "../../src/sheaves.rs"]
mod sheaves;

use quietline_platform::percpu::OwnedSheaf;
use quietline_platform::{cpu, model, thread};
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

impl Cache {
    /// As `RawCache::free_rcu`, with sheaves for two: objects that are sent go to `sent`.
    fn free_rcu(&self, object: usize, sent: &mut Vec<usize>) {
        if self.sheaves.push_rcu(object) {
            return;
        }
        let mut sheaf = OwnedSheaf::new(2).unwrap();
        assert!(sheaf.push(object));
        let Some(mut over) = self.sheaves.install_rcu(sheaf) else { return };
        if over.len() < over.capacity() {
            assert_eq!(over.pop(), Some(object), "only the sheaf itself comes back with room");
            if self.sheaves.push_rcu(object) {
                return;
            }
            assert!(over.push(object));
        }
        drain(over, sent);
    }

    /// Everything that the CPUs collect; nothing of it is ready to be handed out.
    fn take(&self) -> Vec<usize> {
        let mut objects = Vec::new();
        self.sheaves
            .take_all(&self.handshake)
            .unwrap()
            .each(|_| unreachable!(), |sheaf| drain(sheaf, &mut objects));
        objects
    }
}

/// Empties a sheaf; freeing it while somebody still uses it is an error that the model reports.
fn drain(mut sheaf: OwnedSheaf, into: &mut Vec<usize>) {
    while let Some(object) = sheaf.pop() {
        into.push(object);
    }
}

fn sorted(mut objects: Vec<usize>) -> Vec<usize> {
    objects.sort_unstable();
    objects
}

/// Objects freed while another CPU takes the collecting sheaves: each is collected, sent or taken, once.
#[test]
fn free_rcu_beside_take_all() {
    model(|| {
        let cache = cache();
        let mut all = Vec::new();
        cache.free_rcu(1, &mut all);
        let taker = {
            let cache = cache.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                cache.take()
            })
        };
        (2..=3).for_each(|object| cache.free_rcu(object, &mut all));
        all.extend(taker.join().unwrap());
        all.extend(cache.take());
        assert_eq!(sorted(all), [1, 2, 3]);
    });
}

/// Two threads of one CPU, one of which migrates between its frees.
#[test]
fn two_threads_on_a_cpu() {
    model(|| {
        let cache = cache();
        let other = {
            let cache = cache.clone();
            thread::spawn(move || {
                let mut sent = Vec::new();
                (1..=3).for_each(|object| cache.free_rcu(object, &mut sent));
                sent
            })
        };
        let mut all = Vec::new();
        cache.free_rcu(4, &mut all);
        cpu::migrate(1);
        cache.free_rcu(5, &mut all);
        all.extend(other.join().unwrap());
        all.extend(cache.take());
        assert_eq!(sorted(all), [1, 2, 3, 4, 5]);
    });
}

/// Beside one who takes sheaves away for good, objects are sent singly, and none is left behind.
#[test]
fn free_rcu_beside_the_end_of_sheaves() {
    model(|| {
        let cache = cache();
        let ender = {
            let cache = cache.clone();
            thread::spawn(move || {
                cpu::migrate(1);
                let mut objects = Vec::new();
                let taken = cache.sheaves.forbid(&cache.handshake).unwrap();
                taken.each(|_| unreachable!(), |sheaf| drain(sheaf, &mut objects));
                objects
            })
        };
        let mut all = Vec::new();
        (1..=2).for_each(|object| cache.free_rcu(object, &mut all));
        all.extend(ender.join().unwrap());
        assert_eq!(sorted(all), [1, 2]);
        assert_eq!(cache.take(), []);
    });
}
