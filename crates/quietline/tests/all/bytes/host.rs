//! The host's kernel.

use std::ffi::CString;

/// What a call said: a number, or an error's.
pub(crate) type Said = Result<i64, i32>;

/// Makes a system call.
pub(crate) fn call(number: libc::c_long, args: [i64; 6]) -> Said {
    // SAFETY: the callers' pointers are to what lives during the call, and of the right length.
    let said =
        unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]) };
    if said == -1 {
        Err(std::io::Error::last_os_error().raw_os_error().expect("an error number"))
    } else {
        Ok(said)
    }
}

/// A directory of the host's with a fifo in it, gone when dropped.
pub(crate) struct Place {
    dir: std::path::PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("quietline-bytes-{}-{n}", std::process::id()));
        std::fs::create_dir(&dir).expect("a directory of our own");
        let place = Self { dir };
        let path = place.fifo();
        // SAFETY: reads the path.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        place
    }

    pub(crate) fn fifo(&self) -> CString {
        CString::new(self.dir.join("f").into_os_string().into_encoded_bytes())
            .expect("no zero in it")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
