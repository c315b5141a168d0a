//! A kernel of sockets, and callers who wait.

use crate::abi::*;
use crate::caller::Nobody;
use crate::{
    Caller, Control, Events, FdFlags, FileHandle, Files, Ids, Incoming, Maker, Net, Node, On,
    Outgoing, PollTable, PseudoFs, Right, Sink, SockAddr, Socket, Source,
};
use quietline_platform::thread;
use quietline_sync::IdAllocator;
use rustix::io::Errno;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What a kernel has. Dropped after its files.
#[derive(Debug)]
pub struct World {
    fs: PseudoFs<Socket>,
    files: Files,
    last_ino: IdAllocator,
    net: Net,
}

/// An open socket, and the kernel that it is of.
#[derive(Clone)]
pub struct Fd {
    // Before the kernel.
    pub file: FileHandle<'static>,
    pub world: Arc<World>,
}

impl World {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            fs: PseudoFs::new(),
            files: Files,
            last_ino: IdAllocator::new().unwrap(),
            net: Net::new().unwrap(),
        })
    }

    fn maker(&self) -> Maker<'_> {
        let owner = crate::Owner;
        Maker { fs: &self.fs, files: &self.files, last_ino: &self.last_ino, net: &self.net, owner }
    }

    fn fd(self: &Arc<Self>, file: FileHandle<'_>) -> Fd {
        // SAFETY: only a lifetime that the models' files do not need; the kernel is kept beside it.
        let file = unsafe { core::mem::transmute::<FileHandle<'_>, FileHandle<'static>>(file) };
        Fd { file, world: Arc::clone(self) }
    }

    pub fn socket(self: &Arc<Self>, family: i32, ty: i32) -> Fd {
        self.fd(self.maker().socket(family, ty, 0, &Nobody).unwrap())
    }

    pub fn pair(self: &Arc<Self>, ty: i32) -> [Fd; 2] {
        self.maker().pair(AF_UNIX, ty, 0, &Nobody).unwrap().map(|file| self.fd(file))
    }

    /// Two ends of a TCP connection.
    pub fn connection(self: &Arc<Self>) -> [Fd; 2] {
        let listener = self.listener(AF_INET, 1);
        let client = self.socket(AF_INET, SOCK_STREAM);
        client.connect(&listener.name()).unwrap();
        let server = listener.accept().unwrap();
        [client, server]
    }

    /// A socket that listens; its name tells where.
    pub fn listener(self: &Arc<Self>, family: i32, backlog: i32) -> Fd {
        let listener = self.socket(family, SOCK_STREAM);
        if family == AF_UNIX {
            listener.bind(&[&(AF_UNIX as u16).to_ne_bytes()[..], b"\0here"].concat());
        } else {
            let mut loopback = [0; 16];
            loopback[..2].copy_from_slice(&(AF_INET as u16).to_ne_bytes());
            loopback[4..8].copy_from_slice(&[127, 0, 0, 1]);
            listener.bind(&loopback);
        }
        listener.listen(backlog);
        listener
    }

    /// Files that have not ended.
    pub fn live(&self) -> usize {
        self.fs.live()
    }

    /// Closes a local socket that has nothing to do with anything: whoever closes one looks for what is lost.
    pub fn collect(self: &Arc<Self>) {
        let unconcerned = self.socket(AF_UNIX, SOCK_DGRAM);
        unconcerned.option(SO_PASSCRED, 0);
        drop(unconcerned);
    }
}

impl Fd {
    fn on(&self) -> On<'_> {
        On { socket: self.file.socket(), who: &Nobody, flags: self.file.flags(), may_sleep: true }
    }

    pub fn bind(&self, address: &[u8]) {
        self.on().bind(address).unwrap();
    }

    pub fn listen(&self, backlog: i32) {
        self.on().listen(backlog).unwrap();
    }

    pub fn name(&self) -> Vec<u8> {
        self.on().name(false).unwrap().bytes().to_vec()
    }

    pub fn connect(&self, address: &[u8]) -> Result<(), Errno> {
        self.on().connect(address)
    }

    pub fn accept(&self) -> Result<Fd, Errno> {
        let (file, _) = self.world.maker().accept(&self.on(), 0)?;
        Ok(self.world.fd(file))
    }

    pub fn shutdown(&self, how: i32) -> Result<(), Errno> {
        self.on().shutdown(how)
    }

    pub fn send(&self, bytes: &[u8], flags: i32) -> Result<usize, Errno> {
        self.send_as(&Nobody, bytes, &[], flags)
    }

    pub fn send_as(
        &self,
        who: &dyn Caller,
        bytes: &[u8],
        control: &[u8],
        flags: i32,
    ) -> Result<usize, Errno> {
        let buffers = [bytes];
        let mut data = Source::new(&buffers);
        let mut message = Outgoing { name: &SockAddr::NONE, data: &mut data, control, flags };
        On { who, ..self.on() }.send(&mut message)
    }

    pub fn send_to(&self, name: &[u8], bytes: &[u8], flags: i32) -> Result<usize, Errno> {
        let (buffers, name) = ([bytes], SockAddr::new(name).unwrap());
        let mut data = Source::new(&buffers);
        self.on().send(&mut Outgoing { name: &name, data: &mut data, control: &[], flags })
    }

    pub fn receive(&self, bytes: &mut [u8], flags: i32) -> Result<usize, Errno> {
        self.receive_as(&Nobody, bytes, &mut [], flags)
    }

    pub fn receive_as(
        &self,
        who: &dyn Caller,
        bytes: &mut [u8],
        control: &mut [u8],
        flags: i32,
    ) -> Result<usize, Errno> {
        let mut buffers = [bytes];
        let mut data = Sink::new(&mut buffers);
        let (mut name, mut control) = (SockAddr::NONE, Control::new(control));
        let mut message =
            Incoming { name: &mut name, data: &mut data, control: &mut control, flags, found: 0 };
        On { who, ..self.on() }.receive(&mut message)
    }

    /// Whether `poll` says that it can be written.
    pub fn is_writable(&self) -> bool {
        let socket = self.file.socket();
        socket.proto().poll(socket, &mut PollTable::look()).contains(Events::OUT)
    }

    pub fn tcp_option(&self, name: i32, value: i32) {
        self.on().set_option(6, name, &value.to_ne_bytes()).unwrap();
    }

    pub fn option(&self, name: i32, value: i32) {
        self.on().set_option(SOL_SOCKET, name, &value.to_ne_bytes()).unwrap();
    }
}

/// A thread's descriptors: what it passes, and what it has got.
#[derive(Default)]
pub struct Carrier {
    pub files: Mutex<Vec<FileHandle<'static>>>,
}

// SAFETY: a model has one kernel.
unsafe impl Caller for Carrier {
    fn ids(&self) -> Option<Ids> {
        None
    }

    fn may(&self, _right: Right) -> bool {
        false
    }

    fn has_ids(&self, _user: u32, _group: u32) -> [bool; 2] {
        [false; 2]
    }

    fn has_process(&self, _pid: i32) -> bool {
        false
    }

    fn file(&self, fd: i32) -> Result<FileHandle<'_>, Errno> {
        self.files.lock().unwrap().get(fd as usize).cloned().ok_or(Errno::BADF)
    }

    fn install<'f>(&self, file: FileHandle<'f>, _how: FdFlags) -> Result<i32, FileHandle<'f>> {
        // SAFETY: as in `World::fd`.
        let file = unsafe { core::mem::transmute::<FileHandle<'_>, FileHandle<'static>>(file) };
        let mut files = self.files.lock().unwrap();
        files.push(file);
        Ok(files.len() as i32 - 1)
    }

    fn make_node(
        &self,
        _path: &[u8],
        _bind: &mut dyn FnMut(Node) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        Err(Errno::ACCESS)
    }

    fn find_node(&self, _path: &[u8]) -> Result<Node, Errno> {
        Err(Errno::ACCESS)
    }

    fn nofile(&self) -> usize {
        100
    }
}

impl Fd {
    /// Sends a file, with a byte.
    pub fn pass(&self, file: &Fd) -> Result<usize, Errno> {
        let carrier = Carrier { files: Mutex::new(vec![file.file.clone()]) };
        let mut control = [0; 24];
        control[..8].copy_from_slice(&20_u64.to_ne_bytes());
        control[8..12].copy_from_slice(&SOL_SOCKET.to_ne_bytes());
        control[12..16].copy_from_slice(&SCM_RIGHTS.to_ne_bytes());
        self.send_as(&carrier, b"f", &control, MSG_DONTWAIT)
    }

    /// Receives what [`pass`](Self::pass) has sent.
    pub fn take(&self) -> Result<Fd, Errno> {
        let (carrier, mut byte, mut control) = (Carrier::default(), [0; 1], [0; 24]);
        let n = self.receive_as(&carrier, &mut byte, &mut control, MSG_DONTWAIT)?;
        assert_eq!((n, byte), (1, *b"f"));
        let file = carrier.files.lock().unwrap().pop().expect("there was a file in the message");
        Ok(Fd { file, world: Arc::clone(&self.world) })
    }
}

/// With a bound on forced switches per execution the model comes to an end.
///
/// # Panics
/// When fewer than `orders` orders were tried: then the model tries nothing.
pub fn bounded(switches: usize, orders: usize, f: impl Fn() + Sync + Send + 'static) {
    let tried = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tried);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.max_branches = 50_000;
    model.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        f();
    });
    let tried = tried.load(Ordering::Relaxed);
    println!("{tried} orders");
    assert!(tried >= orders, "only {tried} orders were tried");
}

/// A thread of its own.
pub fn spawn<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> thread::JoinHandle<R> {
    thread::spawn(f)
}
