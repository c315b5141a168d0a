//! What packets should be: bytes in vectors, and who has references to them.

use quietline_net::packet::{HEADROOM, MAX_FRAGS, PacketError};

/// Bytes of data, as the library has them.
const SIZES: [usize; 4] = [576, 2112, 4160, 16_320];

/// A buffer, and who has a part in it.
#[derive(Debug)]
pub(super) struct Data {
    /// All its bytes; what was never written is never looked at.
    bytes: Vec<u8>,
    frags: Vec<Vec<u8>>,
    /// Heads.
    pub(super) heads: usize,
}

/// A head.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) data: usize,
    start: usize,
    len: usize,
    pub(super) mark: u32,
    /// References.
    pub(super) users: usize,
    /// The CPU on which it was made.
    pub(super) cpu: usize,
    /// Whether it has ended. (One without references may wait for that.)
    pub(super) ended: bool,
}

/// All heads and data that there ever were.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) heads: Vec<Head>,
    pub(super) data: Vec<Data>,
}

type Done = Result<(), PacketError>;

impl Model {
    /// What a packet for so many bytes has, headroom included.
    fn capacity(room: usize) -> Result<usize, PacketError> {
        SIZES.into_iter().find(|size| room <= *size).ok_or(PacketError::BadLength)
    }

    /// Whether a packet of so many bytes can be made.
    pub(super) fn may_be(len: usize) -> Done {
        Self::capacity(len + HEADROOM).map(drop)
    }

    fn enter(&mut self, room: usize, start: usize, cpu: usize) -> usize {
        let bytes = vec![0; Self::capacity(room).expect("one that was made")];
        self.data.push(Data { bytes, frags: Vec::new(), heads: 1 });
        let data = self.data.len() - 1;
        self.heads.push(Head { data, start, len: 0, mark: 0, users: 1, cpu, ended: false });
        self.heads.len() - 1
    }

    /// A packet for so many bytes was made: the number of its head.
    pub(super) fn made(&mut self, len: usize, cpu: usize) -> usize {
        self.enter(len + HEADROOM, HEADROOM, cpu)
    }

    /// A head was cloned.
    pub(super) fn cloned(&mut self, head: usize, cpu: usize) -> usize {
        let Head { data, start, len, mark, .. } = self.heads[head];
        self.data[data].heads += 1;
        self.heads.push(Head { data, start, len, mark, users: 1, cpu, ended: false });
        self.heads.len() - 1
    }

    /// Whether a packet can be copied, with so much room before and behind.
    pub(super) fn may_be_copied(&self, head: usize, headroom: usize, tailroom: usize) -> Done {
        Self::capacity(self.len(head) + headroom + tailroom).map(drop)
    }

    /// A packet was copied.
    pub(super) fn copied(
        &mut self,
        head: usize,
        headroom: usize,
        tailroom: usize,
        cpu: usize,
    ) -> usize {
        let (all, mark) = (self.all(head), self.heads[head].mark);
        let new = self.enter((all.len() + headroom + tailroom).max(HEADROOM), headroom, cpu);
        self.heads[new].mark = mark;
        self.put(new, &all).expect("there is room for what was copied");
        new
    }

    fn of(&self, head: usize) -> (&Head, &Data) {
        let head = &self.heads[head];
        (head, &self.data[head.data])
    }

    pub(super) fn is_shared(&self, head: usize) -> bool {
        self.heads[head].users != 1
    }

    pub(super) fn is_cloned(&self, head: usize) -> bool {
        self.of(head).1.heads != 1
    }

    fn must_be_alone(&self, head: usize) -> Done {
        if self.is_shared(head) || self.is_cloned(head) { Err(PacketError::Shared) } else { Ok(()) }
    }

    fn must_not_be_shared(&self, head: usize) -> Done {
        if self.is_shared(head) { Err(PacketError::Shared) } else { Ok(()) }
    }

    pub(super) fn linear(&self, head: usize) -> &[u8] {
        let (head, data) = self.of(head);
        &data.bytes[head.start..head.start + head.len]
    }

    pub(super) fn frags(&self, head: usize) -> &[Vec<u8>] {
        &self.of(head).1.frags
    }

    pub(super) fn frags_len(&self, head: usize) -> usize {
        self.frags(head).iter().map(Vec::len).sum()
    }

    pub(super) fn len(&self, head: usize) -> usize {
        self.heads[head].len + self.frags_len(head)
    }

    fn all(&self, head: usize) -> Vec<u8> {
        [self.linear(head), &self.frags(head).concat()].concat()
    }

    pub(super) fn headroom(&self, head: usize) -> usize {
        self.heads[head].start
    }

    pub(super) fn tailroom(&self, head: usize) -> usize {
        let (of, data) = self.of(head);
        if data.frags.is_empty() { data.bytes.len() - of.start - of.len } else { 0 }
    }

    fn write(&mut self, head: usize, at: usize, bytes: &[u8]) {
        let Head { data, start, .. } = self.heads[head];
        self.data[data].bytes[start + at..start + at + bytes.len()].copy_from_slice(bytes);
    }

    fn must_fit(n: usize, room: usize) -> Done {
        if n > room { Err(PacketError::BadLength) } else { Ok(()) }
    }

    pub(super) fn put(&mut self, head: usize, bytes: &[u8]) -> Done {
        Self::must_fit(bytes.len(), self.tailroom(head))?;
        self.must_be_alone(head)?;
        self.write(head, self.heads[head].len, bytes);
        self.heads[head].len += bytes.len();
        Ok(())
    }

    pub(super) fn push(&mut self, head: usize, bytes: &[u8]) -> Done {
        Self::must_fit(bytes.len(), self.headroom(head))?;
        self.must_be_alone(head)?;
        self.heads[head].start -= bytes.len();
        self.heads[head].len += bytes.len();
        self.write(head, 0, bytes);
        Ok(())
    }

    pub(super) fn pull(&mut self, head: usize, n: usize) -> Done {
        self.must_not_be_shared(head)?;
        Self::must_fit(n, self.heads[head].len)?;
        self.heads[head].start += n;
        self.heads[head].len -= n;
        Ok(())
    }

    pub(super) fn trim(&mut self, head: usize, len: usize) -> Done {
        self.must_not_be_shared(head)?;
        Self::must_fit(self.frags(head).len(), 0)?;
        self.heads[head].len = self.heads[head].len.min(len);
        Ok(())
    }

    pub(super) fn reserve(&mut self, head: usize, n: usize) -> Done {
        self.must_not_be_shared(head)?;
        Self::must_fit(self.heads[head].len, 0)?;
        Self::must_fit(n, self.tailroom(head))?;
        self.heads[head].start += n;
        Ok(())
    }

    pub(super) fn may_add_frag(&self, head: usize, bytes: &[u8]) -> Done {
        self.must_be_alone(head)?;
        let room = if bytes.is_empty() { 0 } else { MAX_FRAGS };
        Self::must_fit(self.frags(head).len() + 1, room)
    }

    pub(super) fn add_frag(&mut self, head: usize, bytes: Vec<u8>) {
        let data = self.heads[head].data;
        self.data[data].frags.push(bytes);
    }

    pub(super) fn change(&mut self, head: usize, at: usize, byte: u8) -> Done {
        self.must_be_alone(head)?;
        if at < self.heads[head].len {
            self.write(head, at, &[byte]);
        }
        Ok(())
    }

    pub(super) fn set_mark(&mut self, head: usize, mark: u32) -> Done {
        self.must_not_be_shared(head)?;
        self.heads[head].mark = mark;
        Ok(())
    }

    /// A head has ended, and gives up its part in the data.
    ///
    /// # Panics
    /// If it has references, or ended before.
    pub(super) fn ended(&mut self, head: usize) {
        let of = &mut self.heads[head];
        assert_eq!((of.users, of.ended), (0, false), "references, and whether it has ended before");
        of.ended = true;
        let data = of.data;
        self.data[data].heads -= 1;
    }
}
