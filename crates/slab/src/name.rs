//! Names of caches.

use core::fmt;
use core::ops::Deref;

/// A cache's name: a copy of a text of at most 63 bytes.
///
/// The copy is inline. It needs no memory of its own and borrows nothing, so a name can be made at
/// run time, and statistics and violation reports name caches that are gone.
///
/// A longer text is cut at the last character boundary that leaves at most
/// [`MAX`](Self::MAX) bytes. Names need not be unique: [`Stats::id`](crate::Stats::id) tells
/// caches apart.
///
/// ```
/// use quietline_slab::Cache;
///
/// let caches = [0, 1].map(|shard| Cache::<u64>::new(&format!("session-{shard}")).unwrap());
/// assert_eq!(caches[1].stats().name, "session-1");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    len: u8,
    /// Zero after the text, so that equal names are equal bytes.
    bytes: [u8; Self::MAX],
}

impl Name {
    /// Bytes of the longest name.
    pub const MAX: usize = 63;

    /// Returns a copy of `text`, cut to [`MAX`](Self::MAX) bytes.
    pub const fn new(text: &str) -> Self {
        let from = text.as_bytes();
        let mut len = from.len();
        if len > Self::MAX {
            len = Self::MAX;
            // A byte 10xxxxxx continues a character.
            while from[len] & 0xC0 == 0x80 {
                len -= 1;
            }
        }
        let mut bytes = [0; Self::MAX];
        let mut at = 0;
        while at < len {
            bytes[at] = from[at];
            at += 1;
        }
        Self { len: len as u8, bytes }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        let text = &self.bytes[..usize::from(self.len)];
        // SAFETY: `new` copies whole characters of a `str`.
        unsafe { core::str::from_utf8_unchecked(text) }
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
