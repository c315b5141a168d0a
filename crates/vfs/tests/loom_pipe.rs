//! A pipe's few bytes in every interleaving: writers and a reader beside one who only looks, or moves them to a page.
//!
//! What is modelled is the library's own source, but for the pipe around it: its pages are vectors here, and it has no queues.
//!
//! # Faults that were planted
//!
//! In `src/pipe/now.rs`: the word shown with a relaxed store (`who_is_told_finds_what_came_before`). In `src/pipe/few.rs`: bytes
//! that stay among the few when they have been moved to a page, and bytes that are put to the beginning and not behind the others
//! (`bytes_come_once_and_in_order`).
#![cfg(loom)]
#![allow(dead_code, unreachable_pub, missing_docs)]

mod poll {
    bitflags::bitflags! {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct Events: u32 {
            const IN = 1;
            const OUT = 4;
            const ERR = 8;
            const HUP = 0x10;
            const RDNORM = 0x40;
            const WRNORM = 0x100;
        }
    }
}

mod file {
    use std::marker::PhantomData;

    pub struct Sink<'a, 'b>(pub &'a mut Vec<u8>, pub PhantomData<&'b ()>);

    impl Sink<'_, '_> {
        pub fn put(&mut self, bytes: &[u8]) -> usize {
            self.0.extend(bytes);
            bytes.len()
        }
    }

    pub struct Source<'a, 'b>(pub &'a [u8], pub PhantomData<&'b ()>);

    impl Source<'_, '_> {
        pub fn left(&self) -> usize {
            self.0.len()
        }

        pub fn is_again(&self) -> bool {
            false
        }

        pub fn take(&mut self, to: &mut [u8]) -> usize {
            let (now, later) = self.0.split_at(to.len());
            to.copy_from_slice(now);
            self.0 = later;
            to.len()
        }
    }
}

#[path = "../src/pipe"]
mod pipe {
    mod few;
    mod now;

    pub use self::core::PipeCore;

    mod core {
        use super::now::{FEW, Now, READABLE, Shown, WRITABLE};
        use crate::file::{Sink, Source};
        use quietline_sync::SpinLock;
        use rustix::io::Errno;
        use std::marker::PhantomData;

        /// A page: its bytes, and where they begin.
        pub struct Page(Vec<u8>, usize);

        impl Page {
            pub fn fill_by(&mut self, n: usize, read: impl FnOnce(&mut [u8]) -> usize) {
                self.0 = vec![0; n];
                assert_eq!(read(&mut self.0), n);
            }

            pub fn skip(&mut self, n: usize) {
                self.1 += n;
            }
        }

        pub struct Pages;

        impl Pages {
            pub fn get(&self) -> Result<Page, Errno> {
                Ok(Page(Vec::new(), 0))
            }
        }

        pub struct State {
            pub few: [u8; FEW],
            pub spare: Option<Page>,
            pub ring: Vec<Page>,
        }

        impl State {
            pub fn now(&self, before: Now) -> Now {
                let any = !self.ring.is_empty() || before.few_len() != 0;
                let events = if any { READABLE.union(WRITABLE) } else { WRITABLE };
                before.with(events, true, self.ring.is_empty())
            }
        }

        pub struct PipeCore {
            now: Shown,
            state: SpinLock<State>,
            pub pages: Pages,
        }

        impl PipeCore {
            pub fn new() -> Self {
                let state = State { few: [0; FEW], spare: None, ring: Vec::new() };
                Self { now: Shown::new(Now::new()), state: SpinLock::new(state), pages: Pages }
            }

            pub fn now(&self) -> Now {
                self.now.held()
            }

            pub fn settle(&self, _state: &mut State) -> Result<(), Errno> {
                Ok(())
            }

            pub fn set_now(&self, now: Now) {
                self.now.show(now);
            }

            /// Whether there is something to read: a look.
            pub fn is_readable(&self) -> bool {
                self.now.look().is_readable()
            }

            pub fn write(&self, bytes: &[u8]) {
                let mut state = self.state.lock();
                if self.put_few(&mut state, &mut Source(bytes, PhantomData)).is_none() {
                    self.unfold(&mut state).unwrap();
                    state.ring.push(Page(bytes.to_vec(), 0));
                    self.set_now(state.now(self.now()));
                }
            }

            pub fn read(&self) -> Vec<u8> {
                let (mut read, mut state) = (Vec::new(), self.state.lock());
                if self.take_few(&state, self.now(), &mut Sink(&mut read, PhantomData)).is_none() {
                    state.ring.drain(..).for_each(|page| read.extend(&page.0[page.1..]));
                    self.set_now(state.now(self.now()));
                }
                read
            }

            pub fn to_page(&self) {
                self.unfold(&mut self.state.lock()).unwrap();
            }
        }
    }
}

use pipe::PipeCore;
use quietline_platform::cell::UnsafeCell;
use quietline_platform::{model, thread};
use std::sync::Arc;

/// What comes with a message, and is not the pipe's.
struct Beside(UnsafeCell<u32>);
// The tests' own: the model finds who reads it too early.
#[allow(unsafe_code)]
// SAFETY: written before the byte, read after it was seen.
unsafe impl Sync for Beside {}

#[test]
#[allow(unsafe_code)]
fn who_is_told_finds_what_came_before() {
    model(|| {
        let both = Arc::new((PipeCore::new(), Beside(UnsafeCell::new(0))));
        let writer = thread::spawn({
            let both = both.clone();
            move || {
                // SAFETY: nobody looks before the byte is there.
                both.1.0.with_mut(|beside| unsafe { *beside = 7 });
                both.0.write(&[1]);
            }
        });
        if both.0.is_readable() {
            // SAFETY: the byte was seen, and it is written once.
            assert_eq!(both.1.0.with(|beside| unsafe { *beside }), 7);
            assert_eq!(both.0.read(), [1]);
        }
        writer.join().unwrap();
    });
}

#[test]
fn bytes_come_once_and_in_order() {
    // (More steps, or three threads, take hours.)
    let reads: fn(&PipeCore) -> Vec<u8> = |pipe| pipe.read();
    let moves: fn(&PipeCore) -> Vec<u8> = |pipe| {
        pipe.to_page();
        Vec::new()
    };
    for beside in [reads, moves] {
        model(move || {
            let pipe = Arc::new(PipeCore::new());
            let writer = thread::spawn({
                let pipe = pipe.clone();
                move || {
                    pipe.write(&[1, 2, 3]);
                    pipe.write(&[4, 5]);
                }
            });
            let mut read = beside(&pipe);
            writer.join().unwrap();
            read.extend(pipe.read());
            assert_eq!(read, [1, 2, 3, 4, 5]);
            assert!(!pipe.is_readable());
        });
    }
}
