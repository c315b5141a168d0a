//! The queue of bytes, against a plain list.

use super::*;
use crate::net::Net;
use core::ptr;
use std::sync::OnceLock;

fn net() -> &'static NetRef {
    static NET: OnceLock<NetRef> = OnceLock::new();
    NET.get_or_init(|| NetRef::of(Box::leak(Box::new(Net::new().unwrap()))))
}

fn filler(next: &mut u8) -> impl FnMut(&mut [u8]) -> usize {
    move |memory| {
        for byte in memory.iter_mut() {
            *byte = *next;
            *next = next.wrapping_add(1);
        }
        memory.len()
    }
}

#[test]
fn bytes_come_out_as_they_went_in() {
    let mut queue = Bytes::new();
    let (mut written, mut read) = (0u8, 0u8);
    let mut dice = 12345u64;
    let mut roll = |n: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (dice >> 33) as usize % n + 1
    };
    let mut expected = 0;
    for _ in 0..20_000 {
        match roll(4) {
            1 => expected += queue.append(roll(SMALL), net(), filler(&mut written)).unwrap(),
            2 => {
                let want = roll(3 * LARGE);
                let chunk = queue.prepare(want).unwrap();
                let mut chunk = chunk.map_or_else(|| Bytes::allocate(want, *net()), Ok).unwrap();
                expected += chunk.append(want, filler(&mut written));
                queue.add(chunk);
            }
            3 => {
                let n = roll(LARGE);
                let shown = queue.show(0, |bytes| bytes.len().min(n));
                assert!(shown <= expected);
                expected -= queue.give(n, |bytes| check(&mut read, bytes));
            }
            _ => {
                if let Some(chunk) = queue.take(roll(2 * LARGE)) {
                    assert_eq!(queue.len(), expected, "counted while it is being emptied");
                    check(&mut read, chunk.bytes());
                    expected -= chunk.bytes().len();
                    queue.emptied(chunk);
                }
            }
        }
        assert_eq!(queue.len(), expected);
        assert_eq!(queue.is_empty(), expected == 0);
    }
    assert_eq!(queue.clear(), expected);
    assert!(queue.is_empty());
}

fn check(read: &mut u8, bytes: &[u8]) {
    for &byte in bytes {
        assert_eq!(byte, *read);
        *read = read.wrapping_add(1);
    }
}

#[test]
fn a_look_passes_over_what_it_has_seen() {
    let mut queue = Bytes::new();
    let mut next = 0u8;
    for _ in 0..3 {
        queue.append(SMALL, net(), filler(&mut next)).unwrap();
    }
    let mut seen = Vec::new();
    let shown = queue.show(5000, |bytes| {
        seen.extend_from_slice(bytes);
        bytes.len()
    });
    assert_eq!(shown, 3 * SMALL - 5000);
    assert!(seen.iter().enumerate().all(|(at, &byte)| byte == (at + 5000) as u8));
    assert_eq!(queue.len(), 3 * SMALL, "nothing was taken");
}

#[test]
fn short_messages_stay_in_one_place() {
    let mut queue = Bytes::new();
    let mut next = 0u8;
    let mut places = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        queue
            .append(1, net(), |memory| {
                places.insert(memory.as_ptr() as usize);
                filler(&mut next)(memory)
            })
            .unwrap();
        queue.give(100, |_| ());
    }
    assert_eq!(places.len(), 1);
}

#[test]
fn without_memory_nothing_is_lost() {
    let mut queue = Bytes::new();
    let mut next = 0u8;
    let mut failed = 0;
    for nth in 1.. {
        quietline_platform::fault::fail_nth(nth);
        let before = queue.len();
        let result = queue.append(SMALL, net(), filler(&mut next));
        let armed = quietline_platform::fault::armed();
        quietline_platform::fault::fail_nth(0);
        match result {
            Ok(n) => assert_eq!(queue.len(), before + n),
            Err(refused) => {
                assert_eq!(refused.stored(), None, "there is no limit");
                failed += 1;
                assert_eq!(queue.len(), before);
            }
        }
        if armed {
            break;
        }
    }
    assert!(failed >= 2, "chunk and list");
    let mut read = 0u8;
    while !queue.is_empty() {
        queue.give(LARGE, |bytes| check(&mut read, bytes));
    }
    assert_eq!(read, next, "what was said to be in came out");
}

#[test]
fn no_line_is_shared_with_a_neighbour() {
    let queues: Vec<Bytes> = (0..64)
        .map(|_| {
            let mut queue = Bytes::new();
            queue.append(1, net(), |memory| memory.len()).unwrap();
            queue
        })
        .collect();
    let mut lines = Vec::new();
    for queue in &queues {
        let chunk = queue.chunks.front().unwrap();
        for (start, len) in [
            (ptr::from_ref(chunk).addr(), size_of_val(chunk)),
            (chunk.bytes().as_ptr().addr(), chunk.capacity()),
        ] {
            assert_eq!((start % LINE, len % LINE), (0, 0));
            lines.extend((start / LINE)..((start + len) / LINE));
        }
    }
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), all);
}
