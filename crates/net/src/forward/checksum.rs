//! The internet's checksum: the one's complement sum of 16-bit words.
//!
//! Summed as the machine's own words, four bytes at a time: byte order does not matter to the sum, only to how it is
//! read (RFC 1071). A field that changes changes it without looking at the rest (RFC 1624).

/// What has been summed up so far, in the machine's byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes, of which all but those that are added last must be of even number.
    #[inline(always)]
    pub fn with(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<4>();
        let sum = words.iter().fold(self.0, |sum, word| sum + u64::from(u32::from_ne_bytes(*word)));
        let (words, last) = rest.as_chunks::<2>();
        let sum = words.iter().fold(sum, |sum, word| sum + u64::from(u16::from_ne_bytes(*word)));
        Self(last.iter().fold(sum, |sum, byte| sum + u64::from(u16::from_ne_bytes([*byte, 0]))))
    }

    /// Folded into 16 bits.
    #[inline(always)]
    fn folded(self) -> u16 {
        // A number and itself with its halves exchanged: what the lower half carries is added to the upper one, as it must be.
        let sum = (self.0.wrapping_add(self.0.rotate_left(32)) >> 32) as u32;
        (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
    }

    /// Whether what was added, its checksum included, is right.
    #[inline(always)]
    pub fn is_right(self) -> bool {
        self.folded() == 0xffff
    }

    /// The checksum of what was added, with zeroes where it will be; in the order of the wire.
    pub fn checksum(self) -> [u8; 2] {
        (!self.folded()).to_ne_bytes()
    }
}

/// The checksum of bytes, with zeroes where it will be; in the order of the wire.
pub fn checksum(bytes: &[u8]) -> [u8; 2] {
    Sum::default().with(bytes).checksum()
}

/// The checksum after a 16-bit field has changed (RFC 1624, equation 3).
#[inline(always)]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let sum = (sum >> 16) + (sum & 0xffff);
    !((sum >> 16) + (sum & 0xffff)) as u16
}

/// The sum of the pseudo-header of an upper protocol in IPv6.
pub fn pseudo6(source: &[u8; 16], destination: &[u8; 16], len: u32, protocol: u8) -> Sum {
    Sum::default()
        .with(source)
        .with(destination)
        .with(&len.to_be_bytes())
        .with(&[0, 0, 0, protocol])
}
