//! The calls of generated programs.

/// Sockets of a program.
pub(crate) const SLOTS: usize = 8;
/// Names: the first ones are in no tree, the others are paths.
pub(crate) const NAMES: usize = 5;
pub(crate) const PATHS: usize = 2;

/// Numbers by chance (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    /// The seed is mixed before: seeds in a row would else give parts of one sequence, each a number later than the one before.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Self(seed).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// To whom: a name, or an address that is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum To {
    Name(usize),
    Family,
    Unspec,
    Short,
    Long,
    Other,
}

/// A call. Numbers of sockets are slots.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Call {
    Socket(usize, i32),
    Pair(usize, usize, i32),
    Bind(usize, To),
    Listen(usize, i32),
    Connect(usize, To),
    Accept(usize, usize),
    Send {
        from: usize,
        to: Option<To>,
        len: usize,
        flags: i32,
        files: Vec<usize>,
        ids: Option<[u32; 3]>,
    },
    Recv {
        on: usize,
        len: usize,
        flags: i32,
        control: usize,
    },
    /// So many messages, of these lengths by turns.
    SendMany {
        from: usize,
        count: usize,
        lens: [usize; 2],
        flags: i32,
    },
    /// Room for so many messages of a length.
    RecvMany {
        on: usize,
        count: usize,
        len: usize,
        flags: i32,
    },
    Read(usize, usize),
    Write(usize, usize),
    Shutdown(usize, i32),
    Close(usize),
    Name(usize),
    Peer(usize),
    Set(usize, i32, i32),
    Get(usize, i32, usize),
    Ioctl(usize, u64),
    Unlink(usize),
}

pub(crate) const TYPES: [i32; 3] = [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET];
const LENGTHS: [usize; 20] =
    [0, 1, 1, 1, 2, 2, 3, 3, 10, 10, 55, 56, 100, 129, 256, 257, 1_000, 5_000, 60_000, 250_000];

impl To {
    pub(crate) fn any(dice: &mut Dice) -> Self {
        match dice.below(24) {
            0 => Self::Family,
            1 => Self::Unspec,
            2 => Self::Short,
            3 => Self::Long,
            4 => Self::Other,
            _ => Self::Name(dice.below(NAMES)),
        }
    }
}

/// Parts of calls.
impl Dice {
    pub(crate) fn slot(&mut self) -> usize {
        self.below(SLOTS)
    }

    pub(crate) fn len(&mut self) -> usize {
        self.pick(&LENGTHS)
    }

    pub(crate) fn backlog(&mut self) -> i32 {
        self.pick(&[0, 0, 1, 2, 5, -1])
    }

    pub(crate) fn how(&mut self) -> i32 {
        self.pick(&[0, 1, 2, 2, 3, -1])
    }
}

impl Call {
    /// A message with files of these.
    pub(crate) fn send(dice: &mut Dice, from: usize, to: Option<To>, files: Vec<usize>) -> Self {
        Self::Send {
            from,
            to,
            len: dice.len(),
            flags: dice.pick(&[0, 0, 0, 0, libc::MSG_DONTWAIT, libc::MSG_MORE, libc::MSG_EOR]),
            files,
            ids: match dice.below(12) {
                0 => Some([1, 0, 0]),
                1 => Some([1, 5, 7]),
                2 => Some([999_999, 0, 0]),
                _ => None,
            },
        }
    }

    pub(crate) fn recv(dice: &mut Dice, on: usize) -> Self {
        let flags = [
            0,
            0,
            0,
            libc::MSG_PEEK,
            libc::MSG_TRUNC,
            libc::MSG_PEEK | libc::MSG_TRUNC,
            libc::MSG_WAITALL,
            libc::MSG_CMSG_CLOEXEC,
        ];
        let control = dice.pick(&[0, 0, 8, 16, 19, 24, 28, 32, 64, 200, 200, 200]);
        Self::Recv { on, len: dice.len(), flags: dice.pick(&flags), control }
    }

    pub(crate) fn send_many(dice: &mut Dice, from: usize) -> Self {
        let flags = dice.pick(&[0, 0, 0, libc::MSG_DONTWAIT, libc::MSG_EOR]);
        // The last one fills a queue of datagrams.
        let count = dice.pick(&[0, 1, 2, 3, 4, 12]);
        Self::SendMany { from, count, lens: [dice.len(), dice.len()], flags }
    }

    pub(crate) fn recv_many(dice: &mut Dice, on: usize) -> Self {
        let flags = dice.pick(&[0, 0, 0, libc::MSG_PEEK, libc::MSG_TRUNC, libc::MSG_WAITFORONE]);
        Self::RecvMany { on, count: dice.below(5), len: dice.len(), flags }
    }

    pub(crate) fn set(dice: &mut Dice, slot: usize) -> Self {
        let option = dice.pick(&[16, 16, 16, 7, 8, 42, 2, 15, 3, 18, 9, 12, 13, 20, 99]);
        // What Linux rounds up to whole segments is in the test of limits.
        Self::Set(slot, option, dice.pick(&[0, 1, 1, 2_000, 30_000, -1]))
    }

    pub(crate) fn get(dice: &mut Dice, slot: usize) -> Self {
        let option = dice.pick(&[3, 4, 4, 7, 8, 16, 17, 18, 19, 30, 38, 39, 42, 2, 99]);
        Self::Get(slot, option, dice.below(20))
    }

    pub(crate) fn ioctl(dice: &mut Dice, slot: usize) -> Self {
        Self::Ioctl(slot, dice.pick(&[0x541b, 0x541b, 0x5411]))
    }

    pub(crate) fn unlink(dice: &mut Dice) -> Self {
        Self::Unlink(NAMES - 1 - dice.below(PATHS))
    }

    /// By chance alone: seldom one that succeeds.
    pub(crate) fn any(dice: &mut Dice) -> Self {
        let (slot, other) = (dice.slot(), dice.slot());
        let ty = dice.pick(&TYPES);
        match dice.below(100) {
            0..12 => Self::Socket(slot, ty),
            12..17 => Self::Pair(slot, other, ty),
            17..25 => Self::Bind(slot, To::any(dice)),
            25..30 => Self::Listen(slot, dice.backlog()),
            30..40 => Self::Connect(slot, To::any(dice)),
            40..46 => Self::Accept(slot, other),
            46..64 => {
                let to = (dice.below(3) == 0).then(|| To::any(dice));
                let files = if dice.below(4) == 0 { dice.below(4) } else { 0 };
                let files = (0..files).map(|_| dice.slot()).collect();
                Self::send(dice, slot, to, files)
            }
            64..80 => Self::recv(dice, slot),
            80..82 => Self::Read(slot, dice.len()),
            82..84 => Self::Write(slot, dice.len()),
            84..87 => Self::Shutdown(slot, dice.how()),
            87..91 => Self::Close(slot),
            91 => Self::Name(slot),
            92 => Self::Peer(slot),
            93 => Self::send_many(dice, slot),
            94 => Self::recv_many(dice, slot),
            95 => Self::set(dice, slot),
            96 | 97 => Self::get(dice, slot),
            98 => Self::ioctl(dice, slot),
            _ => Self::unlink(dice),
        }
    }
}
