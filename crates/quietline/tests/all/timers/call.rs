//! Calls, and what both systems offer to make them.

use std::time::Duration;

/// Places for descriptors.
pub(crate) const PLACES: usize = 7;

/// When a timer is to expire: a moment that is the same on both systems, whenever they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Not at all: disarmed.
    Never,
    /// In so many tens of seconds: not while a program runs.
    Far(u32),
    /// As above, said as a time of the clock.
    FarAt(u32),
    /// So many tens of seconds ago, said as a time of the clock.
    PastAt(u32),
    /// In so many nanoseconds, which are waited for before anything else is done.
    Soon(u32),
    /// As above, said as a time of the clock.
    SoonAt(u32),
    /// At the first moment of the clock.
    First,
    /// At the end of time.
    Last,
    /// As many seconds as fit.
    Seconds(u64),
}

impl When {
    pub(crate) fn is_absolute(self) -> bool {
        matches!(
            self,
            Self::FarAt(_) | Self::PastAt(_) | Self::SoonAt(_) | Self::First | Self::Last
        )
    }

    /// Whether it comes while a program runs, or has come.
    pub(crate) fn is_due(self) -> bool {
        matches!(self, Self::PastAt(_) | Self::Soon(_) | Self::SoonAt(_) | Self::First)
    }

    /// What is passed to the call, at a time of the timer's clock.
    pub(crate) fn value(self, now: Duration) -> Duration {
        let tens = |n: u32| Duration::from_secs(10) * n;
        match self {
            Self::Never => Duration::ZERO,
            Self::Far(n) => tens(n),
            Self::FarAt(n) => now + tens(n),
            Self::PastAt(n) => now.saturating_sub(tens(n)).max(Duration::from_nanos(1)),
            Self::Soon(n) => Duration::from_nanos(n.into()),
            Self::SoonAt(n) => now + Duration::from_nanos(n.into()),
            Self::First => Duration::from_nanos(1),
            Self::Last => Duration::new(i64::MAX as u64, 999_999_999),
            Self::Seconds(n) => Duration::from_secs(n),
        }
    }
}

/// How long a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// Nanoseconds.
    Of(u64),
    /// As long as can be said; only where there is something to be told.
    Longest,
    /// For ever; as above.
    Never,
}

impl Timeout {
    pub(crate) fn time(self) -> Option<Duration> {
        match self {
            Self::Of(nanos) => Some(Duration::from_nanos(nanos)),
            Self::Longest => Some(Duration::new(i64::MAX as u64, 999_999_999)),
            Self::Never => None,
        }
    }
}

/// What waits for a timer that is armed for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum How {
    /// A read, if the file waits.
    Read,
    Poll(Vec<(usize, i16)>),
    Select([u8; 3]),
    /// An epoll of its own.
    Epoll(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Other {
    Seek,
    Pread,
    Pwrite,
    Readable,
    Flags,
}

/// A call of a program.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Timer {
        at: usize,
        clock: i32,
        flags: i32,
    },
    Signals {
        at: usize,
        mask: u64,
        flags: i32,
    },
    /// Gives a signalfd another mask.
    Mask {
        at: usize,
        mask: u64,
        flags: i32,
    },
    Epoll {
        at: usize,
    },
    /// A place in the tree (`O_PATH`): only a name for it, of which nothing can be asked here.
    Place {
        at: usize,
    },
    Pipe {
        read: usize,
        write: usize,
    },
    Dup {
        from: usize,
        at: usize,
    },
    Close {
        at: usize,
    },
    Arm {
        at: usize,
        flags: i32,
        when: When,
        every: Duration,
    },
    /// Arms, and waits for it.
    ArmWait {
        at: usize,
        nanos: u32,
        how: How,
    },
    Get {
        at: usize,
    },
    /// Buffers' lengths.
    Read {
        at: usize,
        n: Vec<usize>,
    },
    Write {
        at: usize,
        n: usize,
    },
    Other {
        at: usize,
        what: Other,
    },
    Nonblock {
        at: usize,
        on: bool,
    },
    Kill {
        signo: i32,
    },
    Pending,
    Control {
        ep: usize,
        op: i32,
        at: usize,
        events: u32,
        data: u64,
    },
    Wait {
        ep: usize,
        max: usize,
        timeout: Timeout,
    },
    Poll {
        of: Vec<(usize, i16)>,
        timeout: Timeout,
    },
    /// With a number of milliseconds.
    PollMillis {
        of: Vec<(usize, i16)>,
        millis: i32,
    },
    Select {
        sets: [u8; 3],
        timeout: Timeout,
    },
}

pub(crate) type Result<T> = std::result::Result<T, i32>;

/// The calls of a system. Descriptors are its own.
pub(crate) trait System {
    /// The descriptor at a place: -1 if there is none.
    fn at(&mut self, place: usize) -> &mut i32;
    fn timer(&mut self, clock: i32, flags: i32) -> Result<i32>;
    fn signals(&mut self, fd: i32, mask: u64, flags: i32) -> Result<i32>;
    fn epoll(&mut self) -> Result<i32>;
    fn place(&mut self) -> Result<i32>;
    fn pipe(&mut self) -> Result<[i32; 2]>;
    fn dup(&mut self, fd: i32) -> Result<i32>;
    fn close(&mut self, fd: i32) -> Result<()>;
    /// Value and interval; those that were.
    fn set(&mut self, fd: i32, flags: i32, new: [Duration; 2]) -> Result<[Duration; 2]>;
    fn get(&mut self, fd: i32) -> Result<[Duration; 2]>;
    fn read(&mut self, fd: i32, n: &[usize]) -> Result<Vec<u8>>;
    fn write(&mut self, fd: i32, bytes: &[u8]) -> Result<usize>;
    fn other(&mut self, fd: i32, what: Other) -> Result<i64>;
    fn nonblock(&mut self, fd: i32, on: bool) -> Result<()>;
    fn kill(&mut self, signo: i32) -> Result<()>;
    fn pending(&mut self) -> u64;
    /// Process and user, as others are told.
    fn ids(&self) -> [u32; 2];
    fn control(&mut self, ep: i32, op: i32, fd: i32, events: u32, data: u64) -> Result<()>;
    fn wait(&mut self, ep: i32, max: usize, timeout: Option<Duration>) -> Result<Vec<(u32, u64)>>;
    fn poll(&mut self, of: &[(i32, i16)], timeout: Option<Duration>) -> Result<Vec<i16>>;
    fn poll_millis(&mut self, of: &[(i32, i16)], millis: i32) -> Result<Vec<i16>>;
    /// Descriptors of each set; which of them are told.
    fn select(&mut self, sets: &[Vec<i32>; 3], timeout: Option<Duration>)
    -> Result<[Vec<bool>; 3]>;
}
