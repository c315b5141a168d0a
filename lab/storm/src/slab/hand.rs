//! Another thread, on another CPU, that frees or allocates when it is asked to.

use super::raw::{Fresh, Object, Subject, pin};
use super::world::World;
use std::sync::mpsc;
use std::thread::{Scope, ScopedJoinHandle};

/// What is to be done, with the cache of that number.
pub(crate) enum Job {
    /// Frees, one by one or all at once.
    Free(usize, Vec<Object>, bool),
    /// Allocates as many.
    Alloc(usize, usize),
}

/// The player's end: jobs go in, objects come out. The thread ends when this is dropped.
pub(crate) struct Hand {
    jobs: mpsc::SyncSender<Job>,
    done: mpsc::Receiver<Vec<Fresh>>,
}

/// The thread is to be joined: a scope does not wait for the end of a thread's storage.
pub(crate) fn spawn<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, 'a>,
    world: &'a World,
) -> (Hand, ScopedJoinHandle<'scope, ()>) {
    let (jobs, todo) = mpsc::sync_channel(1);
    let (report, done) = mpsc::sync_channel(1);
    let thread = scope.spawn(move || {
        pin(&world.cpus[world.cpus.len() - 1..]);
        for job in todo {
            let objects = match job {
                Job::Free(cache, objects, bulk) => {
                    free(&world.subjects[cache], objects, bulk);
                    Vec::new()
                }
                Job::Alloc(cache, count) => {
                    let subject = &world.subjects[cache];
                    (0..count)
                        .map(|_| subject.alloc().expect("no fault is injected here"))
                        .collect()
                }
            };
            if report.send(objects).is_err() {
                break;
            }
        }
    });
    (Hand { jobs, done }, thread)
}

fn free(subject: &Subject, objects: Vec<Object>, bulk: bool) {
    assert!(objects.iter().all(|object| subject.is_intact(object)), "changed on the way");
    if bulk {
        subject.free_bulk(objects.into_iter().map(Some));
    } else {
        objects.into_iter().for_each(|object| subject.free(object));
    }
}

impl Hand {
    /// Has it done, and waits for that.
    pub(crate) fn take(&self, job: Job) -> Vec<Fresh> {
        self.jobs.send(job).expect("the hand is there");
        self.done.recv().expect("the hand has not panicked")
    }
}
