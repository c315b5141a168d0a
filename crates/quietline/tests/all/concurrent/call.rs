//! Calls of a program, as both systems take them, and what comes of them.

/// Threads of a program.
pub(crate) const THREADS: usize = 4;
/// Places for descriptors.
pub(crate) const SLOTS: usize = 10;
/// Names of each kind of socket.
pub(crate) const NAMES: usize = 2;

/// What kind of socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Stream,
    Dgram,
    Seqpacket,
    Tcp,
    Udp,
}

impl Kind {
    /// Family and type.
    pub(crate) fn numbers(self) -> (i32, i32) {
        match self {
            Self::Stream => (libc::AF_UNIX, libc::SOCK_STREAM),
            Self::Dgram => (libc::AF_UNIX, libc::SOCK_DGRAM),
            Self::Seqpacket => (libc::AF_UNIX, libc::SOCK_SEQPACKET),
            Self::Tcp => (libc::AF_INET, libc::SOCK_STREAM),
            Self::Udp => (libc::AF_INET, libc::SOCK_DGRAM),
        }
    }

    /// Whether bytes run together.
    pub(crate) fn is_stream(self) -> bool {
        matches!(self, Self::Stream | Self::Tcp)
    }

    /// Whether it sends without a connection.
    pub(crate) fn is_dgram(self) -> bool {
        matches!(self, Self::Dgram | Self::Udp)
    }

    pub(crate) fn is_inet(self) -> bool {
        matches!(self, Self::Tcp | Self::Udp)
    }
}

/// A call of a program; `at` and the like are places. What makes descriptors says where they go.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Call {
    Pipe {
        at: [usize; 2],
        packets: bool,
    },
    Counter {
        at: usize,
        semaphore: bool,
    },
    Epoll {
        at: usize,
    },
    Pair {
        at: [usize; 2],
        kind: Kind,
    },
    Socket {
        at: usize,
        kind: Kind,
    },
    /// A socket with a name.
    Bound {
        at: usize,
        kind: Kind,
        name: usize,
    },
    /// A socket with a name, which takes connections.
    Listener {
        at: usize,
        kind: Kind,
        name: usize,
        backlog: i32,
    },
    /// Opens the program's fifo.
    Open {
        at: usize,
        flags: i32,
    },
    Dup {
        from: usize,
        at: usize,
    },
    /// Closes what is there and duplicates another to its place.
    Replace {
        from: usize,
        at: usize,
    },
    Close {
        at: usize,
    },
    Read {
        at: usize,
        len: usize,
    },
    Write {
        at: usize,
        len: usize,
    },
    /// Reads a counter.
    Take {
        at: usize,
    },
    /// Writes a counter.
    Add {
        at: usize,
        n: u64,
    },
    /// With room for a file that may come with the bytes, which goes to that place.
    Recv {
        at: usize,
        len: usize,
        flags: i32,
        file: Option<usize>,
    },
    /// With a `file`: a counter that is made for it, and closed when the call ends.
    Send {
        at: usize,
        to: Option<(Kind, usize)>,
        len: usize,
        flags: i32,
        file: bool,
    },
    /// From pipe to pipe, without waiting. As a `tee` it takes nothing away.
    Splice {
        from: usize,
        to: usize,
        len: usize,
        tee: bool,
    },
    /// Sends messages of that length, without waiting, until there is an error.
    Fill {
        at: usize,
        len: usize,
    },
    Accept {
        at: usize,
        to: usize,
    },
    /// Without `waits`: an error rather than to wait for a place.
    Connect {
        at: usize,
        kind: Kind,
        name: usize,
        waits: bool,
    },
    Shutdown {
        at: usize,
        how: i32,
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
        timeout: i32,
    },
    Poll {
        of: Vec<(usize, i16)>,
        timeout: i32,
    },
    /// Sets the size of a pipe.
    Resize {
        at: usize,
        bytes: u64,
    },
    NonBlocking {
        at: usize,
        on: bool,
    },
    /// A signal to a thread that sleeps.
    Interrupt {
        thread: usize,
    },
}

impl Call {
    /// Where its new descriptors go.
    pub(crate) fn makes(&self) -> &[usize] {
        match self {
            Self::Pipe { at, .. } | Self::Pair { at, .. } => at,
            Self::Counter { at, .. }
            | Self::Epoll { at }
            | Self::Socket { at, .. }
            | Self::Bound { at, .. }
            | Self::Listener { at, .. }
            | Self::Open { at, .. }
            | Self::Dup { at, .. }
            | Self::Recv { file: Some(at), .. }
            | Self::Accept { to: at, .. } => std::slice::from_ref(at),
            _ => &[],
        }
    }

    /// Whether it comes back after a while, whatever the others do.
    pub(crate) fn expires(&self) -> bool {
        matches!(self, Self::Wait { timeout, .. } | Self::Poll { timeout, .. } if (1..1_000).contains(timeout))
    }
}

pub(crate) type Result<T> = std::result::Result<T, i32>;

/// What came of a call.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) result: Result<i64>,
    pub(crate) bytes: Vec<u8>,
    /// Events and data of an epoll; what each file has for `poll`.
    pub(crate) events: Vec<(u32, u64)>,
    /// Descriptors that it made. Their numbers are not compared.
    pub(crate) fds: Vec<i32>,
    /// The name that a socket was given. Not compared.
    pub(crate) name: Vec<u8>,
}

impl PartialEq for Outcome {
    fn eq(&self, other: &Self) -> bool {
        self.result == other.result
            && self.bytes == other.bytes
            && self.events == other.events
            && self.fds.len() == other.fds.len()
    }
}

/// The calls of a system, with its own descriptors.
pub(crate) trait System: Send + Sync + 'static {
    fn pipe(&self, flags: i32) -> Result<[i32; 2]>;
    fn counter(&self, flags: i32) -> Result<i32>;
    fn epoll(&self) -> Result<i32>;
    fn pair(&self, family: i32, ty: i32) -> Result<[i32; 2]>;
    fn socket(&self, family: i32, ty: i32) -> Result<i32>;
    fn bind(&self, fd: i32, name: &[u8]) -> Result<()>;
    fn listen(&self, fd: i32, backlog: i32) -> Result<()>;
    fn connect(&self, fd: i32, name: &[u8]) -> Result<()>;
    fn accept(&self, fd: i32) -> Result<i32>;
    fn name(&self, fd: i32) -> Result<Vec<u8>>;
    fn shutdown(&self, fd: i32, how: i32) -> Result<()>;
    fn open_fifo(&self, flags: i32) -> Result<i32>;
    fn dup(&self, fd: i32) -> Result<i32>;
    fn dup2(&self, from: i32, to: i32) -> Result<i32>;
    fn close(&self, fd: i32) -> Result<()>;
    fn read(&self, fd: i32, to: &mut [u8]) -> Result<usize>;
    fn write(&self, fd: i32, from: &[u8]) -> Result<usize>;
    fn recv(&self, fd: i32, to: &mut [u8], flags: i32) -> Result<usize>;
    fn send(&self, fd: i32, from: &[u8], flags: i32, name: Option<&[u8]>) -> Result<usize>;
    /// Receives with room for one file: how many bytes, and the file.
    fn recv_file(&self, fd: i32, to: &mut [u8], flags: i32) -> Result<(usize, Option<i32>)>;
    /// Sends a file with the bytes.
    fn send_file(&self, fd: i32, from: &[u8], flags: i32, name: &[u8], file: i32) -> Result<usize>;
    /// From pipe to pipe, without waiting; or a `tee`.
    fn splice(&self, from: i32, to: i32, len: usize, tee: bool) -> Result<usize>;
    /// Sends what there is at once, rather than to wait for more (`TCP_NODELAY`).
    fn no_delay(&self, fd: i32) -> Result<()>;
    fn fcntl(&self, fd: i32, cmd: i32, arg: u64) -> Result<i32>;
    /// How many bytes can be read.
    fn readable(&self, fd: i32) -> Result<i32>;
    fn control(&self, ep: i32, op: i32, fd: i32, events: u32, data: u64) -> Result<()>;
    fn wait(&self, ep: i32, max: usize, timeout: i32) -> Result<Vec<(u32, u64)>>;
    /// What each file has.
    fn poll(&self, of: &[(i32, i16)], timeout: i32) -> Result<Vec<i16>>;
}

/// A control message with a file, as 64-bit Linux lays it out.
pub(crate) fn rights(file: i32) -> [u64; 3] {
    [20, libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32, file as u64]
}

/// What a call needs besides its own words.
pub(crate) struct Given {
    /// What is at the places: -1 where nothing is.
    pub(crate) fds: [i32; SLOTS],
    /// The first byte to be sent; the others count on.
    pub(crate) byte: u8,
    /// The name that the call means.
    pub(crate) name: Vec<u8>,
}

impl Given {
    fn bytes(&self, len: usize) -> Vec<u8> {
        (0..len).map(|n| self.byte.wrapping_add(n as u8)).collect()
    }
}

/// More than any queue takes.
const FILL: i64 = 2_000;

/// Makes a call.
pub(crate) fn make(call: &Call, on: &impl System, given: &Given) -> Outcome {
    let mut outcome = Outcome {
        result: Ok(0),
        bytes: vec![],
        events: vec![],
        fds: vec![],
        name: given.name.clone(),
    };
    outcome.result = run(call, on, given, &mut outcome);
    outcome
}

fn run(call: &Call, on: &impl System, given: &Given, out: &mut Outcome) -> Result<i64> {
    let fd = |at: usize| given.fds[at];
    let number = |n: usize| n as i64;
    let done = |()| 0;
    let mut made = |fds: &[i32]| {
        out.fds.extend(fds);
        0
    };
    match call {
        Call::Pipe { packets, .. } => {
            on.pipe(if *packets { libc::O_DIRECT } else { 0 }).map(|ends| made(&ends))
        }
        Call::Counter { semaphore, .. } => {
            on.counter(if *semaphore { libc::EFD_SEMAPHORE } else { 0 }).map(|fd| made(&[fd]))
        }
        Call::Epoll { .. } => on.epoll().map(|fd| made(&[fd])),
        Call::Pair { kind: Kind::Tcp, .. } => tcp_pair(on).map(|ends| made(&ends)),
        Call::Pair { kind, .. } => {
            let (family, ty) = kind.numbers();
            on.pair(family, ty).map(|ends| made(&ends))
        }
        Call::Socket { kind, .. } | Call::Bound { kind, .. } | Call::Listener { kind, .. } => {
            let (family, ty) = kind.numbers();
            let fd = socket(on, family, ty)?;
            let mut named = Ok(());
            if !matches!(call, Call::Socket { .. }) {
                named = on.bind(fd, &given.name);
            }
            if let Call::Listener { backlog, .. } = call {
                named = named.and_then(|()| on.listen(fd, *backlog));
            }
            if named.is_err() {
                on.close(fd)?;
            }
            named?;
            made(&[fd]);
            out.name = on.name(fd)?;
            Ok(0)
        }
        Call::Open { flags, .. } => on.open_fifo(*flags).map(|fd| made(&[fd])),
        Call::Dup { from, .. } => on.dup(fd(*from)).map(|fd| made(&[fd])),
        Call::Replace { from, at } => on.dup2(fd(*from), fd(*at)).map(|_| 0),
        Call::Close { at } => on.close(fd(*at)).map(done),
        Call::Read { at, len } => {
            out.bytes = vec![0; *len];
            let n = on.read(fd(*at), &mut out.bytes);
            out.bytes.truncate(*n.as_ref().unwrap_or(&0));
            n.map(number)
        }
        Call::Write { at, len } => on.write(fd(*at), &given.bytes(*len)).map(number),
        Call::Take { at } => {
            out.bytes = vec![0; 8];
            on.read(fd(*at), &mut out.bytes).map(number)
        }
        Call::Add { at, n } => on.write(fd(*at), &n.to_ne_bytes()).map(number),
        Call::Recv { at, len, flags, file: Some(_) } => {
            out.bytes = vec![0; *len];
            let received = on.recv_file(fd(*at), &mut out.bytes, *flags);
            out.bytes.truncate(received.as_ref().map_or(0, |(n, _)| *n));
            let (n, file) = received?;
            made(file.as_slice());
            Ok(n as i64)
        }
        Call::Recv { at, len, flags, file: None } => {
            out.bytes = vec![0; *len];
            let n = on.recv(fd(*at), &mut out.bytes, *flags);
            out.bytes.truncate(*n.as_ref().unwrap_or(&0));
            n.map(number)
        }
        Call::Send { at, to, len, flags, file: true } => {
            let name = if to.is_some() { given.name.as_slice() } else { &[] };
            let file = on.counter(0)?;
            let flags = *flags | libc::MSG_NOSIGNAL;
            let sent = on.send_file(fd(*at), &given.bytes(*len), flags, name, file).map(number);
            on.close(file)?;
            sent
        }
        Call::Splice { from, to, len, tee } => {
            on.splice(fd(*from), fd(*to), *len, *tee).map(number)
        }
        Call::Send { at, to, len, flags, file: false } => {
            let name = to.map(|_| given.name.as_slice());
            on.send(fd(*at), &given.bytes(*len), *flags | libc::MSG_NOSIGNAL, name).map(number)
        }
        Call::Fill { at, len } => {
            let bytes = given.bytes(*len);
            let mut sent = 0;
            for _ in 0..FILL {
                match on.send(fd(*at), &bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL, None) {
                    Ok(n) => sent += n as i64,
                    Err(errno) => {
                        out.events.push((errno as u32, 0));
                        break;
                    }
                }
            }
            Ok(sent)
        }
        Call::Accept { at, .. } => on.accept(fd(*at)).map(|fd| made(&[fd])),
        Call::Connect { at, waits, .. } => {
            let fd = fd(*at);
            let before = on.fcntl(fd, libc::F_GETFL, 0)?;
            if !waits {
                on.fcntl(fd, libc::F_SETFL, (before | libc::O_NONBLOCK) as u64)?;
            }
            let connected = on.connect(fd, &given.name).map(done);
            if !waits {
                on.fcntl(fd, libc::F_SETFL, before as u64)?;
            }
            connected
        }
        Call::Shutdown { at, how } => on.shutdown(fd(*at), *how).map(done),
        Call::Control { ep, op, at, events, data } => {
            on.control(fd(*ep), *op, fd(*at), *events, *data).map(done)
        }
        Call::Wait { ep, max, timeout } => {
            out.events = on.wait(fd(*ep), *max, *timeout)?;
            Ok(out.events.len() as i64)
        }
        Call::Poll { of, timeout } => {
            let of: Vec<_> = of.iter().map(|(at, events)| (fd(*at), *events)).collect();
            let found = on.poll(&of, *timeout)?;
            out.events = found.iter().map(|found| (*found as u16 as u32, 0)).collect();
            Ok(found.iter().filter(|found| **found != 0).count() as i64)
        }
        Call::Resize { at, bytes } => on.fcntl(fd(*at), libc::F_SETPIPE_SZ, *bytes).map(i64::from),
        Call::NonBlocking { at, on: wanted } => {
            let before = on.fcntl(fd(*at), libc::F_GETFL, 0)?;
            let flags =
                if *wanted { before | libc::O_NONBLOCK } else { before & !libc::O_NONBLOCK };
            on.fcntl(fd(*at), libc::F_SETFL, flags as u64).map(i64::from)
        }
        Call::Interrupt { .. } => unreachable!("not made by a thread of the program"),
    }
}

/// A name of the loopback device. Port 0 is any, and nobody is at port 1.
pub(crate) fn loopback(port: u8) -> Vec<u8> {
    let mut name = (libc::AF_INET as u16).to_ne_bytes().to_vec();
    name.extend([0, port, 127, 0, 0, 1]);
    name.resize(16, 0);
    name
}

/// A socket that keeps nothing back.
fn socket(on: &impl System, family: i32, ty: i32) -> Result<i32> {
    let fd = on.socket(family, ty)?;
    if (family, ty) == Kind::Tcp.numbers() {
        on.no_delay(fd)?;
    }
    Ok(fd)
}

/// Two ends of a connection.
fn tcp_pair(on: &impl System) -> Result<[i32; 2]> {
    let (family, ty) = Kind::Tcp.numbers();
    let listener = socket(on, family, ty)?;
    on.bind(listener, &loopback(0))?;
    on.listen(listener, 1)?;
    let one = socket(on, family, ty)?;
    on.connect(one, &on.name(listener)?)?;
    let other = on.accept(listener)?;
    on.close(listener)?;
    Ok([one, other])
}
