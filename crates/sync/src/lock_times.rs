//! How long locks are held, in CPU time of the holder (feature `lock-times`).
//!
//! A [`SpinLock`](crate::SpinLock) and the lock of a [`Lockref`](crate::Lockref) are measured from
//! lock to unlock. The time during which another thread has the CPU does not count. Holds of at
//! least [`NOTED`] are recorded by the place in the code that locked.

use core::panic::Location;
use core::time::Duration;
use std::sync::{Mutex, PoisonError};

use quietline_platform::clock;

/// Shorter holds are not recorded.
pub const NOTED: Duration = Duration::from_millis(1);

/// The recorded holds of one place in the code.
#[derive(Debug, Clone, Copy)]
pub struct LongHolds {
    /// The caller of `lock`.
    pub place: &'static Location<'static>,
    /// The CPU time of the longest hold.
    pub longest: Duration,
    /// The number of holds of at least [`NOTED`].
    pub noted: u64,
    /// The number of holds of at least the bound that [`set_bound`] has set.
    pub beyond: u64,
}

#[derive(Debug)]
struct Record {
    bound: Duration,
    places: Vec<LongHolds>,
}

static RECORD: Mutex<Record> = Mutex::new(Record { bound: Duration::MAX, places: Vec::new() });

/// Sets the bound beyond which holds are counted in [`LongHolds::beyond`].
pub fn set_bound(bound: Duration) {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner).bound = bound;
}

/// Returns the recorded holds of all places so far.
pub fn long_holds() -> Vec<LongHolds> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner).places.clone()
}

/// A stopwatch for one hold: it starts when it is made, and stops when it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    place: &'static Location<'static>,
    begun: Duration,
}

impl Hold {
    #[track_caller]
    pub(crate) fn new() -> Self {
        Self { place: Location::caller(), begun: clock::thread_cpu() }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let held = clock::thread_cpu().saturating_sub(self.begun);
        if held >= NOTED {
            note(self.place, held);
        }
    }
}

#[cold]
fn note(place: &'static Location<'static>, held: Duration) {
    let mut record = RECORD.lock().unwrap_or_else(PoisonError::into_inner);
    let beyond = u64::from(held >= record.bound);
    match record.places.iter_mut().find(|known| known.place == place) {
        Some(known) => {
            known.longest = known.longest.max(held);
            known.noted += 1;
            known.beyond += beyond;
        }
        None => record.places.push(LongHolds { place, longest: held, noted: 1, beyond }),
    }
}
