//! A round: a server and its load, in threads of this process.

use super::client::{Failure, Load, Outcome, Until, asks, drive, histogram, missing};
use super::connection::Tally;
use super::os::Os;
use super::server::{Accept, Server};
use super::site::Site;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

/// How a round is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Threads of the server.
    pub(crate) workers: usize,
    /// Threads of the client.
    pub(crate) clients: usize,
    /// Connections of all clients.
    pub(crate) connections: usize,
    /// Requests on their way on each connection.
    pub(crate) pipeline: usize,
    /// How long each client asks.
    pub(crate) until: Until,
    pub(crate) accept: Accept,
}

/// What came of a round.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) answers: u64,
    /// Answers per second.
    pub(crate) rate: f64,
    /// Latencies at the half, at 99 in 100, and the longest.
    pub(crate) latencies: [Duration; 3],
    /// Connections of the workers, the fewest first.
    pub(crate) shares: Vec<u64>,
}

/// Runs a round: every answer was right, and there were as many as the server has counted.
pub(crate) fn run<O: Os>(os: O, site: &Site, plan: Plan) -> Result<Sample, Failure> {
    let failed = |what| move |errno| Failure::new(what, errno);
    let server =
        &Server::open(os, plan.workers, plan.accept).map_err(failed("the server cannot listen"))?;
    let (missing, line) = (missing(), Barrier::new(plan.clients));
    let asks = &asks(site, &missing);
    let (outcomes, tallies) = thread::scope(|scope| {
        let workers =
            (0..plan.workers).map(|worker| scope.spawn(move || server.work(worker, site)));
        let workers: Vec<_> = workers.collect();
        let clients = (0..plan.clients).map(|client| {
            // Of those left over each of the first has one.
            let connections = plan.connections / plan.clients
                + usize::from(client < plan.connections % plan.clients);
            let load = Load {
                port: server.port,
                connections,
                pipeline: plan.pipeline,
                until: plan.until,
                asks,
            };
            let line = &line;
            scope.spawn(move || drive(os, load, line))
        });
        let clients: Vec<_> = clients.collect();
        let outcomes: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        // Before anything is looked at: whatever happened, the workers are to go.
        let stopped = server.stop();
        let tallies: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        stopped.map(|()| (outcomes, tallies)).map_err(failed("the server cannot be stopped"))
    })?;
    let crashed = |_| Failure("a thread has panicked".to_owned());
    // What a worker says comes first: it is why clients have no answers.
    let tallies = tallies.into_iter().map(|tally| {
        tally.map_err(crashed)?.map_err(|errno| Failure::new("a worker's call failed", errno))
    });
    let tallies = tallies.collect::<Result<Vec<Tally>, Failure>>()?;
    let outcomes = outcomes.into_iter().map(|outcome| outcome.map_err(crashed)?);
    sample(&outcomes.collect::<Result<Vec<_>, _>>()?, &tallies, plan)
}

fn sample(outcomes: &[Outcome], tallies: &[Tally], plan: Plan) -> Result<Sample, Failure> {
    let mut latencies = histogram();
    for outcome in outcomes {
        latencies
            .add(&outcome.latencies)
            .map_err(|error| Failure::new("latencies cannot be added", error))?;
    }
    let answers = outcomes.iter().map(|outcome| outcome.answers).sum();
    let counted: u64 = tallies.iter().map(|tally| tally.answers).sum();
    if counted != answers {
        return Err(Failure(format!(
            "the server has answered {counted} requests, and {answers} answers came"
        )));
    }
    let mut shares: Vec<u64> = tallies.iter().map(|tally| tally.connections).collect();
    shares.sort_unstable();
    let taken: u64 = shares.iter().sum();
    if taken != plan.connections as u64 {
        return Err(Failure(format!(
            "{} connections were made, and {taken} taken",
            plan.connections
        )));
    }
    let took = outcomes.iter().map(|outcome| outcome.took).max().unwrap_or_default();
    let at = |quantile| Duration::from_nanos(latencies.value_at_quantile(quantile));
    let latencies = [at(0.5), at(0.99), at(1.0)];
    Ok(Sample { answers, rate: answers as f64 / took.as_secs_f64(), latencies, shares })
}
