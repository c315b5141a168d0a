//! A connection as the server sees it: bytes that have come, an answer that is on its way.
//!
//! ```text
//!   input ──parse──> answers ──> output ──write──> gone
//!     ^ read, once for each event        │ the socket is full: nothing is read until it is empty
//! ```

use super::os::Os;
use super::request::{Parsed, Request, parse};
use super::site::{After, Site, Status, refuse};
use quietline::Errno;
use quietline::eventpoll::{EPOLLIN, EPOLLOUT};

/// Room for what comes; a request's head is no longer than this.
pub(crate) const ROOM: usize = 8192;
/// With so many bytes of answers waiting no further request is answered.
const ENOUGH: usize = 64 << 10;
/// Of what a client sends after the last answer so much is read, so that the answer is not lost with it.
const FAREWELL: usize = 256 << 10;

/// What a worker has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Connections taken.
    pub(crate) connections: u64,
    /// Requests answered, refused ones among them.
    pub(crate) answers: u64,
    /// Those that were refused.
    pub(crate) refusals: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Requests are answered.
    Open,
    /// The last answer is on its way.
    Ending,
    /// It has gone; what still comes is thrown away, so many bytes at most.
    Farewell(usize),
}

/// A connection.
pub(crate) struct Connection<F> {
    pub(crate) fd: F,
    input: Box<[u8; ROOM]>,
    /// Where in `input` there is something.
    begin: usize,
    end: usize,
    /// Bytes of a body that are not wanted.
    skip: u64,
    output: Vec<u8>,
    /// How much of `output` has gone.
    written: usize,
    phase: Phase,
    /// The events that the epoll has been told to look out for.
    pub(crate) wants: u32,
}

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It waits for these events.
    Waits(u32),
    /// It is over.
    Over,
}

impl<F> Connection<F> {
    pub(crate) fn new(fd: F) -> Self {
        let input = Box::new([0; ROOM]);
        let (output, phase, wants) = (Vec::new(), Phase::Open, EPOLLIN);
        Self { fd, input, begin: 0, end: 0, skip: 0, output, written: 0, phase, wants }
    }

    /// Does what there is to do after an event.
    pub(crate) fn turn<O: Os<Fd = F>>(
        &mut self,
        os: O,
        site: &Site,
        tally: &mut Tally,
    ) -> Result<Fate, Errno> {
        let mut may_read = true;
        loop {
            let more = self.answer(site, tally);
            match self.flush(os) {
                Ok(true) => {}
                Ok(false) => return Ok(Fate::Waits(EPOLLOUT)),
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(Fate::Over),
                Err(error) => return Err(error),
            }
            if self.phase == Phase::Ending {
                self.phase = Phase::Farewell(FAREWELL);
                if os.shutdown(&self.fd).is_err() {
                    return Ok(Fate::Over);
                }
            }
            if more {
                continue;
            }
            // One read for each event, so that nobody is served at the cost of others.
            if !std::mem::take(&mut may_read) {
                return Ok(Fate::Waits(EPOLLIN));
            }
            match self.read(os) {
                Ok(true) => {}
                Ok(false) | Err(Errno::CONNRESET) => return Ok(Fate::Over),
                Err(Errno::AGAIN) => return Ok(Fate::Waits(EPOLLIN)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Answers what has come; true if there may be more to answer.
    fn answer(&mut self, site: &Site, tally: &mut Tally) -> bool {
        while self.phase == Phase::Open {
            let skipped = self.skip.min((self.end - self.begin) as u64);
            self.skip -= skipped;
            self.begin += skipped as usize;
            if self.skip > 0 || self.begin == self.end {
                break;
            }
            if self.output.len() >= ENOUGH {
                return true;
            }
            let input = &self.input[self.begin..self.end];
            let refused = match parse(input) {
                Parsed::Request(request, length) => {
                    let (body, after) = (request.body, request.after);
                    tally.answers += 1;
                    tally.refusals += u64::from(!respond(&request, site, &mut self.output));
                    self.begin += length;
                    self.skip = body;
                    if after == After::Ends {
                        self.phase = Phase::Ending;
                    }
                    continue;
                }
                Parsed::Partial if input.len() < ROOM => break,
                Parsed::Partial if !input.contains(&b'\n') => Status::URI_TOO_LONG,
                Parsed::Partial => Status::FIELDS_TOO_LARGE,
                Parsed::Refused(status) => status,
            };
            tally.answers += 1;
            tally.refusals += 1;
            refuse(refused, true, After::Ends, &mut self.output);
            self.phase = Phase::Ending;
        }
        false
    }

    /// Sends answers; false if the socket is full.
    fn flush<O: Os<Fd = F>>(&mut self, os: O) -> Result<bool, Errno> {
        while self.written < self.output.len() {
            match os.write(&self.fd, &self.output[self.written..]) {
                Ok(n) => self.written += n,
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(true)
    }

    /// Takes what has come; false if nothing comes any more.
    fn read<O: Os<Fd = F>>(&mut self, os: O) -> Result<bool, Errno> {
        if let Phase::Farewell(left) = &mut self.phase {
            let n = os.read(&self.fd, &mut self.input[..])?;
            *left = left.saturating_sub(n);
            return Ok(n > 0 && *left > 0);
        }
        // What is left is the beginning of a request.
        self.input.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        let n = os.read(&self.fd, &mut self.input[self.end..])?;
        self.end += n;
        Ok(n > 0)
    }
}

/// Appends the answer to a request; whether it has what it asks for.
fn respond(request: &Request<'_>, site: &Site, output: &mut Vec<u8>) -> bool {
    let with_body = request.method != "HEAD";
    let refused = match (request.method, site.find(request.path)) {
        ("GET" | "HEAD", Some(resource)) => {
            resource.answer(with_body, request.after, output);
            return true;
        }
        ("GET" | "HEAD", None) => Status::NOT_FOUND,
        _ => Status::METHOD_NOT_ALLOWED,
    };
    refuse(refused, with_body, request.after, output);
    false
}
