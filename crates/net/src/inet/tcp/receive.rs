//! Receiving.

use super::super::stream::SMALL;
use super::{CONNECTING, DEAD, ESTABLISHED, End, GOT_FIN, LISTENS, Received, SHUT_RD, WRITABLE};
use quietline_platform::atomic::Ordering;
use quietline_sync::SpinLockGuard;
use quietline_vfs::Sink;
use rustix::io::Errno;

/// What becomes of the bytes that are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum How {
    /// They are read.
    Read,
    /// They are read and stay; so many are passed over first.
    Peek(usize),
    /// So many are thrown away (`MSG_TRUNC`).
    Discard(usize),
    /// So many are counted and stay; the first ones are passed over (`MSG_TRUNC` and `MSG_PEEK`).
    Count { skip: usize, most: usize },
}

impl End {
    /// Receives what is there: how many bytes; 0 at the end (`tcp_recvmsg`, without waiting).
    ///
    /// Writes the line of the own `Rx`, and with more than 2 KiB that of `reader`; when the peer waits for room, also its flags.
    ///
    /// # Errors
    /// `EAGAIN` when there is nothing; what went wrong; `ENOTCONN`.
    #[inline]
    pub(in super::super) fn receive(
        &self,
        to: &mut Sink<'_, '_>,
        how: How,
    ) -> Result<usize, Errno> {
        let mut rx = self.rx.0.lock();
        if rx.is_being_read {
            rx = self.after_reader(rx);
        }
        if rx.bytes.is_empty() {
            // Under the lock: what was sent before the end of the stream would be there.
            return self.nothing_to_receive();
        }
        if to.left() == 0 {
            return Ok(0);
        }
        let got = match how {
            How::Peek(skip) => match rx.bytes.show(skip, |bytes| to.put(bytes)) {
                0 => return Err(Errno::AGAIN),
                shown => return Ok(shown),
            },
            How::Count { skip, most } => {
                let mut left = most;
                rx.bytes.show(skip, |bytes| {
                    let n = bytes.len().min(left);
                    left -= n;
                    n
                });
                return if left == most { Err(Errno::AGAIN) } else { Ok(most - left) };
            }
            How::Discard(n) => {
                let mut got = 0;
                while got < n && !rx.bytes.is_empty() {
                    got += rx.bytes.give(n - got, |_| ());
                }
                got
            }
            How::Read => {
                let got = rx.bytes.give(to.left().min(SMALL / 2), |bytes| {
                    to.put(bytes);
                });
                if to.left() > 0 && !rx.bytes.is_empty() {
                    let (more, again) = self.receive_large(rx, to);
                    rx = again;
                    got + more
                } else {
                    got
                }
            }
        };
        if rx.full && !rx.is_nearly_full() {
            drop(rx);
            self.tell_of_room();
        }
        Ok(got)
    }

    /// [`receive`](Self::receive), for `read`: a caller who `waits` takes nothing before there is as much as `SO_RCVLOWAT` says,
    /// or nothing more will come. (If that is more than there is room for, he takes it [piece by piece](super::super::receive_stream).)
    ///
    /// # Errors
    /// As [`receive`](Self::receive); `EAGAIN` when there is too little.
    #[inline]
    pub(in super::super) fn read(
        &self,
        to: &mut Sink<'_, '_>,
        waits: bool,
    ) -> Result<usize, Errno> {
        let target = self.options.target(false, to.left());
        if target > 1 && waits && !self.has(target) {
            return Err(Errno::AGAIN);
        }
        self.receive(to, How::Read)
    }

    /// Whether there is as much as this to be read, or there will not be more.
    #[cold]
    fn has(&self, target: usize) -> bool {
        // Under the lock, as in `receive`.
        let enough = self.rx.0.with(|rx| rx.bytes.len() >= target);
        // ORDERING: Acquire: set by an exchange before those who wait are woken.
        enough
            || self.flags() & (ESTABLISHED | DEAD | GOT_FIN | SHUT_RD) != ESTABLISHED
            || self.error.load(Ordering::Acquire) != 0
    }

    /// Whether a connection is being made.
    pub(in super::super) fn connects(&self) -> bool {
        self.flags() & CONNECTING != 0
    }

    /// Whether something has come since there was [nothing](Self::receive): bytes, their end, an error; or the connection, if it was
    /// being made then. Takes nothing.
    #[cold]
    pub(in super::super) fn is_eventful(&self, connecting: bool) -> bool {
        if connecting { !self.connects() } else { self.has(1) }
    }

    /// Waits until nobody copies outside the lock: who does that takes more when he comes back, and what he takes is one piece.
    #[cold]
    fn after_reader<'a>(
        &'a self,
        mut rx: SpinLockGuard<'a, Received>,
    ) -> SpinLockGuard<'a, Received> {
        while rx.is_being_read {
            drop(rx);
            drop(self.reader.lock());
            rx = self.rx.0.lock();
        }
        rx
    }

    /// Takes more: large pieces are copied outside the lock. Nobody else takes anything until that is done.
    fn receive_large<'a>(
        &'a self,
        mut rx: SpinLockGuard<'a, Received>,
        to: &mut Sink<'_, '_>,
    ) -> (usize, SpinLockGuard<'a, Received>) {
        let mut reader = None;
        let mut got = 0;
        while to.left() > 0 && !rx.bytes.is_empty() {
            if reader.is_none() {
                // Only tried: somebody may have it who has just waited for it, and wants the queue's lock next. Then it is free soon.
                reader = self.reader.try_lock();
                rx.is_being_read = reader.is_some();
            }
            match reader.as_ref().and_then(|_| rx.bytes.take(to.left())) {
                Some(chunk) => {
                    drop(rx);
                    got += to.put(chunk.bytes());
                    rx = self.rx.0.lock();
                    rx.bytes.emptied(chunk);
                }
                None => {
                    got += rx.bytes.give(to.left(), |bytes| {
                        to.put(bytes);
                    });
                }
            }
        }
        rx.is_being_read = false;
        (got, rx)
    }

    #[cold]
    fn nothing_to_receive(&self) -> Result<usize, Errno> {
        let flags = self.flags();
        if flags & LISTENS != 0 {
            return Err(Errno::NOTCONN);
        }
        if flags & GOT_FIN != 0 {
            return Ok(0);
        }
        if let Some(errno) = self.take_error() {
            return Err(errno);
        }
        match flags {
            _ if flags & SHUT_RD != 0 => Ok(0),
            _ if flags & CONNECTING != 0 => Err(Errno::AGAIN),
            _ if flags & ESTABLISHED == 0 || flags & DEAD != 0 => Err(Errno::NOTCONN),
            _ => Err(Errno::AGAIN),
        }
    }

    /// There is room again: the peer may go on.
    #[cold]
    fn tell_of_room(&self) {
        // The lock keeps the connection while the queue is looked at: otherwise a former peer would
        // be told of another connection's room. It is released before the peer's waiters are woken,
        // because they may be this thread's own epolls.
        let peer = {
            let tx = self.tx.0.lock();
            let Some(link) = tx.as_ref() else { return };
            self.rx.0.lock().tell_of_room(&link.end);
            link.end.clone()
        };
        // Of exclusive epolls one, as of readers (`sk_stream_write_space`).
        peer.writers.wake_exchanged(WRITABLE.bits(), 1);
    }

    /// How many bytes can be read (`FIONREAD`).
    ///
    /// # Errors
    /// `EINVAL` for a listener.
    pub(in super::super) fn readable(&self) -> Result<i32, Errno> {
        if self.flags() & LISTENS != 0 {
            return Err(Errno::INVAL);
        }
        Ok(self.rx.0.with(|rx| rx.bytes.len()) as i32)
    }
}
