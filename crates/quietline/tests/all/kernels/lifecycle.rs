//! What is open, who keeps it open, and that nothing is left.

use crate::support::{alone, assert_nothing_open, pages_used};
use quietline::abi::*;
use quietline::{Config, Errno, EventFd, Kernel, Process, Socket};

fn one_of_each(process: &Process, any: i32) -> Vec<i32> {
    let [reader, writer] = process.pipe2(any).unwrap();
    vec![
        process.socket(AF_INET, SOCK_STREAM | any, 0).unwrap(),
        process.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | any, 0).unwrap(),
        reader,
        writer,
        process.eventfd(1, any).unwrap(),
        process.timerfd_create(CLOCK_MONOTONIC, any).unwrap(),
        process.signalfd(-1, 1, any).unwrap(),
    ]
}

#[test]
fn dropping_a_process_closes_everything() {
    quietline_testing::isolated!();
    let _alone = alone();
    let kernel = Kernel::boot(Config::default()).unwrap();
    let process = kernel.process().unwrap();
    let others = kernel.process().unwrap();
    for round in 1..=100 {
        one_of_each(&process, 0);
        one_of_each(&process, O_ANYFD);
        assert_eq!(kernel.nr_files(), 14 * round);
        assert_eq!((kernel.nr_dentry(), kernel.nr_inodes()), (12 * round, 6 * round));
    }
    one_of_each(&others, 0);
    drop(process);
    assert_eq!(
        (kernel.nr_files(), kernel.nr_dentry(), kernel.nr_inodes()),
        (7, 6, 3),
        "the other's are open"
    );
    drop(others);
    assert_nothing_open(&kernel);
}

#[test]
fn nothing_is_left_of_a_kernel() {
    quietline_testing::isolated!();
    let _alone = alone();
    drop(Kernel::boot(Config::default()).unwrap());
    let before = pages_used();
    for any in [0, O_ANYFD] {
        let kernel = Kernel::boot(Config::default()).unwrap();
        let owner = kernel.clone();
        let process = kernel.process().unwrap();
        for _ in 0..1000 {
            one_of_each(&process, any);
        }
        drop(kernel);
        assert!(pages_used() > before);
        assert_eq!(owner.nr_files(), 7000, "a kernel lives as long as an owner or a process");
        drop(owner);
        drop(process);
        assert_eq!(pages_used(), before, "pages in use");
    }
}

#[test]
fn a_handle_keeps_a_file_open() {
    quietline_testing::isolated!();
    let _alone = alone();
    let kernel = Kernel::boot(Config::default()).unwrap();
    let process = kernel.process().unwrap();
    let fd = process.eventfd(17, 0).unwrap();
    let file = process.file(fd).unwrap();
    let clone = file.clone();
    assert!(file.same_file(&clone));
    process.close(fd).unwrap();
    assert_eq!(process.file(fd).unwrap_err(), Errno::BADF);
    assert_eq!(file.payload::<EventFd>().unwrap().count(), 17);
    drop(file);
    assert_eq!(kernel.nr_files(), 1);
    assert_eq!(
        process.install_file(clone, O_CLOEXEC).unwrap(),
        0,
        "the last reference went into the table"
    );
    assert_eq!(process.fcntl(0, F_GETFD, 0).unwrap(), FD_CLOEXEC);
    process.close(0).unwrap();
    assert_nothing_open(&kernel);

    let other = Kernel::boot(Config::default()).unwrap();
    let other = other.process().unwrap();
    let strange = other.eventfd_file(1, 0).unwrap();
    assert_eq!(process.install_file(strange, 0).unwrap_err(), Errno::INVAL, "of another kernel");
    assert_nothing_open(other.kernel());
}

#[test]
fn files_without_descriptors_take_none() {
    quietline_testing::isolated!();
    let _alone = alone();
    let kernel = Kernel::boot(Config::default().nofile(0)).unwrap();
    let process = kernel.process().unwrap();
    let socket = process.socket_file(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0).unwrap();
    assert_eq!(socket.payload::<Socket>().unwrap().family(), AF_INET6);
    assert_eq!(socket.flags(), O_RDWR | O_NONBLOCK);
    let [reader, writer] = process.pipe_files(0).unwrap();
    assert_eq!(reader.name().to_string(), writer.name().to_string());
    assert_eq!((kernel.nr_files(), kernel.nr_dentry()), (3, 2));
    assert!(process.open_fds().unwrap().is_empty());
    drop(reader);
    assert_eq!((kernel.nr_files(), kernel.nr_dentry()), (2, 2), "the pipe lives by its other end");
    drop((writer, socket));
    assert_nothing_open(&kernel);
}

#[test]
fn fork_shares_open_files_and_not_descriptors() {
    quietline_testing::isolated!();
    let _alone = alone();
    let kernel = Kernel::boot(Config::default()).unwrap();
    let parent = kernel.process().unwrap();
    let fds = one_of_each(&parent, 0);
    let any = parent.eventfd(9, O_ANYFD | O_CLOEXEC).unwrap();
    parent.set_nofile(4096).unwrap();
    let files = kernel.nr_files();
    let child = parent.fork().unwrap();
    assert_eq!(kernel.nr_files(), files, "no file is opened by a fork");
    assert_eq!(child.open_fds().unwrap(), parent.open_fds().unwrap());
    assert_eq!(child.nofile(), 4096);
    for &fd in fds.iter().chain([&any]) {
        assert!(child.file(fd).unwrap().same_file(&parent.file(fd).unwrap()));
        assert_eq!(child.fcntl(fd, F_GETFD, 0), parent.fcntl(fd, F_GETFD, 0), "kept on fork");
    }
    // The status flags are the file's, seen through both; descriptor flags are each one's own.
    parent.fcntl(fds[0], F_SETFL, O_NONBLOCK as u64).unwrap();
    assert_eq!(child.fcntl(fds[0], F_GETFL, 0), Ok(O_RDWR | O_NONBLOCK));
    child.fcntl(fds[0], F_SETFL, 0).unwrap();
    assert_eq!(parent.fcntl(fds[0], F_GETFL, 0), Ok(O_RDWR));
    child.fcntl(fds[0], F_SETFD, 1).unwrap();
    assert_eq!(parent.fcntl(fds[0], F_GETFD, 0), Ok(0));
    // Each closes for itself, and the tables go apart.
    parent.close(fds[1]).unwrap();
    assert!(child.fd_name(fds[1]).is_ok());
    assert_eq!(kernel.nr_files(), files);
    assert_eq!(parent.eventfd(0, 0), Ok(fds[1]), "free in the parent");
    let lowest = child.eventfd(0, 0).unwrap();
    assert_eq!(lowest, fds.iter().max().unwrap() + 1, "not in the child");
    child.close(any).unwrap();
    assert!(parent.fd_name(any).is_ok());
    let grandchild = child.fork().unwrap();
    drop((parent, child));
    assert_eq!(kernel.nr_files(), 8, "seven of the first, one that the child opened");
    drop(grandchild);
    assert_nothing_open(&kernel);
}

#[test]
fn a_fork_of_many_descriptors() {
    quietline_testing::isolated!();
    let _alone = alone();
    let kernel = Kernel::boot(Config::default()).unwrap();
    let parent = kernel.process().unwrap();
    for n in 0..100_000 {
        parent.eventfd(n, if n % 2 == 0 { 0 } else { O_ANYFD }).unwrap();
    }
    for fd in parent.open_fds().unwrap().into_iter().step_by(3) {
        parent.close(fd).unwrap();
    }
    let child = parent.fork().unwrap();
    assert_eq!(child.open_fds().unwrap(), parent.open_fds().unwrap());
    assert_eq!(child.dup(1), Ok(0), "the lowest that is free");
    drop(parent);
    child.close_range(0, u32::MAX, 0).unwrap();
    assert_nothing_open(&kernel);
}

#[test]
fn kernels_do_not_know_each_other() {
    quietline_testing::isolated!();
    let _alone = alone();
    let kernels = [1, 2, 3].map(|_| Kernel::boot(Config::default().file_max(10)).unwrap());
    let processes = kernels.each_ref().map(|k| k.process().unwrap());
    for (n, process) in processes.iter().enumerate() {
        for fd in 0..=n {
            assert_eq!(process.socket(AF_INET, SOCK_STREAM, 0), Ok(fd as i32));
        }
    }
    assert_eq!(kernels.each_ref().map(Kernel::nr_files), [1, 2, 3]);
    assert_eq!(processes[0].fd_name(0), processes[1].fd_name(0), "each counts its inodes");
    drop(processes);
    kernels.iter().for_each(assert_nothing_open);
}
