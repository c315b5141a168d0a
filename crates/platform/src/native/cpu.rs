use core::sync::atomic::{AtomicUsize, Ordering};

/// CPU slots that per-CPU data has: one for each CPU that the kernel may ever name, and at least as many as the
/// fallback of [`percpu`](crate::percpu) wants. Constant for the life of the process.
pub fn nr_cpus() -> usize {
    super::percpu::copies()
}

/// The CPU that the caller runs on, below [`nr_cpus`]. A hint: it may be another one by the time it is read.
/// Costs one load where the C library registers threads for restartable sequences, and otherwise a
/// call.
#[inline]
pub fn current() -> usize {
    super::percpu::current()
}

const UNREAD: usize = 0;
const HIDDEN: usize = usize::MAX;
static POSSIBLE: AtomicUsize = AtomicUsize::new(UNREAD);

/// For tests: makes the machine one that may get as many CPUs, at least as many as it may get.
///
/// # Panics
/// When the number of CPUs has been asked for already, or is larger.
pub fn pretend_possible(cpus: usize) {
    assert!(listed() == HIDDEN || listed() <= cpus, "CPUs that exist have numbers");
    // Relaxed: as in `possible`.
    let before = POSSIBLE.compare_exchange(UNREAD, cpus, Ordering::Relaxed, Ordering::Relaxed);
    assert_eq!(before, Ok(UNREAD), "before the first use");
}

/// CPUs that the kernel may ever name: one more than the highest possible number. None where /sys is hidden: what the
/// process may use now says nothing of what it may be given later. Constant; nobody waits for another thread that just
/// finds out: a child that is forked meanwhile would wait for ever.
pub(crate) fn possible() -> Option<usize> {
    // Relaxed, here and below: the number is all there is to see.
    let mut known = POSSIBLE.load(Ordering::Relaxed);
    if known == UNREAD {
        let fresh = listed();
        let before = POSSIBLE.compare_exchange(UNREAD, fresh, Ordering::Relaxed, Ordering::Relaxed);
        known = before.err().unwrap_or(fresh);
    }
    (known != HIDDEN).then_some(known)
}

/// Returns the number of CPUs that the kernel lists as possible, or [`HIDDEN`].
fn listed() -> usize {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok();
    list.and_then(|list| highest(&list)?.checked_add(1)).unwrap_or(HIDDEN)
}

/// CPUs that are configured, as the C library knows it; at least 1.
pub(crate) fn configured() -> usize {
    // SAFETY: sysconf reads a number.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.max(1) as usize
}

/// The highest number in a kernel CPU list such as `0-3,8-11`.
fn highest(list: &str) -> Option<usize> {
    list.trim().split(',').filter_map(|range| range.rsplit('-').next()?.parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use super::highest;

    #[test]
    fn cpu_lists() {
        assert_eq!(highest("0-1\n"), Some(1));
        assert_eq!(highest("0"), Some(0));
        assert_eq!(highest("0-3,8-11"), Some(11));
        assert_eq!(highest(""), None);
    }
}
