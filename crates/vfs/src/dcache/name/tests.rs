use super::*;
use std::collections::HashSet;

const KEYS: Keys = Keys::new([
    0x1234_5678_9abc_def1,
    0x0fed_cba9_8765_4321,
    0x1357_9bdf_0246_8ace,
    0x7531_8642_fdb9_eca1,
]);

fn slow_word(bytes: &[u8], i: usize) -> u64 {
    (0..8)
        .fold(0, |word, b| word | u64::from(bytes.get(8 * i + b).copied().unwrap_or(0)) << (8 * b))
}

#[test]
fn words_are_the_bytes_zero_padded() {
    let bytes: Vec<u8> = (1..=255).collect();
    for n in 0..=NAME_MAX {
        let name = Name::new(&bytes[..n], &KEYS).unwrap();
        for i in 0..34 {
            assert_eq!(name.word(i), slow_word(&bytes[..n], i), "{n} bytes, word {i}");
        }
        assert_eq!(
            name.words,
            [slow_word(&bytes[..n], 0), slow_word(&bytes[..n], 1), slow_word(&bytes[..n], 2)]
        );
        assert_eq!(name.hash_len & 0xff, n as u64);
    }
    assert_eq!(Name::new(&[b'x'; 256], &KEYS).unwrap_err(), Errno::NAMETOOLONG);
}

#[test]
fn keys_are_drawn_anew_and_hash_names_of_any_length() {
    let (one, other) = (Keys::draw().unwrap(), Keys::draw().unwrap());
    for bytes in [&b"a"[..], b"a\0", &[b'x'; 24], &[b'x'; 25], &[b'x'; 1000]] {
        assert_ne!(one.hash(bytes), other.hash(bytes), "{} bytes", bytes.len());
        // The same hash as a looked-up name's, of which 56 bits are kept.
        if let Ok(name) = Name::new(bytes, &one) {
            assert_eq!(one.hash(bytes) << 8 >> 8, name.hash());
        }
    }
}

#[test]
fn no_collisions_among_a_million_likely_names() {
    let mut seen = HashSet::new();
    for i in 0..250_000 {
        for name in [
            format!("{i}"),
            format!("file{i:07}.txt"),
            format!("{i:x}-a-rather-long-name-beyond-the-inline-words"),
            "x".repeat(i % 200 + 1) + &format!("{i}"),
        ] {
            let hash = Name::new(name.as_bytes(), &KEYS).unwrap().hash_len;
            assert!(seen.insert((hash >> 8, name.len())), "{name}");
        }
    }
}

#[test]
fn every_bit_of_a_name_and_the_length_count() {
    for n in [1usize, 7, 8, 9, 16, 17, 24, 25, 40, 41, 255] {
        let base = vec![b'a'; n];
        let hash = |bytes: &[u8]| Name::new(bytes, &KEYS).unwrap().hash();
        let mut seen = HashSet::from([hash(&base)]);
        for bit in 0..8 * n {
            let mut other = base.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(hash(&other)), "{n} bytes, bit {bit}");
        }
        assert!(seen.insert(hash(&base[..n - 1])));
    }
}

#[test]
fn low_bits_spread() {
    // What a table uses: the low bits choose the slot. 2^16 names into 2^16 slots fill 1 - 1/e of them.
    let slots: HashSet<u64> = (0..1 << 16)
        .map(|i| Name::new(format!("f{i}").as_bytes(), &KEYS).unwrap().hash() & 0xffff)
        .collect();
    assert!((40_900..41_950).contains(&slots.len()), "{}", slots.len());
}
