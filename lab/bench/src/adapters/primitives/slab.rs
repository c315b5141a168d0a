//! Objects of 192 bytes: a slab cache that all threads share, beside the heap.

use super::worker::bundled;
use super::{Opened, marks, stage};
use crate::harness::{Fault, looped};
use crate::raw::objects::{SlabObjects, heap_bulk, heap_pair};

const RULE: &str = "an object holds what was written to it";

pub(super) fn cache_pair() -> Opened {
    let hire = |cache: std::sync::Arc<SlabObjects>, seat| {
        let mut mark = marks(seat);
        Ok(looped(RULE, move || cache.pair(mark())))
    };
    Ok(stage(cache()?, hire, all_free))
}

pub(super) fn cache_bulk<const N: usize>() -> Opened {
    let hire = |cache: std::sync::Arc<SlabObjects>, seat| {
        let mut mark = marks(seat);
        Ok(bundled(looped(RULE, move || cache.bulk::<N>(mark())), N as u64))
    };
    Ok(stage(cache()?, hire, all_free))
}

pub(super) fn malloc_pair() -> Opened {
    let hire = |_, seat| {
        let mut mark = marks(seat);
        Ok(looped(RULE, move || heap_pair(mark())))
    };
    Ok(stage((), hire, heap_is_silent))
}

pub(super) fn malloc_bulk<const N: usize>() -> Opened {
    let hire = |_, seat| {
        let mut mark = marks(seat);
        Ok(bundled(looped(RULE, move || heap_bulk::<N>(mark())), N as u64))
    };
    Ok(stage((), hire, heap_is_silent))
}

fn cache() -> Result<SlabObjects, Fault> {
    SlabObjects::new().map_err(|e| Fault::new(format!("cannot make a cache: {e}")))
}

fn all_free(cache: &SlabObjects) -> Result<(), Fault> {
    let active = cache.active();
    Fault::unless(active == 0, || format!("{active} objects still allocated"))
}

/// The heap does not say how many objects are out.
fn heap_is_silent(_: &()) -> Result<(), Fault> {
    Ok(())
}
