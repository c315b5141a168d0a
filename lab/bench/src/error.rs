//! What can be wrong with a request to the bench.

use std::io;
use std::path::{Path, PathBuf};

/// Why a bench did not run, or could not tell its result. Every text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No workload has this name.
    #[error("there is no workload `{given}`; the workloads are: {valid}")]
    UnknownWorkload {
        /// The name as given.
        given: String,
        /// The names there are.
        valid: String,
    },
    /// No chosen workload has a case of this name.
    #[error("no chosen workload has a case `{given}`; the cases are: {valid}")]
    UnknownCase {
        /// The name or pattern as given.
        given: String,
        /// The cases there are, by workload.
        valid: String,
    },
    /// No column has this name.
    #[error(
        "no column is called `{given}`; name one or use a pattern with `*`; the columns are: {valid}"
    )]
    UnknownColumn {
        /// The name or pattern as given.
        given: String,
        /// The names there are.
        valid: String,
    },
    /// A thread count that cannot be run.
    #[error("cannot run {given} threads; give counts from 1 to {most}, such as `-n 1,2,4`")]
    ThreadCount {
        /// The count as given.
        given: usize,
        /// The largest count that is allowed.
        most: usize,
    },
    /// A number of rounds or a sample time of zero.
    #[error("{what} must be at least 1; leave it out for the default")]
    Zero {
        /// Which option.
        what: &'static str,
    },
    /// Objects too small to be told apart.
    #[error("objects must have at least {least} bytes; give sizes such as `--sizes 64,192`")]
    ObjectSize {
        /// The smallest size.
        least: usize,
    },
    /// The JSON file cannot be made or written.
    #[error("cannot write the JSON to {path}: {source}; give another path or `-`", path = .path.display())]
    Json {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The standard output is gone.
    #[error("cannot write to the standard output: {source}")]
    Output {
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// Whether the request itself was wrong, rather than its execution.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::Json { .. } | Self::Output { .. })
    }

    pub(crate) fn json(path: &Path, source: io::Error) -> Self {
        Self::Json { path: path.to_owned(), source }
    }

    pub(crate) fn output(source: io::Error) -> Self {
        Self::Output { source }
    }
}
