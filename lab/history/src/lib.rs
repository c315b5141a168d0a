//! The contended ways of 2008 to 2017, in miniature.
