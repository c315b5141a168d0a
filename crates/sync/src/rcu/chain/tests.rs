use super::{Chain, Head, HeadOfMany, Many};
use core::ptr::NonNull;

fn heads(n: usize) -> Vec<Head> {
    unsafe fn nothing(_: NonNull<Head>) {}
    let mut heads: Vec<Head> = (0..n).map(|_| Head::new()).collect();
    // SAFETY: the heads are this test's.
    heads.iter_mut().for_each(|head| unsafe { Head::set(NonNull::from(head), nothing) });
    heads
}

/// A list as the per-CPU push leaves it: the last head pushed comes first.
fn list(heads: &mut [Head]) -> u64 {
    let mut first = 0;
    for head in heads {
        *head.next.get_mut() = first;
        first = NonNull::from(head).as_ptr() as u64;
    }
    first
}

fn drain(mut chain: Chain) -> Vec<usize> {
    let mut out = Vec::new();
    while let Some(head) = chain.pop() {
        out.push(head.as_ptr() as usize);
        assert_eq!(chain.len() == 0, chain.first.is_null());
    }
    assert_eq!(chain.len(), 0);
    assert!(chain.last.is_null());
    out
}

#[test]
fn every_way_of_cutting_and_joining_keeps_order_and_length() {
    for sizes in [(0, 0), (0, 3), (3, 0), (1, 1), (2, 5), (4, 1)] {
        for cut in 0..9 {
            let mut a = heads(sizes.0);
            let mut b = heads(sizes.1);
            let address = |h: &Head| h as *const Head as usize;
            let expect: Vec<usize> = a.iter().rev().chain(b.iter().rev()).map(address).collect();
            // SAFETY: the heads outlive the chains, and are on these lists alone.
            let (mut chain, other) =
                unsafe { (Chain::of_list(list(&mut a)), Chain::of_list(list(&mut b))) };
            chain.append(other);
            assert_eq!(chain.len() as usize, expect.len());
            let front = chain.take(cut);
            assert_eq!(front.len() as usize, expect.len().min(cut as usize));
            assert_eq!((front.len() + chain.len()) as usize, expect.len());
            let mut got = drain(front);
            got.extend(drain(chain));
            assert_eq!(got, expect);
        }
    }
}

/// Heads of many count for what they say, and a cut takes whole heads.
#[test]
fn lengths_are_counted_in_objects() {
    unsafe fn nothing(_: NonNull<HeadOfMany>) {}
    unsafe fn ten(_: NonNull<HeadOfMany>) -> u32 {
        10
    }
    unsafe fn none(_: NonNull<HeadOfMany>) -> u32 {
        0
    }
    static TEN: Many = Many { run: nothing, count: ten };
    static NONE: Many = Many { run: nothing, count: none };
    let mut single = heads(2);
    let mut many = [HeadOfMany::new(&TEN), HeadOfMany::new(&NONE), HeadOfMany::new(&TEN)];
    // SAFETY: the heads outlive the chain, and are on this list alone.
    let mut chain = unsafe { Chain::of_list(list(&mut single)) };
    for head in &mut many {
        *head.head.next.get_mut() = 0;
        // SAFETY: as above.
        chain.append(unsafe { Chain::of_list(NonNull::from(head).as_ptr() as u64) });
    }
    assert_eq!(chain.len(), 2 + 10 + 1 + 10);
    assert_eq!(chain.take(0).len(), 0);
    let front = chain.take(3);
    assert_eq!((front.len(), drain(front).len()), (12, 3), "two single ones, and a whole one");
    let rest = chain.take(2);
    assert_eq!((rest.len(), chain.len()), (11, 0));
    assert!(chain.first.is_null() && chain.last.is_null());
    assert_eq!(drain(rest).len(), 2);
}
