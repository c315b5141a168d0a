//! Every call of `Process` that takes a descriptor, on every kind of descriptor, with ordinary,
//! boundary and invalid arguments, compared with the host's kernel call by call: the value or the
//! error, the memory that the call writes, and what the descriptor's file is like afterwards.
//!
//! [`calls`] lists the arguments of each call as data, and [`kinds`] the kinds of descriptors.
//! Cases are generated from both. [`explained`] lists the differences that are meant.
#![allow(unsafe_code, reason = "the host's calls")]
#![allow(non_upper_case_globals, reason = "names of the C library")]
#![cfg(target_arch = "x86_64")]

mod calls;
mod complete;
mod explained;
mod host;
mod kinds;
mod ours;
mod room;
mod sequences;
mod system;

use calls::{Arg, CALLS, Call};
use explained::EXPLAINED;
use host::Host;
use kinds::{KINDS, Kind, NAMES, Second};
use libc::*;
use ours::Ours;
use room::Room;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::thread;
use std::time::Duration;
use system::{NOFILE, Outcome, System};

/// A call has all combinations of its arguments up to this number; beyond it, all in which at most
/// one argument is not the ordinary one, and every [`STRIDE`]th of those in which two are not.
const COMBINATIONS: usize = 12;

/// The step by which combinations of two arguments are thinned.
const STRIDE: usize = 40;

/// Threads that share the cases: many, as the host sleeps where it closes an inotify instance.
const THREADS: usize = 8;

/// A call with its arguments, on one kind of descriptor or on two.
struct Case {
    call: &'static Call,
    args: Vec<Arg>,
    kind: &'static Kind,
    other: Option<&'static Kind>,
}

impl Case {
    /// Returns `true` if the case changes what all programs of the host share: locks on the anonymous
    /// inode, and times of files of `/proc`.
    fn is_shared(&self) -> bool {
        match self.call.number {
            SYS_flock | SYS_fcntl => true,
            SYS_utimensat => self.kind.name.ends_with("of /proc"),
            _ => false,
        }
    }

    /// The case in a line, by which the list of explained differences finds it.
    fn name(&self) -> String {
        let mut name =
            format!("{} {:?}", self.call.name.trim_start_matches("SYS_"), self.kind.name);
        if let Some(other) = self.other {
            let _ = write!(name, " {:?}", other.name);
        }
        for (params, arg) in self.call.params.iter().zip(&self.args) {
            let many = format!("{:?}", [0; 1025]);
            let arg =
                format!("{arg:?}").replace("18446744073709551615", "-1").replace(&many, "1025");
            if params.len() > 1 {
                let _ = write!(name, " {arg}");
            }
        }
        name
    }
}

/// The combinations of a call's arguments: the numbers of those that each parameter gets. The first
/// one is the ordinary one.
fn combinations(params: &[&[Arg]]) -> Vec<Vec<usize>> {
    let ordinary = vec![0; params.len()];
    let with = |at: usize, n: usize, combination: &[usize]| {
        let mut combination = combination.to_vec();
        combination[at] = n;
        combination
    };
    if params.iter().map(|args| args.len()).product::<usize>() <= COMBINATIONS {
        let mut list = vec![ordinary];
        for (at, args) in params.iter().enumerate() {
            let more = list.iter().flat_map(|base| (1..args.len()).map(move |n| with(at, n, base)));
            let more: Vec<_> = more.collect();
            list.extend(more);
        }
        return list;
    }
    let numbers = |at: usize| 1..params[at].len();
    let all = 0..params.len();
    let ones = all.clone().flat_map(|at| numbers(at).map(move |n| (at, n)));
    let mut list = vec![ordinary.clone()];
    list.extend(ones.clone().map(|(at, n)| with(at, n, &ordinary)));
    let pairs = ones.clone().flat_map(|one| ones.clone().map(move |two| (one, two)));
    let pairs = pairs.filter(|((one, _), (two, _))| one < two);
    let stride = quietline_testing::stride(STRIDE);
    list.extend(
        pairs.step_by(stride).map(|((one, n), (two, m))| with(two, m, &with(one, n, &ordinary))),
    );
    list
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for call in CALLS {
        let two = call.params.iter().any(|args| matches!(args[0], Arg::Other));
        let seconds = KINDS.iter().filter(|kind| kind.second != Second::Never);
        let others: Vec<_> = if two { seconds.map(Some).collect() } else { vec![None] };
        for (n, combination) in combinations(call.params).iter().enumerate() {
            for kind in KINDS.iter().filter(|kind| kind.has(call.number)) {
                let few = |other: &&Option<&Kind>| {
                    n == 0 || other.is_none_or(|other| other.second == Second::Always)
                };
                for other in others.iter().filter(few) {
                    let args =
                        call.params.iter().zip(combination).map(|(args, n)| args[*n]).collect();
                    cases.push(Case { call, args, kind, other: *other });
                }
            }
        }
    }
    cases
}

/// The words that an argument becomes.
fn words(s: &dyn System, arg: Arg, at: i32, other: i32, to: &mut Vec<i64>) {
    let room = s.room();
    match arg {
        Arg::At => to.push(at.into()),
        Arg::Other => to.push(other.into()),
        Arg::Epoll => to.push(s.must(SYS_epoll_create1, &[0])),
        Arg::N(n) => to.push(n),
        Arg::In => to.push(room.source()),
        Arg::Out => to.push(room.target()),
        Arg::Text(text) => to.push(room.text(0, text)),
        Arg::Text2(text) => to.push(room.text(1, text)),
        Arg::Words(words) => to.push(room.structure(0, words)),
        Arg::Words2(words) => to.push(room.structure(1, words)),
        Arg::Length(length) => to.push(room.length(length)),
        Arg::From(lengths) => {
            to.extend([room.buffers(room.source(), lengths), lengths.len() as i64])
        }
        Arg::Into(lengths) => {
            to.extend([room.buffers(room.target(), lengths), lengths.len() as i64])
        }
        Arg::Address(words, len) => to.extend([room.structure(0, words), len]),
        Arg::Two(one, two) => to.extend([one, two]),
        Arg::Poll(events) => {
            to.extend([room.structure(0, &[u64::from(at as u32) | u64::from(events) << 32]), 1]);
        }
        Arg::Sets => {
            let mut set = [0; NOFILE / 64];
            let at = usize::try_from(at).unwrap_or(NOFILE);
            if let Some(word) = set.get_mut(at / 64) {
                *word |= 1 << (at % 64);
            }
            let size = (NOFILE / 8) as i64;
            let sets = room.structure(0, &[set, set, set].concat());
            to.extend([NOFILE as i64, sets, sets + size, sets + 2 * size]);
        }
        Arg::Send(name, lengths, control) => {
            let buffers = room.buffers(room.source(), lengths);
            to.push(message(room, name, (buffers, lengths.len()), control));
        }
        Arg::SendAt => {
            let buffers = room.buffers(room.source(), &[8]);
            to.push(message(room, &[], (buffers, 1), &[20, 1 | 1 << 32, u64::from(at as u32)]));
        }
        Arg::Receive(name, lengths, control) => {
            let buffers = room.buffers(room.target(), lengths);
            let name_at = if name == 0 { 0 } else { room.structure(0, &[0]) };
            let control_at = if control == 0 { 0 } else { room.control(&[0]) };
            let header = [
                name_at as u64,
                name,
                buffers as u64,
                lengths.len() as u64,
                control_at as u64,
                control,
                0,
                0,
            ];
            to.push(room.message(&header));
        }
    }
}

fn message(room: &Room, name: &[u64], buffers: (i64, usize), control: &[u64]) -> i64 {
    let name_at = if name.is_empty() { 0 } else { room.structure(0, name) };
    let control_at = if control.is_empty() { 0 } else { room.control(control) };
    // A control message is as long as it says, or as the room for it.
    let length = if control.is_empty() { 0 } else { (control.len() * 8) as u64 };
    room.message(&[
        name_at as u64,
        (name.len() * 8) as u64,
        buffers.0 as u64,
        buffers.1 as u64,
        control_at as u64,
        length,
        0,
        0,
    ])
}

/// Blanks out what may differ in the memory that a call has written: ports, counts of blocks, and the
/// present time. Numbers of devices and inodes are reduced to whether they are zero.
fn normalise(s: &dyn System, number: i64, args: &[i64]) {
    let room = s.room();
    let blank = |at: i64, ranges: &[(i64, usize)]| {
        ranges.iter().for_each(|(from, len)| room.put(at + from, &[0; 64][..*len]));
    };
    // Whether there is anything, where the amount may differ.
    let flag = |at: i64| {
        let word = room.word(at);
        room.put(at, &u64::from(word != 0).to_ne_bytes());
    };
    match number {
        SYS_fstat | SYS_newfstatat => {
            let at = if number == SYS_fstat { args[1] } else { args[2] };
            [0, 8].iter().for_each(|field| flag(at + field));
            blank(at, &[(72, 48)]);
        }
        SYS_statx => {
            let at = args[4];
            room.put(at, &(room.int(at) & 0x7ff).to_ne_bytes());
            [32, 136].iter().for_each(|field| flag(at + field));
            blank(at, &[(8, 8), (56, 8), (64, 64), (128, 8), (144, 48), (192, 64)]);
        }
        SYS_fstatfs => {
            let at = args[1];
            // Sizes and flags are the mount's, but of pseudo file systems.
            flag(at + 56);
            if [libc::TMPFS_MAGIC as u64, 0x9fa0].contains(&room.word(at)) {
                blank(at, &[(16, 48), (80, 8)]);
            }
        }
        SYS_getsockname | SYS_getpeername | SYS_accept4 => {
            // An automatic name of a local socket, or a port.
            match room.int(args[1]) as u16 as i32 {
                AF_UNIX => blank(args[1], &[(2, 8)]),
                AF_INET | AF_INET6 => blank(args[1], &[(2, 2)]),
                _ => {}
            }
        }
        // The rest of the time.
        SYS_ppoll => blank(args[2], &[(0, 16)]),
        SYS_recvfrom if args[4] != 0 => blank(args[4], &[(2, 8)]),
        SYS_recvmsg if room.word(args[1]) != 0 => blank(room.structure_at(), &[(2, 2)]),
        SYS_timerfd_gettime => [16, 24].iter().for_each(|field| flag(args[1] + field)),
        SYS_timerfd_settime if args[3] != 0 => {
            [16, 24].iter().for_each(|field| flag(args[3] + field))
        }
        SYS_getdents64 => blank(args[1], &[(0, 64), (64, 64), (128, 64), (192, 64)]),
        _ => {}
    }
}

/// The compared attributes of a descriptor's file after a call: mode and owner, group, links, size,
/// flags, and times that the case has set. (Times of a new pipe or socket are left to chance.)
fn file_of(s: &dyn System, fd: i32) -> [Outcome; 8] {
    let at = s.room().target();
    let stat = s.call(SYS_fstat, &[fd.into(), at]);
    let field = |offset: i64| stat.map(|_| s.room().word(at + offset) as i64);
    let time =
        |offset: i64| field(offset).map(|seconds| if seconds < 1_000_000 { seconds } else { 0 });
    [
        field(24),
        field(32),
        field(16),
        field(48),
        time(72),
        time(88),
        s.call(SYS_fcntl, &[fd.into(), F_GETFL.into(), 0]),
        s.call(SYS_fcntl, &[fd.into(), F_GETFD.into(), 0]),
    ]
}

/// A system, and how its working directory becomes that of its cases again.
struct Side<'a> {
    system: &'a dyn System,
    enter: &'a dyn Fn(),
    owner: [u32; 2],
}

/// A case's outcome on one system.
struct Done {
    outcome: Outcome,
    after: [Outcome; 8],
}

impl Side<'_> {
    /// Makes what the case needs, and its call.
    fn begin(&self, case: &Case) -> (Outcome, i32) {
        let s = self.system;
        s.room().clear();
        let at = (case.kind.make)(s);
        let other = case.other.map_or(0, |kind| (kind.make)(s));
        // What constructors have left there.
        s.room().clear();
        let mut args = Vec::new();
        case.args.iter().for_each(|arg| words(s, *arg, at, other, &mut args));
        let outcome = s.call(case.call.number, &args);
        if outcome.is_ok() {
            normalise(s, case.call.number, &args);
        }
        (outcome, at)
    }

    /// Removes what the case has made.
    fn end(&self) {
        let s = self.system;
        s.must(SYS_close_range, &[3, i64::from(u32::MAX), 0]);
        s.room().clear();
        (self.enter)();
        // A call of the working directory may have changed it.
        let own = s.room().text(0, ".");
        s.must(
            SYS_fchownat,
            &[AT_FDCWD.into(), own, self.owner[0].into(), self.owner[1].into(), 0],
        );
        s.must(SYS_fchmodat2, &[AT_FDCWD.into(), own, 0o755, 0]);
        for (name, flags) in NAMES {
            let path = s.room().text(0, name);
            let _ = s.call(SYS_unlinkat, &[AT_FDCWD.into(), path, (*flags).into()]);
        }
    }
}

/// The difference between the systems in a case, if there is one; else the outcome.
fn compare(case: &Case, sides: &[Side<'_>; 2]) -> Result<Outcome, String> {
    let begun = [0, 1].map(|n| sides[n].begin(case));
    let memory = sides[0].system.room().difference(sides[1].system.room());
    let done =
        [0, 1].map(|n| Done { outcome: begun[n].0, after: file_of(sides[n].system, begun[n].1) });
    sides.iter().for_each(Side::end);
    let [mut host, mut ours] = done;
    if case.kind.name == "directory of /proc" {
        // Links: one on the host, two here.
        host.after[2] = ours.after[2];
    }
    // A time that the call leaves is, of a socket, that of an earlier one on the host.
    let leaves = case.args.iter().any(|arg| match arg {
        Arg::Words(words) => words.contains(&(UTIME_OMIT as u64)),
        _ => false,
    });
    if case.call.number != SYS_utimensat || host.outcome.is_err() || leaves {
        host.after[4..6].fill(Ok(0));
        ours.after[4..6].fill(Ok(0));
    }
    if host.outcome != ours.outcome {
        let shown = [host.outcome, ours.outcome].map(show);
        return Err(format!("host {}, quietline {}", shown[0], shown[1]));
    }
    if let Some(memory) = memory {
        return Err(memory);
    }
    if host.after != ours.after {
        return Err(format!("afterwards: host {:?}, quietline {:?}", host.after, ours.after));
    }
    Ok(host.outcome)
}

fn show(outcome: Outcome) -> String {
    match outcome {
        Ok(value) => value.to_string(),
        Err(errno) => quietline::Errno::from_raw_os_error(errno).to_string(),
    }
}

/// The results of one thread's cases.
#[derive(Default)]
struct CaseResults {
    /// Cases that differ, and how.
    differ: Vec<(String, String)>,
    /// By kind: cases that succeed, that fail with `EBADF`, and that fail otherwise.
    counts: BTreeMap<&'static str, [u32; 3]>,
}

fn run<'a>(cases: impl Iterator<Item = &'a Case>) -> CaseResults {
    // SAFETY: asks for numbers.
    let owner = unsafe { [geteuid(), getegid()] };
    let (host, ours) = (Host::new(), Ours::new());
    let sides = [
        Side { system: &host, enter: &|| host.enter(), owner },
        Side { system: &ours, enter: &|| ours.enter(), owner },
    ];
    let mut found = CaseResults::default();
    for case in cases {
        let mut outcome = compare(case, &sides);
        for _ in 0..5 {
            if outcome.is_ok() || !case.is_shared() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
            outcome = compare(case, &sides);
        }
        match outcome {
            Err(how) => found.differ.push((case.name(), how)),
            Ok(outcome) => {
                let at = match outcome {
                    Ok(_) => 0,
                    Err(EBADF) => 1,
                    Err(_) => 2,
                };
                found.counts.entry(case.kind.name).or_default()[at] += 1;
            }
        }
    }
    found
}

#[test]
fn every_call_on_every_kind_of_descriptor() {
    quietline_testing::isolated!();
    Host::limit_descriptors();
    let cases = cases();
    // One thread has all cases that are in each other's way.
    let of = |(n, case): &(usize, &Case)| if case.is_shared() { 0 } else { n % THREADS };
    let part = |thread| {
        let part = cases.iter().enumerate().filter(move |case| of(case) == thread);
        part.map(|(_, case)| case)
    };
    let all: Vec<CaseResults> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(part).map(|part| scope.spawn(|| run(part))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (mut counts, mut differ) = (BTreeMap::<_, [u32; 3]>::new(), Vec::new());
    for found in all {
        differ.extend(found.differ);
        for (kind, of_kind) in found.counts {
            counts.entry(kind).or_default().iter_mut().zip(of_kind).for_each(|(sum, n)| *sum += n);
        }
    }
    println!("{} cases; succeeded, EBADF, another error: {counts:#?}", cases.len());
    let known: Vec<_> = EXPLAINED
        .iter()
        .flat_map(|reason| reason.differences.iter().map(|known| (reason.everywhere, known)))
        .collect();
    let mut used = vec![0; known.len()];
    differ.retain(|(case, how)| {
        match known.iter().position(|(_, known)| known.explains(case, how)) {
            Some(known) => {
                used[known] += 1;
                false
            }
            None => true,
        }
    });
    for (case, how) in &differ {
        println!("{case}: {how}");
    }
    assert!(differ.is_empty(), "{} of {} cases differ", differ.len(), cases.len());
    for ((everywhere, known), used) in known.iter().zip(used) {
        assert!(used > 0 || !everywhere, "no case differs any more: {known:?}");
    }
    // The kinds that are open succeed with some calls; the others with none but those that take any
    // number.
    for kind in KINDS {
        let [succeeded, ..] = counts[kind.name];
        assert!(succeeded >= 20, "{kind:?}: {:?}", counts[kind.name]);
    }
}
