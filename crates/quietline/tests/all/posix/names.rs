//! The few values that arguments are drawn from: few, so that calls meet each other.

/// Majors and minors of device nodes: no driver has them. (60 and 61 are set aside for experiments; the node of 0, 0
/// has no driver by definition.)
pub(crate) const DEVICES: &[(u32, u32)] = &[(60, 5), (61, 70_000), (0, 0)];

/// Users, and the groups of the same numbers. The first is root.
pub(crate) const USERS: &[u32] = &[0, 1000, 1001];

/// Names of files.
pub(crate) const NAMES: &[&str] = &["a", "b", "c", "d", "e"];

/// Permissions.
pub(crate) const MODES: &[u32] = &[
    0o755, 0o644, 0o777, 0o666, 0o700, 0o600, 0o711, 0o000, 0o1777, 0o2755, 0o2775, 0o4755, 0o6777,
    0o2644, 0o444, 0o070, 0o007, 0o333, 0o500,
];

/// Where pages and words end.
pub(crate) const OFFSETS: &[i64] =
    &[0, 1, 2, 100, 4095, 4096, 4097, 8191, 8192, 12288, 16384, 65536, 1 << 20, (1 << 21) - 1];

/// What hardly any file has.
pub(crate) const FAR_OFFSETS: &[i64] = &[
    -1,
    -4096,
    i64::MIN,
    i64::MAX,
    i64::MAX - 1,
    i64::MAX - 4095,
    i64::MAX - 4096,
    i64::MAX - 65536,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 40,
    (1 << 44) - 4096,
    1 << 44,
    (1 << 51) + 1,
    (1 << 62) - 1,
    1 << 62,
];

/// Lengths of reads and writes.
pub(crate) const LENGTHS: &[usize] =
    &[0, 1, 2, 10, 100, 4095, 4096, 4097, 8192, 10_000, 20_000, 70_000];

/// Names of extended attributes. (Access control lists are not here: quietline has none, and says so.)
pub(crate) const XATTRS: &[&str] = &[
    "user.a",
    "trusted.a",
    "user.b",
    "user.c",
    "security.a",
    "system.a",
    "nosuch.a",
    "a",
    "user.",
    "trusted.",
    "",
    "security.",
    "User.a",
    "user.a.b",
    "security.capability",
    "system.posix_acl_access",
    "system.posix_acl_default",
];
