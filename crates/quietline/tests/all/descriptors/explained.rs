//! The differences that are meant, or not mended yet.

/// Differences that have one reason.
pub(crate) struct Reason {
    #[expect(dead_code, reason = "for readers")]
    pub(crate) why: &'static str,
    /// Whether cases differ on every host, and as long as this stays here.
    pub(crate) everywhere: bool,
    pub(crate) differences: &'static [Difference],
}

/// Cases that differ.
#[derive(Debug)]
pub(crate) struct Difference {
    call: &'static str,
    /// A part of the case's name, usually of the kind's.
    kind: &'static str,
    /// The end of the case's name: its last arguments.
    end: &'static str,
    /// A part of the difference.
    how: &'static str,
}

impl Difference {
    pub(crate) fn explains(&self, case: &str, how: &str) -> bool {
        case.split(' ').next() == Some(self.call)
            && case.contains(self.kind)
            && case.ends_with(self.end)
            && how.contains(self.how)
    }
}

macro_rules! explained {
    ($($why:literal $everywhere:literal:
        $([$call:literal, $kind:literal, $end:literal, $how:literal])*;)*) => {
        &[$(Reason {
            why: $why,
            everywhere: $everywhere,
            differences: &[$(Difference { call: $call, kind: $kind, end: $end, how: $how }),*],
        }),*]
    };
}

pub(crate) const EXPLAINED: &[Reason] = explained! {
    "There are no urgent data: to send or to receive some is EOPNOTSUPP in every state." true:
        ["sendto", "", " N(1)", "quietline Operation not supported"]
        ["sendmsg", "", " N(1)", "quietline Operation not supported"]
        ["sendmmsg", "", " N(1)", "quietline Operation not supported"]
        ["recvfrom", "", " N(1)", "quietline Operation not supported"]
        ["recvmsg", "", " N(1)", "quietline Operation not supported"]
        ["recvmmsg", "", " N(1)", "quietline Operation not supported"]
        ["recvfrom", "tcp, listening", " N(1)", "quietline Invalid argument"]
        ["recvmsg", "tcp, listening", " N(1)", "quietline Invalid argument"]
        ["recvmmsg", "tcp, listening", " N(1)", "quietline Invalid argument"]
        ["ioctl", "local stream, listening, with a connection", " N(35077)", "memory"];
    "statx tells all that is known, whatever the mask is. (Hosts before 6.13 do so, too.)" false:
        ["statx", "", "", "memory at 0x1000: host [63, 7,"];
    "A memfd takes O_DIRECT." true:
        ["fcntl", "memfd", "", "host Invalid argument"];
    "Generated directories have two links, and blocks of 4096 bytes." true:
        ["fstat", "of /proc", "", "memory at 0x10"]
        ["newfstatat", "of /proc", "", "memory at 0x10"]
        ["statx", "of /proc", "", "memory at 0x10"];
    "Files of /proc have no extended attributes; the order of the errors differs." true:
        ["fsetxattr", "directory of /proc\" Text(\"user.\")", "",
            "host Permission denied (os error 13), quietline Invalid argument"]
        ["fsetxattr", "directory of /proc", "",
            "host Permission denied (os error 13), quietline Operation not supported"]
        ["fsetxattr", "file of /proc\" Text(\"user.\")", "",
            "host Operation not supported (os error 95), quietline Invalid argument"]
        ["fgetxattr", "of /proc\" Text(\"user.\")", "",
            "host Operation not supported (os error 95), quietline Invalid argument"]
        ["fgetxattr", "of /proc", "",
            "host Operation not supported (os error 95), quietline No data available"]
        ["fremovexattr", "directory of /proc\" Text(\"user.\")", "",
            "host Permission denied (os error 13), quietline Invalid argument"]
        ["fremovexattr", "directory of /proc", "",
            "host Permission denied (os error 13), quietline Operation not supported"]
        ["fremovexattr", "file of /proc\" Text(\"user.\")", "",
            "host Operation not supported (os error 95), quietline Invalid argument"];
    "A number in /proc/sys is read on from any offset. The host has an end at offset 1." true:
        ["pread64", "file of /proc", " N(2)", "host 0, quietline 4"]
        ["pread64", "file of /proc", " N(9223372036854775807)",
            "host Invalid argument (os error 22), quietline 0"]
        ["preadv", "file of /proc", " N(2)", "host 0, quietline 4"]
        ["sendfile", "\"file of /proc\"", " Words([2]) N(8)", "host 0, quietline 4"]
        ["splice", "splice \"file of /proc\"", "", "host 0, quietline 4"];
    "Files of /proc have no end, and no data or holes, to seek." true:
        ["lseek", "of /proc", " N(0) N(2)", "host 0, quietline Invalid argument"]
        ["lseek", "of /proc", " N(3)",
            "host No such device or address (os error 6), quietline Invalid argument"]
        ["lseek", "of /proc", " N(4)",
            "host No such device or address (os error 6), quietline Invalid argument"];
    "The same with two arguments that are not the ordinary ones, where the grid has them." false:
        ["lseek", "of /proc", " N(2) N(2)", "host 2, quietline Invalid argument"]
        ["lseek", "file of /proc", " N(9223372036854775807) N(2)",
            "host 9223372036854775807, quietline Invalid argument"]
        ["lseek", "file of /proc", " N(-1) N(4)", "host 0, quietline Invalid argument"]
        ["lseek", "file of /proc", " N(-9223372036854775808) N(4)",
            "host 0, quietline Invalid argument"];
    "A directory of /proc has a position as large as any." true:
        ["lseek", "directory of /proc", "",
            "host Invalid argument (os error 22), quietline 9223372036854775807"];
    "Root may search and write a directory of /proc, in which it can make nothing." true:
        ["faccessat2", "directory of /proc", "", "host Permission denied"]
        ["mkdirat", "directory of /proc", "", "quietline Operation not permitted"]
        ["mknodat", "directory of /proc", "", "quietline Operation not permitted"]
        ["symlinkat", "directory of /proc", "", "quietline Operation not permitted"]
        ["openat", "directory of /proc", "", "quietline Operation not"]
        ["openat2", "directory of /proc", "", "quietline Operation not permitted"];
};
