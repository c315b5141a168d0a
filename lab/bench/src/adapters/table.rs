//! What the adapters with a descriptor table have in common: opening by number, closing by number, and
//! knowing which numbers are right.

use std::fmt::Display;

use super::census::Census;
use super::probe;
use crate::harness::{Fault, Worker, looped};
use crate::workloads::Object;

/// A descriptor table as one thread sees it.
pub(super) trait Table: 'static {
    /// What a failed call says.
    type Error: Display;

    /// Closes a descriptor.
    ///
    /// # Errors
    ///
    /// If it is not open.
    fn close(&self, fd: i32) -> Result<(), Self::Error>;
}

/// Which numbers the first and the second descriptor of an operation may have, both ends included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers([(i32, i32); 2]);

impl Numbers {
    /// One number each.
    pub(super) fn exactly(numbers: [i32; 2]) -> Self {
        Self(numbers.map(|number| (number, number)))
    }

    /// Numbers from 0 to `highest`: under the lowest-number rule no others occur while at most `highest + 1`
    /// descriptors are open.
    pub(super) fn up_to(highest: i32) -> Self {
        Self([(0, highest); 2])
    }

    /// Whether these are right.
    #[inline(always)]
    pub(super) fn hold<const N: usize>(&self, fds: &[i32; N]) -> bool {
        fds.iter()
            .zip(&self.0)
            .fold(true, |right, (fd, (low, high))| right & (low <= fd) & (fd <= high))
    }
}

/// The rule that a worker's numbers obey, in words.
pub(super) const RULE: &str = "a descriptor is a number that its table may give";

/// The calls of one job, behind one pointer: each method runs code compiled for that job alone.
pub(super) trait Calls<T>: Send + Sync {
    /// Opens and closes once in `table`, and between the two compares what exists with what should.
    ///
    /// # Errors
    ///
    /// If a call fails, or too much or too little was made.
    fn prove(&self, table: &T, object: Object, census: &dyn Fn() -> Census) -> Result<(), Fault>;

    /// The numbers that an operation gives in `table` while nothing else is done there, once it is proved
    /// that the first of them is the lowest free one.
    ///
    /// # Errors
    ///
    /// If a call fails or another number is given.
    fn lowest(&self, table: &T) -> Result<Numbers, Fault>;

    /// A worker on `table`.
    fn worker(&self, table: T, numbers: Numbers) -> Box<dyn Worker>;
}

/// The calls of a job that opens `N` descriptors by `open` and closes them in the order in which it got them.
pub(super) fn opening<T, const N: usize, O>(open: O) -> Box<dyn Calls<T>>
where
    T: Table,
    O: Fn(&T) -> Result<[i32; N], T::Error> + Copy + Send + Sync + 'static,
{
    Box::new(Opening::<N, O>(open))
}

struct Opening<const N: usize, O>(O);

impl<T, const N: usize, O> Calls<T> for Opening<N, O>
where
    T: Table,
    O: Fn(&T) -> Result<[i32; N], T::Error> + Copy + Send + Sync + 'static,
{
    fn prove(&self, table: &T, object: Object, census: &dyn Fn() -> Census) -> Result<(), Fault> {
        let before = census();
        let fds = (self.0)(table).map_err(probe::failed)?;
        let during = census();
        fds.iter().try_for_each(|&fd| table.close(fd)).map_err(probe::failed)?;
        during.holds_one(object, before)?;
        census().back_at(before)?;
        Fault::unless(table.close(fds[0]).is_err(), || format!("{} was closed twice", fds[0]))
    }

    fn lowest(&self, table: &T) -> Result<Numbers, Fault> {
        let open = || (self.0)(table);
        let close = |fds: [i32; N]| fds.iter().try_for_each(|&fd| table.close(fd));
        let [lowest, next] = probe::lowest(open, |fds| fds[0], close)?;
        let fds = open().map_err(probe::failed)?;
        close(fds).map_err(probe::failed)?;
        // With two in one operation the second takes the number that would have been the next one's first.
        let rising = fds[0] == lowest && fds.iter().all(|fd| (lowest..=next).contains(fd));
        Fault::unless(rising, || {
            format!("the lowest free descriptors were not given: {fds:?} from {lowest}")
        })?;
        Ok(Numbers::exactly([fds[0], fds[N - 1]]))
    }

    fn worker(&self, table: T, numbers: Numbers) -> Box<dyn Worker> {
        let open = self.0;
        looped(RULE, move || {
            let fds = open(&table)?;
            let right = numbers.hold(&fds);
            for fd in fds {
                table.close(fd)?;
            }
            Ok::<_, T::Error>(right)
        })
    }
}
