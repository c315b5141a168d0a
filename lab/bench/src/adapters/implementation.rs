//! A column that is a name and three functions.

use std::sync::Arc;

use crate::harness::{Arena, Column, Shape, Unfit};
use crate::workloads::Job;

/// A column: who it is, what it does, how an arena is made.
pub(super) struct Implementation {
    pub(super) name: &'static str,
    pub(super) says: &'static str,
    pub(super) shape: Shape,
    pub(super) does: fn(Job) -> bool,
    pub(super) open: fn(Job, usize) -> Opened,
}

pub(super) type Opened = Result<Arc<dyn Arena>, Unfit>;

impl Column for Implementation {
    fn name(&self) -> &str {
        self.name
    }

    fn says(&self) -> &str {
        self.says
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn does(&self, job: Job) -> bool {
        (self.does)(job)
    }

    fn open(&self, job: Job, threads: usize) -> Opened {
        if !self.does(job) {
            return Err(Unfit::Missing("it has no such job".to_owned()));
        }
        (self.open)(job, threads)
    }
}
