//! The part of a cache that all its handles share: its layers, its settings, and the operations on
//! the whole cache.

use crate::account::Account;
use crate::barn::Barn;
use crate::cpus::Cpus;
use crate::debug::Debug;
use crate::options::{CacheError, Options};
use crate::reclaim::Idle;
use crate::registry::{self, Membership};
use crate::sheaves::{Sheaves, Taken};
use crate::slab::Layout;
use crate::slabs::Slabs;
use crate::stats::Stats;
use crate::tunables::Tunables;
use crate::visits::Visits;
use core::fmt;
use quietline_platform::atomic::AtomicI64;
use quietline_platform::{FenceError, fork, fork::AtFork};
use quietline_sync::rcu::Domain;
use quietline_sync::{Shared, SpinLock};

/// A cache of any kind, without its type: tunables, checks, validation, reclaim, statistics (a
/// directory of `/sys/kernel/slab`).
///
/// [`RawCache`](crate::RawCache), [`Cache`](crate::Cache), [`TypesafeCache`](crate::TypesafeCache)
/// and [`RcuCache`](crate::RcuCache) dereference to it; [`with_cache`] finds a cache by its number.
/// Everything here applies to all handles of a merged cache.
///
/// ```
/// use quietline_slab::{Cache, Debug, Options, Tunables};
///
/// let options = Options { debug: Debug::RED_ZONE, ..Options::of::<[u64; 8]>("example") };
/// let cache = Cache::<[u64; 8]>::with_options(options).unwrap();
/// cache.set_tunables(Tunables { min_partial: 0, ..cache.tunables() }).unwrap();
/// assert_eq!(cache.validate(), 0);
/// cache.set_debug(Debug::OFF).unwrap();
/// ```
// At a stable address. Owned by the handles, by threads that visit all caches, and by sheaves that
// wait for a grace period; the last owner takes it apart.
pub struct Control {
    pub(crate) cpus: Cpus,
    /// Objects that wait for a grace period that was asked for.
    pub(crate) waiting: AtomicI64,
    /// The bound on `waiting`: see [`RawCache::set_rcu_limit`](crate::RawCache::set_rcu_limit).
    pub(crate) rcu_limit: AtomicI64,
    /// Held while checks are switched.
    switch: SpinLock<()>,
    pub(crate) idle: Idle,
    pub(crate) visits: Visits,
    pub(crate) membership: Membership,
    node: fork::Node,
}

impl Control {
    /// # Errors
    /// [`CacheError`]
    pub(crate) fn new(options: Options) -> Result<Shared<Self>, CacheError> {
        let (tunables, _) = options.resolve()?;
        // A cache that has no sheaves from the start needs no fence for it.
        let allowed = options.sheaves && options.debug.is_off();
        let sheaves = Sheaves::new(allowed)?;
        // SAFETY: the layers are dropped together; no drop of a field counts.
        let counters = unsafe { sheaves.counters() };
        let barn = Barn::new(Slabs::new(options, tunables, counters));
        if allowed {
            barn.open();
        }
        let sizes = (tunables.sheaf_capacity, tunables.cpu_partial);
        let cache = Shared::new(Self {
            cpus: Cpus::new(sheaves, allowed, sizes, barn),
            waiting: AtomicI64::new(0),
            rcu_limit: AtomicI64::new(i64::MAX),
            switch: SpinLock::new(()),
            idle: Idle::default(),
            visits: Visits::new(),
            membership: Membership::new(),
            node: fork::Node::new(fork::Rank::Cache),
        })?;
        quietline_platform::name_words!(*cache => "kmem_cache" { waiting, idle, visits });
        quietline_platform::name_words!(cache.cpus => "kmem_cache" { capacity, batch, handshake });
        quietline_platform::name_words!(cache.cpus.barn.piles, "kmem_cache.barn");
        quietline_platform::name_words!(*cache.slabs() => "kmem_cache" { partial, slabs, places, taken });
        let owner: *const Self = &*cache;
        // SAFETY: the value stays where it is, and `drop` takes it out of the registry first.
        unsafe { cache.node.register(owner) };
        cache.set_debug(options.debug).expect("there are no sheaves to take away");
        Ok(cache)
    }

    /// The bottom layer.
    #[inline(always)]
    pub(crate) fn slabs(&self) -> &Slabs {
        &self.cpus.barn.slabs
    }

    pub(crate) fn options(&self) -> &Options {
        &self.slabs().options
    }

    /// Returns the cache's statistics. O(CPUs), and a barrier on all CPUs.
    pub fn stats(&self) -> Stats {
        Stats::of(self)
    }

    /// Returns the layout of slabs that are made from now on.
    pub fn layout(&self) -> Layout {
        self.slabs().layout()
    }

    /// Returns the tunables in force.
    pub fn tunables(&self) -> Tunables {
        self.slabs().tunables(self.cpus.capacity.get(), self.cpus.batch.get())
    }

    /// Sets the tunables. The CPUs' sheaves are taken away if their capacity changes. Slabs stay as
    /// they are; new ones follow the new rules. Other threads may go on meanwhile.
    ///
    /// # Errors
    /// [`CacheError`] if no object fits; nothing is changed.
    pub fn set_tunables(&self, tunables: Tunables) -> Result<(), CacheError> {
        let (tunables, _) = self.options().with_tunables(tunables).resolve()?;
        let before = self.cpus.capacity.get();
        self.slabs().set_tunables(tunables);
        self.cpus.capacity.set(tunables.sheaf_capacity);
        self.cpus.batch.set(tunables.cpu_partial);
        if before != tunables.sheaf_capacity {
            self.drain();
        }
        Ok(())
    }

    /// Charges the slabs that the cache makes from now on to an account; those that it has stay
    /// uncharged. The cache is not merged with others from now on. O(1).
    ///
    /// # Errors
    /// [`CacheError::Account`] if the cache is merged, or has an account.
    pub fn charge_to(&self, account: &Account) -> Result<(), CacheError> {
        if registry::charge(self, account) { Ok(()) } else { Err(CacheError::Account) }
    }

    /// Frees the memory of every CPU's sheaves, the barn's, and all empty slabs
    /// (`kmem_cache_shrink`). Other threads may go on meanwhile; they find no sheaf for some
    /// microseconds and use slabs. Needs no memory.
    pub fn shrink(&self) {
        self.drain();
        self.slabs().drain();
    }

    /// Returns the checks in force: those that were [set](Self::set_debug), those that they
    /// include, without those that the cache cannot have.
    pub fn debug(&self) -> Debug {
        self.slabs().checks.flags()
    }

    /// Switches checks on or off, or others on. Other threads may go on meanwhile; objects that they
    /// have allocated by then are checked for less than later ones. Each check includes
    /// [`Debug::CONSISTENCY`], and [`Debug::POISON`] is ignored where it cannot be.
    ///
    /// With checks on, all operations take one lock of the cache, and objects need more room: some
    /// 40 bytes with [`RED_ZONE`](Debug::RED_ZONE), 200 with [`TRACK`](Debug::TRACK), which also
    /// takes some microseconds for each operation. Without `POISON`, the memory of an object is as
    /// [`alloc`](crate::RawCache::alloc) says; with it, it is filled with `0x5a`.
    ///
    /// The [handler](crate::set_violation_handler) gets each violation. When the cache is dropped,
    /// objects of the current checks that are still out are reported one by one as
    /// [leaks](crate::ViolationKind::Leak).
    ///
    /// The environment switches checks on for caches as they are made: `QUIETLINE_SLAB_DEBUG=FZPU`
    /// for all, `QUIETLINE_SLAB_DEBUG=FZ,inode,dentry*` for some.
    ///
    /// Not to be called from a hook of the cache.
    ///
    /// ```
    /// use quietline_slab::{Debug, Options, RawCache, ViolationKind, set_violation_handler};
    ///
    /// set_violation_handler(|violation| {
    ///     assert_eq!(violation.kind, ViolationKind::DoubleFree);
    ///     println!("{violation}");
    /// });
    /// let cache = RawCache::new(Options::new("packet", 256, 64))?;
    /// cache.set_debug(Debug::ALL)?;
    /// let packet = cache.alloc()?;
    /// // SAFETY: allocated above, at least the first time. The second time is found, and nothing happens.
    /// unsafe {
    ///     cache.free(packet);
    ///     cache.free(packet);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`FenceError`] when checks are to be switched on and the kernel refuses `membarrier`,
    /// without which no CPU's sheaf can be taken away. Nothing is changed then.
    pub fn set_debug(&self, asked: Debug) -> Result<(), FenceError> {
        let mut debug = asked;
        if self.options().keeps_state() {
            debug -= Debug::POISON;
        }
        // What a check of POISON alone became is still one.
        if !asked.is_off() {
            debug |= Debug::CONSISTENCY;
        }
        let _switch = self.switch.lock();
        let before = self.debug();
        if debug == before {
            return Ok(());
        }
        // From the top to the bottom and back: see `debug`.
        if before.is_off() && self.cpus.allowed() {
            self.drain_cpus(Cpus::drain_and_close)?;
        }
        self.slabs().switch(debug);
        if debug.is_off() && self.options().sheaves {
            self.cpus.open();
        }
        Ok(())
    }

    /// Checks all objects, in use and free, and reports each violation: red zones, poison, free
    /// lists. Returns the number of violations; 0 while checks are off. O(bytes) under the cache's
    /// lock.
    pub fn validate(&self) -> usize {
        self.slabs().validate()
    }

    /// All locks, from the top.
    fn locks(&self) -> [&dyn AtFork; 5] {
        let (cpus, slabs) = (&self.cpus, self.slabs());
        [&self.switch, &cpus.handshake, &*cpus.barn.piles, &slabs.checks.slabs, &*slabs.partial]
    }

    /// Takes the CPUs' sheaves. Sends those that collect to their grace period, and gives the others
    /// to the barn.
    ///
    /// # Errors
    /// That of `take`.
    pub(crate) fn drain_cpus(
        &self,
        take: impl FnOnce(&Cpus) -> Result<Taken, FenceError>,
    ) -> Result<(), FenceError> {
        // Until the sheaves are queued: see `wait_for`. Without a domain there are none.
        let _section = self.known_domain().map(Domain::read);
        take(&self.cpus)?.each(|ready| self.cpus.barn.give(ready), |rcu| self.send_sheaf(rcu));
        Ok(())
    }

    /// Drains the CPUs and the barn. If the fence is refused, the CPUs keep their sheaves. Calls no
    /// foreign code.
    pub(crate) fn drain(&self) {
        let _visit = self.visits.begin();
        let _ = self.drain_cpus(Cpus::drain);
        self.cpus.barn.drain();
    }

    /// The last handle is going. If the fence is refused, objects that wait for a grace period are
    /// sent to it all the same; the CPUs' other sheaves stay until the last owner drops this.
    ///
    /// # Safety
    /// No other thread allocates from the cache or frees to it, except in the domain's callbacks.
    pub(crate) unsafe fn close(&self) {
        self.cpus.retire();
        let visit = self.visits.begin();
        if self.drain_cpus(Cpus::drain).is_err() {
            // SAFETY: passed on; callbacks free no object by RCU to this cache.
            let collected = |cpus: &Cpus| Ok(unsafe { cpus.drain_collected() });
            self.drain_cpus(collected).expect("it needs no fence");
        }
        self.cpus.barn.drain();
        drop(visit);
        self.slabs().drain();
    }

    /// [`close`](Self::close) for the only owner: needs no barrier.
    ///
    /// # Safety
    /// No other thread allocates from the cache or frees to it.
    pub(crate) unsafe fn close_alone(&self) {
        self.cpus.retire();
        // SAFETY: passed on.
        unsafe { self.collect_alone() };
        self.slabs().drain();
    }

    /// Drains the CPUs, for the only owner. The list of caches refers to the cache, so there is no
    /// `&mut` to prove it by.
    ///
    /// # Safety
    /// No other thread allocates from the cache or frees to it.
    pub(crate) unsafe fn collect_alone(&self) {
        // SAFETY: passed on.
        let taken = unsafe { self.cpus.drain_alone() };
        self.drain_cpus(|_| Ok(taken)).expect("taken before");
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.node.unregister();
        self.cpus.retire();
        // SAFETY: nothing refers to the cache any more.
        unsafe { self.cpus.drain_alone() }.each(
            |sheaf| self.cpus.barn.give(sheaf),
            |sheaf| debug_assert!(sheaf.is_empty(), "what waits for a grace period owns the cache"),
        );
        self.slabs().report_leaks();
        self.slabs().drain();
        // What is left has objects out: leaked, as documented.
    }
}

// SAFETY: `before` takes all locks of a cache, the outermost first; none is inside them but the machine's.
unsafe impl AtFork for Control {
    fn before(&self) {
        self.locks().into_iter().for_each(AtFork::before);
    }

    fn after(&self, child: bool) {
        if child {
            self.visits.after_fork();
        }
        self.locks().into_iter().rev().for_each(|lock| lock.after(child));
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}

/// Calls `f` with the cache that has this [number](Stats::id) in its statistics. Returns `None` if
/// there is no such cache any more. O(caches).
pub fn with_cache<R>(id: usize, f: impl FnOnce(&Control) -> R) -> Option<R> {
    let (mut f, mut done) = (Some(f), None);
    registry::each_where(
        |cache| core::ptr::from_ref(cache).addr() == id,
        |cache| done = f.take().map(|f| f(cache)).or(done.take()),
    );
    done
}
