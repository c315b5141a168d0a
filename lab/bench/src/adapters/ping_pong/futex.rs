//! Two threads with a word each: what of a round trip is the host's futex, and not the object's.

use std::convert::Infallible;
use std::sync::Arc;

use quietline_platform::atomic::{AtomicU32, Ordering};
use quietline_platform::futex;

use super::player::{Lane, Pairs};
use crate::adapters::implementation::Opened;
use crate::workloads::Job;

/// An arena.
pub(super) fn open(_: Job, threads: usize) -> Opened {
    Pairs::open(threads, || {
        let [there, back] = [(); 2].map(|()| Arc::new(Word::default()));
        Ok([Words { to: there.clone(), from: back.clone() }, Words { to: back, from: there }])
    })
}

/// A byte that was sent, or [`NONE`](Self::NONE), or that nobody sends any more.
///
/// On a line of its own.
#[repr(align(128))]
struct Word(AtomicU32);

impl Word {
    const NONE: u32 = 0x100;
    const GONE: u32 = 0x200;
}

impl Default for Word {
    fn default() -> Self {
        Self(AtomicU32::new(Self::NONE))
    }
}

/// A thread's two words.
struct Words {
    to: Arc<Word>,
    from: Arc<Word>,
}

impl Words {
    fn post(&self, value: u32) {
        // ORDERING: Release pairs with the acquire in `receive`, as a byte through a pipe orders what was done before.
        self.to.0.store(value, Ordering::Release);
        futex::wake(&self.to.0, 1);
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        self.post(Word::GONE);
    }
}

impl Lane for Words {
    type Error = Infallible;

    #[inline(always)]
    fn send(&self, byte: u8) -> Result<bool, Infallible> {
        self.post(u32::from(byte));
        Ok(true)
    }

    #[inline(always)]
    fn receive(&self) -> Result<Option<u8>, Infallible> {
        loop {
            // ORDERING: Acquire pairs with the release in `post`.
            let value = self.from.0.load(Ordering::Acquire);
            match u8::try_from(value) {
                Ok(byte) => {
                    // Relaxed: the sender does not look at it, and sends again only after an answer.
                    self.from.0.store(Word::NONE, Ordering::Relaxed);
                    return Ok(Some(byte));
                }
                Err(_) if value == Word::GONE => return Ok(None),
                Err(_) => futex::wait(&self.from.0, Word::NONE, None),
            }
        }
    }
}
