//! Waiting for what the loop can go on with: packets that come in, and room for those that are to be sent.

use std::time::Duration;

use quietline_net::device::NetDevice;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;

/// What is known of the waiting for one device.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// What the device had sent, and had still to send, when its host said that there is room. As long as that is so, the host
    /// says it of a link that is down, or to whoever asks: it is not asked at once again.
    said: Option<[u64; 2]>,
}

/// One that is waited for.
struct Waiter<'d> {
    fd: BorrowedFd<'d>,
    /// Packets that it has sent, and that it has still to send.
    sent_and_pending: [u64; 2],
}

impl<'d> Waiter<'d> {
    fn of(device: &'d dyn NetDevice<'_>) -> Option<Self> {
        let sent_and_pending = [device.stats().tx_packets, device.pending() as u64];
        Some(Self { fd: device.readiness()?, sent_and_pending })
    }
}

/// Waits until packets come in by one of the devices, or one that has packets to send may send them, or a moment is over.
pub(super) fn wait<const N: usize>(
    devices: [&dyn NetDevice<'_>; N],
    waits: &mut [Waits; N],
    moment: Duration,
) {
    wait_for(devices.map(Waiter::of), waits, moment);
}

fn wait_for<const N: usize>(
    devices: [Option<Waiter<'_>>; N],
    waits: &mut [Waits; N],
    moment: Duration,
) {
    let there = || devices.iter().zip(0..).filter_map(|(device, i)| Some((device.as_ref()?, i)));
    let mut fds: Vec<PollFd<'_>> = Vec::new();
    for (Waiter { fd, sent_and_pending }, i) in there() {
        // The next time it is asked again, come what may.
        let in_vain = waits[i].said.take() == Some(*sent_and_pending);
        let asks = sent_and_pending[1] > 0 && !in_vain;
        let out = if asks { PollFlags::OUT } else { PollFlags::empty() };
        fds.push(PollFd::from_borrowed_fd(*fd, PollFlags::IN | out));
    }
    let moment = Timespec::try_from(moment).unwrap_or_default();
    // That a signal ends it is what it is for.
    if poll(&mut fds, Some(&moment)).is_err() {
        return;
    }
    for (fd, (Waiter { sent_and_pending, .. }, i)) in fds.iter().zip(there()) {
        if fd.revents().contains(PollFlags::OUT) {
            waits[i].said = Some(*sent_and_pending);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Waiter, Waits, wait_for};
    use rustix::fd::AsFd;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::{Duration, Instant};

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(30);

    /// How long a wait for these takes.
    fn takes<const N: usize>(
        devices: [(&UnixStream, [u64; 2]); N],
        waits: &mut [Waits; N],
        moment: Duration,
    ) -> Duration {
        let begun = Instant::now();
        let waiters =
            devices.map(|(fd, sent_and_pending)| Some(Waiter { fd: fd.as_fd(), sent_and_pending }));
        wait_for(waiters, waits, moment);
        begun.elapsed()
    }

    /// Who has nothing to send waits for what comes in.
    #[test]
    fn for_packets() {
        let [(one, _far), (other, mut sender)] =
            [UnixStream::pair().unwrap(), UnixStream::pair().unwrap()];
        let mut waits = Default::default();
        let both = [(&one, [5, 0]), (&other, [5, 0])];
        assert!(takes(both, &mut waits, SHORT) >= SHORT, "there is room, but nothing to send");
        sender.write_all(b"packet").unwrap();
        assert!(takes(both, &mut waits, LONG) < LONG);
    }

    /// Who has something to send waits until there is room for it, and no longer.
    #[test]
    fn for_room() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 4096]).is_ok() {}
        let mut waits = Default::default();
        assert!(takes([(&near, [9, 3])], &mut waits, SHORT) >= SHORT, "there is none yet");
        let reader = thread::spawn(move || {
            thread::sleep(SHORT);
            // As much as there is, so that there is room enough to be told of.
            far.set_nonblocking(true).unwrap();
            while far.read(&mut [0; 1 << 16]).is_ok() {}
            far
        });
        assert!(takes([(&near, [9, 3])], &mut waits, LONG) < LONG);
        reader.join().unwrap();
    }

    /// A host that says that there is room, and then takes nothing, is asked every other time: the loop does not spin.
    #[test]
    fn not_for_a_link_that_is_down() {
        let (near, _far) = UnixStream::pair().unwrap();
        let mut waits = Default::default();
        for _ in 0..3 {
            assert!(takes([(&near, [9, 3])], &mut waits, LONG) < LONG);
            assert!(takes([(&near, [9, 3])], &mut waits, SHORT) >= SHORT, "nothing has gone");
        }
        for sent in 10..13 {
            assert!(
                takes([(&near, [sent, 3])], &mut waits, LONG) < LONG,
                "it takes some each time"
            );
        }
    }
}
