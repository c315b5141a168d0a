use super::{Chain, Head};
use core::ptr::NonNull;

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
            let mut a: Vec<Head> = (0..sizes.0).map(|_| Head::new()).collect();
            let mut b: Vec<Head> = (0..sizes.1).map(|_| Head::new()).collect();
            let address = |h: &Head| h as *const Head as usize;
            let expect: Vec<usize> = a.iter().rev().chain(b.iter().rev()).map(address).collect();
            // SAFETY: the heads outlive the chains, and are on these lists alone.
            let (mut chain, other) = unsafe { (Chain::of_list(list(&mut a)), Chain::of_list(list(&mut b))) };
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
