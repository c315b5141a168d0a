//! Options of sockets beside the host's: each option of each kind of socket, set to many values of
//! many lengths, most of them wrong, and read with room for many lengths.
#![allow(unsafe_code, reason = "the host's calls")]

use quietline::{Config, Errno, Kernel, Process};
use std::collections::BTreeMap;

const KINDS: [(&str, i32, i32); 7] = [
    ("tcp", libc::AF_INET, libc::SOCK_STREAM),
    ("tcp6", libc::AF_INET6, libc::SOCK_STREAM),
    ("udp", libc::AF_INET, libc::SOCK_DGRAM),
    ("udp6", libc::AF_INET6, libc::SOCK_DGRAM),
    ("unix stream", libc::AF_UNIX, libc::SOCK_STREAM),
    ("unix dgram", libc::AF_UNIX, libc::SOCK_DGRAM),
    ("unix seqpacket", libc::AF_UNIX, libc::SOCK_SEQPACKET),
];

/// The levels, and the options of each: those that there are here, and one that there is nowhere.
/// Left out are those of which the answer depends on the host's settings or on the rights of the
/// test (`SO_SNDBUF`, `SO_DEBUG`, `SO_PRIORITY`, `TCP_CONGESTION` and the like), `SO_RCVLOWAT` of a
/// stream, options of [`groups`], and `UDP_CORK` and `SO_PEEK_OFF`, which are only local sockets'
/// here
/// (docs/differences.md).
const LEVELS: [(i32, &[i32]); 6] = [
    (
        libc::SOL_SOCKET,
        &[2, 3, 4, 5, 6, 9, 10, 11, 13, 14, 15, 16, 17, 19, 20, 21, 30, 38, 39, 999],
    ),
    (libc::IPPROTO_IP, &[1, 2, 8, 10, 12, 13, 15, 24, 33, 34, 999]),
    (libc::IPPROTO_IPV6, &[16, 18, 19, 23, 26, 49, 67, 70, 999]),
    (libc::IPPROTO_TCP, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 18, 25, 999]),
    (libc::IPPROTO_UDP, &[999]),
    (99, &[1]),
];
/// Options that have the level of all sockets, of local sockets alone.
const UNIX: &[i32] = &[42];

const VALUES: [i32; 22] = [
    i32::MIN,
    -2,
    -1,
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    63,
    64,
    88,
    120,
    128,
    255,
    256,
    1000,
    32_767,
    65_536,
    i32::MAX,
];
const LENGTHS: [usize; 13] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 20];
const ROOM: [usize; 10] = [0, 1, 2, 3, 4, 5, 8, 11, 16, 20];

type Set = Result<(), i32>;
type Got = Result<(usize, Vec<u8>), i32>;

trait System {
    fn socket(&self, family: i32, ty: i32) -> i32;
    fn close(&self, fd: i32);
    fn set(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Set;
    fn get(&self, fd: i32, level: i32, name: i32, room: usize) -> Got;
}

struct Host;

fn done(result: i32) -> Result<i32, i32> {
    if result < 0 {
        Err(std::io::Error::last_os_error().raw_os_error().unwrap())
    } else {
        Ok(result)
    }
}

impl System for Host {
    fn socket(&self, family: i32, ty: i32) -> i32 {
        // SAFETY: no memory is passed.
        done(unsafe { libc::socket(family, ty | libc::SOCK_CLOEXEC, 0) }).unwrap()
    }

    fn close(&self, fd: i32) {
        // SAFETY: the descriptor is the test's.
        done(unsafe { libc::close(fd) }).unwrap();
    }

    fn set(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Set {
        // SAFETY: the value has as many bytes as are said.
        done(unsafe {
            libc::setsockopt(fd, level, name, value.as_ptr().cast(), value.len() as u32)
        })
        .map(drop)
    }

    fn get(&self, fd: i32, level: i32, name: i32, room: usize) -> Got {
        let (mut value, mut len) = (vec![0xa5; room + 1], room as u32);
        // SAFETY: there is room for as many bytes as are said.
        done(unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &mut len) })?;
        value.truncate(room);
        Ok((len as usize, value))
    }
}

impl System for Process {
    fn socket(&self, family: i32, ty: i32) -> i32 {
        Process::socket(self, family, ty, 0).unwrap()
    }

    fn close(&self, fd: i32) {
        Process::close(self, fd).unwrap();
    }

    fn set(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Set {
        self.setsockopt(fd, level, name, value).map_err(Errno::raw_os_error)
    }

    fn get(&self, fd: i32, level: i32, name: i32, room: usize) -> Got {
        let mut value = vec![0xa5; room];
        let len = self.getsockopt(fd, level, name, &mut value).map_err(Errno::raw_os_error)?;
        Ok((len, value))
    }
}

#[test]
fn options_of_all_lengths() {
    let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
    let ours = kernel.process().unwrap();
    let mut differ: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for (kind, family, ty) in KINDS {
        for (level, names) in LEVELS {
            let is_local = family == libc::AF_UNIX;
            let also = if is_local && level == libc::SOL_SOCKET { UNIX } else { &[] };
            // (Credentials of local sockets are the process's, which is not the host's.)
            let names = names.iter().chain(also).filter(|name| !(is_local && **name == 17));
            for &name in names {
                let mut note =
                    |what: String| differ.entry((level, name, kind)).or_default().push(what);
                let fresh = || [Host.socket(family, ty), System::socket(&ours, family, ty)];
                let get_all = |[host, own]: [i32; 2], note: &mut dyn FnMut(String), after: &str| {
                    for room in ROOM {
                        let theirs = Host.get(host, level, name, room);
                        let own = System::get(&ours, own, level, name, room);
                        if theirs != own {
                            note(format!("{after} get {room}: {theirs:?} {own:?}"));
                        }
                    }
                };
                let fds = fresh();
                get_all(fds, &mut note, "new");
                Host.close(fds[0]);
                System::close(&ours, fds[1]);
                for value in VALUES {
                    for len in LENGTHS {
                        let mut bytes = value.to_ne_bytes().to_vec();
                        bytes.resize(20, 0);
                        bytes.truncate(len);
                        let fds = fresh();
                        let theirs = Host.set(fds[0], level, name, &bytes);
                        let own = System::set(&ours, fds[1], level, name, &bytes);
                        if theirs != own {
                            note(format!("set {value} of {len}: {theirs:?} {own:?}"));
                        } else if theirs.is_ok() {
                            get_all(fds, &mut note, &format!("set {value} of {len}"));
                        }
                        Host.close(fds[0]);
                        System::close(&ours, fds[1]);
                    }
                }
            }
        }
    }
    for ((level, name, kind), what) in &differ {
        eprintln!("level {level}, option {name} of {kind}: {} differ", what.len());
        what.iter().take(3).for_each(|one| eprintln!("    {one}"));
    }
    assert!(differ.is_empty(), "{} options differ", differ.len());
}

/// An option of a group: `struct group_req` with an address of a family.
fn group_req(family: i32, at: usize, address: &[u8], len: usize) -> Vec<u8> {
    let mut value = vec![0; 136];
    value[8..10].copy_from_slice(&(family as u16).to_ne_bytes());
    value[8 + at..8 + at + address.len()].copy_from_slice(address);
    value.truncate(len);
    value
}

/// Wrong values for joining and leaving a group get the host's errors. (A right group is
/// `ENODEV` here: no device has groups.)
#[test]
fn groups() {
    let kernel = Kernel::boot(Config::default().privileged(true)).unwrap();
    let ours = kernel.process().unwrap();
    let v4 = [[0; 4], [127, 0, 0, 1], [224, 0, 0, 1]];
    let v6 = [[0; 16], [[0xff, 2], [0; 2]].concat().repeat(4).try_into().unwrap()];
    let mut cases = Vec::new();
    for group in v4 {
        for len in [7, 8, 11, 12, 13] {
            for name in [35, 36, 37, 38, 39, 40] {
                let value = [group, [0; 4], [127, 0, 0, 1], [0; 4]].concat();
                cases.push((libc::IPPROTO_IP, name, value[..len].to_vec(), group == v4[2]));
            }
        }
        for (name, family) in [(42, 2), (45, 2), (42, 10), (45, 10)] {
            let value = |len| group_req(family, 4, &group, len);
            cases.extend([135, 136].map(|len| (0, name, value(len), group == v4[2])));
        }
    }
    for group in v6 {
        for (name, len) in [(20, 19), (20, 20), (21, 19), (21, 20)] {
            let value = [&group[..], &[0; 4]].concat();
            cases.push((libc::IPPROTO_IPV6, name, value[..len].to_vec(), group == v6[1]));
        }
        for (name, family) in [(42, 10), (45, 10), (42, 2), (45, 2)] {
            let value = group_req(family, 8, &group, 136);
            cases.push((libc::IPPROTO_IPV6, name, value, group == v6[1]));
        }
    }
    for (kind, family, ty) in &KINDS[..4] {
        for (level, name, value, is_group) in &cases {
            let fds = [Host.socket(*family, *ty), System::socket(&ours, *family, *ty)];
            let theirs = Host.set(fds[0], *level, *name, value);
            let own = System::set(&ours, fds[1], *level, *name, value);
            let joins = *is_group && [20, 35, 39, 42].contains(name);
            let is_refused = joins && own == Err(libc::ENODEV) && theirs.is_ok();
            assert!(
                theirs == own || is_refused,
                "{kind} {level} {name} {value:?}: {theirs:?} {own:?}"
            );
            Host.close(fds[0]);
            System::close(&ours, fds[1]);
        }
    }
}
