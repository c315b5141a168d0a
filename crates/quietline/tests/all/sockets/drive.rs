//! A world in which a program is run: its sockets, its names, and what it sees.

use crate::sockets::call::{Call, NAMES, PATHS, SLOTS, To};
use crate::sockets::many::{Events, Many, Watch};
use std::path::Path;

/// What a receive gives.
#[derive(Default)]
pub(crate) struct Received {
    pub(crate) len: usize,
    pub(crate) bytes: Vec<u8>,
    pub(crate) name: Vec<u8>,
    pub(crate) control: Vec<u8>,
    pub(crate) flags: i32,
}

/// The calls, as a world makes them. Errors are their numbers.
pub(crate) trait Sys: Many {
    fn socket(&mut self, ty: i32) -> Result<i32, i32>;
    fn pair(&mut self, ty: i32) -> Result<[i32; 2], i32>;
    fn bind(&mut self, fd: i32, name: &[u8]) -> Result<(), i32>;
    fn listen(&mut self, fd: i32, backlog: i32) -> Result<(), i32>;
    fn connect(&mut self, fd: i32, name: &[u8]) -> Result<(), i32>;
    fn accept(&mut self, fd: i32) -> Result<(i32, Vec<u8>), i32>;
    fn send(
        &mut self,
        fd: i32,
        name: &[u8],
        bytes: &[u8],
        control: &[u8],
        flags: i32,
    ) -> Result<usize, i32>;
    fn recv(&mut self, fd: i32, len: usize, control: usize, flags: i32) -> Result<Received, i32>;
    fn read(&mut self, fd: i32, to: &mut [u8]) -> Result<usize, i32>;
    fn write(&mut self, fd: i32, from: &[u8]) -> Result<usize, i32>;
    fn shutdown(&mut self, fd: i32, how: i32) -> Result<(), i32>;
    fn close(&mut self, fd: i32) -> Result<(), i32>;
    fn name(&mut self, fd: i32, peer: bool) -> Result<Vec<u8>, i32>;
    fn set(&mut self, fd: i32, option: i32, value: &[u8]) -> Result<(), i32>;
    fn get(&mut self, fd: i32, option: i32, to: &mut [u8]) -> Result<usize, i32>;
    fn ioctl(&mut self, fd: i32, request: u64) -> Result<i32, i32>;
    /// The poll masks of all sockets; 0 where there is none.
    fn polls(&mut self, fds: &[Option<i32>; SLOTS]) -> [u32; SLOTS];
    fn unlink(&mut self, path: &[u8]) -> Result<(), i32>;
    /// What tells files apart.
    fn id(&mut self, fd: i32) -> u64;
    fn pid(&self) -> i32;
    /// Has sockets looked for that nobody can reach, which may be done later.
    fn collect(&mut self);
}

/// What a step shows: the call's result, what it gave, the poll masks of all sockets after it, and what epolls told of them,
/// level- and edge-triggered.
#[derive(Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) result: Result<i64, i32>,
    bytes: Vec<u8>,
    told: Vec<i64>,
    pub(crate) polls: [u32; SLOTS],
    events: [Events; 2],
}

impl Step {
    /// Whether the call did the same, whatever the sockets show after it.
    pub(crate) fn same_call(&self, other: &Self) -> bool {
        (self.result, &self.bytes, &self.told) == (other.result, &other.bytes, &other.told)
    }

    /// Whether files came with it.
    pub(crate) fn got_files(&self) -> bool {
        self.told.get(3) == Some(&libc::SCM_RIGHTS.into())
    }
}

pub(crate) struct World {
    sys: Box<dyn Sys>,
    slots: [Option<i32>; SLOTS],
    /// What its names begin with: in the tree, and elsewhere.
    path: String,
    name: String,
    /// The next byte to be sent.
    byte: u8,
    watch: Watch,
}

impl World {
    /// For the program of that number, with its paths in `directory`.
    pub(crate) fn new(mut sys: Box<dyn Sys>, directory: &Path, tag: u64) -> Self {
        let path = format!("{}/{tag}", directory.display());
        let name = format!("ql-{}-{tag}", std::process::id());
        let watch = Watch::new(&mut *sys);
        Self { sys, slots: [None; SLOTS], path, name, byte: 0, watch }
    }

    fn path(&self, n: usize) -> Vec<u8> {
        format!("{}-{n}", self.path).into_bytes()
    }

    fn address(&self, to: To) -> Vec<u8> {
        let mut bytes = 1u16.to_ne_bytes().to_vec();
        match to {
            To::Name(n) if n >= NAMES - PATHS => {
                bytes.extend(self.path(n));
                bytes.push(0);
            }
            To::Name(n) => {
                bytes.push(0);
                bytes.extend(format!("{}-{n}", self.name).into_bytes());
            }
            To::Family => {}
            To::Unspec => bytes[0] = 0,
            To::Short => bytes.truncate(1),
            To::Long => bytes.resize(111, b'x'),
            To::Other => {
                bytes[0] = 2;
                bytes.resize(16, 0);
            }
        }
        bytes
    }

    /// An address as it is compared: one that the kernel has chosen is like any other.
    fn told(address: &[u8]) -> Vec<u8> {
        match address {
            [1, 0, 0, digits @ ..]
                if digits.len() == 5 && digits.iter().all(u8::is_ascii_hexdigit) =>
            {
                b"chosen".to_vec()
            }
            other => other.to_vec(),
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len)
            .map(|_| {
                self.byte = self.byte.wrapping_add(1);
                self.byte
            })
            .collect()
    }

    fn put(&mut self, slot: usize, fd: i32) {
        self.watch.begin(&mut *self.sys, fd);
        if let Some(old) = self.slots[slot].replace(fd) {
            self.watch.end(&mut *self.sys, old);
            self.sys.close(old).unwrap();
        }
    }

    fn fd(&self, slot: usize) -> i32 {
        self.slots[slot].unwrap_or(-1)
    }

    pub(crate) fn step(&mut self, call: &Call) -> Step {
        let (mut bytes, mut told) = (Vec::new(), Vec::new());
        let result = self.call(call, &mut bytes, &mut told);
        Step { result, bytes, told, polls: self.polls(), events: Default::default() }
    }

    /// Adds what epolls tell after a step, when its poll masks are what they come to be.
    pub(crate) fn tell(&mut self, step: &mut Step) {
        step.events = self.watch.told(&mut *self.sys, &self.slots, &step.polls);
    }

    /// The poll masks of all sockets.
    pub(crate) fn polls(&mut self) -> [u32; SLOTS] {
        self.sys.polls(&self.slots)
    }

    /// Has sockets looked for that nobody can reach.
    pub(crate) fn collect(&mut self) {
        self.sys.collect();
    }

    fn call(&mut self, call: &Call, bytes: &mut Vec<u8>, told: &mut Vec<i64>) -> Result<i64, i32> {
        let done = |()| 0;
        match *call {
            Call::Socket(slot, ty) => {
                let fd = self.sys.socket(ty)?;
                self.put(slot, fd);
                Ok(0)
            }
            Call::Pair(one, two, ty) => {
                let [a, b] = self.sys.pair(ty)?;
                self.put(one, a);
                self.put(two, b);
                Ok(0)
            }
            Call::Bind(slot, to) => self.sys.bind(self.fd(slot), &self.address(to)).map(done),
            Call::Listen(slot, backlog) => self.sys.listen(self.fd(slot), backlog).map(done),
            Call::Connect(slot, to) => self.sys.connect(self.fd(slot), &self.address(to)).map(done),
            Call::Accept(slot, to) => {
                let (fd, name) = self.sys.accept(self.fd(slot))?;
                *bytes = Self::told(&name);
                self.put(to, fd);
                Ok(0)
            }
            Call::Send { from, to, len, flags, ref files, ids } => {
                let mut control = Vec::new();
                if !files.is_empty() {
                    let fds: Vec<u8> = files
                        .iter()
                        .filter_map(|slot| self.slots[*slot])
                        .flat_map(i32::to_ne_bytes)
                        .collect();
                    cmsg(&mut control, libc::SCM_RIGHTS, &fds);
                }
                if let Some([pid, uid, gid]) = ids {
                    let pid = if pid == 1 { self.sys.pid() as u32 } else { pid };
                    let ids: Vec<u8> =
                        [pid, uid, gid].iter().flat_map(|id| id.to_ne_bytes()).collect();
                    cmsg(&mut control, libc::SCM_CREDENTIALS, &ids);
                }
                let name = to.map_or_else(Vec::new, |to| self.address(to));
                let data = self.bytes(len);
                let fd = self.fd(from);
                self.sys
                    .send(fd, &name, &data, &control, flags | libc::MSG_NOSIGNAL)
                    .map(|n| n as i64)
            }
            Call::Recv { on, len, flags, control } => {
                let received = self.sys.recv(self.fd(on), len, control, flags)?;
                *bytes = received.bytes;
                bytes.extend(Self::told(&received.name));
                told.push(received.flags.into());
                self.tell_control(&received.control, told);
                Ok(received.len as i64)
            }
            Call::SendMany { from, count, lens, flags } => {
                let messages: Vec<_> = (0..count).map(|n| self.bytes(lens[n % 2])).collect();
                let sent =
                    self.sys.send_many(self.fd(from), &messages, flags | libc::MSG_NOSIGNAL)?;
                told.extend(sent.iter().map(|n| *n as i64));
                Ok(sent.len() as i64)
            }
            Call::RecvMany { on, count, len, flags } => {
                let came = self.sys.recv_many(self.fd(on), count, len, flags)?;
                for received in &came {
                    told.extend([received.len as i64, received.flags.into()]);
                    bytes.extend(&received.bytes);
                    bytes.extend(Self::told(&received.name));
                }
                Ok(came.len() as i64)
            }
            Call::Read(slot, len) => {
                let mut to = vec![0; len];
                let n = self.sys.read(self.fd(slot), &mut to)?;
                to.truncate(n);
                *bytes = to;
                Ok(n as i64)
            }
            Call::Write(slot, len) => {
                let data = self.bytes(len);
                self.sys.write(self.fd(slot), &data).map(|n| n as i64)
            }
            Call::Shutdown(slot, how) => self.sys.shutdown(self.fd(slot), how).map(done),
            Call::Close(slot) => {
                let fd = self.slots[slot].take().unwrap_or(-1);
                self.watch.end(&mut *self.sys, fd);
                self.sys.close(fd).map(done)
            }
            Call::Name(slot) | Call::Peer(slot) => {
                let peer = matches!(call, Call::Peer(_));
                *bytes = Self::told(&self.sys.name(self.fd(slot), peer)?);
                Ok(0)
            }
            Call::Set(slot, option, value) => {
                self.sys.set(self.fd(slot), option, &value.to_ne_bytes()).map(done)
            }
            Call::Get(slot, option, len) => {
                let mut to = vec![0; len];
                let n = self.sys.get(self.fd(slot), option, &mut to)?;
                to.truncate(n);
                if option == libc::SO_PEERCRED {
                    // Processes have other numbers there. A part of one says nothing, and is not compared.
                    match to.first_chunk() {
                        Some(pid) => {
                            let same = i32::from_ne_bytes(*pid) == self.sys.pid();
                            to.splice(..4, [u8::from(same)]);
                        }
                        None => to.clear(),
                    }
                }
                *bytes = to;
                Ok(n as i64)
            }
            Call::Ioctl(slot, request) => self.sys.ioctl(self.fd(slot), request).map(i64::from),
            Call::Unlink(n) => self.sys.unlink(&self.path(n)).map(done),
        }
    }

    /// Notes control messages; files that came go into free slots.
    fn tell_control(&mut self, mut control: &[u8], told: &mut Vec<i64>) {
        told.push(control.len() as i64);
        while control.len() >= 16 {
            let len = u64::from_ne_bytes(*control.first_chunk().unwrap()) as usize;
            let ty = i32::from_ne_bytes(*control[12..].first_chunk().unwrap());
            told.extend([len as i64, ty.into()]);
            for (at, word) in control[16..len].as_chunks::<4>().0.iter().enumerate() {
                let word = i32::from_ne_bytes(*word);
                if ty == libc::SCM_RIGHTS {
                    told.push(self.tell_file(word));
                } else {
                    told.push(if at == 0 {
                        i64::from(word == self.sys.pid())
                    } else {
                        word.into()
                    });
                }
            }
            control = control.get(len.next_multiple_of(8)..).unwrap_or(&[]);
        }
    }

    /// Which of the slots' files this is.
    fn tell_file(&mut self, fd: i32) -> i64 {
        let id = self.sys.id(fd);
        let same =
            (0..SLOTS).find(|slot| self.slots[*slot].is_some_and(|fd| self.sys.id(fd) == id));
        match self.slots.iter().position(Option::is_none) {
            Some(free) => {
                self.slots[free] = Some(fd);
                self.watch.begin(&mut *self.sys, fd);
            }
            None => self.sys.close(fd).unwrap(),
        }
        same.map_or(-1, |slot| slot as i64)
    }
}

/// Adds a control message.
pub(crate) fn cmsg(control: &mut Vec<u8>, ty: i32, data: &[u8]) {
    control.extend((16 + data.len() as u64).to_ne_bytes());
    control.extend(libc::SOL_SOCKET.to_ne_bytes());
    control.extend(ty.to_ne_bytes());
    control.extend(data);
    control.resize(control.len().next_multiple_of(8), 0);
}

impl Drop for World {
    fn drop(&mut self) {
        self.watch.close(&mut *self.sys);
        for fd in self.slots.into_iter().flatten() {
            self.sys.close(fd).unwrap();
        }
        for n in NAMES - PATHS..NAMES {
            // Seldom there.
            let _ = self.sys.unlink(&self.path(n));
        }
    }
}
