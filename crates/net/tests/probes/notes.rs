//! The tracepoints of an ELF file, as tracers of the system find them: notes of the kind that SystemTap gave its name
//! (`.note.stapsdt`). Little-endian, 64 bits.

use std::path::Path;

/// A tracepoint.
pub(crate) struct Probe {
    pub(crate) provider: String,
    pub(crate) name: String,
    /// Where its arguments are: one word for each.
    pub(crate) arguments: String,
    /// Its instruction, in the file, by the program headers.
    pub(crate) offset: u64,
    /// And by its address.
    pub(crate) address: u64,
}

fn number<const N: usize>(bytes: &[u8], at: u64) -> u64 {
    let mut value = [0; 8];
    value[..N].copy_from_slice(&bytes[at as usize..][..N]);
    u64::from_le_bytes(value)
}

fn text(bytes: &[u8]) -> (String, &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).expect("a text ends in a zero");
    (String::from_utf8(bytes[..end].to_vec()).expect("text"), &bytes[end + 1..])
}

/// The tracepoints of a file.
///
/// # Panics
/// If it is no such file.
pub(crate) fn probes(file: &Path) -> Vec<Probe> {
    let bytes = &std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert_eq!(&bytes[..6], b"\x7fELF\x02\x01");
    let table = |at: u64, size: u64, n: u64| -> Vec<u64> {
        let (start, size, n) =
            (number::<8>(bytes, at), number::<2>(bytes, size), number::<2>(bytes, n));
        (0..n).map(|i| start + i * size).collect()
    };
    let (segments, sections) = (table(0x20, 0x36, 0x38), table(0x28, 0x3a, 0x3c));
    let in_file = |address: u64| {
        let load = |at: &u64| {
            let [offset, from, size] = [8, 16, 32].map(|field| number::<8>(bytes, at + field));
            let is_code = number::<4>(bytes, *at) == 1 && number::<4>(bytes, at + 4) & 1 != 0;
            (is_code && (from..from + size).contains(&address)).then(|| address - from + offset)
        };
        segments.iter().find_map(load)
    };
    let section = |at: u64| {
        let [offset, size] = [24, 32].map(|field| number::<8>(bytes, at + field) as usize);
        &bytes[offset..offset + size]
    };
    let names = section(sections[number::<2>(bytes, 0x3e) as usize]);
    let mut found = Vec::new();
    for at in sections {
        if text(&names[number::<4>(bytes, at) as usize..]).0 != ".note.stapsdt" {
            continue;
        }
        let mut rest = section(at);
        while !rest.is_empty() {
            let [name, size] =
                [0, 4].map(|field| (number::<4>(rest, field) as usize).next_multiple_of(4));
            assert_eq!((number::<4>(rest, 8), &rest[12..12 + 8]), (3, &b"stapsdt\0"[..]));
            let note = &rest[12 + name..12 + name + size];
            let address = number::<8>(note, 0);
            // Behind the address: that of a section of which prelinkers move the note, and of a semaphore.
            let (provider, note) = text(&note[24..]);
            let (name_of, note) = text(note);
            let (arguments, _) = text(note);
            // Notes of functions that the linker has left out name addresses that are no code.
            if let Some(offset) = in_file(address) {
                found.push(Probe { provider, name: name_of, arguments, offset, address });
            }
            rest = &rest[12 + name + size..];
        }
    }
    found
}

/// A file has the tracepoints of packets, with their arguments, each at an instruction that does nothing; and each is in the file as far from the
/// beginning as in memory, if it `is_linked` so: some tracers (perf of Linux 6.1) take the one for the other, and would put
/// their trap into the middle of other code.
pub(crate) fn check(file: &Path, is_linked: bool) {
    let (probes, bytes) = (probes(file), std::fs::read(file).unwrap());
    for (name, arguments) in [("consume_skb", 1), ("kfree_skb", 2)] {
        let known: Vec<_> = probes
            .iter()
            .filter(|probe| (&*probe.provider, &*probe.name) == ("quietline", name))
            .collect();
        assert!(!known.is_empty(), "{} has no quietline:{name}", file.display());
        for probe in known {
            assert_eq!(
                probe.arguments.split_whitespace().count(),
                arguments,
                "{name}: {}",
                probe.arguments
            );
            if cfg!(target_arch = "x86_64") {
                assert_eq!(bytes[probe.offset as usize], 0x90, "{name}: a nop");
            }
            assert!(!is_linked || probe.offset == probe.address, "{name} is elsewhere in the file");
        }
    }
    println!("{}: {} tracepoints", file.display(), probes.len());
}
