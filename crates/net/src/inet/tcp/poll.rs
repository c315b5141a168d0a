//! What can be done with a stream.

use super::{
    CONNECTING, DEAD, ESTABLISHED, End, FULL, GOT_FIN, LISTENS, READABLE, SHUT_RD, SHUT_WR,
    WRITABLE,
};
use quietline_platform::atomic::Ordering;
use quietline_vfs::{Events, PollTable};

impl End {
    /// What can be done (`tcp_poll`).
    pub(in super::super) fn poll(&self, table: &mut PollTable<'_>) -> Events {
        table.wait_on(&self.readers);
        table.wait_on(&self.writers);
        let mut events = Events::empty();
        // Under the lock: what waiters look at is changed under it.
        let (has_enough, flags) = {
            let rx = self.rx.0.lock();
            // A queue that is nearly full, or that gets no more memory, is enough in any case: no
            // more may come.
            let enough = rx.bytes.len() >= self.options.target(false, usize::MAX)
                || rx.full
                || rx.is_nearly_full();
            (enough && !rx.bytes.is_empty(), self.flags())
        };
        if flags & LISTENS != 0 {
            let ready =
                self.listener.with(|listener| listener.as_ref().is_some_and(|l| l.is_ready()));
            return if ready { READABLE } else { Events::empty() };
        }
        let is_closed = flags & (ESTABLISHED | CONNECTING) == 0 || flags & DEAD != 0;
        let reads_no_more = flags & (SHUT_RD | GOT_FIN) != 0;
        if is_closed || (reads_no_more && flags & SHUT_WR != 0) {
            events |= Events::HUP;
        }
        if reads_no_more {
            events |= READABLE | Events::RDHUP;
        }
        if flags & CONNECTING == 0 {
            if has_enough {
                events |= READABLE;
            }
            if flags & SHUT_WR != 0 || flags & FULL == 0 {
                events |= WRITABLE;
            }
        }
        // ORDERING: Acquire: after the flags; set by an exchange before those who wait are woken.
        if self.error.load(Ordering::Acquire) != 0 {
            events |= Events::ERR;
        }
        events
    }
}
