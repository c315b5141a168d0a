//! Calls, as both systems take them.

/// Places for descriptors.
pub(crate) const PLACES: usize = 8;

/// What may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Semaphore,
    Epoll,
    /// A place in the tree (`O_PATH`): only a name for it, of which nothing can be asked here.
    Place,
}

/// A call of a program.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    /// Makes something at a place, if that is empty.
    Make {
        at: usize,
        kind: Kind,
    },
    /// Makes a pipe at two places.
    Pipe {
        read: usize,
        write: usize,
    },
    /// Makes a duplicate.
    Dup {
        from: usize,
        at: usize,
    },
    Close {
        at: usize,
    },
    /// Adds to a counter, or writes so many bytes into a pipe.
    Write {
        at: usize,
        n: u64,
    },
    /// Reads a counter, or so many bytes.
    Read {
        at: usize,
        n: usize,
    },
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
    },
    /// Places and events.
    Poll {
        of: Vec<(usize, i16)>,
    },
    /// Which places are in which set.
    Select {
        sets: [u8; 3],
    },
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The place was not as the call needs it.
    Passed,
    Failed(i32),
    Number(u64),
    Events(Vec<(u32, u64)>),
}

pub(crate) type Result<T> = std::result::Result<T, i32>;

/// The calls of a system. Descriptors are its own.
pub(crate) trait System {
    /// The descriptor at a place: -1 if there is none.
    fn at(&mut self, place: usize) -> &mut i32;
    fn counter(&mut self) -> Result<i32>;
    fn semaphore(&mut self) -> Result<i32>;
    fn epoll(&mut self) -> Result<i32>;
    fn place(&mut self) -> Result<i32>;
    fn pipe(&mut self) -> Result<[i32; 2]>;
    fn dup(&mut self, fd: i32) -> Result<i32>;
    fn close(&mut self, fd: i32) -> Result<()>;
    fn write(&mut self, fd: i32, bytes: &[u8]) -> Result<usize>;
    fn read(&mut self, fd: i32, bytes: &mut [u8]) -> Result<usize>;
    fn control(&mut self, ep: i32, op: i32, fd: i32, events: u32, data: u64) -> Result<()>;
    fn wait(&mut self, ep: i32, max: usize) -> Result<Vec<(u32, u64)>>;
    fn poll(&mut self, of: &[(i32, i16)]) -> Result<Vec<i16>>;
    /// Descriptors of each set; which of them are told.
    fn select(&mut self, sets: &[Vec<i32>; 3]) -> Result<[Vec<bool>; 3]>;
}

fn outcome<T>(result: Result<T>, of: impl FnOnce(T) -> Outcome) -> Outcome {
    result.map_or_else(Outcome::Failed, of)
}

impl Call {
    pub(crate) fn run<S: System>(&self, on: &mut S) -> Outcome {
        match self {
            Self::Make { at, kind } => {
                if *on.at(*at) >= 0 {
                    return Outcome::Passed;
                }
                let made = match kind {
                    Kind::Counter => on.counter(),
                    Kind::Semaphore => on.semaphore(),
                    Kind::Epoll => on.epoll(),
                    Kind::Place => on.place(),
                };
                outcome(made, |fd| {
                    *on.at(*at) = fd;
                    Outcome::Number(0)
                })
            }
            Self::Pipe { read, write } => {
                if read == write || *on.at(*read) >= 0 || *on.at(*write) >= 0 {
                    return Outcome::Passed;
                }
                outcome(on.pipe(), |[r, w]| {
                    (*on.at(*read), *on.at(*write)) = (r, w);
                    Outcome::Number(0)
                })
            }
            Self::Dup { from, at } => {
                let fd = *on.at(*from);
                if fd < 0 || *on.at(*at) >= 0 {
                    return Outcome::Passed;
                }
                outcome(on.dup(fd), |fd| {
                    *on.at(*at) = fd;
                    Outcome::Number(0)
                })
            }
            Self::Close { at } => {
                let fd = std::mem::replace(on.at(*at), -1);
                if fd < 0 {
                    Outcome::Passed
                } else {
                    outcome(on.close(fd), |()| Outcome::Number(0))
                }
            }
            Self::Write { at, n } => {
                let fd = *on.at(*at);
                // What is written to a pipe is as long as what is written to a counter is large, as far as that is sensible.
                let long;
                let bytes: &[u8] = match n {
                    0..=16 => &n.to_ne_bytes(),
                    17..=100_000 => {
                        long = vec![0; *n as usize];
                        &long
                    }
                    _ => &n.to_ne_bytes(),
                };
                outcome(on.write(fd, bytes), |n| Outcome::Number(n as u64))
            }
            Self::Read { at, n } => {
                let fd = *on.at(*at);
                let mut bytes = vec![0; *n];
                outcome(on.read(fd, &mut bytes), |n| {
                    Outcome::Events(
                        bytes[..n.min(8)].iter().map(|byte| (n as u32, u64::from(*byte))).collect(),
                    )
                })
            }
            Self::Control { ep, op, at, events, data } => {
                let (ep, fd) = (*on.at(*ep), *on.at(*at));
                outcome(on.control(ep, *op, fd, *events, *data), |()| Outcome::Number(0))
            }
            Self::Wait { ep, max } => {
                let ep = *on.at(*ep);
                outcome(on.wait(ep, *max), Outcome::Events)
            }
            Self::Poll { of } => {
                let of: Vec<_> =
                    of.iter().map(|(place, events)| (*on.at(*place), *events)).collect();
                outcome(on.poll(&of), |found| {
                    Outcome::Events(
                        found.into_iter().map(|found| (found as u16 as u32, 0)).collect(),
                    )
                })
            }
            Self::Select { sets } => {
                let sets = sets.map(|set| {
                    let places = (0..PLACES).filter(|place| set >> place & 1 != 0);
                    places.map(|place| *on.at(place)).filter(|fd| *fd >= 0).collect()
                });
                outcome(on.select(&sets), |told| {
                    Outcome::Events(
                        told.into_iter().flatten().map(|told| (u32::from(told), 0)).collect(),
                    )
                })
            }
        }
    }
}
