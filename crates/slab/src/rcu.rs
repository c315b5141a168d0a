//! Objects that are freed after a grace period, a sheaf at a time (`kfree_rcu`).
//!
//! ```text
//!   free_rcu ──> the CPU's collecting sheaf ──when full──> waits for a grace period ──> release each ──> home to the CPU
//!                one sequence, no memory                   its callback's head is in the sheaf
//! ```
//!
//! A sheaf that comes out of its grace period is a full one like any other: what is allocated next is popped from it, and
//! its array collects again when it is empty.

use crate::cache::RawCache;
use crate::control::Control;
use crate::cpus::Cpus;
use crate::debug::FreeKind;
use crate::stats;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use quietline_platform::atomic::Ordering;
use quietline_platform::percpu::{OwnedSheaf, sheaf::OWNER_WORDS};
use quietline_platform::{AllocError, thread};
use quietline_sync::Shared;
use quietline_sync::rcu::{Domain, HeadOfMany, Many};

impl RawCache {
    /// Frees an object when every read section that is open now has ended (`kfree_rcu`). Until then readers may look at it;
    /// then [`Options::release`](crate::Options::release) is called for it, if there is one, and it is free.
    ///
    /// The sections are those of [`Options::rcu`](crate::Options::rcu), else of the typesafe domain, else of
    /// [`rcu::global`](quietline_sync::rcu::global). Objects wait in the CPU's sheaf until it is full, or until somebody
    /// calls [`flush_rcu`](Self::flush_rcu) or [`shrink`](Control::shrink); then the sheaf waits for its grace period, which
    /// begins when some thousand objects want one.
    ///
    /// Writes no shared line while the CPU's collecting sheaf has room. Runs no callback and no
    /// release function: those run where the domain's callbacks do, for example in
    /// [`Domain::poll`]; see [`rcu`](quietline_sync::rcu). A program that uses the slab alone calls
    /// that now and then. Never fails. Where memory for a sheaf cannot be had and every sheaf of
    /// the cache waits already, a cache that names its domain in its options notes the object in
    /// its slab; it does not wait. One that names none waits for a grace period then: where memory
    /// may run out, do not call it inside a read section.
    ///
    /// # Safety
    /// `object` came from this cache, its owner uses it no more, and a read section that begins later cannot find it.
    #[inline(always)]
    pub unsafe fn free_rcu(&self, object: NonNull<u8>) {
        #[cfg(debug_assertions)]
        self.slabs().check_owner(object);
        if !self.sheaves.push_rcu(object.as_ptr() as usize) {
            self.cache.free_rcu_slow(object.as_ptr() as usize);
        }
    }

    /// Bounds the objects that wait for a grace period, apart from those in the CPUs' collecting
    /// sheaves. At the bound, [`free_rcu`](Self::free_rcu) waits for a grace period and frees its
    /// object, release function included, before it returns. There is no bound at first.
    ///
    /// A safety net beside a program that polls: while nobody runs the domain's callbacks, each
    /// free at the bound waits for a grace period of its own. With a bound, `free_rcu` inside a
    /// read section of the domain may wait for ever.
    pub fn set_rcu_limit(&self, objects: usize) {
        let limit = i64::try_from(objects).unwrap_or(i64::MAX);
        // Relaxed: a setting.
        self.rcu_limit.store(limit, Ordering::Relaxed);
    }

    /// Waits until every object that was given to [`free_rcu`](Self::free_rcu) before is free (`kvfree_rcu_barrier`).
    /// Takes all CPUs' sheaves for it, and waits, too, for threads that are just sending one to its
    /// grace period, and as long as the kernel refuses `membarrier` to the caller. Of a cache that
    /// names no domain, it may miss objects freed while memory for the global domain was refused.
    ///
    /// # Panics
    /// Never; but called from a callback, of any domain, it ends the process with a message. Inside
    /// a read section of the domain it never returns.
    pub fn flush_rcu(&self) {
        Self::flush_rcu_of([self].into_iter());
    }

    /// [`flush_rcu`](Self::flush_rcu) of several caches, which waits once for all that are of one domain and follow each
    /// other.
    ///
    /// # Panics
    /// As [`flush_rcu`](Self::flush_rcu).
    pub fn flush_rcu_of<'c>(caches: impl Iterator<Item = &'c RawCache> + Clone) {
        caches.clone().for_each(|cache| cache.collect());
        wait_for(caches.map(|cache| &*cache.cache));
    }

    /// [`flush_rcu_of`](Self::flush_rcu_of) caches that nobody else uses: needs no barrier of the machine for each if they are
    /// all that owns them.
    ///
    /// # Panics
    /// As [`flush_rcu`](Self::flush_rcu).
    pub fn flush_rcu_alone(caches: &mut [Option<&mut RawCache>]) {
        for cache in caches.iter_mut().flatten() {
            if Shared::is_unique(&mut cache.cache) {
                // SAFETY: the only handle is borrowed mutably.
                unsafe { cache.cache.collect_alone() }
            } else {
                cache.collect()
            }
        }
        wait_for(caches.iter().flatten().map(|cache| &*cache.cache));
    }
}

/// Waits until all that was sent to its grace period before is free.
fn wait_for<'c>(caches: impl Iterator<Item = &'c Control> + Clone) {
    // Without a domain nothing waits.
    let mut before: Option<&Domain> = None;
    for domain in caches.clone().filter_map(Control::rcu_domain) {
        if !before.is_some_and(|before| core::ptr::eq(before, domain)) {
            // Senders are in a section of the domain until their sheaf is queued.
            domain.cond_synchronize(domain.get_state_synchronize());
            domain.barrier();
        }
        before = Some(domain);
    }
    for cache in caches {
        // Relaxed: the barriers above order it. Objects that waited for a slab's earlier ones are on their way now.
        if cache.waiting.load(Ordering::Relaxed) > 0
            && let Some(domain) = cache.rcu_domain()
        {
            domain.barrier();
        }
    }
}

impl Control {
    /// The CPU's collecting sheaf is full, or there is none.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_rcu_slow(&self, object: usize) {
        if self.slabs().checks.on() && !self.slabs().give_checked(object, FreeKind::RcuBegin) {
            return;
        }
        // From here on there is a domain whenever a sheaf is sent.
        let Some(domain) = self.rcu_domain() else { return self.release(object) };
        // Relaxed: a setting, and a quantity.
        if self.waiting.load(Ordering::Relaxed) >= self.rcu_limit.load(Ordering::Relaxed) {
            return self.free_synchronously(domain, object);
        }
        let Ok(mut sheaf) = self.sheaf_to_collect() else {
            if !self.defer(domain, object) {
                self.free_synchronously(domain, object);
            }
            return;
        };
        assert!(sheaf.push(object), "an empty sheaf has room");
        // Until the sheaf is queued: see `wait_for`.
        let _section = domain.read();
        let Some(mut over) = self.cpus.sheaves.install_rcu(sheaf) else { return };
        if self.cpus.allowed() && over.len() < over.capacity() {
            // Not installed: the CPU has got another one since.
            let object = over.pop().expect("the object is in it");
            if self.cpus.sheaves.push_rcu(object) {
                return self.cpus.park(over);
            }
            assert!(over.push(object), "there was room before");
        }
        self.send_sheaf(over);
    }

    /// An empty sheaf. If there is no memory for one, one of those that are there.
    fn sheaf_to_collect(&self) -> Result<OwnedSheaf, AllocError> {
        if let Ok(sheaf) = self.cpus.sheaf_to_collect() {
            return Ok(sheaf);
        }
        let found = self.cpus.sheaf_without_memory().or_else(|| {
            // If the fence is refused, none is found.
            let _ = self.drain_cpus(Cpus::drain);
            self.cpus.sheaf_without_memory()
        });
        found.ok_or(AllocError)
    }

    /// Waits for a grace period, and frees the object. Runs no callback.
    fn free_synchronously(&self, domain: &Domain, object: usize) {
        domain.cond_synchronize(domain.get_state_synchronize());
        self.release(object);
    }

    /// Sends all CPUs' collecting sheaves to their grace period. Waits while the kernel refuses the
    /// fence for it.
    fn collect(&self) {
        while self.drain_cpus(Cpus::drain).is_err() {
            match self.rcu_domain() {
                // Sleeps until another thread has fenced, and reports a stall.
                Some(domain) => domain.cond_synchronize(domain.get_state_synchronize()),
                None => thread::yield_now(),
            }
        }
    }

    /// Sends a sheaf to wait for a grace period, inside a section that was opened before the sheaf
    /// was taken from its CPU.
    pub(crate) fn send_sheaf(&self, mut sheaf: OwnedSheaf) {
        const { assert!(size_of::<HeadOfMany>() <= OWNER_WORDS * size_of::<usize>()) };
        if sheaf.is_empty() {
            return self.cpus.barn.give(sheaf);
        }
        let domain = self.rcu_domain().expect("there was one when the sheaf began to collect");
        self.slabs().count(stats::RCU_SHEAF);
        // Relaxed: a statistic.
        self.waiting.fetch_add(sheaf.len() as i64, Ordering::Relaxed);
        // SAFETY: a Control is always inside a Shared, and the caller owns it.
        let owner = unsafe { Shared::again(self) };
        sheaf.set_link(Shared::into_raw(owner).as_ptr() as usize);
        let head = sheaf.owner_words().cast::<HeadOfMany>();
        let _ = sheaf.into_raw();
        // SAFETY: the words are the owner's, large enough and aligned; the sheaf was given up and lives until
        // `after_grace_period` takes it back, which does not unwind (nor do release functions, by contract).
        unsafe {
            head.write(HeadOfMany::new(&SHEAF));
            domain.call_many(head);
        }
    }

    /// Whose read sections objects wait for; none if the global domain does not exist and cannot be made, so that nobody
    /// can be in a section of it.
    fn rcu_domain(&self) -> Option<&'static Domain> {
        self.known_domain().or_else(|| {
            // This is for its barrier: if there is still no domain after it, whoever makes one later begins sections that
            // see what the caller unlinked before.
            loop {
                let fenced = self.cpus.content().is_ok();
                let domain = self.known_domain();
                if fenced || domain.is_some() {
                    break domain;
                }
                thread::yield_now();
            }
        })
    }

    /// [`rcu_domain`](Self::rcu_domain) without a fence. Makes the global domain if it does not
    /// exist and there is memory for it: a drain sends sheaves, and `wait_for` would miss one that is sent outside
    /// of a section because another thread made the domain meanwhile.
    pub(crate) fn known_domain(&self) -> Option<&'static Domain> {
        let named = self.options().rcu.or(self.options().typesafe);
        named.or_else(|| quietline_sync::rcu::global().ok())
    }

    /// Ends an object whose grace period is over, and frees it.
    pub(crate) fn release(&self, object: usize) {
        self.end_of_life(&[object]);
        if self.slabs().checks.on() {
            self.slabs().give(&mut [object], FreeKind::RcuEnd);
        } else if !self.cpus.sheaves.push(object) {
            self.cpus.give(&mut [object], false);
        }
    }

    /// Calls the release function, if there is one.
    fn end_of_life(&self, objects: &[usize]) {
        if let Some(release) = self.options().release {
            for object in objects {
                let object = NonNull::new(*object as *mut u8).expect("no object is at 0");
                // SAFETY: the object was given to `free_rcu`, and its grace period is over.
                unsafe { release.call(object) };
            }
        }
    }

    /// Frees a sheaf's objects, whose grace period is over; they stay in it.
    fn release_sheaf(&self, mut sheaf: OwnedSheaf) {
        self.end_of_life(sheaf.values());
        // Relaxed: a statistic.
        self.waiting.fetch_sub(sheaf.len() as i64, Ordering::Relaxed);
        if self.slabs().checks.on() {
            self.slabs().give(sheaf.values(), FreeKind::RcuEnd);
            while sheaf.pop().is_some() {}
        }
        self.cpus.put_home(sheaf);
    }
}

/// How a domain sees a sheaf that waits.
static SHEAF: Many = Many { run: after_grace_period, count };

unsafe fn after_grace_period(head: NonNull<HeadOfMany>) {
    // SAFETY: the head is in the owner's words of a sheaf that `send_sheaf` gave up, with an owner in its link.
    unsafe {
        let sheaf = OwnedSheaf::from_owner_words(head.cast());
        let owner =
            Shared::<Control>::from_raw(NonNull::new_unchecked(sheaf.link() as *mut Control));
        owner.release_sheaf(sheaf);
    }
}

unsafe fn count(head: NonNull<HeadOfMany>) -> u32 {
    // SAFETY: as above; it is only looked at.
    let sheaf = ManuallyDrop::new(unsafe { OwnedSheaf::from_owner_words(head.cast()) });
    sheaf.len() as u32
}
