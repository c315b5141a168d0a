//! Signals that wait, where only some find room for what they are told with. (Those of `kill` are in quietline's `tests/timers`, beside the
//! host's.)

use quietline_vfs::signalfd::{MOST, SigInfo, Signals};
use rustix::io::Errno;

/// What `sigqueue` sends.
const QUEUE: i32 = -1;

fn send(signals: &Signals, signo: i32, code: i32) -> Result<(), Errno> {
    signals.send(SigInfo { signo, code, pid: 7, uid: 8, status: 0 })
}

#[test]
fn only_who_sends_more_than_a_signal_is_refused() {
    let signals = Signals::new();
    for _ in 0..MOST - 1 {
        assert_eq!(send(&signals, 40, QUEUE), Ok(()));
    }
    assert_eq!(send(&signals, 64, QUEUE), Ok(()), "the last that there is room for");
    for signo in [32, 40, 41, 64] {
        assert_eq!(send(&signals, signo, QUEUE), Err(Errno::AGAIN), "{signo}");
    }
    assert_eq!(signals.pending(), 1 << 39 | 1 << 63, "one that is refused does not wait");
    for signo in 1..=64 {
        let code = if signo < 32 { QUEUE } else { 0 };
        assert_eq!(send(&signals, signo, code), Ok(()), "{signo}");
    }
    // SIGCONT went with SIGSTOP and the like, which came after it.
    assert_eq!(signals.pending(), !(1 << 17));
    for signo in [0, -1, 65] {
        assert_eq!(send(&signals, signo, 0), Err(Errno::INVAL));
    }
}
