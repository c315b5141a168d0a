//! Where in the program, by whom and when something was done.

use core::ffi::c_void;
use core::fmt;
use quietline_platform::{clock, cpu};
use std::time::Duration;

/// Return addresses that are kept: eight of the caller's, and what the cache's own functions may take.
const DEPTH: usize = 10;
/// Frames that are looked at to find the first that is kept.
const INSPECTED: usize = 16;

/// Who allocated, freed or was caught, where and when. As text, with the names of functions, which are looked up then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct CallSite {
    frames: [usize; DEPTH],
    thread: u32,
    cpu: u32,
    nanoseconds: u64,
}

impl CallSite {
    /// What fresh memory of zeros says.
    pub(super) const NONE: Self = Self { frames: [0; DEPTH], thread: 0, cpu: 0, nanoseconds: 0 };

    /// Here and now. Some microseconds; no memory is allocated.
    #[inline(never)]
    pub(super) fn here() -> Self {
        let mut stack = [0usize; INSPECTED];
        let (mut depth, mut inside, mut looking) = (0, 0, true);
        // SAFETY: only names are looked up under a lock of that crate; to walk the stack is any thread's own affair.
        unsafe {
            backtrace::trace_unsynchronized(|frame| {
                stack[depth] = frame.ip() as usize;
                depth += 1;
                if looking && frame.symbol_address() as usize == Self::here as fn() -> Self as usize
                {
                    (inside, looking) = (depth, false);
                }
                depth < INSPECTED
            });
        }
        let mut frames = [0; DEPTH];
        frames.iter_mut().zip(&stack[inside..depth]).for_each(|(kept, frame)| *kept = *frame);
        Self {
            frames,
            thread: rustix::thread::gettid().as_raw_nonzero().get() as u32,
            cpu: cpu::current() as u32,
            nanoseconds: clock::monotonic().as_nanos() as u64,
        }
    }

    pub(super) fn known(self) -> Option<Self> {
        (self.thread != 0).then_some(self)
    }

    /// The thread, as the system numbers it.
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// The CPU that the thread was on.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// When, on the monotonic clock.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds)
    }

    /// Return addresses, the innermost first.
    pub fn addresses(&self) -> impl Iterator<Item = usize> + '_ {
        self.frames.iter().copied().take_while(|address| *address != 0)
    }
}

/// Functions that are shown.
const SHOWN: usize = 8;

/// Whether a function is one of this crate, which the reader of a report knows about. Names of functions that were inlined
/// may be without a path; then the file tells.
fn is_inside(name: &str, file: &str) -> bool {
    let sources = file!().trim_end_matches("debug/call_site.rs");
    ["quietline_slab::", "<quietline_slab::"].iter().any(|ours| name.starts_with(ours))
        || file.contains(sources)
}

/// Whether a function is of the standard library, where nobody looks for the fault.
fn is_standard(name: &str, file: &str) -> bool {
    let name = name.trim_start_matches(['<', '&']);
    ["core::", "alloc::", "std::", "fn("].iter().any(|standard| name.starts_with(standard))
        || ["/rustc/", "/rustlib/src/"].iter().any(|sources| file.contains(sources))
}

impl fmt::Display for CallSite {
    /// "thread 7 on CPU 1 at 12.345678 s", and a line for each function, from the first outside this crate to that with which
    /// its thread began, at most eight, without those of the standard library.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, cpu, .. } = self;
        write!(f, "thread {thread} on CPU {cpu} at {:.6} s", self.time().as_secs_f64())?;
        let (mut inside, mut shown, mut result) = (true, 0, Ok(()));
        for address in self.addresses() {
            let mut named = false;
            backtrace::resolve(address as *mut c_void, |symbol| {
                let Some(name) = symbol.name().map(|name| format!("{name:#}")) else { return };
                let file =
                    symbol.filename().map(|file| file.display().to_string()).unwrap_or_default();
                named = true;
                if name.contains("__rust_begin_short_backtrace") {
                    shown = SHOWN;
                }
                inside = inside && (is_inside(&name, &file) || is_standard(&name, &file));
                if inside || is_standard(&name, &file) || shown >= SHOWN || result.is_err() {
                    return;
                }
                shown += 1;
                result = match symbol.lineno() {
                    Some(line) => write!(f, "\n      {name} ({file}:{line})"),
                    None => write!(f, "\n      {name}"),
                };
            });
            if !named && shown < SHOWN && result.is_ok() {
                (inside, shown) = (false, shown + 1);
                result = write!(f, "\n      {address:#x}");
            }
        }
        result
    }
}
