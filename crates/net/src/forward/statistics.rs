//! What a forwarder counts.

use crate::packet::DropReason;
use core::ops::Index;
use quietline_platform::AllocError;
use quietline_platform::percpu::Words;

macro_rules! counts {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// What is counted besides [drops](DropReason).
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Count {
            $($(#[$doc])* $variant,)*
        }

        impl Count {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

counts! {
    /// Packets that came in.
    Received => "received",
    /// Packets that were not addressed to this station: dropped without a reason.
    OtherStation => "other station",
    /// Packets of IPv4 that came in and were sent on, as far as the device took them. One that is cut counts with its last piece.
    Forwarded4 => "forwarded IPv4",
    /// The same of IPv6.
    Forwarded6 => "forwarded IPv6",
    /// Fragments made of packets that were too big.
    Fragments => "fragments made",
    /// Echo requests that were made answers.
    Echoes => "echoes",
    /// Messages of ARP and neighbour discovery that were understood.
    Neighbours => "neighbour messages",
    /// Neighbours asked for.
    Asked => "neighbours asked for",
    /// Errors told to the sender.
    Errors => "ICMP errors",
    /// Errors that were not told, because there were too many.
    Limited => "ICMP errors limited",
    /// Packets that the device did not take: dropped with [`DropReason::QueueFull`].
    NotSent => "not sent",
    /// Of those that were dropped, packets that were made here: answers, errors, questions, and pieces of one that was cut, but the
    /// last, which stands for it.
    OwnDropped => "own dropped",
}

const COUNTS: usize = Count::ALL.len();
const ALL: usize = COUNTS + DropReason::ALL.len();

/// Counts at a moment.
///
/// Each packet that came in ends once. When [none waits](super::Forwarder::waiting), `Received` is the sum of `OtherStation`, `Forwarded4`,
/// `Forwarded6`, `Echoes`, `Neighbours` and all [drops](Self::dropped), less `OwnDropped`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts([u64; ALL]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; ALL])
    }
}

impl Counts {
    #[inline(always)]
    pub(super) fn add(&mut self, count: Count) {
        self.0[count as usize] += 1;
    }

    #[inline(always)]
    pub(super) fn add_n(&mut self, count: Count, n: u64) {
        self.0[count as usize] += n;
    }

    /// Takes packets back that were counted, and are not what they were counted as.
    pub(super) fn take_back(&mut self, count: Count, n: u64) {
        debug_assert!(self.0[count as usize] >= n, "more is taken back than was counted");
        self.0[count as usize] = self.0[count as usize].saturating_sub(n);
    }

    #[inline(always)]
    pub(super) fn drop(&mut self, reason: DropReason) {
        self.0[COUNTS + reason.number()] += 1;
    }

    /// Packets dropped, for any reason.
    pub fn dropped(&self) -> u64 {
        self.0[COUNTS..].iter().sum()
    }
}

impl Index<Count> for Counts {
    type Output = u64;

    fn index(&self, count: Count) -> &u64 {
        &self.0[count as usize]
    }
}

impl Index<DropReason> for Counts {
    type Output = u64;

    fn index(&self, reason: DropReason) -> &u64 {
        &self.0[COUNTS + reason.number()]
    }
}

/// Counts of each CPU.
pub(super) struct Statistics {
    words: Words<ALL>,
}

impl Statistics {
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self { words: Words::new()? })
    }

    /// Adds what a batch has counted, to this CPU's.
    pub(super) fn add(&self, counts: &mut Counts) {
        for (word, count) in counts.0.iter_mut().enumerate() {
            if *count != 0 {
                self.words.add(word, core::mem::take(count));
            }
        }
    }

    pub(super) fn cpus(&self) -> usize {
        self.words.cpus()
    }

    pub(super) fn of_cpu(&self, cpu: usize) -> Counts {
        Counts(core::array::from_fn(|word| self.words.load(cpu, word)))
    }

    pub(super) fn sum(&self) -> Counts {
        Counts(core::array::from_fn(|word| self.words.sum(word)))
    }
}
