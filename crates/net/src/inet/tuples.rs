//! Which connections there are: no two have the same addresses and ports on both sides.

use super::ports::hash;
use core::fmt;
use core::net::SocketAddr;
use quietline_platform::{fault, heap};
use quietline_sync::SpinLock;
use rustix::io::Errno;
use std::sync::OnceLock;

/// The addresses of a connection, seen from where it was made.
pub(super) type Tuple = (SocketAddr, SocketAddr);

/// Buckets; a power of two.
const BUCKETS: usize = if cfg!(loom) { 1 } else { 1024 };

type Bucket = SpinLock<Vec<Tuple>>;

/// A set of connections. A lock for each bucket; used when a connection begins and when it ends.
pub(super) struct Tuples {
    /// Made for the first connection.
    buckets: OnceLock<Box<[Bucket]>>,
}

impl Tuples {
    pub(super) const fn new() -> Self {
        Self { buckets: OnceLock::new() }
    }

    fn bucket<'a>(buckets: &'a [Bucket], tuple: &Tuple) -> &'a Bucket {
        let mixed = hash(tuple.0) ^ hash(tuple.1).rotate_left(7);
        &buckets[mixed as usize % BUCKETS]
    }

    /// Enters a connection; false if there is one like it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn insert(&self, tuple: Tuple) -> Result<bool, Errno> {
        let buckets = match self.buckets.get() {
            Some(buckets) => buckets,
            None => {
                let fresh = heap::try_boxed_slice(BUCKETS, |_| SpinLock::new(Vec::new()));
                // If somebody was quicker, this one is dropped.
                let _ = self.buckets.set(fresh.map_err(|_| Errno::NOMEM)?);
                self.buckets.get().ok_or(Errno::NOMEM)?
            }
        };
        let mut bucket = Self::bucket(buckets, &tuple).lock();
        if bucket.contains(&tuple) {
            return Ok(false);
        }
        if bucket.len() == bucket.capacity() {
            fault::check().map_err(|_| Errno::NOMEM)?;
            bucket.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        }
        bucket.push(tuple);
        Ok(true)
    }

    /// Takes a connection out.
    pub(super) fn remove(&self, tuple: Tuple) {
        let Some(buckets) = self.buckets.get() else { return };
        let mut bucket = Self::bucket(buckets, &tuple).lock();
        if let Some(at) = bucket.iter().position(|other| *other == tuple) {
            bucket.swap_remove(at);
        }
    }

    /// How many there are: for tests.
    #[cfg(all(test, not(loom)))]
    pub(super) fn len(&self) -> usize {
        self.buckets.get().map_or(0, |buckets| buckets.iter().map(|bucket| bucket.lock().len()).sum())
    }
}

impl fmt::Debug for Tuples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tuples").field("in_use", &self.buckets.get().is_some()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_there_once() {
        let tuples = Tuples::new();
        let end = |port: u16| SocketAddr::new(core::net::Ipv4Addr::LOCALHOST.into(), port);
        tuples.remove((end(1), end(2)));
        for from in 1..=3000 {
            assert_eq!(tuples.insert((end(from), end(80))), Ok(true));
            assert_eq!(tuples.insert((end(from), end(80))), Ok(false));
            assert_eq!(tuples.insert((end(80), end(from))), Ok(from != 80), "the other way is another one");
        }
        assert_eq!(tuples.len(), 5999);
        for from in 1..=3000 {
            tuples.remove((end(from), end(80)));
            tuples.remove((end(80), end(from)));
        }
        assert_eq!(tuples.len(), 0);
    }
}
