//! Sending and receiving.

use crate::abi::{MSG_DONTWAIT, MSG_ERRQUEUE, MSG_NOSIGNAL, MSG_WAITFORONE, UIO_MAXIOV};
use crate::{Errno, Process};
use core::time::Duration;
use quietline_net::abi::SOCKADDR_MAX;
use quietline_net::{Control, Incoming, On, Outgoing, SockAddr, Undelivered};
use quietline_platform::clock;
use quietline_vfs::abi::O_NONBLOCK;
use quietline_vfs::{Payload, Sink, Source};

/// A message to be sent (`struct msghdr`).
#[derive(Debug, Clone, Copy, Default)]
pub struct SendMsg<'a> {
    /// To whom; empty for whoever the socket is connected to.
    pub name: &'a [u8],
    /// The bytes.
    pub buffers: &'a [&'a [u8]],
    /// Control messages.
    pub control: &'a [u8],
    /// How many bytes were sent (`msg_len`): set by `sendmmsg`.
    pub sent: usize,
}

/// Room for a message to be received (`struct msghdr`).
#[derive(Debug, Default)]
pub struct RecvMsg<'a, 'b> {
    /// Room for the bytes.
    pub buffers: &'a mut [&'b mut [u8]],
    /// Room for control messages; none if the caller takes none.
    pub control: &'a mut [u8],
    /// From whom it was; empty if the sender has no name.
    pub name: SockAddr,
    /// How much of the control messages' room is used.
    pub control_len: usize,
    /// `MSG_TRUNC`, `MSG_CTRUNC` and so on.
    pub flags: i32,
    /// How many bytes were received (`msg_len`): set by `recvmmsg`.
    pub received: usize,
}

impl RecvMsg<'_, '_> {
    /// Takes what `receive` finds. Files for which there is no room go to `undelivered`.
    #[inline]
    fn take(
        &mut self,
        flags: i32,
        undelivered: &mut Undelivered,
        receive: impl FnOnce(&mut Incoming<'_, '_, '_>) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        if self.buffers.len() > UIO_MAXIOV {
            return Err(Errno::MSGSIZE);
        }
        let (mut data, mut room) = (Sink::new(self.buffers), Control::new(self.control));
        let mut name = SockAddr::NONE;
        let mut incoming =
            Incoming { name: &mut name, data: &mut data, control: &mut room, flags, found: 0 };
        let n = receive(&mut incoming)?;
        let found = incoming.found;
        undelivered.add(room.take_undelivered());
        (self.control_len, self.flags) = (room.used(), found);
        if !(name.is_empty() && self.name.is_empty()) {
            self.name = name;
        }
        Ok(n)
    }
}

/// The name in a message. A longer one than an address can be is cut, as by Linux's `sendmsg`.
fn name(bytes: &[u8]) -> Result<SockAddr, Errno> {
    SockAddr::new(&bytes[..bytes.len().min(SOCKADDR_MAX)])
}

/// What tells a socket from one that has come into its place.
fn number(on: &On<'_>) -> Option<u32> {
    on.socket.inode().map(|inode| inode.i_ino)
}

impl Process {
    /// Sends on a connected socket. Writes the lines of the other end's queue.
    ///
    /// # Errors
    /// As `send(2)`.
    #[inline]
    pub fn send(&self, fd: i32, buffer: &[u8], flags: i32) -> Result<usize, Errno> {
        self.send_source(fd, &SockAddr::NONE, &mut Source::new(&[buffer]), &[], flags)
    }

    /// Sends to an address.
    ///
    /// # Errors
    /// As `sendto(2)`.
    pub fn sendto(&self, fd: i32, buffer: &[u8], flags: i32, to: &[u8]) -> Result<usize, Errno> {
        let to = SockAddr::new(to).map_err(|errno| self.of_socket(fd, errno))?;
        self.send_source(fd, &to, &mut Source::new(&[buffer]), &[], flags)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// As `sendmsg(2)`.
    pub fn sendmsg(&self, fd: i32, message: &SendMsg<'_>, flags: i32) -> Result<usize, Errno> {
        if message.buffers.len() > UIO_MAXIOV {
            return Err(self.of_socket(fd, Errno::MSGSIZE));
        }
        let to = name(message.name)?;
        self.send_source(fd, &to, &mut Source::new(message.buffers), message.control, flags)
    }

    /// Sends several messages, as far as they go as a whole: how many were sent. An error after the first is not told. All go to the
    /// socket that the descriptor is of when the call begins.
    ///
    /// # Errors
    /// As `sendmmsg(2)`, of the first.
    pub fn sendmmsg(
        &self,
        fd: i32,
        messages: &mut [SendMsg<'_>],
        flags: i32,
    ) -> Result<usize, Errno> {
        let done = self.on_socket(fd, |on, _| {
            let mut done = 0;
            for message in messages.iter_mut().take(UIO_MAXIOV) {
                match self.send_on(on, message, flags) {
                    Ok(sent) => message.sent = sent,
                    Err(errno) if done == 0 => return Err(errno),
                    Err(_) => break,
                }
                done += 1;
                // What is left of one does not come after the next.
                if message.sent < message.buffers.iter().map(|buffer| buffer.len()).sum() {
                    break;
                }
            }
            Ok(done)
        });
        self.returning(done)
    }

    /// Sends a message by one who may sleep.
    fn send_on(&self, on: &On<'_>, message: &SendMsg<'_>, flags: i32) -> Result<usize, Errno> {
        if message.buffers.len() > UIO_MAXIOV {
            return Err(Errno::MSGSIZE);
        }
        let (to, mut data) = (name(message.name)?, Source::new(message.buffers));
        let sent =
            on.send(&mut Outgoing { name: &to, data: &mut data, control: message.control, flags });
        self.told_of_pipe(sent, &data, flags)
    }

    /// Returns the error of an argument that Linux reads after it has found the socket: `errno`,
    /// unless there is none.
    #[cold]
    fn of_socket(&self, fd: i32, errno: Errno) -> Errno {
        self.at_socket(fd, |_| Ok(())).err().unwrap_or(errno)
    }

    #[inline]
    fn send_source(
        &self,
        fd: i32,
        to: &SockAddr,
        data: &mut Source<'_, '_>,
        control: &[u8],
        flags: i32,
    ) -> Result<usize, Errno> {
        let mut begun = None;
        if control.is_empty() && to.is_empty() {
            let sent = self.at_socket(fd, |on| {
                let mut message = Outgoing { name: to, data, control, flags };
                let sent = on.send(&mut message);
                let waits = on.flags & O_NONBLOCK == 0 && flags & MSG_DONTWAIT == 0;
                Ok(match sent {
                    Err(Errno::AGAIN) if waits => None,
                    Ok(n) if waits && message.data.left() > 0 => {
                        begun = Some((n, number(on)));
                        None
                    }
                    done => Some(done),
                })
            })?;
            if let Some(sent) = sent {
                return self.told_of_pipe(sent, data, flags);
            }
        }
        let Some((first, begun)) = begun else {
            let sent = self
                .on_socket(fd, |on, _| on.send(&mut Outgoing { name: to, data, control, flags }));
            // The walk to a socket's path may free objects of `/proc`.
            return self.returning(self.told_of_pipe(sent, data, flags));
        };
        // What was sent before is told, whatever becomes of the rest. The descriptor may have become another socket's meanwhile,
        // which does not get the rest.
        let rest = self.on_socket(fd, |on, _| {
            if number(on) != begun {
                return Ok(0);
            }
            let sent = on.send(&mut Outgoing { name: to, data, control, flags });
            if let Err(errno) = sent {
                on.socket.untold(errno, data);
            }
            sent
        });
        Ok(first + rest.unwrap_or(0))
    }

    /// Who writes to a stream that nobody reads is told by a signal.
    #[inline(always)]
    fn told_of_pipe(
        &self,
        sent: Result<usize, Errno>,
        data: &Source<'_, '_>,
        flags: i32,
    ) -> Result<usize, Errno> {
        if sent.is_err() && data.is_broken() && flags & MSG_NOSIGNAL == 0 {
            self.broken_pipe();
        }
        sent
    }

    /// Receives.
    ///
    /// # Errors
    /// As `recv(2)`.
    #[inline]
    pub fn recv(&self, fd: i32, buffer: &mut [u8], flags: i32) -> Result<usize, Errno> {
        self.recvfrom(fd, buffer, flags).map(|(n, _)| n)
    }

    /// Receives, and tells from whom: an empty address if he has no name.
    ///
    /// # Errors
    /// As `recvfrom(2)`.
    #[inline]
    pub fn recvfrom(
        &self,
        fd: i32,
        buffer: &mut [u8],
        flags: i32,
    ) -> Result<(usize, SockAddr), Errno> {
        let (mut from, buffers) = (SockAddr::NONE, &mut [buffer]);
        let (mut data, mut control) = (Sink::new(buffers), Control::new(&mut []));
        let mut message =
            Incoming { name: &mut from, data: &mut data, control: &mut control, flags, found: 0 };
        let n = self.receive(fd, &mut message)?;
        Ok((n, from))
    }

    /// Receives a message. Descriptors that arrive are the lowest that are free; with
    /// [`MSG_CMSG_ANYFD`](crate::abi::MSG_CMSG_ANYFD) any, and then no line of the table is written.
    ///
    /// # Errors
    /// As `recvmsg(2)`.
    pub fn recvmsg(
        &self,
        fd: i32,
        message: &mut RecvMsg<'_, '_>,
        flags: i32,
    ) -> Result<usize, Errno> {
        if message.buffers.len() > UIO_MAXIOV {
            return Err(self.of_socket(fd, Errno::MSGSIZE));
        }
        message.take(flags, &mut Undelivered::default(), |incoming| self.receive(fd, incoming))
    }

    /// Receives several messages: how many. With `MSG_WAITFORONE` it waits for the first only. With a time it ends with the
    /// first message that comes after that; what is left of the time is written back. As on Linux no wait ends with it. All come from
    /// the socket that the descriptor is of when the call begins.
    ///
    /// # Errors
    /// As `recvmmsg(2)`: of the first, or what an earlier call has left. An error after the first is told by the next call.
    pub fn recvmmsg(
        &self,
        fd: i32,
        messages: &mut [RecvMsg<'_, '_>],
        mut flags: i32,
        mut timeout: Option<&mut Duration>,
    ) -> Result<usize, Errno> {
        let begun = timeout.as_deref().map(|all| (clock::monotonic(), *all));
        // Closed when the socket is not used any more.
        let mut undelivered = Undelivered::default();
        self.on_socket(fd, |on, _| {
            if flags & MSG_ERRQUEUE == 0 {
                on.take_error()?;
            }
            let mut done = 0;
            for message in messages.iter_mut() {
                let flags_now = flags & !MSG_WAITFORONE;
                match message.take(flags_now, &mut undelivered, |incoming| on.receive(incoming)) {
                    Ok(received) => message.received = received,
                    Err(errno) if done == 0 => return Err(errno),
                    // (What Linux keeps of an interrupt is a number that no program is to see.)
                    Err(Errno::AGAIN | Errno::INTR) => break,
                    Err(errno) => {
                        on.keep_error(errno);
                        break;
                    }
                }
                done += 1;
                if flags & MSG_WAITFORONE != 0 {
                    flags |= MSG_DONTWAIT;
                }
                if let (Some(left), Some((start, all))) = (timeout.as_deref_mut(), begun) {
                    *left = all.saturating_sub(clock::monotonic().saturating_sub(start));
                    if left.is_zero() {
                        break;
                    }
                }
            }
            Ok(done)
        })
    }

    #[inline]
    fn receive(&self, fd: i32, message: &mut Incoming<'_, '_, '_>) -> Result<usize, Errno> {
        let waits =
            |on: &On<'_>, flags: i32| on.flags & O_NONBLOCK == 0 && flags & MSG_DONTWAIT == 0;
        let received = self.at_socket(fd, |on| match on.receive(message) {
            Err(Errno::AGAIN) if waits(on, message.flags) => Ok(None),
            done => done.map(Some),
        })?;
        match received {
            Some(n) => Ok(n),
            None => self.on_socket(fd, |on, _| on.receive(message)),
        }
    }
}
