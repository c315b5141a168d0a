//! The unsafe part of this crate: fibres that borrow.

#![allow(unsafe_code)]

use core::cell::Cell;
use core::marker::PhantomData;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::io;
use std::rc::Rc;

/// Bytes of a fibre's stack: product code's slow paths and a test's own code.
const STACK: usize = 512 << 10;

/// A virtual CPU's own flow of control, which may borrow for `'a`.
pub(crate) struct Fibre<'a> {
    coroutine: Coroutine<(), (), ()>,
    here: Here,
    borrows: PhantomData<&'a ()>,
}

/// How a fibre stops itself.
#[derive(Clone)]
pub(crate) struct Here(Rc<Cell<*const Yielder<(), ()>>>);

impl<'a> Fibre<'a> {
    /// A fibre that will run `body`.
    ///
    /// # Errors
    /// When there is no memory for its stack.
    pub(crate) fn new(body: Box<dyn FnOnce() + 'a>) -> io::Result<Self> {
        // SAFETY: the fibre, whose type has the lifetime, is dropped before what it borrows: dropped unfinished, it is
        // unwound at that moment; so the body never runs beyond `'a`.
        let body: Box<dyn FnOnce() + 'static> = unsafe { core::mem::transmute(body) };
        let here = Here(Rc::new(Cell::new(core::ptr::null())));
        let inside = here.clone();
        let coroutine = Coroutine::with_stack(DefaultStack::new(STACK)?, move |yielder, ()| {
            inside.0.set(yielder);
            body();
            inside.0.set(core::ptr::null());
        });
        Ok(Self { coroutine, here, borrows: PhantomData })
    }

    /// How the fibre stops itself.
    pub(crate) fn here(&self) -> Here {
        self.here.clone()
    }

    /// Lets it go on until it stops itself; true when it has ended.
    pub(crate) fn resume(&mut self) -> bool {
        matches!(self.coroutine.resume(()), CoroutineResult::Return(()))
    }

    /// Whether it has ended.
    pub(crate) fn done(&self) -> bool {
        self.coroutine.done()
    }
}

impl Here {
    /// Stops the fibre until it is resumed. Called by the fibre itself.
    pub(crate) fn stop(&self) {
        let yielder = self.0.get();
        assert!(!yielder.is_null(), "only a fibre that runs can stop itself");
        // SAFETY: set by the fibre while it runs, and it runs: nobody else calls this.
        unsafe { &*yielder }.suspend(());
    }
}

/// Starts the program anew with its memory at the same addresses in every run, unless it is there already: what product code
/// computes from an address is then the same too. Where the system refuses, the run goes on as it is.
pub(crate) fn fix_addresses() {
    use std::os::unix::process::CommandExt;
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: personality takes a number and changes only how this process is laid out when it starts a program.
    let now = unsafe { libc::personality(ASK) };
    if now < 0 || now & libc::ADDR_NO_RANDOMIZE != 0 {
        return;
    }
    // SAFETY: as above.
    let set = unsafe { libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) };
    // SAFETY: as above.
    let fixed = set >= 0 && unsafe { libc::personality(ASK) } & libc::ADDR_NO_RANDOMIZE != 0;
    if fixed && let Ok(program) = std::env::current_exe() {
        // It returns only if it failed: then the run goes on as it is.
        let _ = std::process::Command::new(program).args(std::env::args_os().skip(1)).exec();
    }
}
