//! A path, one component at a time.

use crate::dcache::name::tail_word;
use rustix::io::Errno;

/// The most bytes of a path, the zero at its end included.
pub const PATH_MAX: usize = 4096;
/// The most symbolic links that a walk follows.
pub const MAXSYMLINKS: u32 = 40;

/// What a component is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Component<'p> {
    /// A name, perhaps one that is too long.
    Name(&'p [u8]),
    /// `.`
    Dot,
    /// `..`
    DotDot,
}

/// A component and what comes after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Split<'p> {
    pub(crate) component: Component<'p>,
    /// What is left, without slashes in front.
    pub(crate) rest: &'p [u8],
    /// Whether a slash came after the component.
    pub(crate) slash: bool,
}

/// The path as it may be given to a system call.
///
/// # Errors
/// `ENAMETOOLONG`.
pub(crate) fn check(path: &[u8]) -> Result<(), Errno> {
    if path.len() >= PATH_MAX { Err(Errno::NAMETOOLONG) } else { Ok(()) }
}

/// The path without the slashes in front.
#[inline(always)]
pub(crate) fn trim(path: &[u8]) -> &[u8] {
    let mut path = path;
    while let [b'/', rest @ ..] = path {
        path = rest;
    }
    path
}

/// The first component of a path that does not begin with a slash; none if the path is empty.
#[inline(always)]
pub(crate) fn split(path: &[u8]) -> Option<Split<'_>> {
    if path.is_empty() {
        return None;
    }
    let end = slash_in(path);
    let (name, rest) = path.split_at(end);
    let component = match name {
        b"." => Component::Dot,
        b".." => Component::DotDot,
        _ => Component::Name(name),
    };
    Some(Split { component, rest: trim(rest), slash: !rest.is_empty() })
}

/// Where the first slash is, or the end.
#[inline(always)]
fn slash_in(path: &[u8]) -> usize {
    let mut at = 0;
    while let Some(eight) = path[at..].first_chunk::<8>() {
        let slashes = slashes(u64::from_le_bytes(*eight));
        if slashes != 0 {
            return at + (slashes.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    // No slash is in the bytes that this sees for a second time; the word is shorter for a path that is.
    let left = path.len() - at;
    let slashes = slashes(match path.last_chunk::<8>() {
        Some(eight) if left > 0 => u64::from_le_bytes(*eight) >> (8 * (8 - left)),
        _ => tail_word(&path[at..]),
    });
    if slashes == 0 { path.len() } else { at + (slashes.trailing_zeros() / 8) as usize }
}

/// Eight bytes of a path, from `at` on, which is not behind its end; a slash and zeros where it has no more.
#[inline(always)]
pub(super) fn word_at(path: &[u8], at: usize) -> u64 {
    match path.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(eight) => u64::from_le_bytes(*eight),
        None => last_word_at(path, at),
    }
}

#[inline(always)]
fn last_word_at(path: &[u8], at: usize) -> u64 {
    let left = (path.len() - at) & 7;
    let bytes = match path.last_chunk::<8>() {
        // In two steps, for there may be none left.
        Some(eight) => u64::from_le_bytes(*eight) >> 8 >> (56 - 8 * left),
        None => tail_word(path.get(at..).unwrap_or(&[])),
    };
    bytes | u64::from(b'/') << (8 * left)
}

/// The bytes of a word before its first slash, whose bit in [`slashes`] is the lowest of `slashes`; and how many.
#[inline(always)]
pub(super) fn before_slash(word: u64, slashes: u64) -> (u64, usize) {
    let mask = (slashes ^ slashes.wrapping_sub(1)) >> 8;
    (word & mask, (slashes.trailing_zeros() / 8) as usize)
}

/// A bit for the first of eight bytes that is a slash; perhaps some for later ones.
#[inline(always)]
pub(super) fn slashes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let word = word ^ (ONES * b'/' as u64);
    word.wrapping_sub(ONES) & !word & HIGH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &str) -> Vec<(String, bool)> {
        let mut left = trim(path.as_bytes());
        let mut parts = Vec::new();
        while let Some(found) = split(left) {
            let name = match found.component {
                Component::Name(name) => String::from_utf8(name.to_vec()).unwrap(),
                Component::Dot => "<.>".into(),
                Component::DotDot => "<..>".into(),
            };
            parts.push((name, found.slash));
            left = found.rest;
        }
        parts
    }

    #[test]
    fn paths_are_split_at_slashes() {
        let owned = |list: &[(&str, bool)]| {
            list.iter().map(|&(n, s)| (n.to_owned(), s)).collect::<Vec<_>>()
        };
        assert_eq!(parts(""), []);
        assert_eq!(parts("///"), []);
        assert_eq!(parts("a"), owned(&[("a", false)]));
        assert_eq!(parts("//a//bc/"), owned(&[("a", true), ("bc", true)]));
        assert_eq!(
            parts("./../.../..a"),
            owned(&[("<.>", true), ("<..>", true), ("...", true), ("..a", false)])
        );
    }

    #[test]
    fn every_length_and_place_of_a_slash() {
        for len in 0..40 {
            for at in 0..=len {
                let mut path = vec![b'.' + 2; len];
                path.insert(at, b'/');
                assert_eq!(slash_in(&path), at);
            }
            // Bytes that differ from a slash in one bit.
            let near: Vec<u8> = (0..len).map(|bit| b'/' ^ (1 << (bit % 8))).collect();
            assert_eq!(slash_in(&near), len);
        }
    }

    #[test]
    fn words_end_with_the_path() {
        let path: Vec<u8> = (1..=40).filter(|&byte| byte != b'/').collect();
        for len in 0..path.len() {
            for at in 0..=len {
                let mut expected = [0; 8];
                let bytes = path[at..len].iter().copied().chain([b'/']).chain([0; 8]);
                expected.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
                let word = word_at(&path[..len], at);
                assert_eq!(word.to_le_bytes(), expected, "{len} bytes from {at}");
                let (name, n) = before_slash(word, slashes(word) | 1 << 63);
                let whole = (len - at).min(7);
                assert_eq!(n, whole);
                assert_eq!(&name.to_le_bytes()[..n], &path[at..at + n]);
                assert!(name.to_le_bytes()[n..].iter().all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn a_path_has_room_for_its_zero() {
        assert_eq!(check(&[b'a'; 4095]), Ok(()));
        assert_eq!(check(&[b'a'; 4096]), Err(Errno::NAMETOOLONG));
    }
}
