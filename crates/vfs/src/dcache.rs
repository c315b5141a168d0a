//! Names: how they are compared, found and printed.

pub(crate) mod name;
pub(crate) mod path;
