//! Numbers that nobody can foresee.

use std::io;

/// `N` of them, from the kernel (`getrandom`). On a simulated machine always the same, so that a run can be repeated.
///
/// # Errors
/// What the kernel says: it has the call since 3.17, and may have been told to refuse it.
pub fn keys<const N: usize>() -> io::Result<[u64; N]> {
    let mut keys = [0; N];
    #[cfg(quietline_sim)]
    for (i, key) in keys.iter_mut().enumerate() {
        *key = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    #[cfg(not(quietline_sim))]
    {
        let mut filled = 0;
        while filled < size_of_val(&keys) {
            // SAFETY: the bytes from there to the end of the array are ours to write.
            let n = unsafe {
                let at = keys.as_mut_ptr().cast::<u8>().add(filled);
                libc::getrandom(at.cast(), size_of_val(&keys) - filled, 0)
            };
            match usize::try_from(n) {
                Ok(n) => filled += n,
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }
    Ok(keys)
}

#[cfg(all(test, not(any(loom, quietline_sim))))]
mod tests {
    #[test]
    fn no_two_are_the_same() {
        let [a, b, c] = super::keys().unwrap();
        let [d] = super::keys().unwrap();
        assert!(a != b && b != c && a != c && d != a && d != b && d != c);
    }
}
