//! Processes that make files for others: one for each user and group that has made some.

use parking_lot::Mutex;
use quietline::{Capabilities, Errno, Kernel, Process};
use std::collections::HashMap;
use std::sync::Arc;

/// Users and groups that are remembered.
const MOST: usize = 256;

/// Processes by the user and the group whose files they make.
#[derive(Debug)]
pub(crate) struct Makers {
    kernel: Kernel,
    of: Mutex<HashMap<[u32; 2], Arc<Process>>>,
}

impl Makers {
    pub(crate) fn new(kernel: Kernel) -> Self {
        Self { kernel, of: Mutex::default() }
    }

    /// A process whose files belong to this user and group. It has every capability: what the caller may do, the host has
    /// found out.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn get(&self, uid: u32, gid: u32) -> Result<Arc<Process>, Errno> {
        if let Some(maker) = self.of.lock().get(&[uid, gid]) {
            return Ok(maker.clone());
        }
        let maker = self.kernel.process()?;
        maker.umask(0);
        maker.setfsgid(gid)?;
        maker.setfsuid(uid)?;
        maker.set_capabilities(Capabilities::all(), Capabilities::all())?;
        let maker = Arc::new(maker);
        let mut of = self.of.lock();
        if of.len() >= MOST {
            of.clear();
        }
        of.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        Ok(of.entry([uid, gid]).or_insert(maker).clone())
    }
}
