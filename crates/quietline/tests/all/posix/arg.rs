//! What calls take: each kind of argument can be shown, read back, and made simpler.

/// An argument of a call.
pub(crate) trait Arg: Clone + PartialEq {
    /// As it stands in a script: without a comma outside quotes.
    fn show(&self) -> String;
    /// The inverse of `show`.
    fn read(text: &str) -> Option<Self>;
    /// Simpler ones to try instead, the simplest first.
    fn simpler(&self) -> Vec<Self>;

    /// A descriptor above `fd` becomes the one below it: when the call that made `fd` is left out.
    fn lower(&mut self, _fd: i32) {}
}

/// A descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fd(pub(crate) i32);

/// `AT_FDCWD`.
pub(crate) const CWD: Fd = Fd(libc::AT_FDCWD);

impl Arg for Fd {
    fn show(&self) -> String {
        if *self == CWD { "cwd".to_owned() } else { self.0.to_string() }
    }

    fn read(text: &str) -> Option<Self> {
        if text == "cwd" { Some(CWD) } else { text.parse().ok().map(Fd) }
    }

    fn simpler(&self) -> Vec<Self> {
        // Another number is another descriptor, hardly a simpler one.
        Vec::new()
    }

    fn lower(&mut self, fd: i32) {
        if (fd + 1..1000).contains(&self.0) {
            self.0 -= 1;
        }
    }
}

/// A path, a name or a value: bytes without a zero in them where a string is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) Vec<u8>);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text(text.as_bytes().to_vec())
    }
}

impl Arg for Text {
    fn show(&self) -> String {
        format!("\"{}\"", self.0.escape_ascii())
    }

    fn read(text: &str) -> Option<Self> {
        let mut rest = text.strip_prefix('"')?.strip_suffix('"')?.bytes();
        let mut bytes = Vec::new();
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'\\' => match rest.next()? {
                    b'x' => {
                        let pair = [rest.next()?, rest.next()?];
                        u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?
                    }
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'r' => b'\r',
                    other => other,
                },
                other => other,
            });
        }
        Some(Text(bytes))
    }

    fn simpler(&self) -> Vec<Self> {
        let text = &self.0;
        let mut all = Vec::new();
        if text.len() > 1 {
            all.push(Text(b"a".to_vec()));
        }
        // Without its first, or its last, component.
        if let Some(slash) = text.iter().position(|&b| b == b'/') {
            all.push(Text(text[slash + 1..].to_vec()));
        }
        if let Some(slash) = text.iter().rposition(|&b| b == b'/') {
            all.push(Text(text[..slash].to_vec()));
        }
        all.retain(|simpler| simpler.0.len() < text.len());
        all
    }
}

/// A file's mode, or a mask: shown in octal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode(pub(crate) u32);

impl Arg for Mode {
    fn show(&self) -> String {
        format!("0{:o}", self.0)
    }

    fn read(text: &str) -> Option<Self> {
        u32::from_str_radix(text, 8).ok().map(Mode)
    }

    fn simpler(&self) -> Vec<Self> {
        let kind = self.0 & libc::S_IFMT;
        let plain = [kind | 0o755, kind | self.0 & 0o777, kind | 0o777, kind];
        plain.into_iter().map(Mode).take_while(|mode| mode != self).collect()
    }
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Arg for $number {
            fn show(&self) -> String {
                self.to_string()
            }

            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn simpler(&self) -> Vec<Self> {
                let candidates = [0, 1, 4096 as $number, self / 2 / 4096 * 4096, self / 2];
                let mut all: Vec<Self> = candidates.into_iter().filter(|n| n.abs_diff(0) < self.abs_diff(0)).collect();
                all.dedup();
                all
            }
        }
    )* };
}

numbers!(i32, u32, i64, u64, usize);

impl Arg for bool {
    fn show(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn simpler(&self) -> Vec<Self> {
        Vec::new()
    }
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) seconds: i64,
    pub(crate) nanos: i64,
}

impl Time {
    pub(crate) const NOW: Time = Time { seconds: 0, nanos: libc::UTIME_NOW };
    pub(crate) const OMIT: Time = Time { seconds: 0, nanos: libc::UTIME_OMIT };
}

impl Arg for Time {
    fn show(&self) -> String {
        match self.nanos {
            libc::UTIME_NOW => format!("now:{}", self.seconds),
            libc::UTIME_OMIT => format!("omit:{}", self.seconds),
            nanos => format!("{}:{nanos}", self.seconds),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let (first, second) = text.split_once(':')?;
        Some(match first {
            "now" => Time { seconds: second.parse().ok()?, ..Time::NOW },
            "omit" => Time { seconds: second.parse().ok()?, ..Time::OMIT },
            seconds => Time { seconds: seconds.parse().ok()?, nanos: second.parse().ok()? },
        })
    }

    fn simpler(&self) -> Vec<Self> {
        [Time::NOW, Time { seconds: 1, nanos: 0 }]
            .into_iter()
            .take_while(|time| time != self)
            .collect()
    }
}

/// Words of named bits.
macro_rules! bits {
    ($($(#[$doc:meta])* $ty:ident = $($name:ident)|+;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $ty(pub(crate) u64);

        impl $ty {
            const NAMES: &[(&'static str, u64)] = &[$((stringify!($name), libc::$name as u32 as u64)),+];
        }

        impl Arg for $ty {
            fn show(&self) -> String {
                show_bits(self.0, Self::NAMES)
            }

            fn read(text: &str) -> Option<Self> {
                read_bits(text, Self::NAMES).map($ty)
            }

            fn simpler(&self) -> Vec<Self> {
                let all = [0].into_iter().chain((0..64).map(|bit| self.0 & !(1 << bit)));
                all.filter(|&fewer| fewer != self.0).map($ty).collect()
            }
        }
    )* };
}

bits! {
    /// `O_*`. Names with several bits come first.
    Open = O_TMPFILE | O_SYNC | O_WRONLY | O_RDWR | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_NONBLOCK | O_DSYNC
        | O_DIRECT | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC | O_PATH;
    /// `AT_*`, as calls other than `unlinkat` and `faccessat2` know them.
    At = AT_SYMLINK_NOFOLLOW | AT_SYMLINK_FOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT;
    /// `unlinkat`'s flags.
    Unlink = AT_REMOVEDIR;
    /// `faccessat2`'s flags.
    Access = AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
    /// `renameat2`'s flags.
    Rename = RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT;
    /// `openat2`'s restrictions.
    Resolve = RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH | RESOLVE_IN_ROOT
        | RESOLVE_CACHED;
    /// `fallocate`'s modes.
    Falloc = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_ZERO_RANGE
        | FALLOC_FL_INSERT_RANGE | FALLOC_FL_UNSHARE_RANGE;
    /// `setxattr`'s flags.
    Xflags = XATTR_CREATE | XATTR_REPLACE;
    /// What a watch asks for.
    Watching = IN_ALL_EVENTS | IN_ACCESS | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_CLOSE_NOWRITE | IN_OPEN
        | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR
        | IN_DONT_FOLLOW | IN_EXCL_UNLINK | IN_MASK_CREATE | IN_MASK_ADD | IN_ONESHOT;
    /// `flock`'s operations.
    Flock = LOCK_SH | LOCK_EX | LOCK_NB | LOCK_UN;
}

fn show_bits(mut word: u64, names: &[(&str, u64)]) -> String {
    let mut parts = Vec::new();
    for &(name, bits) in names {
        if word & bits == bits {
            parts.push(name.to_owned());
            word &= !bits;
        }
    }
    if word != 0 || parts.is_empty() {
        parts.push(format!("{word:#x}"));
    }
    parts.join("|")
}

fn read_bits(text: &str, names: &[(&str, u64)]) -> Option<u64> {
    text.split('|').try_fold(0, |word, part| match part.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(|bits| word | bits),
        None => names.iter().find(|(name, _)| *name == part).map(|(_, bits)| word | bits),
    })
}
