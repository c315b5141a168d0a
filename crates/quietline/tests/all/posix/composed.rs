//! Calls that are made of several system calls, the same for each side.

use crate::posix::arg::{At, CWD, Fd, Mode, Open, Rename, Text, Unlink};
use crate::posix::call::Call;
use crate::posix::outcome::{
    Body, Dent, Descriptor, Event, Name, Node, Outcome, STATX_BASIC, Stat, checksum,
};
use crate::posix::sys::Actor;

/// Makes any call but `Fork`.
pub(crate) fn call(actor: &mut dyn Actor, call: &Call) -> Outcome {
    match *call {
        Call::Getdents { fd, size } => match names(actor, fd, size) {
            Ok((names, resumes)) => Outcome::Names { names, resumes },
            Err(errno) => Outcome::Failed(errno),
        },
        Call::Sweep { fd, size } => {
            sweep(actor, fd, size).map_or_else(Outcome::Failed, Outcome::Swept)
        }
        Call::Churn { fd, size } => {
            churn(actor, fd, size).map_or_else(Outcome::Failed, Outcome::Swept)
        }
        Call::Tree {} => {
            let mut nodes = Vec::new();
            match tree(actor, CWD, "/", "/", &mut nodes) {
                Ok(()) => Outcome::Tree(nodes),
                Err(errno) => Outcome::Failed(errno),
            }
        }
        Call::Events {} => events(actor).map_or_else(Outcome::Failed, Outcome::Events),
        Call::Fds {} => Outcome::Fds(descriptors(actor)),
        ref basic => actor.call(basic),
    }
}

fn number(outcome: Outcome) -> Result<i64, i32> {
    match outcome {
        Outcome::Done(number) => Ok(number),
        Outcome::Failed(errno) => Err(errno),
        other => panic!("a call that gives a number gave {other:?}"),
    }
}

fn bytes(outcome: Outcome) -> Result<Vec<u8>, i32> {
    match outcome {
        Outcome::Bytes(bytes) => Ok(bytes),
        Outcome::Failed(errno) => Err(errno),
        other => panic!("a call that gives bytes gave {other:?}"),
    }
}

fn stat(outcome: Outcome) -> Result<Stat, i32> {
    match outcome {
        Outcome::Stat(stat) => Ok(*stat),
        Outcome::Failed(errno) => Err(errno),
        other => panic!("a call that gives attributes gave {other:?}"),
    }
}

fn seek(actor: &mut dyn Actor, fd: Fd, offset: i64, whence: i32) -> Result<i64, i32> {
    number(actor.call(&Call::Lseek { fd, offset, whence }))
}

/// Far more reads than any directory here takes: a directory without an end is a fault, not a hang.
const READS: usize = 100_000;

fn rest(actor: &mut dyn Actor, fd: Fd, size: usize) -> Result<Vec<Dent>, i32> {
    let mut all = Vec::new();
    for _ in 0..READS {
        let some = actor.dents(fd.0, size)?;
        if some.is_empty() {
            return Ok(all);
        }
        all.extend(some);
    }
    panic!("the directory has no end: {:?}", &all[..20]);
}

fn names(actor: &mut dyn Actor, fd: Fd, size: usize) -> Result<(Vec<Name>, bool), i32> {
    seek(actor, fd, 0, libc::SEEK_SET)?;
    let all = match rest(actor, fd, size) {
        Ok(all) => all,
        Err(errno) => {
            seek(actor, fd, 0, libc::SEEK_SET)?;
            return Err(errno);
        }
    };
    let mut resumes = true;
    for middle in [all.len() / 2, all.len().saturating_sub(1)] {
        let Some(dent) = all.get(middle) else { continue };
        resumes &= seek(actor, fd, dent.next, libc::SEEK_SET) == Ok(dent.next);
        let after = rest(actor, fd, size)?;
        resumes &= after == all[middle + 1..];
    }
    seek(actor, fd, 0, libc::SEEK_SET)?;
    let names =
        all.into_iter().map(|dent| Name { name: dent.name, kind: dent.kind, ino: dent.ino });
    Ok((names.collect(), resumes))
}

/// Whether every name fits into a buffer of this size: else how far a read gets depends on the order of names, which is
/// each side's own. Then the position is the start.
fn all_fit(actor: &mut dyn Actor, fd: Fd, size: usize) -> Result<(), i32> {
    seek(actor, fd, 0, libc::SEEK_SET)?;
    let all = rest(actor, fd, size);
    seek(actor, fd, 0, libc::SEEK_SET)?;
    all.map(drop)
}

fn sweep(actor: &mut dyn Actor, fd: Fd, size: usize) -> Result<Vec<(Vec<u8>, i32)>, i32> {
    all_fit(actor, fd, size)?;
    let mut all = Vec::new();
    for _ in 0..READS {
        let some = actor.dents(fd.0, size)?;
        if some.is_empty() {
            break;
        }
        for dent in some {
            if dent.name == b"." || dent.name == b".." {
                continue;
            }
            let path = Text(dent.name.clone());
            let flags =
                Unlink(if dent.kind == libc::DT_DIR { libc::AT_REMOVEDIR as u64 } else { 0 });
            let removed = number(actor.call(&Call::Unlinkat { at: fd, path, flags }));
            all.push((dent.name, removed.err().unwrap_or(0)));
        }
    }
    seek(actor, fd, 0, libc::SEEK_SET)?;
    all.sort();
    Ok(all)
}

/// What is there all the time is read once, whatever comes and goes meanwhile.
fn churn(actor: &mut dyn Actor, fd: Fd, size: usize) -> Result<Vec<(Vec<u8>, i32)>, i32> {
    all_fit(actor, fd, size)?;
    let mut all = Vec::new();
    for _ in 0..READS {
        let some = actor.dents(fd.0, size)?;
        if some.is_empty() {
            break;
        }
        all.extend(some.into_iter().map(|dent| (dent.name, 0)));
        let [made, moved] = ["churn", "churn as well"].map(Text::from);
        let path = made.clone();
        let make =
            Call::Mknodat { at: fd, path, mode: Mode(libc::S_IFREG | 0o600), major: 0, minor: 0 };
        if number(actor.call(&make)).is_ok() {
            let to = moved.clone();
            let rename = Call::Renameat2 { from: fd, old: made, to: fd, new: to, flags: Rename(0) };
            number(actor.call(&rename))?;
            number(actor.call(&Call::Unlinkat { at: fd, path: moved, flags: Unlink(0) }))?;
        }
    }
    seek(actor, fd, 0, libc::SEEK_SET)?;
    all.sort();
    Ok(all)
}

/// Adds `path`, which is `name` in `at`, and all below it.
fn tree(
    actor: &mut dyn Actor,
    at: Fd,
    name: &str,
    path: &str,
    nodes: &mut Vec<Node>,
) -> Result<(), i32> {
    let text = Text::from_latin(name);
    let flags = At(libc::AT_SYMLINK_NOFOLLOW as u64);
    let stat = stat(actor.call(&Call::Statx { at, path: text.clone(), flags, mask: STATX_BASIC }))?;
    let kind = stat.mode & libc::S_IFMT;
    let place = nodes.len();
    nodes.push(Node { path: path.to_owned(), stat, body: Ok(Body::Nothing), xattrs: Vec::new() });
    match kind {
        libc::S_IFLNK => {
            let body = bytes(actor.call(&Call::Readlinkat { at, path: text, size: 5000 }));
            nodes[place].body = body.map(|body| Body::Link(body.escape_ascii().to_string()));
        }
        libc::S_IFREG | libc::S_IFDIR => {
            let how = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NOATIME | libc::O_NONBLOCK;
            let open = Call::Openat { at, path: text, flags: Open(how as u64), mode: Mode(0) };
            match number(actor.call(&open)) {
                Err(errno) => nodes[place].body = Err(errno),
                Ok(fd) => {
                    let fd = Fd(fd as i32);
                    nodes[place].xattrs = xattrs(actor, fd);
                    let below = if kind == libc::S_IFREG {
                        nodes[place].body = data(actor, fd).map(Body::Data);
                        Ok(())
                    } else {
                        directory(actor, fd, path, place, nodes)
                    };
                    number(actor.call(&Call::Close { fd }))?;
                    below?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Removes all that the overseer finds.
pub(crate) fn empty(actor: &mut dyn Actor) {
    let mut nodes = Vec::new();
    tree(actor, CWD, "/", "/", &mut nodes).expect("root reads everything");
    // What is below comes after, so it goes first. (Paths are short enough: programs could make them.)
    for node in nodes.iter().skip(1).rev() {
        let directory = node.stat.mode & libc::S_IFMT == libc::S_IFDIR;
        let flags = Unlink(if directory { libc::AT_REMOVEDIR as u64 } else { 0 });
        let path = Text::from_latin(&node.path);
        let removed = number(actor.call(&Call::Unlinkat { at: CWD, path, flags }));
        assert_eq!(removed, Ok(0), "root removes everything, and so {}", node.path);
    }
}

fn directory(
    actor: &mut dyn Actor,
    fd: Fd,
    path: &str,
    place: usize,
    nodes: &mut Vec<Node>,
) -> Result<(), i32> {
    let (names, _) = names(actor, fd, 32768)?;
    let mut below: Vec<String> = names
        .iter()
        .filter(|name| name.name != b"." && name.name != b"..")
        .map(|name| Text(name.name.clone()).latin())
        .collect();
    below.sort();
    nodes[place].body = Ok(Body::Names(names));
    for name in below {
        let path = if path == "/" { format!("/{name}") } else { format!("{path}/{name}") };
        tree(actor, fd, &name, &path, nodes)?;
    }
    Ok(())
}

/// In the last page that a file can have Linux finds no data, and the end of what begins before it is a negative number: what
/// comes after an offset in that page is beyond its numbers.
const LAST_PAGE: i64 = i64::MAX - 4095;

/// Data between holes: at most 16 pieces, of which the first 64 KiB are read; not in the last page.
fn data(actor: &mut dyn Actor, fd: Fd) -> Result<Vec<(i64, i64, u64)>, i32> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    while pieces.len() < 16 {
        let start = match seek(actor, fd, at, libc::SEEK_DATA) {
            Ok(start) if start < LAST_PAGE => start,
            Ok(_) | Err(libc::ENXIO) => break,
            Err(errno) => return Err(errno),
        };
        let end = match seek(actor, fd, start, libc::SEEK_HOLE)? {
            end @ ..LAST_PAGE if end > start => end,
            _ => LAST_PAGE,
        };
        let length = (end - start).min(65536) as usize;
        let content = bytes(actor.call(&Call::Pread { fd, length, offset: start }))?;
        pieces.push((start, end, checksum(&content)));
        at = end;
    }
    Ok(pieces)
}

fn xattrs(actor: &mut dyn Actor, fd: Fd) -> Vec<(String, String)> {
    let list = match bytes(actor.call(&Call::Flistxattr { fd, size: 65536 })) {
        Ok(list) => list,
        Err(errno) => return vec![("list".to_owned(), errno.to_string())],
    };
    let names = list.split(|&b| b == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8], actor: &mut dyn Actor| match bytes(actor.call(&Call::Fgetxattr {
        fd,
        name: Text(name.to_vec()),
        size: 65536,
    })) {
        Ok(value) => format!("{} bytes, {:x}", value.len(), checksum(&value)),
        Err(errno) => format!("errno {errno}"),
    };
    let mut all: Vec<(String, String)> =
        names.map(|name| (name.escape_ascii().to_string(), value(name, actor))).collect();
    all.sort();
    all
}

fn events(actor: &mut dyn Actor) -> Result<Vec<Event>, i32> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 16384]);
    loop {
        let length = match actor.events(&mut buffer) {
            Err(libc::EAGAIN) => return Ok(all),
            read => read?,
        };
        let mut rest = &buffer[..length];
        while let Some((head, after)) = rest.split_first_chunk::<16>() {
            let word = |n: usize| {
                u32::from_ne_bytes(head[4 * n..4 * n + 4].try_into().expect("four bytes"))
            };
            let (padded, next) = after.split_at(word(3) as usize);
            let name = padded.split(|&b| b == 0).next().unwrap_or_default().to_vec();
            assert_eq!(
                padded.len(),
                if name.is_empty() { 0 } else { (name.len() + 1).next_multiple_of(16) }
            );
            all.push(Event { wd: word(0) as i32, mask: word(1), cookie: word(2), name });
            rest = next;
        }
        assert!(rest.is_empty(), "whole events");
    }
}

/// Programs open no descriptor from here on.
const DESCRIPTORS: i32 = 40;

fn descriptors(actor: &mut dyn Actor) -> Vec<Descriptor> {
    let mut all = Vec::new();
    for fd in 0..DESCRIPTORS {
        let fd = Fd(fd);
        let Ok(fd_flags) = number(actor.call(&Call::Getfd { fd })) else { continue };
        all.push(Descriptor {
            fd: fd.0,
            fd_flags,
            status: number(actor.call(&Call::Getfl { fd })).unwrap_or(-1),
            position: seek(actor, fd, 0, libc::SEEK_CUR),
            stat: stat(actor.call(&Call::Fstat { fd })),
        });
    }
    all
}

impl Text {
    /// One character for each byte.
    fn latin(&self) -> String {
        self.0.iter().map(|&b| char::from(b)).collect()
    }

    fn from_latin(text: &str) -> Text {
        Text(text.chars().map(|c| c as u8).collect())
    }
}
