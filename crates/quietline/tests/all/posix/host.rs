//! The host kernel's side: a tmpfs of its own, the root of a mount namespace in which there is nothing else.
//!
//! A process of a program is a thread with descriptors, root, working directory, umask and credentials of its own: all
//! that calls on files ask of a process. (Record locks too belong to the descriptor table.) The calls are made one
//! after the other, so what they return is the same each time.
//!
//! Programs are random and run as root. Nothing outside the tmpfs can be reached from it: the old root is unmounted
//! before the first call; device nodes name drivers that do not exist (`host/device.rs`); no call
//! waits.

mod actor;
mod device;
mod overseer;
pub(crate) mod rootless;
pub(crate) mod syscall;

use crate::posix::call::Step;
use crate::posix::outcome::Outcome;
use crate::posix::sys::{Setting, Sys};
use overseer::Probed;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// What the overseer is asked.
#[derive(Debug)]
enum Request {
    Begin(Setting),
    Go(Arc<[Step]>),
    End,
}

/// A tmpfs of the host.
#[derive(Debug)]
pub(crate) struct Host {
    requests: Option<Sender<Request>>,
    outcomes: Receiver<Vec<Outcome>>,
    overseer: Option<JoinHandle<()>>,
    probed: Probed,
}

impl Host {
    /// A new one, or why there is none.
    pub(crate) fn mount() -> Result<Self, String> {
        device::check()?;
        let (requests, work) = channel();
        let (reply, outcomes) = channel();
        let (ready, begun) = channel();
        let overseer = std::thread::spawn(move || overseer::run(&ready, &work, &reply));
        let probed = begun.recv().map_err(|_| "the overseer died".to_owned())??;
        Ok(Self { requests: Some(requests), outcomes, overseer: Some(overseer), probed })
    }

    fn ask(&mut self, request: Request) -> Vec<Outcome> {
        let requests = self.requests.as_ref().expect("taken only on drop");
        match requests.send(request).ok().and_then(|()| self.outcomes.recv().ok()) {
            Some(outcomes) => outcomes,
            None => match self.overseer.take().map(JoinHandle::join) {
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                _ => panic!("the host's side ended"),
            },
        }
    }
}

impl Sys for Host {
    fn name(&self) -> String {
        "host".to_owned()
    }

    fn begin(&mut self, setting: Setting) {
        self.ask(Request::Begin(setting));
    }

    fn go(&mut self, steps: &[Step]) -> Vec<Outcome> {
        self.ask(Request::Go(steps.into()))
    }

    fn end(&mut self) {
        self.ask(Request::End);
    }

    fn fine_times(&self) -> bool {
        self.probed.fine_times
    }

    fn newest_first(&self) -> bool {
        self.probed.newest_first
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(overseer) = self.overseer.take() {
            // If it panicked, `run` has said so.
            let _ = overseer.join();
        }
    }
}
