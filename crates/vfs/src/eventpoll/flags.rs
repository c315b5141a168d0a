//! Bits of epoll's masks. The events have the numbers of `poll`'s.

/// There is something to be read.
pub const EPOLLIN: u32 = 0x001;
/// There is something exceptional.
pub const EPOLLPRI: u32 = 0x002;
/// There is room to write.
pub const EPOLLOUT: u32 = 0x004;
/// An error; always reported.
pub const EPOLLERR: u32 = 0x008;
/// The other side has hung up; always reported.
pub const EPOLLHUP: u32 = 0x010;
/// As [`EPOLLIN`].
pub const EPOLLRDNORM: u32 = 0x040;
/// Priority data to be read.
pub const EPOLLRDBAND: u32 = 0x080;
/// As [`EPOLLOUT`].
pub const EPOLLWRNORM: u32 = 0x100;
/// Room for priority data.
pub const EPOLLWRBAND: u32 = 0x200;
/// Never reported.
pub const EPOLLMSG: u32 = 0x400;
/// The other side writes no more.
pub const EPOLLRDHUP: u32 = 0x2000;
/// One wake-up for one of the pollers that watch the file.
pub const EPOLLEXCLUSIVE: u32 = 1 << 28;
/// The system is not to sleep meanwhile, which it does not here.
pub const EPOLLWAKEUP: u32 = 1 << 29;
/// Only one event; then the file is watched for nothing until it is modified.
pub const EPOLLONESHOT: u32 = 1 << 30;
/// Edge-triggered: an event for each wake-up, not as long as the file is ready.
pub const EPOLLET: u32 = 1 << 31;

/// The bits that say how, not what.
pub(crate) const PRIVATE: u32 = EPOLLEXCLUSIVE | EPOLLWAKEUP | EPOLLONESHOT | EPOLLET;
