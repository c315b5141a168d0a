//! Results of cold functions.

use rustix::io::Errno;

/// The result of a cold function that a hot function returns: a value, or none and an error.
///
/// Value and error are separate fields. In a `Result` an [`Errno`] of two bytes shares memory with
/// the value, and a hot function that returns such a result of a call builds its own in memory, in
/// pieces of two and four bytes. [`into_result`](Self::into_result) builds it in registers.
#[derive(Debug)]
pub struct ColdResult<T>(Option<T>, Errno);

impl<T> ColdResult<T> {
    /// Returns the result.
    ///
    /// # Errors
    /// The cold function's.
    #[inline(always)]
    pub fn into_result(self) -> Result<T, Errno> {
        match self {
            Self(Some(value), _) => Ok(value),
            Self(None, errno) => Err(errno),
        }
    }
}

impl<T> From<Result<T, Errno>> for ColdResult<T> {
    fn from(result: Result<T, Errno>) -> Self {
        match result {
            // `into_result` ignores this error.
            Ok(value) => Self(Some(value), Errno::IO),
            Err(errno) => Self(None, errno),
        }
    }
}
