//! What cannot be said in safe Rust: `fork`, `ptrace`, and reading code as bytes.

use std::arch::asm;
use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::mem::{self, MaybeUninit};
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::{Once, OnceLock};

/// In `rax` at a marker that a closure has reached.
const REACHED: u64 = 0x5ca1_ab1e;
/// In `rax` at the marker of a panic.
pub(crate) const PANICKED: u64 = 0xdead;

/// Seconds after which a child is taken to hang.
const PATIENCE: libc::c_uint = 120;

const GET_RSEQ_CONFIGURATION: Request = 0x420f;
/// The type of a request, which depends on the C library.
#[cfg(target_env = "musl")]
type Request = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;

/// Bytes of this program's code.
pub(crate) fn code(start: u64, len: usize) -> Vec<u8> {
    // SAFETY: the callers pass the addresses of a function that the symbol table lists: mapped, readable, constant.
    unsafe { std::slice::from_raw_parts(start as *const u8, len) }.to_vec()
}

/// A word of this program's data that an instruction of its code refers to.
pub(crate) fn word(address: u64) -> u64 {
    // SAFETY: the callers pass an address that code of this program branches through: mapped and readable. Entries
    // of the global offset table are written by the loader before any code runs, or by nobody any more.
    unsafe { ptr::read_unaligned(address as *const u64) }
}

/// How a stopped child came to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A step, a breakpoint or a marker.
    Trap,
    /// The entry or the exit of a system call.
    Syscall,
    /// A signal was sent to it.
    Signal(i32),
    /// It is gone, with this status.
    Gone(i32),
}

/// A traced child. Dropping it kills it. While it lives, the calling thread is pinned to the child's CPU: the two
/// never run at once, and a switch on one CPU is much cheaper than waking another.
pub(crate) struct Child {
    pid: libc::pid_t,
    gone: std::cell::Cell<bool>,
    memory: File,
    affinity: libc::cpu_set_t,
}

/// Ends the child at once, without running what its parent has yet to run.
fn leave() -> ! {
    // SAFETY: nothing of the process is used afterwards.
    unsafe { libc::_exit(0) }
}

impl Child {
    /// Forks a child that stops, runs `f`, which has markers in it, and comes to a last marker.
    pub(crate) fn fork(f: &mut dyn FnMut(), says: PipeWriter) -> io::Result<Self> {
        install_hook();
        let affinity = pin()?;
        // SAFETY: the child uses what a single-threaded copy of this process may use: locks that other threads
        // hold are its own affair, as `count` says.
        match unsafe { libc::fork() } {
            -1 => {
                let error = io::Error::last_os_error();
                unpin(&affinity);
                Err(error)
            }
            0 => {
                // SAFETY: no pointers are involved. A refusal shows as a child that ends with the signal's status.
                unsafe {
                    if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                        libc::_exit(libc::EPERM);
                    }
                    libc::raise(libc::SIGSTOP);
                }
                live(f, says);
                leave()
            }
            pid => {
                let memory = match File::open(format!("/proc/{pid}/mem")) {
                    Ok(memory) => memory,
                    Err(error) => {
                        // SAFETY: the child is ours and has not been waited for.
                        unsafe {
                            libc::kill(pid, libc::SIGKILL);
                            libc::waitpid(pid, ptr::null_mut(), libc::__WALL);
                        }
                        unpin(&affinity);
                        return Err(error);
                    }
                };
                let child = Self { pid, gone: false.into(), memory, affinity };
                match child.wait()? {
                    Stop::Signal(libc::SIGSTOP) => {}
                    _ => return Err(io::Error::from_raw_os_error(libc::EPERM)),
                }
                let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD;
                child.request(libc::PTRACE_SETOPTIONS, 0, options as u64)?;
                Ok(child)
            }
        }
    }

    /// The address of the child's rseq area; 0 when it has none.
    pub(crate) fn rseq_area(&self) -> io::Result<u64> {
        #[repr(C)]
        struct Configuration {
            area: u64,
            size: u32,
            signature: u32,
            flags: u32,
            padding: u32,
        }
        let mut configuration = MaybeUninit::<Configuration>::zeroed();
        let at = configuration.as_mut_ptr() as u64;
        self.request(GET_RSEQ_CONFIGURATION, size_of::<Configuration>() as u64, at)?;
        // SAFETY: all zeroes are valid, and the kernel wrote into it.
        Ok(unsafe { configuration.assume_init() }.area)
    }

    pub(crate) fn registers(&self) -> io::Result<libc::user_regs_struct> {
        let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
        self.request(libc::PTRACE_GETREGS, 0, registers.as_mut_ptr() as u64)?;
        // SAFETY: all zeroes are valid, and the kernel wrote into it.
        Ok(unsafe { registers.assume_init() })
    }

    /// Goes on somewhere else.
    pub(crate) fn jump(&self, ip: u64) -> io::Result<()> {
        self.request(libc::PTRACE_POKEUSER, mem::offset_of!(libc::user_regs_struct, rip) as u64, ip)
    }

    /// Returns from the function whose entry the child has reached, with this result.
    pub(crate) fn return_from_entry(
        &self,
        at: &libc::user_regs_struct,
        result: u64,
    ) -> io::Result<()> {
        let caller = self.peek(at.rsp)?;
        let mut after = libc::user_regs_struct { rip: caller, rsp: at.rsp + 8, rax: result, ..*at };
        let after = ptr::from_mut(&mut after) as u64;
        self.request(libc::PTRACE_SETREGS, 0, after)
    }

    /// Makes the first byte of an instruction a breakpoint.
    pub(crate) fn set_breakpoint(&self, address: u64) -> io::Result<()> {
        let word = self.peek(address)?;
        self.poke(address, word & !0xff | 0xcc)
    }

    /// Reads bytes of the child's memory, up to the end of the mapping. Returns their number.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.memory.read_at(bytes, address)
    }

    /// Reads a word of the child's memory.
    pub(crate) fn peek(&self, address: u64) -> io::Result<u64> {
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, address)?;
        Ok(u64::from_ne_bytes(word))
    }

    /// Writes a word of the child's memory.
    pub(crate) fn poke(&self, address: u64, value: u64) -> io::Result<()> {
        self.request(libc::PTRACE_POKEDATA, address, value)
    }

    /// Executes one instruction.
    pub(crate) fn step(&self) -> io::Result<Stop> {
        self.request(libc::PTRACE_SINGLESTEP, 0, 0)?;
        self.wait()
    }

    /// Lets it run to the next marker.
    pub(crate) fn resume(&self) -> io::Result<Stop> {
        self.request(libc::PTRACE_CONT, 0, 0)?;
        self.wait()
    }

    /// Lets it run to the next breakpoint, or the next entry or exit of a system call.
    pub(crate) fn resume_to_syscall(&self) -> io::Result<Stop> {
        self.request(libc::PTRACE_SYSCALL, 0, 0)?;
        self.wait()
    }

    /// Lets it run from the last marker to its end.
    pub(crate) fn finish(&self) {
        let past = self.resume();
        // If it did not end, dropping it ends it.
        debug_assert!(!matches!(past, Ok(Stop::Trap)));
    }

    fn request(&self, request: Request, address: u64, data: u64) -> io::Result<()> {
        // SAFETY: the child is ours and stopped. The requests used read no memory of this process, and write only to
        // the structures whose addresses `rseq_area` and `registers` pass, which are as large as the kernel expects.
        match unsafe { libc::ptrace(request, self.pid, address, data) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn wait(&self) -> io::Result<Stop> {
        let mut status = 0;
        loop {
            // SAFETY: the status is ours; the child is ours.
            match unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) } {
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                -1 => return Err(io::Error::last_os_error()),
                _ if !libc::WIFSTOPPED(status) => {
                    self.gone.set(true);
                    return Ok(Stop::Gone(status));
                }
                _ if libc::WSTOPSIG(status) == libc::SIGTRAP => return Ok(Stop::Trap),
                _ if libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80 => return Ok(Stop::Syscall),
                _ => return Ok(Stop::Signal(libc::WSTOPSIG(status))),
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.gone.get() {
            // SAFETY: the child is ours and has not been waited for.
            unsafe {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, ptr::null_mut(), libc::__WALL);
            }
        }
        unpin(&self.affinity);
    }
}

/// The child's life.
#[inline(never)]
fn live(f: &mut dyn FnMut(), says: PipeWriter) {
    if SAYS.set(says).is_err() {
        leave();
    }
    // SAFETY: ends the child should it wait for what never comes.
    unsafe { libc::alarm(PATIENCE) };
    f();
    marker();
}

/// Stops at the tracer.
#[inline(always)]
pub(crate) fn marker() {
    // SAFETY: a trap that the tracer takes.
    unsafe { asm!("int3", in("rax") REACHED) };
}

/// Where a child says why it panicked; set in children alone.
static SAYS: OnceLock<PipeWriter> = OnceLock::new();

/// Cuts a child's panic short: unwinding, and looking up a backtrace, would be stepped through too. Installed in the
/// parent, because a child may find the hook's lock taken by a thread that it does not have.
fn install_hook() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let Some(mut says) = SAYS.get() else { return usual(panic) };
            let text = panic.payload_as_str().unwrap_or("(no message)");
            let place = panic.location().map(|l| format!(" at {l}")).unwrap_or_default();
            // If the parent is gone, nobody wants to know.
            let _ = says.write_all(format!("{text}{place}").as_bytes());
            // SAFETY: as in `marker`.
            unsafe { asm!("int3", in("rax") PANICKED) };
            leave()
        }));
    });
}

/// A function whose address is known in memory and, by this name, in the program's file.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn quietline_count_anchor() -> u32 {
    std::hint::black_box(0x51)
}

/// Keeps the calling thread on its CPU; where it could run before.
fn pin() -> io::Result<libc::cpu_set_t> {
    // SAFETY: a zeroed set is an empty one; the calls read or write sets of our own.
    unsafe {
        let (mut before, mut here): (libc::cpu_set_t, libc::cpu_set_t) =
            (mem::zeroed(), mem::zeroed());
        if libc::sched_getaffinity(0, size_of_val(&before), &mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut here);
        if libc::sched_setaffinity(0, size_of_val(&here), &here) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(before)
    }
}

fn unpin(before: &libc::cpu_set_t) {
    // SAFETY: reads a set of our own.
    unsafe { libc::sched_setaffinity(0, size_of_val(before), before) };
}
