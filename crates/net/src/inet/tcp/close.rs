//! How connections end: half close, close, reset, and being made unconnected again.

use super::connect::{Control, Phase};
use super::{
    CLOSED, CONNECTING, DEAD, DEFERRED, ESTABLISHED, End, GOT_FIN, LISTENS, Link, READABLE,
    SENT_FIN, SHUT_RD, SHUT_WR,
};
use crate::abi::{SHUT_RD as HOW_RD, SHUT_WR as HOW_WR};
use quietline_platform::atomic::Ordering;
use quietline_vfs::Events;
use rustix::io::Errno;

/// What a poller is told when one side of a connection ends.
const ENDED: Events = Events::RDHUP.union(Events::HUP).union(Events::ERR);

impl End {
    /// `shutdown`.
    ///
    /// # Errors
    /// `ENOTCONN`; what is not connected remembers it all the same.
    pub(in super::super) fn shutdown(&self, how: i32) -> Result<(), Errno> {
        let (reads, writes) = (how != HOW_WR, how != HOW_RD);
        let mut control = self.control.lock();
        let flags = self.flags();
        if flags & LISTENS != 0 {
            if reads {
                self.stop_listening(&control);
                self.release_port(&mut control);
                self.clear(SHUT_RD | SHUT_WR);
            }
            return Ok(());
        }
        if flags & CONNECTING != 0 {
            self.give_up(&mut control);
            return Ok(());
        }
        let shut = if reads { SHUT_RD } else { 0 };
        let is_connected = flags & (ESTABLISHED | DEAD) == ESTABLISHED;
        if control.phase == Phase::Connecting {
            control.phase = if is_connected { Phase::Connected } else { Phase::Disconnecting };
        }
        drop(control);
        let tx = self.tx.0.lock();
        self.set(shut | if writes { SHUT_WR } else { 0 });
        let peer = tx.as_ref().filter(|_| is_connected && writes).map(|link| link.end.clone());
        let peer = peer.filter(|peer| self.send_fin(peer));
        drop(tx);
        if let Some(peer) = peer {
            peer.wake_all(ENDED);
            if self.flags() & DEFERRED != 0 {
                self.end_deferral(&peer);
            }
        }
        self.wake_all(ENDED);
        if is_connected { Ok(()) } else { Err(Errno::NOTCONN) }
    }

    /// Ends what is sent to the peer; false if it was ended before. The caller keeps others from sending, and wakes both.
    pub(super) fn send_fin(&self, peer: &Self) -> bool {
        if self.set(SENT_FIN | SHUT_WR) & SENT_FIN != 0 {
            return false;
        }
        peer.set(GOT_FIN);
        // ORDERING: SeqCst with the exchanges of both: if both ends do this at the same moment, one of them at least comes after the
        // other's, and finds its end.
        if self.flags.load(Ordering::SeqCst) & GOT_FIN != 0 {
            for end in [self, peer] {
                end.set(DEAD | SHUT_RD | SHUT_WR);
            }
        }
        true
    }

    /// The connection is broken off: what has come can be read, then there is an error.
    pub(super) fn reset(&self) {
        let flags = self.flags();
        if flags & DEAD != 0 {
            return;
        }
        // The error first: who finds the end finds why.
        self.fail(if flags & GOT_FIN != 0 { Errno::PIPE } else { Errno::CONNRESET });
        self.set(DEAD | SHUT_RD | SHUT_WR);
        self.wake_all(ENDED);
    }

    /// The socket is closed: the last file on it has ended. What its peer learns is as `close(2)` on Linux: the end of the
    /// stream, or a reset if something was not read or is not to linger.
    pub(in super::super) fn close(&self) {
        self.end(self.options.linger() == Some(0));
    }

    /// The stream to a deferred peer has ended: the peer is acceptable, or answers with a reset if
    /// its listener has gone.
    #[cold]
    fn end_deferral(&self, peer: &Self) {
        self.clear(DEFERRED);
        if peer.rx.0.with(|rx| rx.gone) {
            self.reset();
        }
        peer.complete();
    }

    /// Closes a connection that was not accepted.
    pub(super) fn abort(&self) {
        let deferred_by = self.control.lock().deferred_by.take();
        drop(deferred_by);
        self.end(true);
    }

    fn end(&self, hard: bool) {
        if self.set(CLOSED) & CLOSED != 0 {
            return;
        }
        let mut control = self.control.lock();
        self.stop_listening(&control);
        // Set by who has the control.
        if self.flags() & CONNECTING != 0 {
            self.clear(CONNECTING);
        }
        self.hang_up(hard);
        self.let_go(&mut control);
        if let Some(holding) = control.holding.take() {
            self.net.get().inet.tcp.release(holding, None);
        }
    }

    /// Parts from the peer, if there is one, and closes the queue.
    pub(super) fn hang_up(&self, hard: bool) {
        let peer = {
            let mut tx = self.tx.0.lock();
            let peer = tx.take().map(|Link { end, .. }| end);
            let mut rx = self.rx.0.lock();
            let unread = rx.bytes.clear() > 0;
            rx.gone = true;
            rx.epoch = rx.epoch.wrapping_add(1);
            let peer = peer.filter(|_| self.flags() & (ESTABLISHED | DEAD) == ESTABLISHED);
            // Before anybody can find the queue closed: the end of the stream comes before the reset. Who knows of it is not told again.
            let peer = peer.filter(|peer| hard || unread || self.send_fin(peer));
            drop(rx);
            peer.map(|peer| (peer, hard || unread))
        };
        let is_deferred = self.flags() & DEFERRED != 0;
        match peer {
            Some((peer, true)) => {
                peer.reset();
                if is_deferred {
                    peer.withdraw();
                }
            }
            Some((peer, false)) => {
                peer.wake_all(ENDED);
                if is_deferred {
                    peer.complete();
                }
            }
            None => {}
        }
    }

    /// `connect` with `AF_UNSPEC`: as before `connect`, `listen`.
    pub(super) fn disconnect(&self) {
        let mut control = self.control.lock();
        let flags = self.flags();
        if flags & LISTENS != 0 {
            self.stop_listening(&control);
            self.release_port(&mut control);
            self.clear(SHUT_RD | SHUT_WR);
        } else if flags & CONNECTING != 0 || flags & (ESTABLISHED | DEAD) == ESTABLISHED {
            self.hang_up(true);
            self.forget(&mut control);
            self.fail(Errno::CONNRESET);
        } else if control.phase == Phase::Unconnected {
            // Not even connected: the port stays.
            self.clear(SHUT_RD | SHUT_WR);
        } else {
            self.hang_up(true);
            self.forget(&mut control);
        }
        drop(control);
        self.wake_all(ENDED);
    }

    /// A connection that is being made is not wanted any more.
    fn give_up(&self, control: &mut Control) {
        self.clear(CONNECTING);
        self.fail(Errno::CONNRESET);
        self.let_go(control);
        control.phase = Phase::Unconnected;
        self.wake_all(ENDED | READABLE);
    }
}
