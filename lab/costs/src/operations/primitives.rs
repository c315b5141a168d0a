//! Primitives of `quietline-sync`.

use super::row;
use crate::processes::of_objects;
use crate::{Operation, Scene, Sharing};
use quietline_sync::Counter;
use quietline_sync::rcu::Domain;

pub(crate) fn operations() -> Vec<Operation> {
    let of = |name, about, scene| row("primitives", name, about, scene);
    vec![
        of("counter-inc-dec", "Counter::inc and dec", counter_pair),
        of("rcu-read", "an empty RCU read-side critical section", rcu_read),
    ]
}

fn counter() -> Counter {
    Counter::new().expect("memory for a counter")
}

fn counter_pair(sharing: Sharing) -> Scene {
    of_objects(sharing, counter, |counter, _| {
        Box::new(move || {
            counter.inc();
            counter.dec();
        })
    })
}

fn rcu_read(sharing: Sharing) -> Scene {
    let domain = || Domain::new().expect("memory for a domain");
    of_objects(sharing, domain, |domain, _| Box::new(move || drop(domain.read())))
}
