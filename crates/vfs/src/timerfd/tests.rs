//! What a timer counts, at times that the test names.

use super::*;

#[test]
fn counts_are_exact() {
    let mut once = State { expires: Some(100), interval: 0, ticks: 0 };
    assert_eq!((once.expire(99), once.expire(100), once.expire(1 << 60)), (0, 1, 1));
    let mut every = State { expires: Some(100), interval: 7, ticks: 0 };
    assert_eq!(
        (every.expire(99), every.expire(100), every.expire(106), every.expire(107)),
        (0, 1, 0, 1)
    );
    assert_eq!(every.expire(107 + 7 * 1000 + 6), 1000);
    assert_eq!(every.expires, Some(107 + 7 * 1001));
    let mut fast = State { expires: Some(-(1 << 60)), interval: 1, ticks: 0 };
    assert_eq!(fast.expire(0), (1 << 60) + 1, "before the clock's beginning");
    let mut far = State { expires: Some(5), interval: i64::MAX, ticks: 0 };
    assert_eq!((far.expire(6), far.expires), (1, Some(i64::MAX)));
}

#[test]
fn what_is_asked_is_kept() {
    let mut every = State { expires: Some(100), interval: 10, ticks: 0 };
    let spec = every.spec(125);
    assert_eq!((spec.value.as_nanos(), spec.interval.as_nanos(), every.ticks), (5, 10, 3));
    assert!(every.is_expired(|| 0));
    let mut once = State { expires: Some(100), interval: 0, ticks: 0 };
    assert_eq!((once.spec(40).value.as_nanos(), once.spec(140).value.as_nanos()), (60, 0));
    assert!(once.is_expired(|| 140), "asking does not read it");
}
