//! Kinds of arguments: how a value is drawn, and what a drawn number stands for.
//!
//! An argument is a number. The path or the address that it stands for follows from the number, so
//! that a call is repeated, and printed, from numbers alone.

use crate::random::Random;
use crate::victim;
use quietline::{Config, Kernel, dirents};
use std::fmt::Write;
use std::sync::LazyLock;

/// Descriptors of a process are below this.
pub const NOFILE: usize = 72;
/// Bytes of the buffer that a call reads from or writes to.
pub const BUFFER: usize = 1 << 16;
/// The most bytes that a call copies inside the kernel. A larger number would fill the memory of a
/// file system without a limit.
const COPIED: u64 = 1 << 18;

/// A kind of argument.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A descriptor, or `AT_FDCWD`.
    Fd,
    /// A path.
    Path,
    /// The length of a buffer.
    Length,
    /// The number of bytes to copy.
    Copied,
    /// A file offset.
    Offset,
    /// An optional file offset: -1 for none.
    MaybeOffset,
    /// The length of a range of a file.
    Range,
    /// A time limit in milliseconds.
    Limit,
    /// A socket address.
    Address,
    /// The id of a user or a group.
    Id,
    /// A process number.
    Pid,
    /// A random number, often an extreme one.
    Any,
    /// A number from which the call makes what it needs.
    Seed,
    /// One of these values, or any number.
    One(&'static [i64]),
    /// One of these values.
    Only(&'static [i64]),
    /// Some of these bits together, or any number.
    Bits(&'static [i64]),
}

const EDGES: &[i64] = &[
    -1,
    0,
    1,
    i32::MAX as i64,
    i32::MIN as i64,
    u32::MAX as i64,
    i64::MAX,
    i64::MIN,
    1 << 31,
    1 << 40,
    4095,
    4096,
    4097,
];

impl Kind {
    /// Draws a value.
    pub fn draw(self, random: &mut Random) -> i64 {
        let choice = random.below(64);
        match self {
            Self::Fd => match choice {
                0 => -1,
                1..6 => libc::AT_FDCWD.into(),
                6 => random.pick(EDGES),
                7..40 => random.below(14) as i64,
                40..58 => random.below(28) as i64,
                _ => random.below(NOFILE as u64) as i64,
            },
            Self::Path | Self::Address | Self::Seed => random.below(victim::SECRET as u64) as i64,
            Self::Length => match choice {
                0..48 => random.below(200) as i64,
                48..62 => random.below(9000) as i64,
                _ => random.below(BUFFER as u64 + 1) as i64,
            },
            Self::Copied => match choice {
                0 => 0,
                1..48 => random.below(10_000) as i64,
                _ => random.below(COPIED) as i64,
            },
            Self::Offset => match choice {
                0..8 => random.pick(EDGES),
                8..48 => random.below(10_000) as i64,
                _ => random.below(1 << 21) as i64,
            },
            Self::MaybeOffset => match choice {
                0..40 => -1,
                40..44 => random.pick(EDGES),
                _ => random.below(100_000) as i64,
            },
            Self::Range => match choice {
                0..4 => random.pick(&[0, -1, i64::MIN, i64::MAX]),
                _ => random.below(COPIED) as i64,
            },
            Self::Limit => match choice {
                0..40 => 0,
                40..60 => random.below(3) as i64,
                _ => -1,
            },
            Self::Id => match random.below(5) {
                0 => -1,
                _ => random.pick(USERS).into(),
            },
            Self::Pid => match choice {
                0..4 => random.pick(EDGES),
                _ => random.below(PROCESSES) as i64,
            },
            Self::Any => {
                if choice < 48 {
                    random.pick(EDGES)
                } else {
                    random.word() as i64
                }
            }
            Self::One(values) => match choice {
                0 => random.pick(EDGES),
                1 => random.word() as i64,
                _ => random.pick(values),
            },
            Self::Only(values) => random.pick(values),
            Self::Bits(bits) => match choice {
                0 => random.pick(EDGES),
                1 => random.word() as i64,
                2..32 => random.pick(bits),
                _ => bits.iter().filter(|_| random.below(4) == 0).fold(0, |all, bit| all | bit),
            },
        }
    }

    /// Returns whether values are descriptors.
    pub(crate) fn is_fd(self) -> bool {
        matches!(self, Self::Fd)
    }

    /// Shows what a value stands for.
    pub fn show(self, value: i64) -> String {
        match self {
            Self::Path => {
                let path = path(value);
                let text = String::from_utf8_lossy(&path);
                if path.len() > 80 {
                    format!("{value} (a path of {} bytes)", path.len())
                } else {
                    format!("{value} ({text:?})")
                }
            }
            Self::Address => format!("{value} ({:?})", address(value)),
            _ => format!("{value}"),
        }
    }
}

/// Numbers of processes below this are drawn. A round ends with a few dozen.
const PROCESSES: u64 = 40;

/// Returns the number of a process that is not the victim.
fn process(random: &mut Random) -> u64 {
    victim::PID as u64 + 1 + random.below(PROCESSES)
}

const NAMES: &[&str] = &["a", "b", "c", "d", "f", "g", "l", "m", "p", "s", "..", "."];
const FIXED: &[&str] = &["/", "", ".", "..", "/..", "//a//", "a/", "/a/.", "f/", "l/"];

/// The entries of `/proc` and `/sys`: all that a kernel lists. In a path below the directory of a
/// process, `PID` stands for its number.
static ENTRIES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let kernel = Kernel::boot(Config::default().privileged(true).proc(true)).expect("a kernel");
    let p = kernel.process().expect("a process");
    let mut entries = vec!["/proc".to_owned(), "/sys".to_owned()];
    let mut at = 0;
    while at < entries.len() {
        let directory = entries[at].replace("PID", &p.getpid().to_string());
        if let Ok(fd) = p.open(&directory, libc::O_DIRECTORY | libc::O_NOFOLLOW, 0) {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(n @ 1..) = p.getdents64(fd, &mut buffer) {
                for entry in dirents(&buffer[..n]) {
                    let name = String::from_utf8_lossy(entry.name);
                    let name = if entries[at] == "/proc" && name.parse() == Ok(p.getpid()) {
                        "PID"
                    } else {
                        &*name
                    };
                    // The descriptors of a process are drawn elsewhere.
                    if name.starts_with('.') || entries[at].starts_with("/proc/PID/fd") {
                        continue;
                    }
                    entries.push(format!("{}/{name}", entries[at]));
                }
            }
            p.close(fd).expect("an open descriptor");
        }
        at += 1;
    }
    entries
});

/// Returns the entries of `/proc` and `/sys`.
pub fn entries() -> &'static [String] {
    &ENTRIES
}

/// Returns the path that a number stands for.
pub fn path(number: i64) -> Vec<u8> {
    if number & victim::SECRET != 0 {
        return victim::path(number).0;
    }
    let mut random = Random::new(&[number as u64]);
    let mut path = String::new();
    match random.below(32) {
        0..18 => {
            path.push_str(random.pick(&["", "", "/", "/", "/a/", "/m/", "./"]));
            path.push_str(random.pick(NAMES));
            for _ in 0..random.below(3) {
                path.push('/');
                path.push_str(random.pick(NAMES));
            }
        }
        18..25 => {
            let process = match random.below(4) {
                0 => process(&mut random).to_string(),
                _ => "self".to_owned(),
            };
            let directory = random.pick(&["fd", "fdinfo"]);
            let fd = random.below(NOFILE as u64);
            let _ = write!(path, "/proc/{process}/{directory}/{fd}");
            if random.below(8) == 0 {
                path.push_str("/f");
            }
        }
        25..29 => {
            let entries: Vec<_> = entries().iter().map(String::as_str).collect();
            // Half of them are of processes, which have few.
            let of_process = |path: &&str| path.contains("PID");
            let entry = match random.below(2) {
                0 => random.pick(&entries),
                _ => random.pick(&entries.iter().copied().filter(of_process).collect::<Vec<_>>()),
            };
            let process = match random.below(3) {
                0 => process(&mut random).to_string(),
                _ => random.pick(&["self", "self", "self", "99999"]).to_owned(),
            };
            path.push_str(&entry.replace("PID", &process));
            if random.below(8) == 0 {
                path.push_str("/f");
            }
        }
        29..31 => path.push_str(random.pick(FIXED)),
        _ => match random.below(5) {
            0 => return b"a/\0b".to_vec(),
            1 => return vec![b'n'; 255],
            2 => return vec![b'n'; 256],
            3 => return b"a/".repeat(2050),
            _ => return vec![0xff, 0xfe],
        },
    }
    path.into_bytes()
}

/// The ports that are drawn.
pub const PORTS: &[u16] = &[0, 1, 80, 2000, 2001, 2002, 2003, 40_000];
/// The number of abstract names of local sockets that are drawn.
pub const ABSTRACT_NAMES: u8 = 4;
/// The users and groups that are drawn, beside -1.
pub const USERS: &[u32] = &[0, 1000, 1001, 0xffff_fffe];

/// Returns the abstract name of a local socket.
pub fn abstract_name(number: u8) -> Vec<u8> {
    [&(libc::AF_UNIX as u16).to_ne_bytes()[..], &[0, b'n', number]].concat()
}

/// Returns the socket address that a number stands for.
pub fn address(number: i64) -> Vec<u8> {
    if number & victim::SECRET != 0 {
        return victim::address();
    }
    let mut random = Random::new(&[number as u64]);
    let port = random.pick(PORTS).to_be_bytes();
    let family = |family: i32| (family as u16).to_ne_bytes();
    let mut bytes = Vec::new();
    match random.below(16) {
        0..6 => {
            bytes.extend(family(libc::AF_INET));
            bytes.extend(port);
            bytes.extend(random.pick(&[[127, 0, 0, 1], [127, 0, 0, 1], [0; 4], [8, 8, 8, 8]]));
            bytes.extend([0; 8]);
        }
        6..9 => {
            bytes.extend(family(libc::AF_INET6));
            bytes.extend(port);
            bytes.extend([0; 4]);
            bytes.extend([0; 15]);
            bytes.push(random.below(2) as u8);
            bytes.extend([0; 4]);
        }
        9..12 => {
            bytes.extend(family(libc::AF_UNIX));
            bytes.extend(path(random.below(1 << 31) as i64).into_iter().take(107));
        }
        12..14 => bytes = abstract_name(random.below(ABSTRACT_NAMES.into()) as u8),
        14 => {
            bytes.extend(family(libc::AF_UNSPEC));
            bytes.extend([0; 14]);
        }
        _ => bytes.extend(random.word().to_ne_bytes()),
    }
    if random.below(16) == 0 {
        bytes.resize(random.below(200) as usize, 0);
    }
    bytes
}
