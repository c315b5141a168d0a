//! The numbers of Linux's system call interface that quietline takes, and [`O_ANYFD`].

pub use quietline_net::abi::*;
pub use quietline_vfs::abi::*;
pub use quietline_vfs::eventpoll::{
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLERR, EPOLLET, EPOLLEXCLUSIVE,
    EPOLLHUP, EPOLLIN, EPOLLMSG, EPOLLONESHOT, EPOLLOUT, EPOLLPRI, EPOLLRDBAND, EPOLLRDHUP,
    EPOLLRDNORM, EPOLLWAKEUP, EPOLLWRBAND, EPOLLWRNORM,
};
