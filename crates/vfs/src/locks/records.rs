//! Which record locks are held on a file.
//!
//! A group for each owner, in the order in which they came; inside a group the locks by their bytes, no two with a
//! byte in common, and no two of one kind that touch. `F_GETLK` answers with the first that conflicts in this order,
//! as Linux does.

use super::{LockKind, LockOwner, LockRange, grow};
use quietline_platform::AllocError;

/// A lock that is held, as `F_GETLK` and `/proc/locks` tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordLock {
    /// Who holds it.
    pub owner: LockOwner,
    /// For reading or for writing.
    pub kind: LockKind,
    /// What it covers.
    pub range: LockRange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    kind: LockKind,
    range: LockRange,
}

#[derive(Debug)]
struct Group {
    owner: LockOwner,
    parts: Vec<Part>,
}

/// All locks of a file.
#[derive(Debug)]
pub(super) struct Records {
    groups: Vec<Group>,
    /// The number of parts of all groups.
    len: usize,
}

impl Records {
    pub(super) const fn new() -> Self {
        Self { groups: Vec::new(), len: 0 }
    }

    /// Returns the number of locks.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn owners(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = RecordLock> {
        self.groups.iter().flat_map(|group| {
            group.parts.iter().map(|part| RecordLock {
                owner: group.owner,
                kind: part.kind,
                range: part.range,
            })
        })
    }

    /// The first lock of another owner that keeps this one from being taken.
    pub(super) fn conflict(&self, wanted: &RecordLock) -> Option<RecordLock> {
        let others = self.groups.iter().filter(|group| group.owner != wanted.owner);
        others
            .filter_map(|group| {
                let first = group.parts.partition_point(|part| part.range.end < wanted.range.start);
                let mut overlapping = group.parts[first..]
                    .iter()
                    .take_while(|part| part.range.overlaps(&wanted.range));
                let part = overlapping.find(|part| part.kind.excludes(wanted.kind))?;
                Some(RecordLock { owner: group.owner, kind: part.kind, range: part.range })
            })
            .next()
    }

    /// The first of the owner's own locks with a byte in this range.
    pub(super) fn own(&self, owner: LockOwner, range: &LockRange) -> Option<RecordLock> {
        let group = self.groups.iter().find(|group| group.owner == owner)?;
        let part = group.parts.iter().find(|part| part.range.overlaps(range))?;
        Some(RecordLock { owner, kind: part.kind, range: part.range })
    }

    /// Takes or, with no kind, gives up a lock on these bytes, whatever the owner had on them.
    /// There is no conflict, or the caller does not care. There may be `max` locks afterwards, or
    /// as many as before. True if a byte is less locked than before.
    ///
    /// # Errors
    /// [`AllocError`] without memory, or for more locks; then nothing has changed.
    pub(super) fn set(
        &mut self,
        owner: LockOwner,
        kind: Option<LockKind>,
        range: LockRange,
        max: usize,
    ) -> Result<bool, AllocError> {
        let most = max.max(self.len);
        let at = match (self.groups.iter().position(|group| group.owner == owner), kind) {
            (Some(at), _) => at,
            (None, None) => return Ok(false),
            (None, Some(kind)) => {
                if self.len == most {
                    return Err(AllocError);
                }
                grow(&mut self.groups, 1)?;
                let mut parts = Vec::new();
                grow(&mut parts, 1)?;
                parts.push(Part { kind, range });
                self.groups.push(Group { owner, parts });
                self.len += 1;
                return Ok(false);
            }
        };
        let group = &mut self.groups[at];
        let others = self.len - group.parts.len();
        let less = group.set(kind, range, most - others)?;
        self.len = others + group.parts.len();
        if group.parts.is_empty() {
            self.groups.remove(at);
        }
        Ok(less)
    }

    /// Gives up all locks of an owner; true if there were any. Needs no memory.
    pub(super) fn remove(&mut self, owner: LockOwner) -> bool {
        let at = self.groups.iter().position(|group| group.owner == owner);
        let gone = at.map(|at| self.groups.remove(at));
        self.len -= gone.as_ref().map_or(0, |group| group.parts.len());
        gone.is_some()
    }
}

impl Group {
    /// As [`Records::set`], for the locks of one owner, of which there may be `most` afterwards.
    fn set(
        &mut self,
        kind: Option<LockKind>,
        range: LockRange,
        most: usize,
    ) -> Result<bool, AllocError> {
        // What is left of the range, what is of the same kind and touches it, and what is right of it.
        let (mut left, mut middle, mut right) = (None, kind.map(|kind| Part { kind, range }), None);
        let mut less = false;
        let first = self.parts.partition_point(|part| range.is_behind_and_apart(&part.range));
        let after = first
            + self.parts[first..].partition_point(|part| !part.range.is_behind_and_apart(&range));
        let (mut from, mut to) = (after, first);
        for (at, part) in self.parts.iter().enumerate().take(after).skip(first) {
            let same = kind == Some(part.kind);
            if !same && !part.range.overlaps(&range) {
                continue;
            }
            (from, to) = (from.min(at), at + 1);
            if let Some(middle) = middle.as_mut().filter(|_| same) {
                middle.range.start = middle.range.start.min(part.range.start);
                middle.range.end = middle.range.end.max(part.range.end);
                continue;
            }
            less |= kind != Some(LockKind::Write);
            if part.range.start < range.start {
                let range = LockRange { start: part.range.start, end: range.start - 1 };
                left = Some(Part { kind: part.kind, range });
            }
            if part.range.end > range.end {
                let range = LockRange { start: range.end + 1, end: part.range.end };
                right = Some(Part { kind: part.kind, range });
            }
        }
        if from > to {
            // Nothing is touched: the new part goes between those that end before it and those that begin after it.
            from = self.parts.partition_point(|part| part.range.end < range.start);
            to = from;
        }
        let new = [right, middle, left];
        if self.parts.len() - (to - from) + new.iter().flatten().count() > most {
            return Err(AllocError);
        }
        // At most one part is cut into two and one comes anew.
        grow(&mut self.parts, 2)?;
        self.parts.drain(from..to);
        for part in new.into_iter().flatten() {
            self.parts.insert(from, part);
        }
        Ok(less)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every change beside a model that keeps each byte's lock, with the order and the shape as promised.
    #[test]
    fn parts_beside_a_model_by_bytes() {
        const BYTES: i64 = 12;
        let owner = LockOwner::Process(1);
        let mut seed = 1u64;
        let mut next = |bound: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % bound
        };
        let mut records = Records::new();
        let mut model = [None; BYTES as usize];
        for _ in 0..50_000 {
            let (a, b) = (next(BYTES as u64) as i64, next(BYTES as u64) as i64);
            let range = LockRange { start: a.min(b), end: a.max(b) };
            let kind = [None, Some(LockKind::Read), Some(LockKind::Write)][next(3) as usize];
            let mut less = false;
            for byte in &mut model[range.start as usize..=range.end as usize] {
                less |= *byte > kind;
                *byte = kind;
            }
            assert_eq!(records.set(owner, kind, range, usize::MAX), Ok(less));
            let mut shown = [None; BYTES as usize];
            let mut last: Option<RecordLock> = None;
            for lock in records.iter() {
                if let Some(last) = last {
                    assert!(last.range.end < lock.range.start);
                    assert!(last.range.end + 1 < lock.range.start || last.kind != lock.kind);
                }
                shown[lock.range.start as usize..=lock.range.end as usize].fill(Some(lock.kind));
                last = Some(lock);
            }
            assert_eq!(shown, model);
            assert_eq!(records.len(), records.iter().count());
        }
    }

    #[test]
    fn a_limit_refuses_what_makes_more_locks() {
        let owners = [LockOwner::Process(1), LockOwner::File(1)];
        let mut records = Records::new();
        let mut set = |owner: usize, kind, start, end| {
            let before: Vec<_> = records.iter().collect();
            let done = records.set(owners[owner], kind, LockRange { start, end }, 3);
            if done.is_err() {
                assert!(records.iter().eq(before), "a refused change changes nothing");
            }
            (done, records.len())
        };
        let (read, write) = (Some(LockKind::Read), Some(LockKind::Write));
        assert_eq!(set(0, read, 0, 9), (Ok(false), 1));
        assert_eq!(set(1, read, 0, 9), (Ok(false), 2));
        assert_eq!(set(0, write, 4, 5), (Err(AllocError), 2), "two more");
        assert_eq!(set(0, None, 4, 5), (Ok(true), 3), "one more");
        assert_eq!(set(0, None, 1, 1), (Err(AllocError), 3));
        assert_eq!(set(0, read, 20, 20), (Err(AllocError), 3));
        assert_eq!(set(1, write, 0, 9), (Ok(false), 3), "as many as before");
        assert_eq!(set(0, read, 2, 7), (Ok(false), 2), "three are one");
        assert_eq!(set(1, None, 0, 9), (Ok(true), 1));
    }
}
