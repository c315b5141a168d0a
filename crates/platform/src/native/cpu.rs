use std::sync::OnceLock;

/// CPU slots that per-CPU data has: one for each CPU that the kernel may ever name, and at least as many as the
/// fallback of [`percpu`](crate::percpu) wants. Constant for the life of the process.
pub fn nr_cpus() -> usize {
    super::percpu::slots()
}

/// The CPU that the caller runs on, below [`nr_cpus`]. A hint: it may be another one by the time it is read.
/// Costs one load where restartable sequences are in use.
#[inline]
pub fn current() -> usize {
    super::percpu::current()
}

/// CPUs that the kernel may name: one more than the highest possible number.
pub(crate) fn possible() -> usize {
    static POSSIBLE: OnceLock<usize> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let listed =
            std::fs::read_to_string("/sys/devices/system/cpu/possible").ok().and_then(|s| highest(&s));
        // SAFETY: sysconf reads a number.
        let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.max(1) as usize;
        listed.map_or(0, |h| h + 1).max(configured).max(affinity())
    })
}

/// One more than the highest CPU that the calling thread may use, where /sys is hidden and numbers have gaps.
fn affinity() -> usize {
    // SAFETY: a zeroed cpu_set_t is an empty set, and the call writes at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return 1;
        }
        (0..libc::CPU_SETSIZE as usize).rev().find(|&c| libc::CPU_ISSET(c, &set)).map_or(1, |c| c + 1)
    }
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
