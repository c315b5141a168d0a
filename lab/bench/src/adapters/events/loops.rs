//! The loops of threads that have objects of their own, on any system.

use std::hint::black_box;
use std::sync::Arc;

use super::system::{Control, MAX_EVENTS, Page, System};
use crate::adapters::probe::failed;
use crate::harness::{Fault, Worker, looped};
use crate::workloads::{Channel, Events};

/// What a thread works on.
pub(super) struct Subject<S: System> {
    system: S,
    read: Arc<S::Fd>,
    write: Arc<S::Fd>,
    /// Outermost first.
    epolls: Vec<S::Fd>,
}

/// What events say of the descriptor.
const DATA: u64 = 77;

impl<S: System> Subject<S> {
    pub(super) fn new(system: S, what: Events) -> Result<Self, S::Error> {
        let (channel, levels) = match what {
            Events::Through(channel, _) => (channel, 0),
            Events::Gift => (Channel::Pipe, 0),
            Events::Wait { levels, .. } | Events::DeleteAdd { levels } => {
                (Channel::Eventfd, levels)
            }
            Events::Modify => (Channel::Eventfd, 1),
            Events::Poll | Events::Mesh | Events::Shared { .. } => (Channel::Eventfd, 0),
        };
        let [read, write] = system.channel(channel)?;
        let mut epolls: Vec<S::Fd> = Vec::new();
        for _ in 0..levels {
            let epoll = system.epoll()?;
            let inner = epolls.last().unwrap_or(&read);
            system.control(&epoll, inner, Control::Add(DATA))?;
            epolls.push(epoll);
        }
        epolls.reverse();
        if what == Events::Poll || matches!(what, Events::Wait { ready: true, .. }) {
            system.write(&write, &1_u64.to_ne_bytes())?;
        }
        Ok(Self { system, read, write, epolls })
    }

    /// Asks an epoll: whether it has what it should.
    #[inline(always)]
    fn wait(&self, epoll: &S::Fd, ready: bool) -> Result<bool, S::Error> {
        let mut data = [0; MAX_EVENTS];
        let n = self.system.wait(epoll, &mut data)?;
        Ok(n == usize::from(ready) && (!ready || data[0] == DATA))
    }

    /// Writes a number of bytes, the first eight of which are `number` or a part of it.
    #[inline(always)]
    fn through<const N: usize>(&self, number: u64, room: &mut [u8; N]) -> Result<bool, S::Error> {
        let bytes = number.to_ne_bytes();
        let n = N.min(8);
        room[..n].copy_from_slice(&bytes[..n]);
        let sent = self.system.write(&self.write, room)?;
        room[..n].fill(0);
        let taken = self.system.read(&self.read, room)?;
        Ok(sent == N && taken == N && room[..n] == bytes[..n])
    }
}

/// A worker for a job, once the first operations were right.
pub(super) fn worker<S: System>(
    subject: Subject<S>,
    what: Events,
) -> Result<Box<dyn Worker>, Fault> {
    Ok(match what {
        Events::Through(_, 1) => through::<S, 1>(subject),
        Events::Through(_, 8) => through::<S, 8>(subject),
        Events::Through(_, 4096) => through::<S, 4096>(subject),
        Events::Through(_, n) => return Err(Fault::new(format!("no loop for {n} bytes"))),
        Events::Gift => {
            let mut memory = Box::new([(); 2].map(|()| Page([0; 4096])));
            let mut number = 0;
            looped("a page that is given is taken", move || {
                number += 1;
                let found =
                    subject.system.give([&subject.read, &subject.write], number, &mut memory)?;
                Ok::<_, S::Error>(found == Some([number; 2]))
            })
        }
        Events::Wait { message: true, .. } => {
            looped("a message is told of by each epoll, and taken", move || {
                let mut right = subject.system.write(&subject.write, &1_u64.to_ne_bytes())? == 8;
                for epoll in &subject.epolls {
                    right &= subject.wait(epoll, true)?;
                }
                let mut room = [0; 8];
                right &= subject.system.read(&subject.read, &mut room)? == 8;
                Ok::<_, S::Error>(right & (u64::from_ne_bytes(room) == 1))
            })
        }
        Events::Wait { ready, .. } => {
            looped("an epoll has what is ready", move || subject.wait(&subject.epolls[0], ready))
        }
        Events::Poll => looped("what is readable is", move || subject.system.poll(&subject.read)),
        Events::Modify => {
            let mut number = DATA;
            looped("what is watched can be changed", move || {
                number = number.wrapping_add(1);
                subject.system.control(
                    &subject.epolls[0],
                    &subject.read,
                    Control::Modify(number),
                )?;
                Ok::<_, S::Error>(true)
            })
        }
        Events::DeleteAdd { .. } => {
            let innermost = subject.epolls.len() - 1;
            // Whether it is really added is seen by its event.
            let proof = subject.system.write(&subject.write, &1_u64.to_ne_bytes());
            proof.map_err(failed)?;
            let found = subject.wait(&subject.epolls[innermost], true).map_err(failed)?;
            Fault::unless(found, || "what was added is not watched".to_owned())?;
            looped("what is not watched any more can be watched again", move || {
                let epoll = &subject.epolls[innermost];
                subject.system.control(epoll, &subject.read, Control::Delete)?;
                subject.system.control(epoll, &subject.read, Control::Add(DATA))?;
                Ok::<_, S::Error>(true)
            })
        }
        Events::Mesh | Events::Shared { .. } => return Err(Fault::new("it is not one thread's")),
    })
}

fn through<S: System, const N: usize>(subject: Subject<S>) -> Box<dyn Worker> {
    let mut room = Box::new([0; N]);
    let mut number: u64 = 0;
    looped("what is written is read", move || {
        number = number.wrapping_add(1) % (u64::MAX - 1) + 1;
        subject.through(number, black_box(&mut *room))
    })
}
