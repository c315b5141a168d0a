//! A report as OpenMetrics text.

use super::{Cache, Report};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// Caches of one name and one size of objects are one series.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Which {
    cache: String,
    object_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    cache: String,
    object_bytes: u64,
    state: &'static str,
}

type Gauges<Labels> = Family<Labels, Gauge<i64>>;
type Amount = fn(&Cache) -> usize;
type Count = fn(&Cache) -> u64;

const STATES: [(&str, Amount); 4] = [
    ("active", |cache| cache.active),
    ("cached", |cache| cache.cached),
    ("waiting", |cache| cache.waiting),
    ("free", |cache| cache.places.saturating_sub(cache.active + cache.cached + cache.waiting)),
];

const COUNTERS: [(&str, &str, Count); 6] = [
    ("refills", "Times that objects were taken out of slabs", |cache| cache.refills),
    ("flushes", "Times that a sheaf's objects went back to slabs", |cache| cache.flushes),
    ("barn_gets", "Full sheaves taken from the barn", |cache| cache.barn_gets),
    ("barn_puts", "Full sheaves given to the barn", |cache| cache.barn_puts),
    ("slab_syncs", "Groups of objects taken from or given to a slab", |cache| cache.slab_syncs),
    ("rcu_sheaves", "Sheaves of objects sent to wait for a grace period", |cache| {
        cache.rcu_sheaves
    }),
];

impl Report {
    /// All caches as OpenMetrics text, to be scraped, or written to a file that a node exporter collects.
    ///
    /// Gauges: `quietline_slab_objects` by `state` (`active`, `cached`, `waiting`, `free`), `quietline_slab_slabs`,
    /// `quietline_slab_memory_bytes`; counters: `quietline_slab_{refills,flushes,barn_gets,barn_puts,slab_syncs,rcu_sheaves}_total`.
    /// Labels: `cache` and `object_bytes`; caches that have both in common are added up.
    ///
    /// # Errors
    /// What `out` returns.
    pub fn open_metrics(&self, out: &mut impl fmt::Write) -> fmt::Result {
        let mut registry = Registry::with_prefix("quietline_slab");
        let objects = Gauges::<State>::default();
        registry.register(
            "objects",
            "Places for objects in slabs, by what is in them",
            objects.clone(),
        );
        for cache in &self.caches {
            for (state, amount) in STATES {
                let labels = State {
                    cache: cache.name.clone(),
                    object_bytes: cache.object_size as u64,
                    state,
                };
                objects.get_or_create(&labels).inc_by(amount(cache) as i64);
            }
        }
        let slabs = Gauges::<Which>::default();
        registry.register("slabs", "Slabs", slabs.clone());
        self.gauge(&slabs, |cache| cache.slabs);
        let memory = Gauges::<Which>::default();
        registry.register_with_unit("memory", "Memory of slabs", Unit::Bytes, memory.clone());
        self.gauge(&memory, Cache::memory);
        for (name, help, count) in COUNTERS {
            let family = Family::<Which, Counter<u64>>::default();
            registry.register(name, help, family.clone());
            self.caches
                .iter()
                .for_each(|cache| _ = family.get_or_create(&which(cache)).inc_by(count(cache)));
        }
        text::encode(out, &registry)
    }

    fn gauge(&self, family: &Gauges<Which>, amount: Amount) {
        self.caches
            .iter()
            .for_each(|cache| _ = family.get_or_create(&which(cache)).inc_by(amount(cache) as i64));
    }
}

fn which(cache: &Cache) -> Which {
    Which { cache: cache.name.clone(), object_bytes: cache.object_size as u64 }
}
