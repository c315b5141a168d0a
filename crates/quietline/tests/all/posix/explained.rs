//! The differences that are meant, in one place. Each says what it allows on our side, so that it hides no more.

use crate::posix::arg::CWD;
use crate::posix::call::Call;
use crate::posix::outcome::Outcome;

/// The first offset of the last page that a file can have.
const LAST_PAGE: i64 = i64::MAX - 4095;

/// Why the two outcomes may differ, if they may. The host's comes first.
pub(crate) fn explained(call: &Call, host: &Outcome, ours: &Outcome) -> Option<&'static str> {
    match call {
        Call::Lseek { .. } if in_the_last_page(call, host, ours) => Some(
            "in the last page that a file can have, Linux's sums overflow: it finds no data, and no end of it",
        ),
        Call::Fsetxattr { fd, .. } | Call::Fgetxattr { fd, .. }
            if *fd == CWD && *host == Outcome::Failed(libc::EBADF) =>
        {
            Some("before 6.13 Linux took AT_FDCWD for no descriptor in fsetxattr and fgetxattr")
        }
        _ => None,
    }
}

/// Whether this is `SEEK_DATA` that finds data only here, or `SEEK_HOLE` that ends before all numbers there.
fn in_the_last_page(call: &Call, host: &Outcome, ours: &Outcome) -> bool {
    let &Call::Lseek { whence, .. } = call else { return false };
    let Outcome::Done(at) = *ours else { return false };
    let lost = match whence {
        libc::SEEK_DATA => *host == Outcome::Failed(libc::ENXIO),
        libc::SEEK_HOLE => *host == Outcome::Done(i64::MIN),
        _ => false,
    };
    lost && at >= LAST_PAGE
}
