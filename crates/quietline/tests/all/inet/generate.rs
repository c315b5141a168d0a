//! Programs from seeds.

use crate::inet::call::{Call, Ip, PLACES};

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn place(&mut self) -> usize {
        self.below(PLACES)
    }

    fn ip(&mut self) -> Ip {
        match self.below(6) {
            0 => Ip::Any,
            1 => Ip::Other,
            _ => Ip::Loopback,
        }
    }

    fn length(&mut self) -> usize {
        match self.below(5) {
            0 => 0,
            1 => self.below(3000),
            _ => 1 + self.below(20),
        }
    }
}

/// A program. Three in four begin with a connection, because chance seldom makes one.
pub(crate) fn generate(seed: u64) -> Vec<Call> {
    let dice = &mut Dice(seed);
    let mut program = Vec::new();
    let (v6, datagrams) = (dice.one_in(4), dice.one_in(3));
    for at in 0..PLACES {
        let odd = dice.one_in(6);
        program.push(Call::Socket { at, v6: v6 != odd, datagrams: datagrams != dice.one_in(10) });
    }
    // Ports are shared while there is no connection yet.
    for _ in 0..dice.below(10) {
        program.push(match dice.below(4) {
            0 => Call::Bind(dice.place(), dice.ip()),
            1 => Call::BindSame { at: dice.place(), with: dice.place(), ip: dice.ip() },
            2 => Call::Listen(dice.place(), 8),
            _ => Call::SetOption(dice.place(), dice.below(2)),
        });
    }
    if dice.one_in(3) {
        let (at, with, ip) = (2 + dice.below(2), 4 + dice.below(2), dice.ip());
        let option = dice.below(3);
        program.extend([at, with].map(|place| Call::SetOption(place, option)));
        program.push(Call::Bind(with, dice.ip()));
        program.push(Call::BindSame { at, with, ip });
        program.extend([at, with].map(|place| Call::Listen(place, 8)));
    }
    if dice.below(4) != 0 {
        program.push(Call::Bind(0, dice.ip()));
        if datagrams {
            program.push(Call::Bind(1, dice.ip()));
            program.push(Call::Connect { at: 0, to: 1, ip: Ip::Loopback });
        } else {
            program.push(Call::Listen(0, 8));
            program.push(Call::Connect { at: 1, to: 0, ip: Ip::Loopback });
            program.push(Call::Accept { at: 0, new: 2 });
        }
    }
    for _ in 0..5 + dice.below(35) {
        program.push(step(dice));
    }
    program
}

fn step(dice: &mut Dice) -> Call {
    let at = dice.place();
    match dice.below(44) {
        0 => Call::Socket { at, v6: dice.one_in(4), datagrams: dice.one_in(3) },
        1 | 2 => Call::Close(at),
        3 => Call::Bind(at, dice.ip()),
        4 => Call::Listen(at, 8),
        5..=7 => Call::Connect { at, to: dice.place(), ip: dice.ip() },
        8 => Call::Disconnect(at),
        9..=11 => Call::Accept { at, new: dice.place() },
        12 | 13 => Call::Shutdown(at, dice.below(3) as i32),
        14..=17 => Call::Send { at, len: dice.length(), flags: 0 },
        18 => Call::SendTo { at, to: dice.place(), ip: dice.ip(), len: dice.length() },
        19..=24 => {
            let flags = [
                0,
                0,
                0,
                libc::MSG_PEEK,
                libc::MSG_TRUNC,
                libc::MSG_WAITALL,
                libc::MSG_PEEK | libc::MSG_TRUNC,
            ];
            Call::Receive { at, len: dice.length(), flags: flags[dice.below(flags.len())] }
        }
        25 | 26 => Call::Read(at, dice.length()),
        27 | 28 => Call::Write(at, dice.length()),
        32 | 33 => {
            let lens = [dice.length(), dice.below(3), dice.length()];
            let to = dice.one_in(4).then(|| (dice.place(), dice.ip()));
            let flags = [0, 0, libc::MSG_DONTWAIT, libc::MSG_EOR][dice.below(4)];
            Call::SendParts { at, to, lens, flags }
        }
        34..38 => {
            let flags =
                [0, 0, 0, libc::MSG_PEEK, libc::MSG_TRUNC, libc::MSG_WAITALL][dice.below(6)];
            let lens = [dice.below(4), dice.length(), dice.below(30)];
            Call::ReceiveParts { at: dice.below(3), lens, flags }
        }
        38 | 39 => {
            let to = dice.one_in(4).then(|| (dice.place(), dice.ip()));
            Call::SendMany { at, to, count: dice.below(5), lens: [dice.below(3), dice.length()] }
        }
        40..44 => {
            let flags =
                [0, 0, 0, libc::MSG_PEEK, libc::MSG_TRUNC, libc::MSG_WAITFORONE][dice.below(6)];
            let lens = [dice.below(8), dice.length()];
            Call::ReceiveMany { at: dice.below(3), count: 1 + dice.below(4), lens, flags }
        }
        29 => Call::SetOption(at, dice.below(16)),
        _ => Call::Option(at, dice.below(16)),
    }
}
