//! Changes to the table, made by one writer at a time.
//!
//! What is new is built where no reader sees it, and published by one store; what has gone waits for the readers. A
//! change that lacks memory undoes what it built, and has changed nothing.
//!
//! A chunk counts the prefixes below it. One that is left with one prefix becomes a tail, one with none a leaf, and
//! one whose prefixes are all in the same chunk below it makes way for a tail that leads there. (All in one file, because what removing
//! does has to undo what inserting did, case by case.)

use super::entry::{Entry, Kind};
use super::table::{Place, ROOT_BITS, TAIL_WORDS, Table, Tail, load, store};
use crate::forward::address::Sealed;
use crate::forward::pool::{Lack, Pool};
use core::ops::Range;
use quietline_platform::AllocError;
use quietline_platform::atomic::AtomicU32;
use quietline_sync::rcu::Domain;

/// Chunks that a walk can pass: of IPv6, 28.
const DEEPEST: usize = 32;
/// Tails that a change can make: the new prefix's, that of what was there, and one before a chunk for both.
const MOST_TAILS: usize = 3;

/// The writers' half of a [`Table`].
pub(super) struct Changer {
    chunks: Pool,
    tails: Pool,
    /// What the change at hand has built, to be undone if something lacks memory.
    built_chunk: Option<u32>,
    built_tails: [Option<u32>; MOST_TAILS],
}

/// Where a walk has come to: which entries, and how many bits lie before them.
#[derive(Debug, Clone, Copy)]
struct Step {
    place: Place,
    at: u32,
    width: u32,
}

impl Step {
    const ROOT: Self = Self { place: Place::Root, at: 0, width: ROOT_BITS };

    fn chunk<A: Sealed>(chunk: u32, at: u32) -> Self {
        Self { place: Place::Chunk(chunk), at, width: A::STRIDE }
    }

    fn end(self) -> u32 {
        self.at + self.width
    }

    /// The entry for an address.
    fn slot<A: Sealed>(self, address: A) -> usize {
        address.bits_at(self.at, self.width)
    }

    /// The entries that a prefix covers which ends here.
    fn covered<A: Sealed>(self, prefix: A, len: u32) -> Range<usize> {
        let first = self.slot(prefix);
        first..first + (1 << (self.end() - len))
    }
}

/// The chunks on the way to a prefix, each with the step from which a walk came into it.
struct Way {
    passed: [(Step, u32); DEEPEST],
    n: usize,
    /// Where the prefix ends, or where it would be.
    last: Step,
}

impl Way {
    fn passed(&self) -> &[(Step, u32)] {
        &self.passed[..self.n]
    }
}

/// The way of a prefix: as far as it has its bits in common with what is there.
fn walk<A: Sealed>(table: &Table<A>, prefix: A, len: u32) -> Way {
    let mut way = Way { passed: [(Step::ROOT, 0); DEEPEST], n: 0, last: Step::ROOT };
    while len > way.last.end() {
        let (chunk, at) = match table.entry(way.last.place, way.last.slot(prefix)).kind() {
            Kind::Leaf => break,
            Kind::Chunk(chunk) => (chunk, way.last.end()),
            Kind::Tail(tail) => {
                let tail = table.tail(tail);
                match tail.inner.kind() {
                    Kind::Chunk(chunk)
                        if len > tail.len && prefix.prefix(tail.len) == tail.bits =>
                    {
                        (chunk, tail.len)
                    }
                    _ => break,
                }
            }
        };
        way.passed[way.n] = (way.last, chunk);
        way.n += 1;
        way.last = Step::chunk::<A>(chunk, at);
    }
    way
}

impl Changer {
    /// A table, and who changes it: for so many chunks and tails.
    pub(super) fn new<A: Sealed>(
        domain: &'static Domain,
        chunks: u32,
        tails: u32,
    ) -> Result<(Self, Table<A>), AllocError> {
        let (chunks, chunk_words) = Pool::new(domain, Table::<A>::CHUNK_WORDS, chunks)?;
        let (tails, tail_words) = Pool::new(domain, TAIL_WORDS, tails)?;
        let this = Self { chunks, tails, built_chunk: None, built_tails: [None; MOST_TAILS] };
        Ok((this, Table::new(chunk_words, tail_words)?))
    }

    /// Chunks, tails and bytes of this half.
    pub(super) fn usage(&self) -> (usize, usize, usize) {
        (self.chunks.used(), self.tails.used(), self.chunks.bytes() + self.tails.bytes())
    }

    /// Enters a prefix of at least one bit that is not there. O(entries that it covers).
    pub(super) fn insert<A: Sealed>(
        &mut self,
        table: &Table<A>,
        prefix: A,
        leaf: Entry,
    ) -> Result<(), Lack> {
        let new = Tail { bits: prefix, len: leaf.depth(), inner: leaf };
        let way = walk(table, prefix, new.len);
        if new.len <= way.last.end() {
            for slot in way.last.covered(prefix, new.len) {
                push(table, way.last.place, slot, leaf);
            }
        } else {
            let slot = way.last.slot(prefix);
            let old = table.entry(way.last.place, slot);
            let made = match old.kind() {
                Kind::Tail(tail) => self.fork(table, way.last.end(), tail, new),
                _ => self.new_tail(table, new, old),
            };
            let made = match made {
                Ok(made) => made,
                Err(lack) => {
                    self.undo();
                    return Err(lack);
                }
            };
            (self.built_chunk, self.built_tails) = (None, [None; MOST_TAILS]);
            table.set_entry(way.last.place, slot, made);
            if let Kind::Tail(tail) = old.kind() {
                self.tails.retire(tail);
            }
        }
        for (_, chunk) in way.passed() {
            *self.chunks.uses(*chunk) += 1;
        }
        Ok(())
    }

    fn undo(&mut self) {
        if let Some(chunk) = self.built_chunk.take() {
            self.chunks.free_unseen(chunk);
        }
        for tail in self.built_tails.iter_mut().filter_map(Option::take) {
            self.tails.free_unseen(tail);
        }
    }

    fn new_tail<A: Sealed>(
        &mut self,
        table: &Table<A>,
        new: Tail<A>,
        cover: Entry,
    ) -> Result<Entry, Lack> {
        let tail = self.tails.alloc(&table.tails)?;
        if let Some(place) = self.built_tails.iter_mut().find(|place| place.is_none()) {
            *place = Some(tail);
        }
        table.set_tail(tail, new, cover);
        Ok(Entry::tail(tail))
    }

    /// A chunk, behind a tail if need be, where a new prefix parts from what a tail has: both are longer than `at` bits and have
    /// those in common.
    fn fork<A: Sealed>(
        &mut self,
        table: &Table<A>,
        at: u32,
        tail: u32,
        new: Tail<A>,
    ) -> Result<Entry, Lack> {
        let (old, cover) = (table.tail(tail), load(table.tail_cover(tail)));
        let common = common(old.bits, new.bits).min(old.len - 1).min(new.len - 1);
        // Steps are where strides begin.
        let at_fork = at + (common - at) / A::STRIDE * A::STRIDE;
        let chunk = self.chunks.alloc(&table.chunks)?;
        self.built_chunk = Some(chunk);
        let below = match old.inner.kind() {
            Kind::Chunk(below) => *self.chunks.uses(below),
            _ => 1,
        };
        *self.chunks.uses(chunk) = below + 1;
        let step = Step::chunk::<A>(chunk, at_fork);
        for slot in 0..Table::<A>::CHUNK_WORDS {
            table.set_entry(step.place, slot, cover);
        }
        // The shorter one first, so that the longer one, if it is inside it, finds it as what is around it. Of the same length, a
        // prefix before a chunk.
        let (first, second) = if old.len < new.len { (old, new) } else { (new, old) };
        self.put(table, step, first)?;
        self.put(table, step, second)?;
        let made = if at_fork == at {
            Entry::chunk(chunk)
        } else {
            let skipped =
                Tail { bits: new.bits.prefix(at_fork), len: at_fork, inner: Entry::chunk(chunk) };
            self.new_tail(table, skipped, cover)?
        };
        // Nothing can fail any more. If what was there is a chunk inside the new prefix, readers see it already, and may see
        // that it is inside: all its addresses are.
        if new.len <= step.end() {
            for slot in step.covered(new.bits, new.len) {
                push(table, step.place, slot, new.inner);
            }
        }
        Ok(made)
    }

    /// Puts a prefix, or a chunk behind some bits, into a chunk that nobody sees and where it meets leaves only.
    fn put<A: Sealed>(&mut self, table: &Table<A>, step: Step, new: Tail<A>) -> Result<(), Lack> {
        let slot = step.slot(new.bits);
        match new.inner.kind() {
            Kind::Leaf if new.len <= step.end() => step
                .covered(new.bits, new.len)
                .for_each(|slot| table.set_entry(step.place, slot, new.inner)),
            Kind::Chunk(_) if new.len == step.end() => table.set_entry(step.place, slot, new.inner),
            _ => {
                let tail = self.new_tail(table, new, table.entry(step.place, slot))?;
                table.set_entry(step.place, slot, tail);
            }
        }
        Ok(())
    }

    /// The leaf of a prefix that is there becomes another. O(entries that it covers).
    pub(super) fn replace<A: Sealed>(&mut self, table: &Table<A>, prefix: A, new: Entry) {
        let last = walk(table, prefix, new.depth()).last;
        if new.depth() <= last.end() {
            last.covered(prefix, new.depth())
                .for_each(|slot| swap(table, last.place, slot, new.depth(), new));
        } else if let Kind::Tail(tail) = table.entry(last.place, last.slot(prefix)).kind() {
            store(table.tail_inner(tail), new);
        }
    }

    /// Takes out a prefix that is there. `cover` finds the leaf of the longest prefix of the first `n` bits, or fewer, of an
    /// address, `n` being less than the prefix's length. O(entries that it covers); needs no memory, and waits for nobody: what would have
    /// been made smaller, had there been a tail for it, stays as it is.
    pub(super) fn remove<A: Sealed>(
        &mut self,
        table: &Table<A>,
        prefix: A,
        len: u32,
        cover: impl Fn(A, u32) -> Entry,
    ) {
        let way = walk(table, prefix, len);
        if len <= way.last.end() {
            let around = cover(prefix, len - 1);
            way.last
                .covered(prefix, len)
                .for_each(|slot| swap(table, way.last.place, slot, len, around));
        } else if let slot = way.last.slot(prefix)
            && let Kind::Tail(tail) = table.entry(way.last.place, slot).kind()
        {
            table.set_entry(way.last.place, slot, load(table.tail_cover(tail)));
            self.tails.retire(tail);
        }
        for (_, chunk) in way.passed() {
            *self.chunks.uses(*chunk) -= 1;
        }
        // The deepest first: a chunk that has none any more, and stayed because there was no memory when it had one, must not hide
        // what is around it.
        let mut shrunk = false;
        for &(step, chunk) in way.passed().iter().rev() {
            if *self.chunks.uses(chunk) <= 1 {
                shrunk |= self.shrink(table, step, prefix.prefix(step.end()), chunk, &cover);
            }
        }
        if let Some(&(step, chunk)) = way.passed().last()
            && !shrunk
        {
            self.skip(table, step, prefix.prefix(step.end()), way.last, chunk, &cover);
        }
    }

    /// Puts a leaf or a tail in the place of a chunk that has one prefix or none below it. False if that lacked memory.
    fn shrink<A: Sealed>(
        &mut self,
        table: &Table<A>,
        from: Step,
        path: A,
        chunk: u32,
        cover: &impl Fn(A, u32) -> Entry,
    ) -> bool {
        let slot = from.slot(path);
        let around = cover(path, from.end());
        let old = table.entry(from.place, slot);
        let new = match find(table, old, from.end(), path) {
            None => around,
            Some(left) => match self.new_tail(table, left, around) {
                Ok(tail) => tail,
                Err(_) => return false,
            },
        };
        self.built_tails = [None; MOST_TAILS];
        table.set_entry(from.place, slot, new);
        self.retire_below(table, chunk);
        if let Kind::Tail(tail) = old.kind() {
            self.tails.retire(tail);
        }
        true
    }

    /// If all prefixes below a chunk are in one chunk below that, makes a tail lead there. (If there is memory for it.)
    fn skip<A: Sealed>(
        &mut self,
        table: &Table<A>,
        from: Step,
        path: A,
        here: Step,
        chunk: u32,
        cover: &impl Fn(A, u32) -> Entry,
    ) {
        let uses = *self.chunks.uses(chunk);
        let slot = from.slot(path);
        let old = table.entry(from.place, slot);
        let path = match old.kind() {
            Kind::Tail(tail) => table.tail(tail).bits,
            _ => path,
        };
        let mut gone = None;
        let below = (0..Table::<A>::CHUNK_WORDS).find_map(|slot| {
            let entry = table.entry(here.place, slot);
            let (below, tail) = match entry.kind() {
                Kind::Leaf => return None,
                Kind::Chunk(_) => {
                    let bits = path.with_bits(here.at, here.width, slot);
                    (Tail { bits, len: here.end(), inner: entry }, None)
                }
                Kind::Tail(tail) => (table.tail(tail), Some(tail)),
            };
            let Kind::Chunk(chunk) = below.inner.kind() else { return None };
            gone = tail;
            (*self.chunks.uses(chunk) == uses).then_some(below)
        });
        let Some(below) = below else { return };
        let Ok(new) = self.new_tail(table, below, cover(path, from.end())) else { return };
        self.built_tails = [None; MOST_TAILS];
        table.set_entry(from.place, slot, new);
        self.chunks.retire(chunk);
        let before = if let Kind::Tail(tail) = old.kind() { Some(tail) } else { None };
        for tail in [gone, before].into_iter().flatten() {
            self.tails.retire(tail);
        }
    }

    /// Gives back a chunk and what is below it.
    fn retire_below<A: Sealed>(&mut self, table: &Table<A>, chunk: u32) {
        for slot in 0..Table::<A>::CHUNK_WORDS {
            match table.entry(Place::Chunk(chunk), slot).kind() {
                Kind::Leaf => {}
                Kind::Chunk(below) => self.retire_below(table, below),
                Kind::Tail(tail) => {
                    if let Kind::Chunk(below) = table.tail(tail).inner.kind() {
                        self.retire_below(table, below);
                    }
                    self.tails.retire(tail);
                }
            }
        }
        self.chunks.retire(chunk);
    }
}

/// How many bits two addresses begin with alike.
fn common<A: Sealed>(one: A, other: A) -> u32 {
    let words = one.to_words().into_iter().zip(other.to_words());
    let mut bits = 0;
    for (one, other) in words {
        bits += (one ^ other).leading_zeros();
        if one != other {
            break;
        }
    }
    bits.min(A::WIDTH)
}

/// Writes a leaf over all leaves in and below an entry that are of shorter prefixes.
fn push<A: Sealed>(table: &Table<A>, place: Place, slot: usize, new: Entry) {
    each_leaf(table, table.word(place, slot), &|word| {
        if load(word).depth() <= new.depth() {
            store(word, new);
        }
    });
}

/// Writes a leaf over all leaves in and below an entry that are of prefixes of a length.
fn swap<A: Sealed>(table: &Table<A>, place: Place, slot: usize, len: u32, new: Entry) {
    each_leaf(table, table.word(place, slot), &|word| {
        if load(word).depth() == len {
            store(word, new);
        }
    });
}

/// Calls `f` for the words of all leaves in and below an entry, those around tails included, those in them not.
fn each_leaf<A: Sealed>(table: &Table<A>, word: &AtomicU32, f: &impl Fn(&AtomicU32)) {
    let below = match load(word).kind() {
        Kind::Leaf => return f(word),
        Kind::Chunk(_) => load(word),
        Kind::Tail(tail) => {
            f(table.tail_cover(tail));
            table.tail(tail).inner
        }
    };
    if let Kind::Chunk(chunk) = below.kind() {
        let place = Place::Chunk(chunk);
        (0..Table::<A>::slots(place)).for_each(|slot| each_leaf(table, table.word(place, slot), f));
    }
}

/// A prefix that is below an entry: `path` has the bits before what is behind it, of which there are `at`.
fn find<A: Sealed>(table: &Table<A>, entry: Entry, at: u32, path: A) -> Option<Tail<A>> {
    let (chunk, at, path) = match entry.kind() {
        Kind::Leaf => {
            let len = entry.depth();
            return (len > at).then(|| Tail { bits: path.prefix(len), len, inner: entry });
        }
        Kind::Chunk(chunk) => (chunk, at, path),
        Kind::Tail(tail) => {
            let tail = table.tail(tail);
            match tail.inner.kind() {
                Kind::Chunk(chunk) => (chunk, tail.len, tail.bits),
                _ => return Some(tail),
            }
        }
    };
    let step = Step::chunk::<A>(chunk, at);
    (0..Table::<A>::CHUNK_WORDS).find_map(|slot| {
        let entry = table.entry(step.place, slot);
        let path = path.with_bits(step.at, step.width, slot);
        match entry.kind() {
            // It may end in the chunk, before the chunk's last bit.
            Kind::Leaf => find(table, entry, step.at, path),
            _ => find(table, entry, step.end(), path),
        }
    })
}
