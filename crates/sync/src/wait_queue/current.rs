//! Which interrupt the calling thread waits with.
//!
//! A call that may sleep is many functions away from the one who knows how the thread may be interrupted, and most calls
//! never sleep. So a thread says it once, and only those who are about to sleep look.

use core::cell::RefCell;
use core::fmt;
use core::marker::PhantomData;

use super::Interrupt;
use crate::Shared;

quietline_platform::thread_local! {
    static CURRENT: RefCell<Option<Shared<Interrupt>>> = const { RefCell::new(None) };
}

/// Puts `new` in the place of the thread's own; what was there. Gives `new` back while the thread's storage is being torn
/// down.
fn exchange(new: Option<Shared<Interrupt>>) -> Option<Shared<Interrupt>> {
    let mut new = Some(new);
    let old = CURRENT.try_with(|current| current.replace(new.take().expect("called once")));
    old.unwrap_or_else(|_| new.take().flatten())
}

/// While this lives, the thread that made it waits with an [`Interrupt`]; after it, with the one before.
#[must_use = "the interrupt is the thread's only while this lives"]
pub struct Entered {
    /// What the thread had before.
    before: Option<Shared<Interrupt>>,
    /// It goes where it came from: in its thread.
    not_send: PhantomData<*const ()>,
}

impl Interrupt {
    /// Makes it the calling thread's: every wait that is [interruptible](super::Wait::interruptible) ends when it is
    /// [raised](Self::raise). One locked instruction on its line.
    ///
    /// ```
    /// use quietline_sync::{Interrupt, Shared, Wait, WaitError, WaitQueue};
    ///
    /// let interrupt = Shared::new(Interrupt::new())?;
    /// let other = interrupt.clone();
    /// std::thread::spawn(move || other.raise());
    ///
    /// let _entered = Interrupt::enter(&interrupt);
    /// let wait = Wait { interruptible: true, ..Wait::default() };
    /// assert_eq!(WaitQueue::new().wait_until(&wait, || None::<()>), Err(WaitError::Interrupted));
    /// # Ok::<(), quietline_platform::AllocError>(())
    /// ```
    pub fn enter(this: &Shared<Self>) -> Entered {
        Entered { before: exchange(Some(this.clone())), not_send: PhantomData }
    }

    /// The calling thread's, if it has one.
    pub fn current() -> Option<Shared<Self>> {
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        exchange(self.before.take());
    }
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entered")
    }
}
