//! Each allocation of an `accept` fails once, and once all from it on: those of the table of descriptors, which grows, among them.

use crate::accept::{FAMILIES, address};
use crate::support::spawn_asleep;
use quietline::abi::*;
use quietline::{Config, Errno, Kernel, Process};
use quietline_platform::fault;

/// Numbers for which a new table has room.
const ROOM: i32 = 64;

/// A listener with one connection, which has a byte in it, and a table that is about to grow.
fn prepare(p: &Process, family: i32, fill: bool) -> i32 {
    let [listener, client] =
        [(); 2].map(|()| p.socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0).unwrap());
    p.bind(listener, &address(family, "faults")).unwrap();
    p.listen(listener, 5).unwrap();
    let connected = p.connect(client, p.getsockname(listener).unwrap().bytes());
    assert!(matches!(connected, Ok(()) | Err(Errno::INPROGRESS)), "{connected:?}");
    assert_eq!(p.send(client, b"x", 0), Ok(1));
    while fill && p.dup(listener).unwrap() < ROOM - 1 {}
    listener
}

#[test]
fn a_connection_is_accepted_or_stays() {
    quietline_testing::isolated!();
    for family in FAMILIES {
        for (fill, any) in [(false, 0), (true, 0), (false, O_ANYFD), (true, O_ANYFD)] {
            let mut refused = 0;
            for arm in [fault::fail_nth, fault::fail_from] {
                for n in 1.. {
                    let kernel = Kernel::boot(Config::default()).unwrap();
                    let p = kernel.process().unwrap();
                    let listener = prepare(&p, family, fill);
                    let open = p.open_fds().unwrap();
                    kernel.shrink();
                    arm(n);
                    let accepted = p.accept4(listener, any);
                    let met = !fault::armed() || accepted.is_err();
                    fault::fail_nth(0);
                    let (fd, _) = accepted.unwrap_or_else(|errno| {
                        assert_eq!(errno, Errno::NOMEM, "allocation {n}");
                        assert_eq!(p.open_fds().unwrap(), open, "allocation {n}");
                        refused += 1;
                        p.accept4(listener, any).expect("it has stayed")
                    });
                    assert_eq!(p.recv(fd, &mut [0; 4], MSG_DONTWAIT), Ok(1));
                    assert_eq!(
                        p.accept4(listener, any).unwrap_err(),
                        Errno::AGAIN,
                        "one connection, not two"
                    );
                    if any == 0 {
                        assert_eq!(p.dup(listener), Ok(fd + 1), "no number is lost");
                    }
                    p.close_range(0, u32::MAX, 0).unwrap();
                    assert_eq!((kernel.nr_files(), kernel.nr_inodes()), (0, 0), "allocation {n}");
                    if !met {
                        break;
                    }
                    assert!(n < 1_000, "a call has no end of allocations");
                }
            }
            // Where the table grows. (What a file is made of may be at hand.)
            let grows = fill || any != 0;
            assert!(
                refused >= u32::from(grows),
                "family {family}, fill {fill}, any {any:#x}: {refused}"
            );
        }
    }
}

/// Two wait for a place at a local listener. The first is woken when there is one, and has no memory to take it: then the second is.
#[test]
fn who_cannot_take_a_place_passes_it_on() {
    quietline_testing::isolated!();
    let (mut passed, mut taken) = (0, 0);
    // Where the thread runs, and what that CPU has at hand, decides how many allocations there are before it sleeps.
    for n in (1..30).cycle().take(3_000) {
        let kernel = Kernel::boot(Config::default()).unwrap();
        let p = &kernel.process().unwrap();
        let [listener, full, first, second] =
            [(); 4].map(|()| p.socket(AF_UNIX, SOCK_STREAM, 0).unwrap());
        let name = &address(AF_UNIX, "one place");
        p.bind(listener, name).unwrap();
        p.listen(listener, 0).unwrap();
        p.connect(full, name).unwrap();
        // So that a test that fails comes to an end.
        let time = [10i64.to_ne_bytes(), [0; 8]].concat();
        p.setsockopt(second, SOL_SOCKET, SO_SNDTIMEO, &time).unwrap();
        std::thread::scope(|scope| {
            let one = spawn_asleep(scope, move || {
                fault::fail_nth(n);
                let connected = p.connect(first, name);
                fault::fail_nth(0);
                connected
            });
            if one.is_finished() {
                assert_eq!(one.join().unwrap(), Err(Errno::NOMEM));
                return;
            }
            let other = spawn_asleep(scope, || p.connect(second, name));
            assert!(!other.is_finished(), "there is one place");
            p.accept(listener).unwrap();
            let took = one.join().unwrap();
            if took.is_ok() {
                p.accept(listener).unwrap();
                taken += 1;
            } else {
                assert_eq!(took, Err(Errno::NOMEM));
                passed += 1;
            }
            assert_eq!(other.join().unwrap(), Ok(()));
        });
        if passed >= 1 && taken >= 1 {
            break;
        }
    }
    assert!(passed >= 1 && taken >= 1, "passed on {passed}, taken {taken}");
}
