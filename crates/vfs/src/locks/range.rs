//! The bytes that a record lock covers.

use rustix::io::Errno;

/// Bytes from `start` to `end`, both included; never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    /// The first byte.
    pub start: i64,
    /// The last byte; [`i64::MAX`] is the end of the file, however long it grows.
    pub end: i64,
}

impl LockRange {
    /// Every byte.
    pub const ALL: Self = Self { start: 0, end: i64::MAX };

    /// The bytes that `l_start` and `l_len` name, counted from `base`.
    ///
    /// # Errors
    /// `EOVERFLOW` if a byte would lie behind [`i64::MAX`]; `EINVAL` if one would lie before 0.
    pub fn new(base: i64, l_start: i64, l_len: i64) -> Result<Self, Errno> {
        let first = base.checked_add(l_start).ok_or(Errno::OVERFLOW)?;
        if first < 0 {
            return Err(Errno::INVAL);
        }
        match l_len {
            0 => Ok(Self { start: first, end: i64::MAX }),
            1.. => {
                Ok(Self { start: first, end: first.checked_add(l_len - 1).ok_or(Errno::OVERFLOW)? })
            }
            // The bytes before `first`. Above, first >= 0, so the sum does not overflow.
            _ if first + l_len < 0 => Err(Errno::INVAL),
            _ => Ok(Self { start: first + l_len, end: first - 1 }),
        }
    }

    /// What `l_len` says of it.
    pub fn l_len(&self) -> i64 {
        if self.end == i64::MAX { 0 } else { self.end - self.start + 1 }
    }

    /// Whether the two have a byte in common.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// Whether the other ends right before this one begins, or earlier.
    pub(super) fn is_behind_and_apart(&self, other: &Self) -> bool {
        self.start > 0 && other.end < self.start - 1
    }
}
