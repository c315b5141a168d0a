//! Property 12 where it is many: epolls with very many files, and layers of epolls that all watch each other.

use quietline::abi::*;
use quietline::eventpoll::{EPOLL_CTL_ADD, EPOLL_CTL_DEL};
use quietline::{Config, EpollEvent, Errno, Events, FdSet, Kernel, Process};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

fn process() -> Process {
    Kernel::boot(Config::default().privileged(true)).unwrap().process().unwrap()
}

fn watch(p: &Process, epoll: i32, op: i32, fd: i32) -> Result<(), Errno> {
    p.epoll_ctl(epoll, op, fd, &EpollEvent { events: Events::IN.bits(), data: fd as u64 })
}

/// What the thread has worked, whoever else uses the CPU.
fn worked() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// What it takes to close an epoll that watches `n` files.
fn time_to_close(n: i32) -> Duration {
    let p = process();
    p.set_nofile(n as usize + 10).unwrap();
    let epoll = p.epoll_create1(0).unwrap();
    let counter = p.eventfd(1, O_NONBLOCK).unwrap();
    for _ in 0..n {
        let fd = p.dup(counter).unwrap();
        watch(&p, epoll, EPOLL_CTL_ADD, fd).unwrap();
    }
    let since = worked();
    p.close(epoll).unwrap();
    let took = worked() - since;
    // The counter is watched no more, and what it tells reaches nobody.
    p.write(counter, &1u64.to_ne_bytes()).unwrap();
    took
}

/// Sixteen times the files take some sixteen times as long, not two hundred times.
#[test]
fn an_epoll_closes_in_the_time_of_its_files() {
    quietline_testing::isolated!();
    let all = [(); 3].map(|()| (time_to_close(20_000), time_to_close(320_000)));
    // Caches that another program empties make one of them slower.
    let closes_in_time = |&(few, many): &(Duration, Duration)| many < few * 60;
    assert!(all.iter().any(closes_in_time), "20,000 files, and 320,000 files: {all:?}");
}

/// Four layers of epolls, each of which watches all of the next: 40^3 ways lead up from one at the bottom. (That each addition there comes
/// by each epoll once is not seen here: it would be milliseconds.) A fifth layer fits, a sixth does not, nor does what would close a circle.
#[test]
fn layers_that_all_watch_each_other() {
    quietline_testing::isolated!();
    const WIDTH: usize = 40;
    let p = process();
    let layers: [Vec<i32>; 4] =
        std::array::from_fn(|_| (0..WIDTH).map(|_| p.epoll_create1(0).unwrap()).collect());
    for pair in layers.windows(2) {
        for &outer in &pair[0] {
            for &inner in &pair[1] {
                assert_eq!(watch(&p, outer, EPOLL_CTL_ADD, inner), Ok(()));
            }
        }
    }
    let (fifth, sixth) = (p.epoll_create1(0).unwrap(), p.epoll_create1(0).unwrap());
    let counter = p.eventfd(0, O_NONBLOCK).unwrap();
    let bottom = layers[3][0];
    assert_eq!(watch(&p, bottom, EPOLL_CTL_ADD, layers[0][0]), Err(Errno::LOOP), "a circle");
    assert_eq!(watch(&p, bottom, EPOLL_CTL_ADD, fifth), Ok(()));
    assert_eq!(watch(&p, fifth, EPOLL_CTL_ADD, sixth), Err(Errno::LOOP), "six in a chain");
    // A file at the bottom has 40^3 paths with four epolls: ten are allowed.
    assert_eq!(watch(&p, bottom, EPOLL_CTL_ADD, counter), Err(Errno::INVAL));
    assert_eq!(
        watch(&p, bottom, EPOLL_CTL_DEL, counter),
        Err(Errno::NOENT),
        "refused is not watched"
    );
    // One in the first layer has one.
    assert_eq!(watch(&p, layers[0][0], EPOLL_CTL_ADD, counter), Ok(()));
    assert_eq!(p.write(counter, &1u64.to_ne_bytes()), Ok(8));
    let mut events = [EpollEvent::default(); 4];
    assert_eq!(p.epoll_wait(layers[0][0], &mut events, 0), Ok(1));
    assert_eq!(p.epoll_wait(layers[0][1], &mut events, 0), Ok(0));
}

/// `select` with any number of descriptors costs what its sets have. (It looked at each of two
/// thousand million numbers: for seconds, which no interrupt ended.)
#[test]
fn select_of_all_numbers() {
    let p = process();
    let fd = p.eventfd(1, 0).unwrap();
    let mut set = FdSet::new();
    set.insert(fd).unwrap();
    let begun = worked();
    for _ in 0..10 {
        let none = Some(Duration::ZERO);
        assert_eq!(p.select(i32::MAX, Some(&mut set), None, None, none), Ok(1));
        assert!(set.contains(fd));
        assert_eq!(p.select(i32::MAX, None, None, None, none), Ok(0));
    }
    let used = worked() - begun;
    assert!(used < Duration::from_secs(1), "{used:?} of CPU time");
}
