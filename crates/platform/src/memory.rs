//! The machine's memory.

/// Returns the bytes of physical memory, or `u64::MAX` if the system does not tell.
pub fn physical() -> u64 {
    // SAFETY: `sysconf` reads numbers.
    let [pages, size] =
        [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|name| unsafe { libc::sysconf(name) });
    match (u64::try_from(pages), u64::try_from(size)) {
        (Ok(pages), Ok(size)) => pages.saturating_mul(size),
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_is_memory() {
        assert!((1 << 20..u64::MAX).contains(&super::physical()));
    }
}
