//! Calls, and a world in which they are made.

use crate::inet::host::ALL;
use crate::inet::many::{Came, Many};
use std::collections::{HashMap, HashSet};

/// Places for sockets.
pub(crate) const PLACES: usize = 6;

/// An address of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ip {
    Loopback,
    Any,
    /// 127.0.0.2; `::ffff:127.0.0.1` for version 6.
    Other,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    Socket {
        at: usize,
        v6: bool,
        datagrams: bool,
    },
    Close(usize),
    /// To any free port.
    Bind(usize, Ip),
    /// To another socket's port.
    BindSame {
        at: usize,
        with: usize,
        ip: Ip,
    },
    Listen(usize, i32),
    Connect {
        at: usize,
        to: usize,
        ip: Ip,
    },
    Disconnect(usize),
    Accept {
        at: usize,
        new: usize,
    },
    Shutdown(usize, i32),
    Send {
        at: usize,
        len: usize,
        flags: i32,
    },
    SendTo {
        at: usize,
        to: usize,
        ip: Ip,
        len: usize,
    },
    Receive {
        at: usize,
        len: usize,
        flags: i32,
    },
    /// `sendmsg` with buffers of these lengths, to another's port or not.
    SendParts {
        at: usize,
        to: Option<(usize, Ip)>,
        lens: [usize; 3],
        flags: i32,
    },
    ReceiveParts {
        at: usize,
        lens: [usize; 3],
        flags: i32,
    },
    /// So many messages, each of two buffers.
    SendMany {
        at: usize,
        to: Option<(usize, Ip)>,
        count: usize,
        lens: [usize; 2],
    },
    ReceiveMany {
        at: usize,
        count: usize,
        lens: [usize; 2],
        flags: i32,
    },
    Read(usize, usize),
    Write(usize, usize),
    SetOption(usize, usize),
    Option(usize, usize),
}

/// What is asked of the system under test. Results are those of the system calls, with errno as an error.
pub(crate) trait System: Many {
    fn socket(&mut self, family: i32, ty: i32) -> Result<i32, i32>;
    fn close(&mut self, fd: i32) -> Result<i32, i32>;
    fn bind(&mut self, fd: i32, address: &[u8]) -> Result<i32, i32>;
    fn listen(&mut self, fd: i32, backlog: i32) -> Result<i32, i32>;
    fn connect(&mut self, fd: i32, address: &[u8]) -> Result<i32, i32>;
    fn accept(&mut self, fd: i32) -> Result<(i32, Vec<u8>), i32>;
    fn name(&mut self, fd: i32, peer: bool) -> Result<Vec<u8>, i32>;
    fn shutdown(&mut self, fd: i32, how: i32) -> Result<i32, i32>;
    fn send(&mut self, fd: i32, data: &[u8], flags: i32, to: &[u8]) -> Result<i32, i32>;
    /// How many bytes; those that came, from where, and `msg_flags`.
    fn receive(
        &mut self,
        fd: i32,
        len: usize,
        flags: i32,
    ) -> Result<(i32, Vec<u8>, Vec<u8>, i32), i32>;
    fn read(&mut self, fd: i32, len: usize) -> Result<(i32, Vec<u8>), i32>;
    fn write(&mut self, fd: i32, data: &[u8]) -> Result<i32, i32>;
    fn set_option(&mut self, fd: i32, level: i32, name: i32, value: i32) -> Result<i32, i32>;
    fn option(&mut self, fd: i32, level: i32, name: i32) -> Result<i32, i32>;
    fn poll(&mut self, fds: &[i32]) -> Vec<i16>;
    fn readable(&mut self, fd: i32) -> Result<i32, i32>;
}

/// What a call has led to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) result: Result<i32, i32>,
    data: Vec<u8>,
    address: Option<(u16, usize, Vec<u8>)>,
    flags: i32,
    /// Of further messages: how many bytes, flags.
    further: Vec<(i32, i32)>,
    /// Of each place: what poll says, what can be read, its names.
    state: Vec<Option<State>>,
    /// What the epolls tell, level- and edge-triggered: sockets in the order in which they were made. An edge is compared where
    /// there is something new: more that `poll` says, or more to be read. Linux tells others too, whenever the other end has
    /// taken something in, or what was sent has gone.
    events: [Vec<(u64, u32)>; 2],
}

/// An address as it is compared: family, length, and what is left of its bytes.
type Name = (u16, usize, Vec<u8>);

#[derive(Debug, PartialEq, Eq)]
struct State {
    poll: i16,
    readable: Result<i32, i32>,
    names: [Result<Name, i32>; 2],
}

#[derive(Clone, Copy)]
struct Place {
    fd: i32,
    /// Which of all sockets it is.
    id: u64,
    v6: bool,
    datagrams: bool,
    /// A stream of version 6 that has been connected by version 4, or a datagram socket of version 6 that has been connected: on
    /// Linux it keeps something of that when it is connected to an address of the other version.
    mixed: bool,
    /// `SO_REUSEPORT`: which of several gets what is sent to it is left to chance.
    shares: bool,
    /// It was made to connect, and not accepted.
    client: bool,
}

pub(crate) struct World<S: System> {
    system: S,
    places: [Option<Place>; PLACES],
    /// Ports of datagram sockets and of others, in the order in which they were seen.
    ports: HashMap<(bool, u16), usize>,
    /// Streams' ports that were connected to each other.
    pairs: HashSet<[usize; 2]>,
    sent: u8,
    /// Level- and edge-triggered.
    epolls: [i32; 2],
    made: u64,
    /// What was last seen of sockets.
    before: HashMap<u64, (i16, i32)>,
}

/// Options that are set and asked for: level, name, values.
const OPTIONS: [(i32, i32, i32); 16] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR, 1),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT, 1),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
    (libc::SOL_SOCKET, libc::SO_LINGER, 1),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1),
    (libc::SOL_SOCKET, libc::SO_ERROR, 0),
    (libc::SOL_SOCKET, libc::SO_ACCEPTCONN, 0),
    (libc::SOL_SOCKET, libc::SO_BROADCAST, 1),
    (libc::SOL_SOCKET, libc::SO_TYPE, 0),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 0),
    (libc::IPPROTO_IP, libc::IP_TTL, 300),
    (libc::IPPROTO_IP, libc::IP_TOS, 16),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 5),
    (libc::SOL_SOCKET, libc::SO_PROTOCOL, 0),
];

impl<S: System> World<S> {
    pub(crate) fn new(mut system: S) -> Self {
        let epolls = [system.epoll(), system.epoll()];
        let (ports, pairs) = (HashMap::new(), HashSet::new());
        Self {
            system,
            places: [None; PLACES],
            ports,
            pairs,
            sent: 0,
            epolls,
            made: 0,
            before: HashMap::new(),
        }
    }

    /// Has both epolls watch a new socket, for all that there is: which of all it is.
    fn watch(&mut self, fd: i32) -> u64 {
        self.made += 1;
        for (ep, edges) in self.epolls.into_iter().zip([0, libc::EPOLLET as u32]) {
            self.system.watch(ep, fd, ALL as u32 | edges, self.made);
        }
        self.made
    }

    /// An address with ports by their order: the family, the port, the rest.
    fn seen(&mut self, raw: &[u8], datagrams: bool) -> (u16, usize, Vec<u8>) {
        let Some((family, rest)) = raw.split_first_chunk::<2>() else { return (0, 0, Vec::new()) };
        let port = u16::from_be_bytes([rest[0], rest[1]]);
        let next = self.ports.len() + 1;
        let port = if port == 0 { 0 } else { *self.ports.entry((datagrams, port)).or_insert(next) };
        (u16::from_ne_bytes(*family), port, rest[2..].to_vec())
    }

    fn address(v6: bool, ip: Ip, port: [u8; 2]) -> Vec<u8> {
        let family = if v6 { libc::AF_INET6 } else { libc::AF_INET } as u16;
        let mut raw = family.to_ne_bytes().to_vec();
        raw.extend(port);
        let v4 = |ip: [u8; 4]| [&ip[..], &[0; 8]].concat();
        let mapped = [&[0; 10][..], &[255, 255, 127, 0, 0, 1]].concat();
        raw.extend(match (v6, ip) {
            (false, Ip::Loopback) => v4([127, 0, 0, 1]),
            (false, Ip::Any) => v4([0; 4]),
            (false, Ip::Other) => v4([127, 0, 0, 2]),
            (true, Ip::Loopback) => [&[0; 4 + 15][..], &[1], &[0; 4]].concat(),
            (true, Ip::Any) => vec![0; 4 + 16 + 4],
            (true, Ip::Other) => [&[0; 4], &mapped[..], &[0; 4]].concat(),
        });
        raw
    }

    /// The address of another place's port, in the family of this one. Ports of streams and of datagrams are others.
    fn port_of(&mut self, own: Place, ip: Ip, other: usize) -> Option<Vec<u8>> {
        let other = self.places[other].filter(|other| other.datagrams == own.datagrams)?;
        let name = self.system.name(other.fd, false).ok()?;
        let port = [name[2], name[3]];
        (port != [0, 0]).then(|| Self::address(own.v6, ip, port))
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len)
            .map(|_| {
                self.sent = self.sent.wrapping_add(1);
                self.sent
            })
            .collect()
    }

    /// Makes the call; 0 if there is no socket to make it on.
    pub(crate) fn run(&mut self, call: Call) -> Outcome {
        let mut outcome = Outcome {
            result: Ok(-7),
            data: Vec::new(),
            address: None,
            flags: 0,
            further: Vec::new(),
            state: Vec::new(),
            events: [Vec::new(), Vec::new()],
        };
        outcome.result = self.make(call, &mut outcome).unwrap_or(Err(-7));
        outcome.state = self.look();
        let mut new = HashSet::new();
        for (place, state) in self.places.iter().flatten().zip(outcome.state.iter().flatten()) {
            let now = (state.poll, state.readable.unwrap_or(0));
            let before = self.before.insert(place.id, now).unwrap_or((0, 0));
            if now.0 & !before.0 != 0 || now.1 > before.1 {
                new.insert(place.id);
            }
        }
        let [levels, edges] = self.epolls.map(|ep| {
            let events = self.system.events(ep).into_iter();
            let mut events: Vec<_> = events.map(|(events, which)| (which, events)).collect();
            events.sort_unstable();
            events
        });
        outcome.events = [levels, edges.into_iter().filter(|(id, _)| new.contains(id)).collect()];
        outcome
    }

    fn look(&mut self) -> Vec<Option<State>> {
        let fds: Vec<i32> = self.places.iter().flatten().map(|place| place.fd).collect();
        let mut polls = self.system.poll(&fds).into_iter();
        let places = self.places;
        let state = |place: Option<Place>| {
            let Place { fd, datagrams, .. } = place?;
            let names = [false, true].map(|peer| self.system.name(fd, peer));
            let names = names.map(|name| name.map(|raw| self.seen(&raw, datagrams)));
            if let ([Ok((_, own, _)), Ok((_, peer, _))], false) = (&names, datagrams) {
                self.pairs.insert([*own.min(peer), *own.max(peer)]);
            }
            Some(State { poll: polls.next()?, readable: self.system.readable(fd), names })
        };
        places.into_iter().map(state).collect()
    }

    /// The port of a place's socket, or its peer's, by the order in which they were seen.
    fn port(&mut self, place: Place, peer: bool) -> Option<usize> {
        let name = self.system.name(place.fd, peer).ok()?;
        Some(self.seen(&name, place.datagrams).1)
    }

    /// Whether a place's port is one that several share, or may.
    fn is_shared(&mut self, at: usize) -> bool {
        let Some(place) = self.places[at] else { return false };
        let port = self.port(place, false);
        let others = self.places.into_iter().flatten();
        let others = others.filter(|other| other.shares && other.datagrams == place.datagrams);
        others.into_iter().any(|other| self.port(other, false) == port)
    }

    /// Whether the ports of two streams were connected, and the one that has connected is not connected any more: then Linux may
    /// keep what is left of that for a minute (TIME_WAIT).
    fn is_past(&mut self, own: Place, other: usize) -> bool {
        let Some(other) = self.places[other].filter(|_| !own.datagrams) else { return false };
        let (Some(own), Some(other)) = (self.port(own, false), self.port(other, false)) else {
            return false;
        };
        let pair = [own.min(other), own.max(other)];
        self.pairs.contains(&pair) && !self.connected(0).contains(&pair)
    }

    /// Whether a stream that does not listen has the port of a connection one end of which has ended.
    fn is_late(&mut self, own: Place) -> bool {
        if own.datagrams
            || self.system.option(own.fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Ok(1)
        {
            return false;
        }
        let Some(port) = self.port(own, false) else { return false };
        let whole = self.connected(libc::POLLRDHUP | libc::POLLHUP);
        self.pairs.iter().any(|pair| pair.contains(&port) && !whole.contains(pair))
    }

    /// The ports of the streams that have connected, and are connected still, and show nothing of this for `poll`.
    fn connected(&mut self, but: i16) -> Vec<[usize; 2]> {
        let mut pairs = Vec::new();
        for client in self.places.into_iter().flatten().filter(|place| place.client) {
            if let [Some(own), Some(peer)] = [false, true].map(|peer| self.port(client, peer))
                && self.system.poll(&[client.fd])[0] & but == 0
            {
                pairs.push([own.min(peer), own.max(peer)]);
            }
        }
        pairs
    }

    /// A place's socket, and the address that it is to send to.
    fn addressed(&mut self, at: usize, to: Option<(usize, Ip)>) -> Option<(Place, Vec<u8>)> {
        let place = self.places[at]?;
        let Some((to, ip)) = to else { return Some((place, Vec::new())) };
        if self.is_shared(to) {
            return None;
        }
        self.port_of(place, ip, to).map(|address| (place, address))
    }

    /// Notes messages: the bytes of all, and from where the first one came. How many bytes that has.
    fn came(&mut self, came: Vec<Came>, place: Place, outcome: &mut Outcome) -> i32 {
        let first = came.first().map_or(0, |came| came.0);
        for (n, data, from, flags) in came {
            outcome.data.extend(data);
            outcome.further.push((n, flags));
            let from = self.seen(&from, place.datagrams);
            outcome.address.get_or_insert(from);
        }
        first
    }

    /// None if there is nothing to make it on.
    #[allow(clippy::too_many_lines)] // a table
    fn make(&mut self, call: Call, outcome: &mut Outcome) -> Option<Result<i32, i32>> {
        let done = match call {
            Call::Socket { at, v6, datagrams } => {
                if let Some(old) = self.places[at].take() {
                    let _ = self.system.close(old.fd);
                }
                let ty = if datagrams { libc::SOCK_DGRAM } else { libc::SOCK_STREAM };
                let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
                let fd = self.system.socket(family, ty | libc::SOCK_NONBLOCK);
                if let (Ok(fd), false) = (fd, datagrams) {
                    // Otherwise the host may hold short messages back for a while.
                    let _ = self.system.set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
                }
                let id = fd.map_or(0, |fd| self.watch(fd));
                self.places[at] = fd.ok().map(|fd| Place {
                    fd,
                    id,
                    v6,
                    datagrams,
                    mixed: false,
                    shares: false,
                    client: false,
                });
                fd.map(|_| 0)
            }
            Call::Close(at) => {
                let place = self.places[at].take()?;
                self.system.close(place.fd)
            }
            Call::Bind(at, ip) => {
                let place = self.places[at]?;
                self.system.bind(place.fd, &Self::address(place.v6, ip, [0, 0]))
            }
            Call::BindSame { at, with, ip } => {
                let place = self.places[at]?;
                let address = self.port_of(place, ip, with)?;
                self.system.bind(place.fd, &address)
            }
            Call::Listen(at, backlog) => {
                let place = self.places[at]?;
                if self.is_late(place) {
                    return None;
                }
                self.system.listen(place.fd, backlog)
            }
            Call::Connect { at, to, ip } => {
                let place = self.places[at].filter(|place| !place.mixed)?;
                if self.is_shared(to) {
                    return None;
                }
                let address = self.port_of(place, ip, to)?;
                if self.is_past(place, to) {
                    return None;
                }
                let mixed = place.v6 && (place.datagrams || ip == Ip::Other);
                let done = self.system.connect(place.fd, &address);
                let client = place.client || matches!(done, Ok(_) | Err(libc::EINPROGRESS));
                self.places[at] = Some(Place { mixed, client, ..place });
                done
            }
            Call::Disconnect(at) => {
                let place = self.places[at].filter(|place| !place.mixed)?;
                self.system.connect(place.fd, &[0; 16])
            }
            Call::Accept { at, new } => {
                let place = self.places[at]?;
                match self.system.accept(place.fd) {
                    Ok((fd, address)) => {
                        let id = self.watch(fd);
                        if let Some(old) = self.places[new].replace(Place {
                            fd,
                            id,
                            mixed: place.v6,
                            client: false,
                            ..place
                        }) {
                            let _ = self.system.close(old.fd);
                        }
                        outcome.address = Some(self.seen(&address, place.datagrams));
                        Ok(0)
                    }
                    Err(errno) => Err(errno),
                }
            }
            Call::Shutdown(at, how) => {
                let place = self.places[at]?;
                self.system.shutdown(place.fd, how)
            }
            Call::Send { at, len, flags } => {
                let place = self.places[at]?;
                let data = self.bytes(len);
                self.system.send(place.fd, &data, flags | libc::MSG_NOSIGNAL, &[])
            }
            Call::SendTo { at, to, ip, len } => {
                let place = self.places[at]?;
                if self.is_shared(to) {
                    return None;
                }
                let address = self.port_of(place, ip, to)?;
                let data = self.bytes(len);
                self.system.send(place.fd, &data, libc::MSG_NOSIGNAL, &address)
            }
            Call::Receive { at, len, flags } => {
                let place = self.places[at]?;
                match self.system.receive(place.fd, len, flags) {
                    Ok((n, data, from, found)) => {
                        (outcome.data, outcome.flags) = (data, found);
                        outcome.address = Some(self.seen(&from, place.datagrams));
                        Ok(n)
                    }
                    Err(errno) => Err(errno),
                }
            }
            Call::SendParts { at, to, lens, flags } => {
                let (place, address) = self.addressed(at, to)?;
                let parts = lens.map(|len| self.bytes(len));
                self.system.send_parts(place.fd, &parts, flags | libc::MSG_NOSIGNAL, &address)
            }
            Call::ReceiveParts { at, lens, flags } => {
                let place = self.places[at]?;
                let came = self.system.receive_parts(place.fd, &lens, flags);
                came.map(|came| self.came(vec![came], place, outcome))
            }
            Call::SendMany { at, to, count, lens } => {
                let (place, address) = self.addressed(at, to)?;
                let parts: Vec<_> =
                    (0..count).map(|_| lens.map(|len| self.bytes(len)).to_vec()).collect();
                let sent = self.system.send_many(place.fd, &parts, libc::MSG_NOSIGNAL, &address);
                sent.map(|sent| {
                    outcome.further = sent.iter().map(|n| (*n, 0)).collect();
                    sent.len() as i32
                })
            }
            Call::ReceiveMany { at, count, lens, flags } => {
                let place = self.places[at]?;
                let came = self.system.receive_many(place.fd, &vec![lens.to_vec(); count], flags);
                came.map(|came| {
                    let n = came.len() as i32;
                    self.came(came, place, outcome);
                    n
                })
            }
            Call::Read(at, len) => {
                let place = self.places[at]?;
                match self.system.read(place.fd, len) {
                    Ok((n, data)) => {
                        outcome.data = data;
                        Ok(n)
                    }
                    Err(errno) => Err(errno),
                }
            }
            Call::Write(at, len) => {
                let place = self.places[at]?;
                // The host answers a datagram socket without a peer by giving it a port: with `send` both do.
                if place.datagrams && self.system.name(place.fd, true).is_err() {
                    return None;
                }
                let data = self.bytes(len);
                self.system.write(place.fd, &data)
            }
            Call::SetOption(at, which) => {
                let place = self.places[at]?;
                let (level, name, value) = OPTIONS[which % OPTIONS.len()];
                if name == libc::SO_REUSEPORT && level == libc::SOL_SOCKET {
                    self.places[at] = Some(Place { shares: true, ..place });
                }
                self.system.set_option(place.fd, level, name, value)
            }
            Call::Option(at, which) => {
                let place = self.places[at]?;
                let (level, name, _) = OPTIONS[which % OPTIONS.len()];
                self.system.option(place.fd, level, name)
            }
        };
        Some(done)
    }
}

impl<S: System> Drop for World<S> {
    fn drop(&mut self) {
        for place in self.places.iter_mut().filter_map(Option::take) {
            let _ = self.system.close(place.fd);
        }
        for ep in self.epolls {
            let _ = self.system.close(ep);
        }
    }
}
