//! Control messages that all sockets take, and the numbers in them.

use crate::abi::{SCM_CREDENTIALS, SCM_RIGHTS, SOL_SOCKET};
use crate::message::{Cmsg, cmsgs};
use core::ops::RangeInclusive;
use rustix::io::Errno;

/// One of `SOL_SOCKET` (`__sock_cmsg_send`): files and names mean nothing here, and others are not known.
///
/// # Errors
/// `EINVAL`.
pub(super) fn of_any_socket(cmsg: &Cmsg<'_>) -> Result<(), Errno> {
    if matches!(cmsg.ty, SCM_RIGHTS | SCM_CREDENTIALS) { Ok(()) } else { Err(Errno::INVAL) }
}

/// Those of a stream: what they may be, and that they say nothing (`sock_cmsg_send`).
///
/// # Errors
/// `EINVAL`.
#[cold]
pub(super) fn check(control: &[u8]) -> Result<(), Errno> {
    for cmsg in cmsgs(control) {
        let cmsg = cmsg.ok_or(Errno::INVAL)?;
        if cmsg.level == SOL_SOCKET {
            of_any_socket(&cmsg)?;
        }
    }
    Ok(())
}

/// A number in these bounds.
///
/// # Errors
/// `EINVAL`.
pub(super) fn int_of(data: &[u8], bounds: RangeInclusive<i32>) -> Result<i32, Errno> {
    let int = i32::from_ne_bytes(data.try_into().map_err(|_| Errno::INVAL)?);
    if bounds.contains(&int) { Ok(int) } else { Err(Errno::INVAL) }
}

/// A byte, or a number that fits into one.
///
/// # Errors
/// `EINVAL`.
pub(super) fn byte_or_int(data: &[u8]) -> Result<u8, Errno> {
    match *data {
        [byte] => Ok(byte),
        _ => int_of(data, 0..=255).map(|int| int as u8),
    }
}
