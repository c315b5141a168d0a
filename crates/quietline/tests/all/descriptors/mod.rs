//! Every call that takes a descriptor, given one that was opened with `O_PATH` (of a file, a directory, a fifo, a link) and one that is closed,
//! beside the host: what it says, and which error comes first where several would do. One that is open on a fifo or a directory in the
//! ordinary way shows that the calls are what they are meant to be.
//!
//! A call is a row of a table ([`rows`]) for each system. The host's are system calls by number, as the library has ways of its own.
#![allow(unsafe_code, reason = "the host's calls")]

mod rows;
mod world;

use quietline::abi::*;
use rows::{ROWS, Row};
use std::collections::BTreeMap;
use world::{Host, Ours};

/// What the place is a descriptor of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Closed,
    File,
    Dir,
    Fifo,
    Link,
    /// These without `O_PATH`.
    OpenDir,
    OpenFifo,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Closed,
        Self::File,
        Self::Dir,
        Self::Fifo,
        Self::Link,
        Self::OpenDir,
        Self::OpenFifo,
    ];

    /// The name of what it is, and how it is opened.
    fn open(self) -> (&'static str, i32) {
        match self {
            Self::Closed | Self::File => ("file", O_PATH),
            Self::Dir => ("dir", O_PATH),
            Self::Fifo => ("fifo", O_PATH),
            Self::Link => ("link", O_PATH | O_NOFOLLOW),
            Self::OpenDir => ("dir", O_RDONLY),
            Self::OpenFifo => ("fifo", O_RDWR | O_NONBLOCK),
        }
    }
}

fn outcomes(row: &Row, kind: Kind) -> [Result<i64, i32>; 2] {
    let (host, ours) = (Host::new(kind), Ours::new(kind));
    [(row.host)(&host), (row.ours)(&ours.process, &ours.fds)]
}

#[test]
fn every_call_with_every_kind_of_descriptor() {
    quietline_testing::isolated!();
    let (mut differ, mut counts) = (Vec::new(), BTreeMap::<Kind, [u32; 3]>::new());
    let not_here = Host::passed_over();
    for (name, why) in &not_here {
        assert!(ROWS.iter().any(|row| row.name == *name), "{name}");
        println!("{name}: passed over on this host, as {why}");
    }
    for row in ROWS.iter().filter(|row| not_here.iter().all(|(name, _)| *name != row.name)) {
        for kind in Kind::ALL {
            let [theirs, own] = outcomes(row, kind);
            if theirs != own && !row.passed_over.contains(&kind) {
                differ.push(format!("{}, {kind:?}: host {theirs:?}, quietline {own:?}", row.name));
            }
            let at = match theirs {
                Ok(_) => 0,
                Err(libc::EBADF) => 1,
                Err(_) => 2,
            };
            counts.entry(kind).or_default()[at] += 1;
        }
    }
    println!(
        "{} calls, {} of them passed over; done, EBADF, another error: {counts:?}",
        ROWS.len(),
        not_here.len()
    );
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
    // Most calls want more than a place in the tree, and all of them an open descriptor; some of each do something.
    for kind in [Kind::File, Kind::Dir, Kind::Fifo, Kind::Link] {
        let [done, bad, _] = counts[&kind];
        assert!(done >= 15 && bad >= 80, "{kind:?}: {:?}", counts[&kind]);
    }
    assert!(counts[&Kind::OpenFifo][0] >= 40, "{counts:?}");
}
