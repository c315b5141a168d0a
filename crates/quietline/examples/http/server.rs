//! The server: workers that have an epoll each, and connections that stay with the worker that took them.

use super::connection::{Connection, Fate, Tally};
use super::os::{MAX_EVENTS, Os};
use super::site::Site;
use quietline::eventpoll::{EPOLLEXCLUSIVE, EPOLLIN};
use quietline::{EpollEvent, Errno};

/// How connections are shared out among the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Accept {
    /// All workers wait for one listening socket, and one of them is woken for a connection (`EPOLLEXCLUSIVE`).
    Exclusive,
    /// Each worker has a listening socket of its own on the same port (`SO_REUSEPORT`).
    Reuseport,
}

/// Connections that wait to be taken.
const BACKLOG: i32 = 4096;

/// What events say of: a connection's is its place.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// A server that listens.
pub(crate) struct Server<O: Os> {
    os: O,
    /// One, or one for each worker.
    listeners: Vec<O::Fd>,
    accept: Accept,
    /// Written once, when the workers are to go; never read, so that all see it.
    stop: O::Fd,
    pub(crate) port: u16,
}

impl<O: Os> Server<O> {
    /// A server on a port that is free.
    pub(crate) fn open(os: O, workers: usize, accept: Accept) -> Result<Self, Errno> {
        let mut listeners = Vec::new();
        let mut port = 0;
        let sockets = if accept == Accept::Exclusive { 1 } else { workers };
        for _ in 0..sockets {
            let listener = os.socket()?;
            if accept == Accept::Reuseport {
                os.reuse_port(&listener)?;
            }
            os.bind(&listener, port)?;
            os.listen(&listener, BACKLOG)?;
            port = os.port(&listener)?;
            listeners.push(listener);
        }
        Ok(Self { os, listeners, accept, stop: os.eventfd()?, port })
    }

    /// Ends all workers.
    pub(crate) fn stop(&self) -> Result<(), Errno> {
        self.os.write(&self.stop, &1_u64.to_ne_bytes()).map(drop)
    }

    /// The life of a worker, on the thread that calls.
    ///
    /// # Errors
    /// What a call has refused that a server needs: `EMFILE` from `accept4`, for instance.
    pub(crate) fn work(&self, worker: usize, site: &Site) -> Result<Tally, Errno> {
        let os = self.os;
        let epoll = os.epoll_create()?;
        let (listener, flags) = match self.accept {
            Accept::Exclusive => (&self.listeners[0], EPOLLIN | EPOLLEXCLUSIVE),
            Accept::Reuseport => (&self.listeners[worker], EPOLLIN),
        };
        os.epoll_add(&epoll, listener, EpollEvent { events: flags, data: LISTENER })?;
        os.epoll_add(&epoll, &self.stop, EpollEvent { events: EPOLLIN, data: STOP })?;
        let mut worker = Worker {
            os,
            epoll,
            connections: Vec::new(),
            free: Vec::new(),
            tally: Tally::default(),
        };
        let mut events = [EpollEvent::default(); MAX_EVENTS];
        loop {
            let n = os.epoll_wait(&worker.epoll, &mut events, -1)?;
            let mut stopped = false;
            for event in &events[..n] {
                match event.data {
                    STOP => stopped = true,
                    LISTENER => worker.accept(listener)?,
                    place => worker.serve(place as usize, site)?,
                }
            }
            if stopped {
                return Ok(worker.tally);
            }
        }
    }
}

struct Worker<O: Os> {
    os: O,
    epoll: O::Fd,
    /// By place.
    connections: Vec<Option<Connection<O::Fd>>>,
    /// Places that are free.
    free: Vec<usize>,
    tally: Tally,
}

impl<O: Os> Worker<O> {
    /// Takes a connection; another one is another event, perhaps another worker's.
    fn accept(&mut self, listener: &O::Fd) -> Result<(), Errno> {
        let fd = match self.os.accept(listener) {
            Ok(fd) => fd,
            // Another worker was faster, or the client has gone.
            Err(Errno::AGAIN | Errno::CONNABORTED) => return Ok(()),
            Err(error) => return Err(error),
        };
        self.os.no_delay(&fd)?;
        let place = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let connection = Connection::new(fd);
        let event = EpollEvent { events: connection.wants, data: place as u64 };
        self.os.epoll_add(&self.epoll, &connection.fd, event)?;
        self.connections[place] = Some(connection);
        self.tally.connections += 1;
        Ok(())
    }

    fn serve(&mut self, place: usize, site: &Site) -> Result<(), Errno> {
        let Some(connection) = &mut self.connections[place] else { return Ok(()) };
        match connection.turn(self.os, site, &mut self.tally)? {
            Fate::Waits(events) => {
                if events != connection.wants {
                    connection.wants = events;
                    let event = EpollEvent { events, data: place as u64 };
                    self.os.epoll_modify(&self.epoll, &connection.fd, event)?;
                }
            }
            Fate::Over => {
                self.connections[place] = None;
                self.free.push(place);
            }
        }
        Ok(())
    }
}
