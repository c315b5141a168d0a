//! The memory that calls read and write, in areas that both systems use in the same way.

use std::cell::UnsafeCell;
use std::ptr;

/// Bytes that calls read: a pattern.
const SOURCE: usize = 0;
/// Bytes that calls write.
const TARGET: usize = 0x1000;
/// Structures, of which a case may have two.
const STRUCTS: [usize; 2] = [0x2000, 0x2400];
/// Lengths that are read and written.
const LENGTH: usize = 0x2800;
/// Paths and names.
const TEXTS: [usize; 2] = [0x3000, 0x3400];
/// Lists of buffers.
const BUFFERS: usize = 0x4000;
/// Messages.
const MESSAGE: usize = 0x9000;
/// Ancillary data.
const CONTROL: usize = 0x9800;
const SIZE: usize = 0x1_1000;

/// The bytes that are compared after a call: from the first number to the second.
const COMPARED: [(usize, usize); 4] = [
    (SOURCE, SOURCE + 0x400),
    (TARGET, TARGET + 0x400),
    (STRUCTS[0], LENGTH + 8),
    (CONTROL, CONTROL + 64),
];

/// A room of memory. A call gets addresses in it.
pub(crate) struct Room(Box<UnsafeCell<[u64; SIZE / 8]>>);

impl Room {
    pub(crate) fn new() -> Self {
        let room = Self(Box::new(UnsafeCell::new([0; SIZE / 8])));
        room.clear();
        room
    }

    fn at(&self, offset: usize) -> i64 {
        (self.0.get().expose_provenance() + offset) as i64
    }

    /// Restores the room before a case.
    pub(crate) fn clear(&self) {
        for text in TEXTS {
            self.put(self.at(text), &[0]);
        }
        for (from, to) in
            [(TARGET, TARGET + 0x400), (STRUCTS[0], LENGTH + 64), (MESSAGE, CONTROL + 256)]
        {
            self.put(self.at(from), &[0; 0x1000][..to - from]);
        }
        let pattern: [u8; 0x400] = std::array::from_fn(|n| b'a' + (n % 23) as u8);
        self.put(self.at(SOURCE), &pattern);
    }

    /// The pointer to `len` bytes at an address.
    ///
    /// # Panics
    /// If they do not lie in the room.
    fn pointer(&self, at: i64, len: usize) -> *mut u8 {
        let offset = (at as usize).wrapping_sub(self.0.get().addr());
        if len == 0 {
            return ptr::dangling_mut();
        }
        assert!(
            offset <= SIZE && len <= SIZE - offset,
            "{len} bytes at {at:#x} lie outside the room"
        );
        self.0.get().cast::<u8>().wrapping_add(offset)
    }

    /// Writes bytes.
    pub(crate) fn put(&self, at: i64, bytes: &[u8]) {
        let to = self.pointer(at, bytes.len());
        // SAFETY: `pointer` has checked the bounds, and no reference into the room exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Reads bytes.
    pub(crate) fn get(&self, at: i64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        // SAFETY: as in `put`.
        unsafe { ptr::copy_nonoverlapping(self.pointer(at, len), bytes.as_mut_ptr(), len) };
        bytes
    }

    pub(crate) fn word(&self, at: i64) -> u64 {
        u64::from_ne_bytes(self.get(at, 8).try_into().unwrap())
    }

    pub(crate) fn int(&self, at: i64) -> i32 {
        i32::from_ne_bytes(self.get(at, 4).try_into().unwrap())
    }

    pub(crate) fn ints(&self, at: i64) -> [i32; 2] {
        [self.int(at), self.int(at + 4)]
    }

    /// The text at an address, up to its zero byte.
    pub(crate) fn string(&self, at: i64) -> Vec<u8> {
        self.get(at, 0x400).split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
    }

    pub(crate) fn source(&self) -> i64 {
        self.at(SOURCE)
    }

    pub(crate) fn target(&self) -> i64 {
        self.at(TARGET)
    }

    /// Stores words as a structure that begins elsewhere than the other one of the case.
    pub(crate) fn structure(&self, number: usize, words: &[u64]) -> i64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.put(self.at(STRUCTS[number]), &bytes);
        self.at(STRUCTS[number])
    }

    /// The address of the first structure.
    pub(crate) fn structure_at(&self) -> i64 {
        self.at(STRUCTS[0])
    }

    /// [`structure`](Self::structure) for calls of a constructor.
    pub(crate) fn words(&self, words: &[u64]) -> i64 {
        self.structure(0, words)
    }

    pub(crate) fn length(&self, length: u64) -> i64 {
        self.put(self.at(LENGTH), &length.to_ne_bytes());
        self.at(LENGTH)
    }

    pub(crate) fn text(&self, number: usize, text: &str) -> i64 {
        self.put(self.at(TEXTS[number]), text.as_bytes());
        self.put(self.at(TEXTS[number] + text.len()), &[0]);
        self.at(TEXTS[number])
    }

    /// Asserts that no path leads out of the directory in which a call begins.
    pub(crate) fn assert_inside(&self) {
        for text in TEXTS.map(|text| self.string(self.at(text))) {
            let out = text.starts_with(b"/") || text.windows(2).any(|two| two == b"..");
            assert!(!out, "a call changes what is at {}", text.escape_ascii());
        }
    }

    /// Stores a list of buffers of these lengths, 64 bytes apart from `data` on.
    pub(crate) fn buffers(&self, data: i64, lengths: &[u64]) -> i64 {
        for (n, length) in lengths.iter().enumerate() {
            let entry = self.at(BUFFERS + n * 16);
            self.put(entry, &(data as u64 + (n as u64 % 16) * 64).to_ne_bytes());
            self.put(entry + 8, &length.to_ne_bytes());
        }
        self.at(BUFFERS)
    }

    /// Stores a message header.
    pub(crate) fn message(&self, words: &[u64]) -> i64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.put(self.at(MESSAGE), &bytes);
        self.at(MESSAGE)
    }

    pub(crate) fn control(&self, words: &[u64]) -> i64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.put(self.at(CONTROL), &bytes);
        self.at(CONTROL)
    }

    /// The fields of the first message header that a call writes: lengths, flags, bytes.
    fn header(&self) -> [i32; 4] {
        [8, 40, 48, 56].map(|field| self.int(self.at(MESSAGE + field)))
    }

    /// The offset of the first byte that differs from the other room's, with both bytes.
    pub(crate) fn difference(&self, other: &Room) -> Option<String> {
        for (from, to) in COMPARED {
            let [own, others] = [self, other].map(|room| room.get(room.at(from), to - from));
            if let Some(n) = (0..to - from).find(|n| own[*n] != others[*n]) {
                let [own, others] = [own, others]
                    .map(|bytes| bytes[n..].iter().take(8).copied().collect::<Vec<_>>());
                return Some(format!(
                    "memory at {:#x}: host {own:?}, quietline {others:?}",
                    from + n
                ));
            }
        }
        let headers = [self.header(), other.header()];
        (headers[0] != headers[1])
            .then(|| format!("message header: host {:?}, quietline {:?}", headers[0], headers[1]))
    }
}
