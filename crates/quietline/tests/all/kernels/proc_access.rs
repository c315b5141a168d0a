//! Access to a process through `/proc`, and the locks that such an access takes.

use quietline::abi::*;
use quietline::{Config, Errno, Kernel, Process};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn root() -> Process {
    Kernel::boot(Config::default().owner(0, 0).proc(true)).expect("memory").process().unwrap()
}

/// Calls `f` in a thread of its own. Fails if it does not come to its end.
#[track_caller]
fn ends<R: Send + 'static>(what: &str, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(f()));
    match told.recv_timeout(LONG) {
        Ok(result) => result,
        Err(error) => panic!("{what}: {error}"),
    }
}

fn read(p: &Process, fd: i32) -> String {
    let mut buffer = [0; 200];
    let n = p.read(fd, &mut buffer).unwrap();
    String::from_utf8(buffer[..n].to_vec()).unwrap()
}

/// The `fdinfo` of the descriptor that is read gives the offset before the read.
#[test]
fn fdinfo_of_the_descriptor_that_is_read() {
    quietline_testing::isolated!();
    let p = root();
    let text = ends("fdinfo of itself", move || {
        let a = p.open("/", O_RDONLY, 0).unwrap();
        let b = p.open(format!("/proc/self/fdinfo/{a}"), O_RDONLY, 0).unwrap();
        p.dup2(b, a).unwrap();
        let (text, again) = (read(&p, b), {
            p.lseek(b, 0, SEEK_SET).unwrap();
            let mut two = [[0; 5], [0; 5]];
            let [one, other] = &mut two;
            p.readv(a, &mut [&mut one[..], &mut other[..]]).unwrap();
            String::from_utf8(two.concat()).unwrap()
        });
        assert!(text.starts_with(&again), "{again}");
        text
    });
    assert!(text.starts_with("pos:\t0\nflags:\t0"), "{text}");
}

/// Two descriptors that are read at once, each with the other's text.
#[test]
fn fdinfo_of_each_other() {
    quietline_testing::isolated!();
    let p = root();
    ends("fdinfo of each other", move || {
        let [a, b] = [(); 2].map(|()| p.open("/", O_RDONLY, 0).unwrap());
        let of = |fd: i32| p.open(format!("/proc/self/fdinfo/{fd}"), O_RDONLY, 0).unwrap();
        let (of_b, of_a) = (of(b), of(a));
        p.dup2(of_b, a).unwrap();
        p.dup2(of_a, b).unwrap();
        thread::scope(|scope| {
            let p = &p;
            for fd in [a, b, of_a, of_b] {
                scope.spawn(move || {
                    for _ in 0..quietline_testing::scaled(2_000) {
                        assert_eq!(p.lseek(fd, 0, SEEK_SET), Ok(0));
                        let mut buffer = [0; 5];
                        // Another thread may have read on meanwhile.
                        p.read(fd, &mut buffer).unwrap();
                        p.getdents64(fd, &mut buffer).unwrap_err();
                    }
                });
            }
        });
    });
}

/// The `fdinfo` of a directory descriptor gives the place of the next entry.
#[test]
fn fdinfo_of_a_directory() {
    quietline_testing::isolated!();
    let p = root();
    ends("fdinfo of a directory that is listed", move || {
        let dir = p.open("/proc/self/fdinfo", O_RDONLY, 0).unwrap();
        let mut buffer = [0; 1000];
        assert!(p.getdents64(dir, &mut buffer).unwrap() > 0);
        let info = p.open(format!("/proc/self/fdinfo/{dir}"), O_RDONLY, 0).unwrap();
        let text = read(&p, info);
        let stands = p.lseek(dir, 0, SEEK_CUR).unwrap();
        assert!(text.starts_with(&format!("pos:\t{stands}\n")), "{text} {stands}");
        assert_eq!(p.open("/proc/self/fdinfo/77", O_RDONLY, 0), Err(Errno::NOENT));
    });
}
