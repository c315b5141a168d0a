//! Routes: the longest prefix that an address begins with.
//!
//! # The problem
//!
//! Each packet asks which of a million prefixes is the longest that its destination begins with; routes come and go meanwhile,
//! by the thousand a second.
//!
//! # The contended way
//!
//! A tree under a lock, or a lock for readers, whose count all CPUs write for each packet.
//!
//! # Our way
//!
//! ```text
//!   insert, remove ── lock ──> prefixes (a hash table) ──> which leaf is around it
//!                                  │ stores, each of one word
//!                                  v
//!   lookup ── read section ──> table of entries ──> next hops
//! ```
//!
//! Readers walk a table of words, 16 bits of the address at the first step and then 8 (IPv4) or 4 (IPv6). Bits that all prefixes
//! have in common are skipped, so that a walk has a step for each place where prefixes part. A
//! change stores single words, each of which is a right answer for its addresses at that moment; what it took out is used again after
//! a grace period.
//!
//! # Guarantees
//!
//! * A lookup takes no lock, writes nothing, and waits for nobody. Of IPv4 it looks at four places at most: root, two chunks,
//!   next hop. The root is one load; a chunk is one that depends on the one before, or two, if it is beyond the first 65,536 words
//!   (256 chunks), and so is a next hop beyond the first 8,192. (A prefix that is alone below an entry has a tail instead, on one line.)
//! * A lookup beside changes gives, for its address, the answer before or after each change. A change of a prefix that
//!   covers many entries is not seen at once by all addresses.
//! * A change that fails for lack of memory has changed nothing; removing never fails, and waits for no reader.
//! * Nobody waits for readers while holding the lock: whatever takes it, but for changes, may be called inside a read section.
//!
//! # Limits
//!
//! * A change costs as many stores as the prefix covers entries that no longer prefix has: a route of 8 bits in an empty table 256,
//!   of one bit 32,768, and with them what is in chunks below. The default route costs one.
//! * Memory: 256 KiB for the root, and for a route at most a chunk (1 KiB of IPv4, 80 bytes of IPv6), two tails (48 bytes each)
//!   and some 30 bytes for the prefix itself. A million routes as large tables have them take a tenth of that of IPv4, half of
//!   IPv6: see [`Usage`].
//! * Entering a route waits for readers, without the lock, where only what they may still look at could be used for it: at the limit, or
//!   without memory. So inside a read section of the same domain it may wait for ever.
//!
//! # Source
//!
//! P. Gupta, S. Lin, N. McKeown, "Routing Lookups in Hardware at Memory Access Speeds", 1998 (the table by which bits are looked
//! at directly); `net/ipv4/fib_trie.c`, Linux 6.1, for what routes are.

mod change;
mod entry;
mod next_hop;
mod table;

pub use next_hop::{NextHop, Via};

use super::address::Address;
use super::pool::Lack;
use change::Changer;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use entry::Entry;
use next_hop::{HopPool, Hops, Onward, try_reserve};
use quietline_platform::AllocError;
use quietline_sync::SpinLock;
#[cfg(not(loom))]
use quietline_sync::rcu;
use quietline_sync::rcu::{Domain, Guard};
use rustix::io::Errno;
use std::collections::HashMap;
use table::{Table, store};

/// Routes of IPv4.
pub type Routes4 = Routes<Ipv4Addr>;
/// Routes of IPv6.
pub type Routes6 = Routes<Ipv6Addr>;

/// Bytes that chunks, and as many that tails, may take unless told otherwise: enough for any million routes of IPv4.
pub const LIMIT: usize = 1 << 30;

/// The first bits of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    address: A,
    len: u8,
}

impl<A: Address> Prefix<A> {
    /// The first `len` bits of an address; the others must be zero.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn new(address: A, len: u32) -> Result<Self, Errno> {
        if len > A::WIDTH || address.prefix(len) != address {
            return Err(Errno::INVAL);
        }
        Ok(Self { address, len: len as u8 })
    }

    /// The first `len` bits of an address, whatever comes after them.
    ///
    /// # Errors
    /// `EINVAL` for more bits than it has.
    pub fn of(address: A, len: u32) -> Result<Self, Errno> {
        if len > A::WIDTH { Err(Errno::INVAL) } else { Self::new(address.prefix(len), len) }
    }

    /// The bits, and zeroes.
    pub fn address(self) -> A {
        self.address
    }

    /// How many bits.
    pub fn len(self) -> u32 {
        self.len.into()
    }

    /// Whether there are none: the default route's prefix.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Whether an address begins with it.
    pub fn contains(self, address: A) -> bool {
        address.prefix(self.len.into()) == self.address
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// What a table takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Routes.
    pub routes: usize,
    /// Next hops that differ.
    pub next_hops: usize,
    /// Chunks in use.
    pub chunks: usize,
    /// Tails in use.
    pub tails: usize,
    /// Bytes in all, those of what is not in use now included; of the prefixes' hash table an estimate.
    pub bytes: usize,
}

/// A table of routes.
pub struct Routes<A: Address> {
    domain: &'static Domain,
    table: Table<A>,
    hops: Hops,
    writer: SpinLock<Writer<A>>,
}

/// What changes are made with.
struct Writer<A> {
    changer: Changer,
    hops: HopPool<A>,
    /// The next hop of each prefix.
    prefixes: HashMap<Prefix<A>, u32>,
    /// How many there are of each length.
    lengths: [u32; 129],
}

impl<A: Address> Routes<A> {
    /// A table without routes, for as many as [`LIMIT`] allows.
    ///
    /// # Errors
    /// [`AllocError`].
    #[cfg(not(loom))]
    pub fn new() -> Result<Self, AllocError> {
        Self::with_limit(LIMIT)
    }

    /// A table without routes whose chunks, and whose tails, take so many bytes at most.
    ///
    /// # Errors
    /// [`AllocError`].
    #[cfg(not(loom))]
    pub fn with_limit(bytes: usize) -> Result<Self, AllocError> {
        Self::in_domain(rcu::global()?, bytes)
    }

    /// The same, for readers of this domain.
    pub(super) fn in_domain(domain: &'static Domain, bytes: usize) -> Result<Self, AllocError> {
        let most = |words: usize| (bytes / size_of::<u32>() / words).min(1 << 30) as u32;
        let (changer, table) =
            Changer::new(domain, most(Table::<A>::CHUNK_WORDS), most(table::TAIL_WORDS))?;
        let (pool, hops) = HopPool::new(domain)?;
        let writer = Writer { changer, hops: pool, prefixes: HashMap::new(), lengths: [0; 129] };
        Ok(Self { domain, table, hops, writer: SpinLock::new(writer) })
    }

    /// The domain in whose read sections lookups are made.
    pub fn domain(&self) -> &'static Domain {
        self.domain
    }

    /// Where packets to an address go: the next hop of the longest prefix. Takes no lock, writes nothing.
    #[inline(always)]
    pub fn lookup(&self, guard: &Guard<'_>, address: A) -> Option<NextHop<A>> {
        debug_assert!(core::ptr::eq(guard.domain(), self.domain), "a section of another domain");
        self.hops.get(self.table.lookup(address).hop())
    }

    /// Begins to fetch what a [lookup](Self::lookup) of an address looks at first.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(super) fn prefetch(&self, address: A) {
        self.table.prefetch(address);
    }

    /// The first half of a [lookup](Self::lookup), for [`onward`](Self::onward) in the same read section.
    #[inline(always)]
    pub(super) fn hop(&self, guard: &Guard<'_>, address: A) -> u32 {
        debug_assert!(core::ptr::eq(guard.domain(), self.domain), "a section of another domain");
        self.table.lookup(address).hop()
    }

    /// Where packets to an address go on, if they do; in the read section in which the [hop](Self::hop) was found.
    #[inline(always)]
    pub(super) fn onward(&self, hop: u32, address: A) -> Option<Onward<'_, A>> {
        self.hops.onward(hop, address)
    }

    /// Enters a route; the next hop that the prefix had before, if there was one.
    ///
    /// Takes the lock. O(entries that the prefix covers). Not to be called inside a read section: at the limit, or without memory, it
    /// waits for the readers of what was taken out, holding no lock, and tries again.
    ///
    /// # Errors
    /// `ENOMEM`, also beyond the limit; then nothing has changed.
    pub fn insert(&self, prefix: Prefix<A>, hop: NextHop<A>) -> Result<Option<NextHop<A>>, Errno> {
        loop {
            match self.try_insert(prefix, hop) {
                Ok(before) => return Ok(before),
                Err(Lack::Memory) => return Err(Errno::NOMEM),
                // Each time one more can be used, unless another change takes it.
                Err(Lack::Readers(seq)) => self.domain.cond_synchronize(seq),
            }
        }
    }

    fn try_insert(&self, prefix: Prefix<A>, hop: NextHop<A>) -> Result<Option<NextHop<A>>, Lack> {
        let mut writer = self.writer.lock();
        let writer = &mut *writer;
        let old = writer.prefixes.get(&prefix).copied();
        if old.is_none() {
            try_reserve(&mut writer.prefixes)?;
        }
        let number = writer.hops.get(&self.hops, hop)?;
        let leaf = Entry::leaf(prefix.len(), number);
        match old {
            _ if prefix.is_empty() => store(self.table.default(), leaf),
            Some(_) => writer.changer.replace(&self.table, prefix.address, leaf),
            None => {
                if let Err(lack) = writer.changer.insert(&self.table, prefix.address, leaf) {
                    writer.hops.unget(&self.hops, number);
                    return Err(lack);
                }
            }
        }
        // There is room.
        writer.prefixes.insert(prefix, number);
        let before = old.and_then(|old| self.hops.get(old));
        match old {
            Some(old) => writer.hops.put(&self.hops, old),
            None => writer.lengths[prefix.len() as usize] += 1,
        }
        Ok(before)
    }

    /// Takes a route out; its next hop, if it was there.
    ///
    /// Takes the lock. O(entries that the prefix covers). Needs no memory. Waits for nobody.
    pub fn remove(&self, prefix: Prefix<A>) -> Option<NextHop<A>> {
        let mut writer = self.writer.lock();
        let writer = &mut *writer;
        let number = writer.prefixes.remove(&prefix)?;
        writer.lengths[prefix.len() as usize] -= 1;
        if prefix.is_empty() {
            store(self.table.default(), Entry::NONE);
        } else {
            let Writer { changer, prefixes, lengths, .. } = writer;
            let cover = |address: A, bits: u32| around(prefixes, lengths, address, bits);
            changer.remove(&self.table, prefix.address, prefix.len(), cover);
        }
        let hop = self.hops.get(number);
        writer.hops.put(&self.hops, number);
        hop
    }

    /// The next hop of a prefix, and of no other. Takes the lock.
    pub fn get(&self, prefix: Prefix<A>) -> Option<NextHop<A>> {
        let writer = self.writer.lock();
        self.hops.get(*writer.prefixes.get(&prefix)?)
    }

    /// Routes that there are. Takes the lock.
    pub fn len(&self) -> usize {
        self.writer.lock().prefixes.len()
    }

    /// Whether there are none. Takes the lock.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` for all routes, in no particular order, under the lock: it must not ask for routes, nor change them, nor wait for readers.
    pub fn for_each(&self, mut f: impl FnMut(Prefix<A>, NextHop<A>)) {
        let writer = self.writer.lock();
        for (prefix, number) in &writer.prefixes {
            if let Some(hop) = self.hops.get(*number) {
                f(*prefix, hop);
            }
        }
    }

    /// What the table takes. Takes the lock.
    pub fn usage(&self) -> Usage {
        let writer = self.writer.lock();
        let (chunks, tails, changer) = writer.changer.usage();
        // A hash table has an entry, and a byte, for each place, and leaves an eighth of them empty.
        let places = (writer.prefixes.capacity() * 8 / 7).next_power_of_two();
        let prefixes = places * (size_of::<(Prefix<A>, u32)>() + 1);
        Usage {
            routes: writer.prefixes.len(),
            next_hops: writer.hops.used(),
            chunks,
            tails,
            bytes: self.table.bytes() + self.hops.bytes() + changer + prefixes,
        }
    }
}

/// The leaf of the longest prefix that an address begins with, of at least one bit and at most `bits`.
fn around<A: Address>(
    prefixes: &HashMap<Prefix<A>, u32>,
    lengths: &[u32; 129],
    address: A,
    bits: u32,
) -> Entry {
    let found = (1..=bits).rev().filter(|len| lengths[*len as usize] > 0).find_map(|len| {
        let prefix = Prefix { address: address.prefix(len), len: len as u8 };
        Some(Entry::leaf(len, *prefixes.get(&prefix)?))
    });
    found.unwrap_or(Entry::NONE)
}

impl<A: Address> fmt::Debug for Routes<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").field("usage", &self.usage()).finish_non_exhaustive()
    }
}
