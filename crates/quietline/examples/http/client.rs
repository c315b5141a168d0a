//! The load: connections that stay open, each with some requests on their way, and every byte of every answer looked at.

use super::os::{MAX_EVENTS, Os};
use super::site::{BODY, EMPTY, PAGE, Site, Status, complaint};
use hdrhistogram::Histogram;
use quietline::eventpoll::{EPOLLIN, EPOLLOUT};
use quietline::{EpollEvent, Errno};
use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// A request, and what is to come.
pub(crate) struct Ask<'a> {
    request: String,
    status: u16,
    content_type: &'a str,
    length: usize,
    /// Nothing after a `HEAD`.
    body: &'a [u8],
}

/// What a client asks for, over and over: mostly the body, at times the page, nothing, a head, and what is not there.
pub(crate) fn asks<'a>(site: &'a Site, missing: &'a str) -> Vec<Ask<'a>> {
    let request = |method: &str, path: &str| {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: quietline-example\r\nAccept: */*\r\n\r\n"
        )
    };
    let found = |method: &str, path: &str| {
        let resource = site.find(path).expect("it is there");
        let body = if method == "HEAD" { &[] } else { &resource.body[..] };
        let (content_type, length) = (resource.content_type, resource.body.len());
        Ask { request: request(method, path), status: 200, content_type, length, body }
    };
    let page = site.find(EMPTY).expect("it is there");
    let lost = Ask {
        request: request("GET", "/missing?of=all"),
        status: 404,
        content_type: page.content_type,
        length: missing.len(),
        body: missing.as_bytes(),
    };
    let mut asks = vec![found("GET", PAGE), found("GET", EMPTY), found("HEAD", BODY), lost];
    asks.extend((0..12).map(|_| found("GET", BODY)));
    asks
}

/// The body of the answer to a request for what is not there.
pub(crate) fn missing() -> String {
    complaint(Status::NOT_FOUND)
}

/// How long a client asks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    /// So many requests.
    Requests(u64),
    /// So long.
    Time(Duration),
}

/// What one thread of the client does.
#[derive(Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) port: u16,
    pub(crate) connections: usize,
    /// Requests on their way on each connection.
    pub(crate) pipeline: usize,
    pub(crate) until: Until,
    pub(crate) asks: &'a [Ask<'a>],
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) answers: u64,
    pub(crate) latencies: Histogram<u64>,
    pub(crate) took: Duration,
}

/// What went wrong, for people.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    pub(crate) fn new(what: &str, why: impl Display) -> Self {
        Self(format!("{what}: {why}"))
    }
}

/// After so long without any answer the server is taken for dead.
const PATIENCE_MS: i32 = 20_000;

/// Opens the connections, meets the other threads at the line, asks, and closes the connections.
pub(crate) fn drive<O: Os>(os: O, load: Load<'_>, line: &Barrier) -> Result<Outcome, Failure> {
    let opened = open(os, load);
    // Also those meet there who have nothing to do, or the others would wait for ever.
    line.wait();
    let (epoll, mut links) = opened.map_err(|errno| Failure::new("cannot connect", errno))?;
    let begin = Instant::now();
    let (left, deadline) = match load.until {
        Until::Requests(requests) => (requests, None),
        Until::Time(time) => (u64::MAX, Some(begin + time)),
    };
    let mut book = Book { left, open: 0, answers: 0, latencies: histogram() };
    let mut events = [EpollEvent::default(); MAX_EVENTS];
    let failed = |errno| Failure::new("the client's call failed", errno);
    for (place, link) in links.iter_mut().enumerate() {
        link.ask(load, &mut book, begin);
        link.send(os, &epoll, place).map_err(failed)?;
    }
    while book.open > 0 {
        let n = os.epoll_wait(&epoll, &mut events, PATIENCE_MS).map_err(failed)?;
        if n == 0 {
            return Err(Failure(format!("{} answers did not come", book.open)));
        }
        for event in &events[..n] {
            let place = event.data as usize;
            let link = &mut links[place];
            if event.events != EPOLLOUT {
                let n = link.read(os)?;
                let now = Instant::now();
                if deadline.is_some_and(|deadline| now >= deadline) {
                    book.left = 0;
                }
                link.check(n, load.asks, &mut book, now)?;
                link.ask(load, &mut book, now);
            }
            link.send(os, &epoll, place).map_err(failed)?;
        }
    }
    let took = begin.elapsed();
    let silent = links.iter().all(|link| matches!(os.read(&link.fd, &mut [0]), Err(Errno::AGAIN)));
    if !silent {
        return Err(Failure("the server says more than it was asked, or hangs up".to_owned()));
    }
    Ok(Outcome { answers: book.answers, latencies: book.latencies, took })
}

/// Nanoseconds, to three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are possible")
}

/// An epoll, and the connections that it watches.
type Opened<F> = (F, Vec<Link<F>>);

fn open<O: Os>(os: O, load: Load<'_>) -> Result<Opened<O::Fd>, Errno> {
    let epoll = os.epoll_create()?;
    let mut links = Vec::new();
    for place in 0..load.connections {
        let fd = os.socket()?;
        os.no_delay(&fd)?;
        match os.connect(&fd, load.port) {
            // It can be written once it is there.
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        os.epoll_add(&epoll, &fd, EpollEvent { events: EPOLLIN, data: place as u64 })?;
        links.push(Link::new(fd, place));
    }
    Ok((epoll, links))
}

/// What is common to a thread's connections.
struct Book {
    /// Requests that may still be made.
    left: u64,
    /// Requests on their way.
    open: u64,
    answers: u64,
    latencies: Histogram<u64>,
}

/// Where the connection is in the answer to its oldest request.
#[derive(Clone, Copy)]
enum At {
    Head,
    /// So many bytes of the body have come.
    Body(usize),
}

/// A connection as the client sees it.
struct Link<F> {
    fd: F,
    /// What has come, from `begin` on.
    input: Box<[u8; ROOM]>,
    begin: usize,
    end: usize,
    at: At,
    output: Vec<u8>,
    written: usize,
    /// Which requests are on their way, and since when.
    asked: VecDeque<(usize, Instant)>,
    /// Which one is next.
    next: usize,
    wants: u32,
}

/// Room for what comes: a head, or a part of a body.
const ROOM: usize = 16 << 10;

impl<F> Link<F> {
    fn new(fd: F, place: usize) -> Self {
        let (input, output, asked) = (Box::new([0; ROOM]), Vec::new(), VecDeque::new());
        Self {
            fd,
            input,
            begin: 0,
            end: 0,
            at: At::Head,
            output,
            written: 0,
            asked,
            next: place,
            wants: EPOLLIN,
        }
    }

    /// Makes requests, as many as may be on their way.
    fn ask(&mut self, load: Load<'_>, book: &mut Book, now: Instant) {
        while self.asked.len() < load.pipeline && book.left > 0 {
            book.left -= 1;
            book.open += 1;
            let which = self.next % load.asks.len();
            self.next += 1;
            self.output.extend(load.asks[which].request.as_bytes());
            self.asked.push_back((which, now));
        }
    }

    /// Sends requests as far as the socket takes them, and has the epoll look out for room for the rest.
    fn send<O: Os<Fd = F>>(&mut self, os: O, epoll: &F, place: usize) -> Result<(), Errno> {
        while self.written < self.output.len() {
            match os.write(&self.fd, &self.output[self.written..]) {
                Ok(n) => self.written += n,
                Err(Errno::AGAIN) => return self.want(os, epoll, place, EPOLLIN | EPOLLOUT),
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.written = 0;
        self.want(os, epoll, place, EPOLLIN)
    }

    fn want<O: Os<Fd = F>>(
        &mut self,
        os: O,
        epoll: &F,
        place: usize,
        events: u32,
    ) -> Result<(), Errno> {
        if events == self.wants {
            return Ok(());
        }
        self.wants = events;
        os.epoll_modify(epoll, &self.fd, EpollEvent { events, data: place as u64 })
    }

    /// Reads once: how many bytes.
    fn read<O: Os<Fd = F>>(&mut self, os: O) -> Result<usize, Failure> {
        self.input.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        match os.read(&self.fd, &mut self.input[self.end..]) {
            Ok(0) => Err(Failure("the server has hung up".to_owned())),
            Ok(n) => Ok(n),
            Err(Errno::AGAIN) => Ok(0),
            Err(error) => Err(Failure::new("the client cannot read", error)),
        }
    }

    /// Holds what has come against what was to come.
    fn check(
        &mut self,
        n: usize,
        asks: &[Ask<'_>],
        book: &mut Book,
        now: Instant,
    ) -> Result<(), Failure> {
        self.end += n;
        while self.begin < self.end {
            let Some(&(which, since)) = self.asked.front() else {
                return Err(Failure("there is an answer that nobody has asked for".to_owned()));
            };
            let ask = &asks[which];
            let input = &self.input[self.begin..self.end];
            let come = match self.at {
                At::Head => match head(input, ask)? {
                    Some(length) => {
                        self.begin += length;
                        0
                    }
                    None => return Ok(()),
                },
                At::Body(come) => {
                    let n = input.len().min(ask.body.len() - come);
                    if input[..n] != ask.body[come..come + n] {
                        let right =
                            input.iter().zip(&ask.body[come..]).take_while(|(a, b)| a == b).count();
                        return Err(Failure(format!("byte {} of a body is wrong", come + right)));
                    }
                    self.begin += n;
                    come + n
                }
            };
            self.at = At::Body(come);
            if come == ask.body.len() {
                self.at = At::Head;
                self.asked.pop_front();
                book.open -= 1;
                book.answers += 1;
                let took = now.duration_since(since).as_nanos().try_into().unwrap_or(u64::MAX);
                book.latencies
                    .record(took)
                    .map_err(|error| Failure::new("a latency cannot be kept", error))?;
            }
        }
        Ok(())
    }
}

/// Looks at the head of an answer: its length, if it is there as a whole.
fn head(input: &[u8], ask: &Ask<'_>) -> Result<Option<usize>, Failure> {
    let mut fields = [httparse::EMPTY_HEADER; 16];
    let mut head = httparse::Response::new(&mut fields);
    let length = match head.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if input.len() < ROOM => return Ok(None),
        Ok(httparse::Status::Partial) => {
            return Err(Failure("the head of an answer has no end".to_owned()));
        }
        Err(error) => return Err(Failure::new("an answer cannot be read", error)),
    };
    let field = |name: &str| {
        let mut found = head.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        found.next().filter(|_| found.next().is_none()).map(|field| field.value)
    };
    let right = head.version == Some(1)
        && head.code == Some(ask.status)
        && field("Content-Length") == Some(ask.length.to_string().as_bytes())
        && field("Content-Type") == Some(ask.content_type.as_bytes())
        && field("Connection").is_none();
    if right { Ok(Some(length)) } else { Err(Failure(format!("an answer is wrong: {head:?}"))) }
}
