//! Results of cold functions.

use rustix::io::Errno;

/// The result of a cold function that a hot one calls at its end: a value, or none and an error.
///
/// In a `Result` an [`Errno`] of two bytes shares its place with the value. A hot function that
/// passes on such a result of a call keeps its own result in memory too, in pieces of two and four
/// bytes. Here each has its own place; [`into_result`](Self::into_result) joins them in registers.
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
            // The error is not looked at.
            Ok(value) => Self(Some(value), Errno::IO),
            Err(errno) => Self(None, errno),
        }
    }
}
