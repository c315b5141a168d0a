//! The running program's own symbols: where a function ends, and what lies at an address.

use crate::raw::quietline_count_anchor;
use object::{Object, ObjectSymbol, SymbolKind};
use std::ffi::c_void;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;

/// A place in the source: one of the functions that were inlined into each other at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The function's name.
    pub function: String,
    /// File and line, where the program has line tables.
    pub line: Option<(String, u32)>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.function)?;
        self.line.as_ref().map_or(Ok(()), |(file, line)| write!(f, " ({file}:{line})"))
    }
}

/// The functions of the program file, by address.
struct Image {
    functions: Vec<(Range<u64>, String)>,
}

/// What the program file says, read once.
fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| Image::read().unwrap_or_else(|| Image { functions: Vec::new() }))
}

impl Image {
    fn read() -> Option<Self> {
        let data = std::fs::read("/proc/self/exe").ok()?;
        let file = object::File::parse(&*data).ok()?;
        // A known function, in memory and in the file: the difference is where the loader put the file.
        let anchor = quietline_count_anchor as *const () as u64;
        let linked = file.symbols().find(|s| s.name() == Ok("quietline_count_anchor"))?.address();
        let bias = anchor.wrapping_sub(linked);
        let mut functions: Vec<_> = file
            .symbols()
            .filter(|s| s.kind() == SymbolKind::Text && s.size() > 0)
            .map(|s| {
                let start = s.address().wrapping_add(bias);
                let name = rustc_demangle::demangle(s.name().unwrap_or("?"));
                (start..start + s.size(), format!("{name:#}"))
            })
            .collect();
        functions.sort_unstable_by_key(|(range, _)| range.start);
        Some(Self { functions })
    }

    fn find(&self, address: u64) -> Option<&(Range<u64>, String)> {
        let after = self.functions.partition_point(|(range, _)| range.start <= address);
        // Several symbols may name one address, and a symbol may lie inside another.
        self.functions[..after].iter().rev().take(8).find(|(range, _)| range.contains(&address))
    }
}

/// The addresses of the program's own code: the executable parts of its file, as it is mapped.
pub(crate) fn own_code() -> io::Result<Range<u64>> {
    let anchor = quietline_count_anchor as *const () as u64;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let parse = |line: &str| -> Option<Range<u64>> {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
    };
    let unknown = || io::Error::other("/proc/self/maps does not list the program's code");
    maps.lines().filter_map(parse).find(|range| range.contains(&anchor)).ok_or_else(unknown)
}

/// The addresses of the function that `address` lies in.
pub(crate) fn function(address: u64) -> Option<Range<u64>> {
    image().find(address).map(|(range, _)| range.clone())
}

/// The name of the function that `address` lies in, or the address.
pub(crate) fn name(address: u64) -> String {
    if let Some((_, name)) = image().find(address) {
        return name.clone();
    }
    frames(address).into_iter().next_back().map_or_else(|| format!("{address:#x}"), |f| f.function)
}

/// The functions inlined into each other at `address`, innermost first.
pub(crate) fn frames(address: u64) -> Vec<Frame> {
    let mut frames = Vec::new();
    // The resolver expects return addresses, and looks one byte before.
    backtrace::resolve((address + 1) as *mut c_void, |symbol| {
        let Some(name) = symbol.name() else { return };
        let line =
            symbol.filename().zip(symbol.lineno()).map(|(f, l)| (f.display().to_string(), l));
        frames.push(Frame { function: format!("{name:#}"), line });
    });
    frames
}
