//! What the server has to offer, and how it answers.

/// A status line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) code: u16,
    reason: &'static str,
}

impl Status {
    pub(crate) const BAD_REQUEST: Self = Self { code: 400, reason: "Bad Request" };
    pub(crate) const NOT_FOUND: Self = Self { code: 404, reason: "Not Found" };
    pub(crate) const METHOD_NOT_ALLOWED: Self = Self { code: 405, reason: "Method Not Allowed" };
    pub(crate) const URI_TOO_LONG: Self = Self { code: 414, reason: "URI Too Long" };
    pub(crate) const FIELDS_TOO_LARGE: Self =
        Self { code: 431, reason: "Request Header Fields Too Large" };
    pub(crate) const NOT_IMPLEMENTED: Self = Self { code: 501, reason: "Not Implemented" };
    pub(crate) const VERSION: Self = Self { code: 505, reason: "HTTP Version Not Supported" };
}

/// Whether a connection lives on after an answer, and what is to be said of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// It does, as always with HTTP/1.1.
    Stays,
    /// It does, as an HTTP/1.0 client has asked.
    StaysAsAsked,
    /// It ends.
    Ends,
}

impl After {
    fn header(self) -> &'static str {
        match self {
            Self::Stays => "",
            Self::StaysAsAsked => "Connection: keep-alive\r\n",
            Self::Ends => "Connection: close\r\n",
        }
    }
}

/// Something at a path.
pub(crate) struct Resource {
    pub(crate) path: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
    /// The status line and the fields.
    head: String,
}

/// All of it.
pub(crate) struct Site {
    resources: Vec<Resource>,
}

/// Where the page is.
pub(crate) const PAGE: &str = "/";
/// Where the body is whose size one chooses.
pub(crate) const BODY: &str = "/body";
/// Where there is something without a byte.
pub(crate) const EMPTY: &str = "/empty";

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const BYTES: &str = "application/octet-stream";

impl Site {
    /// A page, nothing, and a body of so many bytes.
    pub(crate) fn new(body: usize) -> Self {
        let page = "<!doctype html><title>quietline</title><p>It works.</p>\n";
        // No two neighbouring stretches are alike, so that a byte out of place is seen.
        let bytes =
            (0..body).map(|at| (at as u32).wrapping_mul(0x9e37_79b9).to_be_bytes()[0]).collect();
        let resources =
            [(PAGE, HTML, page.into()), (EMPTY, TEXT, Vec::new()), (BODY, BYTES, bytes)];
        Self {
            resources: resources.map(|(path, kind, body)| Resource::new(path, kind, body)).into(),
        }
    }

    /// What is at a path.
    pub(crate) fn find(&self, path: &str) -> Option<&Resource> {
        self.resources.iter().find(|resource| resource.path == path)
    }
}

impl Resource {
    fn new(path: &'static str, content_type: &'static str, body: Vec<u8>) -> Self {
        let head = head("200 OK", content_type, body.len());
        Self { path, content_type, body, head }
    }

    /// Appends the answer to a request for this.
    pub(crate) fn answer(&self, with_body: bool, after: After, to: &mut Vec<u8>) {
        to.extend(self.head.as_bytes());
        to.extend(after.header().as_bytes());
        to.extend(b"\r\n");
        if with_body {
            to.extend(&self.body);
        }
    }
}

fn head(status: &str, content_type: &str, length: usize) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n")
}

/// The body of an answer that says what is wrong.
pub(crate) fn complaint(status: Status) -> String {
    format!("{} {}\n", status.code, status.reason)
}

/// Appends an answer that says what is wrong.
pub(crate) fn refuse(status: Status, with_body: bool, after: After, to: &mut Vec<u8>) {
    let body = complaint(status);
    to.extend(head(body.trim_end(), TEXT, body.len()).as_bytes());
    if status == Status::METHOD_NOT_ALLOWED {
        to.extend(b"Allow: GET, HEAD\r\n");
    }
    to.extend(after.header().as_bytes());
    to.extend(b"\r\n");
    if with_body {
        to.extend(body.as_bytes());
    }
}
