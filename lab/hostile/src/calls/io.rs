//! Reading, writing and copying.

use super::{Call, calls, into, nothing, within};
use crate::kind::Kind::{Any, Bits, Copied, Fd, Length, MaybeOffset, Offset, One, Path, Range};
use crate::victim::check_bytes;
use quietline::{Errno, GiftPage, TakenPage, dirents};

/// Splits a buffer into at most `count` parts, of which some are empty.
fn parts(length: usize, count: i64) -> usize {
    length / count.clamp(1, 32) as usize + 1
}

const SPLICE: &[i64] = &[1, 2, 4, 8];
const PARTS: &[i64] = &[0, 1, 2, 3, 7];
/// More parts than a call takes.
const TOO_MANY: i64 = 1025;

fn from_parts<R>(buffer: &[u8], count: i64, f: impl FnOnce(&[&[u8]]) -> R) -> R {
    if count == TOO_MANY {
        return f(&[&[] as &[u8]; TOO_MANY as usize]);
    }
    let size = parts(buffer.len(), count);
    f(&buffer.chunks(size).take(count.max(0) as usize).collect::<Vec<_>>())
}

fn into_parts<R>(buffer: &mut [u8], count: i64, f: impl FnOnce(&mut [&mut [u8]]) -> R) -> R {
    let size = parts(buffer.len(), count);
    f(&mut buffer.chunks_mut(size).take(count.max(0) as usize).collect::<Vec<_>>())
}

const COUNTS: &[i64] = &[0, 1, 2, 3, 7, 32, TOO_MANY];

#[rustfmt::skip] // a table
pub(super) const CALLS: &[Call] = calls! {
    60 read(Fd, Length) |c, a| into(c, a.0[1], |p, to| p.read(a.int(0), to));
    60 write(Fd, Length) |c, a|
        within(c.p.write(a.int(0), c.input(a.0[1]))?, c.input(a.0[1]).len());
    20 pread(Fd, Length, Offset) |c, a| into(c, a.0[1], |p, to| p.pread(a.int(0), to, a.0[2]));
    20 pwrite(Fd, Length, Offset) |c, a| {
        within(c.p.pwrite(a.int(0), c.input(a.0[1]), a.0[2])?, c.input(a.0[1]).len())
    };
    12 readv(Fd, Length, One(PARTS)) |c, a| {
        into(c, a.0[1], |p, to| into_parts(to, a.0[2], |to| p.readv(a.int(0), to)))
    };
    12 writev(Fd, Length, One(COUNTS)) |c, a| {
        from_parts(c.input(a.0[1]), a.0[2], |from| c.p.writev(a.int(0), from)).map(|n| n as i64)
    };
    8 preadv(Fd, Length, One(PARTS), Offset) |c, a| {
        into(c, a.0[1], |p, to| into_parts(to, a.0[2], |to| p.preadv(a.int(0), to, a.0[3])))
    };
    8 pwritev(Fd, Length, One(COUNTS), Offset) |c, a| {
        let input = c.input(a.0[1]);
        from_parts(input, a.0[2], |from| c.p.pwritev(a.int(0), from, a.0[3])).map(|n| n as i64)
    };
    15 lseek(Fd, Offset, One(&[0, 1, 2, 3, 4])) |c, a| c.p.lseek(a.int(0), a.0[1], a.int(2));
    10 fallocate(Fd, Bits(&[0, 1, 2, 8, 16, 32]), Offset, Range) |c, a| {
        c.p.fallocate(a.int(0), a.int(1), a.0[2], a.0[3]).map(nothing)
    };
    8 ftruncate(Fd, Offset) |c, a| c.p.ftruncate(a.int(0), a.0[1]).map(nothing);
    5 truncate(Path, Offset) |c, a| c.p.truncate(a.path(0), a.0[1]).map(nothing);
    10 copy_file_range(Fd, MaybeOffset, Fd, MaybeOffset, Copied, One(&[0])) |c, a| {
        let (mut from, mut to) = (a.maybe_offset(1), a.maybe_offset(3));
        let most = a.0[4] as usize;
        let n = c.p.copy_file_range(
            a.int(0), from.as_mut(), a.int(2), to.as_mut(), most, a.word(5))?;
        within(n, most)
    };
    15 sendfile(Fd, Fd, MaybeOffset, Copied) |c, a| {
        let mut offset = a.maybe_offset(2);
        let most = a.0[3] as usize;
        within(c.p.sendfile(a.int(0), a.int(1), offset.as_mut(), most)?, most)
    };
    25 splice(Fd, MaybeOffset, Fd, MaybeOffset, Copied, Bits(SPLICE)) |c, a| {
        let (mut from, mut to) = (a.maybe_offset(1), a.maybe_offset(3));
        let most = a.0[4] as usize;
        let n = c.p.splice(a.int(0), from.as_mut(), a.int(2), to.as_mut(), most, a.word(5))?;
        within(n, most)
    };
    15 tee(Fd, Fd, Copied, Bits(SPLICE)) |c, a| {
        within(c.p.tee(a.int(0), a.int(1), a.0[2] as usize, a.word(3))?, a.0[2] as usize)
    };
    10 vmsplice(Fd, Length, One(COUNTS), Bits(SPLICE)) |c, a| {
        let input = c.input(a.0[1]);
        from_parts(input, a.0[2], |from| c.p.vmsplice(a.int(0), from, a.word(3)))
            .map(|n| n as i64)
    };
    10 vmsplice_from(Fd, Length, One(PARTS), Bits(SPLICE)) |c, a| into(c, a.0[1], |p, to| {
        into_parts(to, a.0[2], |to| p.vmsplice_from(a.int(0), to, a.word(3)))
    });
    3 gift_page() |c, _| {
        let mut page = c.p.gift_page()?;
        check_bytes(page.room());
        Ok(0)
    };
    6 vmsplice_gift(Fd, One(&[0, 1, 3]), Bits(SPLICE)) |c, a| {
        let count = a.0[1].clamp(0, 8);
        let mut pages: Vec<Option<GiftPage<'_>>> =
            (0..count).map(|_| c.p.gift_page().map(Some)).collect::<Result<_, _>>()?;
        for page in pages.iter_mut().flatten() {
            check_bytes(page.room());
            page.room().fill(b'g');
            page.set_len(1000);
        }
        c.p.vmsplice_gift(a.int(0), &mut pages, a.word(2)).map(|n| n as i64)
    };
    6 take_pages(Fd, One(&[0, 1, 3]), Bits(SPLICE)) |c, a| {
        let mut to: Vec<Option<TakenPage<'_>>> = (0..a.0[1].clamp(0, 8)).map(|_| None).collect();
        let n = c.p.take_pages(a.int(0), &mut to, a.word(2))?;
        to.into_iter().flatten().for_each(|page| {
            check_bytes(&page);
            // A page that nobody else has is given again with all of its room.
            if let Ok(mut gift) = page.into_gift() {
                check_bytes(gift.room());
            }
        });
        Ok(n as i64)
    };
    15 getdents64(Fd, Length) |c, a| {
        let n = into(c, a.0[1], |p, to| p.getdents64(a.int(0), to))?;
        let entries = dirents(&c.output[..n as usize]).count();
        assert!(n == 0 || entries > 0, "{n} bytes without an entry");
        Ok(entries as i64)
    };
    3 fsync(Fd) |c, a| c.p.fsync(a.int(0)).map(nothing);
    3 fdatasync(Fd) |c, a| c.p.fdatasync(a.int(0)).map(nothing);
    3 syncfs(Fd) |c, a| c.p.syncfs(a.int(0)).map(nothing);
    1 sync() |c, _| { c.p.sync(); Ok(0) };
    8 ioctl(Fd, One(&[0x541b, 0x5421, 0x5450, 0x5451, 0x5411, 0x8905, 0x5401]), Any) |c, a| {
        let mut argument = a.int(2);
        let answer = c.p.ioctl(a.int(0), a.0[1] as u64, &mut argument)?;
        if answer < 0 { Err(Errno::from_raw_os_error(-answer)) } else { Ok(answer.into()) }
    };
    4 ioctl_bytes(Fd, One(&[0x541b, 0x5421, 0x5450, 0x5411, 0x5401]), Length) |c, a| {
        into(c, a.0[2], |p, to| p.ioctl_bytes(a.int(0), a.0[1] as u64, to).map(|_| 0))
    };
};
