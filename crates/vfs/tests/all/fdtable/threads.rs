//! Many threads on one descriptor table.

use crate::fdtable::support::table_for;
use quietline_vfs::{EventFd, FdFlags, FileHandle, Files, PseudoFs, abi, eventfd};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const ANY: FdFlags = FdFlags { cloexec: false, any: true };
const LOWEST: FdFlags = FdFlags { cloexec: false, any: false };

fn world() -> (Files, PseudoFs<EventFd>) {
    (Files::new(1_000_000).unwrap(), PseudoFs::new("anon_inodefs").unwrap())
}

/// A sequence of numbers that looks random and differs from thread to thread.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

/// Property 7, last put exactly once: whatever threads do to one table, each file is closed once, when its last
/// reference goes, and each number is handed out again.
#[test]
fn every_file_is_closed_once() {
    const THREADS: u64 = 4;
    for limit in [40, 3_000] {
        let (files, fs) = world();
        let table = table_for(limit);
        let made = AtomicU64::new(0);
        std::thread::scope(|s| {
            for seed in 0..THREADS {
                let (table, files, fs, made) = (&table, &files, &fs, &made);
                s.spawn(move || {
                    let mut random = Sequence(seed);
                    let mut mine: Vec<FileHandle<'_>> = Vec::new();
                    for _ in 0..20_000 {
                        let fd = random.below(limit.min(100)) as i32;
                        // Numbers that are leased lie in the middle.
                        let fd = if random.below(2) == 0 {
                            fd
                        } else {
                            fd + limit.div_ceil(2).min(1024) as i32
                        };
                        let file =
                            || eventfd(fs, files, made.fetch_add(1, Relaxed) as u32, 0).unwrap();
                        match random.below(20) {
                            0..4 => drop(table.install(file(), LOWEST)),
                            4..8 => drop(table.install(file(), ANY)),
                            8..14 => drop(table.close(fd, files)),
                            14 => drop(table.dup(fd, random.below(limit), LOWEST, files)),
                            15 => {
                                let got =
                                    table.dup_to(fd, random.below(limit) as i32, false, files);
                                assert!(
                                    matches!(got, Ok(_) | Err(Errno::BADF | Errno::BUSY)),
                                    "{got:?}"
                                );
                            }
                            16 => mine.extend(table.get(fd, files)),
                            17 => drop(mine.pop()),
                            18 => drop(table.set_cloexec(fd, true)),
                            _ if random.below(200) == 0 => {
                                let mut copy = table.duplicate(files).unwrap();
                                for fd in copy.open_fds().unwrap() {
                                    let count = copy
                                        .get(fd, files)
                                        .unwrap()
                                        .payload::<EventFd>()
                                        .unwrap()
                                        .count();
                                    assert!(count < made.load(Relaxed), "a file of ours");
                                }
                                copy.clear(files);
                            }
                            _ => drop(table.status(fd, files)),
                        }
                    }
                });
            }
        });
        assert_eq!(files.nr_files(), fs.live(), "an object for each file");
        assert!(files.nr_files() <= table.open_fds().unwrap().len() as i64);
        // All numbers can still be had, by either way, and no more.
        table.for_range(0, u32::MAX, false, &files);
        assert_eq!((files.nr_files(), fs.live(), table.open_fds().unwrap()), (0, 0, vec![]));
        let file = eventfd(&fs, &files, 0, 0).unwrap();
        for flags in [LOWEST, ANY] {
            for _ in 0..limit {
                table.install(file.clone(), flags).unwrap();
            }
            assert_eq!(table.install(file.clone(), flags), Err(Errno::MFILE));
            table.for_range(0, u32::MAX, false, &files);
        }
        for fd in 0..limit as i32 {
            assert_eq!(
                table.install(file.clone(), LOWEST),
                Ok(fd),
                "the lowest-number rule is back"
            );
        }
        table.for_range(0, u32::MAX, false, &files);
        drop(file);
        assert_eq!((files.nr_files(), fs.live()), (0, 0));
    }
}

/// Property 7: while other threads close and reopen the descriptors, recycling the files, a reader finds at each
/// descriptor a file that was opened there. Each file's count says which descriptors it may be at, and its flags
/// say the same to those who look without a reference.
#[test]
fn a_file_found_was_in_the_slot() {
    const PLACES: u64 = 4;
    let (files, fs) = world();
    // Room enough that leases keep away from the places.
    let mut table = table_for(3_000);
    const READERS: u64 = 2;
    let (readers, found) = (AtomicU64::new(READERS), AtomicU64::new(0));
    // A file at place p has p in its count, and is non-blocking if p is odd.
    let open = |place: u64| {
        let flags = if place % 2 == 1 { abi::O_NONBLOCK } else { 0 };
        eventfd(&fs, &files, place as u32, flags).unwrap()
    };
    let here = open(0);
    for place in 0..PLACES {
        assert_eq!(table.install(open(place), LOWEST), Ok(place as i32));
    }
    let away = table.install(here, LOWEST).unwrap();
    std::thread::scope(|s| {
        for thread in 0..2 {
            let (table, files, readers, open) = (&table, &files, &readers, &open);
            s.spawn(move || {
                let mut random = Sequence(thread);
                while readers.load(Relaxed) != 0 {
                    // Each thread has two places of its own; files move from one to the other in the caches.
                    let place = 2 * thread + random.below(2) as u64;
                    let fd = place as i32;
                    match random.below(2) {
                        // By way of an empty slot, or by replacing it with a file that was somewhere else.
                        0 => {
                            table.close(fd, files).unwrap();
                            let temporary = table.install_from(10, open(place), LOWEST).unwrap();
                            assert_eq!(table.dup_to(temporary, fd, false, files), Ok(fd));
                            table.close(temporary, files).unwrap();
                        }
                        _ => {
                            let temporary = table.install(open(place), ANY).unwrap();
                            assert_eq!(table.dup_to(temporary, fd, false, files), Ok(fd));
                            table.close(temporary, files).unwrap();
                        }
                    }
                }
            });
        }
        for reader in 0..READERS {
            let (table, files, readers, found) = (&table, &files, &readers, &found);
            s.spawn(move || {
                let mut random = Sequence(10 + reader);
                for _ in 0..100_000 {
                    let place = random.below(PLACES as usize) as u64;
                    if let Ok(file) = table.get(place as i32, files) {
                        assert_eq!(file.payload::<EventFd>().unwrap().count(), place);
                        found.fetch_add(1, Relaxed);
                    }
                    let place = random.below(PLACES as usize) as u64;
                    if let Ok(flags) = table.status(place as i32, files) {
                        assert_eq!(
                            flags & abi::O_NONBLOCK != 0,
                            place % 2 == 1,
                            "flags of another file"
                        );
                    }
                }
                readers.fetch_sub(1, Relaxed);
            });
        }
    });
    assert!(found.load(Relaxed) > 0);
    assert_eq!(table.status(away, &files), Ok(abi::O_RDWR));
    table.clear(&files);
    assert_eq!((files.nr_files(), fs.live()), (0, 0));
}

/// Threads with `ANY` get numbers that nobody else has at the time, and between them all numbers below the limit.
#[test]
fn any_number_belongs_to_one_thread() {
    const LIMIT: usize = 300;
    let (files, fs) = world();
    let table = table_for(LIMIT);
    let owner: Vec<AtomicBool> = (0..LIMIT).map(|_| AtomicBool::new(false)).collect();
    std::thread::scope(|s| {
        for seed in 0..4 {
            let (table, files, fs, owner) = (&table, &files, &fs, &owner);
            s.spawn(move || {
                let mut random = Sequence(seed);
                let mut mine = Vec::new();
                let close = |fd: i32| {
                    owner[fd as usize].store(false, Relaxed);
                    table.close(fd, files).unwrap();
                };
                for _ in 0..30_000 {
                    if random.below(2) == 0 {
                        let flags = if random.below(50) == 0 { LOWEST } else { ANY };
                        match table.install(eventfd(fs, files, 0, 0).unwrap(), flags) {
                            Ok(fd) => {
                                assert!(
                                    !owner[fd as usize].swap(true, Relaxed),
                                    "{fd} has two owners"
                                );
                                mine.push(fd);
                            }
                            Err(errno) => assert_eq!(errno, Errno::MFILE),
                        }
                    } else if !mine.is_empty() {
                        close(mine.swap_remove(random.below(mine.len())));
                    }
                }
                mine.into_iter().for_each(close);
            });
        }
    });
    assert_eq!((table.open_fds().unwrap(), files.nr_files(), fs.live()), (vec![], 0, 0));
    for fd in 0..LIMIT as i32 {
        assert_eq!(table.install(eventfd(&fs, &files, 0, 0).unwrap(), LOWEST), Ok(fd));
    }
    table.for_range(0, u32::MAX, false, &files);
}

/// One thread opens with `ANY`, another closes: the numbers go round.
#[test]
fn numbers_go_round_between_threads() {
    let (files, fs) = world();
    let table = table_for(2_000);
    let (send, receive) = std::sync::mpsc::sync_channel(50);
    std::thread::scope(|s| {
        s.spawn(|| {
            for fd in receive {
                table.close(fd, &files).unwrap();
            }
        });
        for _ in 0..30_000 {
            send.send(table.install(eventfd(&fs, &files, 0, 0).unwrap(), ANY).unwrap()).unwrap();
        }
        drop(send);
    });
    assert_eq!((table.open_fds().unwrap(), files.nr_files(), fs.live()), (vec![], 0, 0));
    assert!(table.has_free());
}
