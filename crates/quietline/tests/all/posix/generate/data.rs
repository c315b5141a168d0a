//! Calls on open files: data, positions, locks, descriptors.

use super::Making;
use super::guess::Of;
use crate::posix::arg::{Falloc, Fd, Flock, Open};
use crate::posix::call::Call;
use crate::posix::names::{FAR_OFFSETS, LENGTHS, OFFSETS};

impl Making {
    fn length(&mut self) -> usize {
        match self.dice.below(8) {
            0 => self.dice.below(20_000),
            1 => self.dice.one_of(LENGTHS),
            _ => self.dice.one_of(&[1, 2, 10, 100, 5000]),
        }
    }

    pub(super) fn offset(&mut self) -> i64 {
        match self.dice.below(24) {
            0..14 => self.dice.one_of(OFFSETS),
            14..22 => self.dice.below(40_000) as i64,
            22 => self.dice.one_of(FAR_OFFSETS),
            _ => self.dice.word() as i64,
        }
    }

    fn fill(&mut self) -> u32 {
        self.dice.below(200) as u32
    }

    pub(super) fn data(&mut self) -> Call {
        let fd = self.fd();
        match self.dice.below(64) {
            0..6 => Call::Read { fd, length: self.length() },
            6..12 => Call::Pread { fd, length: self.length(), offset: self.offset() },
            12..14 => Call::Readv { fd, length: self.length() },
            14..16 => Call::Preadv { fd, length: self.length(), offset: self.offset() },
            16..23 => Call::Write { fd, length: self.length(), fill: self.fill() },
            23..29 => {
                Call::Pwrite { fd, length: self.length(), fill: self.fill(), offset: self.offset() }
            }
            29..31 => Call::Writev { fd, length: self.length(), fill: self.fill() },
            31..33 => Call::Pwritev {
                fd,
                length: self.length(),
                fill: self.fill(),
                offset: self.offset(),
            },
            33..40 => {
                let whence = if self.dice.once_in(30) {
                    self.dice.one_of(&[-1, 5, 99])
                } else {
                    self.dice.below(5) as i32
                };
                let offset = self.offset();
                let offset = if self.dice.once_in(8) { offset.wrapping_neg() } else { offset };
                Call::Lseek { fd, offset, whence }
            }
            40..44 => Call::Ftruncate { fd, length: self.offset() },
            44..47 => Call::Truncate { path: self.path(Of::File), length: self.offset() },
            47..54 => Call::Fallocate {
                fd,
                mode: self.fallocate_mode(),
                offset: self.offset(),
                length: self.offset(),
            },
            54..59 => {
                let mut offset = || if self.dice.once_in(2) { -1 } else { self.offset() };
                let (from_offset, to_offset) = (offset(), offset());
                let to = if self.dice.once_in(4) { fd } else { self.fd() };
                let flags = u32::from(self.dice.once_in(40));
                // Not more than 20,000 bytes at once: sources may be without end.
                let length = self.length().min(20_000);
                Call::CopyFileRange { from: fd, from_offset, to, to_offset, length, flags }
            }
            59 => Call::Fsync { fd },
            60 => Call::Fdatasync { fd },
            61 => Call::Syncfs { fd },
            _ => Call::Fstat { fd },
        }
    }

    fn fallocate_mode(&mut self) -> Falloc {
        const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE;
        let mode = match self.dice.below(16) {
            0..4 => 0,
            4..7 => KEEP,
            7..12 => PUNCH | KEEP,
            12 => PUNCH,
            13 => libc::FALLOC_FL_ZERO_RANGE,
            14 => self.dice.one_of(&[
                libc::FALLOC_FL_COLLAPSE_RANGE,
                libc::FALLOC_FL_INSERT_RANGE,
                libc::FALLOC_FL_UNSHARE_RANGE,
                libc::FALLOC_FL_ZERO_RANGE | KEEP,
            ]),
            _ => self.dice.below(256) as i32,
        };
        Falloc(mode as u64)
    }

    pub(super) fn lock(&mut self) -> Call {
        let fd = self.fd();
        if self.dice.once_in(3) {
            let some = [libc::LOCK_SH, libc::LOCK_EX, libc::LOCK_EX, libc::LOCK_UN];
            let operation = if self.dice.once_in(20) {
                self.dice.below(256) as i32
            } else {
                self.dice.one_of(&some)
            };
            return Call::FlockNb { fd, operation: Flock((operation | libc::LOCK_NB) as u64) };
        }
        let ofd = self.dice.once_in(3);
        let ty = match self.dice.below(20) {
            0 => self.dice.one_of(&[-1, 3, 4, 99]),
            _ => self.dice.one_of(&[libc::F_RDLCK, libc::F_WRLCK, libc::F_UNLCK]),
        };
        let whence = if self.dice.once_in(25) {
            self.dice.one_of(&[-1, 3])
        } else {
            self.dice.below(3) as i32
        };
        let mut edge = || match self.dice.below(10) {
            0..4 => self.dice.below(20) as i64,
            4 => -(self.dice.below(20) as i64),
            5 | 6 => 0,
            _ => self.offset(),
        };
        let (start, length) = (edge(), edge());
        if self.dice.once_in(3) {
            Call::Getlk { fd, ofd, ty, whence, start, length }
        } else {
            Call::Setlk { fd, ofd, ty, whence, start, length }
        }
    }

    pub(super) fn descriptor(&mut self) -> Call {
        let fd = self.fd();
        match self.dice.below(20) {
            0..11 => Call::Close { fd },
            11..14 => Call::Dup { fd },
            14 | 15 => {
                let new =
                    if self.dice.once_in(10) { self.fd() } else { Fd(self.dice.below(16) as i32) };
                // Numbers that would make the table grow without end are not the subject here.
                let new = if new.0 >= 32 { Fd(-1) } else { new };
                let flags = self.dice.one_of(&[0, 0, libc::O_CLOEXEC, 1]);
                Call::Dup3 { old: fd, new, flags: Open(flags as u64) }
            }
            16 => Call::Getfl { fd },
            17 => Call::Getfd { fd },
            _ => {
                let some = [
                    libc::O_APPEND,
                    libc::O_NOATIME,
                    libc::O_DIRECT,
                    libc::O_RDWR,
                    libc::O_CREAT,
                    libc::O_SYNC,
                ];
                let flags = self.dice.some_of(&some.map(|flag| flag as u64), 4);
                Call::Setfl { fd, flags: Open(flags | libc::O_NONBLOCK as u64) }
            }
        }
    }
}
