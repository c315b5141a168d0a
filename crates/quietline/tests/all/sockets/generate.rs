//! Programs from seeds.
//!
//! By chance alone nearly all calls fail, for nobody is ever connected. So a program keeps in mind what its sockets are likely to be,
//! if its calls before have succeeded. Most of its calls are such as fit that; one in eight is any call at all.

use crate::sockets::call::{Call, Dice, NAMES, SLOTS, TYPES, To};

/// What a socket is likely to be.
#[derive(Clone, Copy)]
struct Likely {
    ty: i32,
    name: Option<usize>,
    listens: bool,
    connected: bool,
    /// To which name, or to the socket of which slot.
    to: Option<usize>,
    peer: Option<usize>,
    /// Somebody has sent something.
    waiting: bool,
}

impl Likely {
    fn new(ty: i32) -> Self {
        Self {
            ty,
            name: None,
            listens: false,
            connected: false,
            to: None,
            peer: None,
            waiting: false,
        }
    }

    fn of_datagrams(&self) -> bool {
        self.ty == libc::SOCK_DGRAM
    }

    fn note(&mut self, call: &Call) {
        match *call {
            Call::Bind(_, To::Name(name)) => self.name = self.name.or(Some(name)),
            Call::Listen(..) => {
                self.listens = self.name.is_some() && !self.connected && !self.of_datagrams()
            }
            Call::Connect(_, To::Name(name)) if !self.listens => {
                (self.connected, self.to, self.peer) = (true, Some(name), None);
            }
            Call::Connect(_, To::Unspec) => self.connected &= !self.of_datagrams(),
            _ => {}
        }
    }
}

struct Program<'d> {
    dice: &'d mut Dice,
    /// The type of most of its sockets.
    ty: i32,
    /// One in so many messages has files.
    files: usize,
    slots: [Option<Likely>; SLOTS],
    calls: Vec<Call>,
}

/// The program of a seed.
pub(crate) fn program(seed: u64) -> Vec<Call> {
    let dice = &mut Dice::new(seed);
    let (ty, files) = (dice.pick(&TYPES), dice.pick(&[1, 2, 4, 20]));
    let mut program = Program { dice, ty, files, slots: [None; SLOTS], calls: Vec::new() };
    for _ in 0..program.dice.below(4) {
        program.opening();
    }
    for _ in 0..10 + program.dice.below(40) {
        program.step();
    }
    program.calls
}

impl Program<'_> {
    /// A few calls that lead somewhere.
    fn opening(&mut self) {
        let ty = self.ty();
        if self.dice.below(3) == 0 {
            let (one, two) = (self.free(), self.free());
            return self.push(Call::Pair(one, two, ty));
        }
        let (server, name) = (self.free(), To::Name(self.dice.below(NAMES)));
        self.push(Call::Socket(server, ty));
        self.push(Call::Bind(server, name));
        if ty != libc::SOCK_DGRAM {
            let backlog = self.dice.backlog();
            self.push(Call::Listen(server, backlog));
        }
        for _ in 0..1 + self.dice.below(3) {
            let client = self.free();
            self.push(Call::Socket(client, ty));
            self.push(Call::Connect(client, name));
            if ty != libc::SOCK_DGRAM && self.dice.below(3) != 0 {
                let accepted = self.free();
                self.push(Call::Accept(server, accepted));
            }
        }
    }

    fn step(&mut self) {
        let call = match self.dice.below(55) {
            0..6 => Call::any(self.dice),
            6 | 7 => Call::Socket(self.free(), self.ty()),
            8 => Call::Pair(self.free(), self.free(), self.ty()),
            9 | 10 => Call::Bind(self.slot(|likely| likely.name.is_none()), To::any(self.dice)),
            11 => {
                let slot = self.slot(|likely| likely.name.is_some() && !likely.of_datagrams());
                Call::Listen(slot, self.dice.backlog())
            }
            12..15 => {
                let slot = self
                    .slot(|likely| !likely.listens && (!likely.connected || likely.of_datagrams()));
                Call::Connect(slot, self.server(slot))
            }
            15..18 => Call::Accept(self.slot(|likely| likely.listens), self.free()),
            18..29 => self.send(),
            29..38 => {
                let slot = self.receiver();
                Call::recv(self.dice, slot)
            }
            38 => Call::Read(self.talker(), self.dice.len()),
            39 => Call::Write(self.talker(), self.dice.len()),
            40 => Call::Shutdown(self.talker(), self.dice.how()),
            41 | 42 => Call::Close(self.slot(|_| true)),
            43 => Call::Name(self.slot(|likely| likely.name.is_some() || likely.connected)),
            44 => Call::Peer(self.slot(|likely| likely.connected)),
            45 => {
                let slot = self.slot(|_| true);
                Call::set(self.dice, slot)
            }
            46 => {
                let slot = self.slot(|_| true);
                Call::get(self.dice, slot)
            }
            47 => {
                let slot = self.talker();
                Call::ioctl(self.dice, slot)
            }
            48..51 => {
                let slot = self.talker();
                Call::send_many(self.dice, slot)
            }
            51..54 => {
                let slot = self.receiver();
                Call::recv_many(self.dice, slot)
            }
            _ => Call::unlink(self.dice),
        };
        self.push(call);
    }

    fn send(&mut self) -> Call {
        let from = self.talker();
        let connected = self.slots[from].is_some_and(|likely| likely.connected);
        let to = (self.dice.below(if connected { 6 } else { 2 }) == 0).then(|| self.server(from));
        let files = if self.dice.below(self.files) == 0 { self.dice.below(4) } else { 0 };
        let files = (0..files).map(|_| self.slot(|_| true)).collect();
        Call::send(self.dice, from, to, files)
    }

    fn ty(&mut self) -> i32 {
        if self.dice.below(5) == 0 { self.dice.pick(&TYPES) } else { self.ty }
    }

    /// A slot whose socket is likely to be such, if there is one.
    fn slot(&mut self, such: impl Fn(&Likely) -> bool) -> usize {
        self.pick(|slot| slot.as_ref().is_some_and(&such))
    }

    /// One that is likely to be free.
    fn free(&mut self) -> usize {
        self.pick(Option::is_none)
    }

    fn pick(&mut self, such: impl Fn(&Option<Likely>) -> bool) -> usize {
        let found: Vec<usize> = (0..SLOTS).filter(|slot| such(&self.slots[*slot])).collect();
        if found.is_empty() { self.dice.slot() } else { self.dice.pick(&found) }
    }

    /// One that may send and receive.
    fn talker(&mut self) -> usize {
        self.slot(|likely| likely.connected || likely.of_datagrams())
    }

    /// One that may receive, and is likely to find something.
    fn receiver(&mut self) -> usize {
        if self.dice.below(3) == 0 { self.talker() } else { self.slot(|likely| likely.waiting) }
    }

    /// A name by which the socket of a slot can reach another.
    fn server(&mut self, from: usize) -> To {
        let Some(from) = self.slots[from] else { return To::any(self.dice) };
        let server =
            self.slot(|likely| likely.ty == from.ty && (likely.listens || likely.of_datagrams()));
        match self.slots[server].and_then(|likely| likely.name) {
            Some(name) if self.dice.below(12) != 0 => To::Name(name),
            _ => To::any(self.dice),
        }
    }

    /// Adds a call, and notes what is likely after it.
    fn push(&mut self, call: Call) {
        match call {
            Call::Socket(slot, ty) => self.slots[slot] = Some(Likely::new(ty)),
            Call::Pair(one, two, ty) => {
                let end = |peer| Likely { connected: true, peer: Some(peer), ..Likely::new(ty) };
                (self.slots[one], self.slots[two]) = (Some(end(two)), Some(end(one)));
            }
            Call::Accept(from, to) => {
                if let Some(listener) = self.slots[from].filter(|likely| likely.listens) {
                    let client =
                        |likely: &Likely| likely.to == listener.name && likely.peer.is_none();
                    let peer =
                        (0..SLOTS).find(|slot| self.slots[*slot].as_ref().is_some_and(client));
                    if let Some(client) = peer.and_then(|peer| self.slots[peer].as_mut()) {
                        client.peer = Some(to);
                    }
                    // The client may have sent something.
                    self.slots[to] = Some(Likely {
                        connected: true,
                        listens: false,
                        peer,
                        waiting: true,
                        ..listener
                    });
                }
            }
            Call::Close(slot) => self.slots[slot] = None,
            Call::Recv { on, flags, .. } | Call::RecvMany { on, flags, .. }
                if flags & libc::MSG_PEEK == 0 =>
            {
                if let Some(likely) = &mut self.slots[on] {
                    likely.waiting = false;
                }
            }
            Call::Send { from, to, .. } => self.sent(from, to),
            Call::SendMany { from, .. } => self.sent(from, None),
            Call::Bind(slot, _) | Call::Listen(slot, _) | Call::Connect(slot, _) => {
                if let Some(likely) = &mut self.slots[slot] {
                    likely.note(&call);
                }
            }
            _ => {}
        }
        self.calls.push(call);
    }

    /// Something is likely to wait for whom that socket sends to.
    fn sent(&mut self, from: usize, to: Option<To>) {
        let sender = self.slots[from];
        let name = to.or(sender.and_then(|sender| sender.to).map(To::Name));
        let peer = sender.and_then(|sender| sender.peer);
        for (slot, likely) in self.slots.iter_mut().enumerate() {
            let Some(likely) = likely else { continue };
            let named =
                likely.of_datagrams() && likely.name.map(To::Name) == name && name.is_some();
            likely.waiting |= named || peer == Some(slot);
        }
    }
}
