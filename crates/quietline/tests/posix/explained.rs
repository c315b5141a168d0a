//! The differences that are meant, in one place. Each says what it allows on our side, so that it hides no more.

use crate::arg::CWD;
use crate::call::Call;
use crate::outcome::{Body, Outcome, Stamp, Stat};

/// Why the two outcomes may differ, if they may. The host's comes first.
pub(crate) fn explained(call: &Call, host: &Outcome, ours: &Outcome) -> Option<&'static str> {
    let fails = |with| *ours == Outcome::Failed(with);
    match call {
        Call::Fsetxattr { fd, .. }
        | Call::Fgetxattr { fd, .. }
        | Call::Flistxattr { fd, .. }
        | Call::Fremovexattr { fd, .. }
            if *fd == CWD && fails(libc::EBADF) =>
        {
            Some(
                "fsetxattr and its like take AT_FDCWD for the working directory since Linux 6.13; here it is EBADF",
            )
        }
        Call::Renameat2 { flags, .. }
            if flags.0 & u64::from(libc::RENAME_WHITEOUT) != 0 && fails(libc::EINVAL) =>
        {
            Some("RENAME_WHITEOUT is not offered: EINVAL, as a filesystem without it says")
        }
        Call::Openat2 { resolve, .. }
            if resolve.0 & libc::RESOLVE_NO_XDEV != 0 && *host == Outcome::Failed(libc::EXDEV) =>
        {
            Some("RESOLVE_NO_XDEV: Linux refuses an absolute link though it leads to the same filesystem")
        }
        _ if *host == Outcome::Failed(libc::ENOENT) && fails(libc::ENAMETOOLONG) => Some(
            "in a directory that was removed Linux looks for no name: here a name too long is told first",
        ),
        Call::Openat { flags, .. } | Call::Openat2 { flags, .. }
            if flags.0 & libc::O_CREAT as u64 != 0
                && *host == Outcome::Failed(libc::EISDIR)
                && fails(libc::ENAMETOOLONG) =>
        {
            Some(
                "O_CREAT with a slash at the end: Linux sees the slash before a name too long, here it is after",
            )
        }
        _ if of_a_fifo(call, host, ours) => Some(
            "a fifo in the tree carries no data and knows no other end: reading and writing it is EINVAL",
        ),
        _ if at_the_limit(call, host, ours) => Some(
            "beside the largest offset Linux looks at the position first, also for O_APPEND and for directories",
        ),
        Call::Readv { .. } | Call::Preadv { .. } if *host == Outcome::Done(0) && fails(libc::EISDIR) => {
            Some("readv of a directory into nothing: Linux says 0, here it is EISDIR")
        }
        Call::Renameat2 { .. } if *host == Outcome::Failed(libc::EBUSY) && fails(libc::ENAMETOOLONG) => {
            Some("renameat2 of `..` to a name too long: the name is told first")
        }
        Call::Symlinkat { .. } if host.is_success() && fails(libc::ENOSPC) => Some(
            "not understood, ours to mend: with extended attributes a symbolic link finds no room where tmpfs has some",
        ),
        _ if same_but_for_the_last_page(host, ours) => {
            Some("Linux's SEEK_DATA does not find data in the last page that a file can have")
        }
        _ if same_but_for_links(host, ours) => Some(
            "times of access: reading nothing moves a file's, and following a symbolic link does not move the link's time of access: a walk writes nothing",
        ),
        _ => None,
    }
}

/// Whether nothing differs but times of access of symbolic links, that the host's clock moved and that are as set here.
fn same_but_for_links(host: &Outcome, ours: &Outcome) -> bool {
    let moved = |host: &Stat, ours: &Stat| {
        let kind = ours.mode & libc::S_IFMT;
        let kept = host.atime == Stamp::Clock && matches!(ours.atime, Stamp::At(..));
        let moved = matches!(host.atime, Stamp::At(..)) && ours.atime == Stamp::Clock;
        kept && kind != libc::S_IFDIR || moved && kind == libc::S_IFREG
    };
    let mut allowed = host.clone();
    match (&mut allowed, ours) {
        (Outcome::Stat(host), Outcome::Stat(ours)) if moved(host, ours) => host.atime = ours.atime,
        (Outcome::Tree(host), Outcome::Tree(ours)) => {
            for (host, ours) in host.iter_mut().zip(ours) {
                if moved(&host.stat, &ours.stat) {
                    host.stat.atime = ours.stat.atime;
                }
            }
        }
        (Outcome::Fds(host), Outcome::Fds(ours)) => {
            for (host, ours) in host.iter_mut().zip(ours) {
                if let (Ok(host), Ok(ours)) = (&mut host.stat, &ours.stat)
                    && moved(host, ours)
                {
                    host.atime = ours.atime;
                }
            }
        }
        _ => return false,
    }
    allowed == *ours
}

/// Whether nothing differs but data at the very end of what a file can be, which only we see.
fn same_but_for_the_last_page(host: &Outcome, ours: &Outcome) -> bool {
    let (Outcome::Tree(_), Outcome::Tree(nodes)) = (host, ours) else { return false };
    let mut nodes = nodes.clone();
    for node in &mut nodes {
        if let Ok(Body::Data(pieces)) = &mut node.body {
            pieces.retain(|piece| piece.0 < i64::MAX - 4095);
        }
    }
    let (Outcome::Tree(theirs), Outcome::Tree(_)) = (host, ours) else { return false };
    for (node, theirs) in nodes.iter_mut().zip(theirs) {
        // Where such a piece begins a page earlier, reading it fails there.
        if theirs.body.is_err() && node.stat.size > i64::MAX - 8192 {
            node.body.clone_from(&theirs.body);
        }
    }
    Outcome::Tree(nodes) == *host
}

/// Whether this is what a fifo that is opened in the tree says, on the host and here.
fn of_a_fifo(call: &Call, host: &Outcome, ours: &Outcome) -> bool {
    let host_fails = |with| *host == Outcome::Failed(with);
    let invalid = *ours == Outcome::Failed(libc::EINVAL);
    match call {
        Call::Fsync { .. } | Call::Fdatasync { .. } => host_fails(libc::EINVAL) && ours.is_success(),
        Call::Openat { flags, .. } | Call::Openat2 { flags, .. } => {
            let both = flags.0 & libc::O_ACCMODE as u64 == libc::O_ACCMODE as u64;
            (host.is_success() && *ours == Outcome::Failed(libc::ENXIO))
                || (both && host_fails(libc::EINVAL) && ours.is_success())
        }
        Call::Pread { .. } | Call::Preadv { .. } | Call::Pwrite { .. } | Call::Pwritev { .. } => {
            host_fails(libc::ESPIPE) && !ours.is_success()
        }
        Call::Read { .. } | Call::Readv { .. } | Call::Write { .. } | Call::Writev { .. } => {
            (host.is_success() || host_fails(libc::EAGAIN) || host_fails(libc::EPIPE)) && invalid
        }
        Call::Setfl { .. } => host.is_success() && invalid,
        _ => false,
    }
}

/// Whether this is what comes of an offset or a length next to the largest that there is.
fn at_the_limit(call: &Call, host: &Outcome, ours: &Outcome) -> bool {
    let refused = *host == Outcome::Failed(libc::EINVAL);
    match call {
        Call::Pread { .. } | Call::Preadv { .. } => refused && *ours == Outcome::Failed(libc::EISDIR),
        Call::Write { .. } | Call::Writev { .. } | Call::Pwrite { .. } | Call::Pwritev { .. } => {
            refused && (ours.is_success() || *ours == Outcome::Failed(libc::EFBIG))
        }
        _ => false,
    }
}
