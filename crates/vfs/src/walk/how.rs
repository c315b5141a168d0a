//! How a path is to be walked: the flags of the `*at` calls, and `openat2`'s.

use rustix::io::Errno;

bitflags::bitflags! {
    /// What is asked of the last component (`LOOKUP_*`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Lookup: u32 {
        /// A symbolic link in the last place is followed. (A slash after it has it followed anyway.)
        const FOLLOW = 1;
        /// The result is a directory, or `ENOTDIR`.
        const DIRECTORY = 2;
        /// The empty path is where the walk starts (`AT_EMPTY_PATH`), not `ENOENT`.
        const EMPTY = 4;
    }
}

bitflags::bitflags! {
    /// What may happen on the way (`RESOLVE_*`, numbered as Linux does).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Resolve: u64 {
        /// No step from one mount to another: `EXDEV`.
        const NO_XDEV = 0x01;
        /// No link that is no path, as those of `/proc/self/fd`: `ELOOP`.
        const NO_MAGICLINKS = 0x02;
        /// No symbolic link: `ELOOP`.
        const NO_SYMLINKS = 0x04;
        /// Nothing above or beside the start: `EXDEV`.
        const BENEATH = 0x08;
        /// The start is the root, whatever the process's is.
        const IN_ROOT = 0x10;
        /// Only what is found without waiting: `EAGAIN`.
        const CACHED = 0x20;
    }
}

impl Resolve {
    /// Whether the walk must not leave where it started.
    #[inline]
    pub(crate) fn is_scoped(self) -> bool {
        self.intersects(Self::BENEATH.union(Self::IN_ROOT))
    }
}

/// How a path is to be walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct How {
    /// What is asked of the last component.
    pub lookup: Lookup,
    /// What may happen on the way.
    pub resolve: Resolve,
}

impl How {
    /// Links are followed, as `stat` and `open` do.
    pub const FOLLOW: Self = Self::of(Lookup::FOLLOW);
    /// A link in the last place is itself the result, as for `lstat`.
    pub const NOFOLLOW: Self = Self::of(Lookup::empty());

    /// With these flags, and no restriction on the way.
    pub const fn of(lookup: Lookup) -> Self {
        Self { lookup, resolve: Resolve::empty() }
    }

    /// As `openat2` has it.
    ///
    /// # Errors
    /// `EINVAL` for flags that Linux does not know, and for `BENEATH` together with `IN_ROOT`.
    pub fn openat2(lookup: Lookup, resolve: u64) -> Result<Self, Errno> {
        let resolve = Resolve::from_bits(resolve).ok_or(Errno::INVAL)?;
        if resolve.contains(Resolve::BENEATH.union(Resolve::IN_ROOT)) {
            return Err(Errno::INVAL);
        }
        Ok(Self { lookup, resolve })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openat2_refuses_what_linux_refuses() {
        for (resolve, expected) in [
            (0, Ok(Resolve::empty())),
            (0x3f & !0x10, Ok(Resolve::all() - Resolve::IN_ROOT)),
            (0x10, Ok(Resolve::IN_ROOT)),
            (0x18, Err(Errno::INVAL)),
            (0x40, Err(Errno::INVAL)),
            (1 << 63, Err(Errno::INVAL)),
        ] {
            assert_eq!(
                How::openat2(Lookup::FOLLOW, resolve).map(|how| how.resolve),
                expected,
                "{resolve:#x}"
            );
        }
    }
}
