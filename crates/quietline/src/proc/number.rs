//! Numbers in names, and as they may be written to files.

use crate::Errno;

/// The number that a name is, if it is one as we would write it: no sign, no zeros before it.
pub(super) fn canonical(name: &[u8]) -> Option<i32> {
    let text = core::str::from_utf8(name).ok()?;
    let fine = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if fine { text.parse().ok() } else { None }
}

/// A number's digits.
pub(super) fn text(number: i32, digits: &mut [u8; 10]) -> &[u8] {
    let (mut at, mut left) = (digits.len(), number.unsigned_abs());
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            return &digits[at..];
        }
    }
}

fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | b'\r' | 0x0c)
}

/// The most digits, with sign and prefix, that `/proc/sys` reads.
const SYSCTL_DIGITS: usize = 21;
/// The most bytes that it looks at.
const SYSCTL_BYTES: usize = 4095;

/// A number as `/proc/sys` takes it, and how many bytes it was with the space around it: spaces, then decimal, octal after `0`
/// or hexadecimal after `0x`, then a space or the end. What comes after that is not looked at.
///
/// # Errors
/// `EINVAL`.
pub(super) fn sysctl(text: &[u8], min: u64, max: u64) -> Result<(u64, usize), Errno> {
    let text = &text[..text.len().min(SYSCTL_BYTES)];
    let skipped = text.iter().take_while(|b| is_space(b)).count();
    let rest = &text[skipped..];
    let word = rest
        .iter()
        .position(|b| matches!(b, b' ' | b'\t' | b'\n'))
        .map_or(rest, |end| &rest[..end]);
    if word.is_empty() || word.len() > SYSCTL_DIGITS {
        return Err(Errno::INVAL);
    }
    let (digits, radix) = match word {
        [b'0', b'x' | b'X', digits @ ..] if !digits.is_empty() => (digits, 16),
        [b'0', digits @ ..] if !digits.is_empty() => (digits, 8),
        _ => (word, 10),
    };
    let value = unsigned(digits, radix).map_err(|_| Errno::INVAL)?;
    if value < min || value > max {
        return Err(Errno::INVAL);
    }
    let used = skipped + word.len();
    let after = text[used..].iter().take_while(|b| is_space(b)).count();
    Ok((value, used + after))
}

/// A number as `sysfs` takes it: decimal, with one line end behind it at most.
///
/// # Errors
/// `EINVAL`; `ERANGE` beyond 64 bits.
pub(super) fn sysfs(text: &[u8]) -> Result<u64, Errno> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    unsigned(text.strip_prefix(b"+").unwrap_or(text), 10)
}

fn unsigned(digits: &[u8], radix: u32) -> Result<u64, Errno> {
    if digits.is_empty() {
        return Err(Errno::INVAL);
    }
    let mut value = Some(0u64);
    for &byte in digits {
        let digit = char::from(byte).to_digit(radix).ok_or(Errno::INVAL)?;
        value = value.and_then(|value| value.checked_mul(radix.into())?.checked_add(digit.into()));
    }
    value.ok_or(Errno::RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sysctl_takes() {
        for (text, value, used) in [
            (&b"5"[..], 5, 1),
            (b" \t12\n", 12, 5),
            (b"0x1f\n", 31, 5),
            (b"010", 8, 3),
            (b"0", 0, 1),
            (b"7 8", 7, 2),
            (b"7\t\n 8", 7, 4),
        ] {
            assert_eq!(sysctl(text, 0, 100), Ok((value, used)), "{text:?}");
        }
        for text in [
            &b""[..],
            b" ",
            b"\n",
            b"-1",
            b"x",
            b"12a",
            b"101",
            b"08",
            b"1,2",
            b"99999999999999999999999",
            b"0x",
            b"7\0",
            b"7\x0b",
            b"7\r\n",
            b"+7",
        ] {
            assert_eq!(sysctl(text, 0, 100), Err(Errno::INVAL), "{text:?}");
        }
        assert_eq!(sysctl(b"4", 5, 100), Err(Errno::INVAL));
    }

    #[test]
    fn what_sysfs_takes() {
        for (text, value) in [(&b"5"[..], 5), (b"5\n", 5), (b"+5", 5), (b"010", 10)] {
            assert_eq!(sysfs(text), Ok(value), "{text:?}");
        }
        for text in [&b""[..], b"\n", b" 5", b"5 ", b"5\n\n", b"0x5", b"-5", b"++5"] {
            assert_eq!(sysfs(text), Err(Errno::INVAL), "{text:?}");
        }
        assert_eq!(sysfs(b"18446744073709551616"), Err(Errno::RANGE));
    }

    #[test]
    fn what_a_name_is() {
        assert_eq!((canonical(b"0"), canonical(b"17")), (Some(0), Some(17)));
        for name in [&b""[..], b"01", b"+1", b"-1", b"1a", b"2147483648"] {
            assert_eq!(canonical(name), None);
        }
        assert_eq!(text(0, &mut [0; 10]), b"0");
        assert_eq!(text(i32::MAX, &mut [0; 10]), b"2147483647");
    }
}
