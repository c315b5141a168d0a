//! The order in which a directory lists its names, with places that stay.
//!
//! # The problem and the contended way
//!
//! `telldir` hands out a place in a directory, and `seekdir` must find it again after any number of names have come and gone.
//! A list with a cursor in it, as older in-memory filesystems have it, is searched from its start by everybody who reads
//! the directory in pieces, and written by them.
//!
//! # Our way
//!
//! Every name gets the next number when it is linked, and keeps it; who reads goes from the newest name to the oldest, as on tmpfs. The log holds the names by number in a tree to whose right
//! edge alone anything is added:
//!
//! ```text
//!                     [ 3.. | 940.. | 5012.. ]                 lower bounds
//!                    /         |          \
//!     [3 a][4 b][9 c] ..  [940 x] ..   [5012 y][5013 z] <── append
//! ```
//!
//! A leaf or node that is full is never split: a new one begins at its right. Neighbours of one parent that would be at most
//! half full together become one; what is empty goes. So memory follows what is in the log, whatever has gone through it.
//! Both ends of a leaf are near: what goes in the order in which it came, or in the opposite one, moves nothing; and a
//! directory whose last name goes keeps room for the next.
//!
//! # Guarantees
//!
//! * A place is given once, so that a reader who goes on before the last name it saw sees every name that stayed, once; and no
//!   name that came meanwhile, so that it comes to an end.
//! * Appending is all or nothing; removing needs no memory.
//! * O(log n) each. Memory: 16 bytes and a little for each name that was only appended, some 70 in the worst order of
//!   removals, and at most 1 KiB besides.
//!
//! # Locks
//!
//! None: whoever uses it holds the directory's.

use core::mem;
use quietline_platform::{AllocError, fault};
use std::collections::VecDeque;

/// The first place that a name can have: 0 is the start, 1 and 2 are `.` and `..`.
pub const FIRST: u64 = 3;

/// Entries of a leaf, and children of a node.
const FULL: usize = 64;
/// Neighbours with fewer than that together become one.
const FULL_ENOUGH: usize = FULL / 2 + 1;
/// Entries that the first leaf has room for, and keeps room for when it is empty.
const FEW: usize = 4;

/// Names by the order in which they were linked. `T` is what stands for a name: small, and copied.
#[derive(Debug)]
pub struct DirLog<T> {
    root: Node<T>,
    next: u64,
    len: usize,
}

/// All entries below have places from `from` on, and those of the neighbour to the right are higher.
#[derive(Debug)]
struct Node<T> {
    from: u64,
    below: Below<T>,
}

#[derive(Debug)]
enum Below<T> {
    Leaf(VecDeque<(u64, T)>),
    Nodes(Vec<Node<T>>),
}

impl<T: Copy> DirLog<T> {
    /// An empty log. Allocates nothing.
    pub const fn new() -> Self {
        Self { root: Node { from: 0, below: Below::Leaf(VecDeque::new()) }, next: FIRST, len: 0 }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an item at the end; its place, higher than every one before.
    ///
    /// # Errors
    /// [`AllocError`]; nothing is changed.
    pub fn append(&mut self, item: T) -> Result<u64, AllocError> {
        let place = self.next;
        // Nearly always there is room at the right edge.
        let mut edge = &mut self.root;
        loop {
            match &mut edge.below {
                Below::Leaf(entries) if entries.len() < FULL.min(entries.capacity()) => {
                    entries.push_back((place, item));
                    self.next += 1;
                    self.len += 1;
                    return Ok(place);
                }
                Below::Leaf(_) => return self.append_slow(item),
                Below::Nodes(nodes) => {
                    edge =
                        nodes.last_mut().expect("no node is empty, but for a root that is a leaf")
                }
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn append_slow(&mut self, item: T) -> Result<u64, AllocError> {
        let place = self.next;
        let mut both = Vec::new();
        if self.root.is_full() {
            reserve(&mut both)?;
        }
        if let Some(right) = self.root.append(place, item)? {
            let left =
                mem::replace(&mut self.root, Node { from: 0, below: Below::Leaf(VecDeque::new()) });
            both.extend([left, right]);
            self.root.below = Below::Nodes(both);
        }
        self.next += 1;
        self.len += 1;
        Ok(place)
    }

    /// Takes the item at a place out, if there is one. Needs no memory.
    pub fn remove(&mut self, place: u64) -> Option<T> {
        // What came last often goes first.
        if let Below::Leaf(entries) = &mut self.root.below
            && entries.len() > usize::from(entries.capacity() > FEW)
            && entries.back().is_some_and(|(last, _)| *last == place)
        {
            self.len -= 1;
            return entries.pop_back().map(|(_, item)| item);
        }
        let item = self.root.remove(place)?;
        self.len -= 1;
        match &self.root.below {
            Below::Leaf(entries) if !entries.is_empty() || entries.capacity() <= FEW => {}
            _ => self.root.lower(),
        }
        Some(item)
    }

    /// The item at a place.
    pub fn get(&self, place: u64) -> Option<T> {
        self.last_before(place.checked_add(1)?)
            .filter(|(found, _)| *found == place)
            .map(|(_, item)| item)
    }

    /// The last item before a place, and its place.
    pub fn last_before(&self, place: u64) -> Option<(u64, T)> {
        let mut last = None;
        self.each_before(place, |place, item| {
            last = Some((place, item));
            false
        });
        last
    }

    /// Calls `each` with the items before a place, the last one first, until it says no. O(log n), and O(1) for each.
    pub fn each_before(&self, place: u64, mut each: impl FnMut(u64, T) -> bool) {
        self.root.each_before(place, &mut each);
    }

    /// Bytes of heap that the log has.
    pub fn memory(&self) -> usize {
        self.root.memory()
    }
}

impl<T: Copy> Default for DirLog<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Node<T> {
    /// Adds at the right edge; a new right neighbour of the same height where there was no room.
    fn append(&mut self, place: u64, item: T) -> Result<Option<Self>, AllocError> {
        let right = match &mut self.below {
            Below::Leaf(entries) if entries.len() < FULL => {
                if entries.len() == entries.capacity() {
                    grow(entries)?;
                }
                entries.push_back((place, item));
                return Ok(None);
            }
            Below::Leaf(_) => {
                // Where there are many, more will come.
                let mut entries = VecDeque::new();
                fault::check()?;
                entries.try_reserve_exact(FULL).map_err(|_| AllocError)?;
                entries.push_back((place, item));
                Below::Leaf(entries)
            }
            Below::Nodes(nodes) => {
                let full = nodes.len() == FULL;
                let mut beside = Vec::new();
                let last = nodes.last().expect("no node is empty, but for a root that is a leaf");
                if last.is_full() {
                    reserve(if full { &mut beside } else { &mut *nodes })?;
                }
                let last = nodes.last_mut().expect("as above");
                let Some(right) = last.append(place, item)? else { return Ok(None) };
                let nodes = if full { &mut beside } else { nodes };
                nodes.push(right);
                if !full {
                    return Ok(None);
                }
                Below::Nodes(beside)
            }
        };
        Ok(Some(Self { from: place, below: right }))
    }

    fn remove(&mut self, place: u64) -> Option<T> {
        match &mut self.below {
            Below::Leaf(entries) => {
                let at = search(entries, place)?;
                let removed = match at {
                    0 => entries.pop_front(),
                    _ if at + 1 == entries.len() => entries.pop_back(),
                    _ => entries.remove(at),
                };
                removed.map(|(_, item)| item)
            }
            Below::Nodes(nodes) => {
                let at = child(nodes, place)?;
                let item = nodes[at].remove(place)?;
                match nodes[at].len() {
                    0 => drop(nodes.remove(at)),
                    // Else it fits in no neighbour.
                    ..FULL_ENOUGH if !join(nodes, at) && at > 0 => {
                        join(nodes, at - 1);
                    }
                    _ => {}
                }
                Some(item)
            }
        }
    }

    /// False once `each` has said no.
    fn each_before(&self, place: u64, each: &mut impl FnMut(u64, T) -> bool) -> bool {
        match &self.below {
            Below::Leaf(entries) => {
                let end = entries.partition_point(|(at, _)| *at < place);
                entries.range(..end).rev().all(|(at, item)| each(*at, *item))
            }
            Below::Nodes(nodes) => {
                let end = nodes.partition_point(|node| node.from < place);
                nodes[..end].iter().rev().all(|node| node.each_before(place, each))
            }
        }
    }

    /// Takes levels of one child, and a root without any, away.
    fn lower(&mut self) {
        while let Below::Nodes(nodes) = &mut self.below {
            match nodes.len() {
                0 => self.below = Below::Leaf(VecDeque::new()),
                1 => *self = nodes.pop().expect("there is one"),
                _ => return,
            }
        }
        if let Below::Leaf(entries) = &mut self.below
            && entries.is_empty()
            && entries.capacity() > FEW
        {
            *entries = VecDeque::new();
        }
    }

    /// Whether appending makes a neighbour.
    fn is_full(&self) -> bool {
        match &self.below {
            Below::Leaf(entries) => entries.len() == FULL,
            Below::Nodes(nodes) => nodes.len() == FULL && nodes.last().is_none_or(Self::is_full),
        }
    }

    fn len(&self) -> usize {
        match &self.below {
            Below::Leaf(entries) => entries.len(),
            Below::Nodes(nodes) => nodes.len(),
        }
    }

    fn memory(&self) -> usize {
        match &self.below {
            Below::Leaf(entries) => entries.capacity() * size_of::<(u64, T)>(),
            Below::Nodes(nodes) => {
                nodes.capacity() * size_of::<Self>() + nodes.iter().map(Self::memory).sum::<usize>()
            }
        }
    }
}

/// The node that a place is in, if it is in any. The last one, where names come and go most, is looked at first.
fn child<T>(nodes: &[Node<T>], place: u64) -> Option<usize> {
    match nodes {
        [.., last] if last.from <= place => Some(nodes.len() - 1),
        _ => nodes.partition_point(|node| node.from <= place).checked_sub(1),
    }
}

/// Where an entry is. Where none is missing it is as far from the first as its place is.
fn search<T>(entries: &VecDeque<(u64, T)>, place: u64) -> Option<usize> {
    let far = place.checked_sub(entries.front()?.0)?;
    match entries.get(far as usize) {
        Some((at, _)) if *at == place => Some(far as usize),
        _ => entries.binary_search_by_key(&place, |(at, _)| *at).ok(),
    }
}

/// Makes one of a node and its right neighbour, if that is at most half full, and memory, if needed, is there.
fn join<T>(nodes: &mut Vec<Node<T>>, at: usize) -> bool {
    let (left, rest) = nodes.split_at_mut(at + 1);
    let (left, Some(right)) = (&mut left[at].below, rest.first_mut()) else { return false };
    let joined = match (left, &mut right.below) {
        (Below::Leaf(left), Below::Leaf(right)) => {
            fits(left.len(), right.len())
                && left.try_reserve_exact(right.len()).map(|()| left.append(right)).is_ok()
        }
        (Below::Nodes(left), Below::Nodes(right)) => {
            fits(left.len(), right.len())
                && left.try_reserve_exact(right.len()).map(|()| left.append(right)).is_ok()
        }
        _ => unreachable!("neighbours have one height"),
    };
    if joined {
        nodes.remove(at + 1);
    }
    joined
}

fn fits(left: usize, right: usize) -> bool {
    left + right < FULL_ENOUGH
}

/// Room for more in a leaf that has no more.
#[cold]
fn grow<E>(entries: &mut VecDeque<E>) -> Result<(), AllocError> {
    fault::check()?;
    let more = entries.len().max(FEW).min(FULL - entries.len());
    entries.try_reserve_exact(more).map_err(|_| AllocError)
}

/// Room for one more, at most [`FULL`] in all.
fn reserve<E>(entries: &mut Vec<E>) -> Result<(), AllocError> {
    if entries.len() < entries.capacity() {
        return Ok(());
    }
    fault::check()?;
    let more = entries.len().max(2).min(FULL - entries.len());
    entries.try_reserve_exact(more).map_err(|_| AllocError)
}
