//! Pages that are given to pipes and taken from them: the same memory comes out that went in, in its order, and nobody who has
//! anything of it ever sees it change.

use crate::support::{assert_nothing_open, spawn_asleep, watched};
use quietline::abi::*;
use quietline::{Config, Errno, GiftPage, Interrupt, Kernel, Process, Shared, SigPipe, TakenPage};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const NOW: u32 = SPLICE_F_NONBLOCK;

/// Runs `f`, which takes a second or so; if it has not ended after three minutes, a thread has been
/// left asleep.
fn within_minutes(f: impl FnOnce() + Send + 'static) {
    let (done, over) = mpsc::channel();
    let worker = thread::spawn(move || {
        f();
        let _ = done.send(());
    });
    match over.recv_timeout(Duration::from_secs(180)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a thread has been left asleep"),
        _ => worker.join().unwrap(),
    }
}

/// Runs `f` with a process, and sees that nothing is left of what it did, its descriptors closed.
fn with_process(f: impl FnOnce(&Process)) {
    let kernel = Kernel::boot(Config::default()).unwrap();
    let p = kernel.process().unwrap();
    f(&p);
    p.close_range(0, u32::MAX, 0).unwrap();
    crate::support::settle();
    assert_nothing_open(&kernel);
}

/// A page with these bytes.
fn page<'k>(p: &'k Process, bytes: &[u8]) -> Option<GiftPage<'k>> {
    let mut page = p.gift_page().unwrap();
    page.room()[..bytes.len()].copy_from_slice(bytes);
    page.set_len(bytes.len());
    Some(page)
}

/// What can be read now.
fn read(p: &Process, fd: i32, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; most];
    let n = p.read(fd, &mut bytes).unwrap();
    bytes.truncate(n);
    bytes
}

/// The one page that is first.
fn take(p: &Process, fd: i32) -> TakenPage<'_> {
    let mut to = [None];
    let n = p.take_pages(fd, &mut to, NOW).unwrap();
    let [page] = to;
    let page = page.expect("there is one");
    assert_eq!(n, page.len());
    page
}

fn pages_in_use(p: &Process) -> usize {
    let all = p.kernel().slabinfo();
    all.iter().find(|cache| cache.name == "pipe_page").expect("pages have a cache").active
}

#[test]
fn it_is_the_same_page() {
    quietline_testing::isolated!();
    with_process(|p| {
        let [reader, writer] = p.pipe2(0).unwrap();
        let pattern: Vec<u8> = (0..4096).map(|n| ((n * 7) >> 3) as u8).collect();
        let mut given = [page(p, &pattern), page(p, &pattern[..100])];
        let at = given.each_ref().map(|page| page.as_ref().unwrap().as_ptr());
        assert_eq!(pages_in_use(p), 2);
        assert_eq!(p.vmsplice_gift(writer, &mut given, 0), Ok(4196));
        assert!(given.iter().all(Option::is_none), "they are the pipe's");
        let mut answer = 0;
        p.ioctl(reader, FIONREAD, &mut answer).unwrap();
        assert_eq!(answer, 4196);
        let mut taken = [None, None, None];
        assert_eq!(p.take_pages(reader, &mut taken, 0), Ok(4196));
        let [first, second, none] = taken;
        let (first, second) = (first.unwrap(), second.unwrap());
        assert!(none.is_none());
        assert_eq!((&first[..], &second[..]), (&pattern[..], &pattern[..100]));
        assert_eq!([first.as_ptr(), second.as_ptr()], at, "it has not been copied");
        assert_eq!(pages_in_use(p), 2);

        // And once more, the other way round, with what is in it.
        let mut again = second.into_gift().expect("nobody else has it");
        assert_eq!((again.len(), again.room().len()), (100, 4096));
        again.room()[0] = 99;
        again.set_len(3);
        drop(first);
        assert_eq!(p.vmsplice_gift(writer, &mut [Some(again)], NOW), Ok(3));
        assert_eq!(read(p, reader, 9), [99, pattern[1], pattern[2]]);
    });
}

#[test]
fn a_part_that_was_read_is_gone() {
    quietline_testing::isolated!();
    with_process(|p| {
        let [reader, writer] = p.pipe2(0).unwrap();
        p.vmsplice_gift(writer, &mut [page(p, b"abcdef")], 0).unwrap();
        assert_eq!(read(p, reader, 2), b"ab");
        let mut rest = take(p, reader).into_gift().unwrap();
        assert_eq!(&rest[..], b"cdef");
        assert_eq!(rest.room().len(), 4094);
        rest.clear();
        assert_eq!((rest.len(), rest.room().len()), (0, 4096));
    });
}

/// Gifts and writes, of few bytes beside the lock and of many, come out as they went in, whether they are read or taken.
#[test]
fn order_is_kept() {
    quietline_testing::isolated!();
    for takes in [false, true] {
        with_process(|p| {
            let [reader, writer] = p.pipe2(O_NONBLOCK).unwrap();
            let mut expected = Vec::new();
            let mut number = 0_u8;
            for round in 0..40 {
                for len in [3, 1, 4096, 5, 700, 8] {
                    number = number.wrapping_add(1);
                    let bytes = vec![number; len];
                    // Each length by either way.
                    let n = if (usize::from(number) + round).is_multiple_of(2) {
                        p.write(writer, &bytes)
                    } else {
                        p.vmsplice_gift(writer, &mut [page(p, &bytes)], NOW)
                    };
                    assert_eq!(n, Ok(len));
                    expected.extend(bytes);
                }
                let mut found = Vec::new();
                while found.len() < expected.len() {
                    if takes {
                        found.extend(take(p, reader).iter());
                    } else {
                        found.extend(read(p, reader, 1000));
                    }
                }
                assert!(found == expected, "round {round}");
                expected.clear();
            }
        });
    }
}

#[test]
fn a_full_pipe_takes_what_it_has_room_for() {
    quietline_testing::isolated!();
    with_process(|p| {
        let [reader, writer] = p.pipe2(0).unwrap();
        let mut pages: Vec<_> = (0..20).map(|n| page(p, &[n; 10])).collect();
        // A place without a page in the middle, and one with an empty page.
        pages[3] = None;
        pages[5] = page(p, b"");
        assert_eq!(p.vmsplice_gift(writer, &mut pages, 0), Ok(160));
        let left: Vec<u8> = pages.iter().flatten().map(|page| page[0]).collect();
        assert_eq!(left, [18, 19], "they are their maker's");
        assert_eq!(p.vmsplice_gift(writer, &mut pages, NOW), Err(Errno::AGAIN));
        assert_eq!(pages.iter().flatten().count(), 2);
        assert_eq!(pages_in_use(p), 18);
        assert_eq!(take(p, reader)[0], 0);
        assert_eq!(p.vmsplice_gift(writer, &mut pages, NOW), Ok(10));
        assert_eq!(pages.iter().flatten().count(), 1);
        let bytes = read(p, reader, 1000);
        let due = [1, 2, 4].into_iter().chain(6..19).flat_map(|n| [n; 10]).collect::<Vec<u8>>();
        assert_eq!(bytes, due);

        // A pipe of one page: the few that are in it take its place.
        p.fcntl(writer, F_SETPIPE_SZ, 1).unwrap();
        assert_eq!(p.vmsplice_gift(writer, &mut pages, NOW), Ok(10));
        let mut another = [page(p, b"x")];
        assert_eq!(p.vmsplice_gift(writer, &mut another, NOW), Err(Errno::AGAIN));
        assert_eq!(read(p, reader, 100), [19; 10]);
        assert_eq!(p.write(writer, b"few"), Ok(3));
        assert_eq!(p.vmsplice_gift(writer, &mut another, NOW), Err(Errno::AGAIN));
        assert_eq!(&take(p, reader)[..], b"few");
        // Few, where they lie beside the lock: they get a page and a place when pages come.
        p.fcntl(writer, F_SETPIPE_SZ, 8192).unwrap();
        assert_eq!(p.write(writer, b"few"), Ok(3));
        assert_eq!(p.vmsplice_gift(writer, &mut another, NOW), Ok(1));
        assert_eq!(p.vmsplice_gift(writer, &mut [page(p, b"y")], NOW), Err(Errno::AGAIN));
        assert_eq!(read(p, reader, 100), b"fewx");
    });
}

#[test]
fn what_cannot_be_given() {
    quietline_testing::isolated!();
    with_process(|p| {
        let [reader, writer] = p.pipe2(0).unwrap();
        let event = p.eventfd(0, 0).unwrap();
        let mut pages = [page(p, b"kept")];
        assert_eq!(p.vmsplice_gift(reader, &mut pages, 0), Err(Errno::BADF));
        assert_eq!(p.vmsplice_gift(event, &mut pages, 0), Err(Errno::BADF));
        assert_eq!(p.vmsplice_gift(99, &mut pages, 0), Err(Errno::BADF));
        assert_eq!(p.vmsplice_gift(writer, &mut pages, 16), Err(Errno::INVAL));
        let mut many: Vec<_> = (0..1025).map(|_| None).collect();
        assert_eq!(p.vmsplice_gift(writer, &mut many, 0), Err(Errno::INVAL));
        assert_eq!(p.vmsplice_gift(writer, &mut many[1..], 0), Ok(0));
        assert_eq!(p.vmsplice_gift(writer, &mut [], 0), Ok(0));
        assert_eq!(p.vmsplice_gift(writer, &mut [page(p, b""), None], 0), Ok(0));
        assert_eq!(pages_in_use(p), 1, "an empty page goes back");

        let other = Kernel::boot(Config::default()).unwrap().process().unwrap();
        let [_, elsewhere] = other.pipe2(0).unwrap();
        assert_eq!(other.vmsplice_gift(elsewhere, &mut pages, 0), Err(Errno::XDEV));
        assert_eq!(&pages[0].as_ref().unwrap()[..], b"kept");

        let mut to = [None];
        assert_eq!(p.take_pages(writer, &mut to, 0), Err(Errno::BADF));
        assert_eq!(p.take_pages(event, &mut to, 0), Err(Errno::BADF));
        assert_eq!(p.take_pages(reader, &mut to, 16), Err(Errno::INVAL));
        assert_eq!(p.take_pages(reader, &mut to, NOW), Err(Errno::AGAIN));
        assert_eq!(p.take_pages(reader, &mut [], 0), Ok(0));
        p.close(writer).unwrap();
        assert_eq!(p.take_pages(reader, &mut to, 0), Ok(0), "it is the end");
    });
}

#[test]
fn nobody_reads() {
    quietline_testing::isolated!();
    with_process(|p| {
        let [reader, writer] = p.pipe2(0).unwrap();
        p.vmsplice_gift(writer, &mut [page(p, b"lost")], 0).unwrap();
        p.close(reader).unwrap();
        let mut pages = [page(p, b"kept"), page(p, b"")];
        p.set_sigpipe(SigPipe::Signal);
        assert_eq!(p.vmsplice_gift(writer, &mut pages, 0), Err(Errno::PIPE));
        assert_eq!(p.sigpending(), 1 << (13 - 1));
        assert_eq!(&pages[0].as_ref().unwrap()[..], b"kept");
        p.close(writer).unwrap();
        drop(pages);
        assert_eq!(pages_in_use(p), 0, "what nobody has read goes with the pipe");
    });
}

/// Packets stay what they are beside pages, which are none; taken, each is a page.
#[test]
fn packets() {
    quietline_testing::isolated!();
    with_process(|p| {
        let [reader, writer] = p.pipe2(O_DIRECT).unwrap();
        let fill = || {
            p.write(writer, b"one").unwrap();
            p.vmsplice_gift(writer, &mut [page(p, b"gift")], 0).unwrap();
            p.write(writer, b"two").unwrap();
        };
        fill();
        // What a reader has no room for of a packet is lost; of a page nothing is.
        assert_eq!(read(p, reader, 2), b"on");
        assert_eq!(read(p, reader, 2), b"gi");
        assert_eq!(read(p, reader, 100), b"fttwo");
        fill();
        let mut to = [None, None, None, None];
        assert_eq!(p.take_pages(reader, &mut to, 0), Ok(10));
        let taken: Vec<Vec<u8>> = to.iter().flatten().map(|page| page.to_vec()).collect();
        assert_eq!(taken, [&b"one"[..], b"gift", b"two"]);
        // A packet's page that is given again is no packet any more.
        let again = to[0].take().unwrap().into_gift().unwrap();
        p.vmsplice_gift(writer, &mut [Some(again)], 0).unwrap();
        assert_eq!((read(p, reader, 1), read(p, reader, 9)), (b"o".to_vec(), b"ne".to_vec()));
    });
}

/// What a tee has of a page stays as it is, whatever is written behind it, and whoever takes the page.
#[test]
fn shared_pages_do_not_change() {
    quietline_testing::isolated!();
    with_process(|p| {
        let [reader, writer] = p.pipe2(0).unwrap();
        let [other, other_end] = p.pipe2(0).unwrap();
        // Once a page that was given; once one that a write has begun, which grows.
        for gift in [true, false] {
            let bytes = [5; 100];
            if gift {
                assert_eq!(p.vmsplice_gift(writer, &mut [page(p, &bytes)], 0), Ok(100));
            } else {
                assert_eq!(p.write(writer, &bytes), Ok(100));
            }
            assert_eq!(p.tee(reader, other_end, 1000, 0), Ok(100));
            assert_eq!(p.write(writer, &[6; 100]), Ok(100));
            let first = take(p, reader);
            if gift {
                // What was written has a page of its own.
                assert_eq!(&first[..], [5; 100]);
                let second = take(p, reader);
                assert_eq!(&second[..], [6; 100]);
                second.into_gift().expect("nobody else has it");
            } else {
                assert_eq!(&first[..], [&[5; 100][..], &[6; 100]].concat());
            }
            let first = first.into_gift().expect_err("the other pipe has it, too");
            let shared = take(p, other);
            assert_eq!((&shared[..], shared.as_ptr()), (&[5; 100][..], first.as_ptr()));
            let shared = shared.into_gift().expect_err("it is taken twice");
            drop(first);
            let mut alone = shared.into_gift().expect("nobody else has it any more");
            alone.room().fill(7);
        }
    });
}

/// Two have a page at once. Who is the last to have it may write there, and not before the other has read it.
#[test]
fn the_last_of_two_writes() {
    quietline_testing::isolated!();
    with_process(|p| {
        let [reader, writer] = p.pipe2(0).unwrap();
        let [other, other_end] = p.pipe2(0).unwrap();
        let mut alone = 0;
        for round in 0..2_000_u32 {
            let bytes = round.to_ne_bytes().repeat(100);
            assert_eq!(p.vmsplice_gift(writer, &mut [page(p, &bytes)], 0), Ok(400));
            assert_eq!(p.tee(reader, other_end, 400, 0), Ok(400));
            let ends = [reader, other].map(|fd| take(p, fd));
            alone += thread::scope(|scope| {
                let threads = ends.map(|end| {
                    let bytes = &bytes;
                    scope.spawn(move || {
                        assert_eq!(&end[..], bytes);
                        // Read again, as late as may be: who has been let write there would be seen.
                        let late = end.iter().rev().eq(bytes.iter().rev());
                        end.into_gift().map_or((late, 0), |mut page| {
                            page.room().fill(0xff);
                            (late, 1)
                        })
                    })
                });
                threads.map(|thread| thread.join().unwrap()).into_iter().fold(
                    0,
                    |all, (late, wrote)| {
                        assert!(late, "it changed under who had it");
                        all + wrote
                    },
                )
            });
        }
        // At most one of each two: neither is alone if both have asked before either has let go.
        assert!((1..=2_000).contains(&alone), "{alone}");
    });
}

/// A part of a page goes to another pipe, the rest stays, and each is what it was.
#[test]
fn spliced_pages() {
    quietline_testing::isolated!();
    with_process(|p| {
        let [reader, writer] = p.pipe2(0).unwrap();
        let [other, other_end] = p.pipe2(0).unwrap();
        let file = p.memfd_create("m", 0).unwrap();
        let mut given = page(p, b"abcdefgh");
        let at = given.as_mut().unwrap().room().as_ptr();
        assert_eq!(p.vmsplice_gift(writer, &mut [given], 0), Ok(8));
        assert_eq!(p.splice(reader, None, other_end, None, 3, 0), Ok(3));
        // Not behind the part, where the rest is.
        assert_eq!(p.write(other_end, b"XY"), Ok(2));
        let rest = take(p, reader).into_gift().expect_err("the other pipe has a part");
        assert_eq!(&rest[..], b"defgh");
        let part = take(p, other);
        assert_eq!((&part[..], part.as_ptr()), (&b"abc"[..], at));
        drop(part);
        let rest = rest.into_gift().expect("now it is alone");
        assert_eq!(p.vmsplice_gift(writer, &mut [Some(rest)], 0), Ok(5));
        assert_eq!(p.splice(reader, None, file, None, 100, 0), Ok(5));
        let mut bytes = [0; 9];
        assert_eq!(p.pread(file, &mut bytes, 0), Ok(5));
        assert_eq!(&bytes[..5], b"defgh");
        assert_eq!(read(p, other, 9), b"XY");
    });
}

/// Who gives waits for room, who takes for a page; either is interrupted.
#[test]
fn who_waits() {
    quietline_testing::isolated!();
    within_minutes(|| {
        with_process(|p| {
            let [reader, writer] = p.pipe2(0).unwrap();
            p.fcntl(writer, F_SETPIPE_SZ, 4096).unwrap();
            let interrupts = [(); 2].map(|()| Shared::new(Interrupt::new()).unwrap());
            thread::scope(|scope| {
                let taking = spawn_asleep(scope, || {
                    let mut to = [None];
                    p.take_pages(reader, &mut to, 0).map(|n| (n, to[0].take().unwrap().to_vec()))
                });
                assert!(!taking.is_finished());
                p.vmsplice_gift(writer, &mut [page(p, b"first")], 0).unwrap();
                assert_eq!(taking.join().unwrap(), Ok((5, b"first".to_vec())));

                p.vmsplice_gift(writer, &mut [page(p, b"full")], 0).unwrap();
                let giving =
                    spawn_asleep(scope, || p.vmsplice_gift(writer, &mut [page(p, b"behind")], 0));
                assert!(!giving.is_finished());
                assert_eq!(&take(p, reader)[..], b"full");
                assert_eq!(giving.join().unwrap(), Ok(6));

                let giving = spawn_asleep(scope, || {
                    let _entered = Interrupt::enter(&interrupts[0]);
                    let mut pages = [page(p, b"kept")];
                    let said = p.vmsplice_gift(writer, &mut pages, 0);
                    assert_eq!(&pages[0].as_ref().unwrap()[..], b"kept");
                    said
                });
                interrupts[0].raise();
                assert_eq!(giving.join().unwrap(), Err(Errno::INTR));
                assert_eq!(&take(p, reader)[..], b"behind");
                let taking = spawn_asleep(scope, || {
                    let _entered = Interrupt::enter(&interrupts[1]);
                    p.take_pages(reader, &mut [None], 0)
                });
                interrupts[1].raise();
                assert_eq!(taking.join().unwrap(), Err(Errno::INTR));

                // And the end wakes who waits for more.
                let taking = spawn_asleep(scope, || p.take_pages(reader, &mut [None], 0));
                p.close(writer).unwrap();
                assert_eq!(taking.join().unwrap(), Ok(0));
            });
        });
    });
}

/// Two who give and two who take, at once: every number comes once, and to each taker those of one giver in their order.
#[test]
fn among_threads() {
    quietline_testing::isolated!();
    const EACH: u64 = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
    let taken = AtomicU64::new(0);
    watched(&taken, || {
        with_process(|p| {
            let [reader, writer] = p.pipe2(0).unwrap();
            p.fcntl(writer, F_SETPIPE_SZ, 8192).unwrap();
            let sums = [const { AtomicU64::new(0) }; 2];
            let counts = [const { AtomicU64::new(0) }; 2];
            let note = |record: &[u8], last: &mut [u64; 2]| {
                let word = u64::from_ne_bytes(*record.first_chunk().unwrap());
                let (who, number) = ((word >> 32) as usize, word & 0xffff_ffff);
                assert!(
                    record.chunks(8).all(|other| other == &record[..8]),
                    "a page is one giver's"
                );
                assert!(number > last[who], "{number} of {who} after {}", last[who]);
                last[who] = number;
                sums[who].fetch_add(number, Ordering::Relaxed);
                counts[who].fetch_add(1, Ordering::Relaxed);
                taken.fetch_add(1, Ordering::Relaxed);
            };
            thread::scope(|scope| {
                let givers: Vec<_> = (0..2_u64)
                    .map(|who| {
                        scope.spawn(move || {
                            for number in (1..=EACH).step_by(2) {
                                // Two at a time: of which one may have no room yet.
                                let mut pages = [number, number + 1].map(|number| {
                                    let len = 8 << (number % 4);
                                    let word = (who << 32 | number).to_ne_bytes();
                                    let mut page = p.gift_page().unwrap();
                                    page.room()[..len]
                                        .chunks_mut(8)
                                        .for_each(|to| to.copy_from_slice(&word));
                                    page.set_len(len);
                                    Some(page)
                                });
                                while pages.iter().any(Option::is_some) {
                                    p.vmsplice_gift(writer, &mut pages, 0).unwrap();
                                }
                            }
                        })
                    })
                    .collect();
                let takers: Vec<_> = (0..2)
                    .map(|_| {
                        let note = &note;
                        scope.spawn(move || {
                            let mut last = [0; 2];
                            loop {
                                let mut to = [None, None];
                                if p.take_pages(reader, &mut to, 0).unwrap() == 0 {
                                    return;
                                }
                                to.iter().flatten().for_each(|page| note(page, &mut last));
                            }
                        })
                    })
                    .collect();
                givers.into_iter().for_each(|giver| giver.join().unwrap());
                p.close(writer).unwrap();
                takers.into_iter().for_each(|taker| taker.join().unwrap());
            });
            for who in 0..2 {
                let found =
                    (counts[who].load(Ordering::Relaxed), sums[who].load(Ordering::Relaxed));
                assert_eq!(found, (EACH, EACH * (EACH + 1) / 2), "of giver {who}");
            }
        });
    });
}

/// Bytes that only the owner of a secret knows.
const SECRET: u8 = 0xa5;

/// Lets the kernel reuse pages that had a secret: some that were read from a pipe, and some that
/// were gifts.
fn leave_secrets(p: &Process) {
    let [reader, writer] = p.pipe2(0).unwrap();
    for _ in 0..4 {
        assert_eq!(p.write(writer, &[SECRET; 4096]), Ok(4096));
    }
    assert_eq!(read(p, reader, 4 * 4096).len(), 4 * 4096);
    for _ in 0..4 {
        drop(page(p, &[SECRET; 4096]));
    }
}

fn secrets(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == SECRET).count()
}

/// What a page held before, of other processes, is seen neither by its next maker nor by a reader.
#[test]
fn a_gift_shows_nothing_of_others() {
    quietline_testing::isolated!();
    let kernel = Kernel::boot(Config::default()).unwrap();
    let (secretive, p) = (kernel.process().unwrap(), kernel.process().unwrap());
    let [reader, writer] = p.pipe2(0).unwrap();
    for round in 0..8 {
        leave_secrets(&secretive);
        let mut fresh = p.gift_page().unwrap();
        assert_eq!(secrets(fresh.room()), 0, "round {round}: a new page");
        drop(fresh);
        leave_secrets(&secretive);
        // Without a look at the room, its length alone.
        let mut unseen = p.gift_page().unwrap();
        unseen.set_len(4096);
        p.vmsplice_gift(writer, &mut [Some(unseen)], NOW).unwrap();
        assert_eq!(secrets(&read(&p, reader, 4096)), 0, "round {round}: set_len");
        // The rest of a page that came out of a pipe, and the bytes that another reader has had.
        leave_secrets(&secretive);
        assert_eq!(p.write(writer, &[1; 600]), Ok(600));
        let mut taken = take(&p, reader).into_gift().unwrap();
        assert_eq!((taken.len(), secrets(taken.room())), (600, 0), "round {round}: taken");
        leave_secrets(&secretive);
        assert_eq!(p.write(writer, &[SECRET; 1000]), Ok(1000));
        assert_eq!(read(&p, reader, 400).len(), 400);
        let mut cleared = take(&p, reader).into_gift().unwrap();
        cleared.clear();
        assert_eq!((cleared.len(), secrets(cleared.room())), (0, 0), "round {round}: cleared");
    }
}
