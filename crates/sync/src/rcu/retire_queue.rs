//! Retirement without callbacks: a bounded queue of values with the numbers of their grace periods.

use super::{Domain, GpSeq};
use core::fmt;
use quietline_platform::{AllocError, fault};
use std::collections::VecDeque;

/// A bounded queue of retired values that come back to the updater after their grace periods, in
/// order (a limbo list): slot numbers, ids, descriptor numbers, handles.
///
/// An index has no memory for the head of a callback. Here it lies beside the sequence number of
/// its grace period ([`Domain::start_poll_synchronize`]), in memory that [`new`](Self::new)
/// allocates. Retirement allocates nothing, no callback runs, and the capacity bounds the garbage.
/// The queue belongs to one updater, or is under the lock of the table whose indices it holds.
///
/// Values need not be `'static`: the queue owns them until it returns them. Dropping the queue
/// waits for the grace period of the youngest value and drops all values; inside a read section of
/// the domain that wait does not end, as [`Domain::synchronize`].
///
/// ```
/// use quietline_sync::rcu::{Domain, RetireQueue};
/// use std::sync::atomic::{AtomicUsize, Ordering::{AcqRel, Acquire}};
///
/// struct Table<'d> {
///     slots: [String; 4],
///     /// The index of the slot that readers use.
///     current: AtomicUsize,
///     free: Vec<usize>,
///     retired: RetireQueue<'d, usize>,
/// }
///
/// impl Table<'_> {
///     /// Returns a slot that no reader uses.
///     fn free_slot(&mut self) -> usize {
///         let unused = self.free.pop().or_else(|| self.retired.pop());
///         // Waits for readers only if all slots are retired.
///         unused.or_else(|| self.retired.pop_wait()).expect("four slots, one of them current")
///     }
///
///     fn set(&mut self, text: &str) {
///         let slot = self.free_slot();
///         self.slots[slot] = text.to_owned();
///         let old = self.current.swap(slot, AcqRel);
///         self.retired.push(old).expect("room for every slot");
///     }
/// }
///
/// let domain = Domain::new()?;
/// let mut table = Table {
///     slots: Default::default(),
///     current: AtomicUsize::new(0),
///     free: vec![1, 2, 3],
///     retired: RetireQueue::new(&domain, 4)?,
/// };
/// (0..10).for_each(|i| table.set(&format!("text {i}")));
/// assert_eq!(table.slots[table.current.load(Acquire)], "text 9");
/// # Ok::<(), quietline_platform::AllocError>(())
/// ```
pub struct RetireQueue<'d, T> {
    domain: &'d Domain,
    /// Oldest first. The numbers do not decrease.
    entries: VecDeque<(GpSeq, T)>,
    capacity: usize,
}

impl<'d, T> RetireQueue<'d, T> {
    /// Returns an empty queue for at most `capacity` values that readers of `domain` may hold.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn new(domain: &'d Domain, capacity: usize) -> Result<Self, AllocError> {
        fault::check()?;
        let mut entries = VecDeque::new();
        entries.try_reserve_exact(capacity).map_err(|_| AllocError)?;
        Ok(Self { domain, entries, capacity })
    }

    /// Retires a value that no section that begins later can find. A full memory barrier; waits for
    /// nothing. O(1). Writes a shared line once for each grace period: it requests one.
    ///
    /// # Errors
    /// The value, if the queue is full. [`pop_wait`](Self::pop_wait) makes room.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.is_full() {
            return Err(value);
        }
        self.entries.push_back((self.domain.start_poll_synchronize(), value));
        Ok(())
    }

    /// Returns the oldest value if its grace period is over; if not, moves the grace period on,
    /// without waiting. Runs no callback, so it may be called under any lock. O(1), or O(CPUs)
    /// where it moves the grace period on.
    pub fn pop(&mut self) -> Option<T> {
        let seq = self.oldest()?;
        if !self.domain.poll_state_synchronize(seq) {
            self.domain.advance();
            if !self.domain.poll_state_synchronize(seq) {
                return None;
            }
        }
        self.entries.pop_front().map(|(_, value)| value)
    }

    /// Returns the oldest value, and waits for its grace period if that is not over. Returns `None`
    /// if the queue is empty. Runs no callback. Inside a read section of the domain it may wait for
    /// ever, as [`Domain::synchronize`].
    pub fn pop_wait(&mut self) -> Option<T> {
        self.domain.cond_synchronize(self.oldest()?);
        self.entries.pop_front().map(|(_, value)| value)
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether [`push`](Self::push) fails.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    fn oldest(&self) -> Option<GpSeq> {
        self.entries.front().map(|(seq, _)| *seq)
    }
}

impl<T> fmt::Debug for RetireQueue<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { capacity, .. } = self;
        f.debug_struct("RetireQueue").field("len", &self.len()).field("capacity", capacity).finish()
    }
}

impl<T> Drop for RetireQueue<'_, T> {
    fn drop(&mut self) {
        if let Some((youngest, _)) = self.entries.back() {
            self.domain.cond_synchronize(*youngest);
        }
    }
}
