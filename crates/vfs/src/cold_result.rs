//! Results of functions that are called, not inlined.

use rustix::io::Errno;

/// The result that a hot function gets from a call and returns to its own caller: a value, or none
/// and an error.
///
/// Value and error are separate fields, which a call returns in two registers if the value is one
/// word. In a `Result` an [`Errno`] of two bytes shares memory with the value. A call returns such
/// a result in memory, in pieces of two and four bytes, and a load of the whole waits until the
/// pieces have left the store buffer. [`into_result`](Self::into_result) builds the result in
/// registers.
#[derive(Debug)]
pub struct ColdResult<T>(Option<T>, Errno);

impl<T> ColdResult<T> {
    /// Returns the result.
    ///
    /// # Errors
    /// The function's.
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
