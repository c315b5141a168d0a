//! Files made and removed in a directory that is watched, and what inotify tells of it.

use std::ffi::CStr;
use std::sync::{Arc, OnceLock};

use quietline::abi::{O_ANYFD, O_NONBLOCK};
use quietline::inotify::{IN_CREATE, IN_DELETE};
use quietline::{Errno, Process};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::Opened;
use super::host::Place;
use super::layout::{self, Layout};
use super::quietline::{ByHandle, ByNumber};
use super::tree::{Tree, World};
use crate::adapters::owned::Owned;
use crate::adapters::probe::failed;
use crate::harness::{Arena, Fault, Seat, Worker, looped};
use crate::workloads::{Job, Unlink, Whose};

/// Files of a thread's own directory.
const FILES: Unlink = Unlink { directory: Whose::Own, batch: 1 };

/// A filesystem that tells who asks of names that come and go.
pub(super) trait Watches: Tree {
    /// Where it tells of them.
    type Watch: 'static;

    /// Watches a directory, and says by what number it will be told of.
    fn watch(&self, directory: &CStr) -> Result<(Self::Watch, i32), Self::Error>;
    /// What there is to be told: how many bytes.
    fn told(&self, watch: &Self::Watch, room: &mut [u8]) -> Result<usize, Self::Error>;
}

impl Watches for Place {
    type Watch = OwnedFd;

    fn watch(&self, directory: &CStr) -> Result<(OwnedFd, i32), Errno> {
        let instance = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let number =
            inotify::add_watch(&instance, directory, WatchFlags::CREATE | WatchFlags::DELETE)?;
        Ok((instance, number))
    }

    #[inline(always)]
    fn told(&self, watch: &OwnedFd, room: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(watch, room)
    }
}

fn watch(process: &Arc<Process>, directory: &CStr, flags: i32) -> Result<(Owned, i32), Errno> {
    let fd = process.inotify_init1(O_NONBLOCK | flags)?;
    let instance = Owned { process: process.clone(), fd };
    let number = process.inotify_add_watch(fd, directory.to_bytes(), IN_CREATE | IN_DELETE)?;
    Ok((instance, number))
}

impl Watches for ByNumber {
    type Watch = Owned;

    fn watch(&self, directory: &CStr) -> Result<(Owned, i32), Errno> {
        watch(self.process(), directory, self.flags())
    }

    #[inline(always)]
    fn told(&self, watch: &Owned, room: &mut [u8]) -> Result<usize, Errno> {
        self.process().read(watch.fd, room)
    }
}

/// The instance has a descriptor, the files have none.
impl Watches for ByHandle {
    type Watch = Owned;

    fn watch(&self, directory: &CStr) -> Result<(Owned, i32), Errno> {
        watch(self.process(), directory, O_ANYFD)
    }

    #[inline(always)]
    fn told(&self, watch: &Owned, room: &mut [u8]) -> Result<usize, Errno> {
        self.process().read(watch.fd, room)
    }
}

/// The arena.
pub(super) fn open<W: World<Tree: Watches>>(_: Job, threads: usize) -> Opened {
    let world = W::new(&Layout::of(Job::Unlink(FILES), threads))?;
    Ok(Arc::new(Stand { world, start: OnceLock::new() }))
}

struct Stand<W> {
    world: W,
    /// What there was when all workers were ready.
    start: OnceLock<Vec<i64>>,
}

/// Bytes that tell of a name: the watch, what has happened, no cookie, the name in words of 16 bytes.
fn event(number: i32, what: u32, name: &[u8]) -> Vec<u8> {
    let len = (name.len() + 1).next_multiple_of(16);
    let mut bytes = Vec::new();
    bytes.extend(number.to_ne_bytes());
    bytes.extend(what.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend((len as u32).to_ne_bytes());
    bytes.extend(name);
    bytes.resize(16 + len, 0);
    bytes
}

impl<W: World<Tree: Watches>> Arena for Stand<W> {
    fn worker(&self, seat: Seat) -> Result<Box<dyn Worker>, Fault> {
        let tree = self.world.enter()?;
        let path = layout::names(FILES, seat.thread).remove(0);
        let text = path.to_bytes();
        let slash = text.iter().rposition(|byte| *byte == b'/').expect("it is in a directory");
        let name = &text[slash + 1..];
        let directory = layout::string(String::from_utf8_lossy(&text[..slash]).into_owned());
        let (instance, number) = tree.watch(&directory).map_err(failed)?;
        let due = [event(number, IN_CREATE, name), event(number, IN_DELETE, name)].concat();
        let mut room = [0; 1024];
        Ok(looped("two events tell of a file that came and went", move || {
            // What was told before is told again, byte by byte.
            room[..due.len()].fill(0);
            tree.create(&path)?;
            tree.unlink(&path)?;
            let n = tree.told(&instance, &mut room)?;
            Ok::<_, <W::Tree as Tree>::Error>(room[..n] == due)
        }))
    }

    fn settle(&self) -> Result<(), Fault> {
        let census = self.world.census()?;
        let start = self.start.get_or_init(|| census.clone());
        Fault::unless(census == *start, || {
            format!("not as at the start: {start:?} became {census:?}")
        })
    }
}
