//! Text for C: into a buffer of the caller's, or of the stack's, without memory from anywhere.

use core::ffi::c_char;
use core::fmt;

/// Writes what fits, always ends in a zero if there is room for one, and counts what there was.
pub(crate) struct Text {
    to: *mut c_char,
    room: usize,
    len: usize,
}

impl Text {
    /// # Safety
    /// `to` points to `room` bytes as long as this lives; may be null if `room` is 0.
    pub(crate) unsafe fn new(to: *mut c_char, room: usize) -> Self {
        let mut text = Self { to, room, len: 0 };
        text.end();
        text
    }

    /// Bytes of the whole text, without the zero.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn end(&mut self) {
        if self.room > 0 {
            // SAFETY: below `room`.
            unsafe { self.to.add(self.len.min(self.room - 1)).write(0) };
        }
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let left = self.room.saturating_sub(1).saturating_sub(self.len);
        for (i, byte) in s.bytes().take(left).enumerate() {
            // SAFETY: below `room`.
            unsafe { self.to.add(self.len + i).write(byte as c_char) };
        }
        self.len += s.len();
        self.end();
        Ok(())
    }
}
