//! Few bytes in a pipe, which have no page, beside those that have: they come in order, whoever uses pages meanwhile.

use quietline_sync::IdAllocator;
use quietline_vfs::pipe::{Transfer, move_between, share_between, splice_from, splice_to};
use quietline_vfs::{
    Events, FileMode, Files, Io, Ioctl, Owner, Payload, Pipe, PollTable, PseudoFs, Sink, Source,
    Vfs, pipe2,
};
use rustix::io::Errno;

const ROOT: Owner = Owner::new(0, 0);

const ALL: Transfer = Transfer { len: 1 << 20, waits: false };

fn write(pipe: &Pipe, bytes: &[u8]) {
    let io = Io { flags: quietline_vfs::abi::O_NONBLOCK, mode: FileMode::WRITE };
    assert_eq!(pipe.try_write(io, &mut Source::new(&[bytes])), Ok(bytes.len()));
}

/// What is in it, at most so many bytes.
fn read(pipe: &Pipe, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; most];
    let io = Io { flags: quietline_vfs::abi::O_NONBLOCK, mode: FileMode::READ };
    let n = pipe.try_read(io, &mut Sink::new(&mut [&mut bytes])).or_else(|errno| match errno {
        Errno::AGAIN => Ok(0),
        errno => Err(errno),
    });
    bytes.truncate(n.unwrap());
    bytes
}

fn readable(pipe: &Pipe) -> usize {
    let io = Io { flags: 0, mode: FileMode::READ };
    pipe.ioctl(io, Ioctl::Readable).unwrap() as usize
}

/// With two pipes, which are open while `f` runs.
fn with_pipes(f: impl FnOnce(&Pipe, &Pipe)) {
    let files = Files::new(100).unwrap();
    let ino = IdAllocator::starting_at(1).unwrap();
    let vfs = Vfs::new().unwrap();
    let fs = PseudoFs::<Pipe>::new("pipefs").unwrap();
    let [one, other] = [(); 2].map(|()| pipe2(&fs, &files, &vfs, &ino, ROOT, 0).unwrap());
    f(one[0].payload().unwrap(), other[0].payload().unwrap());
}

/// Some are read, more come behind, and those that do not fit: after each it is said how many there are.
#[test]
fn few_and_many_in_order() {
    with_pipes(|pipe, _| {
        let (mut next, mut due) = (0_u8, 0_u8);
        for n in [1, 3, 2, 8, 1, 7, 9, 4, 5_000, 1, 8, 8, 8] {
            for taken in [0, 1, 2, n / 2] {
                let bytes: Vec<u8> = (0..n)
                    .map(|_| {
                        let now = next;
                        next = next.wrapping_add(1);
                        now
                    })
                    .collect();
                let before = readable(pipe);
                write(pipe, &bytes);
                assert_eq!(readable(pipe), before + n);
                for byte in read(pipe, taken) {
                    assert_eq!(byte, due);
                    due = due.wrapping_add(1);
                }
            }
            if n % 2 == 1 {
                for byte in read(pipe, 1 << 16) {
                    assert_eq!(byte, due);
                    due = due.wrapping_add(1);
                }
                assert_eq!((due, readable(pipe)), (next, 0));
            }
        }
    });
}

/// Whoever puts pages in takes its time; the pipe is emptied and written meanwhile.
#[test]
fn written_while_pages_come() {
    with_pipes(|pipe, _| {
        write(pipe, b"ab");
        let mut turn = 0;
        let spliced = splice_to(
            pipe.core(),
            Transfer { len: 3 * 4096, waits: false },
            |_| 4096,
            |to, _| {
                turn += 1;
                match turn {
                    1 => assert_eq!(read(pipe, 9), b"ab"),
                    2 => {
                        assert_eq!(read(pipe, 1 << 16), [1; 4096]);
                        // There is room in the pipe, and nothing in it.
                        write(pipe, b"c");
                    }
                    _ => write(pipe, b"d"),
                }
                to.fill(turn);
                Ok(to.len())
            },
        );
        assert_eq!(spliced, Ok(3 * 4096));
        write(pipe, b"e");
        let expected = [&b"c"[..], &[2; 4096], b"d", &[3; 4096], b"e"].concat();
        assert_eq!(read(pipe, 1 << 16), expected);
    });
}

/// Whoever takes bytes out may bring them back; the pipe is written meanwhile.
#[test]
fn written_while_bytes_are_out() {
    with_pipes(|pipe, _| {
        write(pipe, b"abc");
        let taken = splice_from(pipe.core(), ALL, |bytes| {
            assert_eq!(bytes, b"abc");
            write(pipe, b"de");
            Ok(1)
        });
        assert_eq!(taken, Ok(1));
        write(pipe, b"f");
        assert_eq!(read(pipe, 9), b"bcdef");
        write(pipe, b"g");
        assert_eq!(read(pipe, 9), b"g");
    });
}

/// From pipe to pipe: the few move, and come behind what is there.
#[test]
fn between_pipes() {
    with_pipes(|one, other| {
        write(one, b"abc");
        write(other, b"x");
        assert_eq!(
            share_between(one.core(), other.core(), Transfer { len: 2, waits: false }),
            Ok(2)
        );
        assert_eq!((readable(one), readable(other)), (3, 3));
        write(one, b"d");
        assert_eq!(move_between(one.core(), other.core(), ALL), Ok(4));
        assert_eq!((read(one, 9), read(other, 9)), (Vec::new(), b"xababcd".to_vec()));
    });
}

/// A pipe of one page is full when anything is in it.
#[test]
fn a_pipe_of_one_page() {
    with_pipes(|pipe, _| {
        write(pipe, b"a");
        assert_eq!(pipe.core().set_capacity(1, true, true), Ok(4096));
        write(pipe, b"b");
        let io = Io { flags: quietline_vfs::abi::O_NONBLOCK, mode: FileMode::WRITE };
        let full = pipe.try_write(io, &mut Source::new(&[&[7; 4096]]));
        assert_eq!(full, Err(Errno::AGAIN));
        assert_eq!(read(pipe, 9), b"ab");
        // Nor when it was empty: what is put beside the lock would have left the page free.
        write(pipe, b"a");
        assert!(!pipe.poll(io, &mut PollTable::look()).contains(Events::OUT));
    });
}
