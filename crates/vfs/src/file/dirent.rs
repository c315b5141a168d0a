//! Directory entries as `getdents64` writes them.
//!
//! ```text
//!      0        8        16       18     19
//!     +--------+--------+--------+------+----------------+---------+
//!     | ino    | next   | length | type | name, 0        | to 8    |
//!     +--------+--------+--------+------+----------------+---------+
//! ```

/// Bytes before the name.
const HEADER: usize = 19;

/// A buffer that is being filled with entries.
#[derive(Debug)]
pub struct Dirents<'a> {
    buffer: &'a mut [u8],
    filled: usize,
    /// An entry did not fit.
    full: bool,
}

/// An entry, as it lies in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// The file's number.
    pub ino: u64,
    /// Where the directory stands after this entry.
    pub next: i64,
    /// `DT_*`.
    pub kind: u8,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> Dirents<'a> {
    /// An empty buffer.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, filled: 0, full: false }
    }

    /// Bytes that are filled.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Whether an entry was refused.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Adds an entry; false, and nothing changed, if there is no room.
    #[inline(always)]
    pub fn push(&mut self, entry: Dirent<'_>) -> bool {
        let length = (HEADER + entry.name.len() + 1).next_multiple_of(8);
        let Some(to) = self.buffer[self.filled..].get_mut(..length) else {
            self.full = true;
            return false;
        };
        to[..8].copy_from_slice(&entry.ino.to_ne_bytes());
        to[8..16].copy_from_slice(&entry.next.to_ne_bytes());
        to[16..18].copy_from_slice(&(length as u16).to_ne_bytes());
        to[18] = entry.kind;
        let (name, rest) = to[HEADER..].split_at_mut(entry.name.len());
        name.copy_from_slice(entry.name);
        rest.fill(0);
        self.filled += length;
        true
    }
}

/// The entries of a buffer that `getdents64` has filled.
pub fn dirents(buffer: &[u8]) -> impl Iterator<Item = Dirent<'_>> {
    let mut rest = buffer;
    core::iter::from_fn(move || {
        let header = rest.get(..HEADER)?;
        let word =
            |at: usize| u64::from_ne_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let length = usize::from(u16::from_ne_bytes([header[16], header[17]]));
        let (ino, next, kind) = (word(0), word(8) as i64, header[18]);
        let name = rest.get(HEADER..length)?;
        let end = name.iter().position(|&byte| byte == 0)?;
        rest = &rest[length..];
        Some(Dirent { ino, next, kind, name: &name[..end] })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut buffer = [0xff; 80];
        let mut out = Dirents::new(&mut buffer);
        let entry = |ino, name| Dirent { ino, next: ino as i64 + 1, kind: 8, name };
        let (short, long) = (entry(7, &b"a"[..]), entry(8, &[b'x'; 20][..]));
        assert!(out.push(short) && out.push(long));
        assert!(!out.push(short) && out.is_full());
        assert_eq!(out.filled(), 24 + 40);
        let filled = out.filled();
        assert_eq!(dirents(&buffer[..filled]).collect::<Vec<_>>(), [short, long]);
    }
}
