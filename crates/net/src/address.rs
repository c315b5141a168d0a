//! Addresses, as calls give and take them.

use crate::abi::{AF_UNSPEC, SOCKADDR_MAX};
use core::fmt;
use rustix::io::Errno;

/// An address (`struct sockaddr_storage`): a family and what that makes of the rest. May be empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SockAddr {
    len: u8,
    bytes: [u8; SOCKADDR_MAX],
}

impl SockAddr {
    /// No address.
    pub const NONE: Self = Self { len: 0, bytes: [0; SOCKADDR_MAX] };

    /// The address that a caller has given.
    ///
    /// # Errors
    /// `EINVAL` for more than 128 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, Errno> {
        let mut address = Self::NONE;
        address.bytes.get_mut(..bytes.len()).ok_or(Errno::INVAL)?.copy_from_slice(bytes);
        address.len = bytes.len() as u8;
        Ok(address)
    }

    /// Becomes this one, or none. One that is none already is not written.
    pub(crate) fn set(&mut self, address: Option<&Self>) {
        match address {
            Some(address) => *self = *address,
            None if self.is_empty() => {}
            None => *self = Self::NONE,
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Whether it is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The family; `AF_UNSPEC` if the address is too short to have one.
    pub fn family(&self) -> i32 {
        match self.bytes() {
            [low, high, ..] => u16::from_ne_bytes([*low, *high]).into(),
            _ => AF_UNSPEC,
        }
    }

    /// Copies as much as fits: how long the address is, whatever fits.
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let n = self.len().min(to.len());
        to[..n].copy_from_slice(&self.bytes[..n]);
        self.len()
    }
}

impl Default for SockAddr {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Debug for SockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SockAddr({}, {:?})", self.family(), &self.bytes()[self.len().min(2)..])
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_what_was_given() {
        assert_eq!(SockAddr::new(&[0; 129]).unwrap_err(), Errno::INVAL);
        let address = SockAddr::new(&[1, 0, b'x', 0]).unwrap();
        assert_eq!((address.family(), address.len()), (1, 4));
        let mut short = [9; 3];
        assert_eq!(address.copy_to(&mut short), 4);
        assert_eq!(short, [1, 0, b'x']);
        assert_eq!(SockAddr::new(&[7]).unwrap().family(), AF_UNSPEC);
    }
}
