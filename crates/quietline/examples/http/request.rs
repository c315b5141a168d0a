//! Requests: the head is `httparse`'s affair, what it means is told here (RFC 9110, 9112).

use super::site::{After, Status};
use httparse::{EMPTY_HEADER, Error, Header};

/// What the bytes at hand begin with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    /// The beginning of a request.
    Partial,
    /// The head of a request, of so many bytes; its body comes next.
    Request(Request<'a>, usize),
    /// Nothing that can be answered otherwise; where the next request begins is not known.
    Refused(Status),
}

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// Without the query.
    pub(crate) path: &'a str,
    /// Bytes of its body.
    pub(crate) body: u64,
    pub(crate) after: After,
}

/// Fields that a request may have.
const MAX_FIELDS: usize = 64;

/// Looks at what a connection has brought.
pub(crate) fn parse(input: &[u8]) -> Parsed<'_> {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let length = match head.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Parsed::Partial,
        Err(Error::TooManyHeaders) => return Parsed::Refused(Status::FIELDS_TOO_LARGE),
        Err(Error::Version) => return Parsed::Refused(Status::VERSION),
        Err(_) => return Parsed::Refused(Status::BAD_REQUEST),
    };
    let (Some(method), Some(target), Some(minor)) = (head.method, head.path, head.version) else {
        return Parsed::Refused(Status::BAD_REQUEST);
    };
    let checked = path(target).and_then(|path| {
        let (body, after) = (body(head.headers)?, persistence(head.headers, minor)?);
        Ok(Request { method, path, body, after })
    });
    checked.map_or_else(Parsed::Refused, |request| Parsed::Request(request, length))
}

/// The values of a field.
fn values<'a>(fields: &'a [Header<'_>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields
        .iter()
        .filter(move |field| field.name.eq_ignore_ascii_case(name))
        .map(|field| field.value)
}

/// The path of a target, which may be a whole address.
fn path(target: &str) -> Result<&str, Status> {
    let path = match target.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => {
            rest.find(['/', '?']).map_or("/", |at| &rest[at..])
        }
        _ => target,
    };
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    match path {
        "" => Ok("/"),
        // `OPTIONS *`: of the server as a whole.
        "*" => Ok(path),
        _ if path.starts_with('/') => Ok(path),
        _ => Err(Status::BAD_REQUEST),
    }
}

/// The length of the body.
fn body(fields: &[Header<'_>]) -> Result<u64, Status> {
    let coded = values(fields, "transfer-encoding").next().is_some();
    let mut found = None;
    for value in values(fields, "content-length") {
        // Two of them are one if they agree, in one field or in several.
        for value in value.split(|&byte| byte == b',') {
            let digits = value.trim_ascii();
            let number =
                std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit));
            let length =
                number.and_then(|number| number.parse().ok()).ok_or(Status::BAD_REQUEST)?;
            if coded || found.is_some_and(|found: u64| found != length) {
                return Err(Status::BAD_REQUEST);
            }
            found = Some(length);
        }
    }
    if coded { Err(Status::NOT_IMPLEMENTED) } else { Ok(found.unwrap_or(0)) }
}

/// Whether the connection lives on; and whether the one `Host` is there that HTTP/1.1 wants.
fn persistence(fields: &[Header<'_>], minor: u8) -> Result<After, Status> {
    match values(fields, "host").count() {
        0 if minor == 0 => {}
        1 => {}
        _ => return Err(Status::BAD_REQUEST),
    }
    let asks = |what: &str| {
        let mut options =
            values(fields, "connection").flat_map(|value| value.split(|&byte| byte == b','));
        options.any(|option| option.trim_ascii().eq_ignore_ascii_case(what.as_bytes()))
    };
    Ok(match minor {
        _ if asks("close") => After::Ends,
        0 if asks("keep-alive") => After::StaysAsAsked,
        0 => After::Ends,
        _ => After::Stays,
    })
}
