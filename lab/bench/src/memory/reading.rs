//! What is resident of this process.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::harness::Fault;

/// Bytes of this process that are in memory, page by page as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    /// All: the program's own pages too, which come when they are first run.
    pub all: u64,
    /// Those that are not of a file.
    pub anonymous: u64,
}

/// The readings of one measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Readings {
    /// Before anything.
    pub cold: Resident,
    /// Before the first object but one: that one was allocated, freed and purged so that the code for it is there.
    pub start: Resident,
    /// With all objects allocated and written.
    pub full: Resident,
    /// When all were freed.
    pub freed: Resident,
    /// When what is free was to be given back.
    pub end: Resident,
}

impl Resident {
    /// Reads it. Not `statm`, whose numbers may lag behind by some dozens of pages.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub fn now() -> Result<Self, Fault> {
        let path = "/proc/self/smaps_rollup";
        let text = fs::read_to_string(path)
            .map_err(|error| Fault::new(format!("cannot read {path}: {error}")))?;
        let bytes = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            let number =
                line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
            number.map(|kib| kib << 10).ok_or_else(|| Fault::new(format!("{path} has no {key}")))
        };
        Ok(Self { all: bytes("Rss")?, anonymous: bytes("Anonymous")? })
    }
}
