//! Options of `mount`, as its last argument has them: `key=value,key,...`.

use crate::Errno;
use core::fmt;
use quietline_vfs::SuperFlags;
use quietline_vfs::ramfs::PAGE;

/// Bytes of options that are read: those of a page, but for the zero at its end.
const BYTES: usize = 4095;
/// Bytes that tmpfs counts for a file.
const INODE: u64 = 1024;

/// Options that every type of the kernel's own takes (`common_set_sb_flag`, `common_clear_sb_flag`).
const COMMON: [(&[u8], SuperFlags, bool); 9] = [
    (b"ro", SuperFlags::RDONLY, true),
    (b"rw", SuperFlags::RDONLY, false),
    (b"sync", SuperFlags::SYNCHRONOUS, true),
    (b"async", SuperFlags::SYNCHRONOUS, false),
    (b"dirsync", SuperFlags::DIRSYNC, true),
    (b"mand", SuperFlags::MANDLOCK, true),
    (b"nomand", SuperFlags::MANDLOCK, false),
    (b"lazytime", SuperFlags::LAZYTIME, true),
    (b"nolazytime", SuperFlags::LAZYTIME, false),
];

fn common(key: &[u8]) -> Option<(SuperFlags, bool)> {
    COMMON.iter().find(|(name, ..)| *name == key).map(|(_, flag, set)| (*flag, *set))
}

/// The bytes of options that are read: up to the first zero, and not more than a page has.
pub(super) fn text(data: &[u8]) -> &[u8] {
    let data = &data[..data.len().min(BYTES)];
    data.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Options in the order in which they are given.
#[derive(Clone, Copy)]
pub(super) struct Options<'a>(pub(super) &'a [u8]);

impl<'a> Options<'a> {
    fn all(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let split = |option: &'a [u8]| match option.iter().position(|&byte| byte == b'=') {
            Some(at) => (&option[..at], Some(&option[at + 1..])),
            None => (option, None),
        };
        // An option without a name is passed over.
        self.0.split(|&byte| byte == b',').map(split).filter(|(key, _)| !key.is_empty())
    }

    /// Returns the options that are not [common](COMMON).
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        self.all().filter(|(key, _)| common(key).is_none())
    }

    /// Checks that there is no option that only some types know.
    ///
    /// # Errors
    /// `EINVAL`.
    pub(super) fn none_is_left(&self) -> Result<(), Errno> {
        if self.iter().next().is_none() { Ok(()) } else { Err(Errno::INVAL) }
    }

    /// Returns whether a common option says something of these flags.
    pub(super) fn mention(&self, flags: SuperFlags) -> bool {
        self.all().filter_map(|(key, _)| common(key)).any(|(flag, _)| flags.intersects(flag))
    }

    /// Returns `flags` as the common options change them.
    pub(super) fn flags(&self, flags: SuperFlags) -> SuperFlags {
        let mut flags = flags;
        self.all().filter_map(|(key, _)| common(key)).for_each(|(flag, set)| flags.set(flag, set));
        flags
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// What options say of a tmpfs (`shmem_parse_one`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TmpfsOptions {
    /// Pages; 0 for no limit.
    pub(super) blocks: Option<u64>,
    /// Files; 0 for no limit.
    pub(super) inodes: Option<u64>,
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    /// `inode64`, `noswap`: so it is anyway. They are shown.
    pub(super) inode64: bool,
    pub(super) noswap: bool,
}

impl TmpfsOptions {
    /// Reads options. A size in percent is one of `memory` bytes.
    ///
    /// # Errors
    /// `EINVAL`.
    pub(super) fn parse(options: &Options<'_>, memory: u64) -> Result<Self, Errno> {
        let mut told = Self::default();
        for (key, value) in options.iter() {
            told.take(key, value, memory).ok_or(Errno::INVAL)?;
        }
        Ok(told)
    }

    fn take(&mut self, key: &[u8], value: Option<&[u8]>, memory: u64) -> Option<()> {
        match (key, value) {
            (b"inode64", None) => self.inode64 = true,
            (b"noswap", None) => self.noswap = true,
            // All others have values.
            (_, None | Some([])) => return None,
            (b"size", Some(value)) => {
                let (mut size, mut rest) = bytes(value);
                if let [b'%', after @ ..] = rest {
                    let pages = memory / PAGE;
                    size = size.wrapping_mul(PAGE).wrapping_mul(pages) / 100;
                    rest = after;
                }
                self.blocks = Some(size.div_ceil(PAGE)).filter(|_| rest.is_empty());
                self.blocks?;
            }
            (b"nr_blocks", Some(value)) => {
                self.blocks = Some(number_up_to(value, i64::MAX as u64)?)
            }
            (b"nr_inodes", Some(value)) => {
                self.inodes = Some(number_up_to(value, u64::MAX / INODE)?);
            }
            (b"mode", Some(value)) => self.mode = Some(word(value, 8)? & 0o7777),
            (b"uid", Some(value)) => self.uid = Some(word(value, 0).filter(|&id| id != u32::MAX)?),
            (b"gid", Some(value)) => self.gid = Some(word(value, 0).filter(|&id| id != u32::MAX)?),
            _ => return None,
        }
        Some(())
    }

    /// Returns the options that are shown beside those of the filesystem.
    pub(super) fn shown(&self) -> &'static [u8] {
        match (self.inode64, self.noswap) {
            (true, true) => b"inode64,noswap",
            (true, false) => b"inode64",
            (false, true) => b"noswap",
            (false, false) => b"",
        }
    }
}

fn number_up_to(value: &[u8], max: u64) -> Option<u64> {
    let (number, rest) = bytes(value);
    Some(number).filter(|number| rest.is_empty() && *number <= max)
}

/// Returns a number's radix, by its prefix, and its digits.
fn radix(text: &[u8]) -> (u32, &[u8]) {
    match text {
        [b'0', b'x' | b'X', digits @ ..] if digits.first().is_some_and(u8::is_ascii_hexdigit) => {
            (16, digits)
        }
        [b'0', ..] => (8, text),
        _ => (10, text),
    }
}

/// Reads a number with suffixes: `k`, `m` and so on, each 1,024 times the one before. Returns it and
/// what follows (`memparse`). Of a number that is too large, the lowest 64 bits count.
fn bytes(text: &[u8]) -> (u64, &[u8]) {
    let (radix, digits) = radix(text);
    let digit = |byte: &u8| char::from(*byte).to_digit(radix);
    let len = digits.iter().take_while(|byte| digit(byte).is_some()).count();
    let number = digits[..len]
        .iter()
        .filter_map(digit)
        .fold(0u64, |number, digit| number.wrapping_mul(radix.into()).wrapping_add(digit.into()));
    let rest = &digits[len..];
    let power = rest
        .first()
        .and_then(|suffix| b"kmgtpe".iter().position(|known| suffix.eq_ignore_ascii_case(known)));
    match power {
        Some(power) => (number.wrapping_shl(10 * (power as u32 + 1)), &rest[1..]),
        None => (number, rest),
    }
}

/// Reads a number of 32 bits, with a sign of `+` or none (`kstrtouint`). A radix of 0 is the
/// number's own, by its prefix.
fn word(text: &[u8], base: u32) -> Option<u32> {
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let (base, digits) = if base == 0 { radix(text) } else { (base, text) };
    let digits = digits.strip_suffix(b"\n").unwrap_or(digits);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u32, |number, &byte| {
        number.checked_mul(base)?.checked_add(char::from(byte).to_digit(base)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_suffixes() {
        for (text, number, rest) in [
            (&b"0"[..], 0, &b""[..]),
            (b"12", 12, b""),
            (b"4k", 4096, b""),
            (b"4Kx", 4096, b"x"),
            (b"0x10M", 16 << 20, b""),
            (b"010g", 8 << 30, b""),
            (b"08", 0, b"8"),
            (b"0x", 0, b"x"),
            (b"1t", 1 << 40, b""),
            (b"1p", 1 << 50, b""),
            (b"1e", 1 << 60, b""),
            (b"k", 0, b""),
            (b"", 0, b""),
            (b"-1", 0, b"-1"),
            (b"50%", 50, b"%"),
            (b"1kk", 1024, b"k"),
        ] {
            assert_eq!(bytes(text), (number, rest), "{}", text.escape_ascii());
        }
        for (text, base, number) in [
            (&b"755"[..], 8, Some(0o755)),
            (b"0755", 8, Some(0o755)),
            (b"+7", 8, Some(7)),
            (b"8", 8, None),
            (b"0x7", 8, None),
            (b"", 8, None),
            (b"4294967295", 0, Some(u32::MAX)),
            (b"4294967296", 0, None),
            (b"0x1f", 0, Some(31)),
            (b"017", 0, Some(15)),
            (b"1 ", 0, None),
            (b"-1", 0, None),
        ] {
            assert_eq!(word(text, base), number, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn options_of_tmpfs() {
        let of = |text: &str| TmpfsOptions::parse(&Options(text.as_bytes()), 1000 * PAGE);
        let none = TmpfsOptions::default();
        assert_eq!(of(""), Ok(none));
        assert_eq!(of(",,=x,ro,sync=1,"), Ok(none));
        assert_eq!(of("size=4097"), Ok(TmpfsOptions { blocks: Some(2), ..none }));
        assert_eq!(of("size=10%"), Ok(TmpfsOptions { blocks: Some(100), ..none }));
        assert_eq!(of("size=1m,nr_blocks=3k"), Ok(TmpfsOptions { blocks: Some(3072), ..none }));
        assert_eq!(of("nr_inodes=1k"), Ok(TmpfsOptions { inodes: Some(1024), ..none }));
        let owned = TmpfsOptions {
            mode: Some(0o1755),
            uid: Some(7),
            gid: Some(0),
            ..TmpfsOptions::default()
        };
        assert_eq!(of("mode=11755,uid=7,gid=0"), Ok(owned));
        for bad in [
            "size",
            "size=",
            "size=x",
            "size=1%%",
            "size=1 ",
            "nr_blocks=1%",
            "mode=9",
            "uid=-1",
            "uid=4294967295",
            "noswap=1",
            "huge",
            "x",
            "x=1",
            "size=1,5",
        ] {
            assert_eq!(of(bad), Err(Errno::INVAL), "{bad}");
        }
        let flags = Options(b"ro,rw,sync,ro,x").flags(SuperFlags::LAZYTIME);
        assert_eq!(flags, SuperFlags::LAZYTIME | SuperFlags::RDONLY | SuperFlags::SYNCHRONOUS);
    }
}
